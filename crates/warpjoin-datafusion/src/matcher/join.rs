//! Hash joins, nested loop joins and cross joins.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::utils::{JoinFilter, JoinOnRef};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use warpjoin::Reason;
use warpjoin::expr::{Expr, Scalar};
use warpjoin::plan::{JoinKind, JoinPlan, Plan, PlanKind};

use super::candidate::{Candidate, Operators};
use super::relation::{PhysicalExprs, Relation, checked};
use super::{Matcher, Outcome};
use crate::translate::{Scope, is_string, substitute, translate};

/// Maximum build rows of a join without an equality, which tests all of them for each probe row.
const NESTED_ROWS_MAX: usize = 1024;

/// A join, from any of DataFusion's join nodes.
struct Join<'a> {
    left: &'a Arc<dyn ExecutionPlan>,
    right: &'a Arc<dyn ExecutionPlan>,
    join_type: JoinType,
    /// Equal keys. If empty, all pairs of rows are candidates.
    on: JoinOnRef<'a>,
    filter: Option<&'a JoinFilter>,
    projection: Option<&'a [usize]>,
    null_equals_null: bool,
    null_aware: bool,
    /// Maximum output rows.
    fetch: Option<usize>,
}

impl<'a> Join<'a> {
    /// `None` for other nodes.
    fn of(node: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            return Some(Self {
                left: join.left(),
                right: join.right(),
                join_type: *join.join_type(),
                on: join.on(),
                filter: join.filter(),
                projection: join.projection.as_deref(),
                null_equals_null: join.null_equality() == NullEquality::NullEqualsNull,
                null_aware: join.null_aware,
                fetch: join.fetch(),
            });
        }
        let nested = |left, right| Self {
            left,
            right,
            join_type: JoinType::Inner,
            on: &[],
            filter: None,
            projection: None,
            null_equals_null: false,
            null_aware: false,
            fetch: node.fetch(),
        };
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            return Some(Self {
                join_type: *join.join_type(),
                filter: join.filter(),
                projection: join.projection().as_deref(),
                ..nested(join.left(), join.right())
            });
        }
        node.downcast_ref::<CrossJoinExec>().map(|join| nested(join.left(), join.right()))
    }

    /// Checks that the build side is known to be small enough for a join without an equality.
    fn check_nested(&self, sides: Sides) -> Result<(), Reason> {
        let rows = |plan: &Arc<dyn ExecutionPlan>| {
            let estimate = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
            estimate.ok().and_then(|estimate| estimate.num_rows.get_value().copied())
        };
        let (build, probe) = sides.ordered(rows(self.left), rows(self.right));
        let is_small = |rows: Option<usize>| rows.is_some_and(|rows| rows <= NESTED_ROWS_MAX);
        // A full join runs as two joins, in which each side is the build side once.
        if is_small(build) && (sides.kind != JoinKind::Full || is_small(probe)) {
            return Ok(());
        }
        let shown = build.map_or("unknown".to_string(), |rows| rows.to_string());
        let why = format!("{} without an equality: {shown} rows for each row of the other side", self.join_type);
        Err(Reason::Join(why))
    }

    /// Chooses the small side of an inner join without an equality as the build side.
    fn nested_sides(&self, sides: Sides) -> Sides {
        let is_left = Sides { build_is_right: false, ..sides };
        let is_right = Sides { build_is_right: true, ..sides };
        match sides.kind {
            JoinKind::Inner if self.check_nested(is_left).is_err() => is_right,
            _ => sides,
        }
    }
}

impl Matcher<'_> {
    /// A join; `None` for other nodes.
    pub(super) fn join(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Option<Outcome>> {
        let Some(join) = Join::of(node) else { return Ok(None) };
        let (left, right) = (self.visit(join.left)?, self.visit(join.right)?);
        let outcome = match self.join_candidates(node, &join, &left, &right) {
            Ok((relation, parts)) => {
                let added = Operators { joins: 1, ..Operators::default() };
                let templates = parts.iter().map(|part| Arc::clone(part.template())).collect();
                let mut template = replace_children_if_necessary(Arc::clone(node), templates)?;
                if join.fetch.is_some() {
                    // The node applies its own limit to each partition, and the CPU may run several.
                    template = Arc::new(GlobalLimitExec::new(template, 0, join.fetch));
                }
                Outcome::Device(Box::new(Candidate::grown_to(node, template, relation, parts, added)))
            }
            Err(reason) => {
                self.decline(node, reason);
                self.keep_over(node, vec![left, right])?
            }
        };
        Ok(Some(outcome))
    }

    fn join_candidates(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        join: &Join<'_>,
        left: &Outcome,
        right: &Outcome,
    ) -> Result<(Relation, Vec<Candidate>), Reason> {
        let mut sides = Sides::of(join)?;
        if join.on.is_empty() {
            sides = join.nested_sides(sides);
            join.check_nested(sides)?;
        }
        let (left, right) = (self.input(left)?, self.input(right)?);
        let plan = join_plan(join, sides, &left.relation, &right.relation)?;
        let mut relation = checked(Plan { kind: PlanKind::Join(Box::new(plan)), schema: node.schema() })?;
        if join.fetch.is_some() {
            relation = relation.limit(0, join.fetch)?;
        }
        Ok((relation, vec![left, right]))
    }
}

