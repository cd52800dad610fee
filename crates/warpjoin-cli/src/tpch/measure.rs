//! Runs one query on stock DataFusion and on warpjoin, compares the answers, and measures the times.
//!
//! Must not know how results are shown.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use warpjoin_datafusion::{Placement, WarpjoinSessionContext, runtime_of, session_of};
use warpjoin_device::{TracedSpan, begin_trace, end_trace, span};

use super::arguments::Entry;
use super::parameters::Parameters;
use super::queries::query_text;
use super::report::{Outcome, PlacementReport, QueryReport, RunReport, VariantsReport, total_metrics};
use crate::answers::{Answer, PublishedAnswer, Reference};
use crate::error::Result;

/// The sessions that run the queries, and how often.
pub(super) struct Measurement {
    /// warpjoin.
    pub(super) device: SessionContext,
    /// How queries are given to it.
    pub(super) entry: Entry,
    /// Stock DataFusion for reference answers.
    pub(super) oracle: Option<SessionContext>,
    /// Stock DataFusion with its defaults over the same tables, for times.
    pub(super) stock: Option<SessionContext>,
    /// Whether the TPC publishes answers for this scale factor.
    pub(super) published: bool,
    /// Number of hot runs on warpjoin, after the first run.
    pub(super) hot_runs: usize,
    /// Number of runs without any column on the devices.
    pub(super) cold_runs: usize,
    /// Number of hot runs on stock DataFusion.
    pub(super) oracle_runs: usize,
    /// Whether first runs are traced.
    pub(super) traces: bool,
}

/// One run of one query.
struct TimedRun {
    planning_ms: f64,
    execution_ms: f64,
    plan: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// Whether an earlier query had the plan.
    is_kept: bool,
}

/// Sets of parameters after which a plan for all literals is kept, if there is one.
const VARIANTS_PLANNED: u64 = 3;

impl Measurement {
    /// Runs query `number` with text `sql`. Returns the report, and warpjoin's answer unless the query
    /// failed. The report contains errors.
    pub(super) async fn query(&self, number: u32, sql: &str) -> (QueryReport, Option<(SchemaRef, Vec<RecordBatch>)>) {
        let mut report = QueryReport {
            query: number,
            sql: sql.to_string(),
            rows: 0,
            outcome: Outcome::NotCompared,
            difference: None,
            is_published: None,
            placement: PlacementReport::default(),
            scanned_bytes: 0,
            datafusion_ms: None,
            first: None,
            hot: None,
            hot_total_ms: vec![],
            cold: None,
            variants: None,
            first_spans: vec![],
        };
        let published = if self.published { PublishedAnswer::of_tpch(number) } else { None };
        match self.fill(sql, published.as_ref(), &mut report).await {
            Ok(answer) => (report, Some(answer)),
            Err(error) => {
                report.outcome = Outcome::Failed;
                report.difference = Some(error.to_string());
                (report, None)
            }
        }
    }

