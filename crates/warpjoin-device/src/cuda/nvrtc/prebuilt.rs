//! Kernels that are compiled to PTX ahead of time, for machines without NVRTC. The driver compiles PTX for its GPU.
//!
//! Owns the file of these kernels (`kernels/prebuilt.zst`) and their lookup keys. Must not know which kernels exist.

use std::collections::HashMap;
use std::sync::OnceLock;

use warpjoin_kernels::{HEADERS, PREBUILT};

use super::{Nvrtc, Target};
use crate::cache::KernelCache;
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

/// PTX of a module that ends in a zero byte; `None` if the module is not prebuilt.
pub(in crate::cuda) fn find(source: &ModuleSource) -> Option<&'static [u8]> {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    let kernels = KERNELS.get_or_init(|| {
        read(PREBUILT).unwrap_or_else(|error| {
            log::warn!("the prebuilt kernels cannot be read: {error}");
            Kernels::new()
        })
    });
    kernels.get(&key(source)).map(Vec::as_slice)
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
    let mut bytes = vec![];
    for source in sources {
        let ptx = nvrtc.compile(source, Target::Ptx(ARCHITECTURE))?;
        bytes.extend_from_slice(key(source).as_bytes());
        bytes.extend_from_slice(&(ptx.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&ptx);
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

fn read(file: &[u8]) -> std::io::Result<Kernels> {
    let mut decoder = zstd::Decoder::new(file)?;
    decoder.window_log_max(WINDOW_LOG)?;
    let mut bytes = vec![];
    std::io::Read::read_to_end(&mut decoder, &mut bytes)?;
    let broken = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let (mut kernels, mut rest) = (Kernels::new(), bytes.as_slice());
    while !rest.is_empty() {
        let (key, behind) = rest.split_at_checked(KEY_BYTES).ok_or_else(broken)?;
        let (length, behind) = behind.split_first_chunk().ok_or_else(broken)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| broken())?;
        let (ptx, behind) = behind.split_at_checked(length).ok_or_else(broken)?;
        if ptx.last() != Some(&0) {
            return Err(broken());
        }
        kernels.insert(String::from_utf8(key.to_vec()).map_err(|_| broken())?, ptx.to_vec());
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
        let kernels = read(&compressed(&bytes).unwrap()).unwrap();
        assert_eq!(kernels.len(), 2);
        assert_eq!(kernels[&"b".repeat(KEY_BYTES)], b"two two\0");
        for end in [1, KEY_BYTES, KEY_BYTES + 9, bytes.len() - 1] {
            assert!(read(&compressed(&bytes[..end]).unwrap()).is_err(), "{end}");
        }
        assert!(read(&compressed(&entry('a', b"no zero")).unwrap()).is_err());
        assert!(read(b"nothing of zstd").is_err());
    }
}
