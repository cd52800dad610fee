//! Random columns for the tests of `column` and `table`: every type, with nulls over garbage.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Rows at which vectors, bitmap words and blocks begin and end.
pub(crate) const EDGE_ROWS: [usize; 9] = [0, 1, 31, 32, 33, 63, 64, 65, 10_000];

/// Every supported type.
pub(crate) fn all_types() -> Vec<DataType> {
    use DataType::*;
    let mut types = vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float32,
        Float64,
        Date32,
        Date64,
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        FixedSizeBinary(5),
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
        Decimal32(9, 2),
        Decimal64(18, -3),
        Decimal128(38, 10),
        Decimal128(15, 2),
    ];
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        types.push(Timestamp(unit, None));
        types.push(Timestamp(unit, Some("Europe/Zurich".into())));
        types.push(Duration(unit));
    }
    for key in [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64] {
        for value in [Utf8, LargeUtf8, Utf8View, Binary, FixedSizeBinary(5)] {
            types.push(Dictionary(Box::new(key.clone()), Box::new(value)));
        }
    }
    types
}

/// What the values of a random column look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Constant,
    Narrow,
    Middle,
    Wide,
    Extremes,
    Rising,
}

pub(crate) const SHAPES: [Shape; 6] =
    [Shape::Constant, Shape::Narrow, Shape::Middle, Shape::Wide, Shape::Extremes, Shape::Rising];

/// A random array of `rows` rows. `null_percent` of them are null, with garbage in their slots.
pub(crate) fn random_array(data_type: &DataType, shape: Shape, null_percent: u32, rows: usize, seed: u64) -> ArrayRef {
    let mut rng = StdRng::seed_from_u64(seed);
    let nulls =
        (null_percent > 0).then(|| NullBuffer::from_iter((0..rows).map(|_| rng.random_range(0..100) >= null_percent)));
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => {
            let values = (0..rows).map(|row| match shape {
                Shape::Constant => is_null(row),
                Shape::Rising => row > rows / 2,
                _ => rng.random(),
            });
            Arc::new(BooleanArray::new(values.collect(), nulls.clone()))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let strings: Vec<String> = (0..rows)
                .map(|row| if is_null(row) { format!("garbage {row}") } else { random_string(shape, row, &mut rng) })
                .collect();
            string_array(data_type, &strings, nulls.clone())
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            binary_array(&random_array(&DataType::LargeUtf8, shape, null_percent, rows, seed), data_type)
        }
        DataType::Dictionary(key, value) => random_dictionary_array(key, value, shape, nulls.clone(), rows, &mut rng),
        _ => random_primitive_array(data_type, shape, nulls.clone(), rows, &mut rng),
    }
}

fn random_string(shape: Shape, row: usize, rng: &mut StdRng) -> String {
    match shape {
        Shape::Constant => "the same long string in all rows".into(),
        Shape::Narrow => ["", "a", "ab", "abc", "AIR", "TRUCK", "DELIVER IN PERSON"][rng.random_range(0..7)].into(),
        Shape::Middle => format!("Clerk#{:09}", rng.random_range(0..1000)),
        Shape::Wide => (0..rng.random_range(0..40)).map(|_| rng.random_range('a'..'\u{ff}')).collect(),
        Shape::Extremes => "é\0".repeat([0, 1, 6, 7, 5000][rng.random_range(0..5)]),
        Shape::Rising => format!("{row:08}"),
    }
}

/// Builds without checks of null slots, so that they keep what lies in them.
pub(crate) fn string_array(data_type: &DataType, strings: &[String], nulls: Option<NullBuffer>) -> ArrayRef {
    let bytes: Vec<u8> = strings.concat().into_bytes();
    let lengths = strings.iter().map(String::len);
    match data_type {
        DataType::Utf8 => Arc::new(StringArray::new(OffsetBuffer::from_lengths(lengths), bytes.into(), nulls)),
        DataType::LargeUtf8 => {
            Arc::new(LargeStringArray::new(OffsetBuffer::from_lengths(lengths), bytes.into(), nulls))
        }
        _ => {
            let (views, buffers, _) = StringViewArray::from_iter_values(strings).into_parts();
            Arc::new(StringViewArray::new(views, buffers, nulls))
        }
    }
}

/// Values hold duplicates, nulls and entries that no row refers to.
/// The bytes of an array of LargeUtf8 in another type.
fn binary_array(text: &ArrayRef, data_type: &DataType) -> ArrayRef {
    let DataType::FixedSizeBinary(size) = data_type else { return cast(text, data_type).unwrap() };
    let values = text.as_string::<i64>().iter().map(|text| {
        let bytes = text?.bytes().chain(std::iter::repeat(7)).take(*size as usize);
        Some(bytes.collect::<Vec<u8>>())
    });
    Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, *size).unwrap())
}

