//! Bitmaps, least significant bit first.

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;

/// The bits of `buffer` as bytes that begin with bit 0; bits past the end are 0.
pub(crate) fn packed_bytes(buffer: &BooleanBuffer) -> Vec<u8> {
    let mut bytes: Vec<u8> = buffer.bit_chunks().iter_padded().flat_map(u64::to_le_bytes).collect();
    bytes.truncate(buffer.len().div_ceil(8));
    bytes
}

/// Calls `visit` with the position of every bit of the first `bits` that is not set.
pub(crate) fn for_each_unset(bitmap: &[u8], bits: usize, mut visit: impl FnMut(usize)) {
    for (word_index, word_bytes) in bitmap.chunks(8).enumerate() {
        let mut raw = [0u8; 8];
        raw[..word_bytes.len()].copy_from_slice(word_bytes);
        let first = word_index * 64;
        let mut unset = !u64::from_le_bytes(raw);
        if first + 64 > bits {
            unset &= (1u64 << bits.saturating_sub(first)).wrapping_sub(1);
        }
        while unset != 0 {
            visit(first + unset.trailing_zeros() as usize);
            unset &= unset - 1;
        }
    }
}

/// Whether bit `index` is set.
pub(crate) fn is_set(bitmap: &[u8], index: usize) -> bool {
    bitmap[index / 8] >> (index % 8) & 1 == 1
}

/// Joins bitmaps (`None`: all set) of the given lengths in bits.
pub(crate) fn join<'a>(parts: impl Iterator<Item = (Option<&'a [u8]>, usize)>, bits: usize) -> Vec<u8> {
    let mut builder = BooleanBufferBuilder::new(bits);
    for (bitmap, part_bits) in parts {
        match bitmap {
            Some(bitmap) => builder.append_packed_range(0..part_bits, bitmap),
            None => builder.append_n(part_bits, true),
        }
    }
    packed_bytes(&builder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_bits_are_found_up_to_the_end() {
        for bits in [0, 1, 7, 8, 9, 63, 64, 65, 200] {
            let buffer = BooleanBuffer::collect_bool(bits, |i| i % 3 != 0);
            let mut found = vec![];
            for_each_unset(&packed_bytes(&buffer), bits, |i| found.push(i));
            assert_eq!(found, (0..bits).step_by(3).collect::<Vec<_>>());
        }
    }

    #[test]
    fn slices_pack_and_join() {
        let whole = BooleanBuffer::collect_bool(300, |i| i % 7 < 3);
        let parts = [(0, 5), (5, 0), (5, 130), (135, 165)].map(|(at, len)| (packed_bytes(&whole.slice(at, len)), len));
        let joined = join(parts.iter().map(|(bytes, len)| (Some(bytes.as_slice()), *len)), 300);
        assert_eq!(joined, packed_bytes(&whole));
        assert!(is_set(&join([(None, 9)].into_iter(), 9), 8));
    }
}
