//! A loaded libnvrtc: its functions, and programs to compile.
//!
//! Must not know how many libraries are loaded.

use std::ffi::{CStr, CString, c_char, c_int};

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use warpjoin_kernels::HEADERS;

use super::Target;
use super::process::CompilationGuard;
use crate::{DeviceError, ModuleSource, Result};

/// The result of a call, which need not be one of the codes that cudarc's closed [`nvrtcResult`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Outcome(u32);

impl PartialEq<nvrtcResult> for Outcome {
    fn eq(&self, known: &nvrtcResult) -> bool {
        self.0 == *known as u32
    }
}

type Create = unsafe extern "C" fn(
    *mut nvrtcProgram,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Outcome;
type Compile = unsafe extern "C" fn(nvrtcProgram, c_int, *const *const c_char) -> Outcome;
type Destroy = unsafe extern "C" fn(*mut nvrtcProgram) -> Outcome;
type Size = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Outcome;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Outcome;
type Architectures = unsafe extern "C" fn(*mut c_int) -> Outcome;
type Describe = unsafe extern "C" fn(Outcome) -> *const c_char;
type Copy = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Outcome;

/// The first NVRTC with its own cache.
const CACHED_SINCE: (c_int, c_int) = (12, 9);

/// The functions of one loaded libnvrtc, which stays loaded.
#[derive(Debug)]
pub(super) struct Library {
    create: Create,
    compile: Compile,
    destroy: Destroy,
    log: (Size, Copy),
    cubin: (Size, Copy),
    ptx: (Size, Copy),
    version: (c_int, c_int),
}

impl Library {
    /// Looks up the functions.
    ///
    /// # Errors
    /// When a function is missing.
    pub(super) fn of(library: &'static libloading::Library) -> std::result::Result<Self, libloading::Error> {
        // SAFETY: NVRTC has functions with these names and types since version 11.1.
        unsafe {
            let version: Version = *library.get(b"nvrtcVersion\0")?;
            Ok(Self {
                // The call does not fail. Version 0 would mean no extra options.
                version: version_of(|major, minor| version(major, minor)).unwrap_or_default(),
                create: *library.get(b"nvrtcCreateProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                log: (*library.get(b"nvrtcGetProgramLogSize\0")?, *library.get(b"nvrtcGetProgramLog\0")?),
                cubin: (*library.get(b"nvrtcGetCUBINSize\0")?, *library.get(b"nvrtcGetCUBIN\0")?),
                ptx: (*library.get(b"nvrtcGetPTXSize\0")?, *library.get(b"nvrtcGetPTX\0")?),
            })
        }
    }

    /// Options of the library that do not affect the result. Since 12.9, NVRTC stores images in a cache with a global lock, which
    /// would serialize the copies. `KernelCache` stores the images anyway.
    fn library_options(&self) -> &'static [&'static CStr] {
        if self.version < CACHED_SINCE { &[] } else { &[c"--no-cache"] }
    }

    pub(super) fn program(&self, source: &ModuleSource) -> Result<Program<'_>> {
        let (name, text) = (c_string(&format!("{}.cu", source.name))?, c_string(&source.text)?);
        let names = HEADERS.iter().map(|header| c_string(header.name)).collect::<Result<Vec<_>>>()?;
        let texts = HEADERS.iter().map(|header| c_string(header.text)).collect::<Result<Vec<_>>>()?;
        let (name_pointers, text_pointers) = (pointers(&names), pointers(&texts));
        let mut program: nvrtcProgram = std::ptr::null_mut();
        // SAFETY: the strings and both arrays outlive the call, which copies them. Both arrays have one pointer per
        // header. `drop` destroys once.
        let result = unsafe {
            (self.create)(
                &mut program,
                text.as_ptr(),
                name.as_ptr(),
                length(&names),
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        check("nvrtcCreateProgram", result).map(|()| Program { library: self, program })
    }
}

/// A program of a library, destroyed on drop.
pub(super) struct Program<'a> {
    library: &'a Library,
    program: nvrtcProgram,
}

impl Program<'_> {
    /// Compiles. Call once.
    pub(super) fn compile(&self, options: &[String]) -> Result<Outcome> {
        let options = options.iter().map(|option| c_string(option)).collect::<Result<Vec<_>>>()?;
        let more = self.library.library_options().iter().map(|option| option.as_ptr());
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).chain(more).collect();
        let _guard = CompilationGuard::begin();
        // SAFETY: the program is live; the strings outlive the call, and the length passed is that of `pointers`.
        Ok(unsafe { (self.library.compile)(self.program, length(&pointers), pointers.as_ptr()) })
    }

    /// The compiler's output.
    pub(super) fn log(&self) -> Result<String> {
        let log = self.fetch("nvrtcGetProgramLog", self.library.log)?;
        Ok(String::from_utf8_lossy(&log).trim_end_matches('\0').trim().into())
    }

    /// The compiled image.
    pub(super) fn image(&self, target: Target) -> Result<Vec<u8>> {
        match target {
            Target::Cubin(_) => self.fetch("nvrtcGetCUBIN", self.library.cubin),
            Target::Ptx(_) => self.fetch("nvrtcGetPTX", self.library.ptx),
        }
    }

    /// Fetches bytes by two calls of NVRTC: one for the length, one for the copy.
    fn fetch(&self, call: &'static str, (size, copy): (Size, Copy)) -> Result<Vec<u8>> {
        let mut length = 0_usize;
        // SAFETY: the program is live and was compiled; `length` outlives the call.
        check(call, unsafe { size(self.program, &mut length) })?;
        let mut bytes = vec![0_u8; length];
        // SAFETY: as above; `bytes` has the length that the previous call returned.
        check(call, unsafe { copy(self.program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: created once in `program`, by the same library.
        let result = unsafe { (self.library.destroy)(&mut self.program) };
        if let Err(error) = check("nvrtcDestroyProgram", result) {
            log::debug!("{error}");
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

/// The result of nvrtcVersion. `call` passes both pointers, which are valid during the call, to it.
fn version_of(call: impl FnOnce(*mut c_int, *mut c_int) -> Outcome) -> Result<(c_int, c_int)> {
    let (mut major, mut minor) = (0, 0);
    check("nvrtcVersion", call(&mut major, &mut minor))?;
    Ok((major, minor))
}

fn length<T>(strings: &[T]) -> c_int {
    c_int::try_from(strings.len()).unwrap_or(c_int::MAX)
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| DeviceError::Invalid("kernel text contains a zero byte".into()))
}

/// Converts a failed result of `call` into an error.
fn check(call: &'static str, result: Outcome) -> Result<()> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    Err(DeviceError::Driver { device: "nvrtc".into(), call, reason: describe(result) })
}

/// The library's description of a result.
pub(super) fn describe(result: Outcome) -> String {
    // SAFETY: `result` came from a loaded library, so it is present; the type is the function's, which takes any number.
    let text =
        unsafe { function::<Describe>("nvrtcGetErrorString").map_or(std::ptr::null(), |describe| describe(result)) };
    if text.is_null() {
        return format!("NVRTC error {}", result.0);
    }
    // SAFETY: `text` is not null, and is a constant of the library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Looks up a function of the library that cudarc has loaded.
///
/// # Safety
/// The library must be present, and `F` be the type of the function.
unsafe fn function<F: std::marker::Copy>(name: &'static str) -> Result<F> {
    // SAFETY: by the caller.
    let found = unsafe { sys::culib().get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|error| missing(name, &error))
}

/// The error of a library without a function.
pub(super) fn missing(call: &'static str, error: &libloading::Error) -> DeviceError {
    DeviceError::Driver { device: "nvrtc".into(), call, reason: format!("libnvrtc lacks a function: {error}") }
}

/// The version of the library that cudarc has loaded.
///
/// # Safety
/// The library must be present.
pub(super) unsafe fn loaded_version() -> Result<(c_int, c_int)> {
    // SAFETY: the type is the function's in every version.
    let version = unsafe { function::<Version>("nvrtcVersion") }?;
    // SAFETY: both pointers are valid during the call.
    version_of(|major, minor| unsafe { version(major, minor) })
}

/// The architectures that the library knows, in ascending order.
///
/// # Safety
/// The library must be present.
pub(super) unsafe fn known_architectures() -> Result<Vec<u32>> {
    // SAFETY: the types are the functions' since version 11.1.
    let (count_of, read) = unsafe {
        (function::<Architectures>("nvrtcGetNumSupportedArchs")?, function::<Architectures>("nvrtcGetSupportedArchs")?)
    };
    let mut count: c_int = 0;
    // SAFETY: `count` outlives the call.
    check("nvrtcGetNumSupportedArchs", unsafe { count_of(&mut count) })?;
    let mut known: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the function writes as many numbers as the previous call returned.
    check("nvrtcGetSupportedArchs", unsafe { read(known.as_mut_ptr()) })?;
    let mut known: Vec<u32> = known.into_iter().filter_map(|number| u32::try_from(number).ok()).collect();
    known.sort_unstable();
    Ok(known)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::cuda::nvrtc::Nvrtc;

    #[test]
    fn the_cache_of_nvrtc_is_turned_off() {
        // Skipped without NVRTC; tests/nvrtc_compile.rs says so.
        if Nvrtc::get().is_err() {
            return;
        }
        // SAFETY: the library is present.
        let library = Library::of(unsafe { sys::culib() }).unwrap();
        let options = |version| Library { version, ..library }.library_options();
        assert!(options((12, 8)).is_empty(), "an unknown option is an error");
        assert_eq!(options((12, 9)), [c"--no-cache"]);
        assert_eq!(options((13, 0)), [c"--no-cache"]);
    }
}
