//! A join, a group-by and a sort of more rows than the memory budget of the GPUs holds, from columns in the host's memory;
//! results checked. Beside them, in the same run, the rate of the bus.
//!
//! `cargo run --release -p warpjoin --example larger_than_memory -- [rows in bits] [budget in MiB a GPU] [runs] [GPUs]`
//!
//! With `WARPJOIN_PIPELINES` set, it prints what each pipeline took.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use warpjoin::exec::run;
use warpjoin::expr::Expr;
use warpjoin::plan::{AggregateCall, AggregateFunction, Plan, PlanKind, SortKey};
use warpjoin::{ExecOptions, GroupBy, HashJoin, QueryOutput, Session, Table, TableBuilder};
use warpjoin_device::{CudaOptions, SimOptions, open_cuda, open_simulated};

/// Odd, so that different rows have different keys of 48 bits.
const KEY_FACTOR: u64 = 0x9e37_79b9_7f4b;
/// Odd, so that the rows of the probe side have all keys, in another order.
const ORDER_FACTOR: u64 = 0x2545_f491;

fn main() {
    let number = |index: usize, default: u64| {
        std::env::args().nth(index).map_or(default, |number| number.parse().expect("a number"))
    };
    let (rows, budget_bytes, runs) = (1u64 << number(1, 24), number(2, 128) << 20, number(3, 3));
    let count = number(4, 1) as usize;
    let devices = open_cuda(&CudaOptions { devices: Some(count), ..CudaOptions::default() })
        .or_else(|_| open_simulated(&SimOptions { devices: count, ..SimOptions::default() }))
        .expect("a device");
    let session = Session::new(devices).expect("a session");
    let (up, down) = bus_rates(&session);
    println!("bus: {up:.1} GB/s to the device, {down:.1} GB/s to the host");
    let options = ExecOptions { memory_budget_bytes: budget_bytes, ..ExecOptions::default() };
    let build = table(&session, rows, |row| row);
    let probe = table(&session, rows, |row| row.wrapping_mul(ORDER_FACTOR) % rows);
    let all_values: i64 = (0..rows).map(value).sum();

    let join = HashJoin::new(build, Arc::clone(&probe)).on("k", "k").unwrap().output(vec![1]).plan().unwrap();
    let join = totals(join, 0);
    for _ in 0..runs {
        let started = Instant::now();
        let output = run(&session, &join, &[], &options).expect("a join");
        report(&format!("join of {rows} with {rows} rows"), started, &output, 2 * rows);
        let column = |index: usize| output.batches[0].column(index).as_primitive::<Int64Type>().value(0);
        assert_eq!((column(0) as u64, column(1)), (rows, all_values), "what all rows add up to");
    }

    let groups =
        GroupBy::new(Arc::clone(&probe)).key("k").unwrap().aggregate(AggregateFunction::Sum, Some("v")).unwrap();
    let groups = totals(groups.plan().unwrap(), 1);
    for _ in 0..runs {
        let started = Instant::now();
        let output = run(&session, &groups, &[], &options).expect("a group-by");
        report(&format!("group-by of {rows} rows, a group each"), started, &output, rows);
        let column = |index: usize| output.batches[0].column(index).as_primitive::<Int64Type>().value(0);
        assert_eq!((column(0) as u64, column(1)), (rows, all_values), "what all groups add up to");
    }

    let sort = sort(probe);
    for _ in 0..runs {
        let started = Instant::now();
        let output = run(&session, &sort, &[], &options).expect("a sort");
        report(&format!("sort of {rows} rows"), started, &output, rows);
        let column = |index: usize| {
            output.batches.iter().flat_map(move |batch| batch.column(index).as_primitive::<Int64Type>().values().iter())
        };
        assert!(column(0).is_sorted(), "rows in order");
        assert_eq!((column(0).count() as u64, column(1).sum()), (rows, all_values), "what all rows add up to");
    }
}

/// All rows of a table in the order of its first column.
fn sort(table: Arc<Table>) -> Plan {
    let schema = table.schema();
    let kind = PlanKind::Scan { table, projection: vec![0, 1] };
    let input = Box::new(Plan { kind, schema: Arc::clone(&schema) });
    let key = Expr::column(0, DataType::Int64, false);
    let keys = vec![SortKey { expr: key, descending: false, nulls_first: false }];
    Plan { kind: PlanKind::Sort { input, keys, skip: 0, fetch: None }, schema }
}

