//! A join apart from the plans of its sides.

use std::ops::Deref;

use arrow::datatypes::SchemaRef;
use warpjoin_columns::expr::{Expr, ExprKind};

use super::{JoinKind, JoinPlan, Plan};

/// A join without its sides; see [`JoinPlan`].
#[derive(Debug, Clone)]
pub struct JoinSpec {
    pub on: Vec<(Expr, Expr)>,
    pub kind: JoinKind,
    pub null_equals_null: bool,
    pub residual: Option<Expr>,
    pub output: Vec<usize>,
}

/// A side of a join.
#[derive(Debug, Clone)]
pub struct JoinSide<'a> {
    pub schema: SchemaRef,
    /// For estimates, if it is known.
    pub plan: Option<&'a Plan>,
}

/// A join with its sides.
#[derive(Debug, Clone)]
pub struct JoinNode<'a> {
    pub spec: JoinSpec,
    pub build: JoinSide<'a>,
    pub probe: JoinSide<'a>,
}

impl JoinSpec {
    fn of(plan: &JoinPlan) -> Self {
        let JoinPlan { build: _, probe: _, on, kind, null_equals_null, residual, output } = plan;
        Self {
            on: on.clone(),
            kind: *kind,
            null_equals_null: *null_equals_null,
            residual: residual.clone(),
            output: output.clone(),
        }
    }

    /// The join with its expressions replaced by `with`.
    pub fn try_map<E>(&self, with: &mut dyn FnMut(&Expr) -> Result<Expr, E>) -> Result<Self, E> {
        let mut on = vec![];
        for (build, probe) in &self.on {
            on.push((with(build)?, with(probe)?));
        }
        let residual = self.residual.as_ref().map(with).transpose()?;
        Ok(Self { on, residual, output: self.output.clone(), ..*self })
    }
}

impl JoinSpec {
    /// Whether all keys are constants: every build row is a candidate for every probe row, and an exchange by key would
    /// send all rows to one device.
    pub fn is_nested(&self) -> bool {
        is_nested(&self.on)
    }
}

impl<'a> JoinNode<'a> {
    pub fn of(plan: &'a JoinPlan) -> Self {
        let side = |plan: &'a Plan| JoinSide { schema: plan.schema.clone(), plan: Some(plan) };
        Self { spec: JoinSpec::of(plan), build: side(&plan.build), probe: side(&plan.probe) }
    }

    /// The same join of sides with other columns: `moved` gives the new position of each column of both sides that it reads.
    pub fn moved(
        &self,
        on: Vec<(Expr, Expr)>,
        moved: &impl Fn(usize) -> usize,
        [build, probe]: [SchemaRef; 2],
    ) -> JoinNode<'static> {
        let spec = JoinSpec {
            on,
            kind: self.kind,
            null_equals_null: self.null_equals_null,
            residual: self.residual.as_ref().map(|residual| residual.remap(moved)),
            output: self.output.iter().map(|&column| moved(column)).collect(),
        };
        let side = |schema| JoinSide { schema, plan: None };
        JoinNode { spec, build: side(build), probe: side(probe) }
    }

    /// Columns of both sides that the join's output or residual reads, in order.
    pub fn needed_columns(&self) -> Vec<usize> {
        let width = self.build.schema.fields().len() + self.probe.schema.fields().len();
        needed_columns(&self.output, self.residual.as_ref(), width)
    }
}

impl Deref for JoinNode<'_> {
    type Target = JoinSpec;

    fn deref(&self) -> &JoinSpec {
        &self.spec
    }
}

impl JoinPlan {
    /// Columns of both sides that the join's output or residual reads, in order.
    #[doc(hidden)]
    pub fn needed_columns(&self) -> Vec<usize> {
        let width = self.build.schema.fields().len() + self.probe.schema.fields().len();
        needed_columns(&self.output, self.residual.as_ref(), width)
    }

    /// Whether all keys are constants; see [`JoinSpec::is_nested`].
    #[doc(hidden)]
    pub fn is_nested(&self) -> bool {
        is_nested(&self.on)
    }
}

fn is_nested(on: &[(Expr, Expr)]) -> bool {
    let is_constant = |key: &Expr| matches!(key.kind, ExprKind::Literal(_));
    on.iter().all(|(build, probe)| is_constant(build) && is_constant(probe))
}

fn needed_columns(output: &[usize], residual: Option<&Expr>, width: usize) -> Vec<usize> {
    let mut columns = output.to_vec();
    columns.retain(|&column| column < width);
    if let Some(residual) = residual {
        residual.visit_columns(&mut |column| columns.push(column));
    }
    columns.sort_unstable();
    columns.dedup();
    columns
}
