//! Tables come back from their devices as they went, however many devices there are.
#![allow(clippy::unwrap_used, reason = "tests")]

mod columns_common;

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::concat;
use arrow::datatypes::*;
use columns_common::*;
use proptest::prelude::*;
use warpjoin::column::{Domain, StringEncoding};
use warpjoin::{MemoryBudget, Session, Table, TableBuilder};
use warpjoin_device::{SimOptions, open_simulated};

fn session(devices: usize) -> Arc<Session> {
    let options = SimOptions { devices, memory_bytes: 256 << 20, seed: Some(7), ..SimOptions::default() };
    Session::new(open_simulated(&options).unwrap()).unwrap()
}

fn load(session: &Arc<Session>, arrays: &[ArrayRef], pieces: usize, strings: StringEncoding) -> Table {
    let rows = arrays[0].len();
    let fields: Vec<Field> = arrays.iter().map(|array| Field::new("c", array.data_type().clone(), true)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.to_vec()).unwrap();
    let mut builder = TableBuilder::new(session.device_set(), batch.schema()).with_strings(strings);
    for (start, rows) in cut(rows, pieces, 4) {
        builder.push(&batch.slice(start, rows)).unwrap();
    }
    builder.finish().unwrap()
}

fn check_shards(table: &Table) {
    let mut next = 0;
    for shard in table.shards() {
        assert_eq!(shard.first_row, next);
        assert!(shard.first_row % 64 == 0 || shard.first_row == table.rows());
        assert_eq!(shard.columns.len(), table.column_types().len());
        next += shard.rows;
        for (column, facts) in shard.columns.iter().zip(table.column_types()) {
            let width = u64::from(facts.layout().width_bytes);
            assert_eq!(column.values.is_some(), width > 0 && shard.rows > 0);
            assert_eq!(column.offsets.is_some(), facts.domain == Domain::Bytes && shard.rows > 0);
            assert_eq!(column.validity.is_some(), facts.has_nulls && shard.rows > 0);
            for buffer in [&column.values, &column.offsets, &column.validity].into_iter().flatten() {
                assert!(buffer.bytes() >= 16 && buffer.bytes() % 16 == 0);
            }
        }
    }
    assert_eq!(next, table.rows());
}

fn check_download(table: &Table, arrays: &[ArrayRef], batch_rows: usize) {
    let projection: Vec<usize> = (0..arrays.len()).rev().chain([0]).collect();
    let batches = table.download(&projection, batch_rows).unwrap();
    assert!(batches.iter().all(|batch| batch.num_rows() > 0 && batch.num_rows() <= batch_rows));
    for (position, &index) in projection.iter().enumerate() {
        let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(position).as_ref()).collect();
        let what = format!("column {index}: {}", arrays[index].data_type());
        if parts.is_empty() {
            assert_eq!(arrays[index].len(), 0);
            continue;
        }
        // Dictionaries whose batches differ do not join under 8-bit keys; compare their strings.
        let plain = |array: &dyn Array| match array.data_type() {
            DataType::Dictionary(_, value) => arrow::compute::cast(array, value).unwrap(),
            _ => make_array(array.to_data()),
        };
        let parts: Vec<ArrayRef> = parts.into_iter().map(plain).collect();
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        assert_same(&concat(&parts).unwrap(), &plain(&arrays[index]), &what);
    }
}

