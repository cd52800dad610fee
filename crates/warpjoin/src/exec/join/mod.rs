//! Joins of two relations: over a hash table of the build side, or by partitions of both sides; shared build sides and the
//! runtime filters made of them.
//!
//! Must not know why joins run in this order, nor why a filter is tested (`optimize/`); nor how a probe is generated
//! (`codegen/join/`).

mod build_probe;
mod direct;
mod matches;
mod passes;
mod runtime_filter;
mod shared_build;
mod spread;
mod table;
