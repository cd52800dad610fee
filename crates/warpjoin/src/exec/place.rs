//! Where a query runs.

use std::sync::Arc;

use warpjoin_columns::Result;
use warpjoin_plan::options::ExecOptions;
use warpjoin_plan::plan::Plan;

use super::query::{Execution, Inputs};
use crate::Session;

/// Where a query is planned: on the devices of its tables.
pub(super) struct Place {
    pub session: Arc<Session>,
    /// The plan's inputs, on these devices.
    pub inputs: Inputs,
    /// The session that the query was submitted to.
    all: Arc<Session>,
}

impl Place {
    /// Where the tables of a plan and its inputs lie.
    pub(super) fn of(session: &Arc<Session>, plan: &Plan, inputs: &Inputs) -> Result<Self> {
        let tables = plan.tables();
        let read: Vec<usize> = plan.input_numbers();
        let inputs_read = read.iter().filter_map(|&number| inputs.tables.get(number));
        let own = session.of_tables(tables.iter().chain(inputs_read));
        let mut placed = inputs.clone();
        for (_, table) in placed.tables.iter_mut().enumerate().filter(|(number, _)| read.contains(number)) {
            *table = table.on(own.device_set())?;
        }
        Ok(Self { session: own, inputs: placed, all: Arc::clone(session) })
    }

    /// All devices of a session, for a plan without inputs.
    pub(super) fn on_all(session: &Arc<Session>) -> Self {
        Self { session: Arc::clone(session), inputs: Inputs::default(), all: Arc::clone(session) }
    }

    /// Where the query runs: at this place, or, if that is one busy device of several, on another one with copies of
    /// its tables.
    pub(super) fn running(&self, execution: &mut Execution<'_>, options: &ExecOptions) -> Arc<Session> {
        let own = || Arc::clone(&self.session);
        let is_member = !Arc::ptr_eq(&self.session, &self.all);
        let tables = || execution.tables.iter();
        if !is_member || !self.inputs.tables.is_empty() || tables().any(|table| table.host_bytes() > 0) {
            return own();
        }
        let budget = options.memory_budget();
        let other = match self.inputs.shared_rows.devices() {
            // Where another plan of the query has left rows.
            Some(devices) => self.all.member_on(&devices),
            None => self.all.least_busy(&self.session, &execution.tables, budget),
        };
        let Some(other) = other else { return own() };
        match tables().map(|table| table.replica(other.device_set(), budget)).collect::<Result<_>>() {
            Ok(replicas) => {
                execution.tables = replicas;
                other
            }
            Err(error) => {
                log::debug!("a query waits for its busy device: {error}");
                own()
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use warpjoin_columns::expr::{CompareOp, Expr, ExprKind, Scalar};
    use warpjoin_columns::{Table, TableBuilder};
    use warpjoin_device::{SimOptions, open_simulated};
    use warpjoin_plan::plan::{AggregateCall, AggregateFunction, PlanKind};

    use crate::exec::QueryMetrics;

    use super::*;

    const ROWS: i64 = 10_000;

    /// A table on the first of three devices: numbers, and as many strings.
    fn table(memory_bytes: u64) -> (Arc<Session>, Arc<Table>) {
        let options = SimOptions { devices: 3, memory_bytes, ..SimOptions::default() };
        let session = Session::new(open_simulated(&options).unwrap()).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| row * 1_000_003)));
        let words: ArrayRef = Arc::new((0..ROWS).map(|row| Some(format!("word {row}"))).collect::<StringArray>());
        let batch = RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap();
        let mut builder = TableBuilder::new(session.device_set(), batch.schema()).on_first_up_to(u64::MAX);
        builder.push(&batch).unwrap();
        (session, Arc::new(builder.finish().unwrap()))
    }

    /// Counts the rows whose word is at least `word 5`: a test of a large dictionary.
    fn count(session: &Arc<Session>, table: &Arc<Table>) -> (i64, QueryMetrics) {
        let kind = PlanKind::Scan { table: Arc::clone(table), projection: vec![0, 1] };
        let scan = Plan { kind, schema: table.schema() };
        let word = Box::new(Expr::literal(Scalar::Bytes((*b"word 5").into()), DataType::Utf8));
        let kind = ExprKind::Compare(CompareOp::GreaterOrEqual, Box::new(Expr::column(1, DataType::Utf8, true)), word);
        let predicate = Expr { kind, data_type: DataType::Boolean, nullable: true };
        let schema = table.schema();
        let filter = Plan { kind: PlanKind::Filter { input: Box::new(scan), predicate }, schema };
        let count = AggregateCall::new(AggregateFunction::Count, None, DataType::Int64);
        let kind = PlanKind::Aggregate { input: Box::new(filter), group_by: vec![], aggregates: vec![count] };
        let schema = Arc::new(Schema::new(vec![Field::new("count", DataType::Int64, false)]));
        let output = crate::exec::run(session, &Plan { kind, schema }, &[], &ExecOptions::default()).unwrap();
        (output.batches[0].column(0).as_primitive::<Int64Type>().value(0), output.metrics)
    }

    fn used_bytes(session: &Session) -> Vec<u64> {
        session.devices().iter().map(|device| device.memory().used_bytes()).collect()
    }

    #[test]
    fn a_query_goes_where_fewer_queries_run() {
        let (session, table) = table(64 << 20);
        let expected = (0..ROWS).filter(|row| format!("word {row}").as_bytes() >= b"word 5".as_slice()).count() as i64;
        let on = |label: &str| {
            let (rows, metrics) = count(&session, &table);
            assert_eq!((rows, metrics.devices), (expected, vec![label.to_string()]));
        };
        on("sim:0");
        let home = session.member(0).unwrap();
        let busy = [home.device_set().enter(), home.device_set().enter()];
        on("sim:1");
        let with_replica = used_bytes(&session);
        on("sim:1");
        assert_eq!(used_bytes(&session), with_replica);
        let busy_too = session.member(1).unwrap().device_set().enter();
        on("sim:2");
        drop(busy_too);
        // An allocation that needs their memory has it.
        let stream = session.devices()[1].create_stream().unwrap();
        let buffer = stream.alloc((64 << 20) - with_replica[1] / 2).unwrap();
        on("sim:2");
        drop(buffer);
        drop(busy);
        on("sim:0");
        drop(table);
        assert_eq!(used_bytes(&session), [0, 0, 0]);
    }

    #[test]
    fn a_query_without_room_elsewhere_stays() {
        // A copy would take more than half of the memory.
        let (session, table) = table(192 << 10);
        let _busy = session.member(0).unwrap().device_set().enter();
        let before = used_bytes(&session);
        let (_, metrics) = count(&session, &table);
        assert_eq!(metrics.devices, ["sim:0"]);
        assert_eq!(used_bytes(&session)[1..], before[1..]);
    }
}
