//! Columns survive encoding and decoding, whatever their type, nulls, slices and batches.
#![allow(clippy::unwrap_used, reason = "tests")]

mod columns_common;

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;
use columns_common::*;
use proptest::prelude::*;
use warpjoin::column::*;

fn table(columns: &[(ArrayRef, &str)]) -> RecordBatch {
    let fields: Vec<Field> =
        columns.iter().map(|(array, name)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.iter().map(|(array, _)| array.clone()).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn encode(batch: &RecordBatch, cuts: &[(usize, usize)], strings: StringEncoding) -> Vec<EncodedColumn> {
    let mut encoder = TableEncoder::new(batch.schema(), strings);
    for &(start, rows) in cuts {
        encoder.push(&batch.slice(start, rows)).unwrap();
    }
    assert_eq!(encoder.rows(), batch.num_rows() as u64);
    let columns = encoder.finish().unwrap();
    // In chunks that are encoded apart, and in parts of which the last comes first.
    for chunk_rows in [1, 70] {
        let mut encoder = TableEncoder::new(batch.schema(), strings).with_chunk_rows(chunk_rows);
        for (part, &(start, rows)) in cuts.iter().enumerate().rev() {
            let middle = rows / 2;
            encoder.push_to(part, &batch.slice(start, middle)).unwrap();
            encoder.push_to(part, &batch.slice(start + middle, rows - middle)).unwrap();
        }
        for (again, column) in encoder.finish().unwrap().iter().zip(&columns) {
            assert_eq_encoded(again, column);
        }
    }
    columns
}

/// The same bytes, facts and statistics, and dictionaries of the same values in the same order.
fn assert_eq_encoded(again: &EncodedColumn, column: &EncodedColumn) {
    let EncodedColumn { column_type, rows, values, offsets, validity, statistics } = column;
    let ColumnType { data_type, has_nulls, domain, dictionary } = column_type;
    let other = &again.column_type;
    assert_eq!((&other.data_type, other.has_nulls, other.domain), (data_type, *has_nulls, *domain));
    assert_eq!(other.dictionary.as_ref().map(|it| it.values()), dictionary.as_ref().map(|it| it.values()));
    assert_eq!(again.rows, *rows);
    assert_eq!(again.validity, *validity);
    assert!(again.values == *values && again.offsets == *offsets, "other bytes of {data_type}");
    assert_eq!(again.statistics, *statistics);
}

fn decoded(column: &EncodedColumn) -> ArrayRef {
    let validity = column.validity.as_deref().map(Validity::Bits);
    decode(&column.column_type, column.rows, &column.values, column.offsets.as_deref(), validity).unwrap()
}

/// Encodes, checks what must hold of every encoded column, decodes, compares.
fn check(array: &ArrayRef, cuts: &[(usize, usize)], strings: StringEncoding, what: &str) -> EncodedColumn {
    let mut columns = encode(&table(&[(array.clone(), "c")]), cuts, strings);
    let column = columns.pop().unwrap();
    let (rows, facts) = (array.len(), &column.column_type);
    let width = facts.layout().width_bytes as usize;
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    assert_eq!(column.rows, rows, "{what}");
    assert_eq!(facts.has_nulls, nulls.is_some(), "{what}");
    assert_eq!(column.validity.is_some(), facts.has_nulls, "{what}");
    assert_eq!(column.statistics.null_count, array.logical_null_count() as u64, "{what}");
    if let Some(dictionary) = facts.dictionary.as_ref().filter(|dictionary| dictionary.len() > 1) {
        let is_sorted = strings == StringEncoding::Dictionary && dictionary.len() <= 1 << 16;
        assert_eq!(dictionary.is_sorted(), is_sorted, "{what}");
    }
    if facts.domain == Domain::Bytes {
        assert_eq!(column.offsets.as_ref().unwrap().len(), (rows + 1) * 8, "{what}");
    } else {
        assert_eq!(column.values.len(), rows * width, "{what}");
        for row in nulls.iter().flat_map(|nulls| (0..rows).filter(|row| nulls.is_null(*row))) {
            assert!(column.values[row * width..(row + 1) * width].iter().all(|byte| *byte == 0), "{what}, row {row}");
        }
    }
    assert_same(&decoded(&column), array, what);
    if let Some(nulls) = nulls {
        let bytes: Vec<u8> = nulls.iter().map(|valid| if valid { 7 } else { 0 }).collect();
        let validity = Some(Validity::Bytes(&bytes));
        let again = decode(facts, rows, &column.values, column.offsets.as_deref(), validity).unwrap();
        assert_same(&again, array, what);
    }
    column
}

/// Many rows take long without optimization: once a type is enough.
fn edge_rows(shape: Shape, null_percent: u32) -> impl Iterator<Item = usize> {
    let many = shape == Shape::Middle && null_percent == 30;
    EDGE_ROWS.into_iter().filter(move |rows| *rows < 1000 || many)
}

#[test]
fn every_type_shape_and_edge() {
    for data_type in all_types() {
        for shape in SHAPES {
            for null_percent in [0, 30, 100] {
                for rows in edge_rows(shape, null_percent) {
                    let array = random_array(&data_type, shape, null_percent, rows, rows as u64);
                    let what = format!("{data_type} {shape:?} {null_percent} % null, {rows} rows");
                    for strings in [StringEncoding::Dictionary, StringEncoding::UnorderedDictionary] {
                        check(&array, &cut(rows, 3, 1), strings, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn raw_strings() {
    for data_type in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
        for shape in SHAPES {
            for null_percent in [0, 30, 100] {
                for rows in EDGE_ROWS {
                    let array = random_array(&data_type, shape, null_percent, rows, 5);
                    let what = format!("{data_type} {shape:?} {null_percent} % null, {rows} rows");
                    let column = check(&array, &cut(rows, 4, 2), StringEncoding::Raw, &what);
                    assert_eq!(column.column_type.domain, Domain::Bytes);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_tables(
        columns in prop::collection::vec(
            (prop::sample::select(all_types()), prop::sample::select(SHAPES.to_vec()), 0u32..=100, any::<u64>()),
            1..5,
        ),
        rows in 0usize..700,
        skipped in 0usize..70,
        pieces in 1usize..6,
        seed in any::<u64>(),
        raw in any::<bool>(),
    ) {
        let strings = if raw { StringEncoding::Raw } else { StringEncoding::Dictionary };
        let arrays: Vec<(ArrayRef, &str)> = columns
            .iter()
            .map(|(data_type, shape, nulls, seed)| {
                let nulls = if *nulls < 40 { 0 } else { *nulls };
                (random_array(data_type, *shape, nulls, rows + skipped, *seed).slice(skipped, rows), "c")
            })
            .collect();
        let encoded = encode(&table(&arrays), &cut(rows, pieces, seed), strings);
        prop_assert_eq!(encoded.len(), arrays.len());
        for (column, (array, _)) in encoded.iter().zip(&arrays) {
            assert_same(&decoded(column), array, &array.data_type().to_string());
        }
    }

    /// Against a naive count over the values.
    #[test]
    fn facts_of_integers(
        values in prop::collection::vec(prop::option::weighted(0.95, -300i64..300), 0..200),
        pieces in 1usize..5,
        sort in any::<bool>(),
        offset in prop::sample::select(vec![0i64, 1 << 40, i64::MAX - 300, i64::MIN + 300]),
    ) {
        let mut values: Vec<Option<i64>> = values.into_iter().map(|v| v.map(|v| v + offset)).collect();
        if sort {
            values.retain(Option::is_some);
            values.sort_unstable();
        }
        let array: ArrayRef = Arc::new(Int64Array::from(values.clone()));
        let column = check(&array, &cut(values.len(), pieces, 9), StringEncoding::Dictionary, "facts");
        let valid: Vec<i128> = values.iter().flatten().map(|v| i128::from(*v)).collect();
        let (min, max) = (valid.iter().min().copied().unwrap_or(0), valid.iter().max().copied().unwrap_or(0));
        prop_assert_eq!(column.column_type.domain, Domain::Int { min, max });
        let complete = valid.len() == values.len();
        prop_assert_eq!(column.statistics.sorted, complete && valid.is_sorted());
        let strict = complete && valid.windows(2).all(|pair| pair[0] < pair[1]);
        let distinct: std::collections::HashSet<i128> = valid.iter().copied().collect();
        let is_unique = complete && distinct.len() == valid.len();
        // Found out wherever the bounds are narrow.
        let is_known = strict || complete && (max - min < 8 * valid.len() as i128 || valid.is_sorted());
        prop_assert_eq!(column.statistics.unique, is_known.then_some(is_unique));
    }

    #[test]
    fn facts_of_strings(
        values in prop::collection::vec(prop::option::weighted(0.97, "[ab]{0,3}|[a-c]{11,14}"), 0..100),
        pieces in 1usize..5,
        sort in any::<bool>(),
        data_type in prop::sample::select(vec![DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View]),
    ) {
        let mut values: Vec<Option<String>> = values;
        if sort {
            values.retain(Option::is_some);
            values.sort_unstable();
        }
        let array: ArrayRef = Arc::new(StringArray::from(values.clone()));
        let array = arrow::compute::cast(&array, &data_type).unwrap();
        let column = check(&array, &cut(values.len(), pieces, 3), StringEncoding::Dictionary, "facts");
        let raw = check(&array, &cut(values.len(), pieces, 3), StringEncoding::Raw, "facts");
        let mut distinct: Vec<&str> = values.iter().flatten().map(String::as_str).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let dictionary = column.column_type.dictionary.clone().unwrap();
        prop_assert!(dictionary.is_sorted());
        prop_assert_eq!(dictionary.len(), distinct.len());
        prop_assert_eq!(dictionary.values().data_type(), &data_type);
        let listed: Vec<&str> = (0..distinct.len() as u32).map(|code| dictionary.value(code).unwrap()).collect();
        prop_assert_eq!(&listed, &distinct);
        prop_assert_eq!(column.statistics.distinct, Some(distinct.len() as u64));
        let complete = values.iter().all(Option::is_some);
        for statistics in [&column.statistics, &raw.statistics] {
            prop_assert_eq!(statistics.sorted, complete && values.is_sorted());
        }
        prop_assert_eq!(column.statistics.unique, (complete && distinct.len() == values.len()).then_some(true));
    }
}

#[test]
fn garbage_under_nulls_counts_nowhere() {
    let nulls = Some(vec![true, false, true].into());
    let array: ArrayRef = Arc::new(Int64Array::new(vec![5, i64::MIN, 6].into(), nulls.clone()));
    let column = check(&array, &[(0, 3)], StringEncoding::Dictionary, "integers");
    assert_eq!(column.column_type.domain, Domain::Int { min: 5, max: 6 });
    assert_eq!(column.values, [0, 0, 1]);

    let strings = ["b", "garbage", "a"].map(String::from);
    let array = string_array(&DataType::Utf8View, &strings, nulls.clone());
    let column = check(&array, &[(0, 3)], StringEncoding::Dictionary, "strings");
    assert_eq!(column.column_type.dictionary.unwrap().len(), 2);

    // An invalid key under a null, and a null among the values.
    let values: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None]));
    let keys = Int8Array::new(vec![0, 77, 1].into(), nulls);
    let array: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
    let column = check(&array, &[(0, 1), (1, 2)], StringEncoding::Raw, "dictionary");
    assert_eq!(column.statistics.null_count, 2);
    assert_eq!(column.column_type.dictionary.unwrap().len(), 1);
}

#[test]
fn dictionaries_larger_than_the_sorting_limit() {
    let rows = 70_000;
    let strings: Vec<String> = (0..rows).map(|i| format!("{:05x}", (i * 7919) % rows)).collect();
    for data_type in [DataType::Utf8, DataType::Utf8View] {
        let array = string_array(&data_type, &strings, None);
        let column = check(&array, &cut(rows, 5, 1), StringEncoding::Dictionary, "large");
        let dictionary = column.column_type.dictionary.unwrap();
        assert!(!dictionary.is_sorted());
        assert_eq!((dictionary.len(), column.statistics.unique), (rows, Some(true)));
    }
}

#[test]
fn more_values_than_keys_of_the_declared_type() {
    // Each batch has few values; together they are more than an Int8 key can number.
    let data_type = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let schema = Arc::new(Schema::new(vec![Field::new("c", data_type, false)]));
    let mut encoder = TableEncoder::new(schema.clone(), StringEncoding::Dictionary);
    for batch in 0..3 {
        let strings: Vec<String> = (0..100).map(|i| format!("{}", batch * 100 + i)).collect();
        let array: DictionaryArray<Int8Type> = strings.iter().map(String::as_str).collect();
        encoder.push(&RecordBatch::try_new(schema.clone(), vec![Arc::new(array)]).unwrap()).unwrap();
    }
    let column = encoder.finish().unwrap().pop().unwrap();
    let facts = &column.column_type;
    let width = facts.layout().width_bytes as usize;
    let part = decode(facts, 100, &column.values[100 * width..], None, None).unwrap();
    let part = arrow::compute::cast(&part, &DataType::Utf8).unwrap();
    assert_eq!(part.as_string::<i32>().value(99), "199");
    assert!(decode(facts, 300, &column.values, None, None).is_err());
}

#[test]
fn results_in_wider_layouts_than_their_data() {
    // Bounds are static; nothing behind them has to occur.
    let data_type = DataType::Decimal128(38, 2);
    for (min, max, width) in [(0, 200, 1), (0, 1 << 20, 4), (-(1 << 40), 1 << 40, 8), (i128::MIN, i128::MAX, 16)] {
        let domain = Domain::Int { min, max };
        let facts = ColumnType { data_type: data_type.clone(), has_nulls: true, domain, dictionary: None };
        assert_eq!(facts.layout().width_bytes, width);
        let stored: Vec<u8> = [7i128, 99, 150]
            .iter()
            .flat_map(|v| (v - facts.layout().base).to_le_bytes()[..width as usize].to_vec())
            .collect();
        let array = decode(&facts, 3, &stored, None, Some(Validity::Bits(&[0b101]))).unwrap();
        let array = array.as_primitive::<Decimal128Type>();
        assert_eq!((array.value(0), array.is_null(1), array.value(2)), (7, true, 150));
    }
}

#[test]
fn codes_out_of_range_matter_only_where_valid() {
    let array: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let mut facts = encode(&table(&[(array, "c")]), &[(0, 2)], StringEncoding::Dictionary).pop().unwrap().column_type;
    facts.has_nulls = true;
    let array = decode(&facts, 3, &[1, 200, 0], None, Some(Validity::Bits(&[0b101]))).unwrap();
    assert_eq!(array.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("b"), None, Some("a")]);
    assert!(decode(&facts, 3, &[1, 200, 0], None, None).is_err());
    assert!(decode(&facts, 4, &[1, 1, 0], None, None).is_err());
}

#[test]
fn tables_without_columns_keep_their_rows() {
    let options = RecordBatchOptions::new().with_row_count(Some(11));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let mut encoder = TableEncoder::new(batch.schema(), StringEncoding::Dictionary);
    encoder.push(&batch).unwrap();
    encoder.push(&batch).unwrap();
    assert_eq!(encoder.rows(), 22);
    assert!(encoder.finish().unwrap().is_empty());
}

#[test]
fn what_does_not_fit_is_an_error() {
    let batch = table(&[(Arc::new(Int32Array::from(vec![1])), "c")]);
    let other = Arc::new(Schema::new(vec![Field::new("c", DataType::Int64, true)]));
    assert!(TableEncoder::new(other, StringEncoding::Dictionary).push(&batch).is_err());
    let half = table(&[(new_null_array(&DataType::Float16, 1), "c")]);
    let mut encoder = TableEncoder::new(half.schema(), StringEncoding::Dictionary);
    assert!(matches!(encoder.push(&half), Err(warpjoin::Error::Unsupported(warpjoin::Reason::Type(_)))));
    assert!(encoder.finish().is_err());
}

#[test]
fn dictionaries_translate() {
    let dictionary = |strings: &[&str], data_type: &DataType| {
        let array: ArrayRef = Arc::new(StringArray::from(strings.to_vec()));
        Dictionary::of_array(&arrow::compute::cast(&array, data_type).unwrap()).unwrap().0
    };
    let from = dictionary(&["x", "a string longer than twelve bytes", "", "b"], &DataType::Utf8);
    let to = dictionary(
        &["b", "a string longer than twelve bytez", "x", "a string longer than twelve bytes"],
        &DataType::Utf8View,
    );
    let codes = Dictionary::translate(&from, &to);
    assert_eq!(codes.len(), from.len());
    for (code, other) in codes.iter().enumerate() {
        let value = from.value(code as u32).unwrap();
        assert_eq!(other.map(|other| to.value(other).unwrap()), (!value.is_empty()).then_some(value));
    }
    assert_eq!(Dictionary::translate(&from, &from), (0..4).map(Some).collect::<Vec<_>>());
}