/// The number of rows, and the sum of a column.
fn totals(input: Plan, column: usize) -> Plan {
    let value = Expr::column(column, DataType::Int64, input.schema.field(column).is_nullable());
    let aggregates = vec![
        AggregateCall::new(AggregateFunction::Count, None, DataType::Int64),
        AggregateCall::new(AggregateFunction::Sum, Some(value), DataType::Int64),
    ];
    let fields = vec![Field::new("rows", DataType::Int64, false), Field::new("sum", DataType::Int64, true)];
    let kind = PlanKind::Aggregate { input: Box::new(input), group_by: vec![], aggregates };
    Plan { kind, schema: Arc::new(Schema::new(fields)) }
}

fn report(name: &str, started: Instant, output: &QueryOutput, rows: u64) {
    let (seconds, metrics) = (started.elapsed().as_secs_f64(), &output.metrics);
    println!(
        "{name}: {:.0} ms, {:.2} G rows/s, kernels {:.0} ms, {:.2} GB read from the host, {:.2} GB spilled, {:.2} GB at most on the device",
        seconds * 1e3,
        rows as f64 / seconds / 1e9,
        metrics.kernel_ns as f64 / 1e6,
        metrics.host_read_bytes as f64 / 1e9,
        metrics.spilled_bytes as f64 / 1e9,
        metrics.peak_bytes as f64 / 1e9,
    );
    if std::env::var_os("WARPJOIN_PIPELINES").is_some() {
        for pipeline in &metrics.pipelines {
            println!("  {}: {} rows, {:.1} ms", pipeline.name, pipeline.rows_in, pipeline.kernel_ns as f64 / 1e6);
        }
    }
}

/// Copies of 256 MB, GB/s.
fn bus_rates(session: &Arc<Session>) -> (f64, f64) {
    let stream = session.devices()[0].create_stream().expect("a stream");
    let bytes = 256 << 20;
    let (host, device) = (stream.alloc_host(bytes).expect("host memory"), stream.alloc(bytes).expect("memory"));
    let rate = |from, to| {
        let copies = (0..5).map(|_| {
            let begin = stream.record().expect("an event");
            stream.copy((from, 0), (to, 0), bytes).expect("a copy");
            let end = stream.record().expect("an event");
            stream.synchronize().expect("copies");
            bytes as f64 / end.elapsed_ns(&begin).expect("a time") as f64
        });
        copies.fold(0.0, f64::max)
    };
    (rate(&host, &device), rate(&device, &host))
}

fn mix(mut word: u64) -> u64 {
    word ^= word >> 32;
    word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word = word.wrapping_mul(0x6a09_e667_f3bc_c909);
    word ^ (word >> 32)
}

/// Of 33 bits, and either sign.
fn value(number: u64) -> i64 {
    (mix(number) >> 31) as i64 - (1 << 32)
}

/// Keys and values of 8 bytes, of rows that `number` tells apart.
fn table(session: &Arc<Session>, rows: u64, number: impl Fn(u64) -> u64 + Sync) -> Arc<Table> {
    let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int64, false));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let mut builder = TableBuilder::new(session.device_set(), schema.clone()).in_host_memory();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let chunk = rows.min(1 << 22);
    for first in (0..rows).step_by((chunk * threads) as usize) {
        let batches: Vec<RecordBatch> = std::thread::scope(|scope| {
            let parts: Vec<_> = (first..rows.min(first + chunk * threads))
                .step_by(chunk as usize)
                .map(|first| {
                    let (schema, number) = (schema.clone(), &number);
                    scope.spawn(move || {
                        let numbers = (first..rows.min(first + chunk)).map(number);
                        let keys =
                            numbers.clone().map(|number| (number.wrapping_mul(KEY_FACTOR) & ((1 << 48) - 1)) as i64);
                        let keys = Int64Array::from_iter_values(keys);
                        let values = Int64Array::from_iter_values(numbers.map(value));
                        RecordBatch::try_new(schema, vec![Arc::new(keys), Arc::new(values)]).unwrap()
                    })
                })
                .collect();
            parts.into_iter().map(|part| part.join().unwrap()).collect()
        });
        for batch in &batches {
            builder.push(batch).unwrap();
        }
    }
    Arc::new(builder.finish().unwrap())
}
