//! Orders that were chosen before, so that other literals do not call for other kernels without need.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::graph::Graph;
use super::tree::Tree;
use crate::plan::{Plan, PlanKind};

/// Graphs that are remembered; after so many, from the start.
const GRAPHS_MAX: usize = 1024;

/// The order that was last chosen for each shape of a graph: its tables and keys, whatever is compared with what.
#[derive(Debug, Default)]
pub struct Orders(Mutex<HashMap<String, Tree>>);

impl Orders {
    pub(in crate::optimize) fn get(&self, shape: &str) -> Option<Tree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(shape).cloned()
    }

    pub(in crate::optimize) fn put(&self, shape: String, order: Tree) {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.len() >= GRAPHS_MAX {
            orders.clear();
        }
        orders.insert(shape, order);
    }
}

/// The shape of a graph. Two graphs of one shape may differ: an order is tried before it is taken.
pub(in crate::optimize) fn shape_of(graph: &Graph) -> String {
    let relations: Vec<String> = graph.relations.iter().map(|node| shape_of_plan(&node.plan)).collect();
    format!("{relations:?} {:?} {} {}", graph.classes, graph.equalities.len(), graph.residuals.len())
}

fn shape_of_plan(plan: &Plan) -> String {
    let own = match &plan.kind {
        PlanKind::Scan { table, projection } => format!("{:p} {projection:?}", std::sync::Arc::as_ptr(table)),
        PlanKind::Input { index } => format!("input {index}"),
        PlanKind::Filter { predicate, .. } => {
            let mut columns = vec![];
            predicate.visit_columns(&mut |column| columns.push(column));
            format!("filter {columns:?}")
        }
        PlanKind::Project { exprs, .. } => format!("project {}", exprs.len()),
        PlanKind::Join(join) => format!("join {:?} {:?}", join.kind, join.output),
        PlanKind::Aggregate { group_by, aggregates, .. } => format!("groups {} {}", group_by.len(), aggregates.len()),
        PlanKind::Marked { .. } => String::new(),
        other => format!("{:?}", std::mem::discriminant(other)),
    };
    let inputs: Vec<String> = plan.inputs().into_iter().map(shape_of_plan).collect();
    format!("{own}({})", inputs.join(","))
}
