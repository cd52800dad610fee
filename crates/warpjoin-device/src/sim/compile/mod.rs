//! How kernels are compiled for the CPU: the system's compiler, the libraries that it makes, and the lines of their code.

pub(in crate::sim) mod library;
pub(in crate::sim) mod lines;
pub(in crate::sim) mod toolchain;
