//! Compiled kernels on disk, so that they are compiled once per machine instead of once per process.
//!
//! Owns where the files are, which files are trusted (`folder.rs`), how damage is detected, and the eviction of old entries
//! (`size.rs`). Must not know what the files hold or what a key is made of: each backend defines that.
//!
//! Processes may share a folder: an entry is written to a temporary file and renamed. The cache never fails a compilation:
//! without a usable folder, every kernel is compiled again.
//!
//! A file is `MAGIC`, the length of the content (8 bytes, little endian), a SHA-256 (32 bytes), and the content. The hash
//! covers the entry's name and the content, so a file under another name counts as damaged.

mod folder;
mod size;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use warpjoin_kernels::KernelFile;

use crate::{DeviceError, Result, faults};

const MAGIC: &[u8; 8] = b"WJKERN02";
const HASH_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + 8 + HASH_BYTES;

/// Opens a file of compiled kernels that only this user, or root, can write to.
pub(crate) fn open_trusted(path: &Path) -> io::Result<fs::File> {
    folder::open(path)
}

/// Value of `WARPJOIN_KERNEL_CACHE`, or of the option, that turns the cache off.
const OFF: &str = "off";

/// A folder of compiled kernels, or none if the cache is off. Clones share the cache.
#[derive(Debug, Clone)]
pub struct KernelCache {
    dir: Option<PathBuf>,
    /// Why the folder is not used, if it is refused.
    refused: Arc<OnceLock<String>>,
}

impl KernelCache {
    /// Uses `dir`. `None` means `$WARPJOIN_KERNEL_CACHE`, else `$XDG_CACHE_HOME/warpjoin/kernels` if that is absolute,
    /// else `$HOME/.cache/warpjoin/kernels`. If none of these is set, or `dir` or the variable is `off`, there is no cache.
    /// The first store creates the folder. A folder that others can write to is not used, since its files are executed:
    /// see [`Self::problem`].
    pub fn open(dir: Option<&Path>) -> Self {
        let dir = resolve(dir, |name| std::env::var_os(name).map(PathBuf::from));
        let cache = Self { dir, refused: Arc::default() };
        cache.trusted_dir();
        cache
    }

