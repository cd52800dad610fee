//! Columns of Parquet files that devices decode equal those that were written.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod parquet_common;

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Decimal128Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::DataType;
use common::sanitized::{is_child, run_again};
use common::sessions::{Opener, Simulated, gpus};
use parquet::data_type::{Int96, Int96Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet_common::{File, Form, check, check_damaged, check_seeds, check_tables, domain_of, random_form};
use rand::SeedableRng;
use rand::rngs::StdRng;
use warpjoin::column::Domain;
use warpjoin::parquet::{ColumnChunk, Compression, DecodeError, Stored, StoredColumn, decode_column};
use warpjoin_device::{Device, SimOptions, open_simulated};

fn device(options: SimOptions) -> Device {
    open_simulated(&options).unwrap().swap_remove(0)
}

#[test]
fn decoded_columns_equal_those_that_were_written() {
    check_seeds(&device(SimOptions::default()), 0..120, 20_000);
}

#[test]
fn decoded_columns_equal_those_that_were_written_on_gpus() {
    let name = "decoded_columns_equal_those_that_were_written_on_gpus";
    if let Some(session) = gpus(name).and_then(|gpus| gpus.open(1)) {
        check_seeds(&session.devices()[0], 0..600, 20_000);
        assert!(check_damaged(&session.devices()[0], 0..60) > 100);
        check_tables(&session, 0..400);
    }
    if let Some(session) = gpus(name).and_then(|gpus| gpus.open(2)) {
        check_tables(&session, 400..600);
    }
}

#[test]
fn decoding_has_no_races() {
    for seed in 0..24 {
        let options = SimOptions { seed: Some(seed + 1), races: true, ..SimOptions::default() };
        check_seeds(&device(options.clone()), seed * 10..seed * 10 + 5, 700);
        check_tables(&Simulated(options).open(1 + seed as usize % 2).unwrap(), seed * 4..seed * 4 + 4);
    }
}

#[test]
fn decoded_tables_are_those_of_a_builder() {
    for devices in 1..=3 {
        let session = Simulated(SimOptions::default()).open(devices).unwrap();
        check_tables(&session, 0..160);
    }
}

/// No kernel leaves its buffers, whatever is in a page.
#[test]
fn decoding_is_clean() {
    const NAME: &str = "decoding_is_clean";
    if !is_child() {
        return run_again(NAME, &[NAME, "--exact"]);
    }
    let device = device(SimOptions { sanitize: true, ..SimOptions::default() });
    check_seeds(&device, 0..60, 3000);
    check_damaged(&device, 0..60);
}

#[test]
fn values_beyond_the_bounds_are_declined() {
    let device = device(SimOptions::default());
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    for has_dictionaries in [false, true] {
        let form = Form {
            is_compressed: true,
            on_host: false,
            encoding: 0,
            has_dictionaries,
            version: WriterVersion::PARQUET_1_0,
            page_rows: 100,
            group_rows: 500,
            dictionary_bytes: 1 << 20,
        };
        let file = File::write(&column, form);
        for (min, max) in [(0, 998), (1, 999), (0, 0)] {
            let decoded = file.decode(&device, &column, Some(Domain::Int { min, max }));
            assert!(matches!(decoded, Err(DecodeError::Declined(_))), "{min} to {max}");
        }
    }
}

#[test]
fn damaged_bytes_are_decoded_or_declined() {
    let declined = check_damaged(&device(SimOptions::default()), 0..60);
    assert!(declined > 100, "{declined}");
}

/// Writers may put values into a dictionary that no row has: these do not become values of the column.
#[test]
fn entries_that_no_row_has_are_left_out() {
    let device = device(SimOptions::default());
    let form = Form {
        is_compressed: false,
        on_host: false,
        encoding: 0,
        has_dictionaries: true,
        version: WriterVersion::PARQUET_1_0,
        page_rows: 100,
        group_rows: 500,
        dictionary_bytes: 1 << 20,
    };
    let more: ArrayRef = Arc::new(StringArray::from(vec!["b", "unused", "a", "also unused"]));
    let column: ArrayRef = Arc::new(StringArray::from(vec!["b", "x", "a", "a", "b"]));
    let (with_more, with_rows) = (File::write(&more, form), File::write(&column, form));
    let parts = |file: &File| {
        let chunk = file.metadata.row_group(0).column(0);
        let (start, length) = chunk.byte_range();
        let data = chunk.data_page_offset() as usize;
        (file.bytes[start as usize..data].to_vec(), file.bytes[data..(start + length) as usize].to_vec())
    };
    // The dictionary of one file before the rows of the other: what was `x` is `unused`, which is a value now.
    let bytes = [parts(&with_more).0, parts(&with_rows).1].concat();
    let chunk = ColumnChunk { bytes: &bytes, compression: Compression::None, rows: 5 };
    let stored = StoredColumn { stored: Stored::Strings, is_nullable: false, domain: None, chunks: &[chunk] };
    let decoded = decode_column(&device.create_stream().unwrap(), &stored, &DataType::Utf8).unwrap();
    let expected: ArrayRef = Arc::new(StringArray::from(vec!["b", "unused", "a", "a", "b"]));
    check(&decoded, &device, &expected, "a dictionary with more");
}

#[test]
fn bytes_that_are_no_text_are_declined() {
    let device = device(SimOptions::default());
    let column: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"text", b"\xff\xfe", b"text"]));
    let mut rng = StdRng::seed_from_u64(7);
    let file = File::write(&column, random_form(&mut rng));
    let bytes = file.chunk_bytes();
    let chunks = file.chunks(&bytes);
    let stored = StoredColumn { stored: Stored::Strings, is_nullable: false, domain: None, chunks: &chunks };
    let stream = device.create_stream().unwrap();
    assert!(decode_column(&stream, &stored, &DataType::Binary).is_ok());
    assert!(matches!(decode_column(&stream, &stored, &DataType::Utf8View), Err(DecodeError::Declined(_))));
}

