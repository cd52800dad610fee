//! Evaluates predicates on the sampled rows of a table, on the host.
//!
//! A few kinds of expression are enough: what is not known here is guessed. Must agree with what kernels compute only
//! closely enough to choose by.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{nullif, take};
use arrow::datatypes::DataType;
use warpjoin_columns::Table;
use warpjoin_columns::column::{Dictionary, integers, with_null};
use warpjoin_columns::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, HostFunction, Scalar};
use warpjoin_columns::table::SampledValues;

/// Rows that tell between which values the others are.
const RANGE_ROWS_MIN: usize = 8;

/// The rows of a table's sample as the columns of a plan node.
#[derive(Debug, Clone)]
pub(super) struct SampleView {
    pub table: Arc<Table>,
    /// Column of the table behind each column of the node.
    pub columns: Vec<Option<usize>>,
    /// Which rows are left.
    pub alive: Vec<bool>,
}

/// A value for each sampled row.
struct Values {
    data: Data,
    /// `None`: all rows have one.
    valid: Option<Vec<bool>>,
}

enum Data {
    Ints(Vec<i128>),
    Floats(Vec<f64>),
    Booleans(Vec<bool>),
    Codes(Vec<i128>, Arc<Dictionary>),
}

impl SampleView {
    /// All sampled rows of some columns; `None`: the table has no sample.
    pub(super) fn new(table: &Arc<Table>, projection: &[usize]) -> Option<Self> {
        let sample = table.sample()?;
        let columns = projection.iter().map(|&column| Some(column)).collect();
        Some(Self { table: Arc::clone(table), columns, alive: vec![true; sample.rows()] })
    }

    /// Keeps rows for which `predicate` is true; `None`: it can't be evaluated here, and all are kept.
    pub(super) fn filter(&mut self, predicate: &Expr) -> Option<()> {
        let mut is_known = true;
        predicate.visit_columns(&mut |column| is_known &= matches!(self.columns.get(column), Some(Some(_))));
        if !is_known {
            return None;
        }
        // Over the columns of the table, so that it is the same whatever the node puts out.
        let of_table = predicate.remap(&|column| self.columns[column].unwrap_or_default());
        let kept = self.table.sample()?.kept(&of_table, || self.kept(predicate))?;
        self.alive.iter_mut().zip(&*kept).for_each(|(alive, kept)| *alive &= kept);
        Some(())
    }

    /// The sampled rows for which `predicate` is true.
    fn kept(&self, predicate: &Expr) -> Option<Vec<bool>> {
        let Values { data: Data::Booleans(mut kept), valid } = self.evaluate(predicate)? else { return None };
        if let Some(valid) = valid {
            kept.iter_mut().zip(valid).for_each(|(kept, valid)| *kept &= valid);
        }
        Some(kept)
    }

    /// Rows that are left and rows there were.
    pub(super) fn counts(&self) -> (f64, f64) {
        (self.alive.iter().filter(|&&alive| alive).count() as f64, self.alive.len() as f64)
    }

    /// How far apart the integers are that the rows which are left have in a column.
    pub(super) fn span_left(&self, column: usize) -> Option<f64> {
        let Values { data: Data::Ints(values), valid } = self.column(column)? else { return None };
        let is_left = |row: &usize| self.alive[*row] && valid.as_ref().is_none_or(|valid| valid[*row]);
        let left: Vec<i128> = (0..values.len()).filter(is_left).map(|row| values[row]).collect();
        if left.len() < RANGE_ROWS_MIN {
            return None;
        }
        let span = left.iter().max()?.wrapping_sub(*left.iter().min()?) as u128 as f64;
        // Rows that are not in the sample are a bit beyond those that are.
        Some(span * (left.len() + 1) as f64 / (left.len() - 1) as f64 + 1.0)
    }

