//! Comparisons and three-valued logic.

use arrow::datatypes::DataType;

use super::cast;
use super::evaluate::{both_valid, evaluate, literal};
use super::fault::OVERFLOW;
use crate::codegen::emit::{Emitter, Environment};
use crate::codegen::lookup;
use crate::codegen::value::{CType, Kind, Value};
use crate::column::holds_strings;
use crate::expr::{CompareOp, Expr, Scalar};
use crate::{Reason, Result};

/// Most constants of an IN list.
pub(crate) const IN_LIST_MAX: usize = 1024;

/// C expression of a value by which it is ordered: floats by IEEE total order.
pub(super) fn ordered(value: &Value) -> String {
    match value.kind {
        Kind::F32 | Kind::F64 => format!("order_code_f64((f64){})", value.code),
        _ => value.code.clone(),
    }
}

/// Emits [`crate::expr::ExprKind::Compare`].
pub(super) fn compare(emitter: &mut Emitter, op: CompareOp, left: &Value, right: &Value) -> Result<Value> {
    let valid = both_valid(left, right);
    let (left, right) = comparable(emitter, op, left, right)?;
    let is_total = op == CompareOp::Identical;
    let op = match op {
        CompareOp::Equal | CompareOp::Identical => "==",
        CompareOp::NotEqual => "!=",
        CompareOp::Less => "<",
        CompareOp::LessOrEqual => "<=",
        CompareOp::Greater => ">",
        CompareOp::GreaterOrEqual => ">=",
    };
    let code = if let (Some(l), Some(r)) = (left.range(), right.range()) {
        let c_type = l.union(r).c_type();
        format!("{} {op} {}", left.code_as(c_type), right.code_as(c_type))
    } else {
        let code = |value: &Value| match value.kind {
            Kind::F32 | Kind::F64 if !is_total => format!("comparison_code_f64((f64){})", value.code),
            _ => ordered(value),
        };
        format!("{} {op} {}", code(&left), code(&right))
    };
    let code = emitter.temporary(CType::Bool, &code);
    Ok(Value::new(code, Kind::Bool, DataType::Boolean).with_valid(valid))
}

/// Both sides in one scale; strings as codes that compare like them.
fn comparable(emitter: &mut Emitter, op: CompareOp, left: &Value, right: &Value) -> Result<(Value, Value)> {
    if holds_strings(&left.data_type) {
        let common = lookup::dictionary_of_all(&[left.clone(), right.clone()])?;
        let common = match op {
            CompareOp::Equal | CompareOp::Identical | CompareOp::NotEqual => common,
            _ => common.sorted()?,
        };
        return Ok((lookup::recode(emitter, left, &common)?, lookup::recode(emitter, right, &common)?));
    }
    let scale = left.scale().max(right.scale());
    Ok((cast::rescale_up(emitter, left, scale, OVERFLOW)?, cast::rescale_up(emitter, right, scale, OVERFLOW)?))
}

/// AND or OR in three-valued logic.
pub(super) fn logic(
    emitter: &mut Emitter,
    left: &Expr,
    right: &Expr,
    environment: &Environment,
    is_and: bool,
) -> Result<Value> {
    let left = evaluate(emitter, left, environment)?;
    let right = evaluate(emitter, right, environment)?;
    let op = if is_and { "&&" } else { "||" };
    let code = emitter.temporary(CType::Bool, &format!("{} {op} {}", left.code, right.code));
    let value = Value::new(code, Kind::Bool, DataType::Boolean);
    if left.valid.is_none() && right.valid.is_none() {
        return Ok(value);
    }
    // Known when both sides are known, or when one side decides alone.
    let decides = |side: &Value| {
        let decisive = if is_and { format!("!{}", side.code) } else { side.code.clone() };
        side.valid.as_ref().map_or(decisive.clone(), |valid| format!("({valid} && {decisive})"))
    };
    let known = |side: &Value| side.valid.clone().unwrap_or("true".into());
    let valid = format!("(({} && {}) || {} || {})", known(&left), known(&right), decides(&left), decides(&right));
    let valid = emitter.temporary(CType::Bool, &valid);
    // A null side reads as anything: settle the value from the sides that are known.
    let code = if is_and {
        format!("!({} || {})", decides(&left), decides(&right))
    } else {
        format!("({} || {})", decides(&left), decides(&right))
    };
    let code = emitter.temporary(CType::Bool, &code);
    Ok(Value { code, valid: Some(valid), ..value })
}

/// Emits [`crate::expr::ExprKind::InList`].
pub(super) fn in_list(emitter: &mut Emitter, value: &Value, list: &[Scalar], negated: bool) -> Result<Value> {
    if list.is_empty() || list.len() > IN_LIST_MAX {
        return Err(Reason::Expression(format!("IN list of {} values", list.len())).into());
    }
    // The list's length is part of the code: round it up, so that few lengths are compiled.
    let length = list.len().next_power_of_two();
    let mut tests = Vec::with_capacity(length);
    for index in 0..length {
        let item = literal(emitter, &list[index.min(list.len() - 1)], &value.data_type)?;
        tests.push(compare(emitter, CompareOp::Equal, value, &item)?.code);
    }
    let code = format!("({}({}))", if negated { "!" } else { "" }, tests.join(" || "));
    Ok(Value::new(code, Kind::Bool, DataType::Boolean).with_valid(value.valid.clone()))
}
