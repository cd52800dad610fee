//! Runs the pipelines of a physical plan, one after the other.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_codegen;
use warpjoin_columns::expr::{Expr, Scalar};
use warpjoin_columns::{Error, Result};
use warpjoin_device::span;
use warpjoin_plan::options::MemoryUse;
use warpjoin_plan::plan::AggregateCall;
use warpjoin_plan::plan::ordered::WindowNode;
use warpjoin_plan::plan::physical::{self, PhysicalPlan, Pipeline, PipelineId, Sink, Step};
use warpjoin_plan::window::WindowCall;

use super::query::{Execution, Query};
use super::relation::{Relation, Source};

/// Outputs of sinks, with the number of pipelines that have not read them yet.
struct Outputs {
    relations: Vec<Option<Relation>>,
    left: Vec<usize>,
    /// Whether a pipeline output rows, if known.
    has_rows: HashMap<usize, bool>,
}

impl Outputs {
    fn of(plan: &PhysicalPlan) -> Self {
        Self { relations: vec![], left: plan.readers.clone(), has_rows: HashMap::new() }
    }

    fn read(&mut self, id: PipelineId) -> Result<Relation> {
        let left = self.left.get_mut(id.0).filter(|left| **left > 0);
        let output = self.relations.get_mut(id.0);
        let relation = left.zip(output).and_then(|(left, output)| {
            *left -= 1;
            if *left == 0 { output.take() } else { output.clone() }
        });
        relation.ok_or_else(|| Error::internal(format!("no output of pipeline {}", id.0)))
    }

    /// Marks the inputs of a skipped pipeline as read.
    fn skip(&mut self, pipeline: &Pipeline) {
        for PipelineId(id) in pipeline.reads() {
            self.left[id] = self.left[id].saturating_sub(1);
            if self.left[id] == 0
                && let Some(output) = self.relations.get_mut(id)
            {
                *output = None;
            }
        }
    }

    /// The number of the next pipeline.
    fn next(&self) -> usize {
        self.relations.len()
    }
}

