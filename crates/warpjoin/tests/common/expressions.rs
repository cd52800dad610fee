//! The oracle of expressions, from what `expr.rs` documents: one value at a time.

use std::cell::Cell;

use arrow::datatypes::DataType;
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};

use super::functions::{call, offset, ticks_per_day};
use super::value::{V, decimal, fault, int_bounds, scale, wrap};

/// Evaluates expressions, and remembers every fault that it met on the way.
#[derive(Default)]
pub(crate) struct Evaluator {
    pub(crate) faults: Cell<u8>,
}

impl Evaluator {
    fn poison(&self, bit: u8) -> V {
        self.faults.set(self.faults.get() | bit);
        V::Poison(bit)
    }

    /// The value of `expr` on one row. A poisoned operand poisons the result.
    pub(crate) fn value(&self, expr: &Expr, row: &[V]) -> V {
        let to = &expr.data_type;
        match &expr.kind {
            ExprKind::Column(index) => row[*index].clone(),
            ExprKind::Literal(scalar) => literal(scalar, to),
            ExprKind::And(a, b) => self.logic(a, b, row, false),
            ExprKind::Or(a, b) => self.logic(a, b, row, true),
            ExprKind::Case { branches, otherwise } => {
                for (when, then) in branches {
                    match self.value(when, row) {
                        V::Bool(true) => return self.value(then, row),
                        V::Poison(bit) => return V::Poison(bit),
                        _ => {}
                    }
                }
                otherwise.as_ref().map_or(V::Null, |e| self.value(e, row))
            }
            ExprKind::Function(function, arguments) => {
                let values: Vec<V> = arguments.iter().map(|a| self.value(a, row)).collect();
                if let Some(poison) = values.iter().find(|v| matches!(v, V::Poison(_))) {
                    return poison.clone();
                }
                let types: Vec<DataType> = arguments.iter().map(|a| a.data_type.clone()).collect();
                call(*function, &values, &types, to).unwrap_or_else(|bit| self.poison(bit))
            }
            // Faults of the cast itself are null, those below it are not.
            ExprKind::TryCast(a) => match self.value(a, row) {
                value @ (V::Null | V::Poison(_)) => value,
                value => match Self::default().cast(&value, &a.data_type, to) {
                    V::Poison(_) => V::Null,
                    value => value,
                },
            },
            ExprKind::IsNull(a) => match self.value(a, row) {
                V::Poison(bit) => V::Poison(bit),
                value => V::Bool(value.is_null()),
            },
            _ => self.strict(expr, row),
        }
    }

    /// Operations that are null where an operand is.
    fn strict(&self, expr: &Expr, row: &[V]) -> V {
        let operands: Vec<V> = expr.children().iter().map(|child| self.value(child, row)).collect();
        if let Some(poison) = operands.iter().find(|v| matches!(v, V::Poison(_))) {
            return poison.clone();
        }
        if operands.iter().any(V::is_null) {
            return V::Null;
        }
        let to = &expr.data_type;
        match (&expr.kind, operands.as_slice()) {
            (ExprKind::Not(_), [V::Bool(a)]) => V::Bool(!a),
            (ExprKind::Negative(_), [V::Float(a)]) => V::Float(-a),
            (ExprKind::Negative(_), [V::Int(a)]) => self.fit(a.checked_neg(), to),
            (ExprKind::Compare(op, a, b), [x, y]) => {
                let (sa, sb) = (scale(&a.data_type), scale(&b.data_type));
                let (x, y) = (rescaled(x, sa, sa.max(sb)), rescaled(y, sb, sa.max(sb)));
                match (&x, &y) {
                    (V::Poison(bit), _) | (_, V::Poison(bit)) => self.poison(*bit),
                    _ => V::Bool(compare(*op, &x, &y)),
                }
            }
            (ExprKind::InList { list, negated, operand }, [x]) => {
                let equals = |item| compare(CompareOp::Equal, &literal(item, &operand.data_type), x);
                let found = list.iter().any(equals);
                V::Bool(found != *negated)
            }
            (ExprKind::Arithmetic(op, _, _), [V::Float(a), V::Float(b)]) => float(*op, *a, *b, to),
            (ExprKind::Arithmetic(op, a, b), [V::Int(x), V::Int(y)]) => {
                self.integer(*op, (*x, scale(&a.data_type)), (*y, scale(&b.data_type)), to)
            }
            (ExprKind::Cast(operand), [x]) => self.cast(x, &operand.data_type, to),
            (kind, operands) => panic!("the oracle has no {kind:?} of {operands:?}"),
        }
    }

