//! The one loop that turns integers of one width into integers of another.
//!
//! Narrowing, re-basing and decoding are all "add a constant, keep the low bytes": arithmetic
//! modulo a power of two does not ask for signs.

/// An unsigned integer in little-endian bytes.
trait Word: Copy {
    fn read(bytes: &[u8]) -> impl Iterator<Item = Self>;
    fn write(bytes: &mut [u8], words: impl Iterator<Item = Self>);
    fn to_u64(self) -> u64;
    fn to_u128(self) -> u128;
    fn from_u64(value: u64) -> Self;
    fn from_u128(value: u128) -> Self;
}

macro_rules! word {
    ($($word:ty),*) => {$(
        impl Word for $word {
            fn read(bytes: &[u8]) -> impl Iterator<Item = Self> {
                bytes.as_chunks::<{ size_of::<$word>() }>().0.iter().map(|raw| <$word>::from_le_bytes(*raw))
            }
            fn write(bytes: &mut [u8], words: impl Iterator<Item = Self>) {
                let slots = bytes.as_chunks_mut::<{ size_of::<$word>() }>().0;
                for (slot, word) in slots.iter_mut().zip(words) {
                    *slot = word.to_le_bytes();
                }
            }
            fn to_u64(self) -> u64 {
                self as u64
            }
            fn to_u128(self) -> u128 {
                self as u128
            }
            fn from_u64(value: u64) -> Self {
                value as $word
            }
            fn from_u128(value: u128) -> Self {
                value as $word
            }
        }
    )*};
}
word!(u8, u16, u32, u64, u128);

/// Unsigned integers, `width_bytes` (0, 1, 2, 4, 8 or 16) each; with width 0 all are 0.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub bytes: &'a [u8],
    pub width_bytes: u32,
}

/// Fills `target` with the low `target_width_bytes` of word + `delta`. Both sides must have as many
/// words; surplus ones stay as they are. Words narrower than 16 bytes are taken as unsigned.
pub(crate) fn add_and_resize(source: Words<'_>, delta: i128, target: &mut [u8], target_width_bytes: u32) {
    match target_width_bytes {
        1 => into_word::<u8>(source, delta, target),
        2 => into_word::<u16>(source, delta, target),
        4 => into_word::<u32>(source, delta, target),
        8 => into_word::<u64>(source, delta, target),
        16 => into_word::<u128>(source, delta, target),
        _ => {}
    }
}

fn into_word<T: Word>(source: Words<'_>, delta: i128, target: &mut [u8]) {
    match source.width_bytes {
        1 => convert::<u8, T>(source.bytes, delta, target),
        2 => convert::<u16, T>(source.bytes, delta, target),
        4 => convert::<u32, T>(source.bytes, delta, target),
        8 => convert::<u64, T>(source.bytes, delta, target),
        16 => convert::<u128, T>(source.bytes, delta, target),
        _ => T::write(target, std::iter::repeat(T::from_u128(delta as u128))),
    }
}

fn convert<S: Word, T: Word>(source: &[u8], delta: i128, target: &mut [u8]) {
    if size_of::<S>() == size_of::<T>() && delta == 0 {
        let bytes = source.len().min(target.len());
        target[..bytes].copy_from_slice(&source[..bytes]);
    } else if size_of::<S>() <= 8 && size_of::<T>() <= 8 {
        let delta = delta as u64;
        T::write(target, S::read(source).map(|word| T::from_u64(word.to_u64().wrapping_add(delta))));
    } else {
        let delta = delta as u128;
        T::write(target, S::read(source).map(|word| T::from_u128(word.to_u128().wrapping_add(delta))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_widths() {
        for source_width in [0u32, 1, 2, 4, 8, 16] {
            for target_width in [1u32, 2, 4, 8, 16] {
                let values: Vec<u128> = (0..67u128).map(|i| if source_width == 0 { 0 } else { i * 3 }).collect();
                let bytes: Vec<u8> =
                    values.iter().flat_map(|v| v.to_le_bytes()[..source_width as usize].to_vec()).collect();
                let mut target = vec![0u8; values.len() * target_width as usize];
                let source = Words { bytes: &bytes, width_bytes: source_width };
                add_and_resize(source, -100, &mut target, target_width);
                let expected: Vec<u8> = values
                    .iter()
                    .flat_map(|v| v.wrapping_sub(100).to_le_bytes()[..target_width as usize].to_vec())
                    .collect();
                assert_eq!(target, expected, "{source_width} to {target_width}");
            }
        }
    }
}
