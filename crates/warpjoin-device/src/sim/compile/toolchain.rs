//! The system's C++ compiler: which one is used, and with which flags.
//!
//! Must not know where the result is cached or who uses it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::TempDir;
use warpjoin_kernels::{HEADERS, KernelFile, SIMULATION_HEADERS, SIMULATION_RUNTIME};

use super::library::LibrarySource;
use crate::sim::options::ChangedFile;
use crate::{DeviceError, KernelCache, Result};

/// Purpose of a library; determines the compiler's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Purpose {
    /// A module of kernels. Compiled often, so with few optimizations.
    Kernels,
    /// A module of kernels with sanitizers.
    SanitizedKernels,
    /// A module of kernels whose plain loads and stores are yield points too.
    YieldingKernels,
    /// A module of kernels that report each access to the race detector.
    RacingKernels,
    /// The fiber scheduler. Compiled once, so with more optimizations.
    Runtime,
}

/// A C++ compiler that runs.
#[derive(Debug)]
pub(in crate::sim) struct Toolchain {
    /// Program and first arguments.
    command: Vec<String>,
    version: String,
}

impl Toolchain {
    /// `$CXX`, else the first of `c++`, `g++` and `clang++` that runs.
    pub(in crate::sim) fn find() -> Result<Self> {
        let mut missing = None;
        for command in candidates() {
            match version(&command) {
                Ok(version) => {
                    return Ok(Self { command, version });
                }
                Err(reason) => {
                    missing.get_or_insert(DeviceError::NoCompiler { tried: command.join(" "), reason });
                }
            }
        }
        Err(missing.unwrap_or_else(|| DeviceError::NoCompiler { tried: "CXX".into(), reason: "it is empty".into() }))
    }

    /// First line of the compiler's version text.
    pub(in crate::sim) fn version(&self) -> &str {
        &self.version
    }

    /// Everything except the source that determines the result of a compilation.
    pub(in crate::sim) fn identity(&self, purpose: Purpose) -> String {
        let mut identity = vec![self.command.join(" "), self.version.clone(), std::env::consts::ARCH.to_string()];
        identity.extend(flags(purpose).iter().chain(link_flags(purpose)).map(ToString::to_string));
        identity.join("\n")
    }

    /// Compiles a source to the bytes of a shared library. Threads may compile concurrently. Each call uses its own
    /// scratch folder and removes it, so that devices in a static leave no folder behind.
    pub(in crate::sim) fn compile(&self, library: &LibrarySource<'_>) -> Result<Vec<u8>> {
        let &LibrarySource { name, text, defines, purpose, header } = library;
        let scratch = write_headers(header).map_err(|error| temporary_file_error(&error))?;
        let source = scratch.path().join("module.cpp");
        let library = scratch.path().join("module.so");
        fs::write(&source, format!("#line 1 \"{}\"\n{text}", name.replace(['"', '\\', '\n'], "_")))
            .map_err(|error| file_error(&source, &error))?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(flags(purpose)).arg("-I").arg(scratch.path());
        command.args(defines.iter().map(|define| format!("-D{define}")));
        command.arg(&source).args(link_flags(purpose)).arg("-o").arg(&library).stdin(Stdio::null());
        if purpose == Purpose::RacingKernels {
            // Source lines are then relative to the scratch folder.
            command.current_dir(scratch.path());
        }
        // The sanitizer is for this process, not for the compiler.
        command.env_remove("LD_PRELOAD").env_remove("ASAN_OPTIONS").env("LC_ALL", "C");
        let output = command
            .output()
            .map_err(|error| DeviceError::NoCompiler { tried: self.command.join(" "), reason: error.to_string() })?;
        if !output.status.success() {
            let log = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(DeviceError::KernelCompile { module: name.to_string(), target: self.version.clone(), log });
        }
        fs::read(&library).map_err(|error| file_error(&library, &error))
    }
}

/// The main source file of the fiber scheduler.
pub(in crate::sim) fn runtime_source() -> Option<&'static KernelFile> {
    SIMULATION_RUNTIME.first()
}

/// A key of all header texts.
pub(in crate::sim) fn headers_key(purpose: Purpose) -> &'static str {
    static KEYS: [OnceLock<String>; 2] = [const { OnceLock::new() }; 2];
    let (key, files): (_, [&[KernelFile]; 2]) = match purpose {
        Purpose::Runtime => (&KEYS[0], [SIMULATION_RUNTIME, &[]]),
        _ => (&KEYS[1], [&HEADERS, SIMULATION_HEADERS]),
    };
    key.get_or_init(|| KernelCache::key_of_files(files.into_iter().flatten()))
}