    fn logic(&self, a: &Expr, b: &Expr, row: &[V], decisive: bool) -> V {
        let (a, b) = (self.value(a, row), self.value(b, row));
        if a == V::Bool(decisive) || b == V::Bool(decisive) {
            return V::Bool(decisive);
        }
        match (a, b) {
            // Whether the other side is looked at is open: null does not decide.
            (V::Null, _) | (_, V::Null) => V::Null,
            (V::Poison(bit), _) | (_, V::Poison(bit)) => V::Poison(bit),
            _ => V::Bool(!decisive),
        }
    }

    /// An exact result in the type: integers wrap, decimals report overflow.
    fn fit(&self, exact: Option<i128>, to: &DataType) -> V {
        let (min, max) = int_bounds(to).unwrap_or((i128::MIN, i128::MAX));
        match exact {
            Some(value) if (min..=max).contains(&value) => V::Int(value),
            Some(value) if decimal(to).is_none() => V::Int(wrap(value, to)),
            _ => self.poison(fault::OVERFLOW),
        }
    }

    fn integer(&self, op: ArithmeticOp, (x, sx): (i128, i8), (y, sy): (i128, i8), to: &DataType) -> V {
        let up = |value: i128, by: i8| value.checked_mul(10i128.checked_pow(by.max(0) as u32)?);
        let st = scale(to);
        let exact = match op {
            ArithmeticOp::Add => up(x, st - sx).and_then(|x| x.checked_add(up(y, st - sy)?)),
            ArithmeticOp::Subtract => up(x, st - sx).and_then(|x| x.checked_sub(up(y, st - sy)?)),
            // Products of unsigned 64-bit numbers leave an i128; their low bits are all that wrapping keeps.
            ArithmeticOp::Multiply if decimal(to).is_none() => Some(x.wrapping_mul(y)),
            ArithmeticOp::Multiply => x.checked_mul(y),
            ArithmeticOp::Divide | ArithmeticOp::Modulo if y == 0 => {
                // Decimals are scaled first, which may overflow.
                let by = if op == ArithmeticOp::Divide { st - sx + sy } else { sx.max(sy) - sx };
                if up(x, by).is_none() {
                    self.poison(fault::OVERFLOW);
                }
                return self.poison(fault::DIVISION);
            }
            ArithmeticOp::Divide => {
                let shift = st - sx + sy;
                let quotient = up(x, shift).zip(up(y, -shift)).and_then(|(x, y)| x.checked_div(y));
                // The one quotient of integers that their type lacks is an error, not wrapped.
                match quotient {
                    Some(q) if int_bounds(to).is_some_and(|(min, max)| q < min || q > max) => None,
                    quotient => quotient,
                }
            }
            ArithmeticOp::Modulo => {
                let s = sx.max(sy);
                up(x, s - sx).zip(up(y, s - sy)).map(|(x, y)| x.wrapping_rem(y))
            }
        };
        self.fit(exact, to)
    }

    fn cast(&self, x: &V, from: &DataType, to: &DataType) -> V {
        if from == to {
            return x.clone();
        }
        let is_float = to.is_floating();
        match x {
            V::Bool(b) if is_float => V::Float(f64::from(u8::from(*b))),
            V::Bool(b) => V::Int(i128::from(*b)),
            V::Int(i) if *to == DataType::Boolean => V::Bool(*i != 0),
            V::Int(i) if is_float => {
                let divisor = 10f64.powi(scale(from).into());
                let single = *to == DataType::Float32;
                let value = if scale(from) != 0 { *i as f64 / divisor } else { *i as f64 };
                V::Float(match (single, scale(from)) {
                    (true, 0) => f64::from(*i as f32),
                    (true, _) => f64::from(value as f32),
                    _ => value,
                })
            }
            V::Float(f) if *to == DataType::Float32 => V::Float(f64::from(*f as f32)),
            V::Float(f) if is_float => V::Float(*f),
            V::Float(f) if decimal(to).is_some() => {
                let scaled = (10f64.powi(scale(to).into()) * f).round();
                let fits = scaled.abs() < 1.7e38;
                if fits { self.cast_integer(scaled as i128, to, to) } else { self.poison(fault::CAST) }
            }
            V::Float(f) if *to == DataType::Boolean => V::Bool(*f != 0.0),
            V::Float(f) => {
                let (min, max) = int_bounds(to).unwrap_or((0, 0));
                let fits = f.is_finite() && f.abs() < 1e30 && (min..=max).contains(&(f.trunc() as i128));
                if fits { V::Int(f.trunc() as i128) } else { self.poison(fault::CAST) }
            }
            V::Int(i) => self.cast_integer(*i, from, to),
            other => panic!("the oracle has no cast of {other:?} to {to}"),
        }
    }

