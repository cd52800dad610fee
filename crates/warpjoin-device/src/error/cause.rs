//! What kind of thing went wrong: the question that callers ask of every error.
//!
//! Owns the classes and which of them are faults. Each error type says its own class by an exhaustive match
//! ([`crate::DeviceError::cause`]).

/// Why an operation failed, for callers that decide what to do next: retry, run on the CPU, report a defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The budget, a device or its driver has too little memory.
    OutOfMemory,
    /// A value left the range of its type.
    Overflow,
    /// A division by zero.
    Division,
    /// A value that a cast cannot represent.
    Cast,
    /// Devices cannot do this; the CPU can.
    Unsupported,
    /// The caller gave up.
    Cancelled,
    /// The caller's arguments or data contradict each other.
    InvalidInput,
    /// This machine lacks something: a driver, a GPU, a compiler, access between GPUs, a version that fits.
    Unavailable,
    /// A file could not be read or written.
    File,
    /// A kernel does not compile.
    Compile,
    /// A call of the driver failed, and later calls may succeed.
    Driver,
    /// The context of a GPU is broken: every later call on it fails until the process opens it anew.
    DeviceLost,
    /// A kernel broke a rule of its own: a deadlock, a divergent barrier or a race that the simulator saw.
    Kernel,
    /// A loop of a kernel, or of the host around it, reached its bound.
    KernelBound,
    /// An invariant broke on the host, a panic among it.
    Internal,
}

impl Cause {
    /// Whether this is a defect of warpjoin, of the driver or of the hardware: never the result of the data, the plan,
    /// the budget or what is installed. Tests and strict callers must not pass over a fault.
    pub fn is_fault(self) -> bool {
        match self {
            Self::OutOfMemory
            | Self::Overflow
            | Self::Division
            | Self::Cast
            | Self::Unsupported
            | Self::Cancelled
            | Self::InvalidInput
            | Self::Unavailable
            | Self::File => false,
            Self::Compile | Self::Driver | Self::DeviceLost | Self::Kernel | Self::KernelBound | Self::Internal => true,
        }
    }
}
