//! Expressions at the edges of their types, and the faults that must be reported.

use arrow::datatypes::{DataType, TimeUnit};
use warpjoin::expr::ArithmeticOp::{Add, Divide, Modulo, Multiply, Subtract};
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use warpjoin::plan::PlanKind;

use super::super::case::Outcome;
use super::super::data::batch;
use super::super::random::{input, node};
use super::super::random_expr::{arithmetic, boolean, cast, compare};
use super::super::value::{V, int_bounds};
use super::{Edge, equal};

/// A projection of expressions over columns `a` and `b` of one type.
pub(super) fn project(
    name: String,
    data_type: &DataType,
    values: [Vec<V>; 2],
    exprs: impl FnOnce(Expr, Expr) -> Vec<Expr>,
) -> Edge {
    let types = [data_type.clone(), data_type.clone()];
    let inputs = vec![batch(&values, &types, true)];
    let source = input(&inputs, 0);
    let column = |index: usize| Expr::column(index, data_type.clone(), source.schema.field(index).is_nullable());
    let exprs = exprs(column(0), column(1));
    let out: Vec<_> = exprs.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
    let plan = node(PlanKind::Project { input: Box::new(source), exprs }, out.iter().map(|(t, n)| (t, *n)));
    equal(name, inputs, plan)
}

pub(super) const INTEGERS: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
];

/// All pairs of some values, and nulls.
pub(super) fn pairs(values: &[V]) -> [Vec<V>; 2] {
    let mut all: Vec<(V, V)> = values.iter().flat_map(|a| values.iter().map(move |b| (a.clone(), b.clone()))).collect();
    all.extend([(V::Null, values[0].clone()), (values[0].clone(), V::Null), (V::Null, V::Null)]);
    all.into_iter().unzip().into()
}

fn integers() -> Vec<Edge> {
    let mut edges = vec![];
    for data_type in INTEGERS {
        let (min, max) = int_bounds(&data_type).unwrap_or_default();
        let all: Vec<V> =
            [min, min + 1, min / 2, -1, 0, 1, 2, 7, max / 2, max - 1, max].map(|i| V::Int(i.clamp(min, max))).to_vec();
        edges.push(project(format!("{data_type} that wraps"), &data_type, pairs(&all), |a, b| {
            [Add, Subtract, Multiply].map(|op| arithmetic(op, a.clone(), b.clone(), data_type.clone())).to_vec()
        }));
        let divisible: Vec<V> = all.iter().filter(|v| !matches!(v, V::Int(0 | -1))).cloned().collect();
        edges.push(project(format!("{data_type} divided"), &data_type, pairs(&divisible), |a, b| {
            [Divide, Modulo].map(|op| arithmetic(op, a.clone(), b.clone(), data_type.clone())).to_vec()
        }));
        edges.push(project(format!("{data_type} compared"), &data_type, pairs(&all), |a, b| {
            use CompareOp::{Equal, Greater, GreaterOrEqual, Identical, Less, LessOrEqual, NotEqual};
            [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, Identical]
                .map(|op| compare(op, a.clone(), b.clone()))
                .to_vec()
        }));
        for (divisor, outcome) in [(0, Outcome::Failed), (-1, Outcome::Failed)] {
            if min == 0 && divisor < 0 {
                continue;
            }
            let mut edge = project(
                format!("{data_type} / {divisor}"),
                &data_type,
                [vec![V::Int(min); 40], vec![V::Int(divisor); 40]],
                |a, b| vec![arithmetic(Divide, a, b, data_type.clone())],
            );
            edge.outcome = outcome;
            edges.push(edge);
        }
    }
    edges
}

