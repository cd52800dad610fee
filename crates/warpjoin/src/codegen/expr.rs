//! Generated code of expressions, with DataFusion's null, overflow and decimal rules.
//!
//! Integer bounds travel with the values: arithmetic stays in 32 or 64 bits where they prove that
//! it can, and goes to 128 where not. What can't be excluded raises a status bit.

use super::cast;
use super::emitter::{Emitter, Environment};
use super::lookup;
use super::params::Binding;
use super::value::{CType, Kind, Range, Value, range_of_type, scale_of};
use crate::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use crate::{Error, Reason, Result};
use arrow::datatypes::DataType;

/// Emits `expr` over `environment` into the current section.
pub(crate) fn evaluate(emitter: &mut Emitter, expr: &Expr, environment: &Environment) -> Result<Value> {
    match &expr.kind {
        ExprKind::Column(index) => emitter.column(environment, *index),
        ExprKind::Literal(scalar) => literal(emitter, scalar, &expr.data_type),
        ExprKind::Arithmetic(op, left, right) => {
            let left = evaluate(emitter, left, environment)?;
            let right = evaluate(emitter, right, environment)?;
            arithmetic(emitter, *op, &left, &right, &expr.data_type)
        }
        ExprKind::Compare(op, left, right) => {
            let left = evaluate(emitter, left, environment)?;
            let right = evaluate(emitter, right, environment)?;
            compare(emitter, *op, &left, &right)
        }
        ExprKind::And(left, right) => logic(emitter, left, right, environment, true),
        ExprKind::Or(left, right) => logic(emitter, left, right, environment, false),
        ExprKind::Not(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            Ok(Value { code: format!("(!{})", value.code), ..value })
        }
        ExprKind::IsNull(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            let code = value.valid.map_or("false".into(), |valid| format!("(!{valid})"));
            Ok(Value::new(code, Kind::Bool, DataType::Boolean))
        }
        ExprKind::Negative(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            negative(emitter, &value)
        }
        ExprKind::Case { branches, otherwise } => {
            case(emitter, branches, otherwise.as_deref(), &expr.data_type, environment)
        }
        ExprKind::Cast(operand) => {
            let value = evaluate(emitter, operand, environment)?;
            cast::cast(emitter, &value, &expr.data_type)
        }
        ExprKind::InList { operand, list, negated } => {
            let value = evaluate(emitter, operand, environment)?;
            in_list(emitter, &value, list, *negated)
        }
        ExprKind::OverDictionary { column, function } => {
            let value = emitter.column(environment, *column)?;
            lookup::over_dictionary(emitter, &value, function.as_ref())
        }
        ExprKind::Average(sum, count) => {
            let sum = evaluate(emitter, sum, environment)?;
            let count = evaluate(emitter, count, environment)?;
            average(emitter, &sum, &count, &expr.data_type)
        }
    }
}

/// Conditions joined by AND, flattened.
pub(crate) fn conjuncts<'a>(expr: &'a Expr, into: &mut Vec<&'a Expr>) {
    match &expr.kind {
        ExprKind::And(left, right) => {
            conjuncts(left, into);
            conjuncts(right, into);
        }
        _ => into.push(expr),
    }
}

/// Kind of null and of other values of a type whose bounds nobody knows.
fn empty_kind(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean => Kind::Bool,
        DataType::Float32 => Kind::F32,
        DataType::Float64 => Kind::F64,
        _ => Kind::Int(Range::new(0, 0)),
    }
}

/// A constant, as a field of the parameter struct.
pub(crate) fn literal(emitter: &mut Emitter, scalar: &Scalar, data_type: &DataType) -> Result<Value> {
    Ok(match scalar {
        Scalar::Null => {
            let value = Value::new("0", empty_kind(data_type), data_type.clone());
            value.with_valid(Some("false".into()))
        }
        Scalar::Boolean(value) => Value::new(value.to_string(), Kind::Bool, data_type.clone()),
        Scalar::Int(value) => {
            let range = Range::of_literal(*value);
            let c_type = range.c_type();
            let code = if c_type == CType::I128 {
                emitter.params.wide_number(*value)
            } else {
                format!("(({}){})", c_type.name(), emitter.params.number(*value as i64))
            };
            Value::new(code, Kind::Int(range), data_type.clone())
        }
        Scalar::Float(value) => {
            let field = emitter.params.add("f64", Binding::Word(value.to_bits()));
            if *data_type == DataType::Float32 {
                Value::new(format!("((f32){field})"), Kind::F32, data_type.clone())
            } else {
                Value::new(field, Kind::F64, data_type.clone())
            }
        }
    })
}

