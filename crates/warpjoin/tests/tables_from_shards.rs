//! Tables of buffers that are on the devices already.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use arrow::array::{Array, Float64Array, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use warpjoin::column::Domain;
use warpjoin::plan::AggregateFunction;
use warpjoin::{Error, GroupBy, ResidentColumn, Session, Shard, ShardColumn, Table};
use warpjoin_device::{Buffer, SimOptions, open_simulated};

const BYTES: u64 = 16;

fn session(devices: usize) -> Arc<Session> {
    Session::new(open_simulated(&SimOptions { devices, ..SimOptions::default() }).unwrap()).unwrap()
}

/// A buffer with these bytes, filled up with 0.
fn buffer(session: &Session, device: usize, bytes: &[u8]) -> Option<Buffer> {
    let stream = session.devices()[device].create_stream().unwrap();
    let padded = (bytes.len() as u64).next_multiple_of(BYTES);
    let buffer = stream.alloc_filled(padded, 0).unwrap();
    stream.write(&buffer, 0, bytes).unwrap();
    stream.synchronize().unwrap();
    Some(buffer)
}

fn fields() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("int", DataType::Int32, true), Field::new("float", DataType::Float64, false)]))
}

/// An integer from -5 to 250, so a byte each, with nulls; and a float.
fn columns() -> Vec<ResidentColumn> {
    let mut int = ResidentColumn::new(DataType::Int32, Domain::Int { min: -5, max: 250 });
    int.column_type.has_nulls = true;
    int.statistics.null_count = 1;
    vec![int, ResidentColumn::new(DataType::Float64, Domain::Float64)]
}

/// Three rows, or more where `rows` lies.
fn shard(session: &Session, device: usize, first_row: u64, rows: u64) -> Shard {
    let floats: Vec<u8> = [0.5f64, 1.5, 2.5].iter().flat_map(|value| value.to_le_bytes()).collect();
    let int = ShardColumn {
        values: buffer(session, device, &[0, 255, 7]),
        offsets: None,
        validity: buffer(session, device, &[0b011]),
    };
    let float = ShardColumn { values: buffer(session, device, &floats), offsets: None, validity: None };
    Shard { rows, first_row, columns: vec![int, float] }
}

#[test]
fn rows_come_back_and_can_be_queried() {
    let session = session(2);
    let shards = vec![shard(&session, 0, 0, 3), shard(&session, 1, 3, 3)];
    let table = Arc::new(Table::from_shards(session.device_set(), fields(), columns(), shards).unwrap());
    assert_eq!(table.rows(), 6);
    assert!(!table.has_exact_bounds());
    let batches = table.download(&[0, 1], 100).unwrap();
    let ints: Vec<Option<i32>> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_any().downcast_ref::<Int32Array>().unwrap().iter().collect::<Vec<_>>())
        .collect();
    assert_eq!(ints, [Some(-5), Some(250), None, Some(-5), Some(250), None]);
    let output = GroupBy::new(table).aggregate(AggregateFunction::Sum, Some("float")).unwrap().run(&session).unwrap();
    let sum = |batch: &RecordBatch| batch.column(0).as_any().downcast_ref::<Float64Array>().unwrap().value(0);
    assert_eq!(output.batches.iter().map(sum).collect::<Vec<_>>(), [9.0]);
}

#[test]
fn nulls_are_counted_whatever_is_said_of_them() {
    for devices in [1, 3] {
        for said in [0, 1, 700] {
            let session = session(devices);
            let mut columns = columns();
            columns[0].statistics.null_count = said;
            let shards = (0..devices).map(|device| shard(&session, device, device as u64 * 3, 3)).collect();
            let table = Table::from_shards(session.device_set(), fields(), columns, shards).unwrap();
            // The third row of each shard; bits past the rows do not count.
            assert_eq!(table.statistics()[0].null_count, devices as u64);
            assert_eq!(table.statistics()[1].null_count, 0);
        }
    }
}

#[test]
fn shards_without_rows_have_no_buffers() {
    let session = session(1);
    let column = || ShardColumn { values: None, offsets: None, validity: None };
    let shards = vec![Shard { rows: 0, first_row: 0, columns: vec![column(), column()] }];
    assert_eq!(Table::from_shards(session.device_set(), fields(), columns(), shards).unwrap().rows(), 0);
}

/// What `from_shards` says to one shard changed by `change`, or to other columns.
fn refusal(columns: Vec<ResidentColumn>, change: impl FnOnce(&Session, &mut Shard)) -> String {
    let session = session(2);
    let mut first = shard(&session, 0, 0, 3);
    change(&session, &mut first);
    let next_row = first.rows;
    let shards = vec![first, shard(&session, 1, next_row, 3)];
    match Table::from_shards(session.device_set(), fields(), columns, shards) {
        Err(Error::InvalidArgument(message)) => message,
        other => format!("{other:?}"),
    }
}

#[test]
fn contradictions_are_refused() {
    let with = |change: &dyn Fn(&mut Vec<ResidentColumn>)| {
        let mut columns = columns();
        change(&mut columns);
        columns
    };
    let cases = [
        (refusal(columns(), |_, shard| shard.rows = 17), "values in a buffer of 16 bytes"),
        (refusal(columns(), |_, shard| shard.rows = 5), "values in a buffer of 32 bytes"),
        (refusal(columns(), |_, shard| shard.rows = u64::MAX), "None needed"),
        (refusal(columns(), |_, shard| shard.first_row = 1), "at row 1"),
        (refusal(columns(), |_, shard| shard.columns[0].validity = None), "no validity"),
        (refusal(columns(), |_, shard| shard.columns[1].values = None), "no values"),
        (refusal(columns(), |_, shard| drop(shard.columns.pop())), "a shard of 1 columns"),
        (refusal(columns(), |s, shard| shard.columns[0].values = buffer(s, 1, &[0; 16])), "values on sim:1"),
        (refusal(columns(), |s, shard| shard.columns[1].offsets = buffer(s, 0, &[0; 64])), "offsets where"),
        (refusal(with(&|c| drop(c.pop())), |_, _| {}), "2 fields of 1 columns"),
        (refusal(with(&|c| c[0].column_type.data_type = DataType::Int64), |_, _| {}), "not as its field says"),
        (refusal(with(&|c| c[0].column_type.domain = Domain::Float64), |_, _| {}), "no domain of Int32"),
        (refusal(with(&|c| c[1].column_type.domain = Domain::Int { min: 0, max: 1 }), |_, _| {}), "no domain of"),
        (refusal(with(&|c| c[0].column_type.domain = Domain::Int { min: 0, max: 1 << 40 }), |_, _| {}), "leave Int32"),
    ];
    for (said, expected) in cases {
        assert!(said.contains(expected), "{said:?} does not say {expected:?}");
    }
}