/// Decimals at the end of their storage: right, or an overflow, never wrapped.
fn decimals() -> Vec<Edge> {
    let mut edges = vec![];
    let mut add =
        |name: &str, data_type: DataType, (a, b): (i128, i128), op: ArithmeticOp, to: DataType, outcome: Outcome| {
            let mut edge = project(
                format!("{name} of {data_type}"),
                &data_type,
                [vec![V::Int(a); 33], vec![V::Int(b); 33]],
                |a, b| vec![arithmetic(op, a, b, to)],
            );
            edge.outcome = outcome;
            edges.push(edge);
        };
    use Outcome::{Equal, Failed};
    let (d32, d64, d128) = (DataType::Decimal32(9, 2), DataType::Decimal64(18, 2), DataType::Decimal128(38, 2));
    let (m32, m64, m128) = (999_999_999, 10i128.pow(18) - 1, 10i128.pow(38) - 1);
    add("sum", d32.clone(), (m32, m32), Add, d32.clone(), Equal);
    add("product that overflows", d32.clone(), (m32, m32), Multiply, DataType::Decimal32(9, 4), Failed);
    add("product that underflows", d32.clone(), (m32, -m32), Multiply, DataType::Decimal32(9, 4), Failed);
    add("quotient that overflows", d32.clone(), (m32, 1), Divide, DataType::Decimal32(9, 6), Failed);
    add("quotient that underflows", d32.clone(), (-m32, 1), Divide, DataType::Decimal32(9, 6), Failed);
    add("quotient", d32.clone(), (1000, -30), Divide, DataType::Decimal32(9, 6), Equal);
    add("quotient by zero", d32.clone(), (1000, 0), Divide, DataType::Decimal32(9, 6), Failed);
    add("sum", d64.clone(), (m64, m64), Add, d64.clone(), Equal);
    add("product that overflows", d64.clone(), (m64, m64), Multiply, DataType::Decimal64(18, 4), Failed);
    add("quotient that underflows", d64.clone(), (-m64, 1), Divide, DataType::Decimal64(18, 6), Failed);
    add("difference", d128.clone(), (m64, -m64), Subtract, d128.clone(), Equal);
    add("product", d128.clone(), (m64, m64), Multiply, DataType::Decimal128(38, 4), Equal);
    add("quotient", d128.clone(), (m64, 7), Divide, DataType::Decimal128(38, 6), Equal);
    add("remainder", d128.clone(), (m64, -7), Modulo, d128.clone(), Equal);

    add("product beyond 128 bits", d128.clone(), (m128, m128), Multiply, DataType::Decimal128(38, 4), Failed);
    edges
}

fn casts() -> Vec<Edge> {
    use DataType::{Boolean, Decimal128, Float32, Float64, Int8, Int32, Int64, UInt8, UInt64};
    let mut edges = vec![];
    let mut add = |from: &DataType, values: &[V], to: &DataType, outcome: Outcome| {
        let mut edge = project(
            format!("cast of {from} to {to}, {outcome:?}"),
            from,
            [values.to_vec(), values.to_vec()],
            |a, _| vec![cast(a, to.clone())],
        );
        edge.outcome = outcome;
        edges.push(edge);
    };
    let ints = |values: &[i128]| values.iter().map(|&v| V::Int(v)).chain([V::Null]).collect::<Vec<_>>();
    let floats = |values: &[f64]| values.iter().map(|&v| V::Float(v)).chain([V::Null]).collect::<Vec<_>>();
    use Outcome::{Equal, Failed};
    add(&Int64, &ints(&[-128, 127, 0]), &Int8, Equal);
    for fault in [-129, 128, i128::from(i64::MIN)] {
        add(&Int64, &ints(&[fault, 1]), &Int8, Failed);
    }
    add(&Int64, &ints(&[0, 255]), &UInt8, Equal);
    add(&Int64, &ints(&[-1, 255]), &UInt8, Failed);
    add(&UInt64, &ints(&[0, u64::MAX.into()]), &Int64, Failed);
    add(&Int64, &ints(&[0, 5, -3, i64::MIN.into()]), &Boolean, Equal);
    add(&Int64, &ints(&[0, -5, 99_999_999]), &Decimal128(10, 2), Equal);
    add(&Int64, &ints(&[100_000_000]), &Decimal128(10, 2), Failed);
    let dec = Decimal128(20, 3);
    add(&dec, &ints(&[1499, 1500, -1500, -1499, 1_234_567, 0]), &Decimal128(20, 0), Equal);
    add(&dec, &ints(&[1499, 1500, -1999, -999]), &Int32, Equal);
    add(&dec, &ints(&[9_999_500]), &Decimal128(4, 0), Failed);
    add(&dec, &ints(&[9_999_499, -9_999_499]), &Decimal128(4, 0), Equal);
    add(&dec, &ints(&[1499, -1500, 123_456_789]), &Float64, Equal);
    add(&dec, &ints(&[1499, -1500, 123_456_789]), &Float32, Equal);
    let (low, high) = (-2_147_483_648.9, 2_147_483_647.9);
    add(&Float64, &floats(&[low, high, -0.9, 0.9, -0.0]), &Int32, Equal);
    for fault in [f64::NAN, f64::INFINITY, 2_147_483_648.0, -2_147_483_649.0] {
        add(&Float64, &floats(&[fault, 1.0]), &Int32, Failed);
    }
    add(&Float64, &floats(&[-9_223_372_036_854_775_808.0, 9_223_372_036_854_774_784.0]), &Int64, Equal);
    add(&Float64, &floats(&[9_223_372_036_854_775_808.0]), &Int64, Failed);
    add(&Float64, &floats(&[18_446_744_073_709_549_568.0, -0.9]), &UInt64, Equal);
    add(&Float64, &floats(&[-1.0]), &UInt64, Failed);
    add(&Float64, &floats(&[0.1, 1e30, f64::NAN]), &Float32, Equal);
    let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
    add(&DataType::Timestamp(TimeUnit::Second, None), &ints(&[0, -5, 1_700_000_000]), &nanoseconds, Equal);
    add(&DataType::Timestamp(TimeUnit::Second, None), &ints(&[i64::MAX.into()]), &nanoseconds, Failed);
    add(&DataType::Date32, &ints(&[0, -5, 19_000, i32::MAX.into()]), &DataType::Date64, Equal);
    edges
}

