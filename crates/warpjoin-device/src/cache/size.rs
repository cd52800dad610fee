//! The size limit of the cache folder: the least recently used files are removed.
//!
//! Must not know what the files hold. Other processes may read and write the folder meanwhile; they compile a removed
//! kernel again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Room for some ten thousand kernels.
const BYTES_MAX: u64 = 2 << 30;
/// The modification time records the last use. It is updated at most once in this period.
const NOTED_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Name prefix of temporary files.
pub(crate) const UNFINISHED: &str = ".new-";

/// Whether to check the folder's size after storing `key`: after 1 of 256 stores on average, over all processes.
pub(crate) fn is_due(key: &str) -> bool {
    key.starts_with("00")
}

/// Removes files if the folder exceeds its limit.
pub(crate) fn trim(dir: &Path) -> io::Result<()> {
    trim_to(dir, BYTES_MAX)
}

fn trim_to(dir: &Path, bytes_max: u64) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = vec![];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // Skips what is not a file, or was removed between the two calls.
        let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
        let (path, used) = (entry.path(), metadata.modified()?);
        if is_own(&path) {
            files.push((used, metadata.len(), path));
        } else if is_unfinished(&path) && age(used) > NOTED_EVERY {
            // Left by a process that was killed.
            fs::remove_file(&path)?;
        }
    }
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    if bytes <= bytes_max {
        return Ok(());
    }
    files.sort();
    // A file that cannot be removed must not keep the others.
    let mut result = Ok(());
    // Removes down to three quarters, so that the next check finds room.
    for (_, size, path) in files {
        if bytes <= bytes_max / 4 * 3 {
            break;
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => result = Err(error),
            _ => bytes -= size,
        }
    }
    result
}

/// Whether the name has the cache's format. The folder may hold other files.
fn is_own(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether it is a temporary file of the cache.
fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED))
}

fn age(time: SystemTime) -> Duration {
    SystemTime::now().duration_since(time).unwrap_or_default()
}

/// Records a use of a file in its modification time.
pub(crate) fn note_use(path: &Path) -> io::Result<()> {
    if age(fs::metadata(path)?.modified()?) < NOTED_EVERY {
        return Ok(());
    }
    File::options().write(true).open(path)?.set_modified(SystemTime::now())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: u64| dir.path().join(format!("{number:064x}.bin"));
        let old = |path: &Path, days: u64| {
            let time = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        let [other, abandoned, in_progress] = ["thesis.tex", ".new-a", ".new-b"].map(|name| dir.path().join(name));
        for path in [&other, &abandoned, &in_progress] {
            fs::write(path, [0; 5000]).unwrap();
        }
        old(&other, 99);
        old(&abandoned, 2);
        for number in 0..10 {
            fs::write(path(number), [0; 100]).unwrap();
            old(&path(number), 20 - number);
        }
        fs::create_dir(dir.path().join("folder")).unwrap();
        note_use(&path(0)).unwrap();
        let left = || (0..10).filter(|&number| path(number).exists()).collect::<Vec<_>>();
        trim_to(dir.path(), 1000).unwrap();
        assert_eq!(left(), (0..10).collect::<Vec<_>>());
        trim_to(dir.path(), 900).unwrap();
        assert_eq!(left(), [0, 5, 6, 7, 8, 9]);
        trim_to(dir.path(), 0).unwrap();
        assert!(left().is_empty() && dir.path().join("folder").exists() && other.exists());
        assert!(!abandoned.exists() && in_progress.exists());
        assert!(note_use(&path(0)).is_err() && trim_to(&path(0), 0).is_err(), "no panic");
    }
}
