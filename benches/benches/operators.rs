//! Joins and group-bys through the Arrow-native API: device time of the kernels, by events.
//!
//! `cargo bench -p warpjoin-benches`. WARPJOIN_BENCH_ROWS sets the rows of the larger side.

use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use warpjoin::plan::AggregateFunction;
use warpjoin::{GroupBy, HashJoin, QueryMetrics, Result, Session};
use warpjoin_benches::{build_keys, group_keys, probe_keys, session, table};

fn main() -> Result<()> {
    let (session, is_gpu) = session()?;
    let rows = match std::env::var("WARPJOIN_BENCH_ROWS").map(|rows| rows.parse()) {
        Ok(Ok(rows)) => rows,
        _ if is_gpu => 1 << 26,
        _ => 1 << 16,
    };
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    joins(&mut criterion, &session, rows)?;
    groups(&mut criterion, &session, rows)?;
    criterion.final_summary();
    Ok(())
}

/// Sums a value of each side over the matches, so that no output hides the probes.
fn joins(criterion: &mut Criterion, session: &Arc<Session>, rows: usize) -> Result<()> {
    let mut group = criterion.benchmark_group("join");
    group.throughput(Throughput::Elements(rows as u64));
    for (build_rows, multiplicity, match_rate) in
        [(rows / 64, 1, 1.0), (rows, 1, 1.0), (rows, 1, 0.1), (rows / 4, 4, 0.25)]
    {
        let build = table(session, "build", build_keys(build_rows, multiplicity, 1), 2)?;
        let probe = table(session, "probe", probe_keys(rows, build_rows / multiplicity, match_rate, 3), 4)?;
        let join = HashJoin::new(build, probe).on("build_key", "probe_key")?.output(vec![1, 3]);
        // Once before the clock: compiles.
        join.run_to_table()?;
        let name = format!("build {build_rows} x {multiplicity}, match rate {match_rate}");
        bench(&mut group, BenchmarkId::new(name, rows), || join.measure());
    }
    group.finish();
    Ok(())
}

fn groups(criterion: &mut Criterion, session: &Arc<Session>, rows: usize) -> Result<()> {
    let mut group = criterion.benchmark_group("group_by");
    group.throughput(Throughput::Elements(rows as u64));
    for groups in [4, 64, 1 << 10, 1 << 14, rows / 16] {
        let input = table(session, "row", group_keys(rows, groups, 5), 6)?;
        let group_by = GroupBy::new(input)
            .key("row_key")?
            .aggregate(AggregateFunction::Sum, Some("row_value"))?
            .aggregate(AggregateFunction::Max, Some("row_value"))?
            .aggregate(AggregateFunction::Count, None)?;
        group_by.run_to_table()?;
        bench(&mut group, BenchmarkId::new(format!("{groups} groups"), rows), || group_by.measure());
    }
    group.finish();
    Ok(())
}

/// Device time of the kernels of `measure`; what fails has no time.
fn bench(group: &mut BenchmarkGroup<'_, WallTime>, id: BenchmarkId, measure: impl Fn() -> Result<QueryMetrics>) {
    let kernel_time = || Duration::from_nanos(measure().expect("it ran before the clock").kernel_ns);
    group.bench_function(id, |bencher| bencher.iter_custom(|iterations| (0..iterations).map(|_| kernel_time()).sum()));
}
