//! Runs device plans.
//!
//! Owns hash tables, exchange between devices, group tables and results. Must not know SQL, nor how plans are cut into
//! pipelines, nor how code is generated beyond a pipeline's shape.

mod check;
mod decision;
mod entry_kernels;
mod exchange;
mod execution;
mod explain;
mod group;
pub(crate) mod join;
mod launch;
mod metrics;
pub(crate) mod partition;
mod place;
mod query;
mod relation;
mod rows;
mod sort;
mod string_tests;
mod window;

use std::cell::Cell;
use std::sync::Arc;

use arrow::array::RecordBatch;
use warpjoin_codegen::RowSpec;
use warpjoin_codegen::forget;
use warpjoin_columns::{Error, Reason, Result, Table};
use warpjoin_device::{Cause, Device};
use warpjoin_plan::optimize::{Optimized, optimize, pipelines};
use warpjoin_plan::plan::Plan;

pub use check::{check, check_node};
pub use explain::{Explanation, explain};
pub(crate) use launch::Strides;
pub use metrics::{PipelineMetrics, QueryMetrics};
pub use query::{Inputs, OptimizedPlan};
pub use relation::SharedRows;
#[doc(inline)]
pub use warpjoin_plan::options::{
    CodeTier, DeviceThreads, Distribution, ExecOptions, GroupByForm, JoinForm, JoinOrder, Materialization, MemoryUse,
    RuntimeFilters,
};

use crate::Session;
use place::Place;
use query::{Execution, Query};
use relation::{PartitionedRows, PassBits, Relation};

/// Result of a query.
#[derive(Debug)]
pub struct QueryOutput {
    /// Rows, in the plan's order if it has one, in batches of [`ExecOptions::batch_rows`]; schema of the plan.
    pub batches: Vec<RecordBatch>,
    /// Its cost.
    pub metrics: QueryMetrics,
}

/// Runs `plan` on the devices of `session`, and fetches the result, as [`run_with`] does. `inputs` are the tables of the
/// plan's `Input` nodes, by index.
///
/// # Errors
/// As [`run_with`].
pub fn run(session: &Arc<Session>, plan: &Plan, inputs: &[Arc<Table>], options: &ExecOptions) -> Result<QueryOutput> {
    run_with(session, plan, &inputs.into(), options)
}

/// Runs `plan` and fetches the result. The query runs on one device if all tables were loaded to the
/// [`Session::member`] of that device, else on all devices of `session`. Blocks; [`ExecOptions::cancel`] stops it.
///
/// # Errors
/// When a device fails or has no memory, the data overflows, divides by zero or can't be cast, the
/// plan needs something that devices can't do, or the query is cancelled. All memory is given back.
pub fn run_with(session: &Arc<Session>, plan: &Plan, inputs: &Inputs, options: &ExecOptions) -> Result<QueryOutput> {
    let mut batches = vec![];
    let metrics = run_in_pieces(session, plan, inputs, options, &mut |piece| {
        batches.extend(piece);
        true
    })?;
    Ok(QueryOutput { batches, metrics })
}

/// Runs `plan` as [`run_with`] does, and passes the result to `take`, about a million rows at a time, until `take`
/// returns false. The remaining rows stay on the devices, or in host memory if these have no room.
///
/// # Errors
/// As [`run_with`]. After the first call of `take`, only if a device fails.
pub fn run_in_pieces(
    session: &Arc<Session>,
    plan: &Plan,
    inputs: &Inputs,
    options: &ExecOptions,
    take: &mut dyn FnMut(Vec<RecordBatch>) -> bool,
) -> Result<QueryMetrics> {
    let has_left = Cell::new(false);
    let mut take = |piece| {
        has_left.set(true);
        take(piece)
    };
    let mut fetch = |query: &mut Query<'_>, relation| query.fetch(relation, &plan.schema, &mut take);
    Ok(with_query(&Place::of(session, plan, inputs)?, plan, options, &mut fetch, &|| has_left.get())?.1)
}

/// Runs `plan` as [`run`] does, and leaves the result on the devices. Also returns the cost.
///
/// # Errors
/// As [`run_with`].
pub fn run_to_table(
    session: &Arc<Session>,
    plan: &Plan,
    inputs: &[Arc<Table>],
    options: &ExecOptions,
) -> Result<(Table, QueryMetrics)> {
    let place = Place::of(session, plan, &inputs.into())?;
    let mut keep = |query: &mut Query<'_>, relation| query.keep(relation, &plan.schema);
    with_query(&place, plan, options, &mut keep, &|| false)
}

