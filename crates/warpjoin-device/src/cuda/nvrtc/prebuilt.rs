//! Kernels that are compiled ahead of time: PTX, for machines without NVRTC, which the driver compiles for its GPU; and binaries
//! for one architecture, which a release has in files of their own.
//!
//! Owns these files (`kernels/prebuilt.zst`, [`binaries_name`]) and their lookup keys. Must not know which kernels exist.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use warpjoin_kernels::{HEADERS, PREBUILT};

use super::{Nvrtc, Target};
use crate::cache::{self, KernelCache};
use crate::{DeviceError, ModuleSource, Result};

/// The architecture of the PTX: the oldest supported one. Later architectures accept it too.
const ARCHITECTURE: u32 = 80;
/// Level of the file's compression.
const LEVEL: i32 = 19;
/// Window of the compression, as a power of two; large, because kernels of one file are similar.
const WINDOW_LOG: u32 = 25;
/// Bytes of a key.
const KEY_BYTES: usize = 64;

type Kernels = HashMap<String, Vec<u8>>;

/// What a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Ptx,
    Binaries,
}

impl Content {
    fn is_whole(self, image: &[u8]) -> bool {
        match self {
            Self::Ptx => image.last() == Some(&0),
            Self::Binaries => image.starts_with(b"\x7fELF"),
        }
    }
}

/// PTX of a module that ends in a zero byte; `None` if the module is not prebuilt.
pub(in crate::cuda) fn find(source: &ModuleSource) -> Option<&'static [u8]> {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    let kernels = KERNELS.get_or_init(|| {
        read(PREBUILT, Content::Ptx).unwrap_or_else(|error| {
            log::warn!("the prebuilt kernels cannot be read: {error}");
            Kernels::new()
        })
    });
    kernels.get(&key(source)).map(Vec::as_slice)
}

/// The binary of a module for GPUs of this compute capability; `None` if this installation has none.
pub(in crate::cuda) fn find_binary(source: &ModuleSource, capability: (u32, u32)) -> Option<&'static [u8]> {
    let kernels = kernels_of(capability);
    if kernels.is_empty() { None } else { kernels.get(&key(source)).map(Vec::as_slice) }
}

/// The binaries for GPUs of this compute capability, read once.
fn kernels_of(capability: (u32, u32)) -> &'static Kernels {
    static FOUND: Mutex<Vec<((u32, u32), &'static Kernels)>> = Mutex::new(vec![]);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, kernels)) = found.iter().find(|(known, _)| *known == capability) {
        return kernels;
    }
    // As long as the process, as is the PTX.
    let kernels: &'static Kernels = Box::leak(Box::new(binaries_of(capability)));
    found.push((capability, kernels));
    kernels
}

/// Reads the file of binaries: in the folder `WARPJOIN_KERNELS`, or beside the executable, or in `../lib/warpjoin` from there.
fn binaries_of((major, minor): (u32, u32)) -> Kernels {
    let name = binaries_name(&Target::Cubin(major * 10 + minor).to_string());
    let beside = || std::env::current_exe().ok()?.parent().map(PathBuf::from);
    let folders = match std::env::var_os("WARPJOIN_KERNELS") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => beside().into_iter().flat_map(|folder| [folder.join("../lib/warpjoin"), folder]).collect(),
    };
    for path in folders.into_iter().map(|folder| folder.join(&name)) {
        let read_file = || {
            let mut bytes = vec![];
            cache::open_trusted(&path)?.read_to_end(&mut bytes)?;
            read(&bytes, Content::Binaries)
        };
        match read_file() {
            Ok(kernels) => return kernels,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => log::warn!("kernels in {} are not used: {error}", path.display()),
        }
    }
    Kernels::new()
}

/// Name of the file of binaries for an architecture, such as `sm_90`.
pub fn binaries_name(architecture: &str) -> String {
    format!("warpjoin-kernels-{architecture}.zst")
}

/// Compiles modules for an architecture, such as `sm_90`, on all cores, and returns the content of the file [`binaries_name`].
/// Needs no GPU.
///
/// # Errors
/// [`DeviceError::NoNvrtc`], [`DeviceError::UnknownArchitecture`], [`DeviceError::KernelCompile`], or a failed compression.
pub fn prebuilt_binaries(sources: &[ModuleSource], architecture: &str) -> Result<Vec<u8>> {
    let nvrtc = Nvrtc::get()?;
    let target = nvrtc.target_named(architecture)?;
    let (next, images) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let compile = || {
        while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            let image = nvrtc.compile(source, target).map(|image| (key(source), image));
            images.lock().unwrap_or_else(PoisonError::into_inner).push(image);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(sources.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(compile))));
    let images = images.into_inner().unwrap_or_else(PoisonError::into_inner);
    packed(&images.into_iter().collect::<Result<Vec<_>>>()?)
}

