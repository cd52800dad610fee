//! Scalar functions and intervals.
//!
//! Owns which of DataFusion's functions devices have, and with which constants.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, IntervalDayTimeType, IntervalMonthDayNanoType};
use datafusion::common::ScalarValue;
use datafusion::functions::{all_default_functions, core};
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use warpjoin::Reason;
use warpjoin::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin::function::{Constant, Function, Interval, Written};

use super::expr::{boolean, check_copied, is_constant, unsupported};
use super::{Translation, literal};

/// Functions whose last bit depends on the implementation.
const INEXACT: [&str; 22] = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "cot", "degrees", "exp", "ln",
    "log", "log10", "log2", "power", "radians", "sin", "sinh", "tan",
];

/// Device functions that SQL calls by name.
static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let called = Function::samples().filter(|function| !matches!(function.spec().written, Written::Operator(_)));
    called.map(|function| (function.spec().name, function)).collect()
});

/// Whether a function is DataFusion's own, because a session may register another function under the same name.
pub(super) fn is_datafusions(function: &ScalarUDF) -> bool {
    static DEFAULT: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
        all_default_functions().into_iter().map(|function| (function.name().into(), function)).collect()
    });
    DEFAULT.get(function.name()).is_some_and(|original| **original == *function)
}

/// The device function with a name, whatever its constants.
pub(super) fn function_named(name: &str) -> Option<Function> {
    FUNCTIONS.get(name).copied()
}

impl Translation<'_> {
    pub(super) fn function(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        function: &ScalarFunctionExpr,
    ) -> Result<ExprKind, Reason> {
        if *function.fun() == *core::nullif() {
            let [value, other] = function.args() else { return Err(unsupported(expr)) };
            return self.null_if(expr, value, other);
        }
        let name = function.fun().name();
        let Some(known) = function_named(name) else {
            let why = if INEXACT.contains(&name) { ", whose last bit differs between CPUs and devices" } else { "" };
            return Err(Reason::Expression(format!("{expr}: function {name}{why}")));
        };
        if !is_datafusions(function.fun()) {
            return Err(Reason::Expression(format!("{expr}: {name} is not DataFusion's own function")));
        }
        let Written::CallWith { constants, bind } = known.spec().written else {
            return Ok(ExprKind::Function(known, self.translated(function.args(), &[])?));
        };
        let values = constants.iter().map(|&place| constant(function.args().get(place)));
        let values = values.collect::<Result<Option<Vec<Constant>>, Reason>>()?;
        let bound = values.and_then(|values| bind(&values)).ok_or_else(|| unsupported(expr))?;
        Ok(ExprKind::Function(bound, self.translated(function.args(), constants)?))
    }

    /// The translated arguments, except those at some positions.
    fn translated(&self, arguments: &[Arc<dyn PhysicalExpr>], without: &[usize]) -> Result<Vec<Expr>, Reason> {
        let others = arguments.iter().enumerate().filter(|(place, _)| !without.contains(place));
        others.map(|(_, argument)| self.translate(argument)).collect()
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

/// A constant that becomes part of a function. `None`: the argument is not a constant, is null, or has another type.
fn constant(argument: Option<&Arc<dyn PhysicalExpr>>) -> Result<Option<Constant>, Reason> {
    let Some(argument) = argument else { return Ok(Some(Constant::Missing)) };
    if !is_constant(argument) {
        return Ok(None);
    }
    Ok(match literal::evaluate(argument)? {
        ScalarValue::Int32(Some(number)) => Some(Constant::Integer(number.into())),
        ScalarValue::Int64(Some(number)) => Some(Constant::Integer(number)),
        ScalarValue::TimestampNanosecond(Some(nanoseconds), _) => Some(Constant::Timestamp(nanoseconds)),
        value => match value.try_as_str() {
            Some(text) => text.map(|text| Constant::Text(text.to_lowercase())),
            None => interval(&value, false).map(Constant::Interval),
        },
    })
}

/// A constant interval to add, negated if `is_subtracted`; `None` for other types, and null.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_function_exists_in_datafusion() {
        let own = all_default_functions();
        for name in FUNCTIONS.keys() {
            assert!(own.iter().any(|own| own.name() == *name && is_datafusions(own)), "{name}");
        }
    }
}
