//! Hash tables of the Arrow-native API against a model, on simulated devices and on GPUs.

mod common;
mod tables_common;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use common::sessions::{Opener, gpus, simulated};
use tables_common::{check, rows, table};
use warpjoin::hash_table::{HashTable, HashTableOptions, TableKind};

/// `WARPJOIN_RANDOM_SEED` and `WARPJOIN_RANDOM_CASES`, as for the random plans.
fn seeds(cases: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("WARPJOIN_RANDOM_SEED").unwrap_or(0);
    (first..first + number("WARPJOIN_RANDOM_CASES").unwrap_or(cases)).collect()
}

#[test]
fn random_operations_equal_the_model() {
    check(&simulated(), &seeds(60), 6);
}

#[test]
fn random_operations_equal_the_model_on_gpus() {
    if let Some(gpus) = gpus("random_operations_equal_the_model_on_gpus") {
        check(&gpus, &seeds(200), 8);
    }
}

#[test]
fn what_cannot_be_says_why() {
    let session = simulated().open(1).expect("a device");
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    let schema = |fields: Vec<Field>| Arc::new(Schema::new(fields));
    let message = |kind, schema, keys, options| {
        HashTable::new(&session, kind, schema, keys, options).expect_err("an error").to_string()
    };
    let pair = schema(vec![field("k", DataType::Int32), field("v", DataType::Int32)]);
    let options = HashTableOptions::default();
    assert!(message(TableKind::Set, pair.clone(), 1, options.clone()).contains("key columns only"));
    assert!(message(TableKind::Map, pair.clone(), 0, options.clone()).contains("0 key columns"));
    let strings = schema(vec![field("k", DataType::Utf8)]);
    assert!(message(TableKind::Set, strings, 1, options.clone()).contains("Utf8"));
    let full = HashTableOptions { load_factor: 1.0, ..options.clone() };
    assert!(message(TableKind::Map, pair.clone(), 1, full).contains("0.05 to 0.95"));
    let lanes = HashTableOptions { probe_group_lanes: Some(3), ..options.clone() };
    assert!(message(TableKind::Map, pair.clone(), 1, lanes).contains("powers of two"));
    let two = simulated().open(2).expect("devices");
    let error = HashTable::new(&two, TableKind::Map, pair.clone(), 1, options.clone()).expect_err("an error");
    assert!(error.to_string().contains("one device"));

    let mut map = HashTable::new(&session, TableKind::Map, pair.clone(), 1, options.clone()).expect("a table");
    let longs = schema(vec![field("k", DataType::Int64), field("v", DataType::Int32)]);
    let error = map.insert(&table(&session, &longs, &[vec![Some(1), Some(2)]])).expect_err("an error");
    assert!(error.to_string().contains("column k is Int64, and Int32 in the hash table"), "{error}");
    let other = schema(vec![field("x", DataType::Int32)]);
    assert!(map.find(&table(&session, &other, &[vec![Some(1)]])).is_err(), "no column k");
    let elsewhere = simulated().open(2).expect("devices");
    let error = map.insert(&table(&elsewhere, &pair, &[vec![Some(1), Some(2)]])).expect_err("an error");
    assert!(error.to_string().contains("another session"), "{error}");
    let nullable = Arc::new(Schema::new(vec![field("k", DataType::Int32), Field::new("v", DataType::Int32, true)]));
    let error = map.insert(&table(&session, &nullable, &[vec![Some(1), None]])).expect_err("an error");
    assert!(error.to_string().contains("declare it nullable"), "{error}");
    assert_eq!(map.len(), 0);
}

/// Tables of many rows at every load factor and bucket shape: built segment by segment, grown one by one.
#[test]
fn every_shape_holds_all_keys() {
    let session = simulated().open(1).expect("a device");
    let schema =
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, false), Field::new("v", DataType::Int32, false)]));
    let all: Vec<_> = (0..4000i128).map(|k| vec![Some(k * 7919 - 9_000_000), Some(k)]).collect();
    let keys: Vec<_> = (0..6000i128).map(|k| vec![Some(k * 7919 - 9_000_000), Some(0)]).collect();
    for (bucket_bytes, lanes) in [(16, 1), (16, 2), (32, 4), (64, 1), (64, 4), (64, 8), (128, 2), (128, 16), (256, 32)]
    {
        for load_factor in [0.3, 0.95] {
            let options = HashTableOptions {
                load_factor,
                bucket_bytes: Some(bucket_bytes),
                probe_group_lanes: Some(lanes),
                segment_bytes_max: Some(8192),
                ..HashTableOptions::default()
            };
            let built = HashTable::build(&session, TableKind::Map, &table(&session, &schema, &all), 1, options.clone());
            let mut grown = HashTable::new(&session, TableKind::Map, schema.clone(), 1, options).expect("a table");
            for part in all.chunks(25) {
                assert_eq!(grown.insert(&table(&session, &schema, part)).expect("rows"), 25);
            }
            for map in [&built.expect("a table"), &grown] {
                assert_eq!(map.len(), 4000, "{bucket_bytes} bytes, {lanes} lanes, load factor {load_factor}");
                assert_eq!(map.bucket_shape(), (bucket_bytes, lanes));
                let found = rows(&map.find(&table(&session, &schema, &keys)).expect("values"));
                for (index, row) in found.iter().enumerate() {
                    assert_eq!(row[0], (index < 4000).then_some(index as i128), "{bucket_bytes} {lanes} {load_factor}");
                }
            }
        }
    }
}
