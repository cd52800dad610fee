//! Plans a query once: the query planner that finds kept plans, and queries by text.
//!
//! Must not know how kept plans are stored ([`crate::kept`]), or which parts of a plan devices run ([`crate::matcher`]).

mod check;
mod eligible;
mod files;
mod gone;
mod parameters;
pub(crate) mod query;

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session as CatalogSession;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::SessionState;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use warpjoin::exec::SharedRows;

use crate::config::WarpjoinOptions;
use crate::exec::WarpjoinExec;
use crate::kept::{Bound, Files, Instance, KeptPlan, KeptPlans, LeasedExec, Listing, LogicalKey, Stage};
use crate::rules::strict::RefusedExec;
use crate::runtime::{Devices, WarpjoinRuntime};

use eligible::Tables;

/// Plans queries with another planner, and keeps the plans of queries over resident tables and cached columns of files.
///
/// DataFusion calls it with an optimized logical plan, so parsing and logical optimization are done for each query.
#[derive(Debug)]
pub(crate) struct KeepingPlanner {
    inner: Arc<dyn QueryPlanner + Send + Sync>,
    runtime: Arc<WarpjoinRuntime>,
}

impl KeepingPlanner {
    /// A planner that uses `inner` for plans that are not kept.
    pub(crate) fn new(inner: Arc<dyn QueryPlanner + Send + Sync>, runtime: Arc<WarpjoinRuntime>) -> Self {
        Self { inner, runtime }
    }

    /// The inner planner of `planner`; `planner` itself if it is of another type.
    pub(crate) fn inner_of(planner: &Arc<dyn QueryPlanner + Send + Sync>) -> &Arc<dyn QueryPlanner + Send + Sync> {
        let any: &dyn Any = planner.as_ref();
        any.downcast_ref::<Self>().map_or(planner, |ours| &ours.inner)
    }

    /// The plan that was kept for `logical`, or a new one, which is kept from now on.
    async fn kept_or_new(
        &self,
        logical: &LogicalPlan,
        tables: Tables,
        session: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (options, kept) = (options_of(session), self.runtime.kept_plans());
        let ids = tables.ids.clone();
        let key =
            LogicalKey { environment: kept.environment(session), stage: Stage::Optimized, tables: ids, plan: logical };
        let known = current(kept.find(&key), session, kept).await;
        if let Some(known) = &known
            && let Some(plan) = instance(known, &self.runtime, &options)?
        {
            if options.check_plans {
                check::check(&plan, &self.inner.create_physical_plan(logical, session).await?)?;
            }
            return Ok(plan);
        }
        let listings = tables.listings(session).await;
        let plan = self.inner.create_physical_plan(logical, session).await?;
        let home = listings.and_then(|listings| keepable(&plan, &tables, listings, &self.runtime, &options));
        let Some(home) = home else { return Ok(plan) };
        if let Some(known) = known
            && known.plan.reads_same(&home)
        {
            // Other queries run all instances of the known plan: this one is another.
            return known.plan.add_lent(Instance::of(plan), fresh);
        }
        let plan = home.add_lent(Instance::of(plan), fresh)?;
        kept.keep(key, eligible::without_tables(logical)?, Bound::of(home), options.kept_plans);
        Ok(plan)
    }
}

#[async_trait]
impl QueryPlanner for KeepingPlanner {
    async fn create_physical_plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn CatalogSession,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        gone::refuse_missing_files(logical)?;
        if let Some(state) = session.as_any().downcast_ref::<SessionState>()
            && keeps_plans(state)
            && let Some(tables) = eligible::tables(logical, self.runtime.kept_plans())
        {
            return self.kept_or_new(logical, tables, state).await;
        }
        self.inner.create_physical_plan(logical, session).await
    }
}

fn options_of(session: &SessionState) -> WarpjoinOptions {
    session.config_options().extensions.get::<WarpjoinOptions>().cloned().unwrap_or_default()
}

fn keeps_plans(session: &SessionState) -> bool {
    let options = session.config_options().extensions.get::<WarpjoinOptions>();
    options.is_some_and(|options| options.enabled && options.kept_plans > 0)
}

/// A kept plan, if the files that it reads are unchanged. Otherwise the plan is dropped.
async fn current(known: Option<Bound>, session: &SessionState, kept: &KeptPlans) -> Option<Bound> {
    let known = known?;
    if known.plan.files().are_current(session).await {
        return Some(known);
    }
    kept.forget(&known.plan);
    None
}

/// An instance of a kept plan. `None` if other queries use all instances, or if it is for devices that were lost.
fn instance(
    kept: &Bound,
    runtime: &WarpjoinRuntime,
    options: &WarpjoinOptions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let plan = kept.plan.instance(&kept.values, fresh, bound)?;
    Ok(plan.filter(|plan| runs_on_open_devices(plan, runtime, options)))
}

/// A copy of a plan without the state of a run. Its parts share rows only with each other.
fn fresh(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let shared_rows = SharedRows::default();
    plan.transform_up(|node| {
        let node = node.reset_state()?;
        Ok(Transformed::yes(match node.downcast_ref::<WarpjoinExec>() {
            Some(part) => Arc::new(part.with_shared_rows(&shared_rows)),
            None => node,
        }))
    })
    .data()
}

/// The plan whose device parts have the values that parameters have now. CPU nodes read them when they run.
fn bound(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let bound = Arc::clone(plan).transform_up(|node| match node.downcast_ref::<WarpjoinExec>() {
        Some(part) => Ok(Transformed::yes(Arc::new(part.bound()) as Arc<dyn ExecutionPlan>)),
        None => Ok(Transformed::no(node)),
    });
    bound.data()
}

fn runs_on_open_devices(plan: &Arc<dyn ExecutionPlan>, runtime: &WarpjoinRuntime, options: &WarpjoinOptions) -> bool {
    let Devices::Open(session) = runtime.devices(options) else { return false };
    let is_elsewhere = |node: &Arc<dyn ExecutionPlan>| {
        node.downcast_ref::<WarpjoinExec>().is_some_and(|part| !Arc::ptr_eq(part.session(), &session))
    };
    plan.exists(|node| Ok(is_elsewhere(node))).is_ok_and(|found| !found)
}

/// The form in which to keep a new plan over `tables`, whose files were listed before planning. `None` if it can't run
/// twice, reads files when it runs, or was made without devices.
fn keepable(
    plan: &Arc<dyn ExecutionPlan>,
    tables: &Tables,
    listings: Vec<Listing>,
    runtime: &WarpjoinRuntime,
    options: &WarpjoinOptions,
) -> Option<Arc<KeptPlan>> {
    let has = |is_it: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool| plan.exists(|node| Ok(is_it(node))).ok();
    let is_kept = !has(&|node| node.is::<RefusedExec>() || node.is::<LeasedExec>() || eligible::runs_once(node))?
        && runs_on_open_devices(plan, runtime, options);
    if !is_kept {
        return None;
    }
    let files = if listings.is_empty() { Files::default() } else { files::files(plan, listings, runtime, options)? };
    let tables = tables.ids.clone();
    Some(match has(&|node| node.is::<ScalarSubqueryExec>())? {
        true => KeptPlan::of_instances(tables, files),
        false => KeptPlan::of_copies(plan, tables, files),
    })
}
