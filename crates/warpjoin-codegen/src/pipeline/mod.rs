//! Whole kernels: source, steps, sink, and the loop over rows around them.
//!
//! `kernel.rs` frames a kernel, with a loop over tiles of rows. Loops of other kinds are in `batch.rs`, `matches.rs`,
//! `partition.rs` and `queue.rs`; `slices.rs` has several lanes share a row. `key.rs` is what a kernel follows from. Must not know how a step or a sink does its work.

mod batch;
mod kernel;
mod key;
mod matches;
mod partition;
mod queue;
mod slices;
mod source;
mod steps;
#[cfg(test)]
mod time_tests;

pub use batch::BATCH_BLOCKS;
pub use kernel::{GenerateOptions, GeneratedPipeline, Grid, SinkShape, bind_pipeline};
pub use key::PipelineKey;
pub use matches::{match_threads, shared_row_bytes};
