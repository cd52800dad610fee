//! Sorts, first rows and limits: they join a part that is on the devices already. A sort of a resident table starts one,
//! a sort of CPU rows does not.

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

/// What a node does to the order and the number of rows.
enum Step<'a> {
    Sort { ordering: &'a LexOrdering, fetch: Option<usize> },
    Limit { skip: usize, fetch: Option<usize> },
}

/// The input of a sort or limit, and what it is.
fn step(node: &Arc<dyn ExecutionPlan>) -> Option<(&Arc<dyn ExecutionPlan>, Step<'_>)> {
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        return Some((sort.input(), Step::Sort { ordering: sort.expr(), fetch: sort.fetch() }));
    }
    if let Some(sort) = node.downcast_ref::<PartialSortExec>() {
        return Some((sort.input(), Step::Sort { ordering: sort.expr(), fetch: sort.fetch() }));
    }
    // Sorted partitions of one another are what the devices sort as a whole.
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
        let takes_all = self.takes_all;
        let outcome = self.row_wise_with(
            node,
            input,
            |relation, operators| {
                // Of rows that are only uploaded, or in order already, a sort is not worth a part.
                let is_worth =
                    takes_all || operators.count() > 0 || matches!(source(&relation.plan), PlanKind::Scan { .. });
                let sorts = usize::from(is_sort && is_worth && !relation.plan.is_ordered());
                Operators { sorts, row_wise: usize::from(!is_sort), ..Operators::default() }
            },
            |relation| match step {
                Step::Sort { ordering, fetch } => relation.sort(ordering, fetch),
                Step::Limit { .. } if has_order && !relation.plan.has_first_rows() => {
                    Err(Reason::Node(format!("{} of rows whose order the devices do not keep", node.name())))
                }
                Step::Limit { skip, fetch } => relation.limit(skip, fetch),
            },
        )?;
        Ok(Some(outcome))
    }
}

/// Where the rows of a chain of filters, projections and sorts come from.
fn source(plan: &Plan) -> &PlanKind {
    match plan.inputs().as_slice() {
        [input] => source(input),
        _ => &plan.kind,
    }
}

impl Relation {
    /// The rows in an order, or the first ones.
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

    /// Some of the rows, or the next ones of an order.
    pub(super) fn limit(&self, skip: usize, fetch: Option<usize>) -> Result<Relation, Reason> {
        let input = self.input();
        self.with(PlanKind::Limit { input, skip: skip as u64, fetch: fetch.map(|fetch| fetch as u64) })
    }

    fn with(&self, kind: PlanKind) -> Result<Relation, Reason> {
        checked(Plan { kind, schema: Arc::clone(&self.plan.schema) })
    }
}
