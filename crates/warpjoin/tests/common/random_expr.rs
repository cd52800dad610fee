//! Random expressions over given columns.

use arrow::datatypes::{DataType, TimeUnit};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use warpjoin::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Scalar};
use warpjoin::function::{Arguments, DateFunction, DatePart, DateUnit, Function, Interval};

use super::data::{Pool, any_value};
use super::random::with_precision;
use super::value::{V, decimal};

/// Makes expressions.
pub(crate) struct ExprMaker<'a> {
    pub(crate) rng: &'a mut StdRng,
    pub(crate) pools: &'a [Pool],
    pub(crate) columns: Vec<Expr>,
    /// Keeps to expressions whose floats are the same in any order of summation.
    pub(crate) exact: bool,
}

/// A boolean expression.
pub(crate) fn boolean(kind: ExprKind, nullable: bool) -> Expr {
    Expr { kind, data_type: DataType::Boolean, nullable }
}

/// A comparison.
pub(crate) fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    boolean(ExprKind::Compare(op, Box::new(left), Box::new(right)), nullable)
}

/// Arithmetic with this result type.
pub(crate) fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr, data_type: DataType) -> Expr {
    let nullable = left.nullable || right.nullable;
    Expr { kind: ExprKind::Arithmetic(op, Box::new(left), Box::new(right)), data_type, nullable }
}

/// A cast.
pub(crate) fn cast(operand: Expr, data_type: DataType) -> Expr {
    let nullable = operand.nullable;
    Expr { kind: ExprKind::Cast(Box::new(operand)), data_type, nullable }
}

/// A scalar function.
pub(crate) fn call(function: Function, arguments: Vec<Expr>, data_type: DataType) -> Expr {
    // A bin that 64 bits do not hold is null.
    let may_overflow = matches!(function, Function::Date(DateFunction::Bin(_)));
    let nullable = may_overflow || arguments.iter().any(|argument| argument.nullable);
    Expr { kind: ExprKind::Function(function, arguments), data_type, nullable }
}

/// The call of a function with the first type of result that its spec supports. `None`: it does not take these arguments.
pub(crate) fn call_of(function: Function, arguments: Vec<Expr>) -> Option<Expr> {
    let types: Vec<&DataType> = arguments.iter().map(|argument| &argument.data_type).collect();
    let others = [DataType::Boolean, DataType::Int32, DataType::Int64, DataType::Float64, DataType::Date32];
    let to = types.first().copied().into_iter().chain(&others).find(|to| function.takes(&types, to))?.clone();
    Some(call(function, arguments, to))
}

/// As many arguments as the function takes, from these in turn.
pub(crate) fn arguments_of<T: Clone>(function: Function, from: &[T]) -> Vec<T> {
    let count = match function.spec().arguments {
        Arguments::Exactly(count) => count,
        Arguments::Any => from.len(),
    };
    from.iter().cycle().take(count).cloned().collect()
}

