//! Device plans made of other ones.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use crate::expr::{CompareOp, Expr, ExprKind, Scalar};
use crate::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Mark, Plan, PlanKind, Share, SortKey};

/// A list of expressions, each once.
#[derive(Default)]
pub(crate) struct ExprList {
    pub exprs: Vec<Expr>,
}

impl ExprList {
    /// The position of an expression, and a column that reads it there.
    pub(crate) fn add(&mut self, expr: &Expr) -> Expr {
        column_of(self.position(expr), expr)
    }

    /// The position of an expression.
    pub(crate) fn position(&mut self, expr: &Expr) -> usize {
        let position = self.exprs.iter().position(|known| known.is_same(expr)).unwrap_or(self.exprs.len());
        if position == self.exprs.len() {
            self.exprs.push(expr.clone());
        }
        position
    }
}

/// Column `index`, which holds values of `expr`.
pub(crate) fn column_of(index: usize, expr: &Expr) -> Expr {
    Expr::column(index, expr.data_type.clone(), expr.nullable)
}

/// Column `index` of `plan`.
pub(crate) fn column(plan: &Plan, index: usize) -> Expr {
    let field = plan.schema.field(index);
    Expr::column(index, field.data_type().clone(), field.is_nullable())
}

/// The first `count` columns of `plan`.
pub(crate) fn columns(plan: &Plan, count: usize) -> Vec<Expr> {
    columns_of(&plan.schema, count)
}

/// The first `count` columns of a schema.
pub(crate) fn columns_of(schema: &Schema, count: usize) -> Vec<Expr> {
    let fields = schema.fields().iter().take(count).enumerate();
    fields.map(|(index, field)| Expr::column(index, field.data_type().clone(), field.is_nullable())).collect()
}

/// Column `index`, which holds results of `call`.
pub(crate) fn result_of(index: usize, call: &AggregateCall) -> Expr {
    Expr::column(index, call.data_type.clone(), call.function != AggregateFunction::Count)
}

/// A group-by.
pub(crate) fn aggregate(input: Plan, group_by: Vec<Expr>, aggregates: Vec<AggregateCall>) -> Plan {
    let mut columns = group_by.clone();
    columns.extend(aggregates.iter().enumerate().map(|(index, call)| result_of(index, call)));
    let schema = schema_of(&columns);
    Plan { kind: PlanKind::Aggregate { input: Box::new(input), group_by, aggregates }, schema }
}

impl Plan {
    /// This plan, marked as one that is run once.
    pub(crate) fn shared_by(self, share: Share) -> Self {
        let schema = Arc::clone(&self.schema);
        Self { kind: PlanKind::Marked { input: Box::new(self), mark: Mark::Shared(share) }, schema }
    }

    /// This plan as one that may stand in several places, and runs once.
    pub(crate) fn into_shared(self) -> Self {
        let schema = self.schema.clone();
        Self { kind: PlanKind::Shared(Arc::new(self)), schema }
    }
}

/// Expressions over `input`.
pub(crate) fn project(input: Plan, exprs: Vec<Expr>) -> Plan {
    let schema = schema_of(&exprs);
    Plan { kind: PlanKind::Project { input: Box::new(input), exprs }, schema }
}

/// Rows for which `predicate` is true.
pub(crate) fn filter(input: Plan, predicate: Expr) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Filter { input: Box::new(input), predicate }, schema }
}

/// The rows and a number of each.
pub(crate) fn numbered(input: Plan) -> Plan {
    let fields = input.schema.fields().iter().map(|field| field.as_ref().clone());
    let fields = fields.chain([Field::new("row", DataType::UInt64, false)]).collect::<Vec<_>>();
    Plan { kind: PlanKind::Numbered { input: Box::new(input) }, schema: Arc::new(Schema::new(fields)) }
}

/// The rows of all inputs, of which there is at least one; they have equal types.
pub(crate) fn union(inputs: Vec<Plan>) -> Plan {
    let width = inputs[0].schema.fields().len();
    let column = |index: usize| {
        let nullable = inputs.iter().any(|input| input.schema.field(index).is_nullable());
        Expr::column(index, inputs[0].schema.field(index).data_type().clone(), nullable)
    };
    let schema = schema_of(&(0..width).map(column).collect::<Vec<_>>());
    Plan { kind: PlanKind::Union { inputs }, schema }
}

/// All rows in an order.
pub(crate) fn sort(input: Plan, keys: Vec<SortKey>) -> Plan {
    let schema = input.schema.clone();
    Plan { kind: PlanKind::Sort { input: Box::new(input), keys, skip: 0, fetch: None }, schema }
}

/// Build rows and probe rows with equal keys, nulls being equal; without any key, all pairs. Puts out all build columns,
/// then all probe columns.
pub(crate) fn join(build: Plan, probe: Plan, on: Vec<(Expr, Expr)>, kind: JoinKind) -> Plan {
    let nullable = kind == JoinKind::ProbeOuter;
    let outer = build.schema.fields().iter().map(|field| field.as_ref().clone());
    let outer = outer.map(|field| if nullable { field.with_nullable(true) } else { field });
    let inner = probe.schema.fields().iter().map(|field| field.as_ref().clone());
    let fields: Vec<Field> = outer.chain(inner).collect();
    let on = if on.is_empty() { vec![(zero(DataType::Int32), zero(DataType::Int32))] } else { on };
    let output = (0..fields.len()).collect();
    let join = JoinPlan { build, probe, on, kind, null_equals_null: true, residual: None, output };
    Plan { kind: PlanKind::Join(Box::new(join)), schema: Arc::new(Schema::new(fields)) }
}

fn zero(data_type: DataType) -> Expr {
    Expr::literal(Scalar::Int(0), data_type)
}

pub(crate) fn is_null(expr: &Expr) -> Expr {
    Expr { kind: ExprKind::IsNull(Box::new(expr.clone())), data_type: DataType::Boolean, nullable: false }
}

pub(crate) fn not(expr: Expr) -> Expr {
    let nullable = expr.nullable;
    Expr { kind: ExprKind::Not(Box::new(expr)), data_type: DataType::Boolean, nullable }
}

pub(crate) fn compare(op: CompareOp, left: &Expr, right: &Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    let kind = ExprKind::Compare(op, Box::new(left.clone()), Box::new(right.clone()));
    Expr { kind, data_type: DataType::Boolean, nullable }
}

/// The first result whose condition holds, else `otherwise`.
pub(crate) fn case(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>, data_type: DataType, nullable: bool) -> Expr {
    let kind = ExprKind::Case { branches, otherwise: otherwise.map(Box::new) };
    Expr { kind, data_type, nullable }
}

/// A sum of counts over no rows is null, a count is 0.
pub(crate) fn or_zero(count: Expr) -> Expr {
    let data_type = count.data_type.clone();
    case(vec![(is_null(&count), zero(data_type.clone()))], Some(count), data_type, false)
}

/// The value; null where `other` is.
pub(crate) fn where_not_null(expr: &Expr, other: &Expr) -> Expr {
    if !other.nullable {
        return expr.clone();
    }
    case(vec![(not(is_null(other)), expr.clone())], None, expr.data_type.clone(), true)
}

/// Plans need no names; these tell columns apart where a plan is shown.
fn schema_of(columns: &[Expr]) -> Arc<Schema> {
    let field =
        |(index, column): (usize, &Expr)| Field::new(format!("c{index}"), column.data_type.clone(), column.nullable);
    Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}