#[test]
fn every_type_at_the_edges_on_any_number_of_devices() {
    for devices in [1, 2, 3, 8] {
        let session = session(devices);
        for rows in EDGE_ROWS {
            let (raw, dictionary) = ((25, StringEncoding::Raw), (25, StringEncoding::Dictionary));
            // Many rows take long without optimization: once is enough.
            let cases = if rows < 1000 { vec![(0, StringEncoding::Raw), raw, dictionary] } else { vec![raw] };
            for (null_percent, strings) in cases {
                let arrays: Vec<ArrayRef> = all_types()
                    .iter()
                    .enumerate()
                    .map(|(i, data_type)| {
                        random_array(data_type, SHAPES[i % SHAPES.len()], null_percent, rows, i as u64)
                    })
                    .collect();
                let table = load(&session, &arrays, 3, strings);
                assert_eq!((table.rows(), table.shards().len()), (rows as u64, devices));
                check_shards(&table);
                check_download(&table, &arrays, 1000);
            }
        }
        assert!(session.devices().iter().all(|device| device.memory().used_bytes() == 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn random_tables_on_random_devices(
        columns in prop::collection::vec(
            (prop::sample::select(all_types()), prop::sample::select(SHAPES.to_vec()), 0u32..=100, any::<u64>()),
            1..5,
        ),
        rows in 0usize..2000,
        devices in prop::sample::select(vec![1usize, 2, 3, 8]),
        batch_rows in prop::sample::select(vec![1usize, 7, 64, 1000, usize::MAX]),
        raw in any::<bool>(),
    ) {
        let strings = if raw { StringEncoding::Raw } else { StringEncoding::Dictionary };
        let arrays: Vec<ArrayRef> = columns
            .iter()
            .map(|(data_type, shape, nulls, seed)| random_array(data_type, *shape, nulls.saturating_sub(30), rows, *seed))
            .collect();
        let table = load(&session(devices), &arrays, 4, strings);
        check_shards(&table);
        check_download(&table, &arrays, batch_rows);
    }
}

/// Rows that the host fetches in more than one piece.
#[test]
fn downloads_in_pieces() {
    let rows = 900_000;
    let numbers = random_array(&DataType::Int16, Shape::Wide, 25, rows, 1);
    let strings = random_array(&DataType::LargeUtf8, Shape::Narrow, 25, rows, 2);
    let arrays = [numbers, strings];
    let table = load(&session(1), &arrays, 9, StringEncoding::Raw);
    check_download(&table, &arrays, 100_003);
}

#[test]
fn a_table_without_columns_keeps_its_rows() {
    let options = RecordBatchOptions::new().with_row_count(Some(130));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let mut builder = TableBuilder::new(session(3).device_set(), batch.schema());
    builder.push(&batch).unwrap();
    let table = builder.finish().unwrap();
    assert_eq!((table.rows(), table.resident_bytes()), (130, 0));
    let rows: usize = table.download(&[], 50).unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 130);
}

#[test]
fn too_little_memory_is_an_error() {
    let options = SimOptions { devices: 2, memory_bytes: 1 << 12, ..SimOptions::default() };
    let session = Session::new(open_simulated(&options).unwrap()).unwrap();
    let array = random_array(&DataType::Int64, Shape::Wide, 0, 10_000, 1);
    let batch = RecordBatch::try_from_iter([("c", array)]).unwrap();
    let finish = |budget: MemoryBudget| {
        let mut builder = TableBuilder::new(session.device_set(), batch.schema()).with_memory_budget(budget);
        builder.push(&batch).unwrap();
        builder.finish()
    };
    for host_bytes in [0, 1000] {
        let table = finish(MemoryBudget { host_bytes, ..MemoryBudget::OF_DEVICES });
        assert!(matches!(table, Err(warpjoin::Error::Device(_))));
        assert!(session.devices().iter().all(|device| device.memory().used_bytes() == 0));
    }
    // The host has room.
    let table = finish(MemoryBudget::OF_DEVICES).unwrap();
    assert!(table.resident_bytes() == 0 && table.host_bytes() >= 80_000 && table.is_on_host(0));
    let rows = table.download(&[0], 10_000).unwrap();
    assert_eq!(arrow::compute::concat_batches(&batch.schema(), &rows).unwrap(), batch);
}

#[test]
fn wrong_arguments_are_errors() {
    let session = session(1);
    let table = load(&session, &[random_array(&DataType::Int8, Shape::Wide, 0, 10, 1)], 1, StringEncoding::Raw);
    assert!(table.download(&[1], 10).is_err());
    assert!(table.download(&[0], 0).is_err());
}
