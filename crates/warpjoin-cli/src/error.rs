//! The error type of the binary. Its messages are shown to the user.

use std::path::PathBuf;

use datafusion::error::DataFusionError;
use warpjoin_device::DeviceError;

/// Exit code of a command that Ctrl-C has ended: 128 and the number of the signal.
pub(crate) const INTERRUPTED: u8 = 130;

/// Result of a command.
pub type Result<T, E = CliError> = std::result::Result<T, E>;

/// Why a command failed.
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
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] warpjoin::Error),
    /// An error of Arrow.
    #[error(transparent)]
    Arrow(#[from] datafusion::arrow::error::ArrowError),
    /// A statement of a script failed.
    #[error("{place}: {error}")]
    Statement {
        /// Which statement.
        place: String,
        /// Why.
        error: Box<CliError>,
    },
    /// The user pressed Ctrl-C.
    #[error("cancelled")]
    Cancelled,
    /// The reader of standard output has closed it.
    #[error("standard output was closed")]
    OutputClosed,
    /// An invariant of this crate was violated.
    #[error("internal: {0}")]
    Internal(String),
}

impl CliError {
    /// The exit code of a command that fails with this error: 2 for wrong arguments, 130 after Ctrl-C, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Cancelled => INTERRUPTED,
            Self::Statement { error, .. } => error.exit_code(),
            _ => 1,
        }
    }

    /// Makes a [`CliError::File`] for `path`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}

impl From<DataFusionError> for CliError {
    /// DataFusion's message without a backtrace.
    fn from(error: DataFusionError) -> Self {
        match error {
            // A wrapped error of warpjoin, whose message needs no prefix.
            DataFusionError::External(error) => Self::Query(error.to_string()),
            // `Display` of the outer error is a debug dump.
            DataFusionError::SQL(error, _) => Self::Query(error.to_string()),
            error => Self::Query(error.strip_backtrace()),
        }
    }
}
