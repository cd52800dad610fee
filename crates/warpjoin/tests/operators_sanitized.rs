//! Small cases of the operators under AddressSanitizer and UndefinedBehaviorSanitizer: each test
//! runs itself again in a process that has them loaded.

mod common;

use std::process::Command;

use common::sessions::{Simulated, say};
use common::{edges, random};
use warpjoin_device::SimOptions;

const CHILD: &str = "WARPJOIN_SANITIZED_CHILD";

/// Runs `work` sanitized, in a process of its own.
fn sanitized(test: &str, work: impl Fn(&Simulated)) {
    if std::env::var_os(CHILD).is_some() {
        return work(&Simulated(SimOptions { sanitize: true, ..SimOptions::default() }));
    }
    let Some(environment) = SimOptions::sanitizer_environment() else {
        say(&format!("SKIP {test}: the compiler brings no AddressSanitizer"));
        return;
    };
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args([test, "--exact", "--nocapture"]).env(CHILD, "1").envs(environment);
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("runtime error"), "{}: {text}", output.status);
}

#[test]
fn edges_are_clean() {
    // One setting of one device, and the one with most traffic between devices.
    let mut settings = edges::settings();
    settings.retain(|settings| settings.hash_bits != 64);
    sanitized("edges_are_clean", |devices| edges::check(devices, &some_edges(), &settings));
}

/// Every fifth edge of few rows: compiling for the sanitizers takes long.
fn some_edges() -> Vec<edges::Edge> {
    edges::all(true).into_iter().step_by(5).collect()
}

#[test]
fn random_plans_are_clean() {
    let seeds: Vec<u64> = (100..120).collect();
    sanitized("random_plans_are_clean", |devices| {
        random::check(devices, &seeds);
    });
}
