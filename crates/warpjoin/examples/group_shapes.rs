//! Group-bys over the number of groups on the first GPU: device time by events, results checked.
//!
//! `cargo run --release -p warpjoin --example group_shapes -- [rows in bits] [shapes: wide thin decimal]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::cast_precision_loss)]

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use warpjoin::exec::GroupByForm;
use warpjoin::plan::AggregateFunction::{Count, Max, Sum};
use warpjoin::{ExecOptions, GroupBy, Session, Table, TableBuilder};
use warpjoin_device::{CudaOptions, SimOptions, open_cuda, open_simulated};

const WIDE: [(usize, bool); 8] = [
    (4, false),
    (64, false),
    (1 << 10, false),
    (1 << 14, false),
    (1 << 18, false),
    (1 << 22, false),
    (1 << 25, false),
    (1 << 22, true),
];
const THIN: [(usize, bool); 6] =
    [(16, false), (1 << 10, false), (1 << 14, false), (1 << 16, false), (1 << 20, false), (1 << 24, false)];
const DECIMAL: [(usize, bool); 5] = [(4, false), (129, false), (1 << 12, false), (1 << 17, false), (1 << 22, false)];

/// Few possible keys, known from their bounds.
const KEYED: [(usize, bool); 4] = [(4, false), (8, false), (64, false), (1 << 10, false)];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let bits: u32 = args.first().map_or(27, |bits| bits.parse().expect("bits"));
    let shapes: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let devices = open_cuda(&CudaOptions { devices: Some(1), ..CudaOptions::default() })
        .or_else(|_| open_simulated(&SimOptions::default()))
        .expect("a device");
    let session = Session::new(devices).expect("a session");
    let rows = 1usize << bits;
    for (shape, sweep) in [
        ("wide", &WIDE[..]),
        ("thin", &THIN[..]),
        ("decimal", &DECIMAL[..]),
        ("int", &DECIMAL[..]),
        ("keyed", &KEYED[..]),
    ] {
        if !shapes.is_empty() && !shapes.contains(&shape) {
            continue;
        }
        for &(groups, zipf) in sweep {
            let table = table(&session, shape, rows, groups, zipf);
            for form in [None, Some(GroupByForm::BlockTable), Some(GroupByForm::Partitioned)] {
                measure(&session, (&table, shape), rows, groups, zipf, form);
            }
        }
    }
    // For looking at what was generated.
    if let Ok(folder) = std::env::var("WARPJOIN_DUMP") {
        for (index, source) in session.devices()[0].compiled_sources().iter().enumerate() {
            let defines: String =
                source.defines.iter().map(|d| format!("#define {}\n", d.replacen('=', " ", 1))).collect();
            std::fs::write(format!("{folder}/{}_{index}.cu", source.name), defines + &source.text).expect("a file");
        }
    }
}

fn measure(
    session: &Arc<Session>,
    (table, shape): (&Arc<Table>, &str),
    rows: usize,
    groups: usize,
    zipf: bool,
    form: Option<GroupByForm>,
) {
    // What the default does anyway.
    if form.is_some() && groups < 1 << 12 {
        return;
    }
    let options = ExecOptions { group_by_form: form, ..ExecOptions::default() };
    let mut group_by = GroupBy::new(table.clone()).key("k").unwrap().options(options);
    group_by = match shape {
        "wide" => group_by
            .aggregate(Sum, Some("a"))
            .unwrap()
            .aggregate(Sum, Some("b"))
            .unwrap()
            .aggregate(Max, Some("b"))
            .unwrap()
            .aggregate(Count, None)
            .unwrap(),
        "keyed" => group_by
            .aggregate(Sum, Some("a"))
            .unwrap()
            .aggregate(Max, Some("a"))
            .unwrap()
            .aggregate(Count, None)
            .unwrap(),
        _ => group_by.aggregate(Sum, Some("a")).unwrap(),
    };
    let mut times = vec![];
    let mut last = None;
    for _ in 0..5 {
        let metrics = group_by.measure(session).expect("a result");
        let of = |name: &str| -> u64 {
            metrics.pipelines.iter().filter(|p| p.name.contains(name)).map(|p| p.kernel_ns).sum()
        };
        times.push((metrics.kernel_ns, metrics.kernel_ns - of("Materialise"), of("Materialise")));
        last = Some(metrics);
    }
    times.sort_unstable();
    let (all, grouping, writing) = times[2];
    let metrics = last.expect("five runs");
    let ms = |ns: u64| ns as f64 / 1e6;
    let pipelines: Vec<String> =
        metrics.pipelines.iter().map(|p| format!("{} {:.3}", p.name, ms(p.kernel_ns))).collect();
    println!(
        "{shape} {groups}{} groups: {:.3} ms ({:.3} + {:.3} output) wall {:.3} rows {} retries {} | {}",
        if zipf { " zipf" } else { "" },
        ms(all),
        ms(grouping),
        ms(writing),
        ms(metrics.device_ns),
        metrics.rows,
        metrics.pipelines.iter().map(|p| p.retries).sum::<u64>(),
        pipelines.join("; ")
    );
    check(session, &group_by, shape, rows);
}