    fn cast_integer(&self, i: i128, from: &DataType, to: &DataType) -> V {
        let steps = scale(to) - scale(from);
        let power = |steps: i8| 10i128.checked_pow(steps as u32);
        // Arrow takes it for days.
        let from = if (from, to) == (&DataType::Int32, &DataType::Date64) { &DataType::Date32 } else { from };
        let value = if let Some(value) = in_unit(i, from, to) {
            value
        } else if steps >= 0 {
            power(steps).and_then(|factor| i.checked_mul(factor))
        } else {
            // Decimals round half away from zero; integers truncate.
            power(-steps).map(|factor| {
                let rounding = if decimal(to).is_none() || (i % factor).abs() < factor / 2 { 0 } else { i.signum() };
                i / factor + rounding
            })
        };
        let bounds = match decimal(to) {
            Some((precision, _)) => {
                let bound = 10i128.pow(precision.into()) - 1;
                Some((-bound, bound))
            }
            None => int_bounds(to),
        };
        match (value, bounds) {
            (Some(value), Some((min, max))) if (min..=max).contains(&value) => V::Int(value),
            _ => self.poison(fault::CAST),
        }
    }
}

/// The number in another unit of time; `None` where one of the types has none.
fn in_unit(i: i128, from: &DataType, to: &DataType) -> Option<Option<i128>> {
    let is_time =
        |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
    if !is_time(from) || !is_time(to) {
        return None;
    }
    let (from_ticks, to_ticks) = (ticks_per_day(from), ticks_per_day(to));
    Some(match to {
        DataType::Date32 if *from != DataType::Date64 => Some((i + offset(from)).div_euclid(from_ticks)),
        _ if to_ticks < from_ticks => Some(i / (from_ticks / to_ticks)),
        _ => i.checked_mul(to_ticks / from_ticks),
    })
}

fn literal(scalar: &Scalar, data_type: &DataType) -> V {
    match scalar {
        Scalar::Null => V::Null,
        Scalar::Boolean(b) => V::Bool(*b),
        Scalar::Int(i) => V::Int(*i),
        Scalar::Bytes(bytes) => V::Text(String::from_utf8_lossy(bytes).into_owned()),
        Scalar::Float(f) if *data_type == DataType::Float32 => V::Float(f64::from(*f as f32)),
        Scalar::Float(f) => V::Float(*f),
        Scalar::Parameter(number) => panic!("constant {number} is not bound"),
        Scalar::Deferred(value) => panic!("{value} is not bound"),
    }
}

fn rescaled(value: &V, from: i8, to: i8) -> V {
    match value {
        V::Int(i) => i.checked_mul(10i128.pow((to - from) as u32)).map_or(V::Poison(fault::OVERFLOW), V::Int),
        other => other.clone(),
    }
}

fn compare(op: CompareOp, x: &V, y: &V) -> bool {
    // One zero, but where the two are told apart.
    let value = |value: &V| match value {
        V::Float(zero) if *zero == 0.0 && op != CompareOp::Identical => V::Float(0.0),
        other => other.clone(),
    };
    let order = value(x).order(&value(y));
    match op {
        CompareOp::Equal | CompareOp::Identical => order.is_eq(),
        CompareOp::NotEqual => order.is_ne(),
        CompareOp::Less => order.is_lt(),
        CompareOp::LessOrEqual => order.is_le(),
        CompareOp::Greater => order.is_gt(),
        CompareOp::GreaterOrEqual => order.is_ge(),
    }
}

fn float(op: ArithmeticOp, a: f64, b: f64, to: &DataType) -> V {
    // One operation in double precision, rounded, is the operation in single precision.
    let exact = match op {
        ArithmeticOp::Add => a + b,
        ArithmeticOp::Subtract => a - b,
        ArithmeticOp::Multiply => a * b,
        ArithmeticOp::Divide => a / b,
        ArithmeticOp::Modulo => a % b,
    };
    V::Float(if *to == DataType::Float32 { f64::from(exact as f32) } else { exact })
}
