//! Device plans, their options, and how they are optimized: an internal part of warpjoin, without promises of stability.
//!
//! Owns plan nodes, aggregates, window calls, the cut of a plan into pipelines, and the optimizer. Must not know generated code,
//! or how queries run.

#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod optimize;
pub mod options;
pub mod plan;
pub mod window;