    fn evaluate(&self, expr: &Expr) -> Option<Values> {
        match &expr.kind {
            ExprKind::Column(index) => self.column(*index),
            ExprKind::Literal(scalar) => self.constant(scalar),
            ExprKind::Deferred(scalar) => self.constant(&scalar.value().ok()?),
            ExprKind::Compare(op, left, right) => compare(*op, self.operand(left)?, self.operand(right)?),
            ExprKind::And(left, right) => logic(self.evaluate(left)?, self.evaluate(right)?, true),
            ExprKind::Or(left, right) => logic(self.evaluate(left)?, self.evaluate(right)?, false),
            ExprKind::Not(operand) => match self.evaluate(operand)? {
                Values { data: Data::Booleans(values), valid } => {
                    Some(Values { data: Data::Booleans(values.into_iter().map(|value| !value).collect()), valid })
                }
                _ => None,
            },
            ExprKind::IsNull(operand) => {
                let valid = self.evaluate(operand)?.valid;
                let is_null = |row: usize| valid.as_ref().is_some_and(|valid| !valid[row]);
                Some(Values { data: Data::Booleans((0..self.alive.len()).map(is_null).collect()), valid: None })
            }
            ExprKind::InList { operand, list, negated } => self.in_list(operand, list, *negated),
            ExprKind::Tabulated { operands, function } => self.tabulated(operands, function.as_ref()),
            ExprKind::Cast(operand) | ExprKind::TryCast(operand) if is_integer_like(&expr.data_type) => {
                let is_same_scale = scale_of(&operand.data_type)? == scale_of(&expr.data_type)?;
                self.evaluate(operand).filter(|_| is_same_scale)
            }
            ExprKind::Arithmetic(op, left, right) => {
                let is_same_scale = scale_of(&left.data_type)? == scale_of(&right.data_type)?
                    && scale_of(&left.data_type)? == scale_of(&expr.data_type)?;
                if !is_same_scale {
                    return None;
                }
                arithmetic(*op, self.evaluate(left)?, self.evaluate(right)?)
            }
            _ => None,
        }
    }

    fn tabulated(&self, operands: &[Expr], function: &dyn HostFunction) -> Option<Values> {
        let values = operands.iter().map(|operand| self.evaluate(operand)).collect::<Option<Vec<_>>>()?;
        if let [Values { data: Data::Codes(codes, dictionary), valid }] = values.as_slice()
            && dictionary.len() <= codes.len()
        {
            // Once a value is less than once a row; what it makes of null comes last.
            let results = function.evaluate(&[with_null(dictionary.values()).ok()?]).ok()?;
            let places: UInt32Array =
                codes_of(codes, valid).map(|code| code.or(Some(dictionary.len() as u32))).collect();
            return of_array(&take(&results, &places, None).ok()?);
        }
        let array = |(operand, values): (&Expr, &Values)| to_array(values, &operand.data_type);
        let arrays = operands.iter().zip(&values).map(array).collect::<Option<Vec<_>>>()?;
        of_array(&function.evaluate(&arrays).ok()?)
    }

    /// An operand of a comparison, with its scale.
    fn operand(&self, expr: &Expr) -> Option<(Values, i8)> {
        Some((self.evaluate(expr)?, scale_of(&expr.data_type).unwrap_or(0)))
    }

    fn column(&self, index: usize) -> Option<Values> {
        let column = (*self.columns.get(index)?)?;
        let sampled = self.table.sample()?.column(column)?;
        let column_type = &self.table.column_types()[column];
        let data = match (&sampled.values, &column_type.dictionary) {
            (SampledValues::Ints(codes), Some(dictionary)) => Data::Codes(codes.clone(), Arc::clone(dictionary)),
            (SampledValues::Ints(values), None) if column_type.data_type == DataType::Boolean => {
                Data::Booleans(values.iter().map(|&value| value != 0).collect())
            }
            (SampledValues::Ints(values), None) => Data::Ints(values.clone()),
            (SampledValues::Floats(values), _) => Data::Floats(values.clone()),
            (SampledValues::Unknown, _) => return None,
        };
        Some(Values { data, valid: sampled.valid.clone() })
    }

