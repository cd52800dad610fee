//! Pinned host memory of one GPU: chunks that copies go through, and words that kernels read.

mod staging;
mod words;

pub(super) use staging::Staging;
pub(super) use words::HostWords;
