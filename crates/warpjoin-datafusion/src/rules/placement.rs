//! Which nodes of a finished plan run on devices, and why the others do not: for EXPLAIN and for reports.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use warpjoin::{QueryMetrics, Reason};

use crate::config::WarpjoinOptions;
use crate::exec::WarpjoinExec;
use crate::fallback::Fallback;
use crate::rules::host_work::{HostWork, host_work};
use crate::rules::reason::{CpuReason, CpuReasonExec};
use crate::rules::rule::{concerns_devices, is_operator, rewrite};
use crate::rules::strict::{RefusedExec, enforce};
use crate::runtime::{Devices, WarpjoinRuntime};

/// The last rule. Annotates nodes that stay on the CPU with reasons, and tells device nodes their depth.
#[derive(Debug)]
pub(crate) struct PlacementRule {
    runtime: Arc<WarpjoinRuntime>,
}

impl PlacementRule {
    /// The rule's name.
    pub(crate) const NAME: &'static str = "warpjoin_placement";

    pub(crate) fn new(runtime: Arc<WarpjoinRuntime>) -> Self {
        Self { runtime }
    }
}

impl PhysicalOptimizerRule for PlacementRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let options = config.extensions.get::<WarpjoinOptions>().cloned().unwrap_or_default();
        if !options.enabled || plan.is::<RefusedExec>() || !concerns_devices(&plan, &options, &self.runtime)? {
            return Ok(plan);
        }
        let session = match self.runtime.devices(&options) {
            Devices::Open(session) => session,
            Devices::None(why) | Devices::Refused(why) => {
                return Ok(Arc::new(CpuReasonExec::new(plan, CpuReason(Reason::NoDevice(why)))));
            }
        };
        // Other rules have rebuilt the nodes since the first rule. So match again, and keep only the reasons.
        let (_, declined) = rewrite(&plan, &session, &options, &self.runtime)?;
        let mut reasons: HashMap<usize, Reason> =
            declined.into_iter().map(|declined| (address(&declined.node), declined.reason)).collect();
        let plan = annotate(&plan, &mut reasons)?;
        let plan = if options.strict { enforce(plan, options.strict_rows)? } else { plan };
        set_depths(&plan);
        Ok(plan)
    }

    fn name(&self) -> &str {
        Self::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn address(node: &Arc<dyn ExecutionPlan>) -> usize {
    Arc::as_ptr(node).cast::<()>() as usize
}

fn annotate(node: &Arc<dyn ExecutionPlan>, reasons: &mut HashMap<usize, Reason>) -> Result<Arc<dyn ExecutionPlan>> {
    let children = node.children().into_iter().map(|child| annotate(child, reasons)).collect::<Result<Vec<_>>>()?;
    let annotated = replace_children_if_necessary(Arc::clone(node), children)?;
    Ok(match reasons.remove(&address(node)) {
        Some(reason) => Arc::new(CpuReasonExec::new(annotated, CpuReason(reason))),
        None => annotated,
    })
}

/// Tells device nodes their depth in the tree that EXPLAIN prints. EXPLAIN ANALYZE prints only the plan below its own node.
fn set_depths(plan: &Arc<dyn ExecutionPlan>) {
    fn set(node: &Arc<dyn ExecutionPlan>, depth: usize) {
        if let Some(device) = node.downcast_ref::<WarpjoinExec>() {
            device.state().set_depth(depth);
        }
        node.children().into_iter().for_each(|child| set(child, depth + 1));
    }
    match plan.downcast_ref::<AnalyzeExec>() {
        Some(analyze) => set(analyze.input(), 0),
        None => set(plan, 0),
    }
}

/// Which nodes of a plan run on devices.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// Device parts, from the top of the plan.
    pub device: Vec<DevicePart>,
    /// Joins, aggregates and declined nodes on the CPU, from the top of the plan.
    pub cpu: Vec<CpuNode>,
    /// All work on the CPU, from the top of the plan. `warpjoin.strict` refuses it.
    pub host_work: Vec<HostWork>,
}

/// A part of a plan that runs on the devices.
#[derive(Debug, Clone)]
pub struct DevicePart {
    /// Number of joins.
    pub joins: usize,
    /// Number of aggregates; a partial and its final one count once.
    pub aggregates: usize,
    /// Number of sorts, top-k operators and windows.
    pub sorts: usize,
    /// Bytes of the resident columns that it scans, each column once.
    pub scanned_bytes: u64,
    /// Metrics of its last run, if the devices finished it.
    pub metrics: Option<QueryMetrics>,
    /// Why its last run fell back to the CPU.
    pub fallback: Option<Fallback>,
}

/// A node that stays on the CPU.
#[derive(Debug, Clone)]
pub struct CpuNode {
    /// The node's name.
    pub name: String,
    /// Whether it is a join or an aggregate.
    pub is_operator: bool,
    /// Why the matcher declined it, if it did.
    pub reason: Option<Reason>,
}

impl Placement {
    /// Reads a physical plan before or after its execution.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut placement = Self { host_work: host_work(plan), ..Self::default() };
        placement.collect(plan, None);
        placement
    }

    /// Whether the CPU only reads inputs and moves rows, and no part fell back to it.
    pub fn is_wholly_on_devices(&self) -> bool {
        self.host_work.is_empty() && self.device.iter().all(|part| part.fallback.is_none())
    }

    /// Whether all joins and aggregates are on the devices, and no part fell back.
    pub fn is_on_devices(&self) -> bool {
        self.device.iter().all(|part| part.fallback.is_none()) && !self.cpu.iter().any(|node| node.is_operator)
    }

    /// Number of joins on the devices.
    pub fn joins(&self) -> usize {
        self.device.iter().map(|part| part.joins).sum()
    }

    /// Number of aggregates on the devices.
    pub fn aggregates(&self) -> usize {
        self.device.iter().map(|part| part.aggregates).sum()
    }

    /// Number of sorts, top-k operators and windows on the devices.
    pub fn sorts(&self) -> usize {
        self.device.iter().map(|part| part.sorts).sum()
    }

    fn collect(&mut self, node: &Arc<dyn ExecutionPlan>, reason: Option<&Reason>) {
        if let Some(annotation) = node.downcast_ref::<CpuReasonExec>() {
            return self.collect(annotation.input(), Some(annotation.reason()));
        }
        if let Some(device) = node.downcast_ref::<WarpjoinExec>() {
            self.device.push(DevicePart {
                joins: device.joins(),
                aggregates: device.aggregates(),
                sorts: device.sorts(),
                scanned_bytes: device.plan().scanned_bytes(),
                metrics: device.last_metrics(),
                fallback: device.last_fallback(),
            });
        } else if reason.is_some() || (is_operator(node) && !is_partial_aggregate(node)) {
            let name = node.name().to_string();
            self.cpu.push(CpuNode { name, is_operator: is_operator(node), reason: reason.cloned() });
        }
        node.children().into_iter().for_each(|child| self.collect(child, None));
    }
}

/// Partial aggregates are not counted; their final aggregates are.
fn is_partial_aggregate(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce))
}
