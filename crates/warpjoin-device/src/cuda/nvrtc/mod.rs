//! NVRTC, the run-time compiler: compiles CUDA C++ text to a binary for one architecture.
//!
//! Owns the compiler's options and the cache key of a module. Must not need a GPU or a driver. Threads compile in
//! parallel: no lock is held here, and `copies.rs` avoids contention on the library's lock.

mod copies;
mod library;
pub(super) mod prebuilt;
mod process;

use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use cudarc::nvrtc::sys::{self, nvrtcResult};
use warpjoin_kernels::HEADERS;

use super::exit::{self, LibraryInUse};
use crate::cache::KernelCache;
use crate::{DeviceError, ModuleSource, Result};
use copies::Copies;
use library::{Library, describe, known_architectures, loaded_version, missing};

/// The oldest NVRTC with the options and the language that warpjoin needs.
const OLDEST: (c_int, c_int) = (12, 0);

/// Options of every compilation. `--fmad=false`: `a * b + c` rounds twice, as on the CPU, so that a
/// query has the same floating-point results on both. `-v` adds registers and spills to the log.
const OPTIONS: [&str; 4] = ["--std=c++17", "--device-int128", "--fmad=false", "--ptxas-options=-v"];

/// Options for kernels that interpret, whose switch is large and whose functions are many: a jump table, and two threads. All four
/// kernels take 3.9 s with two threads on 16 cores, 5.3 s with one, 4.9 s with all.
const DISPATCH_OPTIONS: [&str; 2] = ["--jump-table-density=10", "--split-compile=2"];
/// The first NVRTC that is known to have them.
const DISPATCH_OPTIONS_SINCE: (c_int, c_int) = (13, 0);

/// The loaded compiler.
#[derive(Debug)]
pub(super) struct Nvrtc {
    version: (c_int, c_int),
    /// Distinguishes builds of one version.
    build: String,
    /// Supported architectures, ascending; 90 is `sm_90`.
    known: Vec<u32>,
}

/// The target of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A binary for this architecture.
    Cubin(u32),
    /// PTX for this architecture and later ones, which the driver compiles to a binary.
    Ptx(u32),
}

impl Target {
    /// Extension of its files.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Cubin(_) => "cubin",
            Self::Ptx(_) => "ptx",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cubin(number) => write!(f, "sm_{number}"),
            Self::Ptx(number) => write!(f, "compute_{number}"),
        }
    }
}

