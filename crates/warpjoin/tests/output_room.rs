//! Outputs of pipelines that drop most rows, with less memory than a copy of all rows takes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use warpjoin::exec::{self, ExecOptions};
use warpjoin::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::{Plan, PlanKind};
use warpjoin::{Cause, Session, Table, TableBuilder};
use warpjoin_device::{SimOptions, open_simulated};

const ROWS: i64 = 1 << 20;
/// A copy of all rows takes 4 MiB.
const ROOM_BYTES: u64 = 1 << 20;

fn numbers(session: &Arc<Session>) -> Arc<Table> {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
    let mut builder = TableBuilder::new(session.device_set(), batch.schema());
    builder.push(&batch).unwrap();
    Arc::new(builder.finish().unwrap())
}

/// `select v from t where v < bound`, with so much memory beside the table, and some of the host's.
fn below(session: &Arc<Session>, table: &Arc<Table>, bound: i64, host_budget_bytes: u64) -> warpjoin::Result<usize> {
    let schema = table.schema();
    let scan = PlanKind::Scan { table: Arc::clone(table), projection: vec![0] };
    let value = Box::new(Expr::column(0, DataType::Int64, false));
    let bound = Box::new(Expr::literal(Scalar::Int(bound.into()), DataType::Int64));
    let kind = ExprKind::Compare(CompareOp::Less, value, bound);
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
    let input = Box::new(Plan { kind: scan, schema: Arc::clone(&schema) });
    let plan = Plan { kind: PlanKind::Filter { input, predicate }, schema };
    let memory_budget_bytes = session.devices()[0].memory().used_bytes() + ROOM_BYTES;
    let options = ExecOptions { memory_budget_bytes, host_budget_bytes, ..ExecOptions::default() };
    let output = exec::run(session, &plan, &[], &options)?;
    Ok(output.batches.iter().map(RecordBatch::num_rows).sum())
}

#[test]
fn few_rows_of_many_fit_little_memory() {
    let session = Session::new(open_simulated(&SimOptions::default()).unwrap()).unwrap();
    let table = numbers(&session);
    // A first room that is large enough, and one that is too small for what the kernel counts.
    for bound in [0, 10, 100_000] {
        assert_eq!(below(&session, &table, bound, 0).unwrap(), bound as usize);
    }
    let error = below(&session, &table, ROWS, 0).unwrap_err();
    assert_eq!(error.cause(), Cause::OutOfMemory, "{error}");
    assert_eq!(below(&session, &table, 10, 0).unwrap(), 10, "all memory is back");
    assert_eq!(below(&session, &table, ROWS, u64::MAX).unwrap(), ROWS as usize, "rows on the host");
}