    /// The folder; `None` if the cache is off or the folder is refused.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref().filter(|_| self.refused.get().is_none())
    }

    /// Why the chosen folder is not used, and what to do about it.
    pub fn problem(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }

    /// Why the folder cannot be written to: what it holds is used, but nothing is added. Creates nothing.
    pub fn write_problem(&self) -> Option<String> {
        let dir = self.dir()?;
        // The first store creates the folder.
        let existing = dir.ancestors().find(|folder| folder.exists())?;
        let error = tempfile::tempfile_in(existing).err()?;
        Some(format!("{} cannot be written to: {error}; kernels are compiled again in each process", dir.display()))
    }

    /// The folder, after checking its permissions again. A refusal is permanent, with one warning per process.
    fn trusted_dir(&self) -> Option<&Path> {
        static WARNED: AtomicBool = AtomicBool::new(false);
        let dir = self.dir()?;
        let Some(reason) = folder::refused(dir) else { return Some(dir) };
        if !WARNED.swap(true, Ordering::Relaxed) {
            log::warn!("kernel cache: {reason}; kernels are compiled again in each process");
        }
        let _ = self.refused.set(reason);
        None
    }

    /// The SHA-256 of `parts` in hexadecimal. Each part is hashed with its length, so that moving bytes from one part to the
    /// next changes the key. `MAGIC` is hashed too, so versions of the library with different file formats can share a
    /// folder.
    pub(crate) fn key(parts: &[&str]) -> String {
        let mut hash = Sha256::new_with_prefix(MAGIC);
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A key for files, from their names and texts. Many keys share the same files, so this key is computed once.
    pub(crate) fn key_of_files<'a>(files: impl IntoIterator<Item = &'a KernelFile>) -> String {
        let texts: Vec<&str> = files.into_iter().flat_map(|file| [file.name, file.text]).collect();
        Self::key(&texts)
    }

    /// The content stored under `key`. A damaged file is removed, with a warning.
    pub(crate) fn load(&self, key: &str, extension: &str) -> Option<Vec<u8>> {
        let path = self.path(key, extension)?;
        let mut file = vec![];
        if let Err(error) = folder::open(&path).and_then(|mut open| open.read_to_end(&mut file)) {
            match error.kind() {
                io::ErrorKind::NotFound => {}
                io::ErrorKind::InvalidData => log::warn!("kernel cache: {} is not used: {error}", path.display()),
                _ => log::debug!("kernel cache: {}: {error}", path.display()),
            }
            return None;
        }
        let content = checked_content(file, &name_of(key, extension));
        if content.is_none() {
            log::warn!("kernel cache: removed the damaged file {}; its kernel is compiled again", path.display());
            self.remove(key, extension);
        } else if let Err(error) = size::note_use(&path) {
            log::debug!("kernel cache: {}: {error}", path.display());
        }
        content
    }

    /// Applies `use_image` to the content stored under `key`. `None` if there is no entry. If `use_image` rejects the image,
    /// the entry is removed and the result is `None` too.
    ///
    /// # Errors
    /// Errors of `use_image` that are not about the image, such as out of memory. The entry stays.
    pub(crate) fn load_with<T>(
        &self,
        key: &str,
        extension: &str,
        use_image: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(image) = self.load(key, extension) else { return Ok(None) };
        match use_image(&image) {
            Ok(used) => Ok(Some(used)),
            Err(error @ DeviceError::BadImage { .. }) => {
                log::warn!("kernel cache: {}: {error}; the kernel is compiled again", name_of(key, extension));
                self.remove(key, extension);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an entry is stored under `key`. Does not check its content.
    pub(crate) fn contains(&self, key: &str, extension: &str) -> bool {
        self.path(key, extension).is_some_and(|path| fs::symlink_metadata(path).is_ok_and(|entry| entry.is_file()))
    }

    /// Stores `bytes` under `key`. A failure is ignored; the first one of a process logs a warning.
    pub(crate) fn store(&self, key: &str, extension: &str, bytes: &[u8]) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        let (Some(dir), name) = (self.trusted_dir(), name_of(key, extension)) else { return };
        if let Err(error) = folder::create(dir).and_then(|()| match self.trusted_dir() {
            Some(dir) => write_entry(dir, &name, bytes),
            None => Ok(()),
        }) && !WARNED.swap(true, Ordering::Relaxed)
        {
            log::warn!(
                "kernel cache: {}: {error}; kernels are compiled again in each process \
                 (set WARPJOIN_KERNEL_CACHE to another folder, or to `off`)",
                dir.join(&name).display()
            );
        }
        if size::is_due(key)
            && let Err(error) = size::trim(dir)
        {
            log::debug!("kernel cache: {}: {error}", dir.display());
        }
    }

    /// Removes an unusable entry, such as a binary that does not load.
    pub(crate) fn remove(&self, key: &str, extension: &str) {
        if let Some(path) = self.path(key, extension)
            && let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            log::debug!("kernel cache: {}: {error}", path.display());
        }
    }

    fn path(&self, key: &str, extension: &str) -> Option<PathBuf> {
        Some(self.trusted_dir()?.join(name_of(key, extension)))
    }
}

fn name_of(key: &str, extension: &str) -> String {
    format!("{key}.{extension}")
}

/// Chooses the folder from the option and the environment.
fn resolve(dir: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // The XDG specification: an empty variable counts as unset.
    let set = |name| variable(name).filter(|value| !value.as_os_str().is_empty());
    let chosen = dir
        .map(Path::to_path_buf)
        .or_else(|| set("WARPJOIN_KERNEL_CACHE"))
        // The XDG specification: a relative path is ignored.
        .or_else(|| set("XDG_CACHE_HOME").filter(|base| base.is_absolute()).map(|base| base.join("warpjoin/kernels")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/warpjoin/kernels")))?;
    (chosen != Path::new(OFF)).then_some(chosen)
}

/// The content of a file, or `None` if the file is damaged.
fn checked_content(mut file: Vec<u8>, name: &str) -> Option<Vec<u8>> {
    let (magic, rest) = file.split_at_checked(MAGIC.len())?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (hash, content) = rest.split_first_chunk::<HASH_BYTES>()?;
    let whole =
        magic == MAGIC && u64::from_le_bytes(*length) == content.len() as u64 && digest(name, content) == hash[..];
    if !whole {
        return None;
    }
    file.drain(..HEADER_BYTES);
    Some(file)
}

fn digest(name: &str, content: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update((name.len() as u64).to_le_bytes());
    hash.update(name.as_bytes());
    hash.update(content);
    hash.finalize().to_vec()
}

fn write_entry(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    // In the same folder, since a rename does not cross file systems.
    let mut file = tempfile::Builder::new().prefix(size::UNFINISHED).tempfile_in(dir)?;
    file.write_all(MAGIC)?;
    file.write_all(&(bytes.len() as u64).to_le_bytes())?;
    file.write_all(&digest(name, bytes))?;
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    file.write_all(first)?;
    faults::fail_file_write()?;
    file.write_all(rest)?;
    file.persist(dir.join(name)).map_err(|failed| failed.error)?;
    Ok(())
}

#[cfg(test)]
mod tests;
