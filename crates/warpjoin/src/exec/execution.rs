//! Runs the pipelines of a physical plan, one after the other.

use std::sync::Arc;

use super::Inputs;
use super::query::Query;
use super::relation::{Relation, Source};
use crate::codegen;
use crate::expr::{Expr, ExprKind};
use crate::plan::ordered::OutputRange;
use crate::plan::physical::{
    self, Bindings, NodeSlot, PhysicalPlan, Pipeline, PipelineId, Sink, Step, TableNode, TableSlot,
};
use crate::plan::{AggregateCall, Plan, PlanKind, SortKey};
use crate::{Error, Result, Table};

/// A plan with all that one execution brings to it.
#[derive(Debug)]
pub(crate) struct Execution<'a> {
    pub plan: &'a PhysicalPlan,
    constants: &'a [ExprKind],
    tables: Vec<Arc<Table>>,
    /// The optimized plan's nodes; none where the constants are others than that plan's.
    nodes: &'a [&'a Plan],
}

impl<'a> Execution<'a> {
    /// # Errors
    /// When an input is missing.
    pub(super) fn new(plan: &'a PhysicalPlan, bindings: &'a Bindings<'a>, inputs: &Inputs) -> Result<Self> {
        let table_of = |node: &TableNode<'_>| match node {
            TableNode::Fetch(fetch) => Ok(Arc::clone(&fetch.table)),
            TableNode::Source(Plan { kind: PlanKind::Scan { table, .. }, .. }) => Ok(Arc::clone(table)),
            TableNode::Source(Plan { kind: PlanKind::Input { index }, .. }) => {
                let table = inputs.tables.get(*index).cloned();
                table.ok_or_else(|| Error::internal(format!("no input {index}")))
            }
            TableNode::Source(_) => Err(Error::internal("a table of what is no scan")),
        };
        let tables = bindings.tables.iter().map(table_of).collect::<Result<_>>()?;
        Ok(Self { plan, constants: &bindings.constants, tables, nodes: &bindings.nodes })
    }

    fn table(&self, slot: TableSlot) -> Result<&Arc<Table>> {
        self.tables.get(slot.0).ok_or_else(|| Error::internal(format!("no table {}", slot.0)))
    }

    fn node(&self, slot: NodeSlot) -> Option<&'a Plan> {
        self.nodes.get(slot.0).copied()
    }

    fn bind(&self, expr: &Expr) -> Result<Expr> {
        physical::bind(expr, self.constants)
    }

    fn bind_all(&self, exprs: &[Expr]) -> Result<Vec<Expr>> {
        exprs.iter().map(|expr| self.bind(expr)).collect()
    }

    fn bind_keys(&self, keys: &[SortKey]) -> Result<Vec<SortKey>> {
        keys.iter().map(|key| Ok(SortKey { expr: self.bind(&key.expr)?, ..*key })).collect()
    }

    fn bind_calls(&self, calls: &[AggregateCall]) -> Result<Vec<AggregateCall>> {
        let mut error = None;
        let mut bind = |expr: &Expr| {
            self.bind(expr).unwrap_or_else(|missing| {
                error = Some(missing);
                expr.clone()
            })
        };
        let calls = calls.iter().map(|call| call.map(&mut bind)).collect();
        error.map_or(Ok(calls), Err)
    }
}

/// What sinks have put out, until it is read.
struct Outputs(Vec<Option<Relation>>);

impl Outputs {
    fn take(&mut self, id: PipelineId) -> Result<Relation> {
        let output = self.0.get_mut(id.0).and_then(Option::take);
        output.ok_or_else(|| Error::internal(format!("nothing of pipeline {}", id.0)))
    }
}

