//! Prints kernels: CUDA C++ text of what is bound.
//!
//! A function of a [`Kernel`](super::program::Kernel) alone. Must not know what a kernel is for.

mod code;
mod group;
mod kernel;
mod names;
mod probe;
mod statement;
mod text;

pub(crate) use group::regroup;
pub(super) use kernel::print;
