//! How the columns of a hash table become words: by their declared types, so that every batch of rows has
//! the same words.

use arrow::datatypes::{DataType, Field, Schema};
use warpjoin_columns::column::{Domain, Physical, check_type};
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_kernels::partition::{PACK_FIELDS_MAX, ROW_WORDS_MAX, field_kind};

/// What a field's bits are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum FieldKind {
    Integer = field_kind::INTEGER,
    /// Floats as keys: one zero, one not-a-number.
    Float32Key = field_kind::FLOAT32_KEY,
    Float64Key = field_kind::FLOAT64_KEY,
}

/// A column and where its bits are.
#[derive(Debug, Clone)]
pub(super) struct PackedField {
    pub field: Field,
    pub kind: FieldKind,
    /// Smallest value; subtracted from what is packed.
    pub min: i128,
    /// The values as a column has them.
    pub domain: Domain,
    /// 1 to 64, or 128 for two whole words.
    pub bits: u32,
    pub word: usize,
    pub shift: u32,
    pub is_key: bool,
    /// Word and bit that say that a value is null.
    pub null: Option<(usize, u32)>,
}

/// All columns, those of the key first, and the words that they fill.
#[derive(Debug, Clone)]
pub(super) struct RowLayout {
    pub fields: Vec<PackedField>,
    /// Bytes of each word: 4 or 8.
    pub word_bytes: Vec<u32>,
    pub keys: usize,
    pub key_words: usize,
}

impl RowLayout {
    /// The first `keys` columns of the schema are the key.
    pub(super) fn of(schema: &Schema, keys: usize) -> Result<Self> {
        if keys == 0 || keys > schema.fields().len() {
            return Err(Error::InvalidArgument(format!("{keys} key columns of {}", schema.fields().len())));
        }
        if schema.fields().len() > PACK_FIELDS_MAX {
            return Err(Reason::Limit(format!("a hash table of {} columns", schema.fields().len())).into());
        }
        let mut layout = Self { fields: vec![], word_bytes: vec![], keys, key_words: 0 };
        let (key_fields, value_fields) = schema.fields().split_at(keys);
        layout.place(key_fields.iter().map(|field| field.as_ref()), true)?;
        layout.key_words = layout.word_bytes.len();
        layout.place(value_fields.iter().map(|field| field.as_ref()), false)?;
        if layout.word_bytes.len() > ROW_WORDS_MAX {
            return Err(Reason::Limit(format!("rows of {} words in a hash table", layout.word_bytes.len())).into());
        }
        Ok(layout)
    }

    fn place<'a>(&mut self, fields: impl Iterator<Item = &'a Field>, is_key: bool) -> Result<()> {
        let first_word = self.word_bytes.len();
        let mut used: Vec<u32> = vec![];
        let mut take = |bits: u32| -> (usize, u32) {
            if bits > 64 {
                used.extend([64, 64]);
                return (first_word + used.len() - 2, 0);
            }
            let word = used.iter().position(|used| used + bits <= 64).unwrap_or_else(|| {
                used.push(0);
                used.len() - 1
            });
            used[word] += bits;
            (first_word + word, used[word] - bits)
        };
        for field in fields {
            let (kind, min, bits, domain) = facts(field.data_type(), is_key)?;
            let (word, shift) = take(bits);
            let null = (!is_key && field.is_nullable()).then(|| take(1));
            self.fields.push(PackedField { field: field.clone(), kind, min, domain, bits, word, shift, is_key, null });
        }
        // Alone in its word, a field of few bits takes 4 bytes.
        let is_single = used.len() == 1;
        self.word_bytes.extend(used.iter().map(|&bits| if is_single && bits <= 32 { 4 } else { 8 }));
        Ok(())
    }

    /// The fields of the key, or those of the values.
    pub(super) fn part(&self, is_key: bool) -> &[PackedField] {
        if is_key { &self.fields[..self.keys] } else { &self.fields[self.keys..] }
    }

    pub(super) fn is_wide(&self, word: usize) -> bool {
        self.word_bytes[word] == 8
    }

    /// Words of the values.
    pub(super) fn value_words(&self) -> usize {
        self.word_bytes.len() - self.key_words
    }

    /// The field that fills a word alone, if a column stores it in the word's width.
    pub(super) fn alone_in(&self, word: usize) -> Option<&PackedField> {
        let mut of_word = self.fields.iter().filter(|field| {
            let words = field.word..=field.word + usize::from(field.bits == 128);
            words.contains(&word) || field.null.is_some_and(|(null, _)| null == word)
        });
        let field = of_word.next().filter(|field| field.null.is_none() && field.bits != 128)?;
        let width = warpjoin_columns::column::Layout::of(field.domain).width_bytes;
        (of_word.next().is_none() && width == self.word_bytes[word]).then_some(field)
    }
}

