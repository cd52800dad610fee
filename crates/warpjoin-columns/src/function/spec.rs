//! One spec for each scalar function, read by matcher, checks, optimizer and tests.

use arrow::datatypes::DataType;

use super::{DateFunction, Interval};
use crate::Reason;

/// A function of values of one row; see [`Function::spec`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// The absolute value; the smallest signed integer is an error.
    Absolute,
    /// The smallest whole number that is not less; for floats and decimals.
    Ceil,
    /// The largest whole number that is not greater; for floats and decimals.
    Floor,
    /// Rounded half away from zero to this many decimal places, which may be negative.
    Round {
        /// Decimal places.
        places: i32,
    },
    /// Truncated to this many decimal places. `None`: to whole numbers, and never -0.0.
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

/// Properties that all calls of a scalar function share.
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
    /// Whether a call may fail, given the type of the first argument. A failure is an error of the query.
    pub may_fail: fn(&DataType) -> bool,
    /// Whether devices support these types of arguments and this type of the result.
    pub takes: fn(Function, &[&DataType], &DataType) -> bool,
}

/// How SQL writes a function.
#[derive(Debug, Clone, Copy)]
pub enum Written {
    /// As an operator.
    Operator(&'static str),
    /// As a call with all its arguments.
    Call,
    /// As a call with additional arguments that are constants.
    CallWith {
        /// Positions of the constants among the arguments.
        constants: &'static [usize],
        /// Makes the function from the constants, in the order of their positions. `None`: not supported.
        bind: fn(&[Constant]) -> Option<Function>,
    },
}

/// A constant argument that becomes part of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constant {
    /// The argument is missing.
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
    /// This many.
    Exactly(usize),
    /// One or more.
    Any,
}

/// When the result of a function is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// Where any argument is null.
    OfOne,
    /// Where all arguments are null.
    OfAll,
    /// Where the argument that the function returns is null.
    OfChosen,
}

/// Shared by most functions.
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
    /// All functions; those with parameters occur several times.
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

    /// The function's spec.
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

    /// Checks that devices support the function with these types.
    ///
    /// # Errors
    /// The reason why not.
    #[doc(hidden)]
    pub fn check(self, types: &[&DataType], to: &DataType) -> Result<(), Reason> {
        if self.takes(types, to) {
            return Ok(());
        }
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        Err(Reason::Expression(format!("{self}({})", types.join(", "))))
    }

    /// Whether devices support arguments of these types and a result of the type `to`.
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

/// Maximum decimal places: larger powers of ten exceed 128 bits.
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
