//! Sorts, top-k and limits: they join a part below them. A sort of a resident table starts a part, a sort of CPU rows does
//! not.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::partial_sort::PartialSortExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use warpjoin::Reason;
use warpjoin::plan::{Plan, PlanKind, SortKey};

use super::candidate::Operators;
use super::relation::{PhysicalExprs, Relation, checked};
use super::{Matcher, Outcome};

/// A sort or limit.
enum Step<'a> {
    Sort { ordering: &'a LexOrdering, fetch: Option<usize> },
    Limit { skip: usize, fetch: Option<usize> },
}

/// The input of a sort or limit node, and the step.
fn step(node: &Arc<dyn ExecutionPlan>) -> Option<(&Arc<dyn ExecutionPlan>, Step<'_>)> {
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        return Some((sort.input(), Step::Sort { ordering: sort.expr(), fetch: sort.fetch() }));
    }
    if let Some(sort) = node.downcast_ref::<PartialSortExec>() {
        return Some((sort.input(), Step::Sort { ordering: sort.expr(), fetch: sort.fetch() }));
    }
    // Devices sort all rows at once, so merging sorted partitions is a sort.
    if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
        return Some((merge.input(), Step::Sort { ordering: merge.expr(), fetch: merge.fetch() }));
    }
    if let Some(limit) = node.downcast_ref::<GlobalLimitExec>() {
        return Some((limit.input(), Step::Limit { skip: limit.skip(), fetch: limit.fetch() }));
    }
    if let Some(limit) = node.downcast_ref::<LocalLimitExec>() {
        return Some((limit.input(), Step::Limit { skip: 0, fetch: Some(limit.fetch()) }));
    }
    let merge = node.downcast_ref::<CoalescePartitionsExec>()?;
    merge.fetch().map(|fetch| (merge.input(), Step::Limit { skip: 0, fetch: Some(fetch) }))
}

/// Whether the node is a window.
pub(crate) fn is_window(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>()
}

impl Matcher<'_> {
    /// A sort or limit; `None` for other nodes.
    pub(super) fn sort(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Option<Outcome>> {
        let Some((input, step)) = step(node) else { return Ok(None) };
        let is_sort = matches!(step, Step::Sort { .. });
        let has_order = input.output_ordering().is_some();
        let offloads_all = self.offloads_all;
        let outcome = self.row_wise_with(
            node,
            input,
            |relation, operators| {
                // A sort does not justify an upload, and a sort of sorted rows is free.
                let counts =
                    offloads_all || operators.count() > 0 || matches!(source(&relation.plan), PlanKind::Scan { .. });
                let sorts = usize::from(is_sort && counts && !relation.plan.is_ordered());
                Operators { sorts, row_wise: usize::from(!is_sort), ..Operators::default() }
            },
            |relation| match step {
                Step::Sort { ordering, fetch } => relation.sort(ordering, fetch),
                Step::Limit { .. } if has_order && !relation.plan.has_first_rows() => {
                    Err(Reason::Node(format!("{} of ordered rows whose order the devices do not keep", node.name())))
                }
                Step::Limit { skip, fetch } => relation.limit(skip, fetch),
            },
        )?;
        Ok(Some(outcome))
    }
}

/// The source of a chain of nodes with one input.
fn source(plan: &Plan) -> &PlanKind {
    match plan.inputs().as_slice() {
        [input] => source(input),
        _ => &plan.kind,
    }
}

impl Relation {
    /// The sorted rows, or the first `fetch` of them.
    fn sort(&self, ordering: &LexOrdering, fetch: Option<usize>) -> Result<Relation, Reason> {
        let exprs: PhysicalExprs = ordering.iter().map(|key| Arc::clone(&key.expr)).collect();
        let keys = (self.translate_all(&exprs)?.into_iter().zip(ordering))
            .map(|(expr, key)| SortKey {
                expr,
                descending: key.options.descending,
                nulls_first: key.options.nulls_first,
            })
            .collect();
        let input = self.input();
        let kind = PlanKind::Sort { input, keys, skip: 0, fetch: fetch.map(|fetch| fetch as u64) };
        self.with(kind)
    }

    /// At most `fetch` rows after `skip` rows. The rows are any, unless the relation is sorted.
    pub(super) fn limit(&self, skip: usize, fetch: Option<usize>) -> Result<Relation, Reason> {
        let input = self.input();
        self.with(PlanKind::Limit { input, skip: skip as u64, fetch: fetch.map(|fetch| fetch as u64) })
    }

    fn with(&self, kind: PlanKind) -> Result<Relation, Reason> {
        checked(Plan { kind, schema: Arc::clone(&self.plan.schema) })
    }
}
