//! Bounds of the integers that an expression gives, derived from the bounds of its columns.
//!
//! These are the rules of `codegen/expr/`, or wider ones: never narrower.

use arrow::datatypes::DataType;
use warpjoin_columns::column::{Range, bounds_of, holds_strings, range_of_literal, range_of_type, scale_of};
use warpjoin_columns::expr::{ArithmeticOp, Expr, ExprKind, Scalar};
use warpjoin_columns::function::Function;

use super::Bounds;

/// Bounds of string codes that come from no table.
pub(super) const CODES: Range = Range { min: 0, max: u32::MAX as i128 };

/// Bounds of a sum, difference or product; `None` if it may exceed 128 bits.
pub fn combined_range(op: ArithmeticOp, left: Range, right: Range) -> Option<Range> {
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

/// Bounds of a sum over fewer than 2^`rows_bits` rows; `None` when it may exceed 128 bits.
pub fn summed_range(range: Range, rows_bits: u32) -> Option<Range> {
    let factor = 1i128.checked_shl(rows_bits).filter(|factor| *factor > 0)?;
    Some(Range::new(range.min.min(0).checked_mul(factor)?, range.max.max(0).checked_mul(factor)?))
}

/// All values of a type.
pub(super) fn type_range(data_type: &DataType) -> Option<Range> {
    if holds_strings(data_type) { Some(CODES) } else { range_of_type(data_type) }
}

impl Bounds {
    /// Bounds of an expression over the columns; `None`: it is no integer, and is not stored as one.
    pub(super) fn range_of(&self, expr: &Expr) -> Option<Range> {
        let data_type = &expr.data_type;
        if data_type.is_floating() {
            return None;
        }
        if holds_strings(data_type) {
            return if let ExprKind::Column(_) = expr.kind { self.of(expr).range } else { Some(CODES) };
        }
        let by_type = range_of_type(data_type);
        match &expr.kind {
            ExprKind::Column(_) => self.of(expr).range,
            ExprKind::Literal(scalar) => of_scalar(scalar, data_type).or(by_type),
            ExprKind::Deferred(scalar) => {
                scalar.value().ok().and_then(|scalar| of_scalar(&scalar, data_type)).or(by_type)
            }
            ExprKind::Arithmetic(op, left, right) => self.of_arithmetic(*op, left, right, data_type).or(by_type),
            ExprKind::Negative(operand) => {
                combined(ArithmeticOp::Subtract, Range::new(0, 0), self.range_of(operand)?, data_type)
            }
            ExprKind::Case { branches, otherwise } => {
                let results = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref());
                let nulls = otherwise.is_none().then(|| Range::new(0, 0));
                self.union_of(results, nulls)
            }
            ExprKind::Cast(operand) | ExprKind::TryCast(operand) => {
                let bounds = bounds_of(data_type)?;
                let is_number = |data_type: &DataType| data_type.is_integer() || data_type.is_decimal();
                let is_rescaled = is_number(&operand.data_type) && is_number(data_type);
                let range = if is_rescaled { self.rescaled(operand, scale_of(data_type)) } else { None };
                Some(range.map_or(bounds, |range| range.within(bounds)))
            }
            ExprKind::Function(function, arguments) => self.of_function(*function, arguments, data_type).or(by_type),
            ExprKind::Average(..) => bounds_of(data_type),
            ExprKind::RowNumber { max } => Some(Range::new(0, (*max).into())),
            _ => by_type,
        }
    }

    fn union_of<'e>(&self, exprs: impl Iterator<Item = &'e Expr>, with: Option<Range>) -> Option<Range> {
        let mut union = with;
        for expr in exprs {
            let range = self.range_of(expr)?;
            union = Some(union.map_or(range, |union| union.union(range)));
        }
        union
    }

    fn of_arithmetic(&self, op: ArithmeticOp, left: &Expr, right: &Expr, to: &DataType) -> Option<Range> {
        let (own, scales) = (scale_of(to), [left, right].map(|side| scale_of(&side.data_type)));
        match op {
            ArithmeticOp::Multiply => combined(op, self.range_of(left)?, self.range_of(right)?, to),
            ArithmeticOp::Add | ArithmeticOp::Subtract => {
                combined(op, self.rescaled(left, own)?, self.rescaled(right, own)?, to)
            }
            ArithmeticOp::Divide => {
                // The left side is scaled so that the quotient has the scale of the type.
                let shift = own.checked_sub(scales[0])?.checked_add(scales[1])?;
                let left = self.rescaled(left, scales[0].checked_add(shift.max(0))?)?;
                let bound = magnitude(left)?;
                Some(Range::new(-bound, bound).within(range_of_type(to)?))
            }
            ArithmeticOp::Modulo => {
                let scale = scales[0].max(scales[1]);
                let bound = magnitude(self.rescaled(left, scale)?)?.min(magnitude(self.rescaled(right, scale)?)?);
                Some(Range::new(-bound, bound).within(range_of_type(to)?))
            }
        }
    }

    /// Functions of integers and decimals.
    fn of_function(&self, function: Function, arguments: &[Expr], to: &DataType) -> Option<Range> {
        match function {
            Function::Greatest | Function::Least => self.union_of(arguments.iter(), None),
            Function::Absolute => {
                let range = self.range_of(arguments.first()?)?;
                let least = if range.min >= 0 { range.min } else { 0 };
                Some(Range::new(least, range.max.max(range.min.checked_neg().unwrap_or(i128::MAX))))
            }
            Function::Ceil | Function::Floor | Function::Truncate { .. } => {
                let argument = arguments.first()?;
                let step = 10i128.checked_pow(u32::try_from(scale_of(&argument.data_type)).ok()?)?;
                let range = self.range_of(argument)?;
                let widened = Range::new(range.min.saturating_sub(step), range.max.saturating_add(step));
                Some(widened.within(bounds_of(to)?))
            }
            Function::Round { places } => {
                let argument = arguments.first()?;
                let steps = i32::from(scale_of(&argument.data_type)) - places;
                let range = self.range_of(argument)?;
                let Ok(steps @ 1..) = u32::try_from(steps) else { return Some(range) };
                let up = if to.is_decimal() { i32::from(scale_of(to)) - places } else { -places };
                let (down, up) = (10i128.checked_pow(steps)?, 10i128.checked_pow(u32::try_from(up).unwrap_or(0))?);
                let rounded = Range::new(range.min / down - 1, range.max / down + 1);
                let widened = Range::new(rounded.min.saturating_mul(up), rounded.max.saturating_mul(up));
                Some(widened.within(bounds_of(to)?))
            }
            _ => None,
        }
    }

    /// Bounds of an operand in another scale; `None`: unknown.
    fn rescaled(&self, operand: &Expr, scale: i8) -> Option<Range> {
        let steps = i32::from(scale) - i32::from(scale_of(&operand.data_type));
        let factor = 10i128.checked_pow(steps.unsigned_abs())?;
        let range = self.range_of(operand)?;
        if steps < 0 {
            return Some(Range::new(range.min / factor - 1, range.max / factor + 1));
        }
        // A value beyond is an overflow.
        let bound = i128::MAX / factor;
        let range = if factor == 1 { range } else { range.within(Range::new(-bound, bound)) };
        Some(Range::new(range.min * factor, range.max * factor))
    }
}