/// Validity of an operation that is null when an operand is.
pub(crate) fn both_valid(left: &Value, right: &Value) -> Option<String> {
    match (&left.valid, &right.valid) {
        (None, None) => None,
        (Some(valid), None) | (None, Some(valid)) => Some(valid.clone()),
        (Some(left), Some(right)) => Some(format!("({left} && {right})")),
    }
}

fn where_valid(valid: &Option<String>, condition: &str) -> String {
    valid.as_ref().map_or(condition.into(), |valid| format!("{valid} && ({condition})"))
}

fn arithmetic(
    emitter: &mut Emitter,
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    data_type: &DataType,
) -> Result<Value> {
    let valid = both_valid(left, right);
    if let (Kind::F32 | Kind::F64, Kind::F32 | Kind::F64) = (left.kind, right.kind) {
        if op == ArithmeticOp::Modulo {
            return Err(Reason::Expression("% of floats".into()).into());
        }
        let code = emitter.temporary(left.c_type(), &format!("{} {op} {}", left.code, right.code));
        return Ok(Value::new(code, left.kind, data_type.clone()).with_valid(valid));
    }
    let target_scale = scale_of(data_type);
    match op {
        ArithmeticOp::Multiply => {
            if left.scale() + right.scale() != target_scale {
                return Err(Reason::Expression(format!("product of scale {target_scale}")).into());
            }
            combine(emitter, op, left, right, data_type)
        }
        ArithmeticOp::Add | ArithmeticOp::Subtract => {
            let left = cast::rescale_up(left, target_scale)?;
            let right = cast::rescale_up(right, target_scale)?;
            combine(emitter, op, &left, &right, data_type)
        }
        ArithmeticOp::Divide => {
            // The left side is scaled so that the quotient has the target scale.
            let shift = target_scale - left.scale() + right.scale();
            let left = cast::rescale_up(left, left.scale() + shift.max(0))?;
            let right = cast::rescale_up(right, right.scale() + (-shift).max(0))?;
            divide(emitter, op, &left, &right, data_type)
        }
        ArithmeticOp::Modulo => {
            let scale = left.scale().max(right.scale());
            let left = cast::rescale_up(left, scale)?;
            let right = cast::rescale_up(right, scale)?;
            divide(emitter, op, &left, &right, data_type)
        }
    }
}

fn int_range(value: &Value) -> Result<Range> {
    value.range().ok_or_else(|| Error::internal(format!("{} is no integer", value.data_type)))
}

/// Bounds of a sum, difference or product; `None` when 128 bits may not do.
fn combined_range(op: ArithmeticOp, left: Range, right: Range) -> Option<Range> {
    match op {
        ArithmeticOp::Add => Some(Range::new(left.min.checked_add(right.min)?, left.max.checked_add(right.max)?)),
        ArithmeticOp::Subtract => Some(Range::new(left.min.checked_sub(right.max)?, left.max.checked_sub(right.min)?)),
        _ => {
            let mut corners = [0; 4];
            for (corner, (a, b)) in corners.iter_mut().zip([
                (left.min, right.min),
                (left.min, right.max),
                (left.max, right.min),
                (left.max, right.max),
            ]) {
                *corner = i128::checked_mul(a, b)?;
            }
            Some(Range::new(corners.into_iter().min()?, corners.into_iter().max()?))
        }
    }
}

