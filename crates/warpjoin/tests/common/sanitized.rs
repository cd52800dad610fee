//! Runs tests again in a process that has AddressSanitizer and UndefinedBehaviorSanitizer loaded.

use std::process::Command;

use warpjoin_device::SimOptions;

use super::sessions::say;

const CHILD: &str = "WARPJOIN_SANITIZED_CHILD";

/// Whether this is such a process: its simulated devices compile kernels with sanitizers.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs this test binary again with `arguments`, sanitized; fails if it does or a sanitizer speaks.
/// A visible SKIP where the compiler brings none.
pub(crate) fn run_again(test: &str, arguments: &[&str]) {
    let Some(environment) = SimOptions::sanitizer_environment() else {
        say(&format!("SKIP {test}: the compiler brings no AddressSanitizer"));
        return;
    };
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(arguments).arg("--nocapture").env(CHILD, "1").envs(environment);
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("runtime error"), "{}: {text}", output.status);
}
