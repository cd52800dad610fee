//! Deep plans and expressions run, or are refused with a reason: no stack overflows.

// Helpers outside tests may fail one too.
#![allow(clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use common::case::upload;
use common::random::input;
use common::sessions::{Opener, simulated};
use common::value::rows_of;
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, Plan, PlanKind};
use warpjoin::{Cause, ExecOptions, exec};

/// What a thread has unless it asks for more, as Tokio's and the test harness's do.
const STACK_BYTES: usize = 2 << 20;

fn number(value: i64) -> Expr {
    Expr { kind: ExprKind::Literal(Scalar::Int(value.into())), data_type: DataType::Int64, nullable: false }
}

fn column() -> Expr {
    Expr::column(0, DataType::Int64, false)
}

fn binary(kind: impl FnOnce(Box<Expr>, Box<Expr>) -> ExprKind, left: Expr, right: Expr, to: DataType) -> Expr {
    Expr { kind: kind(Box::new(left), Box::new(right)), data_type: to, nullable: false }
}

fn filter(plan: Plan, predicate: Expr) -> Plan {
    let schema = plan.schema.clone();
    Plan { kind: PlanKind::Filter { input: Box::new(plan), predicate }, schema }
}

fn limit(plan: Plan, fetch: u64) -> Plan {
    let schema = plan.schema.clone();
    Plan { kind: PlanKind::Limit { input: Box::new(plan), skip: 0, fetch: Some(fetch) }, schema }
}

fn less(left: Expr, right: i64) -> Expr {
    binary(|left, right| ExprKind::Compare(CompareOp::Less, left, right), left, number(right), DataType::Boolean)
}

/// A sum of so many terms.
fn deep_sum(depth: usize) -> Expr {
    let add = |left, right| {
        binary(|left, right| ExprKind::Arithmetic(ArithmeticOp::Add, left, right), left, right, DataType::Int64)
    };
    (1..depth).fold(column(), |sum, _| add(sum, number(0)))
}

/// Rows of `plan_of` a table of 100 rows, on a thread with a small stack; `None`: refused as too deep.
fn rows(plan_of: impl Fn(Plan) -> Plan + Sync) -> Option<usize> {
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]));
    let batch = RecordBatch::try_new(schema, vec![Arc::new((0..100).collect::<Int64Array>())]).expect("a batch");
    let session = simulated().open(1).expect("a device");
    let tables = [upload(&session, &batch)];
    // Plans are made and dropped with room: that is their owner's matter.
    let roomy = || {
        let plan = plan_of(input(std::slice::from_ref(&batch), 0));
        std::thread::scope(|scope| {
            let run = || exec::run(&session, &plan, &tables, &ExecOptions::default());
            let small = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, run).expect("a thread");
            match small.join().expect("no panic") {
                Ok(output) => Some(rows_of(&output.batches).len()),
                Err(error) if error.cause() == Cause::Unsupported => {
                    assert!(error.to_string().contains("nested"), "{error}");
                    None
                }
                Err(error) => panic!("{error}"),
            }
        })
    };
    std::thread::scope(|scope| {
        let roomy = std::thread::Builder::new().stack_size(1 << 30).spawn_scoped(scope, roomy).expect("a thread");
        roomy.join().expect("no panic")
    })
}

#[test]
fn deep_expressions_run_or_are_refused() {
    let with = |depth: usize| rows(|source| filter(source, less(deep_sum(depth), 40)));
    assert_eq!(with(20), Some(40));
    assert_eq!(with(990), Some(40));
    assert_eq!(with(5000), None);
    assert_eq!(with(100_000), None);
}

#[test]
fn deep_plans_run_or_are_refused() {
    let filters = |depth: usize| rows(|source| (1..depth).fold(source, |plan, _| filter(plan, less(column(), 40))));
    assert_eq!(filters(10), Some(40));
    assert_eq!(filters(99), Some(40));
    assert_eq!(filters(20_000), None);
    // Breakers, each of which runs.
    let limits = |depth: usize| rows(|source| (1..depth).fold(source, |plan, _| limit(plan, 30)));
    assert_eq!(limits(99), Some(30));
    assert_eq!(limits(20_000), None);
}

/// A group-by that is made of two, each of which reads the input.
fn distinct_counts(input: Plan) -> Plan {
    let count = |argument| {
        let count = AggregateCall::new(AggregateFunction::Count, Some(argument), DataType::Int64);
        AggregateCall { is_distinct: true, ..count }
    };
    let fields = ["v", "a", "b"].map(|name| Field::new(name, DataType::Int64, false));
    let aggregates = vec![count(column()), count(deep_sum(2))];
    let kind = PlanKind::Aggregate { input: Box::new(input), group_by: vec![column()], aggregates };
    Plan { kind, schema: Arc::new(Schema::new(fields.to_vec())) }
}

#[test]
fn group_bys_of_group_bys_are_planned_once_each() {
    let nested = |depth: usize| move |source| (0..depth).fold(source, |plan, _| distinct_counts(plan));
    assert_eq!(rows(nested(3)), Some(100));
    // Read along 2^40 ways.
    let session = simulated().open(1).expect("a device");
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]));
    let plan = nested(40)(Plan { kind: PlanKind::Input { index: 0 }, schema });
    let lines = exec::explain(&plan, &session, &ExecOptions::default()).pipelines;
    assert!((40..=40 * 8).contains(&lines.len()), "{} pipelines", lines.len());
}