/// More strings than have codes in their order, in dictionaries and beside them.
#[test]
fn many_strings_are_told_apart() {
    let device = device(SimOptions::default());
    let rows = 150_000u64;
    let column: ArrayRef =
        Arc::new((0..rows).map(|row| Some((row * 7919 % 100_003).to_string())).collect::<StringArray>());
    for dictionary_bytes in [1 << 20, 10_000] {
        let form = Form {
            is_compressed: true,
            on_host: false,
            encoding: 0,
            has_dictionaries: true,
            version: WriterVersion::PARQUET_1_0,
            page_rows: 20_000,
            group_rows: 60_000,
            dictionary_bytes,
        };
        let decoded = File::write(&column, form).decode(&device, &column, None).unwrap();
        check(&decoded, &device, &column, "many strings");
        assert!(!decoded.dictionary.unwrap().is_sorted());
    }
}

/// Moments as Spark writes them.
#[test]
fn moments_of_12_bytes_are_nanoseconds() {
    let moments: [i64; 6] = [0, -1, 1, 86_400_000_000_000, -86_400_000_000_001, 1_700_000_000_123_456_789];
    let rows = moments.repeat(50);
    let schema = Arc::new(parse_message_type("message m { required int96 c; }").unwrap());
    for has_dictionaries in [false, true] {
        let properties = WriterProperties::builder().set_dictionary_enabled(has_dictionaries).build();
        let mut bytes = vec![];
        let mut writer = SerializedFileWriter::new(&mut bytes, Arc::clone(&schema), Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<Int96> = rows.iter().map(|&nanos| int96(nanos)).collect();
        column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        let metadata = writer.close().unwrap();
        let (start, length) = metadata.row_group(0).column(0).byte_range();
        let bytes = bytes[start as usize..(start + length) as usize].to_vec();
        let chunk = ColumnChunk { bytes: &bytes, compression: Compression::None, rows: rows.len() as u64 };
        let stored = StoredColumn { stored: Stored::Int96, is_nullable: false, domain: None, chunks: &[chunk] };
        let device = device(SimOptions::default());
        let decoded = decode_column(&device.create_stream().unwrap(), &stored, &DataType::Int64).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from(rows.clone()));
        assert_eq!(decoded.domain, domain_of(&column));
        check(&decoded, &device, &column, "moments");
    }
}

fn int96(nanos: i64) -> Int96 {
    let (day, of_day) = (nanos.div_euclid(86_400_000_000_000) + 2_440_588, nanos.rem_euclid(86_400_000_000_000));
    let mut value = Int96::new();
    value.set_data(of_day as u32, (of_day >> 32) as u32, day as u32);
    value
}

/// Values of 16 bytes near each other, in no order: whether they are different is not known, but they are decoded.
#[test]
fn values_beyond_64_bits_are_decoded() {
    let session = Simulated(SimOptions::default()).open(1).unwrap();
    let values: Vec<i128> = (0..1000).map(|row| 10_i128.pow(20) + row * 7919 % 1000).collect();
    let column: ArrayRef = Arc::new(Decimal128Array::from(values).with_precision_and_scale(38, 0).unwrap());
    let unsigned: ArrayRef =
        Arc::new(UInt64Array::from_iter_values((0..1000).map(|row| (1 << 63) + row * 7919 % 1000)));
    for column in [column, unsigned] {
        let mut rng = StdRng::seed_from_u64(3);
        let file = File::write(&column, random_form(&mut rng));
        let batch = RecordBatch::try_from_iter([("c", Arc::clone(&column))]).unwrap();
        let table = file.decode_table(&session, &batch, Some(domain_of(&column))).unwrap();
        assert_eq!(table.download(&[0], 1000).unwrap()[0].column(0), &column);
    }
}

/// A page whose lengths of strings say more than is there, and headers of differences that no writer makes.
#[test]
fn packed_lengths_are_checked() {
    const NAME: &str = "packed_lengths_are_checked";
    if !is_child() {
        return run_again(NAME, &[NAME, "--exact"]);
    }
    let device = device(SimOptions { sanitize: true, ..SimOptions::default() });
    let column: ArrayRef = Arc::new((0..300).map(|row| Some("x".repeat(row % 50))).collect::<StringArray>());
    let form = Form {
        is_compressed: false,
        on_host: false,
        encoding: 1,
        has_dictionaries: false,
        version: WriterVersion::PARQUET_1_0,
        page_rows: 1000,
        group_rows: 1000,
        dictionary_bytes: 1 << 20,
    };
    let sound = File::write(&column, form);
    assert!(sound.decode(&device, &column, None).is_ok());
    let (start, length) = sound.metadata.row_group(0).column(0).byte_range();
    let end = (start + length).min(start + 120) as usize;
    let mut declined = 0;
    for at in start as usize..end {
        for changed in [0xff, 0x7f, 0x61, 0x03] {
            let mut file = File::write(&column, form);
            file.bytes[at] = changed;
            declined += usize::from(matches!(file.decode(&device, &column, None), Err(DecodeError::Declined(_))));
        }
    }
    assert!(declined > 100, "{declined}");
}
