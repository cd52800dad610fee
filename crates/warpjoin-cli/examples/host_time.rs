//! Measures host time of hot TPC-H queries: planning with and without warpjoin, finding a kept plan, and planning and code
//! generation of the device plan. The tables are small, so that kernel time is negligible.
//!
//! `cargo run --release -p warpjoin-cli --example host_time -- [plan|rules|run] [iterations] [queries, such as 1,5] [scale]`
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use warpjoin_cli::TargetArgs;
use warpjoin_cli::tpch::{Generation, Parameters, QUERY_COUNT, TpchTable, query_text};
use warpjoin_datafusion::{DeviceChoice, Placement, WarpjoinSessionContext, load_table};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Times of the three steps of planning.
#[derive(Default, Clone, Copy)]
struct Planning {
    logical: Duration,
    optimized: Duration,
    physical: Duration,
}

impl Planning {
    fn total(self) -> Duration {
        self.logical + self.optimized + self.physical
    }
}

fn main() {
    env_logger::init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let what = args.first().cloned().unwrap_or_else(|| "plan".to_string());
    let iterations: usize = args.get(1).map_or(20, |iterations| iterations.parse().unwrap());
    let queries: Vec<u32> = match args.get(2).filter(|queries| *queries != "all") {
        Some(list) => list.split(',').map(|number| number.parse().unwrap()).collect(),
        None => (1..=QUERY_COUNT).collect(),
    };
    let scale: f64 = args.get(3).map_or(0.01, |scale| scale.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let device = TargetArgs { device: DeviceChoice::Simulated, devices: Some(1), ..TargetArgs::default() };
        let device = device.session(SessionConfig::new()).unwrap();
        device.sql("SET warpjoin.minimum_rows = 0").await.unwrap().collect().await.unwrap();
        let stock = SessionContext::new();
        load(&device, scale).await;
        for table in TpchTable::ALL {
            load_table(&device, table.name()).await.unwrap();
        }
        load(&stock, scale).await;
        match what.as_str() {
            "run" => run(&device, &queries, iterations, scale).await,
            "rules" => rules(&device, &queries, iterations, scale).await,
            _ => plan(&device, &stock, &queries, iterations, scale).await,
        }
    });
}

async fn load(context: &SessionContext, scale: f64) {
    for table in TpchTable::ALL {
        let schema = table.schema();
        let projection = (0..schema.fields().len()).collect();
        let mut parts = vec![];
        Generation { table, scale, projection, threads: 2 }
            .run(|_, batches| {
                parts.extend(batches);
                Ok(())
            })
            .unwrap();
        context.register_table(table.name(), Arc::new(MemTable::try_new(schema, vec![parts]).unwrap())).unwrap();
    }
}

async fn planned(context: &SessionContext, sql: &str) -> (Planning, Arc<dyn ExecutionPlan>) {
    let started = Instant::now();
    let (state, logical) = context.sql(sql).await.unwrap().into_parts();
    let parsed = Instant::now();
    let optimized = state.optimize(&logical).unwrap();
    let optimizer_end = Instant::now();
    let plan = state.query_planner().create_physical_plan(&optimized, &state).await.unwrap();
    let (logical, physical) = (parsed - started, optimizer_end.elapsed());
    let times = Planning { logical, optimized: optimizer_end - parsed, physical };
    (times, plan)
}

async fn plan(device: &SessionContext, stock: &SessionContext, queries: &[u32], iterations: usize, scale: f64) {
    let parameters = Parameters::validation(scale);
    println!(
        "query  device: logical optimized physical total    stock: logical optimized physical total   kept, with new literals (found)   (ms)"
    );
    let mut totals = [Duration::ZERO; 2];
    let (mut kept_ms, mut new_ms) = (0.0, 0.0);
    for &number in queries {
        let sql = query_text(number, &parameters).unwrap();
        print!("{number:5} ");
        for (context, total) in [device, stock].into_iter().zip(&mut totals) {
            let mut times = vec![];
            for _ in 0..iterations {
                times.push(planned(context, &sql).await.0);
            }
            times.sort_by_key(|times| times.total());
            let median = times[times.len() / 2];
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let Planning { logical, optimized, physical } = median;
            print!("   {:7.3} {:7.3} {:7.3} {:7.3}     ", ms(logical), ms(optimized), ms(physical), ms(median.total()));
            *total += median.total();
        }
        let mut times = vec![];
        for _ in 0..=iterations {
            let started = Instant::now();
            device.query(&sql).await.unwrap();
            times.push(started.elapsed());
        }
        let kept = median_ms(times);
        let (mut times, mut found) = (vec![], 0);
        for seed in 0..iterations as u64 + 2 {
            let sql = query_text(number, &Parameters::random(scale, seed)).unwrap();
            let started = Instant::now();
            let query = device.query(&sql).await.unwrap();
            if seed >= 2 {
                times.push(started.elapsed());
                found += usize::from(query.is_kept());
            }
        }
        let new = median_ms(times);
        println!(" {kept:7.3} {new:7.3} ({found} of {iterations})");
        kept_ms += kept;
        new_ms += new;
    }
    let [device_ms, stock_ms] = totals.map(|total| total.as_secs_f64() * 1e3);
    println!(
        "total: device {device_ms:.2} ms, stock {stock_ms:.2} ms, kept {kept_ms:.2} ms, new literals {new_ms:.2} ms"
    );
}

