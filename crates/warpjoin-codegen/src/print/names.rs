//! Names of variables, functions, operators and types.

use std::fmt;

use crate::program::{Function, Op, Status, Type, Variable};
use crate::value::CType;

impl fmt::Display for CType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(c_type) => f.write_str(c_type.name()),
            Self::Input(element) => write!(f, "const {element}*"),
            Self::Output(element) => write!(f, "{element}*"),
            Self::Slots => f.write_str("const Slot*"),
        }
    }
}

impl Variable {
    /// Its name: a number stands between these.
    pub(super) fn name(self) -> (&'static str, Option<u32>, &'static str) {
        let plain = |name| (name, None, "");
        let numbered = |prefix, number| (prefix, Some(number), "");
        match self {
            Self::Temporary(number) => numbered("t", number),
            Self::Validity(number) => ("t", Some(number), "_valid"),
            Self::Hoisted(number) => numbered("h", number),
            Self::Row => plain("row"),
            Self::SlicedRow => plain("sliced_row"),
            Self::Slice => plain("slice"),
            Self::Slices => plain("slices"),
            Self::Place => plain("place"),
            Self::Alive => plain("alive"),
            Self::Seek(join) => numbered("seek", join),
            Self::SeekRow => plain("seek"),
            Self::AliveInTurn(join) => numbered("alive", join),
            Self::MatchInTurn(join) => numbered("match_in_turn", join),
            Self::Matched => plain("matched"),
            Self::Done(join) => numbered("done", join),
            Self::MatchIndex(join) => numbered("index", join),
            Self::MatchCount(join) => numbered("count", join),
            Self::NextPlace(join) => numbered("next_place", join),
            Self::Match(join) => numbered("match", join),
            Self::Found => plain("found"),
            Self::BuildRow(join) => numbered("row", join),
            Self::Payload(join) => numbered("payload", join),
            Self::Lowest(join) => numbered("lowest", join),
            Self::Highest(join) => numbered("highest", join),
            Self::GroupRow => plain("group"),
            Self::Keys => plain("keys"),
            Self::Values => plain("values"),
            Self::Item => plain("item"),
            Self::BuildWord(word) => numbered("build", word),
            Self::ProbeWord(word) => numbered("probe", word),
            Self::MatchPlace => plain("match"),
            Self::BuildFirst => plain("unit.build_first"),
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            (name, None, _) => f.write_str(name),
            (prefix, Some(number), suffix) => write!(f, "{prefix}{number}{suffix}"),
        }
    }
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Overflow => "WJ_STATUS_OVERFLOW",
            Self::Division => "WJ_STATUS_DIVISION",
            Self::Cast => "WJ_STATUS_CAST",
        }
    }
}

impl Op {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Add => " + ",
            Self::Subtract => " - ",
            Self::Multiply => " * ",
            Self::Divide => " / ",
            Self::Remainder => " % ",
            Self::ShiftLeft => " << ",
            Self::ShiftRight => " >> ",
            Self::BitAnd => " & ",
            Self::BitOr => " | ",
            Self::BitXor => " ^ ",
            Self::And => " && ",
            Self::Or => " || ",
            Self::Equal => " == ",
            Self::NotEqual => " != ",
            Self::Less => " < ",
            Self::LessOrEqual => " <= ",
            Self::Greater => " > ",
            Self::GreaterOrEqual => " >= ",
        }
    }
}

impl Function {
    /// Its name, and whether that of single precision ends with an f.
    pub(super) fn name(self) -> (&'static str, bool) {
        let name = match self {
            Self::WideLiteral => "wide_literal",
            Self::WideOfWords => "wide_of_words",
            Self::WideOfDouble => "wide_of_double",
            Self::WideSumOverflows => "wide_sum_overflows",
            Self::WideDifferenceOverflows => "wide_difference_overflows",
            Self::WideProductOverflows => "wide_product_overflows",
            Self::DivideOrZero => "divide_or_zero",
            Self::ModuloOrZero => "modulo_or_zero",
            Self::FloorDivide => "floor_divide",
            Self::FloorRemainder => "floor_remainder",
            Self::Fmod => "fmod",
            Self::Fabs => "fabs",
            Self::Ceil => "ceil",
            Self::Floor => "floor",
            Self::Round => "round",
            Self::Trunc => "trunc",
            Self::Sqrt => "sqrt",
            Self::FloatSign => "float_sign",
            Self::OrderCodeInt => "order_code_i64",
            Self::OrderCodeSingle => "order_code_f32",
            Self::OrderCodeDouble => "order_code_f64",
            Self::OrderValueInt => "order_value_i64",
            Self::OrderValueDouble => "order_value_f64",
            Self::ComparisonCode => "comparison_code_f64",
            Self::FloatKey => "float_key",
            Self::BitsOfSingle => "__float_as_uint",
            Self::BitsOfDouble => "__double_as_longlong",
            Self::SingleOfBits => "__uint_as_float",
            Self::DoubleOfBits => "__longlong_as_double",
            Self::DateYear => "date_year",
            Self::DateIsoYear => "date_iso_year",
            Self::DateQuarter => "date_quarter",
            Self::DateMonth => "date_month",
            Self::DateWeek => "date_week",
            Self::DateDay => "date_day",
            Self::DateDayOfYear => "date_day_of_year",
            Self::DateDayOfWeek => "date_day_of_week",
            Self::DateIsoDayOfWeek => "date_iso_day_of_week",
            Self::DateFirstOfWeek => "date_first_of_week",
            Self::DateFirstOfMonth => "date_first_of_month",
            Self::DateFirstOfQuarter => "date_first_of_quarter",
            Self::DateFirstOfYear => "date_first_of_year",
            Self::DateAddMonths => "date_add_months",
            Self::CentralSquare => "central_square",
            Self::CentralSum => "central_sum",
            Self::BitAt => "bit_at",
            Self::LoadOnce => "load_once",
            Self::HashKey => "hash_key",
            Self::HashCombine => "hash_combine",
            Self::IsInBitmap => "is_in_bitmap",
            Self::MayBeInBloom => "may_be_in_bloom",
        };
        let is_of_cuda =
            matches!(self, Self::Fmod | Self::Fabs | Self::Ceil | Self::Floor | Self::Round | Self::Trunc | Self::Sqrt);
        (name, is_of_cuda)
    }
}
