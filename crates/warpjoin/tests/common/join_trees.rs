//! Random trees of joins over small tables: inner joins mostly, with semi, anti and outer joins, group-bys, filters and
//! projections between them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::{AggregateCall, AggregateFunction, JoinKind, JoinPlan, Plan, PlanKind};

use super::case::Case;
use super::random::{input, node, put_out};
use super::settings::{self, Settings};

/// The tree of a seed.
pub(crate) fn case(seed: u64) -> Case {
    let mut maker = Maker { rng: StdRng::seed_from_u64(seed), inputs: vec![] };
    let relations = maker.rng.random_range(2..=6);
    let mut plan = maker.tree(relations);
    if maker.rng.random_bool(0.3) {
        plan = maker.group(plan);
    }
    let settings = Settings {
        devices: *[1, 1, 2, 4].choose(&mut maker.rng).expect("some"),
        hash_bits: *[64, 64, 3].choose(&mut maker.rng).expect("some"),
        ..settings::random(&mut maker.rng)
    };
    // How joins are run is for other tests.
    let settings = Settings { lanes: None, load_factor: None, keeps: false, ..settings };
    Case { inputs: maker.inputs, plan, settings }
}

/// A chain of tables, each joined with the next by a key of its own.
pub(crate) fn chain(relations: usize) -> Case {
    let mut maker = Maker { rng: StdRng::seed_from_u64(7), inputs: vec![] };
    let mut plan = maker.leaf();
    for _ in 1..relations {
        let next = maker.leaf();
        let (build, probe) = (columns(&next), columns(&plan));
        let on = vec![(build[0].clone(), probe[1].clone())];
        let output = (0..build.len() + probe.len()).collect();
        plan = join(next, plan, on, JoinKind::Inner, None, output);
    }
    Case { inputs: maker.inputs, plan, settings: Settings::default() }
}

struct Maker {
    rng: StdRng,
    inputs: Vec<RecordBatch>,
}

fn columns(plan: &Plan) -> Vec<Expr> {
    let fields = plan.schema.fields().iter().enumerate();
    fields.map(|(index, field)| Expr::column(index, field.data_type().clone(), field.is_nullable())).collect()
}

fn join(
    build: Plan,
    probe: Plan,
    on: Vec<(Expr, Expr)>,
    kind: JoinKind,
    residual: Option<Expr>,
    output: Vec<usize>,
) -> Plan {
    let both: Vec<Expr> = columns(&build).into_iter().chain(columns(&probe)).collect();
    let put_out = put_out(kind, both, build.schema.fields().len());
    let types: Vec<_> = output.iter().map(|&column| put_out[column].clone()).collect();
    let plan = JoinPlan { build, probe, on, kind, null_equals_null: false, residual, output };
    node(PlanKind::Join(Box::new(plan)), types.iter().map(|(t, n)| (t, *n)))
}

fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    Expr { kind: ExprKind::Compare(op, Box::new(left), Box::new(right)), data_type: DataType::Boolean, nullable }
}

impl Maker {
    fn tree(&mut self, relations: usize) -> Plan {
        if relations == 1 {
            return self.leaf();
        }
        let left = self.rng.random_range(1..relations);
        let (build, probe) = (self.tree(left), self.tree(relations - left));
        let mut plan = self.joined(build, probe);
        if self.rng.random_bool(0.3) {
            plan = self.filter(plan);
        }
        if self.rng.random_bool(0.3) {
            plan = self.permuted(plan);
        }
        if self.rng.random_bool(0.08) {
            plan = self.group(plan);
        }
        plan
    }

    /// Three integers and a string: few values, some nulls, sometimes a key.
    fn leaf(&mut self) -> Plan {
        if self.inputs.is_empty() || self.rng.random_bool(0.8) {
            let batch = self.table();
            self.inputs.push(batch);
        }
        let index = self.rng.random_range(0..self.inputs.len());
        let plan = input(&self.inputs, index);
        if self.rng.random_bool(0.4) { self.filter(plan) } else { plan }
    }

