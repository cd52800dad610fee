//! The optimizer rule that puts parts of a plan on the devices.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use warpjoin::Session;

use crate::config::WarpjoinOptions;
use crate::exec::WarpjoinExec;
use crate::matcher::{Closed, Declined, Matcher, may_start_part};
use crate::provider::no_device;
use crate::runtime::WarpjoinRuntime;
use crate::subqueries;

/// Replaces every maximal part of a plan that devices can run, and that holds at least one join or aggregate, or a sort of
/// a resident table, by a [`WarpjoinExec`].
///
/// Stands just before DataFusion's `EnsureRequirements`: plans have no repartitioning yet then, and
/// DataFusion fits what it needs around the new nodes.
#[derive(Debug)]
pub struct WarpjoinRule {
    runtime: Arc<WarpjoinRuntime>,
}

impl WarpjoinRule {
    /// Its name in the list of rules.
    pub const NAME: &'static str = "warpjoin";

    /// A rule that puts plans on the devices of `runtime`.
    pub fn new(runtime: Arc<WarpjoinRuntime>) -> Self {
        Self { runtime }
    }
}

impl PhysicalOptimizerRule for WarpjoinRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let options = config.extensions.get::<WarpjoinOptions>().cloned().unwrap_or_default();
        if !options.enabled || !holds_operator(&plan)? {
            return Ok(plan);
        }
        let Some(session) = self.runtime.session(&options)? else {
            return if options.strict { Err(no_device()) } else { Ok(plan) };
        };
        let (rewritten, declined) = rewrite(&plan, &session, &options)?;
        if options.strict {
            refuse(&declined)?;
        }
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

/// The plan with its parts replaced, and what stays with its reasons.
pub(crate) fn rewrite(
    plan: &Arc<dyn ExecutionPlan>,
    session: &Arc<Session>,
    options: &WarpjoinOptions,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<Declined>)> {
    let minimum_rows = if options.strict { 0 } else { options.minimum_rows };
    let make = |closed: Closed| Ok(Arc::new(WarpjoinExec::try_new(closed, Arc::clone(session), options)?));
    Matcher::new(session, minimum_rows, &make).rewrite(plan)
}

/// Whether there is anything to put on devices, so that a plan without it opens none.
fn holds_operator(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= is_operator(node) || may_start_part(node);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether the node is a join or an aggregate.
pub(crate) fn is_operator(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<AggregateExec>() || node.name().ends_with("JoinExec")
}

fn refuse(declined: &[Declined]) -> Result<()> {
    let why: Vec<String> = declined
        .iter()
        .filter(|declined| declined.is_operator)
        .map(|declined| format!("{}: {}", declined.node.name(), declined.reason))
        .collect();
    if why.is_empty() {
        return Ok(());
    }
    Err(DataFusionError::Plan(format!("warpjoin.strict is set and these can't run on the devices: {}", why.join("; "))))
}
