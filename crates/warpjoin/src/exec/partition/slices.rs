//! Some partitions at a time.

use std::sync::Arc;

use warpjoin_device::Stream;

use super::PassBits;
use crate::exec::relation::{PartitionSlice, PartitionedRows};
use crate::{Error, Result};

/// Bits of partitions that passes go over: enough for these to be even, and one pass of a partition.
pub(in crate::exec) const PASSES_BITS: PassBits = PassBits { first: 8, second: 0 };

/// Slices of relations of the only device that were partitioned alike: neighbouring partitions that have at most `rows_max`
/// rows of the first relation together, or a single one that has more. At least one slice.
pub(in crate::exec) fn slices_of<const N: usize>(
    stream: &Stream,
    relations: &[&Arc<PartitionedRows>; N],
    rows_max: u64,
) -> Result<Vec<[PartitionSlice; N]>> {
    let mut offsets = vec![];
    for relation in relations {
        let [shard] = relation.shards.as_slice() else { return Err(Error::internal("slices of several devices")) };
        let mut words = vec![0u32; shard.offsets.bytes() as usize / 4];
        stream.read(&shard.offsets, 0, bytemuck::cast_slice_mut(&mut words))?;
        offsets.push(words);
    }
    let of_first = offsets.first().ok_or_else(|| Error::internal("slices of nothing"))?;
    let mut bounds = vec![0];
    for partition in 1..of_first.len() - 1 {
        let first = bounds[bounds.len() - 1];
        if u64::from(of_first[partition + 1] - of_first[first]) > rows_max {
            bounds.push(partition);
        }
    }
    bounds.push(of_first.len() - 1);
    let slice = |relation: &Arc<PartitionedRows>, offsets: &[u32], first: usize, last: usize| {
        let rebased: Vec<u32> = offsets[first..=last].iter().map(|offset| offset - offsets[first]).collect();
        Ok(PartitionSlice {
            rows: Arc::clone(relation),
            first_row: offsets[first].into(),
            count: (offsets[last] - offsets[first]).into(),
            offsets: stream.upload(bytemuck::cast_slice(&rebased))?,
            partitions: (last - first) as u64,
        })
    };
    let slices = bounds.windows(2).map(|bound| {
        let all = relations.iter().zip(&offsets);
        let all = all.map(|(relation, offsets)| slice(relation, offsets, bound[0], bound[1]));
        let all: Vec<PartitionSlice> = all.collect::<Result<_>>()?;
        all.try_into().map_err(|_| Error::internal("slices that are missing"))
    });
    slices.collect()
}
