//! Classes of errors, on which callers decide what to do.
//!
//! Owns the classes and which of them are faults. Each error type maps to its class by an exhaustive match
//! ([`crate::DeviceError::cause`]).

/// Why an operation failed. Callers use it to decide whether to retry, run on the CPU, or report a defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The budget, a device or its driver has too little memory.
    OutOfMemory,
    /// A value exceeds the range of its type.
    Overflow,
    /// A division by zero.
    Division,
    /// A value that a cast cannot represent.
    Cast,
    /// Devices cannot do this; the CPU can.
    Unsupported,
    /// The caller cancelled the operation.
    Cancelled,
    /// The caller's arguments or data contradict each other.
    InvalidInput,
    /// This machine lacks something: a driver, a GPU, a compiler, access between GPUs, a matching version.
    Unavailable,
    /// A file could not be read or written.
    File,
    /// A kernel does not compile.
    Compile,
    /// A driver call failed. Later calls may succeed.
    Driver,
    /// The context of a GPU is broken: every later call fails until the process opens the GPU again.
    DeviceLost,
    /// The simulator found an error in a kernel: a deadlock, a divergent barrier or a race.
    Kernel,
    /// A loop of a kernel, or of its host code, reached its bound.
    KernelBound,
    /// An invariant was violated on the host, or host code panicked.
    Internal,
}

impl Cause {
    /// Whether this is a defect of warpjoin, the driver or the hardware, rather than a consequence of the data, the plan,
    /// the budget or the installed software. Tests and strict callers must not ignore a fault.
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