impl Nvrtc {
    /// Loads the compiler: `libnvrtc.so`, then `libnvrtc.so.13`, `.12` and older, on the loader's
    /// path (`LD_LIBRARY_PATH`, then the system's folders); not with `WARPJOIN_NVRTC=off`. Only success is cached.
    ///
    /// # Errors
    /// `NoNvrtc` if it is missing; `Driver` if it is too old.
    pub(super) fn get() -> Result<&'static Self> {
        static READY: OnceLock<Nvrtc> = OnceLock::new();
        static PRESENT: OnceLock<bool> = OnceLock::new();
        if let Some(nvrtc) = READY.get() {
            return Ok(nvrtc);
        }
        let is_off = || std::env::var_os("WARPJOIN_NVRTC").is_some_and(|value| value == "off");
        // SAFETY: loading libnvrtc runs its constructors, which have no preconditions.
        if !*PRESENT.get_or_init(|| !is_off() && unsafe { sys::is_culib_present() }) {
            return Err(DeviceError::NoNvrtc);
        }
        // SAFETY: the library is present.
        let (major, minor) = unsafe { loaded_version() }?;
        if (major, minor) < OLDEST {
            let reason = format!("libnvrtc {major}.{minor} is too old: {}.{} or later is needed", OLDEST.0, OLDEST.1);
            return Err(DeviceError::Driver { device: "nvrtc".into(), call: "nvrtcVersion", reason });
        }
        // SAFETY: the library is present.
        let known = unsafe { known_architectures() }?;
        let build = build_of((major, minor), Self::path().as_deref());
        Ok(READY.get_or_init(|| {
            exit::wait_at_exit();
            Self { version: (major, minor), build, known }
        }))
    }

    /// For example `13.0`.
    pub(super) fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// The loaded file, if known.
    pub(super) fn path() -> Option<PathBuf> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let path = |line: &str| Some(PathBuf::from(line.get(line.find('/')?..)?));
        maps.lines()
            .filter_map(path)
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc.so")))
    }

    /// The target for a GPU of this compute capability: its own binary, or, if this NVRTC does not
    /// know the architecture, PTX for the latest known one before it.
    ///
    /// # Errors
    /// `UnknownArchitecture` if the GPU is older than all supported architectures.
    pub(super) fn target(&self, capability: (u32, u32)) -> Result<Target> {
        let number = capability.0 * 10 + capability.1;
        if self.known.contains(&number) {
            return Ok(Target::Cubin(number));
        }
        let before = self.known.iter().rev().find(|&&known| known < number);
        before.map(|&known| Target::Ptx(known)).ok_or_else(|| self.unknown(&format!("sm_{number}")))
    }

    /// The target for a name such as `sm_90`.
    fn target_named(&self, architecture: &str) -> Result<Target> {
        architecture
            .strip_prefix("sm_")
            .and_then(|number| number.parse().ok())
            .filter(|number| self.known.contains(number))
            .map(Target::Cubin)
            .ok_or_else(|| self.unknown(architecture))
    }

    fn unknown(&self, architecture: &str) -> DeviceError {
        let known: Vec<String> = self.known.iter().map(|&number| Target::Cubin(number).to_string()).collect();
        DeviceError::UnknownArchitecture {
            architecture: architecture.into(),
            nvrtc: self.version(),
            known: known.join(", "),
        }
    }

    /// Key of the compiled module in the disk cache, made of everything that the module depends on.
    pub(super) fn key(&self, source: &ModuleSource, target: Target) -> String {
        static HEADERS_KEY: OnceLock<String> = OnceLock::new();
        let headers = HEADERS_KEY.get_or_init(|| KernelCache::key_of_files(HEADERS.iter()));
        let options = options(source, target, self.version);
        let mut parts = vec!["cuda", &self.build, &source.name, &source.text, headers, "options"];
        parts.extend(options.iter().map(String::as_str));
        parts.push("entries");
        parts.extend(source.entries.iter().map(String::as_str));
        KernelCache::key(&parts)
    }

    /// Compiles `source`. PTX ends in a zero byte.
    ///
    /// # Errors
    /// `KernelCompile` with the log if the text does not compile or lacks an entry.
    pub(super) fn compile(&self, source: &ModuleSource, target: Target) -> Result<Vec<u8>> {
        let _use = LibraryInUse::begin()?;
        let library = copies()?.take(Self::path);
        let program = library.program(source)?;
        let start = Instant::now();
        let result = program.compile(&options(source, target, self.version))?;
        let rejected =
            |log| DeviceError::KernelCompile { module: source.name.clone(), target: target.to_string(), log };
        let log = program.log()?;
        if result == nvrtcResult::NVRTC_ERROR_COMPILATION {
            return Err(rejected(log));
        }
        if result != nvrtcResult::NVRTC_SUCCESS {
            let reason = format!("{} (module {}, {target}) {log}", describe(result), source.name);
            return Err(DeviceError::Driver { device: "nvrtc".into(), call: "nvrtcCompileProgram", reason });
        }
        let entries = source.entries.join(", ");
        log::debug!("NVRTC: {} ({entries}) for {target}: {} ms", source.name, start.elapsed().as_millis());
        if !log.is_empty() {
            log::debug!("NVRTC on {} for {target}:\n{log}", source.name);
        }
        let image = program.image(target)?;
        match source.entries.iter().find(|entry| !has_entry(&image, target, entry)) {
            Some(entry) => Err(rejected(format!("the source defines no entry {entry}"))),
            None => Ok(image),
        }
    }
}

/// Compiles a module to a cubin for `architecture`, such as `sm_90`. Needs no GPU and no driver.
///
/// # Errors
/// [`DeviceError::NoNvrtc`] without the compiler, [`DeviceError::UnknownArchitecture`] if it does
/// not support the architecture, [`DeviceError::KernelCompile`] with the log if it rejects the text.
pub fn compile_for_architecture(source: &ModuleSource, architecture: &str) -> Result<Vec<u8>> {
    let nvrtc = Nvrtc::get()?;
    nvrtc.compile(source, nvrtc.target_named(architecture)?)
}

/// The library and its copies. Set by the first compilation.
static COPIES: OnceLock<Copies> = OnceLock::new();

/// Waits until no copy of the library is being loaded.
pub(super) fn wait_for_copies() {
    if let Some(copies) = COPIES.get() {
        copies.wait();
    }
}

fn copies() -> Result<&'static Copies> {
    if let Some(copies) = COPIES.get() {
        return Ok(copies);
    }
    // SAFETY: `Nvrtc::get` has checked that the library is present.
    let library = Library::of(unsafe { sys::culib() }).map_err(|error| missing("dlsym", &error))?;
    Ok(COPIES.get_or_init(|| Copies::for_cores(library)))
}

/// Distinguishes builds of NVRTC, which reports only major and minor version. The file name has the whole version in a toolkit,
/// but not in a Python wheel; there, builds differ in length.
fn build_of((major, minor): (c_int, c_int), file: Option<&Path>) -> String {
    let name = file.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let bytes = file.and_then(|file| std::fs::metadata(file).ok()).map_or(0, |metadata| metadata.len());
    format!("{major}.{minor} {name} {bytes}")
}

