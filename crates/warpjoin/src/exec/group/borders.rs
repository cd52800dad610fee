//! Groups of rows sorted by a key: complete on their device, except for keys at the border of two devices.
//!
//! Must not know how the groups were made.

use warpjoin_codegen::GroupShape;
use warpjoin_columns::devices::waits::Waits;
use warpjoin_columns::table::Ranges;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Kernel, Launch, Ptr, Stream};
use warpjoin_kernels::common::{control, status};
use warpjoin_kernels::group::{self, MergeRowParams, OPEN_FIRST, OPEN_LAST, RegroupParams, group_counter};

use super::target::STEPS_MAX;
use crate::exec::launch::Strides;
use crate::exec::query::{Pending, PendingDevice};
use crate::exec::relation::GroupTable;

/// A device whose last key may be the first key of the devices after it.
#[derive(Debug, PartialEq, Eq)]
struct Border {
    key: i128,
    first: usize,
    others: Vec<usize>,
}

/// Work that merges groups of several devices.
pub(super) struct Merging {
    pub launches: u64,
    /// Buffers that it uses.
    pub kept: Vec<Buffer>,
    /// Pending reports of the devices that merge.
    reports: Vec<Option<PendingDevice>>,
}

impl Merging {
    /// Turns it into pending work of a pipeline in the metrics, and the buffers to keep.
    pub(super) fn into_pending(self, pipeline: usize) -> (Vec<Buffer>, Pending) {
        (self.kept, Pending { pipeline, devices: self.reports, check: check_room })
    }
}

fn check_room(bits: u64) -> Result<()> {
    match bits & (status::FULL | status::GROW) {
        0 => Ok(()),
        _ => Err(Error::kernel_bound("a group of two devices found no row in a table with room")),
    }
}

/// The ends of each device's rows whose key also occurs on other devices.
pub(super) fn open_ends(ranges: &Ranges) -> Vec<u64> {
    let mut ends = vec![0; ranges.len()];
    for Border { first, others, .. } in borders(ranges) {
        ends[first] |= OPEN_LAST;
        let last = others.len() - 1;
        for (at, other) in others.into_iter().enumerate() {
            ends[other] |= if at == last { OPEN_FIRST } else { OPEN_FIRST | OPEN_LAST };
        }
    }
    ends
}

/// The merges of a table's rows, as `regroup` takes them, and how many there are.
fn merges_of(shape: &GroupShape) -> (Vec<u64>, u64) {
    let mut merges = shape.merges();
    let count = merges.len() as u64;
    // A buffer has at least a word.
    merges.resize(merges.len().max(1), 0);
    (merges, count)
}

/// Moves the groups of keys that are on several devices to the first of these, from hash table to hash table, with one
/// kernel for each device.
///
/// Borders are processed from last to first: a device receives the group of its last key before its first group leaves
/// an empty slot, which would end later probes too early. `None`, and nothing is moved, if a border's key is word 2^64
/// - 1, which has no slot.
pub(super) fn move_border_groups(
    groups: &GroupTable,
    ranges: &Ranges,
    streams: &[Stream],
    kernels: &[Kernel],
) -> Result<Option<Merging>> {
    let bounds = groups.shape.packing.single_integer().ok_or_else(|| Error::internal("a table by several keys"))?;
    let (merges, merge_count) = merges_of(&groups.shape);
    let mut moves = Merging { launches: 0, kept: vec![], reports: streams.iter().map(|_| None).collect() };
    // Rows behind the finished ones, but for that of key word 0.
    let slots_of = |device: usize| {
        let shard = &groups.shards[device];
        let finished = shard.finished.as_ref().map_or(0, |finished| finished.count);
        shard.capacity.saturating_sub(finished + 1)
    };
    let slot_of = |border: &Border| u64::try_from(border.key.checked_sub(bounds.min)?).ok()?.checked_add(1);
    let borders = borders(ranges);
    let Some(slots) = borders.iter().map(slot_of).collect::<Option<Vec<u64>>>() else { return Ok(None) };
    // Kernels of one stream use tables of others.
    let waits = Waits::of(streams);
    for (Border { first, others, .. }, only) in borders.into_iter().zip(slots).rev() {
        let stream = &streams[first];
        let uploaded = stream.upload(bytemuck::cast_slice(&merges))?;
        let counters = stream.alloc_filled(group_counter::WORDS as u64 * 8, 0)?;
        let control = stream.alloc_filled(control::BYTES, 0)?;
        stream.wait_for_permit()?;
        let begin = stream.record()?;
        for other in others {
            // Groups that come to the other table come before.
            stream.wait(&streams[other].record()?)?;
            let params = RegroupParams {
                rows: Ptr::of(&groups.shards[other].rows),
                only,
                count: slots_of(other),
                zero_row: u64::MAX,
                table: group::GroupTable {
                    rows: Ptr::of(&groups.shards[first].rows),
                    capacity: slots_of(first),
                    index: None,
                    index_slots: 0,
                    steps_max: slots_of(first).min(STEPS_MAX),
                    grow_steps: u64::MAX,
                    spill_rows: 0,
                    counters: Ptr::of(&counters),
                    control: Ptr::of(&control),
                },
                stride: groups.shape.stride_words as u64,
                key_words: 0,
                merges: Ptr::of(&uploaded),
                merge_count,
            };
            stream.launch(&kernels[first], Strides::ROWS.over(slots_of(other), stream), &params)?;
            moves.launches += 1;
            // What reads or frees the other table comes behind.
            streams[other].wait(&stream.record()?)?;
        }
        moves.reports[first] = Some(PendingDevice::reporting((control, begin, stream.record()?)));
        moves.kept.extend([uploaded, counters]);
    }
    waits.leave();
    Ok(Some(moves))
}

