//! Functions that depend on the first characters of strings alone, evaluated once for all strings that begin alike.
//!
//! Most such functions are of a code, a year or a first letter: a few prefixes begin millions of strings.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, UInt32Array};
use rayon::prelude::*;

use super::lookup::plain_statistics;
use crate::Result;
use crate::column::{Dictionary, EncodedColumn, with_null};

/// Strings from which on it pays.
const STRINGS_MIN: usize = 4096;
/// Most different prefixes.
const PREFIXES_MAX: usize = 4096;
/// Bytes of the longest prefix.
const PREFIX_BYTES_MAX: usize = 8;
/// Strings that a core looks at in one go, a multiple of 8.
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

/// The results of a function that depends on the first `chars` characters, for all strings of a dictionary, and for null behind them
/// if there is one. `evaluate` makes those of some strings. `None`: there are few strings, or many or long prefixes.
pub(super) fn encoded_by_prefix(
    dictionary: &Dictionary,
    chars: usize,
    has_null: bool,
    evaluate: impl FnOnce(ArrayRef) -> Result<EncodedColumn>,
) -> Result<Option<EncodedColumn>> {
    if dictionary.len() < STRINGS_MIN || chars > PREFIX_BYTES_MAX {
        return Ok(None);
    }
    let (is_ascii, gives_up) = (dictionary.is_ascii(), AtomicBool::new(false));
    let starts: Vec<usize> = (0..dictionary.len()).step_by(PIECE).collect();
    let piece = |start: usize| {
        let codes = start..dictionary.len().min(start + PIECE);
        let made = (!gives_up.load(Ordering::Relaxed)).then(|| Piece::of(dictionary, codes, chars, is_ascii)).flatten();
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
    let strings = dictionary.take(&UInt32Array::from(firsts))?;
    let of_null = strings.len();
    let few = evaluate(if has_null { with_null(&strings)? } else { strings })?;
    Ok(Some(expand(few, &pieces, &numbers, has_null.then_some(of_null))))
}

/// The results of all strings, from those of each prefix.
fn expand(few: EncodedColumn, pieces: &[Piece], numbers: &[Vec<usize>], of_null: Option<usize>) -> EncodedColumn {
    let width = few.column_type.layout().width_bytes as usize;
    let strings: usize = pieces.iter().map(|piece| piece.numbers.len()).sum();
    let rows = strings + usize::from(of_null.is_some());
    let rows_of = |piece: usize| pieces[piece].numbers.iter().map(move |&number| numbers[piece][usize::from(number)]);
    let mut values = vec![0u8; rows * width];
    if width > 0 {
        let of_strings = values[..strings * width].par_chunks_mut(PIECE * width);
        of_strings.enumerate().for_each(|(piece, values)| match width {
            1 => values.iter_mut().zip(rows_of(piece)).for_each(|(value, row)| *value = few.values[row]),
            _ => {
                for (value, row) in values.chunks_exact_mut(width).zip(rows_of(piece)) {
                    value.copy_from_slice(&few.values[row * width..][..width]);
                }
            }
        });
        if let Some(row) = of_null {
            values[strings * width..].copy_from_slice(&few.values[row * width..][..width]);
        }
    }
    let validity = few.validity.as_ref().map(|few| {
        let is_valid = |row: usize| few[row / 8] >> (row % 8) & 1;
        let mut bits = vec![0u8; rows.div_ceil(8)];
        bits[..strings.div_ceil(8)].par_chunks_mut(PIECE / 8).enumerate().for_each(|(piece, bits)| {
            rows_of(piece).enumerate().for_each(|(at, row)| bits[at / 8] |= is_valid(row) << (at % 8));
        });
        if let Some(row) = of_null {
            bits[strings / 8] |= is_valid(row) << (strings % 8);
        }
        bits
    });
    EncodedColumn { rows, values, validity, statistics: plain_statistics(), ..few }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fmt;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use arrow::array::{Array, AsArray, BooleanArray, Int32Array, StringArray};
    use arrow::datatypes::DataType;

    use super::super::tabulation::{Axis, encoded};
    use super::*;
    use crate::codegen::value::{Kind, Range, ValueType};
    use crate::expr::HostFunction;

    /// Strings: name, text of a number, whether few prefixes begin them.
    type Texts = (&'static str, fn(usize) -> String, bool);

    /// A function of the first three characters, of the result type that it says.
    #[derive(Debug)]
    struct OfThree {
        result: DataType,
        /// Whether it says that it depends on those alone.
        says_so: bool,
        evaluated: AtomicUsize,
    }

    impl OfThree {
        fn new(result: &DataType, says_so: bool) -> Self {
            Self { result: result.clone(), says_so, evaluated: AtomicUsize::new(0) }
        }
    }

    impl fmt::Display for OfThree {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("of_three")
        }
    }

    impl HostFunction for OfThree {
        fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, arrow::error::ArrowError> {
            let texts = operands[0].as_string::<i32>();
            self.evaluated.fetch_add(texts.len(), Ordering::Relaxed);
            let first = |text: &str| text.chars().take(3).collect::<String>();
            // Null for some strings, and a value for null.
            let firsts = || texts.iter().map(|text| text.map_or(Some("null".into()), |t| Some(first(t))));
            let firsts = || firsts().map(|first| first.filter(|first| !first.starts_with('b')));
            Ok(match self.result {
                DataType::Utf8 => Arc::new(firsts().collect::<StringArray>()),
                DataType::Boolean => Arc::new(firsts().map(|f| f.map(|f| f.len() > 3)).collect::<BooleanArray>()),
                _ => Arc::new(firsts().map(|f| f.map(|f| f.len() as i32 - 2)).collect::<Int32Array>()),
            })
        }

        fn prefix_chars(&self) -> Option<usize> {
            self.says_so.then_some(3)
        }

        fn data_type(&self) -> DataType {
            self.result.clone()
        }
    }

    fn texts(column: &EncodedColumn) -> Vec<Option<Vec<u8>>> {
        let width = column.column_type.layout().width_bytes as usize;
        let value = |row: usize| {
            let is_valid = column.validity.as_ref().is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1);
            let mut bytes = [0u8; 8];
            bytes[..width].copy_from_slice(&column.values[row * width..][..width]);
            let number = u64::from_le_bytes(bytes);
            is_valid.then(|| match &column.column_type.dictionary {
                Some(dictionary) => dictionary.bytes(number as u32).unwrap().to_vec(),
                None => (column.column_type.layout().base + i128::from(number)).to_string().into_bytes(),
            })
        };
        (0..column.rows).map(value).collect()
    }

    #[test]
    fn results_equal_those_of_each_string() {
        let kinds: [Texts; 5] = [
            ("ascii", |n| format!("{}{n}", ["ab", "abc", "b", "", "xyz\0", "ab\0"][n % 6]), true),
            ("short", |n| format!("{n:05}"), true),
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
        for (name, text, is_fast) in kinds {
            for (count, result) in [(PIECE + 77, DataType::Utf8), (9000, DataType::Boolean), (5001, DataType::Int32)] {
                let values: ArrayRef = Arc::new((0..count).map(|n| Some(text(n))).collect::<StringArray>());
                let dictionary = Arc::new(Dictionary::of_array(&values).unwrap().0);
                for nullable in [false, true] {
                    let range = Range::new(0, dictionary.len() as i128 - 1);
                    let (kind, data_type) = (Kind::Int(range), DataType::Utf8);
                    let value = ValueType { kind, data_type, dictionary: Some(Arc::clone(&dictionary)), nullable };
                    let made = |function: &OfThree| {
                        let shared: Arc<dyn HostFunction> = Arc::new(OfThree::new(&function.result, false));
                        encoded(function, &[Axis::of(&value, &shared).unwrap()]).unwrap()
                    };
                    let (whole, by_prefix) = (OfThree::new(&result, false), OfThree::new(&result, true));
                    assert_eq!(texts(&made(&by_prefix)), texts(&made(&whole)), "{name} {count} {nullable}");
                    let evaluated = by_prefix.evaluated.load(Ordering::Relaxed);
                    assert_eq!(evaluated <= PREFIXES_MAX, is_fast, "{name}: {evaluated} of {}", dictionary.len());
                }
            }
        }
    }
}
