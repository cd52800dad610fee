//! Second moments: what their sums add up, and the statistics that are made of the sums.

use arrow::datatypes::DataType;
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_plan::plan::{Moment, Term};

use crate::bind::{Binder, Value};
use crate::program::{Code, Function, Op};
use crate::value::{CType, Kind, Range, RangeType};

/// Numbers that doubles hold exactly: those of wider columns DataFusion rounds first.
const EXACT: i128 = 1 << 53;

/// The distance of a number from the middle of its bounds.
fn centred(b: &mut Binder, value: &Value) -> Result<Value> {
    let range = value.range().ok_or_else(|| Error::internal("a moment of no integer"))?;
    if range.min < -EXACT || range.max > EXACT {
        return Err(Reason::Aggregate("second moment of numbers beyond 53 bits".into()).into());
    }
    let middle = range.min + (range.max - range.min) / 2;
    let middle_code = b.number(middle as i64);
    let range = Range::new(range.min - middle, range.max - middle);
    let distance = b.in_parens(b.cast(CType::I64, value.code), Op::Subtract, middle_code);
    let code = b.temporary(range.c_type(), b.cast(range.c_type(), distance));
    Ok(Value { code, kind: Kind::Int(range), dictionary: None, ..value.clone() })
}

/// What a sum adds of a row, in a variable that is there in later sections.
pub(crate) fn term(b: &mut Binder, term: Term, first: &Value, second: Option<&Value>) -> Result<Value> {
    let x = match term {
        Term::Value => return Ok(first.clone()),
        Term::Distance | Term::Product => centred(b, first)?,
    };
    if term == Term::Distance {
        return Ok(b.hoist(x));
    }
    let y = second.map_or_else(|| Ok(x.clone()), |second| centred(b, second))?;
    let (Some(of_x), Some(of_y)) = (x.range(), y.range()) else {
        return Err(Error::internal("a product of no integers"));
    };
    let bound = of_x.min.abs().max(of_x.max) * of_y.min.abs().max(of_y.max);
    let range = Range::new(if second.is_some() { -bound } else { 0 }, bound);
    let c_type = range.c_type();
    let code = b.temporary(c_type, b.binary(b.code_as(&x, c_type), Op::Multiply, b.code_as(&y, c_type)));
    Ok(b.hoist(Value { code, valid: b.both_valid(&x, &y), kind: Kind::Int(range), ..x }))
}

/// Binds [`warpjoin_columns::expr::ExprKind::Moment`].
pub(super) fn moment(b: &mut Binder, moment: Moment, scale: i32, sums: &[Value]) -> Result<Value> {
    let is_float = sums.iter().any(|sum| sum.kind == Kind::F64);
    let c_type = if is_float { CType::F64 } else { CType::I128 };
    let code_of = |b: &Binder, index: usize| {
        let code = b.code_as(&sums[index], c_type);
        match sums[index].valid {
            Some(valid) => b.parens(b.select(valid, code, b.cast(c_type, b.whole(0)))),
            None => code,
        }
    };
    let count = b.temporary(CType::I64, b.code_as(&sums[0], CType::I64));
    let central = |b: &mut Binder, x: usize, y: usize, xy: usize| {
        let (x_code, xy_code) = (code_of(b, x), code_of(b, xy));
        let code = if x == y {
            b.call(Function::CentralSquare, &[count, x_code, xy_code])
        } else {
            b.call(Function::CentralSum, &[count, x_code, code_of(b, y), xy_code])
        };
        b.temporary(CType::F64, code)
    };
    let enough = b.binary(count, Op::GreaterOrEqual, b.whole(moment.values_min().into()));
    let scaled = |b: &Binder, code| b.binary(code, Op::Divide, b.power_of_ten(scale));
    let ratio = |b: &Binder, left, right| b.binary(left, Op::Divide, right);
    let with_spread = |b: &Binder, sum| {
        let varies = b.binary(sum, Op::NotEqual, b.double(0.0));
        b.binary(enough, Op::And, varies)
    };
    let (code, valid) = match (moment, sums.len()) {
        (Moment::Correlation, 6) => {
            let (xy, xx, yy) = (central(b, 1, 2, 3), central(b, 1, 1, 4), central(b, 2, 2, 5));
            let root = |sum| b.call(Function::Sqrt, &[sum]);
            let code = ratio(b, ratio(b, xy, root(xx)), root(yy));
            (code, correlation_exists(b, with_spread(b, xx), xx, yy))
        }
        (Moment::RegressionSxy, 4) => {
            let xy = central(b, 1, 2, 3);
            (scaled(b, xy), enough)
        }
        // Of pairs (y, x).
        (Moment::RegressionSyy, 6) => {
            let yy = central(b, 1, 1, 4);
            (scaled(b, yy), enough)
        }
        (Moment::RegressionSxx, 6) => {
            let xx = central(b, 2, 2, 5);
            (scaled(b, xx), enough)
        }
        (Moment::RegressionSlope, 6) => {
            let (xy, xx) = (central(b, 1, 2, 3), central(b, 2, 2, 5));
            (scaled(b, ratio(b, xy, xx)), with_spread(b, xx))
        }
        (Moment::RegressionR2, 6) => {
            let (xy, yy, xx) = (central(b, 1, 2, 3), central(b, 1, 1, 4), central(b, 2, 2, 5));
            let [of_x, of_y] = [xx, yy].map(|square| b.parens(ratio(b, xy, square)));
            let both = b.binary(with_spread(b, xx), Op::And, b.binary(yy, Op::NotEqual, b.double(0.0)));
            (b.binary(of_x, Op::Multiply, of_y), both)
        }
        (_, 3 | 4) => {
            let sum = if sums.len() == 3 { central(b, 1, 1, 2) } else { central(b, 1, 2, 3) };
            let divisor = match moment.values_min() {
                1 => count,
                least => b.in_parens(count, Op::Subtract, b.whole(i64::from(least) - 1)),
            };
            let mean = scaled(b, ratio(b, sum, b.cast(CType::F64, divisor)));
            let is_root = matches!(moment, Moment::DeviationPopulation | Moment::DeviationSample);
            (if is_root { b.call(Function::Sqrt, &[mean]) } else { mean }, enough)
        }
        _ => return Err(Error::internal(format!("{moment:?} of {} sums", sums.len()))),
    };
    let valid = b.temporary(CType::Bool, valid);
    let code = b.temporary(CType::F64, b.select(valid, code, b.double(0.0)));
    Ok(Value::new(code, Kind::F64, DataType::Float64).with_valid(Some(valid)))
}

/// When a correlation is not null. As in DataFusion: NaN where both arguments have one, null where one of them does; else
/// where the first argument's `varies` holds, and the second one varies too.
fn correlation_exists(b: &Binder, varies: Code, xx: Code, yy: Code) -> Code {
    let [x_nan, y_nan] = [xx, yy].map(|sum| b.in_parens(sum, Op::NotEqual, sum));
    let vary = b.binary(varies, Op::And, b.binary(yy, Op::NotEqual, b.double(0.0)));
    b.select(b.binary(x_nan, Op::Or, y_nan), b.binary(x_nan, Op::And, y_nan), vary)
}
