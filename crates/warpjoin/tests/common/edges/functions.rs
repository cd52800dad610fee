//! Scalar functions and casts at the edges of their types.

use arrow::datatypes::{DataType, TimeUnit};
use warpjoin::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin::function::{DateFunction, DatePart, DateUnit, Function, Interval};

use super::super::case::Outcome;
use super::super::random_expr::{arithmetic, boolean, call, compare};
use super::super::value::{V, int_bounds};
use super::Edge;
use super::numbers::{INTEGERS, pairs, project};

fn try_cast(operand: Expr, data_type: DataType) -> Expr {
    Expr { kind: ExprKind::TryCast(Box::new(operand)), data_type, nullable: true }
}

/// One column, and the expressions of it.
fn of_one(name: String, data_type: &DataType, mut values: Vec<V>, exprs: impl FnOnce(Expr) -> Vec<Expr>) -> Edge {
    values.push(V::Null);
    let other = values.clone();
    project(name, data_type, [values, other], |a, _| exprs(a))
}

pub(super) fn ints(values: &[i128]) -> Vec<V> {
    values.iter().map(|&value| V::Int(value)).collect()
}

pub(super) fn floats(values: &[f64]) -> Vec<V> {
    values.iter().map(|&value| V::Float(value)).collect()
}

pub(super) const ODD: [f64; 15] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    2.345,
    -1234.5678,
    1e300,
    -1e300,
    4503599627370497.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

fn of_floats() -> Vec<Edge> {
    let mut edges = vec![];
    for data_type in [DataType::Float64, DataType::Float32] {
        let values = floats(&ODD.map(|x| if data_type == DataType::Float32 { f64::from(x as f32) } else { x }));
        let remainders =
            |a: Expr, b: Expr| vec![arithmetic(warpjoin::expr::ArithmeticOp::Modulo, a, b, data_type.clone())];
        edges.push(project(format!("pairs of {data_type}"), &data_type, pairs(&values), remainders));
        let mut negative = of_one(format!("root of a negative {data_type}"), &data_type, floats(&[1.0, -1.0]), |a| {
            vec![call(Function::SquareRoot, vec![a], data_type.clone())]
        });
        negative.outcome = Outcome::Failed;
        edges.push(negative);
    }
    edges
}

fn of_integers() -> Vec<Edge> {
    let mut edges = vec![];
    for data_type in INTEGERS {
        // What rounds up past the type is an error.
        let (min, max) = int_bounds(&data_type).unwrap_or_default();
        let (min, max) = (min / 2 + 1, max / 2);
        let all = ints(&[min, -15, -14, -5, -1, 0, 1, 4, 5, 14, 15, 44, max].map(|i| i.clamp(min, max)));
        edges.push(of_one(format!("rounded {data_type}"), &data_type, all, |a| {
            let of = |function: Function| call(function, vec![a.clone()], data_type.clone());
            [2, 0, -1, -2, -9, -19, -30]
                .map(|places| of(Function::Round { places }))
                .into_iter()
                .chain([of(Function::Absolute)])
                .collect()
        }));
    }
    let mut smallest = of_one("abs of the smallest".into(), &DataType::Int32, ints(&[i32::MIN.into()]), |a| {
        vec![call(Function::Absolute, vec![a], DataType::Int32)]
    });
    smallest.outcome = Outcome::Failed;
    edges.push(smallest);
    edges
}

fn of_decimals() -> Vec<Edge> {
    let mut edges = vec![];
    let types = [
        DataType::Decimal32(7, 2),
        DataType::Decimal64(16, 3),
        DataType::Decimal128(20, 3),
        DataType::Decimal128(38, 10),
        DataType::Decimal128(12, 0),
    ];
    for data_type in types {
        let values = ints(&[0, 1, -1, 49, 50, -50, 149, 150, -150, 1499, 1500, -1500, -1501, 99_999, -99_999]);
        let (precision, scale) = super::super::value::decimal(&data_type).unwrap_or_default();
        let with_scale = |scale: i8| super::super::random::with_precision(&data_type, precision, scale);
        edges.push(of_one(format!("functions of {data_type}"), &data_type, values, |a| {
            let of = |function: Function, to: DataType| call(function, vec![a.clone()], to);
            let mut exprs = vec![
                of(Function::Absolute, data_type.clone()),
                of(Function::Ceil, data_type.clone()),
                of(Function::Floor, data_type.clone()),
                of(Function::Truncate { places: None }, data_type.clone()),
                of(Function::Truncate { places: Some(1) }, data_type.clone()),
                of(Function::Truncate { places: Some(-2) }, data_type.clone()),
            ];
            for places in [-3, -1, 0, 1, 2, 5] {
                exprs.push(of(Function::Round { places }, with_scale(scale.min(places.max(0) as i8))));
            }
            exprs
        }));
    }
    let mut beyond = of_one("ceil that overflows".into(), &DataType::Decimal32(3, 2), ints(&[999]), |a| {
        vec![call(Function::Ceil, vec![a], DataType::Decimal32(3, 2))]
    });
    beyond.outcome = Outcome::Failed;
    edges.push(beyond);
    edges
}

