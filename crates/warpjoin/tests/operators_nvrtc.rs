//! tmp
use std::sync::Arc;
use arrow::array::*;
use arrow::datatypes::*;
use warpjoin::plan::AggregateFunction as F;
use warpjoin::*;
use warpjoin_device::{SimOptions, open_simulated, compile_for_architecture};
#[test]
fn quick() {
    let session = Session::new(open_simulated(&SimOptions { devices: 2, ..SimOptions::default() }).unwrap()).unwrap();
    let n = 2000i64;
    let table = |wide: bool| {
        let m = if wide { i64::MAX / 3000 } else { 1 };
        let cols: Vec<(&str, ArrayRef)> = vec![
            ("a", Arc::new(Int64Array::from_iter((0..n).map(|i| (i % 13 != 0).then_some((i * 7 % 900) * m))))),
            ("b", Arc::new(Int64Array::from_iter_values((0..n).map(|i| i * m)))),
            ("s", Arc::new(StringArray::from_iter_values((0..n).map(|i| format!("s{}", i % 7))))),
            ("f", Arc::new(Float64Array::from_iter_values((0..n).map(|i| i as f64 * 0.5)))),
            ("g", Arc::new(Float32Array::from_iter_values((0..n).map(|i| i as f32 * 0.5)))),
            ("d", Arc::new(Decimal128Array::from_iter_values((0..n).map(|i| i as i128 * 1000)).with_precision_and_scale(15, 2).unwrap())),
            ("e", Arc::new(Decimal128Array::from_iter_values((0..n).map(|i| (i as i128) << 80)).with_precision_and_scale(38, 2).unwrap())),
            ("o", Arc::new(BooleanArray::from_iter((0..n).map(|i| (i % 5 != 0).then_some(i % 3 == 0))))),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(cols.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let mut b = TableBuilder::new(&session, batch.schema());
        b.push(&batch).unwrap();
        Arc::new(b.finish().unwrap())
    };
    for wide in [false, true] {
        let t = table(wide);
        let keys: &[&[&str]] = &[&[], &["a"], &["b"], &["o"], &["o", "s"], &["f"], &["g", "e"], &["a", "b", "s"]];
        for k in keys {
            let mut g = GroupBy::new(t.clone());
            for c in *k { g = g.key(c).unwrap(); }
            for (f, c) in [(F::Count, None), (F::Sum, Some("b")), (F::Min, Some("b")), (F::Max, Some("f")), (F::Sum, Some("d")), (F::Avg, Some("d")), (F::Avg, Some("b")), (F::Sum, Some("f")), (F::Min, Some("g")), (F::Max, Some("o")), (F::Count, Some("a")),(F::Min, Some("s"))] {
                g = g.aggregate(f, c).unwrap();
            }
            if let Err(e) = g.run_to_table() { println!("{k:?}: {e}"); }
            for l in [1, 2, 4, 8, 16, 32] { for d in [exec::Distribution::Broadcast, exec::Distribution::Exchange] {
                if l > 2 && k.len() == 3 { continue; }
                if k.is_empty() { continue; }
                let mut j = HashJoin::new(t.clone(), t.clone()).options(ExecOptions { probe_group_lanes: Some(l), distribution: d, ..ExecOptions::default() });
                for c in *k { j = j.on(c, c).unwrap(); }
                if let Err(e) = (if k[0] == "o" { j.output(vec![]).run().map(|_| ()) } else { j.run_to_table().map(|_| ()) }) { println!("join {k:?}: {e}"); }
            }}
        }
    }
    let sources = session.devices()[0].compiled_sources();
    println!("{} sources", sources.len());
    for arch in ["sm_80", "sm_90", "sm_100"] {
        let t = std::time::Instant::now();
        for s in &sources {
            if let Err(e) = compile_for_architecture(s, arch) { println!("FAIL {} {arch} {e}\n{}", s.name, s.text); }
        }
        println!("{arch} {:?}", t.elapsed());
    }
}
