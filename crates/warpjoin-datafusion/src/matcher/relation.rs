//! A device plan under construction. Nodes are added at its top.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use warpjoin::Reason;
use warpjoin::exec::check_node;
use warpjoin::expr::Expr;
use warpjoin::plan::{Plan, PlanKind};

use crate::translate::{Scope, translate};

/// DataFusion's physical expressions.
pub(super) type PhysicalExprs = Vec<Arc<dyn PhysicalExpr>>;

/// A device plan.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    /// Shared, because the matcher clones candidates while it tries nodes.
    pub plan: Arc<Plan>,
}

impl Relation {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan: Arc::new(plan) }
    }

    /// A copy of the plan, as the input of another node.
    pub(super) fn input(&self) -> Box<Plan> {
        Box::new(Plan::clone(&self.plan))
    }

    /// The columns that expressions over this relation see.
    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { schema: &self.plan.schema, plan: Some(&self.plan) }
    }

    /// Translates `exprs` over this relation.
    ///
    /// # Errors
    /// Returns the reason if devices do not support one of them.
    pub(super) fn translate_all(&self, exprs: &[Arc<dyn PhysicalExpr>]) -> Result<Vec<Expr>, Reason> {
        exprs.iter().map(|expr| translate(expr, self.scope())).collect()
    }

    /// The rows for which `predicate` is true.
    ///
    /// # Errors
    /// Returns the reason if devices do not support the predicate.
    pub(super) fn filter(&self, predicate: &Arc<dyn PhysicalExpr>) -> Result<Relation, Reason> {
        let predicate = translate(predicate, self.scope())?;
        let kind = PlanKind::Filter { input: self.input(), predicate };
        checked(Plan { kind, schema: Arc::clone(&self.plan.schema) })
    }

    /// A projection with one column for each expression.
    ///
    /// # Errors
    /// Returns the reason if devices do not support one of them.
    pub(super) fn project(&self, exprs: &[Arc<dyn PhysicalExpr>], schema: &SchemaRef) -> Result<Relation, Reason> {
        let kind = PlanKind::Project { input: self.input(), exprs: self.translate_all(exprs)? };
        checked(Plan { kind, schema: Arc::clone(schema) })
    }

    /// The columns `projection`, in that order.
    ///
    /// # Errors
    /// Returns the reason if a position is out of range, or devices do not support a column.
    pub(super) fn columns(&self, projection: &[usize], schema: &SchemaRef) -> Result<Relation, Reason> {
        let mut exprs = Vec::with_capacity(projection.len());
        for &column in projection {
            let field = self
                .plan
                .schema
                .fields()
                .get(column)
                .ok_or_else(|| Reason::Limit(format!("column {column} of {}", self.plan.schema.fields().len())))?;
            exprs.push(Expr::column(column, field.data_type().clone(), field.is_nullable()));
        }
        let kind = PlanKind::Project { input: self.input(), exprs };
        checked(Plan { kind, schema: Arc::clone(schema) })
    }
}

/// Checks the topmost node of `plan`. Its inputs were checked when they became relations.
pub(super) fn checked(plan: Plan) -> Result<Relation, Reason> {
    check_node(&plan)?;
    Ok(Relation::new(plan))
}
