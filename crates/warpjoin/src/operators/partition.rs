//! A radix partition of a resident table, by itself.

use std::sync::Arc;

use warpjoin_codegen::{Constants, RowSpec};
use warpjoin_columns::expr::Expr;
use warpjoin_columns::{Error, Result, Table};
use warpjoin_device::Buffer;
use warpjoin_plan::optimize::costs::PASS_BITS_MAX;
use warpjoin_plan::options::ExecOptions;

use super::hash_join::scan;
use crate::exec;
use crate::exec::partition::{PartitionedShard, PassBits};
use crate::{QueryMetrics, Session};

/// The rows of a table by partition, on each device by itself.
///
/// A row is one or several words of 4 or 8 bytes, each in a column of its own. They hold the stored
/// values (see [`crate::column::Layout`]) of the keys, then of the other columns, in as many bits as
/// their bounds need, each in the first word with room, lowest bits first. Partition `p` of `2^bits`
/// holds the rows whose key hash has `p` in its top bits. Rows of a partition come in no order.
#[derive(Debug)]
pub struct PartitionedTable {
    /// Bytes of each word.
    pub word_bytes: Vec<u32>,
    /// One shard a device.
    pub shards: Vec<PartitionedTableShard>,
}

/// The rows of one device.
#[derive(Debug)]
pub struct PartitionedTableShard {
    /// A buffer a word: rows x bytes.
    pub words: Vec<Buffer>,
    /// Where each partition begins, and where the last one ends: 2^bits + 1 u32.
    pub offsets: Buffer,
}

/// Partitions the rows of a table by the top `bits` bits of the hash of its key columns, in one pass,
/// on each device by itself; with what it cost. Rows with a null key are left out.
///
/// # Errors
/// When there is no such column or no key, `bits` is not from 1 to 11, or a device fails.
pub fn partition_table(
    session: &Arc<Session>,
    table: &Arc<Table>,
    keys: &[usize],
    bits: u32,
    options: &ExecOptions,
) -> Result<(PartitionedTable, QueryMetrics)> {
    let plan = scan(table);
    let columns = plan.schema.fields().len();
    if keys.is_empty() || keys.iter().any(|&key| key >= columns) || !(1..=PASS_BITS_MAX).contains(&bits) {
        return Err(Error::InvalidArgument(format!("a partition of {columns} columns by {keys:?} and {bits} bits")));
    }
    let key = |&key: &usize| {
        let field = plan.schema.field(key);
        Expr::column(key, field.data_type().clone(), field.is_nullable())
    };
    let spec = RowSpec {
        keys: keys.iter().map(key).collect(),
        like: None,
        keeps_null_keys: false,
        payload: (0..columns).filter(|column| !keys.contains(column)).collect(),
    };
    let (rows, metrics) = exec::run_to_partitions(session, &plan, spec, PassBits::of(bits), options)?;
    let word_bytes = rows.shape.word_bytes();
    let shard = |PartitionedShard { words, offsets, .. }| PartitionedTableShard { words, offsets };
    Ok((PartitionedTable { word_bytes, shards: rows.shards.into_iter().map(shard).collect() }, metrics))
}

/// Definitions with which kernels outside this crate can include the headers of `warpjoin_kernels`: so
/// that a check finds the partition of a row as the kernels do.
pub fn kernel_definitions() -> Vec<String> {
    Constants { hash_bits: 64, lanes: 1 }.defines()
}