/// The device plan's kind of join, and which of DataFusion's sides is the build side.
#[derive(Debug, Clone, Copy)]
struct Sides {
    kind: JoinKind,
    /// Whether DataFusion's right side is the build side. The side whose rows are preserved always probes.
    build_is_right: bool,
}

impl Sides {
    fn of(join: &Join<'_>) -> Result<Self, Reason> {
        let (kind, build_is_right) = match join.join_type {
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
            JoinType::Full => (JoinKind::Full, false),
        };
        if join.null_aware && kind != JoinKind::NotIn {
            return Err(Reason::Join(format!("null-aware {}", join.join_type)));
        }
        Ok(Self { kind, build_is_right })
    }

    /// Positions of the first left and the first right column among build columns, then probe columns.
    fn first_columns(self, build_width: usize) -> (usize, usize) {
        if self.build_is_right { (build_width, 0) } else { (0, build_width) }
    }

    /// DataFusion's output columns before its projection, as positions among build columns, probe columns and the mark.
    fn output_columns(self, build_width: usize, probe_width: usize) -> Vec<usize> {
        let width = build_width + probe_width;
        match self.kind {
            JoinKind::ProbeMark => (build_width..=width).collect(),
            kind if kind.is_existence() => (build_width..width).collect(),
            _ if self.build_is_right => (build_width..width).chain(0..build_width).collect(),
            _ => (0..width).collect(),
        }
    }

    /// Orders the values of left and right side as build side, probe side.
    fn ordered<T>(self, left: T, right: T) -> (T, T) {
        if self.build_is_right { (right, left) } else { (left, right) }
    }
}

fn join_plan(join: &Join<'_>, sides: Sides, left: &Relation, right: &Relation) -> Result<JoinPlan, Reason> {
    let (build, probe) = sides.ordered(left, right);
    let mut on = Vec::with_capacity(join.on.len());
    for (left_key, right_key) in join.on {
        let (build_key, probe_key) = sides.ordered(left_key, right_key);
        let pair = (translate(build_key, build.scope())?, translate(probe_key, probe.scope())?);
        check_keys(&pair.0, &pair.1)?;
        on.push(pair);
    }
    if on.is_empty() {
        // With a constant key, every probe row finds all build rows in one list.
        let one = || Expr::literal(Scalar::Int(1), DataType::Int32);
        on.push((one(), one()));
    }
    let residual = match join.filter {
        Some(filter) => Some(residual(filter, sides, build, probe)?),
        None => None,
    };
    let columns = sides.output_columns(build.plan.schema.fields().len(), probe.plan.schema.fields().len());
    let output: Vec<usize> = match join.projection {
        Some(projection) => projection.iter().map(|&column| columns[column]).collect(),
        None => columns,
    };
    Ok(JoinPlan {
        build: *build.input(),
        probe: *probe.input(),
        on,
        kind: sides.kind,
        null_equals_null: join.null_equals_null,
        residual,
        output,
    })
}

fn check_keys(build: &Expr, probe: &Expr) -> Result<(), Reason> {
    // String types may differ, because the device maps their dictionaries to common codes.
    let equal = build.data_type == probe.data_type || (is_string(&build.data_type) && is_string(&probe.data_type));
    if equal { Ok(()) } else { Err(Reason::Join(format!("on {} and {}", build.data_type, probe.data_type))) }
}

/// The residual filter, over all build columns, then all probe columns.
fn residual(filter: &JoinFilter, sides: Sides, build: &Relation, probe: &Relation) -> Result<Expr, Reason> {
    let fields = build.plan.schema.fields().iter().chain(probe.plan.schema.fields());
    let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
    let (left_first, right_first) = sides.first_columns(build.plan.schema.fields().len());
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
    translate(&expression, Scope { schema: &schema, plan: None })
}
