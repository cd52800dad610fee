//! Tests of valid, damaged, foreign, replaced and lost entries, and of folders that must not be used.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn cache_in(dir: &Path) -> KernelCache {
    KernelCache::open(Some(dir))
}

/// Bytes without a repeating pattern, so that a shift is detected.
fn content(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes as u64).map(|at| ((at ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn stored_entries_are_loaded() {
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
    assert_eq!(fs::read_dir(cache.dir().unwrap()).unwrap().count(), 0, "a temporary file remains");
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
fn a_read_only_dir_is_read_but_not_written() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let cache = cache_in(dir.path());
    cache.store("k", "bin", b"kept");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Root can still write to the folder, so this store may succeed.
    cache.store("k2", "bin", b"lost");
    assert_eq!(cache.load("k", "bin"), Some(b"kept".to_vec()));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn folders_that_cannot_be_written_are_no_error() {
    // Not even root can create files in these two.
    for dir in ["/proc/self/task", "/proc/warpjoin/kernels"] {
        let cache = cache_in(Path::new(dir));
        cache.store("k", "bin", b"lost");
        assert_eq!(cache.load("k", "bin"), None);
        cache.remove("k", "bin");
    }
}

#[test]
fn a_file_in_place_of_the_dir_is_no_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = cache_in(file.path());
    cache.store("k", "bin", b"lost");
    assert_eq!(cache.load("k", "bin"), None);
    cache.remove("k", "bin");
    assert_eq!(fs::read(file.path()).unwrap(), b"");
}

#[test]
fn a_dir_in_place_of_an_entry_is_no_error() {
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
            // A separate cache, as in another process.
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
fn keys_distinguish_parts() {
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

#[test]
fn an_entry_under_another_name_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache_in(dir.path());
    cache.store("one", "bin", b"of one");
    fs::copy(dir.path().join("one.bin"), dir.path().join("two.bin")).unwrap();
    fs::copy(dir.path().join("one.bin"), dir.path().join("one.so")).unwrap();
    assert_eq!((cache.load("two", "bin"), cache.load("one", "so")), (None, None));
    assert_eq!(cache.load("one", "bin"), Some(b"of one".to_vec()));
    assert!(!dir.path().join("two.bin").exists(), "it is removed");
}

#[test]
fn only_a_bad_image_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache_in(dir.path());
    cache.store("k", "bin", b"image");
    let (device, call) = ("cuda:0".to_string(), "cuModuleLoadData");
    let reason = || "for the test".to_string();
    for error in [
        DeviceError::OutOfDriverMemory { device: device.clone(), call, reason: reason() },
        DeviceError::DeviceLost { device: device.clone(), call, reason: reason() },
        DeviceError::Driver { device: device.clone(), call, reason: reason() },
    ] {
        assert!(cache.load_with::<()>("k", "bin", |_| Err(error)).is_err());
        assert!(cache.contains("k", "bin"), "the error is not about the image");
    }
    assert_eq!(cache.load_with("k", "bin", |image| Ok(image.to_vec())).unwrap(), Some(b"image".to_vec()));
    let bad = DeviceError::BadImage { device, call, reason: reason() };
    assert_eq!(cache.load_with::<()>("k", "bin", |_| Err(bad)).unwrap(), None);
    assert!(!cache.contains("k", "bin"));
}

#[cfg(unix)]
mod permissions {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_used() {
        for mode in [0o777, 0o770, 0o707] {
            let dir = tempfile::tempdir().unwrap();
            cache_in(dir.path()).store("k", "bin", b"kept");
            set_mode(dir.path(), mode);
            let cache = cache_in(dir.path());
            assert!(cache.problem().unwrap().contains("chmod go-w"), "{:?}", cache.problem());
            assert_eq!((cache.dir(), cache.load("k", "bin")), (None, None));
            cache.store("l", "bin", b"lost");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is written");
            set_mode(dir.path(), 0o755);
            assert_eq!(cache.dir(), None, "the refusal is permanent");
            assert_eq!(cache_in(dir.path()).load("k", "bin"), Some(b"kept".to_vec()), "until it is opened again");
        }
    }

    #[test]
    fn a_folder_that_becomes_writable_to_others_is_no_longer_used() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache_in(dir.path());
        cache.store("k", "bin", b"kept");
        set_mode(dir.path(), 0o777);
        assert_eq!(cache.load("k", "bin"), None);
        assert!(cache.problem().is_some() && cache.clone().problem().is_some());
        set_mode(dir.path(), 0o700);
    }

    #[test]
    fn a_folder_of_another_user_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        // Only root may change the owner.
        if std::os::unix::fs::chown(dir.path(), Some(12_345), None).is_err() {
            return;
        }
        let cache = cache_in(dir.path());
        assert!(cache.problem().unwrap().contains("user 12345"), "{:?}", cache.problem());
        cache.store("k", "bin", b"lost");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_pipes_and_files_that_others_may_write_to_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache_in(dir.path());
        let path = dir.path().join("k.bin");
        let elsewhere = tempfile::tempdir().unwrap();
        cache_in(elsewhere.path()).store("k", "bin", b"foreign");
        symlink(elsewhere.path().join("k.bin"), &path).unwrap();
        assert_eq!((cache.load("k", "bin"), cache.contains("k", "bin")), (None, false));
        cache.store("k", "bin", b"own");
        assert_eq!(cache.load("k", "bin"), Some(b"own".to_vec()), "the link is replaced");
        assert_eq!(cache_in(elsewhere.path()).load("k", "bin"), Some(b"foreign".to_vec()), "and not followed");

        set_mode(&path, 0o666);
        assert_eq!(cache.load("k", "bin"), None);
        fs::remove_file(&path).unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the string outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(cache.load("k", "bin"), None, "without waiting for a writer");
    }
}

/// A child process, killed on drop.
#[cfg(unix)]
struct Writer(std::process::Child);

#[cfg(unix)]
impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a test of this binary in a child process, with a cache folder.
#[cfg(unix)]
fn child(test: &str, dir: &Path) -> Writer {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("WARPJOIN_TEST_CACHE_CHILD", dir)
        .stdout(std::process::Stdio::null())
        .spawn();
    Writer(child.unwrap())
}

/// If this is the child process, stores entries repeatedly and returns true.
#[cfg(unix)]
fn write_as_child(rounds: usize) -> bool {
    let Some(dir) = std::env::var_os("WARPJOIN_TEST_CACHE_CHILD") else { return false };
    let cache = cache_in(Path::new(&dir));
    for round in 0..rounds {
        let key = format!("{:064x}", round % 4);
        cache.store(&key, "bin", &content(30_000 + round % 7, round as u64 % 4));
    }
    true
}

#[cfg(unix)]
#[test]
fn a_writer_that_is_killed_leaves_whole_entries() {
    const NAME: &str = "cache::tests::a_writer_that_is_killed_leaves_whole_entries";
    if write_as_child(1_000_000) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for round in 0..8 {
        let writer = child(NAME, dir.path());
        let begun = std::time::Instant::now();
        // In the first round, waits until the writer has stored all entries.
        while round == 0 && check_entries(dir.path()) < 4 {
            assert!(begun.elapsed().as_secs() < 60, "no entries");
        }
        std::thread::sleep(std::time::Duration::from_millis(20 + 7 * round));
        drop(writer);
        assert_eq!(check_entries(dir.path()), 4);
    }
}

#[cfg(unix)]
#[test]
fn processes_share_a_folder() {
    const NAME: &str = "cache::tests::processes_share_a_folder";
    if write_as_child(100) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut writers = [child(NAME, dir.path()), child(NAME, dir.path())];
    while writers.iter_mut().any(|writer| writer.0.try_wait().unwrap().is_none()) {
        check_entries(dir.path());
    }
    assert!(writers.iter_mut().all(|writer| writer.0.wait().unwrap().success()));
    assert_eq!(check_entries(dir.path()), 4);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "a temporary file remains");
}

/// Number of stored entries. Panics if one is damaged.
#[cfg(unix)]
fn check_entries(dir: &Path) -> usize {
    let cache = cache_in(dir);
    let entries = (0..4).filter(|seed| {
        let key = format!("{seed:064x}");
        let is_stored = cache.contains(&key, "bin");
        let loaded = cache.load(&key, "bin");
        assert!(loaded.is_some() || !is_stored, "a damaged entry");
        assert!(loaded.as_ref().is_none_or(|bytes| *bytes == content(bytes.len(), *seed)));
        loaded.is_some()
    });
    entries.count()
}

#[test]
fn a_relative_xdg_folder_is_ignored() {
    let variable = |xdg: &'static str| {
        move |name: &str| match name {
            "XDG_CACHE_HOME" => Some(PathBuf::from(xdg)),
            "HOME" => Some(PathBuf::from("/home/x")),
            _ => None,
        }
    };
    assert_eq!(resolve(None, variable("/xdg")), Some(PathBuf::from("/xdg/warpjoin/kernels")));
    for relative in ["xdg", "./xdg", "../xdg"] {
        assert_eq!(resolve(None, variable(relative)), Some(PathBuf::from("/home/x/.cache/warpjoin/kernels")));
    }
}