/// Sum, difference or product of integers of one scale rule: wraps in integer types, and is
/// declined where a decimal could leave 128 bits.
fn combine(
    emitter: &mut Emitter,
    op: ArithmeticOp,
    left: &Value,
    right: &Value,
    data_type: &DataType,
) -> Result<Value> {
    let valid = both_valid(left, right);
    let range = combined_range(op, int_range(left)?, int_range(right)?);
    let type_range = range_of_type(data_type).ok_or_else(|| Reason::Type(data_type.clone()))?;
    let fits = range.is_some_and(|range| range.min >= type_range.min && range.max <= type_range.max);
    let (code, range) = match range {
        Some(range) if fits => {
            let c_type = range.c_type();
            (format!("{} {op} {}", left.code_as(c_type), right.code_as(c_type)), range)
        }
        Some(range) if data_type.is_decimal() => {
            let c_type = range.c_type();
            let code = emitter.temporary(c_type, &format!("{} {op} {}", left.code_as(c_type), right.code_as(c_type)));
            within_bounds(emitter, code, (range, type_range), &valid, "WJ_STATUS_OVERFLOW")
        }
        _ if data_type.is_decimal() => {
            return Err(Reason::Limit("decimal arithmetic that may leave 128 bits".into()).into());
        }
        _ => {
            let wrapped = wrapped_type_name(data_type);
            let name = type_range.c_type().name();
            let code = format!(
                "({name})({wrapped})((u64){} {op} (u64){})",
                left.code_as(CType::I64),
                right.code_as(CType::I64)
            );
            (code, type_range)
        }
    };
    let code = emitter.temporary(range.c_type(), &code);
    Ok(Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid))
}

/// A name of range `range`, kept within `bounds`, and its range then: values beyond are reported,
/// and replaced, for an address may be computed of them before the launch ends.
pub(crate) fn within_bounds(
    emitter: &mut Emitter,
    name: String,
    (range, bounds): (Range, Range),
    valid: &Option<String>,
    status: &str,
) -> (String, Range) {
    let mut tests = vec![];
    if range.max > bounds.max {
        tests.push(format!("{name} > {}", cast::constant(bounds.max, range.c_type())));
    }
    if range.min < bounds.min {
        tests.push(format!("{name} < {}", cast::constant(bounds.min, range.c_type())));
    }
    if tests.is_empty() {
        return (name, range);
    }
    let is_beyond = emitter.temporary(CType::Bool, &tests.join(" || "));
    emitter.raise_if(&where_valid(valid, &is_beyond), status);
    let clamped = |value: i128| value.clamp(bounds.min, bounds.max);
    let range = Range::new(clamped(range.min), clamped(range.max));
    let c_type = range.c_type();
    (format!("({is_beyond} ? {} : ({})({name}))", cast::constant(range.min, c_type), c_type.name()), range)
}

/// The C type in which values of an integer type wrap.
fn wrapped_type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Int8 => "i8",
        DataType::Int16 => "i16",
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(..) => "i32",
        DataType::UInt8 => "u8",
        DataType::UInt16 => "u16",
        DataType::UInt32 => "u32",
        DataType::UInt64 => "u64",
        _ => "i64",
    }
}

fn divide(emitter: &mut Emitter, op: ArithmeticOp, left: &Value, right: &Value, data_type: &DataType) -> Result<Value> {
    let valid = both_valid(left, right);
    let (l, r) = (int_range(left)?, int_range(right)?);
    let magnitude = |range: Range| range.min.unsigned_abs().max(range.max.unsigned_abs());
    let mut bound =
        i128::try_from(magnitude(l)).map_err(|_| Reason::Limit("division that may leave 128 bits".into()))?;
    if op == ArithmeticOp::Modulo {
        bound = bound.min(i128::try_from(magnitude(r)).unwrap_or(i128::MAX));
    }
    // A remainder has the sign of the left side.
    let is_negative = l.min < 0 || op == ArithmeticOp::Divide && r.min < 0;
    let range = Range::new(if is_negative { -bound } else { 0 }, bound);
    let c_type = l.union(r).union(range).c_type();
    let divisor = emitter.temporary(c_type, &right.code_as(c_type));
    emitter.raise_if(&where_valid(&valid, &format!("{divisor} == 0")), "WJ_STATUS_DIVISION");
    let function = if op == ArithmeticOp::Divide { "divide_or_zero" } else { "modulo_or_zero" };
    let code = emitter.temporary(c_type, &format!("{function}({}, {divisor})", left.code_as(c_type)));
    let type_range = range_of_type(data_type).ok_or_else(|| Reason::Type(data_type.clone()))?;
    let (code, range) = within_bounds(emitter, code, (range, type_range), &valid, "WJ_STATUS_OVERFLOW");
    Ok(Value {
        code: format!("({})({code})", range.c_type().name()),
        valid,
        kind: Kind::Int(range),
        data_type: data_type.clone(),
        dictionary: None,
    })
}

