//! Values that an execution binds to a physical plan: tables and constants.

use std::sync::Arc;

use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_columns::{Error, Result, Table};
use warpjoin_plan::plan::join::{JoinNode, JoinSide};
use warpjoin_plan::plan::physical::{self, Bindings, Join, NodeSlot, PhysicalPlan, TableNode, TableSlot};
use warpjoin_plan::plan::{Plan, PlanKind, SortKey};

use super::Inputs;

/// A plan with all values that one execution binds to it.
#[derive(Debug)]
pub(crate) struct Execution<'a> {
    pub plan: &'a PhysicalPlan,
    pub constants: &'a [ExprKind],
    pub tables: Vec<Arc<Table>>,
    /// Nodes of the optimized plan. Empty if the execution binds other constants.
    pub nodes: &'a [&'a Plan],
}

impl<'a> Execution<'a> {
    /// # Errors
    /// When an input is missing.
    pub(in crate::exec) fn new(plan: &'a PhysicalPlan, bindings: &'a Bindings<'a>, inputs: &Inputs) -> Result<Self> {
        let table_of = |node: &TableNode<'_>| match node {
            TableNode::Fetch(fetch) => Ok(Arc::clone(&fetch.table)),
            TableNode::Source(Plan { kind: PlanKind::Scan { table, .. }, .. }) => Ok(Arc::clone(table)),
            TableNode::Source(Plan { kind: PlanKind::Input { index }, schema }) => {
                let table = inputs.tables.get(*index).cloned();
                let table = table.ok_or_else(|| Error::internal(format!("no input {index}")))?;
                let (columns, wanted) = (table.column_types().len(), schema.fields().len());
                if columns != wanted {
                    let message = format!("input {index} of the plan has {wanted} columns, its table has {columns}");
                    return Err(Error::InvalidArgument(message));
                }
                Ok(table)
            }
            TableNode::Source(_) => Err(Error::internal("a node without a table")),
        };
        let tables = bindings.tables.iter().map(table_of).collect::<Result<_>>()?;
        Ok(Self { plan, constants: &bindings.constants, tables, nodes: &bindings.nodes })
    }

    pub(in crate::exec) fn table(&self, slot: TableSlot) -> Result<&Arc<Table>> {
        self.tables.get(slot.0).ok_or_else(|| Error::internal(format!("no table {}", slot.0)))
    }

    pub(in crate::exec) fn node(&self, slot: NodeSlot) -> Option<&'a Plan> {
        self.nodes.get(slot.0).copied()
    }

    pub(in crate::exec) fn bind(&self, expr: &Expr) -> Result<Expr> {
        physical::bind(expr, self.constants)
    }

    pub(in crate::exec) fn bind_all(&self, exprs: &[Expr]) -> Result<Vec<Expr>> {
        exprs.iter().map(|expr| self.bind(expr)).collect()
    }

    pub(in crate::exec) fn bind_keys(&self, keys: &[SortKey]) -> Result<Vec<SortKey>> {
        keys.iter().map(|key| Ok(SortKey { expr: self.bind(&key.expr)?, ..*key })).collect()
    }

    pub(in crate::exec) fn bind_join(&self, join: &Join) -> Result<JoinNode<'a>> {
        let spec = join.spec.try_map(&mut |expr| self.bind(expr))?;
        let plan = match self.node(join.node).map(|node| &node.kind) {
            Some(PlanKind::Join(plan)) => Some(plan),
            _ => None,
        };
        let [build, probe] = join.schemas.clone();
        let build = JoinSide { schema: build, plan: plan.map(|plan| &plan.build) };
        let probe = JoinSide { schema: probe, plan: plan.map(|plan| &plan.probe) };
        Ok(JoinNode { spec, build, probe })
    }
}
