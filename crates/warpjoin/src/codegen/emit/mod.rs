//! Writes the text of a kernel: its sections and blocks, the columns that a step sees, the words of packed values, and the
//! parameters with what they are bound to.
//!
//! Must not know what expressions, joins or group-bys mean.

mod emitter;
mod environment;
mod load;
mod packing;
mod params;
mod words;

pub(super) use emitter::Emitter;
pub(super) use environment::{Cell, Environment, Payload, PayloadAccess};
pub(super) use packing::lower;
pub(crate) use params::{Binding, FetchPart, GroupPart, JoinPart, MatchPart, PartitionPart, SketchPart};
pub(super) use words::{hoist_word, key_word, partition_hash, word_temporary};
