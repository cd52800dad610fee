//! Unions, and group-bys by several sets of keys.

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use warpjoin::expr::{CompareOp, Expr, Scalar};
use warpjoin::plan::AggregateFunction::{self, Avg, Count, Max, Sum};
use warpjoin::plan::{AggregateCall, GroupingSet, Moment, Plan, PlanKind};

use super::super::data::batch;
use super::super::random::{aggregate_call, input, moment_call, node, result_type};
use super::super::random_expr::compare;
use super::super::value::V;
use super::{Edge, column, equal, every_aggregate, group, ints, join, join_node, numbers};

/// Rows of all inputs of one case.
pub(super) fn union(inputs: Vec<Plan>) -> Plan {
    let width = inputs[0].schema.fields().len();
    let is_nullable = |index: usize| inputs.iter().any(|input| input.schema.field(index).is_nullable());
    let types: Vec<_> =
        (0..width).map(|index| (inputs[0].schema.field(index).data_type().clone(), is_nullable(index))).collect();
    node(PlanKind::Union { inputs }, types.iter().map(|(t, n)| (t, *n)))
}

const TYPES: [DataType; 5] =
    [DataType::Int64, DataType::Utf8, DataType::Decimal128(20, 2), DataType::Float64, DataType::Boolean];

/// Numbers from `first` on, strings that differ from table to table, and nulls in some columns of some tables.
fn table(first: i128, rows: usize) -> RecordBatch {
    let has_nulls = first % 2 == 0;
    let some = |row: usize, v: V| if has_nulls && row.is_multiple_of(5) { V::Null } else { v };
    let row = |row: usize| {
        let number = first + row as i128;
        [
            V::Int(number),
            some(row, V::Text(format!("t{}", number % 7 + first))),
            V::Int(number * number % 1000 - 500),
            some(row, V::Float(number as f64 / 4.0)),
            V::Bool(number % 3 == 0),
        ]
    };
    let rows: Vec<_> = (0..rows).map(row).collect();
    let columns: Vec<Vec<V>> = (0..TYPES.len()).map(|c| rows.iter().map(|row| row[c].clone()).collect()).collect();
    batch(&columns, &TYPES, true)
}

fn unions() -> Vec<Edge> {
    let mut edges = vec![];
    let far = i128::from(i64::MAX) - 5000;
    for rows in [[0, 0], [0, 33], [1, 0], [31, 32], [257, 600]] {
        let inputs = vec![table(1, rows[0]), table(far, rows[1]), table(-4, rows[0])];
        let both = union(vec![input(&inputs, 0), input(&inputs, 1)]);
        let name = |what: &str| format!("union of {} and {} rows, {what}", rows[0], rows[1]);
        edges.push(equal(name("plain"), inputs.clone(), both.clone()));
        let of_all = union((0..3).map(|index| input(&inputs, index)).collect());
        edges.push(equal(name("and the first again"), inputs.clone(), of_all.clone()));
        edges.push(equal(name("of one"), inputs.clone(), union(vec![input(&inputs, 0)])));
        let grouped = group(of_all.clone(), vec![column(&of_all, 1)], every_aggregate(&of_all, 2));
        edges.push(equal(name("grouped"), inputs.clone(), grouped.clone()));
        let counted = group(both.clone(), vec![], every_aggregate(&both, 0));
        edges.push(equal(name("counted"), inputs.clone(), counted));
        // Distinct rows: UNION without ALL.
        let distinct = group(both.clone(), (0..TYPES.len()).map(|index| column(&both, index)).collect(), vec![]);
        edges.push(equal(name("distinct"), inputs.clone(), distinct));
        if rows[1] > 33 {
            continue;
        }
        let five = Expr::literal(Scalar::Int(5), DataType::Int64);
        let predicate = compare(CompareOp::Greater, column(&both, 0), five);
        let schema = both.schema.clone();
        let kept = Plan { kind: PlanKind::Filter { input: Box::new(both.clone()), predicate }, schema };
        let mut joined = join(&inputs[0], &inputs[2], 1);
        joined.build = kept.clone();
        joined.on = vec![(column(&both, 1), column(&joined.probe, 1))];
        edges.push(equal(name("as a build side"), inputs.clone(), join_node(joined.clone())));
        std::mem::swap(&mut joined.build, &mut joined.probe);
        edges.push(equal(name("as a probe side"), inputs.clone(), join_node(joined)));
        let groups = group(input(&inputs, 1), vec![column(&both, 1)], vec![]);
        let strings = Plan {
            kind: PlanKind::Project { input: Box::new(both.clone()), exprs: vec![column(&both, 1)] },
            schema: groups.schema.clone(),
        };
        edges.push(equal(name("of groups and rows"), inputs.clone(), union(vec![groups, strings])));
        let nothing = node(PlanKind::Project { input: Box::new(both), exprs: vec![] }, std::iter::empty());
        let no_columns = union(vec![nothing.clone(), nothing]);
        let count = AggregateCall::new(Count, None, DataType::Int64);
        edges.push(equal(name("without columns"), inputs, group(no_columns, vec![], vec![count])));
    }
    edges
}

