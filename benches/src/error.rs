//! The one error type of this crate.

use std::path::PathBuf;

use crate::Checksum;

/// Result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a line has no figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The result is not what its inputs demand.
    #[error("WRONG RESULT: {found:?}, where {expected:?} is right")]
    Wrong {
        /// What the inputs demand.
        expected: Checksum,
        /// What came out.
        found: Checksum,
    },
    /// The result has something that the checks do not look at.
    #[error("WRONG RESULT: {0}")]
    Unexpected(String),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] warpjoin::Error),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] warpjoin_device::DeviceError),
    /// A report could not be written.
    #[error("{path}: {reason}")]
    Report {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A specification contradicts itself.
    #[error("internal: {0}")]
    Internal(String),
}
