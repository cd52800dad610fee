//! Columns of Parquet files, decoded on devices.
//!
//! The pages of a column go to the device as they are in the file. Kernels decompress them (`kernels/decode/snappy.cu`), and
//! decode them straight into the layout of tables (`kernels/decode/values.cu`). What kernels can't decode is declined with
//! the reason, so that the caller decodes it on the CPU.
//!
//! Owns page headers, and what is launched for which pages. Must not know files, row groups of a schema, or how bounds of a
//! column are found.

mod batch;
mod column;
mod error;
mod facts;
mod header;
mod kernels;
mod numbers;
mod pages;
mod part;
mod stored;
mod table;
mod text;

pub use column::decode_column;
pub use error::DecodeError;
pub use pages::{ChunkBytes, ColumnChunk, Compression, Decompress};
pub use part::DecodedColumn;
pub use stored::{Stored, StoredColumn};
pub use table::decode_table;
