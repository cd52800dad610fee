//! Tables of buffers that are on the devices already.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use warpjoin::column::Domain;
use warpjoin::plan::AggregateFunction;
use warpjoin::{Error, GroupBy, ResidentColumn, Session, Shard, ShardColumn, Table, TableBuilder};
use warpjoin_device::{Buffer, SimOptions, open_simulated};

const BYTES: u64 = 16;

fn session(devices: usize) -> Arc<Session> {
    Session::new(open_simulated(&SimOptions { devices, ..SimOptions::default() }).unwrap()).unwrap()
}

/// A buffer with these bytes, filled up with 0.
fn buffer(session: &Session, device: usize, bytes: &[u8]) -> Option<Arc<Buffer>> {
    let stream = session.devices()[device].create_stream().unwrap();
    let padded = (bytes.len() as u64).next_multiple_of(BYTES);
    let buffer = stream.alloc_filled(padded, 0).unwrap();
    stream.write(&buffer, 0, bytes).unwrap();
    stream.synchronize().unwrap();
    Some(Arc::new(buffer))
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

#[test]
fn columns_of_tables_make_a_table_that_shares_their_memory() {
    let session = session(2);
    let upload = |names: &[&str], first: i32, rows: i32| {
        let ints = |offset: i32| Int32Array::from_iter_values((0..rows).map(|row| first + offset + row % 9));
        let arrays = (0i32..).zip(names).map(|(at, name)| (*name, Arc::new(ints(at * 100)) as ArrayRef));
        let batch = RecordBatch::try_from_iter(arrays).unwrap();
        let mut builder = TableBuilder::new(session.device_set(), batch.schema());
        builder.push(&batch).unwrap();
        builder.finish().unwrap()
    };
    let (ab, c) = (upload(&["a", "b"], 0, 1000), upload(&["c"], 1000, 1000));
    let field = |name: &str| Field::new(name, DataType::Int32, true);
    let used_bytes = || session.devices().iter().map(|device| device.memory().used_bytes()).sum::<u64>();
    let before = used_bytes();
    let cb = Table::of_columns(Arc::new(Schema::new(vec![field("c"), field("b")])), &[(&c, 0), (&ab, 1)]).unwrap();
    assert_eq!((used_bytes(), cb.rows(), cb.has_exact_bounds()), (before, 1000, true));
    // The other tables may go, and what nobody shares goes with them.
    drop((ab, c));
    assert!(used_bytes() < before);
    let batches = cb.download(&[0, 1], 4096).unwrap();
    let values = |column: usize| -> Vec<i32> {
        batches.iter().flat_map(|batch| batch.column(column).as_primitive::<Int32Type>().values().to_vec()).collect()
    };
    assert_eq!(values(0), (0..1000).map(|row| 1000 + row % 9).collect::<Vec<_>>());
    assert_eq!(values(1), (0..1000).map(|row| 100 + row % 9).collect::<Vec<_>>());
    let shorter = upload(&["d"], 0, 999);
    let schema = |names: &[&str]| Arc::new(Schema::new(names.iter().map(|name| field(name)).collect::<Vec<_>>()));
    for (schema, columns) in [
        (schema(&[]), vec![]),
        (schema(&["c", "d"]), vec![(&cb, 0), (&shorter, 0)]),
        (schema(&["c"]), vec![(&cb, 2)]),
        (schema(&["c"]), vec![(&cb, 0), (&cb, 1)]),
        (Arc::new(Schema::new(vec![Field::new("c", DataType::Int64, true)])), vec![(&cb, 0)]),
    ] {
        assert!(matches!(Table::of_columns(schema, &columns), Err(Error::InvalidArgument(_))));
    }
    drop((cb, shorter));
    assert_eq!(used_bytes(), 0);
}
