//! Compiled kernels on disk, so that they are compiled once per machine and not once per process.
//!
//! Owns where the files lie and how a damaged one is noticed. Must not know what they hold or
//! what a key is made of: that is each backend's matter. Processes may share a folder: an entry
//! appears whole, by a rename, or not at all. Nothing here fails: without a usable folder every
//! kernel is compiled anew. What was not used for long goes when there is too much (`cache_size.rs`).
//!
//! A file is `MAGIC`, the length of the content (8 bytes, little endian), the SHA-256 of the
//! content (32 bytes), and the content.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};
use warpjoin_kernels::KernelFile;

use crate::{cache_size, faults};

const MAGIC: &[u8; 8] = b"WJKERN01";
const HASH_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + 8 + HASH_BYTES;

/// Value of `WARPJOIN_KERNEL_CACHE`, or of the option, that turns the cache off.
const OFF: &str = "off";

/// A folder of compiled kernels; or none, when the cache is off.
#[derive(Debug, Clone)]
pub struct KernelCache {
    dir: Option<PathBuf>,
}

impl KernelCache {
    /// Uses `dir`. `None` takes `$WARPJOIN_KERNEL_CACHE`, else `$XDG_CACHE_HOME/warpjoin/kernels`,
    /// else `$HOME/.cache/warpjoin/kernels`; with none of these set there is no cache. The value
    /// `off`, of `dir` or of the variable, means no cache. The folder is made on the first store.
    pub fn open(dir: Option<&Path>) -> Self {
        Self { dir: resolve(dir, |name| std::env::var_os(name).map(PathBuf::from)) }
    }

    /// The folder; `None` when the cache is off.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// A name for what `parts` determine: SHA-256 in hexadecimal. Each part goes in with its
    /// length, so that bytes cannot move from one part to the next unnoticed.
    pub(crate) fn key(parts: &[&str]) -> String {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A name for files, by their names and texts: for what many keys have in common, so that it is hashed once.
    pub(crate) fn key_of_files<'a>(files: impl IntoIterator<Item = &'a KernelFile>) -> String {
        let texts: Vec<&str> = files.into_iter().flat_map(|file| [file.name, file.text]).collect();
        Self::key(&texts)
    }

    /// The content stored under `key`. A damaged file is removed, with a warning.
    pub(crate) fn load(&self, key: &str, extension: &str) -> Option<Vec<u8>> {
        let path = self.path(key, extension)?;
        let file = match fs::read(&path) {
            Ok(file) => file,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    log::debug!("kernel cache: {}: {error}", path.display());
                }
                return None;
            }
        };
        let content = checked_content(file);
        if content.is_none() {
            log::warn!("kernel cache: {} is damaged: removed, and compiled again", path.display());
            self.remove(key, extension);
        } else if let Err(error) = cache_size::note_use(&path) {
            log::debug!("kernel cache: {}: {error}", path.display());
        }
        content
    }

    /// Whether something is stored under `key`: looked at when it is loaded.
    pub(crate) fn has(&self, key: &str, extension: &str) -> bool {
        self.path(key, extension).is_some_and(|path| path.exists())
    }

    /// Stores `bytes` under `key`. The first failure of a process warns; none has consequences.
    pub(crate) fn store(&self, key: &str, extension: &str, bytes: &[u8]) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        let (Some(dir), Some(path)) = (self.dir(), self.path(key, extension)) else { return };
        if let Err(error) = write_entry(dir, &path, bytes)
            && !WARNED.swap(true, Ordering::Relaxed)
        {
            log::warn!(
                "kernel cache: {}: {error}; kernels are compiled again in each process \
                 (WARPJOIN_KERNEL_CACHE names another folder, or `off`)",
                path.display()
            );
        }
        if cache_size::is_due(key)
            && let Err(error) = cache_size::trim(dir)
        {
            log::debug!("kernel cache: {}: {error}", dir.display());
        }
    }

    /// Removes an entry that turned out to be of no use, such as a binary that does not load.
    pub(crate) fn remove(&self, key: &str, extension: &str) {
        if let Some(path) = self.path(key, extension)
            && let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            log::debug!("kernel cache: {}: {error}", path.display());
        }
    }

    fn path(&self, key: &str, extension: &str) -> Option<PathBuf> {
        Some(self.dir()?.join(format!("{key}.{extension}")))
    }
}

