//! Code of typed expressions, with DataFusion's rules: bounds travel with values and choose 32, 64 or 128 bits.
//!
//! `evaluate.rs` says which file emits which kind of expression. Must not know sources and sinks.

mod arithmetic;
mod case;
mod cast;
mod compare;
mod dates;
mod evaluate;
mod fault;
mod functions;
mod literal;
mod moments;
mod operands;
mod order;

pub use cast::check as check_cast;
pub use compare::IN_LIST_MAX;
pub(super) use evaluate::evaluate;
pub(super) use moments::term as moment_term;
pub(super) use order::{KeyPart, add_order_key, masks_of_parts, with_sorted_codes, words_of_parts};
