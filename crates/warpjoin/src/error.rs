//! The one error type of this crate, and the reasons for which something stays on the CPU.

use std::fmt;

use arrow::datatypes::DataType;
use warpjoin_device::DeviceError;

/// Result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and what can be done about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device failed: no memory, no driver, a kernel that does not compile.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The devices can't do this; the CPU can.
    #[error("not supported on the device: {0}")]
    Unsupported(Reason),
    /// A value left the range of its type where DataFusion reports an error.
    #[error("arithmetic overflow on the device")]
    Overflow,
    /// A division by zero.
    #[error("division by zero on the device")]
    DivisionByZero,
    /// A value that a cast can't represent.
    #[error("cast failed on the device: the value does not fit the target type")]
    CastFailed,
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
    /// Arrow refused the data.
    #[error(transparent)]
    Arrow(#[from] arrow::error::ArrowError),
    /// The caller's arguments contradict each other.
    #[error("{0}")]
    InvalidArgument(String),
    /// An invariant of this crate broke.
    #[error("internal: {0}")]
    Internal(String),
}

impl Error {
    /// Shorthand for [`Error::Internal`].
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::Internal(message.into())
    }
}

/// Why something can't run on a device. Shown by EXPLAIN.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A column or value of this type.
    Type(DataType),
    /// An expression, in words.
    Expression(String),
    /// An aggregate function, in words.
    Aggregate(String),
    /// A join, in words.
    Join(String),
    /// A plan node, by name.
    Node(String),
    /// A limit of the engine, in words.
    Limit(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(data_type) => write!(f, "type {data_type}"),
            Self::Expression(what) => write!(f, "expression {what}"),
            Self::Aggregate(what) => write!(f, "aggregate {what}"),
            Self::Join(what) => write!(f, "join {what}"),
            Self::Node(what) => write!(f, "operator {what}"),
            Self::Limit(what) => write!(f, "limit: {what}"),
        }
    }
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self::Unsupported(reason)
    }
}
