//! Runs the binary.
#![allow(unreachable_pub, reason = "each test binary has this module")]

use std::path::Path;
use std::process::{Command, Output};

pub fn warpjoin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpjoin")).args(arguments).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that a command fails with a clear message, without a panic or a debug dump.
#[track_caller]
pub fn assert_error(arguments: &[&str], words: &[&str]) {
    let output = warpjoin(arguments);
    let message = stderr(&output);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    for word in words {
        assert!(message.contains(word), "{arguments:?} does not print {word}: {message}");
    }
    for bad in ["panicked", "RUST_BACKTRACE", "Error {", "Some(", "Err("] {
        assert!(!message.contains(bad), "{arguments:?} prints {bad}: {message}");
    }
}

pub fn scratch(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
