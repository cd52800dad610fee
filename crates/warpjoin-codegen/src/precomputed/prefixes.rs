//! Strings that begin alike: a function that depends on their first characters alone is evaluated for one of them.
//!
//! Most such functions are of a code, a year or a first letter: a few prefixes begin millions of strings.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::UInt32Array;
use arrow::datatypes::DataType;
use rayon::prelude::*;
use warpjoin_columns::column::{ColumnType, Dictionary, Domain, EncodedColumn};
use warpjoin_columns::{Error, Result};

use super::lookup::{LookupColumn, plain_statistics};

/// Strings from which on it pays.
const STRINGS_MIN: usize = 4096;
/// Most different prefixes.
const PREFIXES_MAX: usize = 4096;
/// Bytes of the longest prefix.
const PREFIX_BYTES_MAX: usize = 8;
/// Lengths of prefixes that are kept with a dictionary; those that were found first go.
const KNOWN_MAX: usize = 4;
/// Strings that a core looks at in one go.
const PIECE: usize = 1 << 14;
/// Slots of a piece's table.
const SLOT_BITS: u32 = 13;

/// The first characters of a string, zeros behind them, and how many bytes they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Prefix {
    word: u64,
    bytes: u8,
}

impl Prefix {
    /// `None`: it is too long.
    fn of(text: &[u8], chars: usize, is_ascii: bool) -> Option<Self> {
        if let (true, Some(first)) = (is_ascii, text.first_chunk()) {
            let word = u64::from_le_bytes(*first) & u64::MAX.checked_shr(64 - 8 * chars as u32).unwrap_or(0);
            return Some(Self { word, bytes: chars as u8 });
        }
        let bytes = if is_ascii { chars.min(text.len()) } else { bytes_of_chars(text, chars) };
        let mut first = [0; PREFIX_BYTES_MAX];
        first.get_mut(..bytes)?.copy_from_slice(&text[..bytes]);
        Some(Self { word: u64::from_le_bytes(first), bytes: bytes as u8 })
    }

    fn slot(self) -> usize {
        let mixed = (self.word ^ u64::from(self.bytes) << 59).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (64 - SLOT_BITS)) as usize
    }
}

/// Bytes of the first characters of a text.
fn bytes_of_chars(text: &[u8], chars: usize) -> usize {
    let starts = text.iter().enumerate().filter(|(_, byte)| !matches!(byte, 0x80..=0xbf));
    starts.map(|(at, _)| at).nth(chars).unwrap_or(text.len())
}

/// Some strings by their prefix.
struct Piece {
    /// The number of each string's prefix.
    numbers: Vec<u16>,
    /// Each prefix, and a string that has it.
    prefixes: Vec<(Prefix, u32)>,
}

impl Piece {
    fn of(dictionary: &Dictionary, codes: std::ops::Range<usize>, chars: usize, is_ascii: bool) -> Option<Self> {
        let mut slots = vec![0u16; 1 << SLOT_BITS];
        let mut piece = Self { numbers: Vec::with_capacity(codes.len()), prefixes: vec![] };
        let first = codes.start;
        let mut add = |at: usize, text: &[u8]| {
            let prefix = Prefix::of(text, chars, is_ascii)?;
            let mut slot = prefix.slot();
            let number = loop {
                match slots[slot] {
                    0 if piece.prefixes.len() == PREFIXES_MAX => return None,
                    0 => {
                        piece.prefixes.push((prefix, (first + at) as u32));
                        slots[slot] = piece.prefixes.len() as u16;
                        break slots[slot] - 1;
                    }
                    known if piece.prefixes[usize::from(known) - 1].0 == prefix => break known - 1,
                    _ => slot = (slot + 1) % slots.len(),
                }
            };
            piece.numbers.push(number);
            Some(())
        };
        dictionary.visit(codes, &mut add)?;
        Some(piece)
    }
}