/// The node of a group-by by sets of keys.
fn by_sets(input: Plan, group_by: Vec<Expr>, sets: &[&[usize]], aggregates: Vec<AggregateCall>) -> Plan {
    let mut types: Vec<_> = group_by.iter().map(|e| (e.data_type.clone(), true)).collect();
    types.push((DataType::UInt8, false));
    types.extend(aggregates.iter().map(result_type));
    let sets = sets.iter().enumerate().map(|(id, keys)| GroupingSet { keys: keys.to_vec(), id: id as u64 }).collect();
    let kind = PlanKind::GroupingSets { input: Box::new(input), group_by, sets, aggregates };
    node(kind, types.iter().map(|(t, n)| (t, *n)))
}

/// Names and sets of three keys.
const SETS: [(&str, &[&[usize]]); 7] = [
    ("rollup", &[&[0, 1, 2], &[0, 1], &[0], &[]]),
    ("cube", &[&[0, 1, 2], &[0, 1], &[0, 2], &[1, 2], &[0], &[1], &[2], &[]]),
    ("sets within no other", &[&[0], &[1, 2]]),
    ("equal sets", &[&[1], &[0, 1], &[1], &[]]),
    ("one set", &[&[0, 2]]),
    ("only the empty set", &[&[]]),
    ("the empty set twice", &[&[], &[2], &[]]),
];

fn grouping_sets() -> Vec<Edge> {
    let types = [DataType::Int32, DataType::Utf8, DataType::Decimal128(38, 0), DataType::Int64, DataType::Float64];
    let mut edges = vec![];
    for rows in [0, 1, 33, 600, 6000] {
        let some = |row: usize, v: V| if row.is_multiple_of(11) { V::Null } else { v };
        let columns = [
            ints((0..rows).map(|row| (row % 4 != 1).then_some(row as i128 % 3))),
            (0..rows).map(|row| some(row, V::Text(format!("t{}", row * 7919 % 20)))).collect(),
            (0..rows).map(|row| some(row, V::Int((row as i128 % 5) * (1_000_000_007 << 60)))).collect(),
            (0..rows).map(|row| some(row + 3, V::Int(row as i128 * 31 % 97 - 40))).collect(),
            (0..rows).map(|row| V::Float(row as f64 / 4.0)).collect(),
        ];
        let inputs = vec![batch(&columns, &types, true)];
        let source = input(&inputs, 0);
        let keys: Vec<Expr> = (0..3).map(|key| column(&source, key)).collect();
        let call = |function: AggregateFunction, index| aggregate_call(function, column(&source, index)).expect("one");
        let mut plain = every_aggregate(&source, 3);
        plain.extend([call(Sum, 4), call(Avg, 4), call(Max, 1)]);
        plain.extend(moment_call(Moment::ALL[3], column(&source, 3), None));
        let distinct = vec![call(Count, 3).distinct(), call(Sum, 4), call(Count, 1).distinct()];
        for (name, sets) in SETS {
            if rows == 6000 && name != "rollup" {
                continue;
            }
            let mut add = |what: &str, calls: Vec<AggregateCall>| {
                let plan = by_sets(source.clone(), keys.clone(), sets, calls);
                edges.push(equal(format!("{name} of {rows} rows, {what}"), inputs.clone(), plan));
            };
            add("aggregates", plain.clone());
            if [0, 33, 600].contains(&rows) {
                add("distinct", distinct.clone());
            }
            if rows == 33 {
                add("nothing", vec![]);
            }
        }
    }
    edges
}

/// Sets over a join, whose rows several group-bys read; and a group-by of sets.
fn nested() -> Vec<Edge> {
    let keyed = |rows: usize, distinct: i128| {
        super::keyed(&[ints((0..rows as i128).map(|row| Some(row * 31 % distinct)))], &DataType::Int32)
    };
    let inputs = vec![keyed(60, 20), keyed(200, 25)];
    let joined = join_node(join(&inputs[0], &inputs[1], 1));
    let keys = || vec![column(&joined, 0), column(&joined, 3)];
    let calls = every_aggregate(&joined, 1);
    let of_join = |sets| by_sets(joined.clone(), keys(), sets, calls.clone());
    let several: &[&[usize]] = &[&[0], &[1], &[]];
    let sets = of_join(several);
    let again = group(sets.clone(), vec![column(&sets, 2)], every_aggregate(&sets, 3));
    let distinct: Vec<AggregateCall> = [0, 1, 3]
        .iter()
        .filter_map(|&index| aggregate_call(Count, column(&joined, index)).map(AggregateCall::distinct))
        .collect();
    let rows = batch(&[numbers(40)], &[DataType::Int64], true);
    let none = by_sets(input(std::slice::from_ref(&rows), 0), vec![], &[&[], &[]], vec![]);
    vec![
        equal("rollup over a join", inputs.clone(), of_join(&[&[0, 1], &[0], &[]])),
        equal("sets over a join", inputs.clone(), sets),
        equal("a group-by of sets", inputs.clone(), again),
        equal("distinct sets over a join", inputs.clone(), by_sets(joined.clone(), keys(), several, distinct.clone())),
        equal("distinct of several over a join", inputs, group(joined.clone(), vec![column(&joined, 2)], distinct)),
        equal("sets of no keys", vec![rows], none),
    ]
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = unions();
    edges.extend(grouping_sets());
    edges.extend(nested());
    edges
}