fn time_types() -> Vec<DataType> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let mut types = vec![DataType::Date32, DataType::Date64];
    for unit in [Second, Millisecond, Microsecond, Nanosecond] {
        types.push(DataType::Timestamp(unit, None));
        types.push(DataType::Timestamp(unit, Some("+05:30".into())));
    }
    types.push(DataType::Timestamp(Second, Some("UTC".into())));
    types
}

fn ticks(data_type: &DataType) -> i128 {
    match data_type {
        DataType::Date32 => 1,
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 86_400_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 86_400_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 86_400_000_000_000,
        _ => 86_400,
    }
}

/// Ends of months and years, leap days, and the times around midnight.
pub(super) fn moments(data_type: &DataType) -> Vec<V> {
    let days = [
        0, -1, 1, 10_956, 10_957, 11_015, 11_016, 11_017, 11_322, 11_323, 18_261, 18_262, 18_321, 18_322, 18_627,
        19_358, 19_722, 19_723, 19_782, -719_162, -25_567, -25_508, 47_541, 106_000, 16_800, 16_801, 14_609, 13_148,
    ];
    let day = ticks(data_type);
    let offsets: Vec<i128> = if day == 1 { vec![0] } else { vec![-1, 0, 1, day / 3 + 7, day - 1] };
    let is_small = |value: &i128| {
        *data_type != DataType::Timestamp(TimeUnit::Nanosecond, None) || value.abs() < 9_200_000_000_000_000_000
    };
    let all = days.iter().flat_map(|at| offsets.iter().map(move |offset| at * day + offset));
    let (min, max) = int_bounds(data_type).unwrap_or_default();
    all.filter(is_small).map(|value| V::Int(value.clamp(min, max))).collect()
}

fn of_dates() -> Vec<Edge> {
    let mut edges = vec![];
    for data_type in time_types() {
        edges.push(of_one(format!("parts of {data_type}"), &data_type, moments(&data_type), |a| {
            let of = |part: DatePart| call(Function::Date(DateFunction::Part(part)), vec![a.clone()], part.data_type());
            DatePart::ALL.map(of).to_vec()
        }));
        let (min, max) = int_bounds(&data_type).unwrap_or_default();
        if ticks(&data_type) < 86_400_000_000 {
            let mut beyond = of_one(format!("year of the last {data_type}"), &data_type, ints(&[min, max]), |a| {
                vec![call(Function::Date(DateFunction::Part(DatePart::Year)), vec![a], DataType::Int32)]
            });
            beyond.outcome = Outcome::Failed;
            edges.push(beyond);
        }
        if matches!(data_type, DataType::Date64) {
            continue;
        }
        let intervals =
            [(1, 0, 0), (-1, 0, 0), (13, 0, 0), (0, 40, 0), (0, -3, 1), (-25, 30, -1), (1, 1, 90_000_000_000_001)];
        // Far from the ends of 64 bits of nanoseconds.
        let near: Vec<V> = moments(&data_type)
            .into_iter()
            .filter(|value| matches!(value, V::Int(value) if (value / ticks(&data_type)).abs() < 100_000))
            .collect();
        edges.push(of_one(format!("{data_type} and intervals"), &data_type, near.clone(), |a| {
            let of = |(months, days, nanoseconds): (i32, i32, i64)| {
                let interval = Interval { months, days, nanoseconds };
                call(Function::Date(DateFunction::AddInterval(interval)), vec![a.clone()], data_type.clone())
            };
            intervals.map(of).to_vec()
        }));
        if data_type == DataType::Date32 {
            continue;
        }
        edges.push(of_one(format!("truncated {data_type}"), &data_type, near, |a| {
            DateUnit::ALL
                .map(|unit| call(Function::Date(DateFunction::Truncate(unit)), vec![a.clone()], data_type.clone()))
                .to_vec()
        }));
    }
    for data_type in [DataType::Date32, DataType::Date64] {
        let some: Vec<V> = moments(&data_type).into_iter().step_by(7).collect();
        edges.push(project(format!("days between {data_type}"), &data_type, pairs(&some), |a, b| {
            vec![call(Function::Date(DateFunction::DaysBetween), vec![a, b], DataType::Int64)]
        }));
    }
    edges
}

fn try_casts() -> Vec<Edge> {
    use DataType::{Boolean, Date32, Decimal64, Decimal128, Float64, Int8, Int32, Int64, UInt64};
    let of = |from: &DataType, values: Vec<V>, targets: &[DataType]| {
        of_one(format!("TRY_CAST of {from}"), from, values, |a| {
            targets.iter().map(|to| try_cast(a.clone(), to.clone())).collect()
        })
    };
    let wide = [i64::MIN.into(), -129, -128, -1, 0, 127, 128, 99_999_999, 100_000_000, i64::MAX.into()];
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
    vec![
        of(&Int64, ints(&wide), &[Int8, Int32, UInt64, Decimal128(10, 2), Boolean, Date32]),
        of(
            &Float64,
            floats(&ODD),
            &[Int8, Int64, UInt64, Boolean, Decimal64(10, 2), Decimal128(38, 5), Decimal128(20, 3)],
        ),
        of(
            &Decimal128(38, 3),
            ints(&[0, 1499, 1500, -1500, 10i128.pow(37), -(10i128.pow(38) - 1)]),
            &[Int8, Int32, Decimal128(4, 0), Decimal128(38, 10), Float64],
        ),
        of(&seconds, ints(&[0, -5, 1_700_000_000, i64::MAX.into()]), &[nanoseconds.clone(), Int64, Int32]),
    ]
}