fn random_dictionary_array(
    key: &DataType,
    value: &DataType,
    shape: Shape,
    nulls: Option<NullBuffer>,
    rows: usize,
    rng: &mut StdRng,
) -> ArrayRef {
    let len = if shape == Shape::Constant { 1 } else { rng.random_range(1..100) };
    let strings: Vec<String> = (0..len).map(|row| random_string(shape, row, rng)).collect();
    let value_nulls =
        (nulls.is_some() && len > 3).then(|| NullBuffer::from_iter((0..len).map(|_| rng.random_range(0..5) > 0)));
    let values = match value {
        DataType::Binary | DataType::FixedSizeBinary(_) => {
            binary_array(&string_array(&DataType::LargeUtf8, &strings, value_nulls), value)
        }
        _ => string_array(value, &strings, value_nulls),
    };
    let keys = Int64Array::new((0..rows).map(|_| rng.random_range(0..len as i64)).collect(), nulls);
    let keys = cast(&keys, key).unwrap();
    let data_type = DataType::Dictionary(Box::new(key.clone()), Box::new(value.clone()));
    let data = keys.to_data().into_builder().data_type(data_type).add_child_data(values.to_data());
    make_array(data.build().unwrap())
}

fn random_primitive_array(
    data_type: &DataType,
    shape: Shape,
    nulls: Option<NullBuffer>,
    rows: usize,
    rng: &mut StdRng,
) -> ArrayRef {
    let unsigned = matches!(data_type, DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64);
    let float = matches!(data_type, DataType::Float32 | DataType::Float64);
    let bits = data_type.primitive_width().unwrap() as u32 * 8;
    let (min, max) = match data_type {
        DataType::Decimal128(38, _) => (-(10i128.pow(38) - 1), 10i128.pow(38) - 1),
        _ if unsigned => (0, i128::MAX >> (127 - bits)),
        _ => (i128::MIN >> (128 - bits), i128::MAX >> (128 - bits)),
    };
    let origin = rng.random_range(min..=max);
    let span = |bits: u32| 1i128.checked_shl(bits).unwrap_or(i128::MAX);
    let mut value = |row: usize| -> i128 {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return rng.random();
        }
        let value = match shape {
            Shape::Constant => origin,
            Shape::Narrow => origin.saturating_add(rng.random_range(0..200)),
            Shape::Middle => origin.saturating_add(rng.random_range(0..span(bits / 2 + 3))),
            Shape::Wide => rng.random_range(min..=max),
            Shape::Extremes => [min, max, 0, 1, min + 1, max - 1][rng.random_range(0..6)],
            Shape::Rising => (origin / 2).saturating_add(row as i128 * 3),
        };
        value.clamp(min, max)
    };
    let mut raw: Vec<u128> = (0..rows).map(|row| value(row) as u128).collect();
    if float && shape != Shape::Wide {
        // Values that floats are known for; Wide takes any bits.
        let nan = if bits == 32 { 0x7fc0_1234 } else { 0x7ff8_0000_dead_beef };
        for bits_of_row in &mut raw {
            let float = [0.0, -0.0, 1.5, -1e30, f64::INFINITY, f64::MIN_POSITIVE][rng.random_range(0..6)];
            let plain = if bits == 32 { u128::from((float as f32).to_bits()) } else { u128::from(float.to_bits()) };
            *bits_of_row = if rng.random_range(0..5) == 0 { nan } else { plain };
        }
    }
    let bytes: Vec<u8> = raw.iter().flat_map(|v| v.to_le_bytes()[..bits as usize / 8].to_vec()).collect();
    // Aligned for every native type.
    let words: ScalarBuffer<i128> = bytes
        .chunks(16)
        .map(|chunk| {
            let mut word = [0u8; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            i128::from_le_bytes(word)
        })
        .collect();
    let data = ArrayData::builder(data_type.clone()).len(rows).add_buffer(words.into_inner()).nulls(nulls);
    make_array(data.build().unwrap())
}

/// The rows of `array`, cut at random places into slices (with empty ones among them).
pub(crate) fn cut(rows: usize, pieces: usize, seed: u64) -> Vec<(usize, usize)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut ends: Vec<usize> = (1..pieces).map(|_| rng.random_range(0..=rows)).chain([rows]).collect();
    ends.sort_unstable();
    let starts = std::iter::once(0).chain(ends.clone());
    starts.zip(ends).map(|(start, end)| (start, end - start)).collect()
}

/// Checks that two arrays have one type and the same rows: floats bit for bit, dictionaries by
/// what they stand for.
pub(crate) fn assert_same(actual: &ArrayRef, expected: &ArrayRef, what: &str) {
    assert_eq!(actual.data_type(), expected.data_type(), "{what}");
    actual.to_data().validate_full().unwrap();
    let plain = |array: &ArrayRef| match array.data_type() {
        DataType::Dictionary(_, value) => cast(array, value).unwrap(),
        _ => array.clone(),
    };
    assert_eq!(&plain(actual), &plain(expected), "{what}");
}
