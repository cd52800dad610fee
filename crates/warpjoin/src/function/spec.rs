//! What is known of each scalar function: one row a function, which all that must tell functions apart reads.

use arrow::datatypes::DataType;

use super::{DateFunction, Interval};
use crate::Reason;
use crate::expr::Expr;

/// A function of values of one row. [`Function::spec`] says what is known of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// The absolute value; the smallest signed integer is an error.
    Absolute,
    /// The smallest whole number that is not less; of floats and decimals.
    Ceil,
    /// The largest whole number that is not greater; of floats and decimals.
    Floor,
    /// Rounded half away from zero to so many decimal places, which may be negative.
    Round {
        /// Decimal places.
        places: i32,
    },
    /// Cut off behind so many decimal places. `None`: whole numbers, and never -0.0.
    Truncate {
        /// Decimal places.
        places: Option<i32>,
    },
    /// The square root of a float; of a negative number it is an error.
    SquareRoot,
    /// -1.0, 0.0, 1.0 or NaN, of a float.
    Sign,
    /// Whether a float is NaN.
    IsNan,
    /// The first float; the second one where the first is NaN.
    IfNan,
    /// Bits set in both integers.
    BitAnd,
    /// Bits set in either integer.
    BitOr,
    /// Bits set in one of the integers.
    BitXor,
    /// Bits moved up by the second integer modulo the type's bits.
    ShiftLeft,
    /// Bits moved down by the second integer modulo the type's bits, with the sign.
    ShiftRight,
    /// The greatest argument that is not null. Floats compare by IEEE total order.
    Greatest,
    /// The least argument that is not null.
    Least,
    /// A function of dates and timestamps.
    Date(DateFunction),
}

/// What is the same for all calls of a scalar function.
#[derive(Debug, Clone, Copy)]
pub struct FunctionSpec {
    /// Its name; DataFusion's if SQL calls it by name.
    pub name: &'static str,
    /// How SQL writes it.
    pub written: Written,
    /// How many arguments it takes.
    pub arguments: Arguments,
    /// When the result is null.
    pub nulls: Nulls,
    /// Whether a value of this first argument may have no result, which is an error of the query.
    pub may_fail: fn(&DataType) -> bool,
    /// Whether devices make a result of the last type from arguments of the first ones.
    pub takes: fn(Function, &[&DataType], &DataType) -> bool,
}

/// How SQL writes a function.
#[derive(Debug, Clone, Copy)]
pub enum Written {
    /// As an operator.
    Operator(&'static str),
    /// As a call of all its arguments.
    Call,
    /// As a call, of which some arguments are constants.
    CallWith {
        /// Places of the constants among the arguments.
        constants: &'static [usize],
        /// The function of these constants, in the order of their places; `None`: there is none.
        bind: fn(&[Constant]) -> Option<Function>,
    },
}

/// A constant that a function is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constant {
    /// It is left out.
    Missing,
    /// An integer.
    Integer(i64),
    /// Text in lower case.
    Text(String),
    /// A span of time.
    Interval(Interval),
    /// A timestamp in nanoseconds since 1970.
    Timestamp(i64),
}

/// How many arguments a function takes; constants that are part of it do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// So many.
    Exactly(usize),
    /// One or more.
    Any,
}

/// When the result of a function is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// Where an argument is.
    OfOne,
    /// Where all arguments are.
    OfAll,
    /// Where the argument is that the function puts out.
    OfChosen,
}

/// Of most functions.
pub(super) const ONE: FunctionSpec = FunctionSpec {
    name: "",
    written: Written::Call,
    arguments: Arguments::Exactly(1),
    nulls: Nulls::OfOne,
    may_fail: |_| false,
    takes: |_, of, to| *of[0] == *to,
};

const OF_FLOATS: FunctionSpec = FunctionSpec { takes: |_, of, to| of[0].is_floating() && of[0] == to, ..ONE };

const OF_FRACTIONS: FunctionSpec =
    FunctionSpec { takes: |_, of, to| (of[0].is_floating() || of[0].is_decimal()) && of[0] == to, ..ONE };

const OF_BITS: FunctionSpec = FunctionSpec {
    arguments: Arguments::Exactly(2),
    takes: |_, of, to| of[0].is_integer() && of[0] == of[1] && of[0] == to,
    ..ONE
};

const EXTREME: FunctionSpec = FunctionSpec {
    arguments: Arguments::Any,
    nulls: Nulls::OfAll,
    takes: |_, of, to| of.iter().all(|of| *of == to),
    ..ONE
};

