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
pub use builder::cut;
pub use download::Pieces;
pub use from_shards::ResidentColumn;
pub use place::settle;
pub use ranges::Ranges;
pub use resident::BUFFER_ALIGNMENT_BYTES;
pub use resident::{Shard, ShardColumn, Table};
pub use sample::{SampledValues, TableSample};
pub use stored::MovedBytes;