/// Runs `plan` as [`run`] does, and partitions the rows on each device separately. Also returns the cost.
///
/// # Errors
/// As [`run_with`].
pub(crate) fn run_to_partitions(
    session: &Arc<Session>,
    plan: &Plan,
    spec: RowSpec,
    bits: PassBits,
    options: &ExecOptions,
) -> Result<(PartitionedRows, QueryMetrics)> {
    let mut partition = |query: &mut Query<'_>, relation| {
        let planned = query.plan_partition(relation, spec.clone(), bits)?;
        match query.obstacle(&[&planned], true) {
            Some(obstacle) => Err(Reason::from(obstacle).into()),
            None => query.partition(planned),
        }
    };
    with_query(&Place::on_all(session), plan, options, &mut partition, &|| false)
}

/// Finishes a query, given the source and steps of its last pipeline.
type Finish<'f, T> = dyn FnMut(&mut Query<'_>, Relation) -> Result<T> + 'f;

/// Runs a plan up to its last pipeline, and passes that to `finish`. A query that runs out of device memory begins
/// again with [`MemoryUse::Least`], unless result rows have left the devices (`has_left`).
fn with_query<T>(
    place: &Place,
    plan: &Plan,
    options: &ExecOptions,
    finish: &mut Finish<'_, T>,
    has_left: &dyn Fn() -> bool,
) -> Result<(T, QueryMetrics)> {
    check(plan)?;
    let moved;
    let devices = place.session.device_set();
    let plan = match plan.tables().iter().all(|table| Arc::ptr_eq(table.devices(), devices)) {
        true => plan,
        false => {
            moved = plan.clone().on(devices)?;
            &moved
        }
    };
    match optimize_and_execute(place, plan, options, place.inputs.optimized.as_ref(), finish) {
        Err(error) if error.cause() == Cause::OutOfMemory && options.memory_use == MemoryUse::Auto && !has_left() => {
            log::debug!("a query begins again with the least memory: {error}");
            let options = options.with_least_memory();
            let (result, mut metrics) = optimize_and_execute(place, plan, &options, None, finish)?;
            metrics.decisions.push("memory: joins one at a time, as all of them had no room".into());
            Ok((result, metrics))
        }
        outcome => outcome,
    }
}

/// Runs a plan whose tables lie on the devices of a place. Optimizes it first, unless `kept` has the optimized plan.
fn optimize_and_execute<T>(
    place: &Place,
    plan: &Plan,
    options: &ExecOptions,
    kept: Option<&OptimizedPlan>,
    finish: &mut Finish<'_, T>,
) -> Result<(T, QueryMetrics)> {
    let Place { session, inputs, .. } = place;
    let optimize = || optimize(plan, &inputs.tables, session.device_set(), session.orders(), options);
    let (mut new, mut elapsed_ns) = (None, 0);
    let mut timed = || {
        let optimized = optimize()?;
        elapsed_ns = optimized.elapsed_ns;
        Ok(optimized)
    };
    let Optimized { plan, notes, .. } = match kept {
        Some(kept) => kept.get_or_make(timed)?,
        None => new.insert(timed()?),
    };
    let (physical, bindings) = pipelines(plan, session.devices(), &inputs.tables, options);
    if plan.is_ordered() && !physical.output().is_ordered {
        return Err(Error::internal("pipelines that lose the order of their plan"));
    }
    let mut execution = Execution::new(&physical, &bindings, inputs)?;
    let planned_over = execution.tables.clone();
    let session = &place.running(&mut execution, options);
    let _running = session.device_set().enter();
    for device in session.devices() {
        device.memory().reset_peak();
    }
    let result = execute(session, &execution, inputs, options, finish);
    if !options.remembers_results {
        for table in planned_over.iter().chain(&execution.tables) {
            table.forget_results();
            table.column_types().iter().filter_map(|column| column.dictionary.as_deref()).for_each(forget);
        }
        session.pipelines().forget_results();
    }
    let (result, metrics) = result?;
    Ok((result, QueryMetrics { optimizer_ns: elapsed_ns, decisions: notes.clone(), ..metrics }))
}

/// Runs an execution of an optimized plan up to its last pipeline, and passes that to `finish`.
fn execute<T>(
    session: &Arc<Session>,
    execution: &Execution<'_>,
    inputs: &Inputs,
    options: &ExecOptions,
    finish: &mut Finish<'_, T>,
) -> Result<(T, QueryMetrics)> {
    let mut query = Query::new(session, inputs, options)?;
    let outcome = query.run_pipelines(execution).and_then(|relation| finish(&mut query, relation));
    let result = query.end(outcome)?;
    let host_decisions = query.host_decisions();
    let mut metrics = QueryMetrics { host_decisions, ..std::mem::take(&mut query.metrics) };
    metrics.devices = session.devices().iter().map(Device::label).collect();
    metrics.peak_bytes = session.devices().iter().map(|device| device.memory().peak_bytes()).max().unwrap_or(0);
    Ok((result, metrics))
}