fn options(source: &ModuleSource, target: Target, version: (c_int, c_int)) -> Vec<String> {
    let mut options: Vec<String> = OPTIONS.iter().map(|&option| option.into()).collect();
    if version >= DISPATCH_OPTIONS_SINCE && source.defines.iter().any(|define| define == ModuleSource::DISPATCHES) {
        options.extend(DISPATCH_OPTIONS.map(String::from));
    }
    options.push(format!("--gpu-architecture={target}"));
    options.extend(source.defines.iter().map(|define| format!("-D{define}")));
    options
}

/// Whether an image has the code of `entry`. Finds a missing entry without a GPU.
fn has_entry(image: &[u8], target: Target, entry: &str) -> bool {
    let pattern = match target {
        Target::Cubin(_) => format!(".text.{entry}\0"),
        Target::Ptx(_) => format!(".entry {entry}("),
    };
    image.windows(pattern.len()).any(|window| window == pattern.as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn nvrtc() -> Nvrtc {
        Nvrtc { version: (13, 0), build: build_of((13, 0), None), known: vec![75, 80, 90, 100, 103, 120] }
    }

    fn source() -> ModuleSource {
        ModuleSource { name: "m".into(), text: "t".into(), entries: vec!["e".into()], defines: vec!["A=1".into()] }
    }

    #[test]
    fn known_gpus_get_a_cubin_and_later_ones_ptx() {
        let nvrtc = nvrtc();
        assert_eq!(nvrtc.target((9, 0)).unwrap(), Target::Cubin(90));
        assert_eq!(nvrtc.target((10, 3)).unwrap(), Target::Cubin(103));
        assert_eq!(nvrtc.target((8, 9)).unwrap(), Target::Ptx(80));
        assert_eq!(nvrtc.target((13, 0)).unwrap(), Target::Ptx(120));
        let error = nvrtc.target((7, 0)).unwrap_err().to_string();
        assert!(error.contains("sm_70") && error.contains("13.0") && error.contains("sm_75, sm_80"), "{error}");
    }

    #[test]
    fn targets_have_names() {
        let nvrtc = nvrtc();
        assert_eq!(nvrtc.target_named("sm_100").unwrap(), Target::Cubin(100));
        for name in ["", "sm_", "sm_70", "sm_9o", "90", "compute_90", "sm_-90"] {
            assert!(matches!(nvrtc.target_named(name), Err(DeviceError::UnknownArchitecture { .. })), "{name}");
        }
    }

    #[test]
    fn ptx_is_checked_for_its_entries() {
        // Skipped without NVRTC; tests/nvrtc_compile.rs says so.
        let Ok(nvrtc) = Nvrtc::get() else { return };
        let text = "#include \"common/simt.cuh\"\nstruct P { u64* a; };\nWJ_ENTRY(e, P, 32) { p.a[0] = A; }\n";
        let mut source = ModuleSource { text: text.into(), ..source() };
        let ptx = nvrtc.compile(&source, Target::Ptx(80)).unwrap();
        assert_eq!(ptx.last(), Some(&0));
        source.entries.push("f".into());
        assert!(matches!(nvrtc.compile(&source, Target::Ptx(80)), Err(DeviceError::KernelCompile { .. })));
    }

    #[test]
    fn keys_contain_everything_a_binary_depends_on() {
        let key = nvrtc().key(&source(), Target::Cubin(90));
        assert_eq!(key, nvrtc().key(&source(), Target::Cubin(90)));
        let changes: [fn(&mut ModuleSource); 5] = [
            |source| source.name.push('x'),
            |source| source.text.push('x'),
            |source| source.entries.push("x".into()),
            |source| source.defines.push("x".into()),
            |source| source.defines.clear(),
        ];
        for change in changes {
            let mut changed = source();
            change(&mut changed);
            assert_ne!(key, nvrtc().key(&changed, Target::Cubin(90)), "{changed:?}");
        }
        assert_ne!(key, nvrtc().key(&source(), Target::Cubin(80)));
        assert_ne!(key, nvrtc().key(&source(), Target::Ptx(90)));
        let built = |build: String| Nvrtc { build, ..nvrtc() }.key(&source(), Target::Cubin(90));
        assert_ne!(key, built(build_of((13, 1), None)));
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["libnvrtc.so.13.0.48", "libnvrtc.so.13.0.88"].map(|name| dir.path().join(name));
        std::fs::write(&one, [0; 10]).unwrap();
        std::fs::write(&other, [0; 10]).unwrap();
        let of_one = built(build_of((13, 0), Some(&one)));
        assert_ne!(of_one, built(build_of((13, 0), Some(&other))), "another name");
        std::fs::write(&one, [0; 11]).unwrap();
        assert_ne!(of_one, built(build_of((13, 0), Some(&one))), "another length");
    }
}
