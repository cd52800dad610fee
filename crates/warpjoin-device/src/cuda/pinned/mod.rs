//! Pinned host memory of one GPU: buffers, staging chunks for copies, and words that kernels read.

mod buffers;
mod staging;
mod words;

pub(super) use buffers::{HostBuffers, copy_in, copy_out, fill};
pub(super) use staging::Staging;
pub(super) use words::HostWords;
