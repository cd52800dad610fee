//! Columns: how Arrow arrays become narrow runs of bytes, and back.
//!
//! Owns the layout of a column, its statistics, dictionaries, encoding and decoding. Must not know
//! devices: [`crate::Table`] brings the bytes to them.
//!
//! Architecture invariant: type, domain, layout and dictionary are facts of the whole column, never
//! of a shard or a chunk, so that one kernel serves all shards.
//!
//! Architecture invariant: the slot of a null row holds nothing that counts. Encoding stores 0
//! there; decoding accepts anything.

mod bits;
mod chunk;
mod decode;
mod dictionary;
mod encode;
mod numbers;
mod order;
#[allow(missing_docs, reason = "internal to warpjoin")]
mod range;
mod strings;
mod tasks;
mod transcode;
mod types;

pub use chunk::DISTINCT_SPAN_MAX;
pub(crate) use decode::{EncodedRows, decode_rows};
pub use decode::{Validity, decode, integers, with_null};
pub use dictionary::Dictionary;
pub use encode::{ColumnStatistics, EncodedColumn, StringEncoding, TableEncoder};
pub use range::{Range, bounds_of, range_of_literal, range_of_type, scale_of};
pub(crate) use types::is_text;
pub use types::{ColumnType, Domain, Layout, Physical, bits, check_type, holds_strings, is_string, span_bits};
