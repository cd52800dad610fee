//! Decides which expressions never fail, so that they can be evaluated for combinations of values that no row has.
//!
//! Other expressions stay on the CPU, which evaluates only existing rows: an error for any other combination would be wrong.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NegativeExpr,
    NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::functions::{function_named, is_datafusions};
use super::host::is_text;
use super::is_string;
use crate::kept::parameter::is_parameter;

/// Functions that succeed for all arguments, besides those that devices support ([`function_named`]).
const TOTAL: [&str; 46] = [
    "acos",
    "acosh",
    "ascii",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bit_length",
    "btrim",
    "cbrt",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "contains",
    "cos",
    "cosh",
    "cot",
    "date_part",
    "degrees",
    "ends_with",
    "exp",
    "initcap",
    "iszero",
    "left",
    "ln",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "nanvl",
    "nullif",
    "octet_length",
    "radians",
    "replace",
    "reverse",
    "right",
    "rtrim",
    "sin",
    "sinh",
    "starts_with",
    "strpos",
    "tan",
    "tanh",
    "upper",
];
/// Functions that succeed for any first argument if the others are constants: only those can make them fail.
const TOTAL_BY_CONSTANTS: [&str; 7] = ["lpad", "power", "rpad", "split_part", "substr", "to_char", "translate"];

/// Whether `expr` never fails, whatever values the columns of `schema` have. Unknown expressions may fail.
#[recursive::recursive]
pub(super) fn never_fails(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let type_of = |expr: &Arc<dyn PhysicalExpr>| expr.data_type(schema).unwrap_or(DataType::Null);
    let own = if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        is_total(*binary.op(), &type_of(expr))
    } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        is_total_cast(&type_of(cast.expr()), cast.cast_type())
    } else if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        is_parameter(expr) || is_total_call(call, &type_of)
    } else if expr.is::<NegativeExpr>() {
        type_of(expr).is_floating()
    } else {
        expr.is::<Column>()
            || expr.is::<Literal>()
            || expr.is::<CaseExpr>()
            || expr.is::<InListExpr>()
            || expr.is::<IsNotNullExpr>()
            || expr.is::<IsNullExpr>()
            || expr.is::<LikeExpr>()
            || expr.is::<NotExpr>()
            || expr.is::<TryCastExpr>()
    };
    own && expr.children().into_iter().all(|child| never_fails(child, schema))
}

fn is_total(op: Operator, result: &DataType) -> bool {
    match op {
        // Integers wrap.
        Operator::Plus | Operator::Minus | Operator::Multiply => result.is_integer() || result.is_floating(),
        Operator::Divide | Operator::Modulo => result.is_floating(),
        Operator::And | Operator::Or | Operator::StringConcat => true,
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => true,
        Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => true,
        _ => false,
    }
}

fn is_total_cast(from: &DataType, to: &DataType) -> bool {
    let to_text = matches!(to, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_number = from.is_integer() || from.is_floating() || from.is_decimal();
    let (own_width, width) = (from.primitive_width(), to.primitive_width());
    let keeps_sign = from.is_signed_integer() == to.is_signed_integer();
    let is_wider = from.is_integer()
        && to.is_integer()
        && (keeps_sign && own_width <= width || from.is_unsigned_integer() && own_width < width);
    from == to
        || is_wider
        || is_number && *to == DataType::Float64
        || to_text && (is_number || *from == DataType::Boolean || matches!(from, DataType::Date32 | DataType::Date64))
        || to_text && is_text(from)
}

fn is_total_call(call: &ScalarFunctionExpr, type_of: &impl Fn(&Arc<dyn PhysicalExpr>) -> DataType) -> bool {
    if !is_datafusions(call.fun()) {
        return false;
    }
    let name = call.fun().name();
    let first = call.args().first().map_or(DataType::Null, type_of);
    let has_constants = call.args().iter().skip(1).all(|argument| argument.is::<Literal>());
    let is_known = TOTAL.contains(&name)
        || TOTAL_BY_CONSTANTS.contains(&name) && has_constants
        || name == "substr" && call.args().len() == 2
        || function_named(name).is_some_and(|function| !(function.spec().may_fail)(&first));
    // A power of integers may overflow.
    is_known && (name != "power" || first.is_floating()) && (is_text(&first) || !is_string(&first))
}