impl Function {
    /// All functions, and of those with parameters several.
    pub fn samples() -> impl Iterator<Item = Self> {
        let plain = [
            Self::Absolute,
            Self::Ceil,
            Self::Floor,
            Self::SquareRoot,
            Self::Sign,
            Self::IsNan,
            Self::IfNan,
            Self::BitAnd,
            Self::BitOr,
            Self::BitXor,
            Self::ShiftLeft,
            Self::ShiftRight,
            Self::Greatest,
            Self::Least,
        ];
        let places = [0, 2, -2];
        (plain.into_iter())
            .chain(places.map(|places| Self::Round { places }))
            .chain(places.map(|places| Self::Truncate { places: Some(places) }))
            .chain([Self::Truncate { places: None }])
            .chain(DateFunction::samples().map(Self::Date))
    }

    /// What is known of the function.
    pub fn spec(self) -> FunctionSpec {
        let operator = |name, operator| FunctionSpec { name, written: Written::Operator(operator), ..OF_BITS };
        match self {
            Self::Absolute => FunctionSpec {
                name: "abs",
                may_fail: |of| !of.is_floating(),
                takes: |_, of, to| is_number(of[0]) && of[0] == to,
                ..ONE
            },
            Self::Ceil => FunctionSpec { name: "ceil", may_fail: DataType::is_decimal, ..OF_FRACTIONS },
            Self::Floor => FunctionSpec { name: "floor", may_fail: DataType::is_decimal, ..OF_FRACTIONS },
            Self::Round { .. } => FunctionSpec {
                name: "round",
                written: Written::CallWith { constants: &[1], bind: round },
                may_fail: |of| !of.is_floating(),
                takes: is_rounded,
                ..ONE
            },
            Self::Truncate { .. } => FunctionSpec {
                name: "trunc",
                written: Written::CallWith { constants: &[1], bind: truncate },
                ..OF_FRACTIONS
            },
            Self::SquareRoot => FunctionSpec { name: "sqrt", may_fail: |_| true, ..OF_FLOATS },
            Self::Sign => FunctionSpec { name: "signum", ..OF_FLOATS },
            Self::IsNan => FunctionSpec {
                name: "isnan",
                takes: |_, of, to| of[0].is_floating() && *to == DataType::Boolean,
                ..ONE
            },
            Self::IfNan => FunctionSpec {
                name: "nanvl",
                arguments: Arguments::Exactly(2),
                nulls: Nulls::OfChosen,
                takes: |_, of, to| of[0].is_floating() && of[0] == of[1] && of[0] == to,
                ..ONE
            },
            Self::BitAnd => operator("bit_and", "&"),
            Self::BitOr => operator("bit_or", "|"),
            Self::BitXor => operator("bit_xor", "^"),
            Self::ShiftLeft => operator("shift_left", "<<"),
            Self::ShiftRight => operator("shift_right", ">>"),
            Self::Greatest => FunctionSpec { name: "greatest", ..EXTREME },
            Self::Least => FunctionSpec { name: "least", ..EXTREME },
            Self::Date(function) => function.spec(),
        }
    }

    /// Whether devices have the function of these arguments.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn check(self, arguments: &[Expr], to: &DataType) -> Result<(), Reason> {
        let types: Vec<&DataType> = arguments.iter().map(|argument| &argument.data_type).collect();
        if self.takes(&types, to) {
            return Ok(());
        }
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        Err(Reason::Expression(format!("{self}({})", types.join(", "))))
    }

    /// Whether devices make a result of the type `to` from arguments of these types.
    pub fn takes(self, types: &[&DataType], to: &DataType) -> bool {
        let spec = self.spec();
        let fits = match spec.arguments {
            Arguments::Exactly(count) => types.len() == count,
            Arguments::Any => !types.is_empty(),
        };
        fits && (spec.takes)(self, types, to)
    }
}

fn is_number(of: &DataType) -> bool {
    of.is_integer() || of.is_floating() || of.is_decimal()
}

fn is_rounded(function: Function, of: &[&DataType], to: &DataType) -> bool {
    let Function::Round { places } = function else { return false };
    let is_same = (of[0].is_floating() || of[0].is_integer()) && of[0] == to;
    places.abs() <= PLACES_MAX && (is_same || of[0].is_decimal() && to.is_decimal())
}

/// Most decimal places, as powers of ten beyond leave 128 bits.
const PLACES_MAX: i32 = 38;

fn places(number: i64) -> Option<i32> {
    i32::try_from(number).ok().filter(|places| places.abs() <= PLACES_MAX)
}

fn round(constants: &[Constant]) -> Option<Function> {
    match constants {
        [Constant::Missing] => Some(Function::Round { places: 0 }),
        [Constant::Integer(number)] => places(*number).map(|places| Function::Round { places }),
        _ => None,
    }
}

fn truncate(constants: &[Constant]) -> Option<Function> {
    match constants {
        [Constant::Missing] => Some(Function::Truncate { places: None }),
        [Constant::Integer(number)] => places(*number).map(|places| Function::Truncate { places: Some(places) }),
        _ => None,
    }
}
