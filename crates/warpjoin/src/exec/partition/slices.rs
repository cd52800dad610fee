//! Some partitions at a time.

use std::sync::Arc;

use warpjoin_device::Stream;

use super::PassBits;
use crate::exec::relation::{PartitionSlice, PartitionedRows};
use crate::{Error, Result};

/// Bits of partitions that passes go over: enough for these to be even, and one pass of a partition.
pub(in crate::exec) const PASSES_BITS: PassBits = PassBits { first: 8, second: 0 };

/// Goes over relations of the only device that were partitioned alike, some neighbouring partitions at a time.
pub(in crate::exec) struct Slices<const N: usize> {
    relations: [Arc<PartitionedRows>; N],
    /// Where the partitions of each begin.
    offsets: [Vec<u32>; N],
    /// Most rows of the first relation in a slice of several partitions.
    rows_max: u64,
    /// Partitions of the slice before, and the first one of the next.
    last: usize,
    next: usize,
}

impl<const N: usize> Slices<N> {
    /// Waits for the partitions.
    pub(in crate::exec) fn of(stream: &Stream, relations: [&Arc<PartitionedRows>; N], rows_max: u64) -> Result<Self> {
        let mut offsets = [const { vec![] }; N];
        for (relation, offsets) in relations.iter().zip(&mut offsets) {
            let [shard] = relation.shards.as_slice() else { return Err(Error::internal("slices of several devices")) };
            *offsets = vec![0u32; shard.offsets.bytes() as usize / 4];
            stream.read(&shard.offsets, 0, bytemuck::cast_slice_mut(offsets))?;
        }
        Ok(Self { relations: relations.map(Arc::clone), offsets, rows_max, last: 0, next: 0 })
    }

    /// The next slice; `None` behind the last one.
    pub(in crate::exec) fn next(&mut self, stream: &Stream) -> Result<Option<[PartitionSlice; N]>> {
        let of_first = self.offsets.first().map_or(&[][..], Vec::as_slice);
        let (first, partitions) = (self.next, of_first.len().saturating_sub(1));
        if first >= partitions {
            return Ok(None);
        }
        let rows = |end: usize| u64::from(of_first[end] - of_first[first]);
        let end = (first + 2..=partitions).take_while(|&end| rows(end) <= self.rows_max).last().unwrap_or(first + 1);
        (self.last, self.next) = (first, end);
        let slices = self.relations.iter().zip(&self.offsets);
        let slices = slices.map(|(relation, offsets)| slice(stream, relation, &offsets[first..=end]));
        let slices: Vec<PartitionSlice> = slices.collect::<Result<_>>()?;
        slices.try_into().map(Some).map_err(|_| Error::internal("slices that are missing"))
    }

    /// Goes over the partitions of the slice before again, with half of its rows at a time. Not if it was one partition.
    pub(in crate::exec) fn halve(&mut self) -> bool {
        let Some(of_first) = self.offsets.first().filter(|_| self.next > self.last + 1) else { return false };
        self.rows_max = u64::from(of_first[self.next] - of_first[self.last]) / 2;
        self.next = self.last;
        true
    }
}

/// Rows of partitions that begin there, up to the last offset.
fn slice(stream: &Stream, relation: &Arc<PartitionedRows>, offsets: &[u32]) -> Result<PartitionSlice> {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let rebased: Vec<u32> = offsets.iter().map(|offset| offset - first).collect();
    Ok(PartitionSlice {
        rows: Arc::clone(relation),
        first_row: first.into(),
        count: (last - first).into(),
        offsets: stream.upload(bytemuck::cast_slice(&rebased))?,
        partitions: offsets.len() as u64 - 1,
    })
}
