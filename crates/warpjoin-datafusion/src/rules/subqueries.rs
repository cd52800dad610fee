//! Shares group-bys between scalar subqueries and the queries around them.
//!
//! DataFusion runs a subquery before the query that needs its value. If both group the same rows, the subquery's part
//! leaves the groups on the devices, and the query's part reads them. Must not decide which plans are equal
//! (`warpjoin::plan::share_between`).

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use warpjoin::exec::SharedRows;
use warpjoin::plan::Plan;
use warpjoin::share_between;

use crate::exec::WarpjoinExec;

/// Makes the parts of subqueries and of the queries around them share group-bys.
pub(crate) fn share(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    // New device plans of the parts that share something, by the address of their nodes.
    let mut changed: HashMap<usize, Plan> = HashMap::new();
    plan.apply(|node| {
        if let Some(level) = node.downcast_ref::<ScalarSubqueryExec>() {
            let (mut first, mut later) = (vec![], vec![]);
            level.subqueries().iter().for_each(|subquery| parts(&subquery.plan, &mut first));
            parts(level.input(), &mut later);
            for first in first {
                later.iter().for_each(|later| share_parts(first, later, &mut changed));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if changed.is_empty() {
        return Ok(plan);
    }
    let shared_rows = SharedRows::default();
    plan.transform_down(|node| {
        let plan = changed.get(&address(&node)).cloned();
        Ok(match (plan, node.downcast_ref::<WarpjoinExec>()) {
            (Some(plan), Some(part)) => {
                Transformed::yes(Arc::new(part.with_plan(plan, &shared_rows)) as Arc<dyn ExecutionPlan>)
            }
            _ => Transformed::no(node),
        })
    })
    .data()
}

fn share_parts(first: &Arc<dyn ExecutionPlan>, later: &Arc<dyn ExecutionPlan>, changed: &mut HashMap<usize, Plan>) {
    let plan_of = |node: &Arc<dyn ExecutionPlan>| {
        let own = || node.downcast_ref::<WarpjoinExec>().map(|part| part.plan().clone());
        changed.get(&address(node)).cloned().or_else(own)
    };
    if let (Some(mut earlier), Some(mut after)) = (plan_of(first), plan_of(later))
        && share_between(&mut earlier, &mut after)
    {
        changed.extend([(address(first), earlier), (address(later), after)]);
    }
}

/// The device parts of a plan, without those of its subqueries.
fn parts<'a>(plan: &'a Arc<dyn ExecutionPlan>, into: &mut Vec<&'a Arc<dyn ExecutionPlan>>) {
    if plan.is::<WarpjoinExec>() {
        into.push(plan);
    }
    match plan.downcast_ref::<ScalarSubqueryExec>() {
        Some(level) => parts(level.input(), into),
        None => plan.children().into_iter().for_each(|child| parts(child, into)),
    }
}

fn address(node: &Arc<dyn ExecutionPlan>) -> usize {
    Arc::as_ptr(node).addr()
}
