//! Compilation of kernels for the CPU: the system's compiler, the libraries, and their source lines.
//!
//! Must not know how kernels are launched.

pub(in crate::sim) mod library;
pub(in crate::sim) mod lines;
pub(in crate::sim) mod toolchain;
