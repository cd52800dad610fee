//! Plans over tables of Int64 columns.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use warpjoin::Table;
use warpjoin::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind};

pub(crate) fn batch(columns: Vec<(&str, Vec<i64>)>) -> RecordBatch {
    let fields: Vec<Field> = columns.iter().map(|(name, _)| Field::new(*name, DataType::Int64, false)).collect();
    let arrays = columns.into_iter().map(|(_, values)| Arc::new(Int64Array::from(values)) as _).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("a batch")
}

pub(crate) fn int(column: usize) -> Expr {
    Expr::column(column, DataType::Int64, false)
}

pub(crate) fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    let kind = ExprKind::Compare(op, Box::new(left), Box::new(right));
    Expr { kind, data_type: DataType::Boolean, nullable }
}

pub(crate) fn of_ints(kind: PlanKind, columns: usize) -> Plan {
    let fields: Vec<Field> = (0..columns).map(|c| Field::new(format!("c{c}"), DataType::Int64, true)).collect();
    Plan { kind, schema: Arc::new(Schema::new(fields)) }
}

pub(crate) fn scan(table: &Arc<Table>) -> Plan {
    let projection = (0..table.column_types().len()).collect();
    Plan { kind: PlanKind::Scan { table: Arc::clone(table), projection }, schema: table.schema() }
}

pub(crate) fn below(input: Plan, column: usize, bound: i128) -> Plan {
    let schema = input.schema.clone();
    let predicate = compare(CompareOp::Less, int(column), Expr::literal(Scalar::Int(bound), DataType::Int64));
    Plan { kind: PlanKind::Filter { input: Box::new(input), predicate }, schema }
}

pub(crate) fn join(build: Plan, probe: Plan, on: (usize, usize), kind: JoinKind, output: Vec<usize>) -> Plan {
    let columns = output.len();
    let on = vec![(int(on.0), int(on.1))];
    let join = JoinPlan { build, probe, on, kind, null_equals_null: false, residual: None, output };
    of_ints(PlanKind::Join(Box::new(join)), columns)
}

/// The same, of pairs of rows for which column `less` of both sides together is less than column `more`.
pub(crate) fn join_if_less(join: Plan, less: usize, more: usize) -> Plan {
    let Plan { kind: PlanKind::Join(join), schema } = join else { unreachable!("a join") };
    let residual = Some(compare(CompareOp::Less, int(less), int(more)));
    Plan { kind: PlanKind::Join(Box::new(JoinPlan { residual, ..*join })), schema }
}

pub(crate) fn sums(input: Plan, key: usize, value: usize) -> Plan {
    let call = AggregateCall::new(AggregateFunction::Sum, Some(int(value)), DataType::Int64);
    let kind = PlanKind::Aggregate { input: Box::new(input), group_by: vec![int(key)], aggregates: vec![call] };
    of_ints(kind, 2)
}
