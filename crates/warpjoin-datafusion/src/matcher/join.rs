//! Hash joins.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use warpjoin::Reason;
use warpjoin::exec::check;
use warpjoin::expr::Expr;
use warpjoin::plan::{JoinKind, JoinPlan, Plan, PlanKind};

use super::candidate::{Candidate, Operators};
use super::relation::{PhysicalExprs, Relation};
use super::{Matcher, Outcome};
use crate::translate::{Scope, is_string, substitute, translate};

impl Matcher<'_> {
    pub(super) fn hash_join(&mut self, node: &Arc<dyn ExecutionPlan>, join: &HashJoinExec) -> Result<Outcome> {
        let (build, probe) = (self.visit(join.left())?, self.visit(join.right())?);
        match self.join_candidates(join, &build, &probe) {
            Ok((relation, parts)) => {
                let added = Operators { joins: 1, aggregates: 0 };
                Ok(Outcome::Device(Box::new(Candidate::grown(node, relation, parts, added)?)))
            }
            Err(reason) => {
                self.decline(node, reason, true);
                self.keep_over(node, vec![build, probe])
            }
        }
    }

    fn join_candidates(
        &mut self,
        join: &HashJoinExec,
        build: &Outcome,
        probe: &Outcome,
    ) -> Result<(Relation, Vec<Candidate>), Reason> {
        if *join.join_type() != JoinType::Inner {
            return Err(Reason::Join(format!("{}", join.join_type())));
        }
        if join.null_aware {
            return Err(Reason::Join("null-aware".to_string()));
        }
        if join.fetch().is_some() {
            return Err(Reason::Join("with a row limit".to_string()));
        }
        let (build, probe) = (self.input(build)?, self.input(probe)?);
        let relation = join_relations(join, &build.relation, &probe.relation)?;
        Ok((relation, vec![build, probe]))
    }
}

fn join_relations(join: &HashJoinExec, build: &Relation, probe: &Relation) -> Result<Relation, Reason> {
    let mut on = Vec::with_capacity(join.on().len());
    for (build_key, probe_key) in join.on() {
        let pair = (translate(build_key, build.scope())?, translate(probe_key, probe.scope())?);
        check_keys(&pair.0, &pair.1)?;
        on.push(pair);
    }
    let computed: Vec<bool> = build.computed.iter().chain(&probe.computed).copied().collect();
    let residual = match join.filter() {
        Some(filter) => Some(residual(filter, join, build.computed.len(), &computed)?),
        None => None,
    };
    let output: Vec<usize> = match &join.projection {
        Some(projection) => projection.to_vec(),
        None => (0..computed.len()).collect(),
    };
    let output_computed = output.iter().map(|&column| computed.get(column).copied().unwrap_or(false)).collect();
    let kind = PlanKind::Join(Box::new(JoinPlan {
        build: build.plan.clone(),
        probe: probe.plan.clone(),
        on,
        kind: JoinKind::Inner,
        null_equals_null: join.null_equality() == NullEquality::NullEqualsNull,
        residual,
        output,
    }));
    let plan = Plan { kind, schema: join.schema() };
    check(&plan)?;
    Ok(Relation::new(plan, output_computed))
}

fn check_keys(build: &Expr, probe: &Expr) -> Result<(), Reason> {
    // Strings of different encodings are the same codes once their dictionaries are mapped.
    let equal = build.data_type == probe.data_type || (is_string(&build.data_type) && is_string(&probe.data_type));
    if equal { Ok(()) } else { Err(Reason::Join(format!("on {} and {}", build.data_type, probe.data_type))) }
}

/// The residual filter over all build columns, then all probe columns.
fn residual(filter: &JoinFilter, join: &HashJoinExec, build_columns: usize, computed: &[bool]) -> Result<Expr, Reason> {
    let schema = join.join_schema();
    let mut columns: PhysicalExprs = vec![];
    for column in filter.column_indices() {
        let position = match column.side {
            JoinSide::Left => column.index,
            JoinSide::Right => build_columns + column.index,
            JoinSide::None => return Err(Reason::Join("with a filter over a mark".to_string())),
        };
        let field =
            schema.fields().get(position).ok_or_else(|| Reason::Join(format!("filter {}", filter.expression())))?;
        columns.push(Arc::new(Column::new(field.name(), position)) as Arc<dyn PhysicalExpr>);
    }
    let expression = substitute(filter.expression(), &columns)?;
    translate(&expression, Scope { schema, computed })
}