/// Bounds of a sum, difference or product of a type. Types that wrap may give any value; others end the query on
/// overflow.
fn combined(op: ArithmeticOp, left: Range, right: Range, data_type: &DataType) -> Option<Range> {
    let bounds = range_of_type(data_type)?;
    let range = combined_range(op, left, right);
    match range.filter(|range| range.min >= bounds.min && range.max <= bounds.max) {
        Some(range) => Some(range),
        None if data_type.is_integer() => Some(bounds),
        None => Some(range.map_or(bounds, |range| range.within(bounds))),
    }
}

fn of_scalar(scalar: &Scalar, data_type: &DataType) -> Option<Range> {
    match scalar {
        Scalar::Int(value) => Some(range_of_literal(*value, data_type)),
        Scalar::Boolean(_) => Some(Range::new(0, 1)),
        Scalar::Null => Some(Range::new(0, 0)),
        Scalar::Float(_) | Scalar::Bytes(_) | Scalar::Parameter(_) | Scalar::Deferred(_) => None,
    }
}

/// The largest distance from 0.
fn magnitude(range: Range) -> Option<i128> {
    i128::try_from(range.min.unsigned_abs().max(range.max.unsigned_abs())).ok()
}

#[cfg(test)]
mod tests {
    use super::super::ColumnBounds;
    use super::*;