/// The folder that an option and the environment choose.
fn resolve(dir: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // An empty variable counts as unset, as the XDG specification asks.
    let set = |name| variable(name).filter(|value| !value.as_os_str().is_empty());
    let chosen = dir
        .map(Path::to_path_buf)
        .or_else(|| set("WARPJOIN_KERNEL_CACHE"))
        .or_else(|| set("XDG_CACHE_HOME").map(|base| base.join("warpjoin/kernels")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/warpjoin/kernels")))?;
    (chosen != Path::new(OFF)).then_some(chosen)
}

/// The content of a file that is whole.
fn checked_content(mut file: Vec<u8>) -> Option<Vec<u8>> {
    let (magic, rest) = file.split_at_checked(MAGIC.len())?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (hash, content) = rest.split_first_chunk::<HASH_BYTES>()?;
    let whole = magic == MAGIC
        && u64::from_le_bytes(*length) == content.len() as u64
        && Sha256::digest(content).as_slice() == hash;
    if !whole {
        return None;
    }
    file.drain(..HEADER_BYTES);
    Some(file)
}

fn write_entry(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_dir(dir)?;
    // In the same folder, since a rename does not cross file systems.
    let mut file = tempfile::Builder::new().prefix(cache_size::UNFINISHED).tempfile_in(dir)?;
    file.write_all(MAGIC)?;
    file.write_all(&(bytes.len() as u64).to_le_bytes())?;
    file.write_all(&Sha256::digest(bytes))?;
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    file.write_all(first)?;
    faults::fail_file_write()?;
    file.write_all(rest)?;
    file.persist(path).map_err(|failed| failed.error)?;
    Ok(())
}

/// Makes the folder for this user alone: what lies in it gets executed.
fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn cache_in(dir: &Path) -> KernelCache {
        KernelCache::open(Some(dir))
    }

    /// Bytes without a period, so that a shift would show.
    fn content(bytes: usize, seed: u64) -> Vec<u8> {
        (0..bytes as u64).map(|at| ((at ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache_in(&dir.path().join("made/on/demand"));
        for bytes in [0, 1, 47, 48, 49, 100_000] {
            let (key, stored) = (KernelCache::key(&["round-trip", &bytes.to_string()]), content(bytes, 1));
            assert_eq!(cache.load(&key, "bin"), None);
            cache.store(&key, "bin", &stored);
            assert_eq!(cache.load(&key, "bin"), Some(stored.clone()), "{bytes} bytes");
            assert_eq!(cache.load(&key, "other"), None, "an extension is part of the name");
            cache.store(&key, "bin", &content(bytes + 1, 2));
            assert_eq!(cache.load(&key, "bin"), Some(content(bytes + 1, 2)), "the last store counts");
            cache.remove(&key, "bin");
            assert_eq!(cache.load(&key, "bin"), None);
            cache.remove(&key, "bin");
        }
        assert_eq!(fs::read_dir(cache.dir().unwrap()).unwrap().count(), 0, "no temporary file stays");
    }

    #[test]
    fn damaged_entries_are_removed_and_can_be_stored_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache_in(dir.path());
        let stored = content(100, 3);
        cache.store("k", "bin", &stored);
        let path = dir.path().join("k.bin");
        let whole = fs::read(&path).unwrap();
        assert_eq!(whole.len(), HEADER_BYTES + 100);

        let truncated = (0..whole.len()).map(|length| whole[..length].to_vec());
        let flipped = (0..whole.len() * 8).map(|bit| {
            let mut file = whole.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            file
        });
        let longer = std::iter::once([&whole[..], b"x"].concat());
        for damaged in truncated.chain(flipped).chain(longer) {
            fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.load("k", "bin"), None);
            assert!(!path.exists(), "a damaged file of {} bytes is removed", damaged.len());
            assert_eq!(cache.load("k", "bin"), None);
        }
        cache.store("k", "bin", &stored);
        assert_eq!(cache.load("k", "bin"), Some(stored));
    }

    #[cfg(unix)]
    #[test]
    fn a_read_only_dir_serves_and_does_not_take() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let cache = cache_in(dir.path());
        cache.store("k", "bin", b"kept");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
        // For root the folder is still writable: then this store succeeds, which is as well.
        cache.store("k2", "bin", b"lost");
        assert_eq!(cache.load("k", "bin"), Some(b"kept".to_vec()));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn folders_that_nobody_may_write_are_survived() {
        // Not even root makes files in these two.
        for dir in ["/proc/self/task", "/proc/warpjoin/kernels"] {
            let cache = cache_in(Path::new(dir));
            cache.store("k", "bin", b"lost");
            assert_eq!(cache.load("k", "bin"), None);
            cache.remove("k", "bin");
        }
    }

    #[test]
    fn a_file_in_place_of_the_dir_is_survived() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = cache_in(file.path());
        cache.store("k", "bin", b"lost");
        assert_eq!(cache.load("k", "bin"), None);
        cache.remove("k", "bin");
        assert_eq!(fs::read(file.path()).unwrap(), b"");
    }

    #[test]
    fn a_dir_in_place_of_an_entry_is_survived() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("k.bin/inside")).unwrap();
        let cache = cache_in(dir.path());
        assert_eq!(cache.load("k", "bin"), None);
        cache.store("k", "bin", b"lost");
        assert_eq!(cache.load("k", "bin"), None);
    }

    #[test]
    fn readers_see_whole_entries_while_writers_replace_them() {
        let dir = tempfile::tempdir().unwrap();
        let versions: Vec<Vec<u8>> = (0..4).map(|seed| content(20_000 + seed as usize * 1000, seed)).collect();
        cache_in(dir.path()).store("k", "bin", &versions[0]);
        std::thread::scope(|scope| {
            for version in &versions {
                // A cache of its own, as another process would have.
                let cache = cache_in(dir.path());
                let versions = &versions;
                scope.spawn(move || {
                    for _ in 0..50 {
                        cache.store("k", "bin", version);
                        let seen = cache.load("k", "bin").unwrap();
                        assert!(versions.contains(&seen), "{} bytes", seen.len());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn keys_tell_parts_apart() {
        let key = KernelCache::key(&["ab", "c"]);
        assert_eq!(key.len(), 64);
        assert!(key.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(key, KernelCache::key(&["ab", "c"]));
        for other in [&["a", "bc"][..], &["abc"], &["ab", "c", ""], &["", "ab", "c"], &["c", "ab"], &[]] {
            assert_ne!(key, KernelCache::key(other), "{other:?}");
        }
    }

    #[test]
    fn the_folder_comes_from_option_then_environment() {
        let environment = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| PathBuf::from(value))
        };
        let all = &[("WARPJOIN_KERNEL_CACHE", "/own"), ("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/x")];
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(resolve(Some(Path::new("/given")), environment(all)), path("/given"));
        assert_eq!(resolve(None, environment(all)), path("/own"));
        assert_eq!(resolve(None, environment(&all[1..])), path("/xdg/warpjoin/kernels"));
        assert_eq!(resolve(None, environment(&all[2..])), path("/home/x/.cache/warpjoin/kernels"));
        assert_eq!(
            resolve(None, environment(&[("WARPJOIN_KERNEL_CACHE", ""), ("HOME", "/h")])),
            path("/h/.cache/warpjoin/kernels")
        );
        assert_eq!(resolve(None, environment(&[])), None);
        assert_eq!(resolve(None, environment(&[("WARPJOIN_KERNEL_CACHE", "off"), ("HOME", "/h")])), None);
        assert_eq!(resolve(Some(Path::new("off")), environment(all)), None);
    }

    #[test]
    fn off_stores_nothing() {
        let cache = cache_in(Path::new(OFF));
        assert_eq!(cache.dir(), None);
        cache.store("k", "bin", b"lost");
        assert_eq!(cache.load("k", "bin"), None);
        assert!(!Path::new(OFF).exists());
    }
}
