//! The optimizer rule that replaces parts of a plan by device nodes.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use warpjoin::Session;

use crate::config::{CacheSettings, WarpjoinOptions};
use crate::exec::WarpjoinExec;
use crate::matcher::{Closed, Declined, Matcher, is_window};
use crate::rules::host_work::host_work;
use crate::rules::strict::{Refusal, RefusedExec};
use crate::rules::subqueries;
use crate::runtime::{Devices, WarpjoinRuntime};
use crate::table::provider::no_device_message;
use crate::table::scan::DeviceScanExec;

/// Replaces each maximal part of a plan that devices support by a [`WarpjoinExec`].
///
/// Joins, aggregates and windows start a part: rows of other sources are uploaded for them. Over resident tables and cached
/// columns, sorts, filters, computed columns, limits and unions start a part, too.
///
/// The rule runs right before DataFusion's `EnsureRequirements`. At that point plans have no repartitioning yet, and
/// DataFusion adds what it needs around the new nodes.
#[derive(Debug)]
pub struct WarpjoinRule {
    runtime: Arc<WarpjoinRuntime>,
}

impl WarpjoinRule {
    /// The rule's name.
    pub const NAME: &'static str = "warpjoin";

    /// A rule that offloads plans to the devices of `runtime`.
    pub fn new(runtime: Arc<WarpjoinRuntime>) -> Self {
        Self { runtime }
    }
}

impl PhysicalOptimizerRule for WarpjoinRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let options = config.extensions.get::<WarpjoinOptions>().cloned().unwrap_or_default();
        if !options.enabled || !concerns_devices(&plan, &options, &self.runtime)? {
            return Ok(plan);
        }
        let session = match self.runtime.devices(&options) {
            Devices::Open(session) => session,
            Devices::None(why) if options.strict => return Ok(refused(plan, no_device_message(&why))),
            // `PlacementRule` adds the reason.
            Devices::None(_) => return Ok(plan),
            Devices::Refused(why) => return Ok(refused(plan, why)),
        };
        let (rewritten, declined) = rewrite(&plan, &session, &options, &self.runtime)?;
        for Declined { node, reason, .. } in &declined {
            log::debug!("{} stays on the CPU: {reason}", node.name());
        }
        subqueries::share(rewritten)
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Replaces the parts that devices support. Also returns the declined nodes with their reasons.
pub(crate) fn rewrite(
    plan: &Arc<dyn ExecutionPlan>,
    session: &Arc<Session>,
    options: &WarpjoinOptions,
    runtime: &WarpjoinRuntime,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<Declined>)> {
    let minimum_rows = if options.strict { 0 } else { options.minimum_rows };
    let left_out = runtime.left_out(session);
    let make = |closed: Closed| Ok(Arc::new(WarpjoinExec::try_new(closed, Arc::clone(session), options, &left_out)?));
    let matcher = Matcher::new(session, minimum_rows, options.strict, &make);
    let fills_cache = options.strict || plan.exists(|node| Ok(starts_a_part(node)))?;
    matcher.with_cache(runtime.cache(session), CacheSettings::of(options), fills_cache).rewrite(plan)
}

/// A plan that EXPLAIN shows, but that fails when it runs.
fn refused(plan: Arc<dyn ExecutionPlan>, why: String) -> Arc<dyn ExecutionPlan> {
    Arc::new(RefusedExec::new(plan, Refusal::Devices(why)))
}

/// Whether a plan has nodes that devices may run; with `strict`, any work. Plans without such nodes open no devices. If
/// there are cached columns, devices are open, and may also run nodes that read files.
pub(crate) fn concerns_devices(
    plan: &Arc<dyn ExecutionPlan>,
    options: &WarpjoinOptions,
    runtime: &WarpjoinRuntime,
) -> Result<bool> {
    let has_cached = runtime.caches().iter().any(|(_, cache)| !cache.is_empty());
    let is_device_work = plan.exists(|node| {
        let is_on_devices = node.is::<DeviceScanExec>() || node.is::<WarpjoinExec>();
        Ok(starts_a_part(node) || is_on_devices || has_cached && node.is::<DataSourceExec>())
    })?;
    Ok(is_device_work || options.strict && !host_work(plan).is_empty())
}

/// Whether the node starts a part over any input.
fn starts_a_part(node: &Arc<dyn ExecutionPlan>) -> bool {
    is_operator(node) || is_window(node)
}

/// Whether the node is a join or an aggregate.
pub(crate) fn is_operator(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<AggregateExec>() || node.name().ends_with("JoinExec")
}
