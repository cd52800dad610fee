//! Comparisons and three-valued logic.

use arrow::datatypes::DataType;
use warpjoin_columns::column::holds_strings;
use warpjoin_columns::expr::{CompareOp, Expr, Scalar};
use warpjoin_columns::{Reason, Result};

use super::cast;
use super::evaluate::evaluate;
use super::fault::OVERFLOW;
use super::literal::literal;
use crate::bind::{Binder, Environment, Value};
use crate::lookup;
use crate::program::{Code, Function, Op};
use crate::value::{CType, Kind, RangeType};

/// Most constants of an IN list.
pub const IN_LIST_MAX: usize = 1024;

/// Code of a value by which it is ordered: floats by IEEE total order.
pub(super) fn ordered(b: &Binder, value: &Value) -> Code {
    match value.kind {
        Kind::F32 | Kind::F64 => b.call(Function::OrderCodeDouble, &[b.cast(CType::F64, value.code)]),
        _ => value.code,
    }
}

/// Binds [`warpjoin_columns::expr::ExprKind::Compare`].
pub(super) fn compare(b: &mut Binder, op: CompareOp, left: &Value, right: &Value) -> Result<Value> {
    let valid = b.both_valid(left, right);
    let (left, right) = comparable(b, op, left, right)?;
    let is_total = op == CompareOp::Identical;
    let op = match op {
        CompareOp::Equal | CompareOp::Identical => Op::Equal,
        CompareOp::NotEqual => Op::NotEqual,
        CompareOp::Less => Op::Less,
        CompareOp::LessOrEqual => Op::LessOrEqual,
        CompareOp::Greater => Op::Greater,
        CompareOp::GreaterOrEqual => Op::GreaterOrEqual,
    };
    let code = if let (Some(l), Some(r)) = (left.range(), right.range()) {
        let c_type = l.union(r).c_type();
        b.binary(b.code_as(&left, c_type), op, b.code_as(&right, c_type))
    } else {
        let code = |value: &Value| match value.kind {
            Kind::F32 | Kind::F64 if !is_total => b.call(Function::ComparisonCode, &[b.cast(CType::F64, value.code)]),
            _ => ordered(b, value),
        };
        b.binary(code(&left), op, code(&right))
    };
    let code = b.temporary(CType::Bool, code);
    Ok(Value::new(code, Kind::Bool, DataType::Boolean).with_valid(valid))
}

/// Both sides in one scale; strings as codes that compare like them.
fn comparable(b: &mut Binder, op: CompareOp, left: &Value, right: &Value) -> Result<(Value, Value)> {
    if holds_strings(&left.data_type) {
        let common = lookup::dictionary_of_all(&[left.clone(), right.clone()])?;
        let common = match op {
            CompareOp::Equal | CompareOp::Identical | CompareOp::NotEqual => common,
            _ => common.sorted()?,
        };
        return Ok((lookup::recode(b, left, &common)?, lookup::recode(b, right, &common)?));
    }
    let scale = left.scale().max(right.scale());
    Ok((cast::rescale_up(b, left, scale, OVERFLOW)?, cast::rescale_up(b, right, scale, OVERFLOW)?))
}

/// AND or OR in three-valued logic.
pub(super) fn logic(
    b: &mut Binder,
    left: &Expr,
    right: &Expr,
    environment: &Environment,
    is_and: bool,
) -> Result<Value> {
    let left = evaluate(b, left, environment)?;
    let right = evaluate(b, right, environment)?;
    let op = if is_and { Op::And } else { Op::Or };
    let code = b.temporary(CType::Bool, b.binary(left.code, op, right.code));
    let value = Value::new(code, Kind::Bool, DataType::Boolean);
    if left.valid.is_none() && right.valid.is_none() {
        return Ok(value);
    }
    // Known when both sides are known, or when one side decides alone.
    let decides = |side: &Value| b.both(side.valid, if is_and { b.not(side.code) } else { side.code });
    let (left_decides, right_decides) = (decides(&left), decides(&right));
    let known = |side: &Value| side.valid.unwrap_or_else(|| b.truth(true));
    let both_known = b.in_parens(known(&left), Op::And, known(&right));
    let valid = b.binary(b.binary(both_known, Op::Or, left_decides), Op::Or, right_decides);
    let valid = b.temporary(CType::Bool, b.parens(valid));
    // A null side reads as anything: settle the value from the sides that are known.
    let one_decides = b.in_parens(left_decides, Op::Or, right_decides);
    let code = b.temporary(CType::Bool, if is_and { b.not(one_decides) } else { one_decides });
    Ok(Value { code, valid: Some(valid), ..value })
}

/// Binds [`warpjoin_columns::expr::ExprKind::InList`].
pub(super) fn in_list(b: &mut Binder, value: &Value, list: &[Scalar], negated: bool) -> Result<Value> {
    if list.is_empty() || list.len() > IN_LIST_MAX {
        return Err(Reason::Expression(format!("IN list of {} values", list.len())).into());
    }
    // The list's length is part of the code: round it up, so that few lengths are compiled.
    let length = list.len().next_power_of_two();
    let mut tests = Vec::with_capacity(length);
    for index in 0..length {
        let item = literal(b, &list[index.min(list.len() - 1)], &value.data_type)?;
        tests.push(compare(b, CompareOp::Equal, value, &item)?.code);
    }
    let is_one = b.chain(Op::Or, tests).map_or_else(|| b.truth(false), |any| b.parens(any));
    let code = b.parens(if negated { b.not(is_one) } else { is_one });
    Ok(Value::new(code, Kind::Bool, DataType::Boolean).with_valid(value.valid))
}