    fn table(&mut self) -> RecordBatch {
        let rows = *[0, 1, 5, 31, 32, 33, 60, 90].choose(&mut self.rng).expect("some");
        let values = self.rng.random_range(3..=40i64);
        let nulls = if self.rng.random_bool(0.3) { 0.1 } else { 0.0 };
        let is_key = self.rng.random_bool(0.5);
        let rng = &mut self.rng;
        let mut numbers = |is_key: bool| -> Vec<Option<i64>> {
            let value = |row: i64, rng: &mut StdRng| if is_key { row } else { rng.random_range(0..values) };
            (0..rows).map(|row| (!rng.random_bool(nulls)).then(|| value(row, rng))).collect()
        };
        let (first, second, third) = (numbers(is_key), numbers(false), numbers(false));
        let text = |value: &Option<i64>| value.map(|value| format!("text {}", value % 7));
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(first)),
            Arc::new(Int64Array::from(second.clone())),
            Arc::new(Int32Array::from_iter(third.iter().map(|value| value.map(|value| value as i32)))),
            Arc::new(StringArray::from_iter(second.iter().map(text))),
        ];
        let fields: Vec<Field> = (arrays.iter().enumerate())
            .map(|(index, array)| Field::new(format!("c{index}"), array.data_type().clone(), true))
            .collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("a batch")
    }

    fn joined(&mut self, build: Plan, probe: Plan) -> Plan {
        let (build_columns, probe_columns) = (columns(&build), columns(&probe));
        let pairs: Vec<(Expr, Expr)> = build_columns
            .iter()
            .flat_map(|b| probe_columns.iter().map(move |p| (b.clone(), p.clone())))
            .filter(|(b, p)| b.data_type == p.data_type)
            .collect();
        let count = *[1, 1, 1, 2].choose(&mut self.rng).expect("some");
        let mut on: Vec<(Expr, Expr)> = pairs.choose_multiple(&mut self.rng, count).cloned().collect();
        if on.is_empty() {
            return probe;
        }
        for pair in &mut on {
            if pair.0.data_type == DataType::Int64 && self.rng.random_bool(0.15) {
                pair.0 = self.moved(pair.0.clone());
            }
        }
        use JoinKind::{Inner, NotIn, ProbeAnti, ProbeMark, ProbeOuter, ProbeSemi};
        let kinds =
            [Inner, Inner, Inner, Inner, Inner, Inner, ProbeSemi, ProbeSemi, ProbeAnti, NotIn, ProbeOuter, ProbeMark];
        let kind = *kinds.choose(&mut self.rng).expect("some");
        let both: Vec<Expr> = columns(&build)
            .into_iter()
            .chain(columns(&probe))
            .enumerate()
            .map(|(index, column)| Expr::column(index, column.data_type, column.nullable))
            .collect();
        let build_width = build_columns.len();
        let is_not_in = kind == NotIn;
        let residual = (!is_not_in && self.rng.random_bool(0.25)).then(|| self.condition(&both));
        on.truncate(if is_not_in { 1 } else { 2 });
        let mut output: Vec<usize> = (0..both.len()).collect();
        output.retain(|&column| !kind.is_existence() || column >= build_width);
        output.retain(|_| self.rng.random_bool(0.7));
        if output.len() < 3 {
            output = (if kind.is_existence() { build_width } else { 0 }..both.len()).collect();
        }
        if kind == ProbeMark {
            output.push(both.len());
        }
        join(build, probe, on, kind, residual, output)
    }

    /// A key that is no column.
    fn moved(&mut self, column: Expr) -> Expr {
        let one = Expr::literal(Scalar::Int(self.rng.random_range(-2..3)), DataType::Int64);
        let (data_type, nullable) = (column.data_type.clone(), column.nullable);
        let kind = ExprKind::Arithmetic(ArithmeticOp::Add, Box::new(column), Box::new(one));
        Expr { kind, data_type, nullable }
    }

    /// A comparison of two columns, or of one with a constant.
    fn condition(&mut self, columns: &[Expr]) -> Expr {
        let numbers: Vec<&Expr> = columns.iter().filter(|column| column.data_type == DataType::Int64).collect();
        let Some(&left) = numbers.choose(&mut self.rng) else {
            return Expr::literal(Scalar::Boolean(true), DataType::Boolean);
        };
        let right = if self.rng.random_bool(0.5) {
            (*numbers.choose(&mut self.rng).expect("some")).clone()
        } else {
            Expr::literal(Scalar::Int(self.rng.random_range(0..30)), DataType::Int64)
        };
        let ops = [CompareOp::Less, CompareOp::GreaterOrEqual, CompareOp::NotEqual];
        compare(*ops.choose(&mut self.rng).expect("some"), left.clone(), right)
    }

    fn filter(&mut self, plan: Plan) -> Plan {
        let predicate = self.condition(&columns(&plan));
        let schema = plan.schema.clone();
        Plan { kind: PlanKind::Filter { input: Box::new(plan), predicate }, schema }
    }

    /// The same columns in another order.
    fn permuted(&mut self, plan: Plan) -> Plan {
        let mut exprs = columns(&plan);
        let first = self.rng.random_range(0..exprs.len());
        exprs.rotate_left(first);
        let types: Vec<_> = exprs.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
        let kind = PlanKind::Project { input: Box::new(plan), exprs };
        node(kind, types.iter().map(|(t, n)| (t, *n)))
    }

    fn group(&mut self, plan: Plan) -> Plan {
        let all = columns(&plan);
        let keys = self.rng.random_range(1..=2.min(all.len()));
        let group_by: Vec<Expr> = all.choose_multiple(&mut self.rng, keys).cloned().collect();
        let mut aggregates = vec![AggregateCall::new(AggregateFunction::Count, None, DataType::Int64)];
        for column in all.iter().filter(|column| column.data_type == DataType::Int64).take(2) {
            aggregates.push(AggregateCall::new(AggregateFunction::Min, Some(column.clone()), DataType::Int64));
        }
        let mut types: Vec<_> = group_by.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
        types.extend(aggregates.iter().map(|a| (a.data_type.clone(), a.function != AggregateFunction::Count)));
        let kind = PlanKind::Aggregate { input: Box::new(plan), group_by, aggregates };
        node(kind, types.iter().map(|(t, n)| (t, *n)))
    }
}