    fn constant(&self, scalar: &Scalar) -> Option<Values> {
        let rows = self.alive.len();
        let data = match scalar {
            Scalar::Boolean(value) => Data::Booleans(vec![*value; rows]),
            Scalar::Int(value) => Data::Ints(vec![*value; rows]),
            Scalar::Float(value) => Data::Floats(vec![*value; rows]),
            Scalar::Null | Scalar::Bytes(_) | Scalar::Parameter(_) | Scalar::Deferred(_) => return None,
        };
        Some(Values { data, valid: None })
    }

    fn in_list(&self, operand: &Expr, list: &[Scalar], negated: bool) -> Option<Values> {
        let Values { data, valid } = self.evaluate(operand)?;
        if list.iter().any(|item| matches!(item, Scalar::Deferred(_))) {
            return None;
        }
        let found: Vec<bool> = match data {
            Data::Ints(values) => values.iter().map(|value| list.contains(&Scalar::Int(*value))).collect(),
            Data::Codes(codes, dictionary) => {
                let is_in = |code: &i128| {
                    let bytes = dictionary.bytes(*code as u32).unwrap_or_default();
                    list.iter().any(|item| matches!(item, Scalar::Bytes(known) if **known == *bytes))
                };
                codes.iter().map(is_in).collect()
            }
            _ => return None,
        };
        Some(Values { data: Data::Booleans(found.into_iter().map(|found| found != negated).collect()), valid })
    }
}

fn both_valid(left: Option<Vec<bool>>, right: Option<Vec<bool>>) -> Option<Vec<bool>> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.into_iter().zip(right).map(|(left, right)| left && right).collect()),
        (known, other) => known.or(other),
    }
}

fn compare(op: CompareOp, (left, left_scale): (Values, i8), (right, right_scale): (Values, i8)) -> Option<Values> {
    let holds = |order: Ordering| match op {
        CompareOp::Equal | CompareOp::Identical => order.is_eq(),
        CompareOp::NotEqual => order.is_ne(),
        CompareOp::Less => order.is_lt(),
        CompareOp::LessOrEqual => order.is_le(),
        CompareOp::Greater => order.is_gt(),
        CompareOp::GreaterOrEqual => order.is_ge(),
    };
    let scale = left_scale.max(right_scale);
    let factor = |own: i8| 10i128.checked_pow((scale - own) as u32);
    let booleans: Vec<bool> = match (left.data, right.data) {
        (Data::Ints(a), Data::Ints(b)) => {
            let (a_factor, b_factor) = (factor(left_scale)?, factor(right_scale)?);
            a.iter().zip(&b).map(|(a, b)| holds(a.saturating_mul(a_factor).cmp(&b.saturating_mul(b_factor)))).collect()
        }
        (Data::Floats(a), Data::Floats(b)) => {
            // One zero, but where the two are told apart.
            let value = |value: f64| if value == 0.0 && op != CompareOp::Identical { 0.0 } else { value };
            a.iter().zip(&b).map(|(a, b)| holds(value(*a).total_cmp(&value(*b)))).collect()
        }
        (Data::Booleans(a), Data::Booleans(b)) => a.iter().zip(&b).map(|(a, b)| holds(a.cmp(b))).collect(),
        (Data::Codes(a, a_strings), Data::Codes(b, b_strings)) => {
            let order = |a: &i128, b: &i128| a_strings.bytes(*a as u32).cmp(&b_strings.bytes(*b as u32));
            a.iter().zip(&b).map(|(a, b)| holds(order(a, b))).collect()
        }
        _ => return None,
    };
    Some(Values { data: Data::Booleans(booleans), valid: both_valid(left.valid, right.valid) })
}

