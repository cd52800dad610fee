//! Tables on devices: their shards, statistics and samples, and the transfer of columns to devices and back.
//!
//! Must not know plans or queries.

mod builder;
mod download;
mod from_shards;
mod movable;
mod place;
mod ranges;
mod replicas;
mod resident;
mod sample;
mod spread;
mod stored;

pub use builder::TableBuilder;
pub(crate) use builder::cut;
pub use download::Pieces;
pub use from_shards::ResidentColumn;
pub(crate) use place::settle;
pub(crate) use ranges::Ranges;
pub(crate) use resident::BUFFER_ALIGNMENT_BYTES;
pub use resident::{Shard, ShardColumn, Table};
pub(crate) use sample::{SampledValues, TableSample};
pub use stored::MovedBytes;