impl Query<'_> {
    /// Runs all pipelines, but for the kernel of the last one: its source and steps.
    pub(super) fn run_pipelines(&mut self) -> Result<Relation> {
        let mut outputs = Outputs(vec![]);
        for pipeline in &self.execution.plan.pipelines {
            let relation = self.open(pipeline, &mut outputs)?;
            let output = match &pipeline.sink {
                Sink::Result => return Ok(relation),
                Sink::InPlace => self.into_place(&relation)?,
                Sink::Limit { skip, fetch } => self.limited(&relation, *skip, *fetch)?,
                Sink::Sort { keys, width, range, input } => self.into_order(relation, keys, *width, *range, *input)?,
                Sink::Aggregate { group_by, calls, input } => self.into_groups(relation, group_by, calls, *input)?,
            };
            outputs.0.push(Some(output));
        }
        Err(Error::internal("a plan without a result"))
    }

    /// Source and steps of a pipeline.
    fn open(&mut self, pipeline: &Pipeline, outputs: &mut Outputs) -> Result<Relation> {
        let execution = self.execution;
        let mut relation = match &pipeline.source {
            physical::Source::Table { table, columns } => {
                let table = execution.table(*table)?;
                self.check_table(table)?;
                Relation::new(Source::Table(Arc::clone(table), columns.clone()))
            }
            physical::Source::Pipeline(id) => outputs.take(*id)?,
            physical::Source::Subtree { node, is_ordered, wanted } => match execution.node(*node) {
                Some(plan) if *is_ordered => self.output(plan)?,
                Some(plan) => self.wanted_relation(plan, *wanted)?,
                None => return Err(Error::internal("a subtree with constants that are not its own")),
            },
        };
        for step in &pipeline.steps {
            self.append(&mut relation, step)?;
        }
        Ok(relation)
    }

    fn append(&self, relation: &mut Relation, step: &Step) -> Result<()> {
        match step {
            Step::Filter(predicate) => {
                relation.steps.push(codegen::Step::Filter(self.execution.bind(predicate)?));
                Ok(())
            }
            Step::Project(exprs) => {
                relation.width = exprs.len();
                relation.steps.push(codegen::Step::Project(self.execution.bind_all(exprs)?));
                Ok(())
            }
            Step::RowNumber => relation.append_row_number(),
            Step::Fetch { table, row, columns } => {
                let table = self.execution.table(*table)?;
                self.append_fetch(relation, table, *row, columns)
            }
        }
    }

    fn into_place(&mut self, relation: &Relation) -> Result<Relation> {
        let rows = self.run_in_place(relation)?;
        Ok(Relation::new(Source::Intermediate(Arc::new(rows))))
    }

    fn into_order(
        &mut self,
        relation: Relation,
        keys: &[SortKey],
        width: usize,
        range: OutputRange,
        input: NodeSlot,
    ) -> Result<Relation> {
        let keys = self.execution.bind_keys(keys)?;
        self.sort(relation, (keys, width), range, self.execution.node(input))
    }

    fn into_groups(
        &mut self,
        relation: Relation,
        group_by: &[Expr],
        calls: &[AggregateCall],
        input: NodeSlot,
    ) -> Result<Relation> {
        let (group_by, calls) = (self.execution.bind_all(group_by)?, self.execution.bind_calls(calls)?);
        self.aggregate_rows(relation, self.execution.node(input), &group_by, &calls)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use std::thread;

    use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use warpjoin_device::{SimOptions, open_simulated};

    use super::*;
    use crate::expr::{ArithmeticOp, CompareOp, Scalar};
    use crate::plan::AggregateFunction;
    use crate::plan::physical::lower;
    use crate::{ExecOptions, Session, TableBuilder};

    fn is_shared<T: Send + Sync>(_: &T) {}

    fn number(value: i128) -> Expr {
        Expr::literal(Scalar::Int(value), DataType::Int64)
    }

    fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
        let kind = ExprKind::Compare(op, Box::new(left), Box::new(right));
        Expr { kind, data_type: DataType::Boolean, nullable: false }
    }

    fn node(kind: PlanKind, names: &[&str]) -> Plan {
        let fields: Vec<_> = names.iter().map(|name| Field::new(*name, DataType::Int64, false)).collect();
        Plan { kind, schema: Arc::new(Schema::new(fields)) }
    }

    /// `select v % 7 as g, count(*), sum(v + 100) from t where v < 50 and v in (1, 2, ..) group by 1 order by 1 limit 3`
    fn plan(table: &Arc<Table>, list: &[i128]) -> Plan {
        let v = || Expr::column(0, DataType::Int64, false);
        let arithmetic = |op, right| {
            let kind = ExprKind::Arithmetic(op, Box::new(v()), Box::new(number(right)));
            Expr { kind, data_type: DataType::Int64, nullable: false }
        };
        let scan = node(PlanKind::Scan { table: Arc::clone(table), projection: vec![0] }, &["v"]);
        let few = compare(CompareOp::Less, v(), number(50));
        let list = list.iter().map(|&value| Scalar::Int(value)).collect();
        let listed = ExprKind::InList { operand: Box::new(v()), list, negated: false };
        let listed = Expr { kind: listed, data_type: DataType::Boolean, nullable: false };
        let both = ExprKind::And(Box::new(few), Box::new(listed));
        let predicate = Expr { kind: both, data_type: DataType::Boolean, nullable: false };
        let filter = node(PlanKind::Filter { input: Box::new(scan), predicate }, &["v"]);
        let count = AggregateCall::new(AggregateFunction::Count, None, DataType::Int64);
        let sum = Some(arithmetic(ArithmeticOp::Add, 100));
        let sum = AggregateCall::new(AggregateFunction::Sum, sum, DataType::Int64);
        let group_by = vec![arithmetic(ArithmeticOp::Modulo, 7)];
        let kind = PlanKind::Aggregate { input: Box::new(filter), group_by, aggregates: vec![count, sum] };
        let groups = node(kind, &["g", "count", "sum"]);
        let keys = vec![SortKey { expr: v(), descending: false, nulls_first: false }];
        node(PlanKind::Sort { input: Box::new(groups), keys, skip: 0, fetch: Some(3) }, &["g", "count", "sum"])
    }

    /// What [`plan`] gives with such constants over numbers from 0 on.
    fn expected(less: i64, list: &[i64], added: i64, modulus: i64) -> Vec<(i64, i64, i64)> {
        let mut groups = std::collections::BTreeMap::<i64, (i64, i64)>::new();
        for &value in list.iter().filter(|&&value| value < less) {
            let group = groups.entry(value % modulus).or_default();
            *group = (group.0 + 1, group.1 + value + added);
        }
        groups.into_iter().take(3).map(|(group, (count, sum))| (group, count, sum)).collect()
    }

    fn rows(batches: &[RecordBatch]) -> Vec<(i64, i64, i64)> {
        let row = |batch: &RecordBatch, row: usize| {
            let value = |column: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
            (value(0), value(1), value(2))
        };
        batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at))).collect()
    }

    #[test]
    fn one_plan_runs_from_eight_threads_with_other_constants() {
        for devices in [1, 2] {
            let options = SimOptions { devices, ..SimOptions::default() };
            let session = Session::new(open_simulated(&options).unwrap()).unwrap();
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
            let batch = RecordBatch::try_from_iter([("v", numbers)]).unwrap();
            let mut builder = TableBuilder::new(&session, batch.schema());
            builder.push(&batch).unwrap();
            let table = Arc::new(builder.finish().unwrap());

            let plan = plan(&table, &[1, 2, 3]);
            let (physical, bindings) = lower(&plan);
            is_shared(&physical);
            assert_eq!(physical.subtrees(), 0);
            assert!(!format!("{physical:?}").contains("Int("), "a constant in {physical:?}");
            let constant = |value: i64| ExprKind::Literal(Scalar::Int(value.into()));
            // In the order in which the plan has them.
            let own = [50, 1, 2, 3, 7, 100].map(|value| format!("{:?}", constant(value)));
            assert_eq!(bindings.constants.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>(), own);

            let inputs = Inputs::default();
            thread::scope(|scope| {
                for number in 0..8 {
                    let (physical, session, inputs) = (&physical, &session, &inputs);
                    let (schema, tables) = (Arc::clone(&plan.schema), vec![Arc::clone(&table)]);
                    let plan = &plan;
                    scope.spawn(move || {
                        for round in 0..5 {
                            let (less, added, modulus) = (100 * number + 10, round, number + 2);
                            let list = [number, 100 * round + 3, 7 * number + round];
                            let values = [less, list[0], list[1], list[2], modulus, added];
                            let constants = values.map(constant);
                            let tables = tables.clone();
                            let execution = Execution { plan: physical, constants: &constants, tables, nodes: &[] };
                            let options = ExecOptions::default();
                            let finish = |query: &mut Query<'_>, relation| query.fetch(relation, &schema);
                            let (batches, _) =
                                super::super::execute(session, plan, &execution, inputs, &options, finish).unwrap();
                            let mut list = list.to_vec();
                            list.sort_unstable();
                            list.dedup();
                            assert_eq!(rows(&batches), expected(less, &list, added, modulus), "{values:?}");
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_constant_that_is_missing_is_an_error() {
        let session = Session::new(open_simulated(&SimOptions::default()).unwrap()).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3));
        let batch = RecordBatch::try_from_iter([("v", numbers)]).unwrap();
        let mut builder = TableBuilder::new(&session, batch.schema());
        builder.push(&batch).unwrap();
        let table = Arc::new(builder.finish().unwrap());
        let plan = plan(&table, &[1]);
        let (physical, bindings) = lower(&plan);
        let inputs = Inputs::default();
        for known in 0..bindings.constants.len() {
            let constants = &bindings.constants[..known];
            let execution = Execution { plan: &physical, constants, tables: vec![Arc::clone(&table)], nodes: &[] };
            let finish = |query: &mut Query<'_>, relation| query.fetch(relation, &plan.schema);
            let options = ExecOptions::default();
            let error = super::super::execute(&session, &plan, &execution, &inputs, &options, finish).unwrap_err();
            assert!(error.to_string().contains(&format!("no constant {known}")), "{error}");
        }
    }
}