/// Merges the groups of keys that are on several devices, each on the first of these, with one kernel for each device.
/// Returns the number of launches and the buffers that they read.
pub(super) fn merge_borders(
    groups: &GroupTable,
    ranges: &Ranges,
    streams: &[Stream],
    kernels: &[Kernel],
) -> Result<(u64, Vec<Buffer>)> {
    let bounds = groups.shape.packing.single_integer().ok_or_else(|| Error::internal("a table by several keys"))?;
    let (merges, merge_count) = merges_of(&groups.shape);
    let stride = groups.shape.stride_words as u64;
    let row_of = |device: usize, key: i128| {
        let shard = &groups.shards[device];
        let row = u64::try_from(key - bounds.min).ok()?.checked_sub(shard.first_key)?;
        (row < shard.capacity).then(|| Ptr::at(&shard.rows, row * stride))
    };
    let (mut launches, mut kept) = (0, vec![]);
    // Kernels of one stream use tables of others.
    let waits = Waits::of(streams);
    for Border { key, first, others } in borders(ranges) {
        let stream = &streams[first];
        let uploaded = stream.upload(bytemuck::cast_slice(&merges))?;
        for other in others {
            // Keys beyond the bounds of the plan are those of no row.
            if let (Some(to), Some(from)) = (row_of(first, key), row_of(other, key)) {
                let params = MergeRowParams { from, to, merges: Ptr::of(&uploaded), merge_count };
                stream.launch(&kernels[first], Launch { blocks: 1, block_threads: 32, shared_bytes: 0 }, &params)?;
                launches += 1;
                // What reads or frees the other table comes behind.
                streams[other].wait(&stream.record()?)?;
            }
        }
        kept.push(uploaded);
    }
    waits.leave();
    Ok((launches, kept))
}

/// The keys that are last on one device and first on others.
fn borders(ranges: &Ranges) -> Vec<Border> {
    let mut borders: Vec<Border> = vec![];
    let mut before: Option<(usize, i128)> = None;
    for (device, range) in ranges.iter().enumerate() {
        let Some([first_key, last_key]) = *range else { continue };
        if let Some((holder, key)) = before.filter(|(_, key)| *key == first_key) {
            match borders.last_mut().filter(|border| border.key == key) {
                Some(border) => border.others.push(device),
                None => borders.push(Border { key, first: holder, others: vec![device] }),
            }
        }
        before = Some((device, last_key));
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_to_the_first_device_that_has_it() {
        let border = |key, first, others: &[usize]| Border { key, first, others: others.to_vec() };
        for (ranges, expected) in [
            (vec![Some([0, 3]), Some([4, 9]), Some([10, 11])], vec![]),
            (vec![Some([0, 4]), Some([4, 9]), None, Some([9, 11])], vec![border(4, 0, &[1]), border(9, 1, &[3])]),
            (vec![None, Some([0, 4]), Some([4, 4]), Some([4, 5])], vec![border(4, 1, &[2, 3])]),
            (vec![Some([4, 4]), Some([4, 4]), Some([4, 4]), Some([4, 4])], vec![border(4, 0, &[1, 2, 3])]),
        ] {
            assert_eq!(borders(&ranges.into()), expected);
        }
    }

    #[test]
    fn ends_are_open_where_another_device_has_the_key() {
        let (first, last) = (OPEN_FIRST, OPEN_LAST);
        for (ranges, expected) in [
            (vec![Some([0, 3]), Some([4, 9])], vec![0, 0]),
            (vec![Some([0, 4]), None, Some([4, 9]), Some([9, 11])], vec![last, 0, first | last, first]),
            (vec![Some([0, 4]), Some([4, 4]), Some([4, 5])], vec![last, first | last, first]),
        ] {
            assert_eq!(open_ends(&ranges.into()), expected);
        }
    }
}