/// An optimizer rule, and its total time.
#[derive(Debug)]
struct Timed<T: ?Sized> {
    rule: Arc<T>,
    elapsed_ns: Arc<AtomicU64>,
}

impl<T: ?Sized> Timed<T> {
    fn time<R>(&self, work: impl FnOnce(&T) -> R) -> R {
        let started = Instant::now();
        let result = work(&self.rule);
        self.elapsed_ns.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl PhysicalOptimizerRule for Timed<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        self.time(|rule| rule.optimize(plan, config))
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

impl OptimizerRule for Timed<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        self.time(|rule| rule.rewrite(plan, config))
    }
}

/// Prints the time of each rule of both optimizers, summed over all queries.
async fn rules(device: &SessionContext, queries: &[u32], iterations: usize, scale: f64) {
    let state = device.state();
    let mut times = vec![];
    let mut timer = |name: &str| {
        let elapsed_ns = Arc::new(AtomicU64::new(0));
        times.push((name.to_string(), Arc::clone(&elapsed_ns)));
        elapsed_ns
    };
    let mut logical: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![];
    for rule in state.optimizers() {
        logical.push(Arc::new(Timed { rule: Arc::clone(rule), elapsed_ns: timer(rule.name()) }));
    }
    let mut physical: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![];
    for rule in state.physical_optimizers() {
        physical.push(Arc::new(Timed { rule: Arc::clone(rule), elapsed_ns: timer(&format!("  {}", rule.name())) }));
    }
    let timed = SessionStateBuilder::new_from_existing(state)
        .with_optimizer_rules(logical)
        .with_physical_optimizer_rules(physical)
        .build();
    let context = SessionContext::new_with_state(timed);
    let parameters = Parameters::validation(scale);
    for _ in 0..iterations {
        for &number in queries {
            planned(&context, &query_text(number, &parameters).unwrap()).await;
        }
    }
    println!("rule (physical optimizer rules are indented): ms for all queries");
    for (name, elapsed_ns) in times {
        println!("{name:50} {:8.3}", elapsed_ns.load(Ordering::Relaxed) as f64 / 1e6 / iterations as f64);
    }
}

async fn run(device: &SessionContext, queries: &[u32], iterations: usize, scale: f64) {
    let parameters = Parameters::validation(scale);
    println!("query  planning   execution   optimizer   generate   compile   launches   pipelines   (ms)");
    let mut totals = [0.0; 5];
    for &number in queries {
        let sql = query_text(number, &parameters).unwrap();
        let (mut planning, mut execution) = (vec![], vec![]);
        let mut parts = [0; 3];
        let mut counts = (0, 0);
        for iteration in 0..=iterations {
            let (times, plan) = planned(device, &sql).await;
            let started = Instant::now();
            collect(Arc::clone(&plan), device.task_ctx()).await.unwrap();
            let elapsed = started.elapsed();
            if iteration == 0 {
                continue;
            }
            planning.push(times.total());
            execution.push(elapsed);
            counts = (0, 0);
            for metrics in Placement::of(&plan).device.iter().filter_map(|part| part.metrics.as_ref()) {
                let own = [metrics.optimizer_ns, metrics.planning_ns, metrics.compile_ns];
                parts.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
                counts.0 += metrics.launches;
                counts.1 += metrics.pipelines.len();
            }
        }
        let ms = |ns: u64| ns as f64 / 1e6 / iterations as f64;
        let row = [median_ms(planning), median_ms(execution), ms(parts[0]), ms(parts[1]), ms(parts[2])];
        totals.iter_mut().zip(row).for_each(|(sum, own)| *sum += own);
        println!(
            "{number:5}  {:8.3}   {:9.3}   {:9.3}   {:8.3}   {:7.3}   {:8}   {:9}",
            row[0], row[1], row[2], row[3], row[4], counts.0, counts.1
        );
    }
    println!(
        "total  {:8.3}   {:9.3}   {:9.3}   {:8.3}   {:7.3}",
        totals[0], totals[1], totals[2], totals[3], totals[4]
    );
}

fn median_ms(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}