/// A value as a constant.
pub(crate) fn scalar(value: &V) -> Scalar {
    match value {
        V::Bool(b) => Scalar::Boolean(*b),
        V::Int(i) => Scalar::Int(*i),
        V::Float(f) => Scalar::Float(*f),
        V::Text(text) => Scalar::Bytes(text.as_bytes().into()),
        _ => Scalar::Null,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

impl ExprMaker<'_> {
    fn column(&mut self) -> Expr {
        match self.columns.choose(self.rng) {
            Some(column) => column.clone(),
            None => Expr::literal(Scalar::Int(7), DataType::Int64),
        }
    }

    /// A constant of a type that is no text, of its pool where there is one.
    fn constant(&mut self, data_type: &DataType) -> Expr {
        let pool = self.pools.iter().find(|pool| pool.data_type == *data_type);
        let value = match (pool, self.rng.random_range(0..8)) {
            (_, 0) => V::Null,
            (Some(pool), 1..=6) => pool.values.choose(self.rng).expect("not empty").clone(),
            _ => any_value(self.rng, data_type),
        };
        Expr::literal(scalar(&value), data_type.clone())
    }

    /// Some expression.
    pub(crate) fn any(&mut self, depth: usize) -> Expr {
        match self.rng.random_range(0..10) {
            0 if depth > 0 => self.predicate(depth - 1),
            1..=6 if depth > 0 => self.computed(depth - 1),
            _ => self.column(),
        }
    }

    /// A boolean expression.
    pub(crate) fn predicate(&mut self, depth: usize) -> Expr {
        if depth > 0 {
            match self.rng.random_range(0..6) {
                0 | 1 => {
                    let (a, b) = (Box::new(self.predicate(depth - 1)), Box::new(self.predicate(depth - 1)));
                    let nullable = a.nullable || b.nullable;
                    let is_and = self.rng.random();
                    return boolean(if is_and { ExprKind::And(a, b) } else { ExprKind::Or(a, b) }, nullable);
                }
                2 => {
                    let a = self.predicate(depth - 1);
                    let nullable = a.nullable;
                    return boolean(ExprKind::Not(Box::new(a)), nullable);
                }
                _ => {}
            }
        }
        let operand = self.any(depth.min(1));
        if operand.data_type == DataType::Boolean && self.rng.random_bool(0.5) {
            return operand;
        }
        if self.rng.random_bool(0.15) {
            return boolean(ExprKind::IsNull(Box::new(operand)), false);
        }
        if self.rng.random_bool(0.25) {
            return self.in_list(operand);
        }
        self.comparison(operand)
    }

    fn in_list(&mut self, operand: Expr) -> Expr {
        let count = self.rng.random_range(1..=5);
        let list: Vec<Scalar> = (0..count)
            .map(|_| self.constant(&operand.data_type))
            .filter_map(|e| if let ExprKind::Literal(item) = e.kind { Some(item) } else { None })
            .filter(|item| *item != Scalar::Null)
            .collect();
        if list.is_empty() {
            return boolean(ExprKind::IsNull(Box::new(operand)), false);
        }
        let nullable = operand.nullable;
        boolean(ExprKind::InList { operand: Box::new(operand), list, negated: self.rng.random() }, nullable)
    }

    fn comparison(&mut self, operand: Expr) -> Expr {
        use CompareOp::{Equal, Greater, GreaterOrEqual, Identical, Less, LessOrEqual, NotEqual};
        let op =
            *[Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, Identical].choose(self.rng).expect("some");
        let same: Vec<Expr> = self.columns.iter().filter(|c| c.data_type == operand.data_type).cloned().collect();
        let other = match same.choose(self.rng) {
            Some(column) if self.rng.random_bool(0.4) => column.clone(),
            _ => self.constant(&operand.data_type),
        };
        compare(op, operand, other)
    }

    /// An expression that computes something of a column.
    fn computed(&mut self, depth: usize) -> Expr {
        let operand = if depth > 0 { self.any(depth) } else { self.column() };
        if is_text(&operand.data_type) {
            return if self.rng.random_bool(0.5) { self.case(operand, depth) } else { self.function(operand) };
        }
        match self.rng.random_range(0..8) {
            0 => self.case(operand, depth),
            1 | 2 => self.cast(operand),
            3 | 4 => self.function(operand),
            _ => self.arithmetic(operand),
        }
    }

    fn case(&mut self, result: Expr, depth: usize) -> Expr {
        let data_type = result.data_type.clone();
        let mut branches = vec![(self.predicate(depth.min(1)), result)];
        if self.rng.random_bool(0.4) {
            let other = self.constant(&data_type);
            branches.push((self.predicate(0), other));
        }
        let otherwise = self.rng.random_bool(0.6).then(|| Box::new(self.constant(&data_type)));
        Expr { kind: ExprKind::Case { branches, otherwise }, data_type, nullable: true }
    }

    fn cast(&mut self, operand: Expr) -> Expr {
        use DataType::{
            Boolean, Date32, Date64, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64,
        };
        let from = operand.data_type.clone();
        let small = matches!(from, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 | Boolean);
        let mut targets = match &from {
            t if t.is_integer() => {
                vec![Int8, Int16, Int32, Int64, UInt8, UInt32, UInt64, Boolean, DataType::Decimal128(20, 2)]
            }
            Boolean => vec![Int32, Int64, UInt16],
            t if t.is_floating() => vec![Float64, Int32, Int64, UInt64, Boolean, DataType::Decimal128(20, 2)],
            Date32 => vec![Date64, Int32, DataType::Timestamp(TimeUnit::Microsecond, None)],
            Date64 => vec![Date32, Int64],
            DataType::Timestamp(TimeUnit::Second, None) => vec![DataType::Timestamp(TimeUnit::Nanosecond, None)],
            DataType::Timestamp(..) => vec![DataType::Timestamp(TimeUnit::Millisecond, None), Date32, Int64],
            t if t.is_decimal() => {
                let mut targets = vec![Int64, Int16, DataType::Decimal128(30, 3), DataType::Decimal128(10, 1)];
                if !self.exact {
                    targets.extend([Float64, Float32]);
                }
                targets
            }
            _ => return operand,
        };
        if small {
            targets.push(Float64);
        }
        let to = targets.choose(self.rng).expect("some").clone();
        if self.rng.random_bool(0.3) {
            return Expr { kind: ExprKind::TryCast(Box::new(operand)), data_type: to, nullable: true };
        }
        cast(operand, to)
    }

    /// A column or constant of the same type.
    fn other(&mut self, data_type: &DataType) -> Expr {
        let same: Vec<Expr> = self.columns.iter().filter(|e| e.data_type == *data_type).cloned().collect();
        match same.choose(self.rng) {
            Some(column) if self.rng.random_bool(0.6) => column.clone(),
            _ => self.constant(data_type),
        }
    }

    /// A scalar function of the operand.
    fn function(&mut self, operand: Expr) -> Expr {
        use Function::{
            Absolute, BitAnd, BitOr, BitXor, Ceil, Floor, Greatest, Least, Round, ShiftLeft, ShiftRight, Sign, Truncate,
        };
        let data_type = operand.data_type.clone();
        if matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)) {
            return self.date_function(operand);
        }
        let mut to = data_type.clone();
        let mut choices = vec![Greatest, Least];
        if data_type.is_integer() {
            choices.extend([Absolute, Round { places: -1 }, Round { places: 1 }]);
            choices.extend([BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight]);
        } else if data_type.is_floating() {
            choices.extend([Absolute, Ceil, Floor, Sign, Round { places: 0 }, Truncate { places: None }]);
            if !self.exact {
                choices.extend([Round { places: 1 }, Truncate { places: Some(2) }]);
            }
        } else if let Some((precision, scale)) = decimal(&data_type) {
            choices.extend([Absolute, Ceil, Floor, Truncate { places: Some(1) }]);
            let places = self.rng.random_range(-2..=3);
            if self.rng.random_bool(0.3) {
                choices = vec![Round { places }];
                to = with_precision(&data_type, precision, scale.min(places.max(0) as i8));
            }
        }
        let function = *choices.choose(self.rng).expect("some");
        let is_binary = matches!(function, Greatest | Least | BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight);
        let mut arguments = vec![operand];
        if is_binary {
            arguments.push(self.other(&data_type));
        }
        call(function, arguments, to)
    }

    fn date_function(&mut self, operand: Expr) -> Expr {
        use DatePart::{Day, DayOfWeek, DayOfYear, Hour, IsoYear, Microsecond, Month, Quarter, Second, Week, Year};
        let data_type = operand.data_type.clone();
        match self.rng.random_range(0..4) {
            0 if data_type != DataType::Date64 => {
                let (months, days) = (self.rng.random_range(-30..30), self.rng.random_range(-40..40));
                let nanoseconds = self.rng.random_range(-200_000_000_000_000..200_000_000_000_000);
                call(
                    Function::Date(DateFunction::AddInterval(Interval { months, days, nanoseconds })),
                    vec![operand],
                    data_type,
                )
            }
            1 if matches!(data_type, DataType::Timestamp(..)) => {
                use DateUnit::{Day, Hour, Millisecond, Minute, Month, Week};
                let unit =
                    *[DateUnit::Year, Month, Week, Day, Hour, Minute, Millisecond].choose(self.rng).expect("some");
                call(Function::Date(DateFunction::Truncate(unit)), vec![operand], data_type)
            }
            2 if matches!(data_type, DataType::Date32 | DataType::Date64) => {
                let other = self.other(&data_type);
                call(Function::Date(DateFunction::DaysBetween), vec![operand, other], DataType::Int64)
            }
            _ => {
                let parts = [Year, IsoYear, Quarter, Month, Week, Day, DayOfYear, DayOfWeek, Hour, Second, Microsecond];
                let part = *parts.choose(self.rng).expect("some");
                call(Function::Date(DateFunction::Part(part)), vec![operand], DataType::Int32)
            }
        }
    }

    fn arithmetic(&mut self, operand: Expr) -> Expr {
        use ArithmeticOp::{Add, Divide, Modulo, Multiply, Subtract};
        let data_type = operand.data_type.clone();
        if !data_type.is_numeric() || matches!(data_type, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
        {
            return operand;
        }
        if !data_type.is_unsigned_integer() && self.rng.random_bool(0.15) {
            let nullable = operand.nullable;
            return Expr { kind: ExprKind::Negative(Box::new(operand)), data_type, nullable };
        }
        let mut op = *[Add, Add, Subtract, Subtract, Multiply, Divide, Modulo].choose(self.rng).expect("some");
        if data_type.is_floating() {
            if op == Divide {
                // Halving is exact.
                let two = Expr::literal(Scalar::Float(-2.0), data_type.clone());
                return arithmetic(Divide, operand, two, data_type);
            }
            op = if op == Multiply { Subtract } else { op };
        }
        let same_width = |e: &&Expr| {
            std::mem::discriminant(&e.data_type) == std::mem::discriminant(&data_type) || e.data_type == data_type
        };
        let same: Vec<Expr> = self.columns.iter().filter(same_width).cloned().collect();
        let other = match same.choose(self.rng) {
            Some(column) if self.rng.random_bool(0.5) => column.clone(),
            _ => self.constant(&data_type),
        };
        let result = match (decimal(&data_type), decimal(&other.data_type)) {
            (Some(a), Some(b)) => match decimal_result(op, a, b, &data_type) {
                Some(result) => result,
                None => return operand,
            },
            _ => data_type,
        };
        arithmetic(op, operand, other, result)
    }
}

/// Arrow's result type of decimal arithmetic; `None` where the scale does not fit.
pub(crate) fn decimal_result(
    op: ArithmeticOp,
    (p1, s1): (u8, i8),
    (p2, s2): (u8, i8),
    width: &DataType,
) -> Option<DataType> {
    let scale_max = match width {
        DataType::Decimal32(..) => 9,
        DataType::Decimal64(..) => 18,
        _ => 38,
    };
    let whole = |p: u8, s: i8| p as i8 - s;
    let (scale, precision) = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract => (s1.max(s2), whole(p1, s1).max(whole(p2, s2)) + s1.max(s2) + 1),
        ArithmeticOp::Multiply => (s1 + s2, (p1 + p2 + 1) as i8),
        ArithmeticOp::Divide => {
            let scale = (s1 + 4).min(scale_max);
            (scale, whole(p1, s1) + s2 + scale)
        }
        ArithmeticOp::Modulo => (s1.max(s2), whole(p1, s1).min(whole(p2, s2)) + s1.max(s2)),
    };
    (scale <= scale_max).then(|| with_precision(width, precision.max(scale).max(1) as u8, scale))
}
