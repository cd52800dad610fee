//! The one error type of the binary: what the user sees.

use std::path::PathBuf;

use datafusion::error::DataFusionError;
use warpjoin_device::DeviceError;

/// Result of a command.
pub type Result<T, E = CliError> = std::result::Result<T, E>;

/// Why a command ended without doing what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// Arguments that contradict each other, or a value out of range.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A query failed.
    #[error("{0}")]
    Query(String),
    /// A device can't be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] warpjoin::Error),
    /// Arrow refused.
    #[error(transparent)]
    Arrow(#[from] datafusion::arrow::error::ArrowError),
    /// The user pressed Ctrl-C.
    #[error("cancelled")]
    Cancelled,
    /// The reader of standard output is gone.
    #[error("standard output was closed")]
    OutputClosed,
    /// An invariant of this crate broke.
    #[error("internal: {0}")]
    Internal(String),
}

impl CliError {
    /// Shorthand for [`CliError::File`].
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}

impl From<DataFusionError> for CliError {
    /// DataFusion's words, without its backtrace.
    fn from(error: DataFusionError) -> Self {
        match error {
            // Ours, wrapped: it says what to do by itself.
            DataFusionError::External(error) => Self::Query(error.to_string()),
            // Its Display is a debug dump.
            DataFusionError::SQL(error, _) => Self::Query(error.to_string()),
            error => Self::Query(error.strip_backtrace()),
        }
    }
}