/// Which strings of a dictionary begin alike: as codes of a dictionary that has one string for each beginning.
#[derive(Debug)]
pub(crate) struct Prefixes {
    /// One string for each prefix.
    pub strings: Arc<Dictionary>,
    /// For each string, the code of the one that begins alike.
    pub codes: Arc<LookupColumn>,
}

/// What is known of the prefixes of a dictionary's strings, by their characters.
#[derive(Debug, Default)]
struct KnownPrefixes(Mutex<Vec<(usize, Option<Arc<Prefixes>>)>>);

impl Prefixes {
    /// Those of `chars` characters; `None`: there are few strings, or many or long prefixes. Found once, and kept with the
    /// dictionary: a fact of its strings, as their order is.
    pub(crate) fn of(dictionary: &Dictionary, chars: usize) -> Result<Option<Arc<Self>>> {
        if dictionary.len() < STRINGS_MIN || chars > PREFIX_BYTES_MAX {
            return Ok(None);
        }
        let attached = dictionary.attached_or_default::<KnownPrefixes>();
        let locked = || attached.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = locked().iter().find(|(of, _)| *of == chars) {
            return Ok(known.clone());
        }
        // Not under the lock: it may take long.
        let found = Self::find(dictionary, chars)?.map(Arc::new);
        let mut known = locked();
        known.push((chars, found.clone()));
        let excess = known.len().saturating_sub(KNOWN_MAX);
        known.drain(..excess);
        Ok(found)
    }

    fn find(dictionary: &Dictionary, chars: usize) -> Result<Option<Self>> {
        let (is_ascii, gives_up) = (dictionary.is_ascii(), AtomicBool::new(false));
        let starts: Vec<usize> = (0..dictionary.len()).step_by(PIECE).collect();
        let piece = |start: usize| {
            let codes = start..dictionary.len().min(start + PIECE);
            let looks = !gives_up.load(Ordering::Relaxed);
            let made = looks.then(|| Piece::of(dictionary, codes, chars, is_ascii)).flatten();
            gives_up.fetch_or(made.is_none(), Ordering::Relaxed);
            made
        };
        let Some(pieces) = starts.into_par_iter().map(piece).collect::<Option<Vec<Piece>>>() else { return Ok(None) };
        let (mut known, mut firsts) = (HashMap::new(), vec![]);
        let mut number_of = |(prefix, code): &(Prefix, u32)| {
            *known.entry(*prefix).or_insert_with(|| {
                firsts.push(*code);
                firsts.len() - 1
            })
        };
        let numbers: Vec<Vec<usize>> =
            pieces.iter().map(|piece| piece.prefixes.iter().map(&mut number_of).collect()).collect();
        if firsts.len() > PREFIXES_MAX {
            return Ok(None);
        }
        log::debug!("{} strings begin with {} prefixes", dictionary.len(), firsts.len());
        let (strings, codes) = Dictionary::of_array(&dictionary.take(&UInt32Array::from(firsts))?)?;
        let missing = || Error::internal("a string of a dictionary without a code");
        let code = |number: &usize| codes[*number].map(|code| code as u16).ok_or_else(missing);
        let codes: Vec<Vec<u16>> =
            numbers.iter().map(|numbers| numbers.iter().map(code).collect()).collect::<Result<_>>()?;
        let codes = LookupColumn::new(encoded(&pieces, &codes, strings.len()));
        Ok(Some(Self { strings: Arc::new(strings), codes: Arc::new(codes) }))
    }
}

