//! Prints kernels: CUDA C++ text of what is bound.
//!
//! A function of a [`Kernel`](super::program::Kernel) alone. Must not know what a kernel is for.

mod batch;
mod code;
mod front;
mod group;
mod kernel;
mod matches;
mod names;
mod partition;
mod probe;
mod statement;
mod text;

pub(super) use kernel::print;
