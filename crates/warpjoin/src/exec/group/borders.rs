//! Groups of a key that rows lie in the order of: complete on their device, but for keys at the border of two.
//!
//! Must not know who made the groups.

use warpjoin_device::{Buffer, Kernel, Launch, Ptr, Stream};
use warpjoin_kernels::group::MergeRowParams;

use crate::exec::relation::GroupTable;
use crate::table::Ranges;
use crate::{Error, Result};

/// A device whose last key may be the first one of devices behind it.
#[derive(Debug, PartialEq, Eq)]
struct Border {
    key: i128,
    first: usize,
    others: Vec<usize>,
}

/// Merges the groups of keys that are on several devices, each on the first of them, with a kernel of each device. The launches,
/// and what they read.
pub(super) fn merge_borders(
    groups: &GroupTable,
    ranges: &Ranges,
    streams: &[Stream],
    kernels: &[Kernel],
) -> Result<(u64, Vec<Buffer>)> {
    let bounds = groups.shape.packing.single_integer().ok_or_else(|| Error::internal("a table by several keys"))?;
    let mut merges = groups.shape.merges();
    let merge_count = merges.len() as u64;
    // A buffer has at least a word.
    merges.resize(merges.len().max(1), 0);
    let stride = groups.shape.stride_words as u64;
    let row_of = |device: usize, key: i128| {
        let shard = &groups.shards[device];
        let row = u64::try_from(key - bounds.min).ok()?.checked_sub(shard.first_key)?;
        (row < shard.capacity).then(|| Ptr::at(&shard.rows, row * stride))
    };
    let (mut launches, mut kept) = (0, vec![]);
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
}