impl Query<'_> {
    /// Runs all pipelines except the last one's kernel; returns the source and steps of the last.
    pub(super) fn run_pipelines(&mut self, execution: &Execution<'_>) -> Result<Relation> {
        let found = self.find_rows(&execution.plan.found);
        let mut outputs = Outputs::of(execution.plan);
        while let Some(pipeline) = execution.plan.pipelines.get(outputs.next()) {
            let begin_here = found.iter().filter(|(rows, _)| rows.first.0 == outputs.next());
            if let Some((rows, relation)) = begin_here.max_by_key(|(rows, _)| rows.last.0) {
                execution.plan.pipelines[rows.first.0..=rows.last.0].iter().for_each(|skipped| outputs.skip(skipped));
                outputs.relations.resize(rows.last.0, None);
                outputs.relations.push(Some(relation.clone()));
                continue;
            }
            // A region that might have been skipped has made the same.
            let made = match &pipeline.sink {
                Sink::ShareBuild { number, .. } if self.joins.has_shared_build(*number) => Some(None),
                Sink::Share(share) => self.shared_before(*share).map(Some),
                _ => None,
            };
            if let Some(made) = made {
                outputs.skip(pipeline);
                outputs.relations.push(made);
                continue;
            }
            let _span = span(|| format!("pipeline {}", outputs.next()));
            let relation = self.open(execution, pipeline, &mut outputs)?;
            let output = match &pipeline.sink {
                Sink::Result => return Ok(relation),
                // They run with the pipelines that read them.
                Sink::Build(_) | Sink::UnionInput => self.without_tables(relation)?,
                Sink::Count => {
                    let has_rows = self.count(&relation)? > 0;
                    outputs.has_rows.insert(outputs.next(), has_rows);
                    outputs.relations.push(None);
                    continue;
                }
                Sink::InPlace => {
                    let rows = self.run_in_place(&relation)?;
                    Relation::new(Source::Intermediate(Arc::new(rows)))
                }
                Sink::Slice(range) => self.range_of(relation, *range)?,
                Sink::Limit { skip, fetch } => self.limited(&relation, *skip, *fetch)?,
                Sink::Sort { keys, width, range } => self.sort(relation, execution.bind_keys(keys)?, *width, *range)?,
                Sink::Window { partition_by, order_by, calls, schema } => {
                    let (partition_by, order_by) = (execution.bind_all(partition_by)?, execution.bind_keys(order_by)?);
                    let calls = bound(calls, WindowCall::map, |expr| execution.bind(expr))?;
                    let node = WindowNode { schema, partition_by: &partition_by, order_by: &order_by, calls: &calls };
                    self.window(relation, node)?
                }
                Sink::Aggregate { group_by, calls } => {
                    let group_by = execution.bind_all(group_by)?;
                    let calls = bound(calls, AggregateCall::map, |expr| execution.bind(expr))?;
                    self.aggregate_rows(relation, &group_by, &calls)?
                }
                Sink::ShareBuild { number, join, has_filters } => {
                    let join = execution.bind_join(join)?;
                    self.share_build(&join, *number, &relation, *has_filters)?;
                    outputs.relations.push(None);
                    continue;
                }
                Sink::Write => {
                    let rows = self.materialise(&relation, (0..relation.width).collect())?;
                    Relation::new(Source::Intermediate(rows))
                }
                Sink::Keep => self.settled(relation)?,
                Sink::Share(share) => self.share(*share, relation)?,
                Sink::GroupingSets { group_by, sets, id_type, calls } => {
                    let group_by = execution.bind_all(group_by)?;
                    let calls = bound(calls, AggregateCall::map, |expr| execution.bind(expr))?;
                    self.grouping_sets(relation, &group_by, (sets, id_type), &calls)?
                }
            };
            outputs.relations.push(Some(output));
        }
        Err(Error::internal("a plan without a result"))
    }

    /// Source and steps of a pipeline.
    fn open(&mut self, execution: &Execution<'_>, pipeline: &Pipeline, outputs: &mut Outputs) -> Result<Relation> {
        let mut relation = match &pipeline.source {
            physical::Source::Table { table, columns } => {
                let table = execution.table(*table)?;
                self.check_table(table)?;
                table.bring_back(columns, self.options.memory_budget())?;
                Relation::new(Source::Table(Arc::clone(table), columns.clone()))
            }
            physical::Source::Pipeline(id) => outputs.read(*id)?,
            physical::Source::Union(ids) => {
                let inputs = ids.iter().map(|&id| outputs.read(id)).collect::<Result<_>>()?;
                self.union(inputs)?
            }
        };
        for step in &pipeline.steps {
            relation = self.after(execution, relation, step, outputs)?;
        }
        Ok(relation)
    }

    /// With [`MemoryUse::Least`], materializes a relation that probes tables, so that the tables can be freed.
    fn without_tables(&mut self, relation: Relation) -> Result<Relation> {
        if self.options.memory_use == MemoryUse::Auto || relation.joins.is_empty() {
            return Ok(relation);
        }
        let columns = (0..relation.width).collect();
        Ok(Relation::new(Source::Intermediate(self.materialise(&relation, columns)?)))
    }

    /// The relation with one more step.
    fn after(
        &mut self,
        execution: &Execution<'_>,
        mut relation: Relation,
        step: &Step,
        outputs: &mut Outputs,
    ) -> Result<Relation> {
        match step {
            Step::Filter(predicate) => relation.steps.push(warpjoin_codegen::Step::Filter(execution.bind(predicate)?)),
            Step::Project(exprs) => {
                relation.width = exprs.len();
                relation.steps.push(warpjoin_codegen::Step::Project(execution.bind_all(exprs)?));
            }
            Step::Compact => relation.steps.push(warpjoin_codegen::Step::Compact),
            Step::RowNumber => relation.append_row_number()?,
            Step::Number { schema } => self.append_number(&mut relation, schema),
            Step::Fetch { table, row, columns } => {
                self.append_fetch(&mut relation, execution.table(*table)?, *row, columns)?;
            }
            Step::Reduce { table, keys, test } => {
                return self.reduced(relation, *table, &execution.bind_all(keys)?, *test);
            }
            Step::Probe { table, join } => {
                let joined = self.probe_shared_build(&execution.bind_join(join)?, *table, relation)?;
                return Ok(self.compacted(joined));
            }
            Step::Join { build: id, join, method, wanted } => {
                let build = outputs.read(*id)?;
                relation = self.without_tables(relation)?;
                let join = execution.bind_join(join)?;
                relation = self.join_relations(&join, build, relation, (*method, *wanted))?;
                relation = self.compacted(relation);
                let has_rows = relation.joins.last().is_some_and(|table| table.build.rows() > 0);
                let has_rows = self.joins.has_build_rows.take().unwrap_or(has_rows);
                outputs.has_rows.insert(id.0, has_rows);
            }
            Step::HasRows { of, schema } => {
                let has_rows = outputs
                    .has_rows
                    .get(&of.0)
                    .ok_or_else(|| Error::internal("unknown whether a pipeline has rows"))?;
                // Parameters of one class: the kernel is the same for both.
                let number = Scalar::Int(i128::from(*has_rows));
                relation.append(schema, Expr::literal(number, DataType::Int64));
            }
        }
        Ok(relation)
    }
}

