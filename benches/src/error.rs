//! The error type of this crate.

use std::path::PathBuf;

use crate::Checksum;

/// Result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a line has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The checksum of the result differs from the expected one.
    #[error("WRONG RESULT: {found:?}, expected {expected:?}")]
    Wrong {
        /// Checksum computed from the inputs.
        expected: Checksum,
        /// Checksum of the result.
        found: Checksum,
    },
    /// The result violates another check.
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
