//! The Arrow-native API: joins, group-bys and partitions of tables, without a plan.

mod group_by;
mod hash_join;
mod partition;

pub use group_by::GroupBy;
pub use hash_join::HashJoin;
pub use partition::{PartitionedTable, PartitionedTableShard, kernel_definitions, partition_table};