/// Three-valued logic over every pair, and CASE that guards a division.
fn logic() -> Vec<Edge> {
    let values = pairs(&[V::Bool(true), V::Bool(false)]);
    let all = project("three-valued logic".into(), &DataType::Boolean, values, |a, b| {
        let boxed = |e: &Expr| Box::new(e.clone());
        vec![
            boolean(ExprKind::And(boxed(&a), boxed(&b)), true),
            boolean(ExprKind::Or(boxed(&a), boxed(&b)), true),
            boolean(ExprKind::Not(boxed(&a)), true),
            boolean(ExprKind::IsNull(boxed(&b)), false),
            boolean(ExprKind::Not(Box::new(boolean(ExprKind::And(boxed(&a), boxed(&b)), true))), true),
        ]
    });
    let zeros = [0, 1, 5].map(V::Int).to_vec();
    let guarded = project("CASE that guards a division".into(), &DataType::Int32, pairs(&zeros), |a, b| {
        let zero = Expr::literal(Scalar::Int(0), DataType::Int32);
        let when = compare(CompareOp::NotEqual, b.clone(), zero);
        let then = arithmetic(Divide, a, b, DataType::Int32);
        let kind = ExprKind::Case { branches: vec![(when, then)], otherwise: None };
        vec![Expr { kind, data_type: DataType::Int32, nullable: true }]
    });
    vec![all, guarded]
}

/// Values that leave 128 bits at the other side's scale, where that side is null.
fn scaled_for_nobody() -> Edge {
    let types = [DataType::Decimal128(38, 0), DataType::Decimal128(30, 6)];
    let large = [10i128.pow(37), -(10i128.pow(38) - 1), 5, 7].map(V::Int).to_vec();
    let inputs = vec![batch(&[large, vec![V::Null, V::Null, V::Int(11), V::Null]], &types, true)];
    let source = input(&inputs, 0);
    let column = |index: usize| Expr::column(index, types[index].clone(), true);
    let exprs: Vec<Expr> = [Add, Subtract, Modulo]
        .iter()
        .map(|&op| arithmetic(op, column(0), column(1), DataType::Decimal128(38, 6)))
        .collect();
    let out: Vec<_> = exprs.iter().map(|e| (e.data_type.clone(), e.nullable)).collect();
    let plan = node(PlanKind::Project { input: Box::new(source), exprs }, out.iter().map(|(t, n)| (t, *n)));
    equal("decimals that nobody scales", inputs, plan)
}

fn floats() -> Edge {
    let all = [0.0, -0.0, 1.5, -1.5, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(V::Float);
    project("floats compared".into(), &DataType::Float64, pairs(&all), |a, b| {
        use CompareOp::{Equal, Greater, GreaterOrEqual, Identical, Less, LessOrEqual, NotEqual};
        let mut exprs = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, Identical]
            .map(|op| compare(op, a.clone(), b.clone()))
            .to_vec();
        let list = vec![Scalar::Float(0.0), Scalar::Float(f64::NAN), Scalar::Float(1.5)];
        exprs.push(boolean(ExprKind::InList { operand: Box::new(a), list, negated: false }, true));
        exprs
    })
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = integers();
    edges.extend(decimals());
    edges.extend(casts());
    edges.extend(logic());
    edges.push(scaled_for_nobody());
    edges.push(floats());
    edges
}