/// The lookup key of a module: everything that its PTX depends on, except the compiler.
fn key(source: &ModuleSource) -> String {
    static HEADERS_KEY: OnceLock<String> = OnceLock::new();
    let headers = HEADERS_KEY.get_or_init(|| KernelCache::key_of_files(HEADERS.iter()));
    let mut parts = vec!["prebuilt", &source.name, &source.text, headers];
    for list in [&source.defines, &source.entries] {
        parts.push("list");
        parts.extend(list.iter().map(String::as_str));
    }
    KernelCache::key(&parts)
}

/// Compiles modules to PTX with NVRTC, and returns the content of the file of prebuilt kernels. Use the oldest NVRTC,
/// whose PTX the oldest drivers accept.
///
/// # Errors
/// [`DeviceError::NoNvrtc`], [`DeviceError::KernelCompile`], or a failed compression.
pub fn prebuilt_kernels(sources: &[ModuleSource]) -> Result<Vec<u8>> {
    let nvrtc = Nvrtc::get()?;
    let image = |source| Ok((key(source), nvrtc.compile(source, Target::Ptx(ARCHITECTURE))?));
    packed(&sources.iter().map(image).collect::<Result<Vec<_>>>()?)
}

/// The content of a file of images with their keys.
fn packed(images: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    for (key, image) in images {
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(&(image.len() as u64).to_le_bytes());
        bytes.extend_from_slice(image);
    }
    compressed(&bytes).map_err(|error| DeviceError::Invalid(format!("prebuilt kernels: {error}")))
}

/// The PTX of each module, in order; `None` for modules that are not in the file, as they have changed since it was
/// written.
pub fn prebuilt_ptx(sources: &[ModuleSource]) -> Vec<Option<&'static str>> {
    let text = |ptx: &'static [u8]| std::str::from_utf8(ptx).ok().map(|ptx| ptx.trim_end_matches('\0'));
    sources.iter().map(|source| find(source).and_then(text)).collect()
}

fn compressed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(vec![], LEVEL)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(WINDOW_LOG)?;
    std::io::Write::write_all(&mut encoder, bytes)?;
    encoder.finish()
}

fn read(file: &[u8], content: Content) -> std::io::Result<Kernels> {
    let mut decoder = zstd::Decoder::new(file)?;
    decoder.window_log_max(WINDOW_LOG)?;
    let mut bytes = vec![];
    decoder.read_to_end(&mut bytes)?;
    let broken = || Error::from(ErrorKind::InvalidData);
    let (mut kernels, mut rest) = (Kernels::new(), bytes.as_slice());
    while !rest.is_empty() {
        let (key, behind) = rest.split_at_checked(KEY_BYTES).ok_or_else(broken)?;
        let (length, behind) = behind.split_first_chunk().ok_or_else(broken)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| broken())?;
        let (image, behind) = behind.split_at_checked(length).ok_or_else(broken)?;
        if !content.is_whole(image) {
            return Err(broken());
        }
        kernels.insert(String::from_utf8(key.to_vec()).map_err(|_| broken())?, image.to_vec());
        rest = behind;
    }
    Ok(kernels)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let entry = |key: char, ptx: &[u8]| {
            [key.to_string().repeat(KEY_BYTES).as_bytes(), &(ptx.len() as u64).to_le_bytes(), ptx].concat()
        };
        let bytes = [entry('a', b"one\0"), entry('b', b"two two\0")].concat();
        let read = |file: &[u8]| read(file, Content::Ptx);
        let kernels = read(&compressed(&bytes).unwrap()).unwrap();
        assert_eq!(kernels.len(), 2);
        assert_eq!(kernels[&"b".repeat(KEY_BYTES)], b"two two\0");
        for end in [1, KEY_BYTES, KEY_BYTES + 9, bytes.len() - 1] {
            assert!(read(&compressed(&bytes[..end]).unwrap()).is_err(), "{end}");
        }
        assert!(read(&compressed(&entry('a', b"no zero")).unwrap()).is_err());
        assert!(read(b"nothing of zstd").is_err());
        let binary = compressed(&entry('a', b"\x7fELF...")).unwrap();
        assert!(read(&binary).is_err() && super::read(&binary, Content::Binaries).is_ok());
    }
}
