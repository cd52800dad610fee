//! Rows of one device by ranges of a key, with the kernels of exchanges.

use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;
use warpjoin_device::Kernel;
use warpjoin_kernels::exchange::{COLUMNS, RowsParams};

use super::{CountedShard, Part, blocks_for, columns_of, count_shard, exchange_module, route_of};
use crate::exec::launch::Lane;
use crate::exec::query::Query;
use crate::exec::relation::IntermediateShard;
use crate::exec::rows::allocate;

/// The kernels of [`split_by_ranges`], one for each device.
pub(in crate::exec) struct SplitKernels {
    count: Vec<Kernel>,
    rows: Vec<Kernel>,
}

impl SplitKernels {
    pub(in crate::exec) fn of(query: &mut Query<'_>) -> Result<Self> {
        let module = exchange_module(query.options.hash_bits);
        let [count, rows] = query.compile_all([(&module, "exchange_count"), (&module, "exchange_rows")])?;
        Ok(Self { count, rows })
    }
}

/// Partitions the rows of a device by ranges of a key word, stably. Returns where each range begins, and the number of
/// rows. `splitters` (at most `DEVICES_MAX` - 1): where each range but the first begins.
pub(in crate::exec) fn split_by_ranges(
    lane: &mut Lane<'_>,
    kernels: &SplitKernels,
    (columns, shard): (&[ColumnType], IntermediateShard),
    (key, splitters): (usize, &[u64]),
) -> Result<(IntermediateShard, Vec<u64>)> {
    let (stream, ranges) = (lane.stream.clone(), splitters.len() + 1);
    if splitters.is_empty() || shard.rows == 0 {
        let mut begins = vec![shard.rows; ranges + 1];
        begins[0] = 0;
        return Ok((shard, begins));
    }
    let (launch, rows_each) = blocks_for(shard.rows, &stream);
    let counts = stream.alloc(u64::from(launch.blocks) * ranges as u64 * 8)?;
    let splitters = Some(stream.upload(bytemuck::cast_slice(splitters))?);
    let counted = CountedShard { launch, rows_each, counts, splitters, ranges: None };
    let rows_of = count_shard(lane, &kernels.count[lane.device], (columns, &shard, key), &counted, ranges)?;
    let mut begins = vec![0u64];
    for (range, rows) in rows_of.into_iter().enumerate() {
        begins.push(begins[range] + rows);
    }
    let split = IntermediateShard { rows: shard.rows, ..allocate(&stream, columns, shard.rows)? };
    for parts in Part::all(columns).chunks(COLUMNS) {
        let target_of = |part: usize, range: usize| {
            let begin = begins[..ranges].get(range)? * parts[part].width_bytes;
            parts[part].of(&split).map(|to| (to, begin))
        };
        let route = route_of((columns, &shard, key), &counted, ranges)?;
        let params = RowsParams { route, columns: columns_of(parts, &shard, target_of) };
        lane.launch(&kernels.rows[lane.device], launch, &params)?;
    }
    Ok((split, begins))
}