/// Whether a text includes a header, directly or indirectly.
pub(in crate::sim) fn includes(text: &str, header: &KernelFile) -> bool {
    let mut found: Vec<&KernelFile> = vec![];
    let mut texts = vec![text];
    while let Some(text) = texts.pop() {
        let included =
            |file: &&KernelFile| text.contains(&format!("#include \"{}\"", file.name)) && !found.contains(file);
        let more: Vec<&KernelFile> = HEADERS.iter().filter(included).collect();
        texts.extend(more.iter().map(|file| file.text));
        found.extend(more);
    }
    found.contains(&header)
}

/// The AddressSanitizer library of the compiler that [`Toolchain::find`] would choose.
pub(in crate::sim) fn sanitizer_library() -> Option<PathBuf> {
    let command = candidates().into_iter().find(|command| version(command).is_ok())?;
    let names = ["libasan.so".to_string(), format!("libclang_rt.asan-{}.so", std::env::consts::ARCH)];
    names.iter().find_map(|name| {
        let output =
            Command::new(&command[0]).args(&command[1..]).arg(format!("-print-file-name={name}")).output().ok()?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        // The compiler prints the bare name if it has no such file.
        fs::canonicalize(&path).ok().filter(|_| path.is_absolute())
    })
}

/// Whether AddressSanitizer is loaded in this process.
pub(in crate::sim) fn sanitizer_is_loaded() -> bool {
    let process = libloading::os::unix::Library::this();
    // SAFETY: the symbol is only looked up; it is not called or read.
    unsafe { process.get::<*const ()>(b"__asan_init\0") }.is_ok()
}

fn candidates() -> Vec<Vec<String>> {
    let split = |text: String| text.split_whitespace().map(ToString::to_string).collect::<Vec<_>>();
    match std::env::var("CXX").map(split) {
        Ok(command) if !command.is_empty() => vec![command],
        _ => ["c++", "g++", "clang++"].map(|name| vec![name.to_string()]).to_vec(),
    }
}

/// First line of `command --version`, run once per process.
fn version(command: &[String]) -> std::result::Result<String, String> {
    static KNOWN: Mutex<Option<HashMap<Vec<String>, String>>> = Mutex::new(None);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(version) = known().as_ref().and_then(|map| map.get(command)) {
        return Ok(version.clone());
    }
    let output = Command::new(&command[0])
        .args(&command[1..])
        .arg("--version")
        .env_remove("LD_PRELOAD")
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(line) = text.lines().next().filter(|_| output.status.success()) else {
        return Err(format!("{} --version: {}", command.join(" "), output.status));
    };
    known().get_or_insert_default().insert(command.to_vec(), line.to_string());
    Ok(line.to_string())
}

fn flags(purpose: Purpose) -> Vec<&'static str> {
    let mut flags = vec!["-std=c++17", "-fPIC", "-shared", "-w", "-pipe", "-fvisibility=hidden"];
    flags.extend(["-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-fno-math-errno"]);
    if cfg!(target_arch = "x86_64") {
        // For an atomicCAS on 16 bytes.
        flags.push("-mcx16");
    }
    flags.extend(match purpose {
        // Does not link the standard library: searching it takes longer than linking everything else.
        Purpose::Kernels => &["-O1", "-nostdlib"][..],
        // `-fsanitize=thread` inserts calls, which `sim/simt_plain.h` implements. ThreadSanitizer's library is not linked.
        Purpose::YieldingKernels => &["-O1", "-nostdlib", "-fsanitize=thread"][..],
        Purpose::RacingKernels => &["-O1", "-g1", "-nostdlib", "-fsanitize=thread", "-DWJ_SIM_RACES=1"][..],
        Purpose::SanitizedKernels => &["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"][..],
        Purpose::Runtime => &["-O2"][..],
    });
    flags
}

fn link_flags(purpose: Purpose) -> &'static [&'static str] {
    match purpose {
        Purpose::Kernels | Purpose::YieldingKernels | Purpose::RacingKernels => &["-lm", "-lgcc"],
        Purpose::SanitizedKernels | Purpose::Runtime => &["-lm"],
    }
}

fn write_headers(changed: Option<&ChangedFile>) -> std::io::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("warpjoin-sim-").tempdir()?;
    for file in [&HEADERS[..], SIMULATION_HEADERS, SIMULATION_RUNTIME].into_iter().flatten() {
        let path = dir.path().join(file.name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let changed = changed.filter(|changed| changed.file == *file);
        fs::write(path, changed.map_or(file.text, |changed| &changed.text))?;
    }
    Ok(dir)
}

/// An error about a file in the system's folder for temporary files.
pub(super) fn temporary_file_error(error: &std::io::Error) -> DeviceError {
    let reason =
        format!("no temporary file can be written here: {error}; set TMPDIR to a folder that can be written to");
    DeviceError::File { path: std::env::temp_dir(), reason }
}

fn file_error(path: &Path, error: &std::io::Error) -> DeviceError {
    DeviceError::File { path: path.to_path_buf(), reason: error.to_string() }
}
