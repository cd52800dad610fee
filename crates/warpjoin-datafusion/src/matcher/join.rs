//! Hash joins.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
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
        let sides = Sides::of(join)?;
        if sides.kind == JoinKind::NotIn && join.filter().is_some() {
            return Err(Reason::Join("null-aware with a filter".to_string()));
        }
        if join.fetch().is_some() {
            return Err(Reason::Join("with a row limit".to_string()));
        }
        let (build, probe) = (self.input(build)?, self.input(probe)?);
        let relation = join_relations(join, sides, &build.relation, &probe.relation)?;
        Ok((relation, vec![build, probe]))
    }
}

/// Which kind of join a device does, with which of DataFusion's sides.
#[derive(Debug, Clone, Copy)]
struct Sides {
    kind: JoinKind,
    /// The right side is built from: whole rows are kept of the side that probes.
    build_is_right: bool,
}

impl Sides {
    fn of(join: &HashJoinExec) -> Result<Self, Reason> {
        let (kind, build_is_right) = match join.join_type() {
            JoinType::Inner => (JoinKind::Inner, false),
            JoinType::RightSemi => (JoinKind::ProbeSemi, false),
            JoinType::LeftSemi => (JoinKind::ProbeSemi, true),
            JoinType::RightAnti => (JoinKind::ProbeAnti, false),
            JoinType::LeftAnti if join.null_aware => (JoinKind::NotIn, true),
            JoinType::LeftAnti => (JoinKind::ProbeAnti, true),
            JoinType::RightMark => (JoinKind::ProbeMark, false),
            JoinType::LeftMark => (JoinKind::ProbeMark, true),
            JoinType::Right => (JoinKind::ProbeOuter, false),
            JoinType::Left => (JoinKind::ProbeOuter, true),
            other => return Err(Reason::Join(format!("{other}"))),
        };
        if join.null_aware && kind != JoinKind::NotIn {
            return Err(Reason::Join(format!("null-aware {}", join.join_type())));
        }
        Ok(Self { kind, build_is_right })
    }

    /// Where the columns of the left and of the right side begin, among build and probe columns.
    fn ordered_positions(self, build_width: usize) -> (usize, usize) {
        if self.build_is_right { (build_width, 0) } else { (0, build_width) }
    }

    /// DataFusion's columns, before its projection, as positions among build columns, probe columns and the mark.
    fn put_out(self, build_width: usize, probe_width: usize) -> Vec<usize> {
        let width = build_width + probe_width;
        match self.kind {
            JoinKind::ProbeMark => (build_width..=width).collect(),
            kind if kind.is_existence() => (build_width..width).collect(),
            _ if self.build_is_right => (build_width..width).chain(0..build_width).collect(),
            _ => (0..width).collect(),
        }
    }

    fn ordered<T>(self, left: T, right: T) -> (T, T) {
        if self.build_is_right { (right, left) } else { (left, right) }
    }
}

fn join_relations(join: &HashJoinExec, sides: Sides, left: &Relation, right: &Relation) -> Result<Relation, Reason> {
    let (build, probe) = sides.ordered(left, right);
    let mut on = Vec::with_capacity(join.on().len());
    for (left_key, right_key) in join.on() {
        let (build_key, probe_key) = sides.ordered(left_key, right_key);
        let pair = (translate(build_key, build.scope())?, translate(probe_key, probe.scope())?);
        check_keys(&pair.0, &pair.1)?;
        on.push(pair);
    }
    let build_width = build.plan.schema.fields().len();
    let residual = match join.filter() {
        Some(filter) => Some(residual(filter, sides, build, probe)?),
        None => None,
    };
    let put_out = sides.put_out(build_width, probe.plan.schema.fields().len());
    let output: Vec<usize> = match &join.projection {
        Some(projection) => projection.iter().map(|&column| put_out[column]).collect(),
        None => put_out,
    };
    let kind = PlanKind::Join(Box::new(JoinPlan {
        build: build.plan.clone(),
        probe: probe.plan.clone(),
        on,
        kind: sides.kind,
        null_equals_null: join.null_equality() == NullEquality::NullEqualsNull,
        residual,
        output,
    }));
    let plan = Plan { kind, schema: join.schema() };
    check(&plan)?;
    Ok(Relation { plan })
}

fn check_keys(build: &Expr, probe: &Expr) -> Result<(), Reason> {
    // Strings of different encodings are the same codes once their dictionaries are mapped.
    let equal = build.data_type == probe.data_type || (is_string(&build.data_type) && is_string(&probe.data_type));
    if equal { Ok(()) } else { Err(Reason::Join(format!("on {} and {}", build.data_type, probe.data_type))) }
}

/// The residual filter over all build columns, then all probe columns.
fn residual(filter: &JoinFilter, sides: Sides, build: &Relation, probe: &Relation) -> Result<Expr, Reason> {
    let fields = build.plan.schema.fields().iter().chain(probe.plan.schema.fields());
    let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
    let (left_first, right_first) = sides.ordered_positions(build.plan.schema.fields().len());
    let mut columns: PhysicalExprs = vec![];
    for column in filter.column_indices() {
        let position = match column.side {
            JoinSide::Left => left_first + column.index,
            JoinSide::Right => right_first + column.index,
            JoinSide::None => return Err(Reason::Join("with a filter over a mark".to_string())),
        };
        let field =
            schema.fields().get(position).ok_or_else(|| Reason::Join(format!("filter {}", filter.expression())))?;
        columns.push(Arc::new(Column::new(field.name(), position)) as Arc<dyn PhysicalExpr>);
    }
    let expression = substitute(filter.expression(), &columns)?;
    translate(&expression, Scope { schema: &schema })
}
