//! Scalar functions and intervals.
//!
//! Owns which of DataFusion's functions devices have, and with which constants.

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalDayTimeType, IntervalMonthDayNanoType};
use datafusion::common::ScalarValue;
use datafusion::functions::{core, datetime, math};
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use warpjoin::Reason;
use warpjoin::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin::function::{DatePart, DateUnit, Function, Interval};

use super::expr::{boolean, check_copied, is_constant, unsupported};
use super::{Translation, literal};

/// Makes DataFusion's own function of a name.
type Original = fn() -> Arc<ScalarUDF>;

/// What a function becomes.
#[derive(Clone, Copy)]
enum Form {
    /// The same function of the same arguments.
    Plain(Function),
    /// Decimal places as the second argument.
    Round,
    /// The same.
    Truncate,
    /// The part as the first argument.
    DatePart,
    /// The unit as the first argument.
    DateTruncate,
    /// A CASE.
    NullIf,
}

const FUNCTIONS: [(&str, Original, Form); 13] = [
    ("abs", math::abs, Form::Plain(Function::Absolute)),
    ("ceil", math::ceil, Form::Plain(Function::Ceil)),
    ("floor", math::floor, Form::Plain(Function::Floor)),
    ("signum", math::signum, Form::Plain(Function::Sign)),
    ("sqrt", math::sqrt, Form::Plain(Function::SquareRoot)),
    ("isnan", math::isnan, Form::Plain(Function::IsNan)),
    ("greatest", core::greatest, Form::Plain(Function::Greatest)),
    ("least", core::least, Form::Plain(Function::Least)),
    ("round", math::round, Form::Round),
    ("trunc", math::trunc, Form::Truncate),
    ("date_part", datetime::date_part, Form::DatePart),
    ("date_trunc", datetime::date_trunc, Form::DateTruncate),
    ("nullif", core::nullif, Form::NullIf),
];

/// Functions whose last bit depends on who computes them.
const INEXACT: [&str; 22] = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "cot", "degrees", "exp", "ln",
    "log", "log10", "log2", "power", "radians", "sin", "sinh", "tan",
];

impl Translation<'_> {
    pub(super) fn function(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        function: &ScalarFunctionExpr,
    ) -> Result<ExprKind, Reason> {
        let name = function.fun().name();
        let Some((_, original, form)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            let why = if INEXACT.contains(&name) { ", whose last bit differs between CPUs and devices" } else { "" };
            return Err(Reason::Expression(format!("{expr}: function {name}{why}")));
        };
        // A session may have another function under the same name.
        if *function.fun() != *original() {
            return Err(Reason::Expression(format!("{expr}: a function of one's own, {name}")));
        }
        let declined = || unsupported(expr);
        let arguments = function.args();
        let translated = |from: usize| -> Result<Vec<Expr>, Reason> {
            arguments[from..].iter().map(|argument| self.translate(argument)).collect()
        };
        match (form, arguments) {
            (Form::Plain(function), _) => Ok(ExprKind::Function(*function, translated(0)?)),
            (Form::Round, [value, places @ ..]) => {
                let places = constant_places(places)?.ok_or_else(declined)?.unwrap_or(0);
                Ok(ExprKind::Function(Function::Round { places }, vec![self.translate(value)?]))
            }
            (Form::Truncate, [value, places @ ..]) => {
                let places = constant_places(places)?.ok_or_else(declined)?;
                Ok(ExprKind::Function(Function::Truncate { places }, vec![self.translate(value)?]))
            }
            (Form::DatePart, [part, _]) => {
                let part = constant_text(part)?.as_deref().and_then(date_part).ok_or_else(declined)?;
                Ok(ExprKind::Function(Function::DatePart(part), translated(1)?))
            }
            (Form::DateTruncate, [unit, _]) => {
                let unit = constant_text(unit)?.as_deref().and_then(date_unit).ok_or_else(declined)?;
                Ok(ExprKind::Function(Function::DateTruncate(unit), translated(1)?))
            }
            (Form::NullIf, [value, other]) => self.null_if(expr, value, other),
            _ => Err(declined()),
        }
    }

    fn null_if(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        value: &Arc<dyn PhysicalExpr>,
        other: &Arc<dyn PhysicalExpr>,
    ) -> Result<ExprKind, Reason> {
        let (value, other) = (self.translate(value)?, self.translate(other)?);
        if value.data_type != other.data_type {
            return Err(unsupported(expr));
        }
        let null = Expr::literal(Scalar::Null, value.data_type.clone());
        let nullable = value.nullable || other.nullable;
        check_copied(&value)?;
        let equal = ExprKind::Compare(CompareOp::Identical, Box::new(value.clone()), Box::new(other));
        Ok(ExprKind::Case { branches: vec![(boolean(equal, nullable), null)], otherwise: Some(Box::new(value)) })
    }
}

