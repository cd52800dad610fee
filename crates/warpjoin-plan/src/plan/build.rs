//! Builders of device plans.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use warpjoin_columns::expr::Expr;
use warpjoin_columns::expr::build::zero;
pub use warpjoin_columns::expr::build::{ExprList, case, column_of, compare, is_null, not, or_zero};
pub(crate) use warpjoin_columns::expr::build::{arithmetic, cast, where_not_null};

use crate::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Mark, Plan, PlanKind, RowsOf, Share, SortKey};

/// Column `index` of `plan`.
pub fn column(plan: &Plan, index: usize) -> Expr {
    let field = plan.schema.field(index);
    Expr::column(index, field.data_type().clone(), field.is_nullable())
}

/// The first `count` columns of `plan`.
pub fn columns(plan: &Plan, count: usize) -> Vec<Expr> {
    columns_of(&plan.schema, count)
}

/// The first `count` columns of a schema.
pub fn columns_of(schema: &Schema, count: usize) -> Vec<Expr> {
    let fields = schema.fields().iter().take(count).enumerate();
    fields.map(|(index, field)| Expr::column(index, field.data_type().clone(), field.is_nullable())).collect()
}

/// Column `index`, which holds results of `call`.
pub(crate) fn result_of(index: usize, call: &AggregateCall) -> Expr {
    Expr::column(index, call.data_type.clone(), call.function != AggregateFunction::Count)
}

/// A group-by.
pub fn aggregate(input: Plan, group_by: Vec<Expr>, aggregates: Vec<AggregateCall>) -> Plan {
    let mut columns = group_by.clone();
    columns.extend(aggregates.iter().enumerate().map(|(index, call)| result_of(index, call)));
    let schema = schema_of(&columns);
    Plan { kind: PlanKind::Aggregate { input: Box::new(input), group_by, aggregates }, schema }
}

impl Plan {
    /// This plan, marked as one that runs once.
    pub(crate) fn shared_by(self, share: Share) -> Self {
        let schema = Arc::clone(&self.schema);
        Self { kind: PlanKind::Marked { input: Box::new(self), mark: Mark::Shared(share) }, schema }
    }

    /// This plan as a shared node, which may occur in several places and runs once.
    pub(crate) fn into_shared(self) -> Self {
        let schema = self.schema.clone();
        Self { kind: PlanKind::Shared(Arc::new(self)), schema }
    }
}

/// The rows, materialized.
pub fn written(input: Plan) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Marked { input: Box::new(input), mark: Mark::Written }, schema }
}

/// Expressions over `input`.
pub fn project(input: Plan, exprs: Vec<Expr>) -> Plan {
    let schema = schema_of(&exprs);
    Plan { kind: PlanKind::Project { input: Box::new(input), exprs }, schema }
}

/// Rows for which `predicate` is true.
pub fn filter(input: Plan, predicate: Expr) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Filter { input: Box::new(input), predicate }, schema }
}

/// The rows, each with a number.
pub fn numbered(input: Plan) -> Plan {
    with_field(input, Field::new("row", DataType::UInt64, false), |input| PlanKind::Numbered { input })
}

/// A node that adds a column.
fn with_field(input: Plan, field: Field, node: impl FnOnce(Box<Plan>) -> PlanKind) -> Plan {
    let fields = input.schema.fields().iter().map(|field| field.as_ref().clone());
    let schema = Arc::new(Schema::new(fields.chain([field]).collect::<Vec<_>>()));
    Plan { kind: node(Box::new(input)), schema }
}

/// The rows of all inputs. There is at least one input, and all have equal types.
pub fn union(inputs: Vec<Plan>) -> Plan {
    let width = inputs[0].schema.fields().len();
    let column = |index: usize| {
        let nullable = inputs.iter().any(|input| input.schema.field(index).is_nullable());
        Expr::column(index, inputs[0].schema.field(index).data_type().clone(), nullable)
    };
    let schema = schema_of(&(0..width).map(column).collect::<Vec<_>>());
    Plan { kind: PlanKind::Union { inputs }, schema }
}

/// All rows in an order.
pub fn sort(input: Plan, keys: Vec<SortKey>) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Sort { input: Box::new(input), keys, skip: 0, fetch: None }, schema }
}

/// Pairs of build and probe rows with equal keys, where nulls are equal; without keys, all pairs. Outputs all build
/// columns, then all probe columns.
pub fn join(build: Plan, probe: Plan, on: Vec<(Expr, Expr)>, kind: JoinKind) -> Plan {
    let on = keys_or_constant(on);
    let output = (0..build.schema.fields().len() + probe.schema.fields().len()).collect();
    join_node(JoinPlan { build, probe, on, kind, null_equals_null: true, residual: None, output })
}

/// The keys of a join; without any, a constant that all rows of both sides have.
pub(crate) fn keys_or_constant(on: Vec<(Expr, Expr)>) -> Vec<(Expr, Expr)> {
    if on.is_empty() { vec![(zero(DataType::Int32), zero(DataType::Int32))] } else { on }
}

/// A join. Columns have the names of its sides.
pub(crate) fn join_node(join: JoinPlan) -> Plan {
    let is_outer = [matches!(join.kind, JoinKind::ProbeOuter | JoinKind::Full), join.kind == JoinKind::Full];
    let of_side = |(side, is_outer): (&Plan, bool)| {
        let fields = side.schema.fields().iter().map(|field| field.as_ref().clone());
        fields.map(|field| if is_outer { field.with_nullable(true) } else { field }).collect::<Vec<_>>()
    };
    let mut fields: Vec<Field> = [&join.build, &join.probe].into_iter().zip(is_outer).flat_map(of_side).collect();
    fields.push(Field::new("mark", DataType::Boolean, false));
    let schema = Schema::new(join.output.iter().map(|&column| fields[column].clone()).collect::<Vec<_>>());
    Plan { kind: PlanKind::Join(Box::new(join)), schema: Arc::new(schema) }
}

/// The rows, and a column that says whether the rows of `of` exist.
pub fn has_rows(input: Plan, of: RowsOf) -> Plan {
    with_field(input, Field::new("has_rows", DataType::Int64, false), |input| PlanKind::HasRows { input, of })
}

/// A schema with generated names: plans need none, but names tell columns apart in EXPLAIN.
fn schema_of(columns: &[Expr]) -> Arc<Schema> {
    let field =
        |(index, column): (usize, &Expr)| Field::new(format!("c{index}"), column.data_type.clone(), column.nullable);
    Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}
