//! Whether only this user can write to a folder and its files. The cache's files are loaded and executed.
//!
//! Owns the permission checks. Must not know what the files hold.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

/// Why compiled kernels in `dir` must not be trusted. `None` if they may be, or if the folder does not exist yet.
pub(super) fn refused(dir: &Path) -> Option<String> {
    let metadata = fs::metadata(dir).ok()?;
    let reason = if metadata.is_dir() { other_writers(&metadata)? } else { "it is not a folder".into() };
    Some(format!("{} is not used for compiled kernels: {reason}", dir.display()))
}

/// Opens a file that only this user can write to.
///
/// # Errors
/// `InvalidData` if it is a link, not a regular file, or writable by others.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let foreign = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut options = File::options();
    options.read(true);
    // O_NONBLOCK: opening a pipe would wait for a writer.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        #[cfg(unix)]
        Some(libc::ELOOP) => foreign("it is a link".into()),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(foreign("it is not a regular file".into()));
    }
    other_writers(&metadata).map_or(Ok(file), |reason| Err(foreign(reason)))
}

/// Which other users may have written to the file; `None` if none. Root can write anywhere, and is trusted.
#[cfg(unix)]
fn other_writers(metadata: &Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: `geteuid` has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != own && owner != 0 {
        return Some(format!("user {owner} owns it, and this process runs as user {own}"));
    }
    (mode & 0o022 != 0).then(|| format!("others may write to it (mode {mode:o}): chmod go-w"))
}

#[cfg(not(unix))]
fn other_writers(_: &Metadata) -> Option<String> {
    None
}

/// Creates the folder with access for this user only.
pub(super) fn create(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