/// The codes of all strings, from those of the prefixes of each piece.
fn encoded(pieces: &[Piece], codes: &[Vec<u16>], prefixes: usize) -> EncodedColumn {
    let width = if prefixes <= 1 << 8 { 1 } else { 2 };
    let rows: usize = pieces.iter().map(|piece| piece.numbers.len()).sum();
    let mut values = vec![0u8; rows * width];
    values.par_chunks_mut(PIECE * width).zip(pieces).zip(codes).for_each(|((values, piece), codes)| {
        for (value, number) in values.chunks_exact_mut(width).zip(&piece.numbers) {
            value.copy_from_slice(&codes[usize::from(*number)].to_le_bytes()[..width]);
        }
    });
    EncodedColumn {
        column_type: ColumnType {
            data_type: DataType::UInt16,
            has_nulls: false,
            // All that its bytes hold: code must not depend on the data further than that.
            domain: Domain::Int { min: 0, max: (1 << (8 * width)) - 1 },
            dictionary: None,
        },
        rows,
        values,
        offsets: None,
        validity: None,
        statistics: plain_statistics(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use arrow::array::{Array, ArrayRef, AsArray, StringArray};

    use super::*;

    /// Strings: name, text of a number, whether few prefixes begin them.
    type Texts = (&'static str, fn(usize) -> String, bool);

    fn codes(prefixes: &Prefixes) -> Vec<u32> {
        let column = prefixes.codes.encoded();
        let width = column.column_type.layout().width_bytes as usize;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        column.values.chunks(width).map(number).collect()
    }

    #[test]
    fn each_string_begins_like_its_prefix() {
        let kinds: [Texts; 6] = [
            ("ascii", |n| format!("{}{n}", ["ab", "abc", "b", "", "xyz\0", "ab\0"][n % 6]), true),
            ("short", |n| format!("{n:05}"), true),
            ("one", |n| format!("abc{n}"), true),
            ("not ascii", |n| format!("{}ä{n}", ["é", "éa", "b", "", "日本"][n % 5]), true),
            ("long", |n| format!("{}{n}", ["日本語", "日a", "𝄞𝄞𝄞"][n % 3]), false),
            (
                "many",
                |n| {
                    [1, 26, 676].map(|of| char::from(b'a' + (n / of % 26) as u8)).iter().collect::<String>()
                        + &n.to_string()
                },
                false,
            ),
        ];
        let first = |text: &str| text.chars().take(3).collect::<String>();
        for (name, text, is_fast) in kinds {
            for count in [PIECE + 77, 9000, 5001] {
                let values: ArrayRef = Arc::new((0..count).map(|n| Some(text(n))).collect::<StringArray>());
                let dictionary = Dictionary::of_array(&values).unwrap().0;
                let found = Prefixes::of(&dictionary, 3).unwrap();
                assert_eq!(found.is_some(), is_fast, "{name} {count}");
                let again = Prefixes::of(&dictionary, 3).unwrap();
                let Some(found) = found else {
                    assert!(again.is_none());
                    continue;
                };
                assert!(Arc::ptr_eq(&found, &again.unwrap()), "it is kept");
                let (all, few) = (dictionary.values().as_string::<i32>(), found.strings.values().as_string::<i32>());
                let codes = codes(&found);
                assert_eq!(codes.len(), dictionary.len());
                for (code, &of) in codes.iter().enumerate() {
                    assert_eq!(first(all.value(code)), first(few.value(of as usize)), "{name} {count}");
                }
                let mut different: Vec<String> = few.iter().flatten().map(first).collect();
                different.sort();
                different.dedup();
                assert_eq!(different.len(), few.len(), "{name} {count}: one string for each beginning");
            }
        }
    }

    #[test]
    fn the_last_lengths_are_kept() {
        let values: ArrayRef = Arc::new((0..5000).map(|n| Some(format!("{n:06}"))).collect::<StringArray>());
        let dictionary = Dictionary::of_array(&values).unwrap().0;
        let of = |chars| Prefixes::of(&dictionary, chars).unwrap().unwrap();
        let first = of(1);
        (2..=KNOWN_MAX).for_each(|chars| drop(of(chars)));
        assert!(Arc::ptr_eq(&first, &of(1)));
        of(KNOWN_MAX + 1);
        assert!(!Arc::ptr_eq(&first, &of(1)));
    }
}