/// Calls with their expressions bound.
fn bound<T>(
    calls: &[T],
    map: impl Fn(&T, &mut dyn FnMut(&Expr) -> Expr) -> T,
    bind: impl Fn(&Expr) -> Result<Expr>,
) -> Result<Vec<T>> {
    let mut missing = None;
    let mut bind = |expr: &Expr| {
        bind(expr).unwrap_or_else(|error| {
            missing.get_or_insert(error);
            expr.clone()
        })
    };
    let calls = calls.iter().map(|call| map(call, &mut bind)).collect();
    missing.map_or(Ok(calls), Err)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use std::thread;

    use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef};
    use warpjoin_columns::expr::{ArithmeticOp, CompareOp, ExprKind};
    use warpjoin_columns::{Table, TableBuilder};
    use warpjoin_device::{SimOptions, open_simulated};
    use warpjoin_plan::options::ExecOptions;
    use warpjoin_plan::plan::physical::{Choices, lower};
    use warpjoin_plan::plan::{AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind, SortKey};

    use super::*;
    use crate::Session;
    use crate::exec::Inputs;

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

    /// A table of the numbers from 0 on.
    fn numbers(devices: usize, rows: i64) -> (Arc<Session>, Arc<Table>) {
        let options = SimOptions { devices, ..SimOptions::default() };
        let session = Session::new(open_simulated(&options).unwrap()).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_from_iter([("v", numbers)]).unwrap();
        let mut builder = TableBuilder::new(session.device_set(), batch.schema());
        builder.push(&batch).unwrap();
        let table = Arc::new(builder.finish().unwrap());
        (session, table)
    }

    fn rows(batches: &[RecordBatch]) -> Vec<(i64, i64, i64)> {
        let row = |batch: &RecordBatch, row: usize| {
            let value = |column: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
            (value(0), value(1), value(2))
        };
        batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at))).collect()
    }

    /// What a physical plan gives with these constants.
    fn run(session: &Arc<Session>, execution: &Execution<'_>, schema: &SchemaRef) -> Vec<(i64, i64, i64)> {
        let (inputs, options) = (Inputs::default(), ExecOptions::default());
        let mut batches = vec![];
        let mut take = |piece| {
            batches.extend(piece);
            true
        };
        let mut finish = |query: &mut Query<'_>, relation| query.fetch(relation, schema, &mut take);
        super::super::execute(session, execution, &inputs, &options, &mut finish).unwrap();
        rows(&batches)
    }

    /// Runs a plan from eight threads at once, each five times: with the constants that `values` makes of the numbers of thread and
    /// run, in place of the plan's `own`.
    fn check_in_threads(
        (session, plan, own): (&Arc<Session>, &Plan, &[i64]),
        values: impl Fn(i64, i64) -> Vec<i64> + Sync,
        expected: impl Fn(&[i64]) -> Vec<(i64, i64, i64)> + Sync,
    ) {
        let (physical, bindings) = lower(plan, &Choices::OPEN);
        is_shared(&physical);
        assert!(!format!("{physical:?}").contains("Int("), "a constant in {physical:?}");
        let constant = |value: &i64| ExprKind::Literal(Scalar::Int((*value).into()));
        // In the order in which the plan has them.
        let own: Vec<_> = own.iter().map(|value| format!("{:?}", constant(value))).collect();
        assert_eq!(bindings.constants.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>(), own);
        let check = |number: i64, round: i64| {
            let values = values(number, round);
            let constants: Vec<_> = values.iter().map(constant).collect();
            let own = Execution::new(&physical, &bindings, &Inputs::default()).unwrap();
            let execution = Execution { constants: &constants, nodes: &[], ..own };
            let mut found = run(session, &execution, &plan.schema);
            if !plan.is_ordered() {
                found.sort_unstable();
            }
            assert_eq!(found, expected(&values), "{values:?}");
        };
        thread::scope(|scope| {
            for number in 0..8 {
                let check = &check;
                scope.spawn(move || (0..5).for_each(|round| check(number, round)));
            }
        });
    }

    #[test]
    fn one_plan_runs_from_eight_threads_with_other_constants() {
        for devices in [1, 2] {
            let (session, table) = numbers(devices, 1000);
            let plan = plan(&table, &[1, 2, 3]);
            let values = |number, round| {
                let list = [number, 100 * round + 3, 7 * number + round];
                vec![100 * number + 10, list[0], list[1], list[2], number + 2, round]
            };
            check_in_threads((&session, &plan, &[50, 1, 2, 3, 7, 100]), values, |values| {
                let mut list = values[1..4].to_vec();
                list.sort_unstable();
                list.dedup();
                expected(values[0], &list, values[5], values[4])
            });
        }
    }

    /// `select b.v, p.v, p.v + 100 from t b join t p on b.v = p.v % 7 where b.v < 50 and p.v >= 3`
    fn joined(table: &Arc<Table>) -> Plan {
        let v = |index| Expr::column(index, DataType::Int64, false);
        let arithmetic = |op, left, right| {
            let kind = ExprKind::Arithmetic(op, Box::new(left), Box::new(number(right)));
            Expr { kind, data_type: DataType::Int64, nullable: false }
        };
        let side = |op, bound| {
            let scan = node(PlanKind::Scan { table: Arc::clone(table), projection: vec![0] }, &["v"]);
            let predicate = compare(op, v(0), number(bound));
            node(PlanKind::Filter { input: Box::new(scan), predicate }, &["v"])
        };
        let join = JoinPlan {
            build: side(CompareOp::Less, 50),
            probe: side(CompareOp::GreaterOrEqual, 3),
            on: vec![(v(0), arithmetic(ArithmeticOp::Modulo, v(0), 7))],
            kind: JoinKind::Inner,
            null_equals_null: false,
            residual: None,
            output: vec![0, 1],
        };
        let join = node(PlanKind::Join(Box::new(join)), &["b", "p"]);
        let exprs = vec![v(0), v(1), arithmetic(ArithmeticOp::Add, v(1), 100)];
        node(PlanKind::Project { input: Box::new(join), exprs }, &["b", "p", "sum"])
    }

    #[test]
    fn one_join_runs_from_eight_threads_with_other_constants() {
        const ROWS: i64 = 500;
        for devices in [1, 2] {
            let (session, table) = numbers(devices, ROWS);
            // Some build sides have fewer rows than the modulus, some none.
            let values = |number, round| vec![number + 5, 3 * round, 50 * number + round, round - 2];
            check_in_threads((&session, &joined(&table), &[7, 50, 3, 100]), values, |values| {
                let [modulus, less, from, added] = *values else { panic!("four constants") };
                let row = |p: i64| (p % modulus, p, p + added);
                let mut rows: Vec<_> = (from..ROWS).map(row).filter(|&(b, _, _)| b < less).collect();
                rows.sort_unstable();
                rows
            });
        }
    }

    #[test]
    fn an_input_with_other_columns_than_the_plans_is_an_error() {
        let (session, table) = numbers(1, 3);
        let plan = node(PlanKind::Input { index: 0 }, &["v", "w"]);
        let error = crate::exec::run(&session, &plan, &[table], &ExecOptions::default()).unwrap_err();
        assert!(error.to_string().contains("2 columns, its table has 1"), "{error}");
    }

    #[test]
    fn a_constant_that_is_missing_is_an_error() {
        let (session, table) = numbers(1, 3);
        let plan = plan(&table, &[1]);
        let (physical, bindings) = lower(&plan, &Choices::OPEN);
        let inputs = Inputs::default();
        for known in 0..bindings.constants.len() {
            let constants = &bindings.constants[..known];
            let execution = Execution { plan: &physical, constants, tables: vec![Arc::clone(&table)], nodes: &[] };
            let mut finish = |query: &mut Query<'_>, relation| query.fetch(relation, &plan.schema, &mut |_| true);
            let options = ExecOptions::default();
            let error = super::super::execute(&session, &execution, &inputs, &options, &mut finish).unwrap_err();
            assert!(error.to_string().contains(&format!("no constant {known}")), "{error}");
        }
    }
}