/// Mean of a sum over a count; null where the count is 0.
fn average(emitter: &mut Emitter, sum: &Value, count: &Value, data_type: &DataType) -> Result<Value> {
    let some = format!("({} != 0)", count.code);
    let valid = Some(sum.valid.as_ref().map_or(some.clone(), |valid| format!("({valid} && {some})")));
    if let Kind::F64 = sum.kind {
        let code = emitter.temporary(CType::F64, &format!("{} / (f64){}", sum.code, count.code));
        return Ok(Value::new(code, Kind::F64, data_type.clone()).with_valid(valid));
    }
    let scaled = cast::rescale_up(sum, scale_of(data_type))?;
    let range = int_range(&scaled)?;
    let name = range.c_type().name();
    let code =
        emitter.temporary(range.c_type(), &format!("divide_or_zero(({name}){}, ({name}){})", scaled.code, count.code));
    Ok(Value::new(code, Kind::Int(range), data_type.clone()).with_valid(valid))
}

fn negative(emitter: &mut Emitter, value: &Value) -> Result<Value> {
    if let Kind::F32 | Kind::F64 = value.kind {
        return Ok(Value { code: format!("(-{})", value.code), ..value.clone() });
    }
    let zero = Value::new("0", Kind::Int(Range::new(0, 0)), value.data_type.clone());
    combine(emitter, ArithmeticOp::Subtract, &zero, value, &value.data_type)
}

/// C expression of a value by which comparisons order it: floats by IEEE total order.
fn ordered(value: &Value) -> String {
    match value.kind {
        Kind::F32 | Kind::F64 => format!("order_code_f64((f64){})", value.code),
        _ => value.code.clone(),
    }
}

fn compare(emitter: &mut Emitter, op: CompareOp, left: &Value, right: &Value) -> Result<Value> {
    let valid = both_valid(left, right);
    let (left, right) = comparable(op, left, right)?;
    let op = match op {
        CompareOp::Equal => "==",
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
        format!("{} {op} {}", ordered(&left), ordered(&right))
    };
    let code = emitter.temporary(CType::Bool, &code);
    Ok(Value::new(code, Kind::Bool, DataType::Boolean).with_valid(valid))
}

/// Both sides in one scale; strings only where their codes compare like the strings.
fn comparable(op: CompareOp, left: &Value, right: &Value) -> Result<(Value, Value)> {
    if let (Some(l), Some(r)) = (&left.dictionary, &right.dictionary) {
        let is_equality = matches!(op, CompareOp::Equal | CompareOp::NotEqual);
        if !std::sync::Arc::ptr_eq(l, r) || !(is_equality || l.is_sorted()) {
            return Err(Reason::Expression("comparison of two string columns".into()).into());
        }
    } else if left.dictionary.is_some() || right.dictionary.is_some() {
        return Err(Reason::Expression("comparison of a string column with a computed string".into()).into());
    }
    let scale = left.scale().max(right.scale());
    Ok((cast::rescale_up(left, scale)?, cast::rescale_up(right, scale)?))
}

