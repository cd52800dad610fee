//! Second moments: what their sums add up, and the statistics that are made of the sums.

use arrow::datatypes::DataType;

use super::validity::both_valid;
use crate::codegen::emit::Emitter;
use crate::codegen::value::{CType, Kind, Range, Value};
use crate::plan::{Moment, Term};
use crate::{Error, Reason, Result};

/// Numbers that doubles hold exactly: those of wider columns DataFusion rounds first.
const EXACT: i128 = 1 << 53;

/// The distance of a number from the middle of its bounds.
fn centred(emitter: &mut Emitter, value: &Value) -> Result<Value> {
    let range = value.range().ok_or_else(|| Error::internal("a moment of no integer"))?;
    if range.min < -EXACT || range.max > EXACT {
        return Err(Reason::Aggregate("second moment of numbers beyond 53 bits".into()).into());
    }
    let middle = range.min + (range.max - range.min) / 2;
    let field = emitter.params.number(middle as i64);
    let range = Range::new(range.min - middle, range.max - middle);
    let name = range.c_type().name();
    let code = emitter.temporary(range.c_type(), &format!("({name})((i64){} - {field})", value.code));
    Ok(Value { code, kind: Kind::Int(range), dictionary: None, ..value.clone() })
}

/// What a sum adds of a row, in a variable that is there in later sections.
pub(in crate::codegen) fn term(
    emitter: &mut Emitter,
    term: Term,
    first: &Value,
    second: Option<&Value>,
) -> Result<Value> {
    let x = match term {
        Term::Value => return Ok(first.clone()),
        Term::Distance | Term::Product => centred(emitter, first)?,
    };
    if term == Term::Distance {
        return Ok(emitter.hoist(x));
    }
    let y = second.map_or_else(|| Ok(x.clone()), |second| centred(emitter, second))?;
    let (Some(a), Some(b)) = (x.range(), y.range()) else { return Err(Error::internal("a product of no integers")) };
    let bound = a.min.abs().max(a.max) * b.min.abs().max(b.max);
    let range = Range::new(if second.is_some() { -bound } else { 0 }, bound);
    let c_type = range.c_type();
    let code = emitter.temporary(c_type, &format!("{} * {}", x.code_as(c_type), y.code_as(c_type)));
    Ok(emitter.hoist(Value { code, valid: both_valid(&x, &y), kind: Kind::Int(range), ..x }))
}

/// Emits [`crate::expr::ExprKind::Moment`].
pub(super) fn moment(emitter: &mut Emitter, moment: Moment, scale: i32, sums: &[Value]) -> Result<Value> {
    let is_float = sums.iter().any(|sum| sum.kind == Kind::F64);
    let c_type = if is_float { CType::F64 } else { CType::I128 };
    let code_of = |index: usize| match &sums[index].valid {
        Some(valid) => format!("({valid} ? {} : ({})0)", sums[index].code_as(c_type), c_type.name()),
        None => sums[index].code_as(c_type),
    };
    let count = emitter.temporary(CType::I64, &sums[0].code_as(CType::I64));
    let central = |emitter: &mut Emitter, x: usize, y: usize, xy: usize| {
        let (x_code, xy_code) = (code_of(x), code_of(xy));
        let code = if x == y {
            format!("central_square({count}, {x_code}, {xy_code})")
        } else {
            format!("central_sum({count}, {x_code}, {}, {xy_code})", code_of(y))
        };
        emitter.temporary(CType::F64, &code)
    };
    let enough = format!("{count} >= {}", moment.values_min());
    let (code, valid) = match (moment, sums.len()) {
        (Moment::Correlation, 6) => {
            let (xy, xx, yy) = (central(emitter, 1, 2, 3), central(emitter, 1, 1, 4), central(emitter, 2, 2, 5));
            // As in DataFusion: NaN where both arguments have one, null where one of them does.
            let is_nan = |sum: &str| format!("({sum} != {sum})");
            let (x_nan, y_nan) = (is_nan(&xx), is_nan(&yy));
            let valid = format!("{x_nan} || {y_nan} ? {x_nan} && {y_nan} : {enough} && {xx} != 0.0 && {yy} != 0.0");
            (format!("{xy} / sqrt({xx}) / sqrt({yy})"), valid)
        }
        (Moment::RegressionSxy, 4) => {
            let xy = central(emitter, 1, 2, 3);
            (format!("{xy} / 1e{scale}"), enough)
        }
        // Of pairs (y, x).
        (Moment::RegressionSyy, 6) => (format!("{} / 1e{scale}", central(emitter, 1, 1, 4)), enough),
        (Moment::RegressionSxx, 6) => (format!("{} / 1e{scale}", central(emitter, 2, 2, 5)), enough),
        (Moment::RegressionSlope, 6) => {
            let (xy, xx) = (central(emitter, 1, 2, 3), central(emitter, 2, 2, 5));
            (format!("{xy} / {xx} / 1e{scale}"), format!("{enough} && {xx} != 0.0"))
        }
        (Moment::RegressionR2, 6) => {
            let (xy, yy, xx) = (central(emitter, 1, 2, 3), central(emitter, 1, 1, 4), central(emitter, 2, 2, 5));
            (format!("({xy} / {xx}) * ({xy} / {yy})"), format!("{enough} && {xx} != 0.0 && {yy} != 0.0"))
        }
        (_, 3 | 4) => {
            let sum = if sums.len() == 3 { central(emitter, 1, 1, 2) } else { central(emitter, 1, 2, 3) };
            let divisor = match moment.values_min() {
                1 => format!("(f64){count}"),
                least => format!("(f64)({count} - {})", least - 1),
            };
            let mean = format!("{sum} / {divisor} / 1e{scale}");
            let is_root = matches!(moment, Moment::DeviationPopulation | Moment::DeviationSample);
            (if is_root { format!("sqrt({mean})") } else { mean }, enough)
        }
        _ => return Err(Error::internal(format!("{moment:?} of {} sums", sums.len()))),
    };
    let valid = emitter.temporary(CType::Bool, &valid);
    let code = emitter.temporary(CType::F64, &format!("{valid} ? {code} : 0.0"));
    Ok(Value::new(code, Kind::F64, DataType::Float64).with_valid(Some(valid)))
}