/// AND or OR in three-valued logic.
fn logic(left: Values, right: Values, is_and: bool) -> Option<Values> {
    let (Data::Booleans(a), Data::Booleans(b)) = (left.data, right.data) else { return None };
    let is_valid = |valid: &Option<Vec<bool>>, row: usize| valid.as_ref().is_none_or(|valid| valid[row]);
    let (mut values, mut valid) = (vec![], vec![]);
    for row in 0..a.len() {
        let known = (is_valid(&left.valid, row), is_valid(&right.valid, row));
        let is_decided = known.0 && a[row] != is_and || known.1 && b[row] != is_and;
        values.push(if is_decided { !is_and } else { is_and });
        valid.push(is_decided || known == (true, true));
    }
    Some(Values { data: Data::Booleans(values), valid: Some(valid) })
}

fn arithmetic(op: ArithmeticOp, left: Values, right: Values) -> Option<Values> {
    let data = match (left.data, right.data) {
        (Data::Ints(a), Data::Ints(b)) => {
            let result = |(a, b): (&i128, &i128)| match op {
                ArithmeticOp::Add => a.checked_add(*b),
                ArithmeticOp::Subtract => a.checked_sub(*b),
                ArithmeticOp::Multiply => a.checked_mul(*b),
                ArithmeticOp::Divide => a.checked_div(*b),
                ArithmeticOp::Modulo => a.checked_rem(*b),
            };
            Data::Ints(a.iter().zip(&b).map(result).collect::<Option<_>>()?)
        }
        (Data::Floats(a), Data::Floats(b)) => {
            let result = |(a, b): (&f64, &f64)| match op {
                ArithmeticOp::Add => a + b,
                ArithmeticOp::Subtract => a - b,
                ArithmeticOp::Multiply => a * b,
                ArithmeticOp::Divide => a / b,
                ArithmeticOp::Modulo => a % b,
            };
            Data::Floats(a.iter().zip(&b).map(result).collect())
        }
        _ => return None,
    };
    Some(Values { data, valid: both_valid(left.valid, right.valid) })
}

/// Codes, null where a row has none.
fn codes_of(codes: &[i128], valid: &Option<Vec<bool>>) -> impl Iterator<Item = Option<u32>> {
    (0..codes.len()).map(move |row| valid.as_ref().is_none_or(|valid| valid[row]).then_some(codes[row] as u32))
}

/// The values as an array of their type; `None`: not of floats.
fn to_array(values: &Values, data_type: &DataType) -> Option<ArrayRef> {
    let numbers = match &values.data {
        Data::Codes(codes, dictionary) => {
            return dictionary.take(&codes_of(codes, &values.valid).collect()).ok();
        }
        Data::Ints(numbers) => integers(data_type, numbers).ok()?,
        Data::Booleans(booleans) => Arc::new(BooleanArray::from(booleans.clone())),
        Data::Floats(_) => return None,
    };
    let Some(valid) = &values.valid else { return Some(numbers) };
    nullif(&numbers, &valid.iter().map(|valid| Some(!valid)).collect()).ok()
}

/// What a function of the host gave; of other types than these nobody asks for a share.
fn of_array(array: &ArrayRef) -> Option<Values> {
    let valid = array.logical_nulls().map(|nulls| nulls.iter().collect());
    let data = match array.data_type() {
        DataType::Boolean => Data::Booleans(array.as_boolean().values().iter().collect()),
        DataType::Int64 => {
            let values = array.as_primitive::<arrow::datatypes::Int64Type>().values();
            Data::Ints(values.iter().map(|&value| value.into()).collect())
        }
        DataType::Int32 => {
            let values = array.as_primitive::<arrow::datatypes::Int32Type>().values();
            Data::Ints(values.iter().map(|&value| value.into()).collect())
        }
        _ => return None,
    };
    Some(Values { data, valid })
}

/// Decimal places of a type whose values are whole numbers here; `None`: of others.
fn scale_of(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => Some(*scale),
        DataType::Float32 | DataType::Float64 => Some(0),
        other if is_integer_like(other) => Some(0),
        _ => None,
    }
}

fn is_integer_like(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal() || matches!(data_type, DataType::Date32)
}
