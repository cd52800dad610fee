//! Source lines of code in kernel libraries, found by `addr2line`.
//!
//! Must not know why they are needed.

use std::io::Write;
use std::process::{Command, Stdio};

/// The source lines of the instruction at this offset in a library's image: its own `file:line`, then those of its
/// inlined callers. Empty if unknown.
pub(in crate::sim) fn of(image: &[u8], offset: u32) -> Vec<String> {
    let Ok(mut file) = tempfile::Builder::new().prefix("warpjoin-").suffix(".so").tempfile() else {
        return vec![];
    };
    if image.is_empty() || file.write_all(image).is_err() {
        return vec![];
    }
    let mut command = Command::new("addr2line");
    command.arg("-i").arg("-e").arg(file.path()).arg(format!("{offset:#x}")).stdin(Stdio::null()).env("LC_ALL", "C");
    let Ok(output) = command.output() else {
        return vec![];
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.starts_with('?')).map(short);
    // Leaves out the simulator's own headers, which implement atomics.
    lines.skip_while(|line| line.starts_with("sim/")).collect()
}

/// Removes the scratch folder in which the kernels were compiled.
fn short(line: &str) -> String {
    let line = line.split(" (discriminator").next().unwrap_or(line);
    let within = line.split_once("/warpjoin-sim-").and_then(|(_, rest)| rest.split_once('/'));
    within.map_or(line, |(_, rest)| rest.trim_start_matches("./")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_folders_are_left_out() {
        assert_eq!(short("/tmp/warpjoin-sim-a1B/common/scan.cuh:77"), "common/scan.cuh:77");
        assert_eq!(short("/tmp/warpjoin-sim-a1B/sort.cu:7 (discriminator 2)"), "sort.cu:7");
        assert_eq!(short("test:3"), "test:3");
        assert!(of(&[], 3).is_empty());
    }
}