/// Kind, smallest value, bits and domain of a type.
fn facts(data_type: &DataType, is_key: bool) -> Result<(FieldKind, i128, u32, Domain)> {
    check_type(data_type)?;
    let integer = |min: i128, max: i128| {
        let span = max.wrapping_sub(min) as u128;
        let bits = match 128 - span.leading_zeros() {
            bits @ 0..=64 => bits.max(1),
            _ => 128,
        };
        (FieldKind::Integer, min, bits, Domain::Int { min, max })
    };
    let signed = |bits: u32| integer(-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1);
    let unsigned = |bits: u32| integer(0, (1i128 << bits) - 1);
    Ok(match (data_type, Physical::of(data_type)) {
        (DataType::Boolean, _) => integer(0, 1),
        (DataType::Decimal128(precision, _), _) => {
            let most = 10i128.pow(u32::from(*precision).min(38)) - 1;
            integer(-most, most)
        }
        (_, Some(Physical::F32)) => {
            (if is_key { FieldKind::Float32Key } else { FieldKind::Integer }, 0, 32, Domain::Float32)
        }
        (_, Some(Physical::F64)) => {
            (if is_key { FieldKind::Float64Key } else { FieldKind::Integer }, 0, 64, Domain::Float64)
        }
        (_, Some(physical @ (Physical::I8 | Physical::I16 | Physical::I32 | Physical::I64))) => {
            signed(physical.width_bytes() * 8)
        }
        (_, Some(physical @ (Physical::U8 | Physical::U16 | Physical::U32 | Physical::U64))) => {
            unsigned(physical.width_bytes() * 8)
        }
        _ => return Err(Reason::Type(data_type.clone()).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(types: &[(DataType, bool)], keys: usize) -> RowLayout {
        let field = |(index, (data_type, nullable)): (usize, &(DataType, bool))| {
            Field::new(format!("c{index}"), data_type.clone(), *nullable)
        };
        RowLayout::of(&Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()), keys).expect("a layout")
    }

    #[test]
    fn words_are_as_narrow_as_types_allow() {
        use DataType::{Boolean, Decimal128, Int16, Int32, Int64};
        let bytes = |types: &[(DataType, bool)]| layout(types, 1).word_bytes;
        assert_eq!(bytes(&[(Int32, false), (Int32, false)]), [4, 4]);
        assert_eq!(bytes(&[(Int32, true), (Int32, true)]), [4, 8], "a null takes a bit");
        assert_eq!(bytes(&[(Int64, false), (Boolean, true), (Int16, false)]), [8, 4]);
        assert_eq!(bytes(&[(Int64, false), (Decimal128(15, 2), false)]), [8, 8]);
        assert_eq!(bytes(&[(Decimal128(38, 0), false), (Int64, true)]), [8, 8, 8, 8]);
        let pair = layout(&[(Int64, false), (Int64, false)], 2);
        assert_eq!((pair.key_words, pair.value_words()), (2, 0));
    }

    #[test]
    fn a_word_of_one_column_is_that_column() {
        use DataType::{Float32, Int8, Int32};
        let alone = |types: &[(DataType, bool)], word| layout(types, 1).alone_in(word).is_some();
        assert!(alone(&[(Int32, false), (Float32, false)], 0));
        assert!(alone(&[(Int32, false), (Float32, false)], 1));
        assert!(!alone(&[(Int8, false)], 0), "one byte of four");
        assert!(!alone(&[(Int32, false), (Int32, false), (Int32, false)], 1), "two columns");
    }
}
