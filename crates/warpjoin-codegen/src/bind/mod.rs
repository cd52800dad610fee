//! Binds a kernel: its sections and blocks, the columns that a step sees, loads of stored columns, the words of packed
//! values, and parameters.
//!
//! What is bound is data (see `program`). Whoever binds calls the binder `b`. Must not know what expressions, joins or
//! group-bys mean, nor the text of a kernel.

mod binder;
mod environment;
mod load;
mod packing;
mod terms;
mod value;
mod words;

pub(super) use binder::{Binder, FrontPlace, HeadPlace};
pub(super) use environment::{Cell, Environment, Payload, PayloadAccess};
pub(super) use value::Value;
pub(super) use words::{hoist_word, key_word, partition_hash, word_temporary};
