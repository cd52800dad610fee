//! The result of a node's last run, and its DataFusion metrics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricCategory};
use warpjoin::QueryMetrics;

use crate::fallback::Fallback;

/// State of a node between runs. Copies of the node with other children share it.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    /// Number of nodes above, for the indentation of EXPLAIN's extra lines.
    depth: AtomicUsize,
    last: Mutex<Option<LastRun>>,
}

#[derive(Debug, Clone)]
enum LastRun {
    Device(Box<QueryMetrics>),
    Fallback(Fallback),
}

impl NodeState {
    /// A copy without the last run.
    pub(super) fn fresh(&self) -> Self {
        Self { depth: AtomicUsize::new(self.depth()), last: Mutex::default() }
    }

    pub(super) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    pub(crate) fn set_depth(&self, depth: usize) {
        self.depth.store(depth, Ordering::Relaxed);
    }

    pub(super) fn metrics(&self) -> Option<QueryMetrics> {
        match &*self.last() {
            Some(LastRun::Device(metrics)) => Some(metrics.as_ref().clone()),
            _ => None,
        }
    }

    pub(super) fn fallback(&self) -> Option<Fallback> {
        match &*self.last() {
            Some(LastRun::Fallback(why)) => Some(why.clone()),
            _ => None,
        }
    }

    pub(super) fn ran(&self, metrics: QueryMetrics) {
        *self.last() = Some(LastRun::Device(Box::new(metrics)));
    }

    pub(super) fn fell_back(&self, why: Fallback) {
        *self.last() = Some(LastRun::Fallback(why));
    }

    fn last(&self) -> MutexGuard<'_, Option<LastRun>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the metrics of a run to those that EXPLAIN ANALYZE prints.
pub(super) fn record(set: &ExecutionPlanMetricsSet, metrics: &QueryMetrics, upload_ns: u64) {
    let builder = || MetricBuilder::new(set);
    for (name, elapsed_ns) in [
        ("optimizer_time", metrics.optimizer_ns),
        ("planning_time", metrics.planning_ns),
        ("compile_time", metrics.compile_ns),
        ("upload_time", upload_ns),
        ("permit_wait_time", metrics.permit_wait_ns),
        ("device_time", metrics.device_ns),
        ("kernel_time", metrics.kernel_ns),
        ("transfer_time", metrics.transfer_ns),
    ] {
        builder().subset_time(name, 0).add_duration(Duration::from_nanos(elapsed_ns));
    }
    let read_bytes = metrics.pipelines.iter().map(|pipeline| pipeline.read_bytes).sum();
    for (name, bytes) in [
        ("read_bytes", read_bytes),
        ("uploaded_bytes", metrics.uploaded_bytes),
        ("downloaded_bytes", metrics.downloaded_bytes),
        ("host_read_bytes", metrics.host_read_bytes),
        ("spilled_bytes", metrics.spilled_bytes),
        ("exchanged_bytes", metrics.exchanged_bytes),
    ] {
        builder().with_category(MetricCategory::Bytes).counter(name, 0).add(saturated(bytes));
    }
    builder().peak_memory_usage("peak_device_bytes", 0).set(saturated(metrics.peak_bytes));
    builder().counter("launches", 0).add(saturated(metrics.launches));
    builder().counter("compiled_modules", 0).add(saturated(metrics.compiled_modules));
    if metrics.interpreted_kernels > 0 {
        builder().counter("interpreted_kernels", 0).add(saturated(metrics.interpreted_kernels));
    }
}

/// Counts the row groups that were read of files instead of all.
pub(super) fn record_row_groups(set: &ExecutionPlanMetricsSet, chosen: usize, all: usize) {
    MetricBuilder::new(set).counter("row_groups_read", 0).add(chosen);
    MetricBuilder::new(set).counter("row_groups_pruned", 0).add(all - chosen);
}

/// Counts a fallback to the CPU.
pub(super) fn record_fallback(set: &ExecutionPlanMetricsSet, why: &Fallback) {
    MetricBuilder::new(set).counter("fallbacks", 0).add(1);
    if why.is_fault() {
        MetricBuilder::new(set).counter("faults", 0).add(1);
    }
}

fn saturated(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