    const CENTS: DataType = DataType::Decimal128(15, 2);

    fn bounds(range: Range) -> Bounds {
        Bounds { rows: 100, places: 100, columns: vec![ColumnBounds::of_range(range)] }
    }

    fn price() -> Expr {
        Expr::column(0, CENTS, false)
    }

    fn of(kind: ExprKind, data_type: DataType) -> Option<Range> {
        bounds(Range::new(-150, 99_999)).range_of(&Expr { kind, data_type, nullable: false })
    }

    #[test]
    fn rules_of_decimals_keep_what_is_known() {
        let product = ExprKind::Arithmetic(ArithmeticOp::Multiply, Box::new(price()), Box::new(price()));
        assert_eq!(of(product, DataType::Decimal128(31, 4)), Some(Range::new(-150 * 99_999, 99_999 * 99_999)));
        let sum = ExprKind::Arithmetic(ArithmeticOp::Add, Box::new(price()), Box::new(price()));
        assert_eq!(of(sum, DataType::Decimal128(17, 3)), Some(Range::new(-3000, 1_999_980)));
        let quotient = ExprKind::Arithmetic(ArithmeticOp::Divide, Box::new(price()), Box::new(price()));
        assert_eq!(of(quotient, DataType::Decimal128(21, 6)), Some(Range::new(-99_999_000_000, 99_999_000_000)));
        let floor = ExprKind::Function(Function::Floor, vec![price()]);
        assert_eq!(of(floor, CENTS), Some(Range::new(-250, 100_099)));
        let round = ExprKind::Function(Function::Round { places: 1 }, vec![price()]);
        assert_eq!(of(round, CENTS), Some(Range::new(-160, 100_000)));
        let whole = ExprKind::Cast(Box::new(price()));
        assert_eq!(of(whole, DataType::Decimal128(38, 0)), Some(Range::new(-2, 1000)));
        let finer = ExprKind::Cast(Box::new(price()));
        assert_eq!(of(finer, DataType::Decimal128(6, 3)), Some(Range::new(-1500, 999_990)));
    }

    #[test]
    fn what_may_leave_a_type_stays_within_it() {
        let wide = bounds(Range::new(i128::MIN, i128::MAX));
        let product = ExprKind::Arithmetic(ArithmeticOp::Multiply, Box::new(price()), Box::new(price()));
        let product = Expr { kind: product, data_type: DataType::Decimal128(38, 4), nullable: false };
        assert_eq!(wide.range_of(&product), Some(Range::new(i128::MIN, i128::MAX)));
        let number = Expr::column(0, DataType::Int32, false);
        let sum = ExprKind::Arithmetic(ArithmeticOp::Add, Box::new(number.clone()), Box::new(number));
        let sum = Expr { kind: sum, data_type: DataType::Int32, nullable: false };
        let far = bounds(Range::new(0, i32::MAX.into()));
        assert_eq!(far.range_of(&sum), Some(Range::new(i32::MIN.into(), i32::MAX.into())));
    }
}