/// A constant number of decimal places, if there is one; `None` where it is no constant, or null.
#[allow(clippy::option_option, reason = "no argument is not the same as one that is not supported")]
fn constant_places(arguments: &[Arc<dyn PhysicalExpr>]) -> Result<Option<Option<i32>>, Reason> {
    let Some(argument) = arguments.first() else { return Ok(Some(None)) };
    if !is_constant(argument) {
        return Ok(None);
    }
    Ok(match literal::evaluate(argument)? {
        ScalarValue::Int32(Some(places)) => Some(Some(places)),
        ScalarValue::Int64(Some(places)) => i32::try_from(places).ok().filter(|places| places.abs() <= 38).map(Some),
        _ => None,
    })
}

fn constant_text(argument: &Arc<dyn PhysicalExpr>) -> Result<Option<String>, Reason> {
    if !is_constant(argument) {
        return Ok(None);
    }
    let value = literal::evaluate(argument)?;
    Ok(value.try_as_str().flatten().map(str::to_lowercase))
}

fn date_part(name: &str) -> Option<DatePart> {
    Some(match name {
        "year" | "years" | "y" => DatePart::Year,
        "isoyear" => DatePart::IsoYear,
        "quarter" | "qtr" => DatePart::Quarter,
        "month" | "months" | "mon" => DatePart::Month,
        "week" | "weeks" | "w" => DatePart::Week,
        "day" | "days" | "d" => DatePart::Day,
        "doy" => DatePart::DayOfYear,
        "dow" => DatePart::DayOfWeek,
        "isodow" => DatePart::IsoDayOfWeek,
        "hour" | "hours" | "h" => DatePart::Hour,
        "minute" | "minutes" => DatePart::Minute,
        "second" | "seconds" | "s" => DatePart::Second,
        "millisecond" | "milliseconds" | "ms" => DatePart::Millisecond,
        "microsecond" | "microseconds" | "us" => DatePart::Microsecond,
        "nanosecond" | "nanoseconds" => DatePart::Nanosecond,
        "epoch" => DatePart::Epoch,
        _ => return None,
    })
}

fn date_unit(name: &str) -> Option<DateUnit> {
    Some(match name {
        "year" => DateUnit::Year,
        "quarter" => DateUnit::Quarter,
        "month" => DateUnit::Month,
        "week" => DateUnit::Week,
        "day" => DateUnit::Day,
        "hour" => DateUnit::Hour,
        "minute" => DateUnit::Minute,
        "second" => DateUnit::Second,
        "millisecond" => DateUnit::Millisecond,
        "microsecond" => DateUnit::Microsecond,
        _ => return None,
    })
}

/// A constant interval, as what is added; `None` for other types, and null.
pub(super) fn interval(value: &ScalarValue, is_subtracted: bool) -> Option<Interval> {
    let (months, days, nanoseconds) = match value {
        ScalarValue::IntervalYearMonth(Some(months)) => (*months, 0, 0),
        ScalarValue::IntervalDayTime(Some(value)) => {
            let (days, milliseconds) = IntervalDayTimeType::to_parts(*value);
            (0, days, i64::from(milliseconds) * 1_000_000)
        }
        ScalarValue::IntervalMonthDayNano(Some(value)) => IntervalMonthDayNanoType::to_parts(*value),
        _ => return None,
    };
    if !is_subtracted {
        return Some(Interval { months, days, nanoseconds });
    }
    Some(Interval { months: months.checked_neg()?, days: days.checked_neg()?, nanoseconds: nanoseconds.checked_neg()? })
}

/// Whether values of the type are points in time.
pub(super) fn is_moment(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
}
