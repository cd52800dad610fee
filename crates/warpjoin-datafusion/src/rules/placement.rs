//! What of a finished plan runs where, and why: for EXPLAIN, and for callers that report it.

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

/// The last rule: puts reasons above what stays on the CPU, and tells device nodes their depth.
#[derive(Debug)]
pub(crate) struct PlacementRule {
    runtime: Arc<WarpjoinRuntime>,
}

impl PlacementRule {
    /// Its name in the list of rules.
    pub(crate) const NAME: &'static str = "warpjoin_placement";

    pub(crate) fn new(runtime: Arc<WarpjoinRuntime>) -> Self {
        Self { runtime }
    }
}

impl PhysicalOptimizerRule for PlacementRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let options = config.extensions.get::<WarpjoinOptions>().cloned().unwrap_or_default();
        if !options.enabled || plan.is::<RefusedExec>() || !concerns_devices(&plan, &options)? {
            return Ok(plan);
        }
        let session = match self.runtime.devices(&options) {
            Devices::Open(session) => session,
            Devices::None(why) | Devices::Refused(why) => {
                return Ok(Arc::new(CpuReasonExec::new(plan, CpuReason(Reason::NoDevice(why)))));
            }
        };
        // The nodes were rebuilt since the first rule: ask again, and keep the answers only.
        let (_, declined) = rewrite(&plan, &session, &options, &[])?;
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

/// EXPLAIN ANALYZE shows what is below its own node.
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

/// What of a plan runs where.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// Parts on the devices, from the top.
    pub device: Vec<DevicePart>,
    /// Joins, aggregates and what else was declined on the CPU, from the top.
    pub cpu: Vec<CpuNode>,
    /// All that the CPU does besides reading and moving rows, from the top: what `warpjoin.strict` refuses.
    pub host_work: Vec<HostWork>,
}

/// A part of a plan that is on the devices.
#[derive(Debug, Clone)]
pub struct DevicePart {
    /// Hash joins in it.
    pub joins: usize,
    /// Aggregates in it, a partial and its final one counted once.
    pub aggregates: usize,
    /// Sorts in it, and first rows of an order.
    pub sorts: usize,
    /// Bytes of the resident columns that it scans, each column once.
    pub scanned_bytes: u64,
    /// What its last run cost, if the devices finished it.
    pub metrics: Option<QueryMetrics>,
    /// Why its last run fell back to the CPU.
    pub fallback: Option<Fallback>,
}

/// A node that stays on the CPU.
#[derive(Debug, Clone)]
pub struct CpuNode {
    /// Its name.
    pub name: String,
    /// Whether it is a join or an aggregate.
    pub is_operator: bool,
    /// Why it is there, if devices were asked.
    pub reason: Option<Reason>,
}

impl Placement {
    /// Reads a physical plan, before or after its execution.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut placement = Self { host_work: host_work(plan), ..Self::default() };
        placement.collect(plan, None);
        placement
    }

    /// Whether the CPU does nothing but read inputs and move rows, and no part fell back to it.
    pub fn is_wholly_on_devices(&self) -> bool {
        self.host_work.is_empty() && self.device.iter().all(|part| part.fallback.is_none())
    }

    /// Whether every join and aggregate is on the devices, and none fell back.
    pub fn is_on_devices(&self) -> bool {
        self.device.iter().all(|part| part.fallback.is_none()) && !self.cpu.iter().any(|node| node.is_operator)
    }

    /// Joins on the devices.
    pub fn joins(&self) -> usize {
        self.device.iter().map(|part| part.joins).sum()
    }

    /// Aggregates on the devices.
    pub fn aggregates(&self) -> usize {
        self.device.iter().map(|part| part.aggregates).sum()
    }

    /// Sorts on the devices, first rows of an order among them.
    pub fn sorts(&self) -> usize {
        self.device.iter().map(|part| part.sorts).sum()
    }

    fn collect(&mut self, node: &Arc<dyn ExecutionPlan>, reason: Option<&Reason>) {
        if let Some(above) = node.downcast_ref::<CpuReasonExec>() {
            return self.collect(above.input(), Some(above.reason()));
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
        } else if reason.is_some() || (is_operator(node) && !is_first_step(node)) {
            let name = node.name().to_string();
            self.cpu.push(CpuNode { name, is_operator: is_operator(node), reason: reason.cloned() });
        }
        node.children().into_iter().for_each(|child| self.collect(child, None));
    }
}

/// A partial aggregate is counted with its final one.
fn is_first_step(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce))
}
