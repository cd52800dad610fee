//! Whether a folder, and a file in it, is ours alone: what lies there is loaded and executed.
//!
//! Must not know what the files hold.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

/// Why compiled kernels of that folder must not be trusted; `None` where they may, or where there is no folder yet.
pub(super) fn refused(dir: &Path) -> Option<String> {
    let metadata = fs::metadata(dir).ok()?;
    let reason = if metadata.is_dir() { not_ours_alone(&metadata)? } else { "it is not a folder".into() };
    Some(format!("{} is not used for compiled kernels: {reason}", dir.display()))
}

/// Opens a file for reading that is ours alone.
///
/// # Errors
/// `InvalidData` where it is a link, no regular file, or may be written by others.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let foreign = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut options = File::options();
    options.read(true);
    // A pipe would be waited for.
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
    not_ours_alone(&metadata).map_or(Ok(file), |reason| Err(foreign(reason)))
}

/// Who else may have written there. Root may everywhere.
#[cfg(unix)]
fn not_ours_alone(metadata: &Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != own && owner != 0 {
        return Some(format!("user {owner} owns it, and this process runs as user {own}"));
    }
    (mode & 0o022 != 0).then(|| format!("others may write to it (mode {mode:o}): chmod go-w"))
}

#[cfg(not(unix))]
fn not_ours_alone(_: &Metadata) -> Option<String> {
    None
}

/// Makes the folder for this user alone.
pub(super) fn create(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