fn casts() -> Vec<Edge> {
    use DataType::{Date32, Date64, Decimal64, Decimal128, Float32, Float64, Int32, Int64};
    let cast = super::super::random_expr::cast;
    let of = |from: &DataType, values: Vec<V>, targets: &[DataType]| {
        of_one(format!("casts of {from}"), from, values, |a| {
            targets.iter().map(|to| cast(a.clone(), to.clone())).collect()
        })
    };
    let stamp = |unit| DataType::Timestamp(unit, None);
    let mut edges = vec![
        of(
            &Float64,
            floats(&[0.0, -0.0, 0.125, -0.125, 0.005, 1.005, -2.675, 123_456.789, 1e9]),
            &[Decimal128(20, 2), Decimal128(38, 20), Decimal64(18, 4), Decimal128(15, 0)],
        ),
        of(&Float32, floats(&[0.0, 0.5, -1.25, 1.100_000_023_841_858, 16_777_216.0]), &[Decimal128(20, 3), Float64]),
        of(&Float64, floats(&[1e25, -3.3e25, 1.234_567e28]), &[Decimal128(38, 2)]),
        of(&Date32, ints(&[0, -1, 1, 19_000]), &[Int32, Int64, Date64, stamp(TimeUnit::Nanosecond)]),
        of(
            &Int64,
            ints(&[0, -1, 19_000]),
            &[Date32, Date64, stamp(TimeUnit::Microsecond), DataType::Duration(TimeUnit::Second)],
        ),
        of(&Int32, ints(&[0, -1, 19_000]), &[Date32, Date64, stamp(TimeUnit::Second)]),
        of(&Date64, ints(&[0, -1, -86_400_001, 86_400_000]), &[Date32, Int64, stamp(TimeUnit::Second)]),
    ];
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        let from = stamp(unit);
        let near = moments(&from);
        edges.push(of(
            &from,
            near,
            &[Date32, Date64, stamp(TimeUnit::Second), stamp(TimeUnit::Millisecond), Int64, Float64],
        ));
    }
    edges.push(of(
        &DataType::Timestamp(TimeUnit::Second, Some("+05:30".into())),
        ints(&[0, 66_599, 66_600, -19_801, -19_800]),
        &[Date32, stamp(TimeUnit::Second)],
    ));
    edges
}

/// CASE and comparisons of strings that come from different columns and constants.
fn of_strings() -> Vec<Edge> {
    let mut edges = vec![];
    for data_type in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
        let texts = ["", "a", "b", "a text of more than twelve bytes", "ä"].map(|text| V::Text(text.into()));
        let literal = |text: &str| Expr::literal(Scalar::Bytes(text.as_bytes().into()), data_type.clone());
        let mut values = pairs(&texts);
        values[1].iter_mut().for_each(|value| {
            if let V::Text(text) = value
                && text == "b"
            {
                text.push('c');
            }
        });
        edges.push(project(format!("{data_type} of two columns"), &data_type, values, |a, b| {
            use CompareOp::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
            let mut exprs = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual]
                .map(|op| compare(op, a.clone(), b.clone()))
                .to_vec();
            exprs.push(compare(Less, literal("aa"), b.clone()));
            exprs.push(call(Function::Greatest, vec![a.clone(), b.clone(), literal("aa")], data_type.clone()));
            exprs.push(call(Function::Least, vec![a.clone(), b.clone()], data_type.clone()));
            let case = |otherwise: Option<Expr>| {
                let is_null = boolean(ExprKind::IsNull(Box::new(a.clone())), false);
                let branches = vec![
                    (is_null, literal("none")),
                    (compare(Equal, a.clone(), b.clone()), a.clone()),
                    (compare(Less, a.clone(), b.clone()), b.clone()),
                ];
                let otherwise = otherwise.map(Box::new);
                Expr { kind: ExprKind::Case { branches, otherwise }, data_type: data_type.clone(), nullable: true }
            };
            exprs.extend([
                case(None),
                case(Some(literal("other"))),
                case(Some(Expr::literal(Scalar::Null, data_type.clone()))),
            ]);
            exprs.extend([literal("constant"), Expr::literal(Scalar::Null, data_type.clone())]);
            exprs
        }));
    }
    edges
}

pub(super) fn edges() -> Vec<Edge> {
    let mut edges = of_floats();
    edges.extend(of_integers());
    edges.extend(of_decimals());
    edges.extend(of_dates());
    edges.extend(try_casts());
    edges.extend(casts());
    edges.extend(of_strings());
    edges
}
