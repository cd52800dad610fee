//! The one error type of this crate, and the reasons for which something stays on the CPU.

use std::fmt;

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use warpjoin_device::{Cause, DeviceError};

/// Result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and what can be done about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device failed: no memory, no driver, a kernel that does not compile.
    #[error(transparent)]
    Device(DeviceError),
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
    /// The caller cancelled the query.
    #[error("cancelled")]
    Cancelled,
    /// Arrow refused the data.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// The caller's arguments contradict each other.
    #[error("{0}")]
    InvalidArgument(String),
    /// A loop in a kernel, or a loop of launches that enlarge a buffer, reached its bound. A defect of warpjoin.
    #[error("internal: a bound was reached: {0}")]
    KernelBound(String),
    /// An invariant of this crate broke.
    #[error("internal: {0}")]
    Internal(String),
}

impl Error {
    /// Shorthand for [`Error::Internal`].
    #[doc(hidden)]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::Internal(message.into())
    }

    /// Shorthand for [`Error::KernelBound`].
    #[doc(hidden)]
    pub fn kernel_bound(message: impl Into<String>) -> Self {
        Self::KernelBound(message.into())
    }

    /// What caused the error; [`Cause::is_fault`] tells defects from causes in the data, the plan or the machine.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Device(error) => error.cause(),
            Self::Unsupported(_) => Cause::Unsupported,
            Self::Overflow => Cause::Overflow,
            Self::DivisionByZero => Cause::Division,
            Self::CastFailed => Cause::Cast,
            Self::Cancelled => Cause::Cancelled,
            Self::Arrow(error) => cause_of_arrow(error),
            Self::InvalidArgument(_) => Cause::InvalidInput,
            Self::KernelBound(_) => Cause::KernelBound,
            Self::Internal(_) => Cause::Internal,
        }
    }
}

/// The cause of an error of Arrow, which evaluates host functions and checks the caller's arrays.
pub fn cause_of_arrow(error: &ArrowError) -> Cause {
    match error {
        ArrowError::NotYetImplemented(_) => Cause::Unsupported,
        ArrowError::CastError(_) | ArrowError::ParseError(_) => Cause::Cast,
        ArrowError::MemoryError(_) => Cause::OutOfMemory,
        ArrowError::DivideByZero => Cause::Division,
        ArrowError::ArithmeticOverflow(_)
        | ArrowError::DictionaryKeyOverflowError
        | ArrowError::RunEndIndexOverflowError
        | ArrowError::OffsetOverflowError(_) => Cause::Overflow,
        ArrowError::IoError(..) => Cause::File,
        ArrowError::ExternalError(_)
        | ArrowError::SchemaError(_)
        | ArrowError::ComputeError(_)
        | ArrowError::CsvError(_)
        | ArrowError::JsonError(_)
        | ArrowError::AvroError(_)
        | ArrowError::IpcError(_)
        | ArrowError::InvalidArgumentError(_)
        | ArrowError::ParquetError(_)
        | ArrowError::CDataInterface(_) => Cause::InvalidInput,
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
    /// There is no device, and why.
    NoDevice(String),
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
            Self::NoDevice(why) => write!(f, "no device is used: {why}"),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Cancelled => Self::Cancelled,
            error => Self::Device(error),
        }
    }
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self::Unsupported(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_from_what_data_and_machine_bring_about() {
        let expected: [(Error, Cause); 7] = [
            (Error::Overflow, Cause::Overflow),
            (Error::DivisionByZero, Cause::Division),
            (Error::Cancelled, Cause::Cancelled),
            (Reason::Limit("rows".into()).into(), Cause::Unsupported),
            (ArrowError::DivideByZero.into(), Cause::Division),
            (Error::InvalidArgument(String::new()), Cause::InvalidInput),
            (DeviceError::NoDriver.into(), Cause::Unavailable),
        ];
        let faults: [(Error, Cause); 3] = [
            (Error::internal("x"), Cause::Internal),
            (Error::kernel_bound("x"), Cause::KernelBound),
            (DeviceError::Invalid(String::new()).into(), Cause::Internal),
        ];
        for (error, cause) in &expected {
            assert!(error.cause() == *cause && !cause.is_fault(), "{error:?}");
        }
        for (error, cause) in &faults {
            assert!(error.cause() == *cause && cause.is_fault(), "{error:?}");
        }
    }
}
