//! What generated code depends on: the shapes of sources, steps and sinks, of join tables, group tables and packed words.
//!
//! Owns values that can be printed and compared: `pipeline/key.rs` names all of them. Must not know how code is written, nor
//! buffers and row counts.

mod group;
mod join;
mod packing;
mod pipeline;

pub use group::{Accumulator, GroupLimits, GroupMode, GroupShape};
pub(super) use group::{AccumulatorKind, AccumulatorResult, Merge, PreAggregation};
pub(super) use join::is_hashed;
pub use join::{
    DirectSlots, FilterTest, JoinShape, PayloadForm, ProbeKey, ProbeKind, ProbeStep, Slots, StoredKey, WordSlots,
};
pub(super) use packing::{PackedField, Packing, Place};
pub use pipeline::{
    FetchStep, MatchForm, PartitionStage, RowShape, RowSpec, Sink, SortShape, SourceShape, Step, ValidityForm,
    WindowKeys,
};
