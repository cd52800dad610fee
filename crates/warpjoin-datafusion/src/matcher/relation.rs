//! A device plan together with what is known about its columns.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use warpjoin::Reason;
use warpjoin::exec::check;
use warpjoin::expr::{Expr, ExprKind};
use warpjoin::plan::{Plan, PlanKind};

use crate::translate::{Scope, is_string, substitute, translate};

/// Expressions of DataFusion.
pub(super) type PhysicalExprs = Vec<Arc<dyn PhysicalExpr>>;

/// A device plan and its columns.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    /// The plan.
    pub plan: Plan,
    /// For each column, whether it is a string that was computed on the devices.
    pub computed: Vec<bool>,
    /// If the topmost node is a projection: what it stands on. An expression over a computed string
    /// can't be translated; substituted into the projection's expressions it speaks about the
    /// stored columns below.
    below: Option<Box<(Relation, PhysicalExprs)>>,
}

impl Relation {
    /// A plan whose columns are all stored.
    pub(super) fn stored(plan: Plan) -> Self {
        let computed = vec![false; plan.schema.fields().len()];
        Self::new(plan, computed)
    }

    /// A plan whose columns are computed strings where `computed` says so.
    pub(super) fn new(plan: Plan, computed: Vec<bool>) -> Self {
        Self { plan, computed, below: None }
    }

    /// What its expressions see.
    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { schema: &self.plan.schema, computed: &self.computed }
    }

    /// Whether an expression over this relation gives a computed string.
    pub(super) fn computes_string(&self, expr: &Expr) -> bool {
        match expr.kind {
            ExprKind::Column(column) => self.computed.get(column).copied().unwrap_or(false),
            _ => is_string(&expr.data_type),
        }
    }

    /// Translates `exprs` over this relation, or else over what its projection stands on: the
    /// relation that they then speak about comes with them.
    ///
    /// # Errors
    /// The reason that this relation gave.
    pub(super) fn translate_all(&self, exprs: &[Arc<dyn PhysicalExpr>]) -> Result<(&Relation, Vec<Expr>), Reason> {
        let translated: Result<Vec<Expr>, Reason> = exprs.iter().map(|expr| translate(expr, self.scope())).collect();
        match (translated, &self.below) {
            (Ok(translated), _) => Ok((self, translated)),
            (Err(reason), None) => Err(reason),
            (Err(reason), Some(below)) => {
                let (input, projected) = &**below;
                let exprs: Result<PhysicalExprs, Reason> =
                    exprs.iter().map(|expr| substitute(expr, projected)).collect();
                exprs.and_then(|exprs| input.translate_all(&exprs)).map_err(|_| reason)
            }
        }
    }

    /// The rows for which `predicate` is true.
    ///
    /// # Errors
    /// The reason for which devices can't tell.
    pub(super) fn filter(&self, predicate: &Arc<dyn PhysicalExpr>) -> Result<Relation, Reason> {
        let reason = match translate(predicate, self.scope()) {
            Ok(predicate) => {
                let kind = PlanKind::Filter { input: Box::new(self.plan.clone()), predicate };
                let plan = Plan { kind, schema: Arc::clone(&self.plan.schema) };
                check(&plan)?;
                return Ok(Self::new(plan, self.computed.clone()));
            }
            Err(reason) => reason,
        };
        // Filter below the projection instead, then project.
        let Some((input, projected)) = self.below.as_deref() else { return Err(reason) };
        let filtered = substitute(predicate, projected).and_then(|predicate| input.filter(&predicate));
        filtered.and_then(|input| input.project(projected, &self.plan.schema)).map_err(|_| reason)
    }

    /// One column an expression.
    ///
    /// # Errors
    /// The reason for which devices can't compute one of them.
    pub(super) fn project(&self, exprs: &[Arc<dyn PhysicalExpr>], schema: &SchemaRef) -> Result<Relation, Reason> {
        let (input, translated) = self.translate_all(exprs)?;
        let computed = translated.iter().map(|expr| input.computes_string(expr)).collect();
        let kind = PlanKind::Project { input: Box::new(input.plan.clone()), exprs: translated };
        let plan = Plan { kind, schema: Arc::clone(schema) };
        check(&plan)?;
        Ok(Self { plan, computed, below: Some(Box::new((self.clone(), exprs.to_vec()))) })
    }

    /// The columns `projection`, in that order.
    ///
    /// # Errors
    /// When a position is out of range, or the devices refuse.
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
        let kind = PlanKind::Project { input: Box::new(self.plan.clone()), exprs };
        let plan = Plan { kind, schema: Arc::clone(schema) };
        check(&plan)?;
        let computed = projection.iter().map(|&column| self.computed.get(column).copied().unwrap_or(false)).collect();
        Ok(Self::new(plan, computed))
    }
}