    async fn fill(
        &self,
        sql: &str,
        published: Option<&PublishedAnswer>,
        report: &mut QueryReport,
    ) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let expected = match &self.oracle {
            Some(oracle) => Some(Reference::of(oracle, sql).await?),
            None => None,
        };
        if let Some(stock) = &self.stock {
            report.datafusion_ms = Some(median_ms(stock, sql, self.oracle_runs).await?);
        }
        if let Some(expected) = &expected {
            report.rows = expected.answer().rows();
            report.outcome = Outcome::Equal;
        }
        let (mut hot, mut cold) = (vec![], vec![]);
        let mut last = None;
        for number in 0..=self.hot_runs + self.cold_runs {
            if number > self.hot_runs {
                runtime_of(&self.device)?.clear_cache();
            }
            let run = if number == 0 && self.traces {
                let (run, spans) = self.traced(sql).await?;
                report.first_spans = spans;
                run
            } else {
                timed_run(&self.device, sql, self.entry).await?
            };
            let placement = Placement::of(&run.plan);
            let run_report = RunReport::new(run.planning_ms, run.execution_ms, &placement);
            report.placement = PlacementReport::new(&placement);
            report.scanned_bytes = placement.device.iter().map(|part| part.scanned_bytes).sum();
            if let (Some(oracle), Some(expected)) = (&self.oracle, &expected)
                && let Some(difference) = difference(oracle, &run, expected).await?
            {
                report.outcome = Outcome::Different;
                report.difference = Some(format!("run {number}: {difference}"));
            }
            if let Some(published) = published {
                let difference = published.difference(&Answer::new(Arc::clone(&run.schema), &run.batches)?);
                report.is_published = Some(difference.is_none() && report.is_published != Some(false));
                if let Some(difference) = difference {
                    report.outcome = Outcome::Different;
                    report.difference = Some(format!("run {number}, compared with the published answer: {difference}"));
                }
            }
            match number {
                0 => {
                    report.first = Some(run_report);
                    // Hot runs use the kernels of the final code tier.
                    session_of(&self.device)?.finish_compiling();
                }
                hot_run if hot_run <= self.hot_runs => hot.push(run_report),
                _ => cold.push(run_report),
            }
            report.rows = run.batches.iter().map(RecordBatch::num_rows).sum();
            last = Some((run.schema, run.batches));
        }
        report.hot_total_ms = hot.iter().map(|run| run.total_ms).collect();
        (report.hot, report.cold) = (median_run(hot), median_run(cold));
        Ok(last.unwrap_or_else(|| (SchemaRef::new(arrow::datatypes::Schema::empty()), vec![])))
    }

    /// Runs the query with `runs` sets of random parameters. The query must have run before with its own parameters.
    pub(super) async fn variants(&self, number: u32, scale: f64, runs: u32) -> Result<VariantsReport> {
        let mut report = VariantsReport { runs: runs as usize, ..VariantsReport::default() };
        for seed in 0..u64::from(runs) {
            let parameters = Parameters::random(scale, seed);
            let Some(sql) = query_text(number, &parameters) else { continue };
            let run = timed_run(&self.device, &sql, self.entry).await?;
            if seed < VARIANTS_PLANNED {
                // The plan for all literals may have kernels of its own.
                session_of(&self.device)?.finish_compiling();
            }
            report.total_ms.push(run.planning_ms + run.execution_ms);
            report.kept += usize::from(run.is_kept);
            let compiled_modules = total_metrics(&Placement::of(&run.plan)).compiled_modules;
            if compiled_modules > 0 {
                report.compiled_modules += compiled_modules;
                report.compiled_with.push(parameters.values(number).join(", "));
            }
            if let Some(oracle) = &self.oracle {
                let expected = Reference::of(oracle, &sql).await?;
                if let Some(difference) = difference(oracle, &run, &expected).await? {
                    report.different.push(format!("{}: {difference}", parameters.values(number).join(", ")));
                }
            }
        }
        Ok(report)
    }
}

/// The run with the median total time.
fn median_run(mut runs: Vec<RunReport>) -> Option<RunReport> {
    runs.sort_by(|a, b| a.total_ms.total_cmp(&b.total_ms));
    runs.get(runs.len() / 2).cloned()
}

/// How an answer differs from the expected one; `None` if it does not.
async fn difference(oracle: &SessionContext, run: &TimedRun, expected: &Reference) -> Result<Option<String>> {
    let actual = Answer::new(Arc::clone(&run.schema), &run.batches)?;
    Ok(expected.difference(&actual, oracle).await?)
}

impl Measurement {
    /// What host threads do during one more run of a query.
    pub(super) async fn trace(&self, sql: &str) -> Result<Vec<TracedSpan>> {
        self.traced(sql).await.map(|(_, spans)| spans)
    }

    async fn traced(&self, sql: &str) -> Result<(TimedRun, Vec<TracedSpan>)> {
        begin_trace();
        let query = span(|| "query");
        let run = timed_run(&self.device, sql, self.entry).await;
        drop(query);
        let spans = end_trace();
        run.map(|run| (run, spans))
    }
}

/// The median time of at least one hot run. The oracle has run the query before, so the tables are warm.
async fn median_ms(stock: &SessionContext, sql: &str, hot_runs: usize) -> Result<f64> {
    let mut times_ms = vec![];
    for _ in 0..hot_runs.max(1) {
        let run = timed_run(stock, sql, Entry::Sql).await?;
        times_ms.push(run.planning_ms + run.execution_ms);
    }
    times_ms.sort_by(f64::total_cmp);
    Ok(times_ms[times_ms.len() / 2])
}

async fn timed_run(context: &SessionContext, sql: &str, entry: Entry) -> Result<TimedRun> {
    let start = Instant::now();
    let (is_kept, (plan, task)) = match entry {
        Entry::Query => {
            let query = context.query(sql).await?;
            (query.is_kept(), query.into_parts())
        }
        Entry::Sql => {
            let frame = context.sql(sql).await?;
            let task = Arc::new(frame.task_ctx());
            (false, (frame.create_physical_plan().await?, task))
        }
    };
    let planned = Instant::now();
    let batches = collect(Arc::clone(&plan), task).await?;
    Ok(TimedRun {
        planning_ms: (planned - start).as_secs_f64() * 1e3,
        execution_ms: planned.elapsed().as_secs_f64() * 1e3,
        schema: plan.schema(),
        plan,
        batches,
        is_kept,
    })
}