/// Totals over the groups are those of the rows.
fn check(session: &Arc<Session>, group_by: &GroupBy, shape: &str, rows: usize) {
    let output = group_by.run_to_table(session).expect("a result");
    let column = if shape == "wide" { 4 } else { 1 };
    if output.rows() > 1 << 23 {
        return;
    }
    let batches = output.download(&[column], 1 << 20).expect("batches");
    let total: i128 = batches
        .iter()
        .map(|batch| match batch.column(0).data_type() {
            DataType::Int64 => batch.column(0).as_primitive::<Int64Type>().iter().flatten().map(i128::from).sum(),
            _ => batch.column(0).as_any().downcast_ref::<Decimal128Array>().unwrap().iter().flatten().sum::<i128>(),
        })
        .sum();
    let wanted: i128 = if shape == "wide" { rows as i128 } else { (0..rows).map(|row| i128::from(value(row))).sum() };
    assert_eq!(total, wanted, "{shape}");
}

fn mix(mut word: u64) -> u64 {
    word ^= word >> 32;
    word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word = word.wrapping_mul(0x6a09_e667_f3bc_c909);
    word ^ (word >> 32)
}

fn value(row: usize) -> i64 {
    (mix(row as u64 * 3 + 1) >> 24) as i64 - (1 << 39)
}

fn table(session: &Arc<Session>, shape: &str, rows: usize, groups: usize, zipf: bool) -> Arc<Table> {
    let group = |row: usize| {
        let random = mix(row as u64 + 77);
        if zipf {
            let u = (random >> 11) as f64 / (1u64 << 53) as f64;
            ((u * ((groups + 1) as f64).ln()).exp() as u64 - 1).min(groups as u64 - 1)
        } else {
            ((u128::from(random) * groups as u128) >> 64) as u64
        }
    };
    let long = |row: usize| mix(group(row) * 31 + 7) as i64;
    let spread = if shape == "keyed" { 1 } else { 2_654_435_761 };
    let short = |row: usize| (group(row) as u32).wrapping_mul(spread) as i32;
    let (key_type, value_type) = match shape {
        "wide" => (DataType::Int64, DataType::Int64),
        "decimal" | "keyed" => (DataType::Int32, DataType::Decimal128(15, 2)),
        _ => (DataType::Int32, DataType::Int64),
    };
    let mut fields = vec![Field::new("k", key_type.clone(), false), Field::new("a", value_type.clone(), false)];
    if shape == "wide" {
        fields.push(Field::new("b", DataType::Float64, false));
    }
    let schema = Arc::new(Schema::new(fields));
    let mut builder = TableBuilder::new(session.device_set(), schema.clone());
    let chunk = rows.min(1 << 22);
    let chunks: Vec<RecordBatch> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..rows / chunk)
            .map(|part| {
                let (schema, value_type, key_type) = (schema.clone(), value_type.clone(), key_type.clone());
                let (long, short) = (&long, &short);
                scope.spawn(move || {
                    let range = part * chunk..(part + 1) * chunk;
                    let keys: ArrayRef = match key_type {
                        DataType::Int64 => Arc::new(Int64Array::from_iter_values(range.clone().map(long))),
                        _ => Arc::new(Int32Array::from_iter_values(range.clone().map(short))),
                    };
                    let values: ArrayRef = match value_type {
                        DataType::Int64 => Arc::new(Int64Array::from_iter_values(range.clone().map(value))),
                        _ => Arc::new(
                            Decimal128Array::from_iter_values(range.clone().map(|row| i128::from(value(row))))
                                .with_precision_and_scale(15, 2)
                                .unwrap(),
                        ),
                    };
                    let mut columns = vec![keys, values];
                    if schema.fields().len() == 3 {
                        let floats = range.map(|row| (mix(row as u64 * 5 + 2) >> 40) as f64);
                        columns.push(Arc::new(Float64Array::from_iter_values(floats)));
                    }
                    RecordBatch::try_new(schema, columns).unwrap()
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    for batch in &chunks {
        builder.push(batch).unwrap();
    }
    Arc::new(builder.finish().unwrap())
}