/// AND or OR in three-valued logic.
fn logic(emitter: &mut Emitter, left: &Expr, right: &Expr, environment: &Environment, is_and: bool) -> Result<Value> {
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

fn in_list(emitter: &mut Emitter, value: &Value, list: &[Scalar], negated: bool) -> Result<Value> {
    if list.is_empty() || list.len() > 256 {
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

fn case(
    emitter: &mut Emitter,
    branches: &[(Expr, Expr)],
    otherwise: Option<&Expr>,
    data_type: &DataType,
    environment: &Environment,
) -> Result<Value> {
    // Branches run for some rows only: load before them what they use.
    let mut columns = vec![];
    for expr in branches.iter().flat_map(|(when, then)| [when, then]).chain(otherwise) {
        expr.visit_columns(&mut |column| columns.push(column));
    }
    for column in columns {
        emitter.column(environment, column)?;
    }
    let null = Expr::literal(Scalar::Null, data_type.clone());
    let mut conditions = vec![];
    let mut results = vec![];
    let capture = |emitter: &mut Emitter, expr: &Expr| -> Result<(String, Value)> {
        let outer = emitter.begin_capture();
        let value = evaluate(emitter, expr, environment);
        let text = emitter.end_capture(outer);
        Ok((text, value?))
    };
    for (when, then) in branches {
        conditions.push(capture(emitter, when)?);
        results.push(capture(emitter, then)?);
    }
    results.push(capture(emitter, otherwise.unwrap_or(&null))?);
    write_case(emitter, &conditions, &results, data_type)
}

/// Writes captured branches as nested ifs that assign one variable.
fn write_case(
    emitter: &mut Emitter,
    conditions: &[(String, Value)],
    results: &[(String, Value)],
    data_type: &DataType,
) -> Result<Value> {
    let kind = common_kind(results.iter().map(|(_, value)| value))?;
    let nullable = results.iter().any(|(_, value)| value.valid.is_some());
    let name = emitter.fresh("t");
    emitter.statement(&format!("{} {name} = 0;", kind.c_type().name()));
    let valid = nullable.then(|| format!("{name}_valid"));
    if let Some(valid) = &valid {
        emitter.statement(&format!("bool {valid} = false;"));
    }
    let assign = |emitter: &mut Emitter, (text, value): &(String, Value)| {
        emitter.append(text);
        emitter.statement(&format!("{name} = {};", value.code_as(kind.c_type())));
        if let Some(valid) = &valid {
            emitter.statement(&format!("{valid} = {};", value.valid.as_deref().unwrap_or("true")));
        }
    };
    for ((text, condition), result) in conditions.iter().zip(results) {
        emitter.append(text);
        emitter.statement(&format!("if ({}) {{", condition.is_true()));
        assign(emitter, result);
        emitter.statement("} else {");
    }
    assign(emitter, &results[conditions.len()]);
    emitter.statement(&"}".repeat(conditions.len()));
    Ok(Value::new(name, kind, data_type.clone()).with_valid(valid))
}

/// A kind that holds all of these values.
fn common_kind<'a>(values: impl Iterator<Item = &'a Value>) -> Result<Kind> {
    let mut common: Option<Kind> = None;
    for value in values {
        if value.dictionary.is_some() {
            return Err(Reason::Expression("CASE of strings".into()).into());
        }
        common = Some(match (common, value.kind) {
            (None, kind) => kind,
            (Some(Kind::Int(a)), Kind::Int(b)) => Kind::Int(a.union(b)),
            (Some(a), b) if a == b => a,
            (Some(a), b) => return Err(Error::internal(format!("CASE of {a:?} and {b:?}"))),
        });
    }
    common.ok_or_else(|| Error::internal("CASE without a result"))
}

/// Product of two integers whose bounds stay within 128 bits.
pub(crate) fn multiply_exact(emitter: &mut Emitter, left: &Value, right: &Value) -> Result<Value> {
    let valid = both_valid(left, right);
    let range = combined_range(ArithmeticOp::Multiply, int_range(left)?, int_range(right)?)
        .ok_or_else(|| Reason::Limit("a product that may leave 128 bits".into()))?;
    let c_type = range.c_type();
    let code = emitter.temporary(c_type, &format!("{} * {}", left.code_as(c_type), right.code_as(c_type)));
    Ok(Value::new(code, Kind::Int(range), left.data_type.clone()).with_valid(valid))
}
