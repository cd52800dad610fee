//! Functions of `kernels/` and of CUDA that code of rows calls.

use crate::value::CType;

/// A function without side effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    // 128 bits (common/pipeline.cuh, common/functions.cuh).
    WideLiteral,
    WideOfWords,
    WideOfDouble,
    WideSumOverflows,
    WideDifferenceOverflows,
    WideProductOverflows,
    // Division (the same).
    DivideOrZero,
    ModuloOrZero,
    FloorDivide,
    FloorRemainder,
    // Floats; those of CUDA have one for each precision.
    Fmod,
    Fabs,
    Ceil,
    Floor,
    Round,
    Trunc,
    Sqrt,
    FloatSign,
    // Orders (common/order.cuh).
    OrderCodeInt,
    OrderCodeSingle,
    OrderCodeDouble,
    OrderValueInt,
    OrderValueDouble,
    ComparisonCode,
    // Bits of floats.
    FloatKey,
    BitsOfSingle,
    BitsOfDouble,
    SingleOfBits,
    DoubleOfBits,
    // Dates (common/dates.cuh).
    DateYear,
    DateIsoYear,
    DateQuarter,
    DateMonth,
    DateWeek,
    DateDay,
    DateDayOfYear,
    DateDayOfWeek,
    DateIsoDayOfWeek,
    DateFirstOfWeek,
    DateFirstOfMonth,
    DateFirstOfQuarter,
    DateFirstOfYear,
    DateAddMonths,
    // Moments.
    CentralSquare,
    CentralSum,
    // Memory.
    BitAt,
    LoadOnce,
    // Keys.
    HashKey,
    HashCombine,
    IsInBitmap,
    MayBeInBloom,
}

impl Function {
    /// Type of the result, given that of the first argument, or of what that points to.
    pub(crate) fn result(self, first: CType) -> CType {
        match self {
            Self::WideLiteral | Self::WideOfWords | Self::WideOfDouble => CType::I128,
            Self::WideSumOverflows
            | Self::WideDifferenceOverflows
            | Self::WideProductOverflows
            | Self::BitAt
            | Self::IsInBitmap
            | Self::MayBeInBloom => CType::Bool,
            Self::DivideOrZero
            | Self::ModuloOrZero
            | Self::FloorDivide
            | Self::FloorRemainder
            | Self::Fmod
            | Self::Fabs
            | Self::Ceil
            | Self::Floor
            | Self::Round
            | Self::Trunc
            | Self::Sqrt
            | Self::FloatSign
            | Self::LoadOnce => first,
            Self::OrderCodeSingle | Self::BitsOfSingle => CType::U32,
            Self::OrderCodeInt
            | Self::OrderCodeDouble
            | Self::ComparisonCode
            | Self::FloatKey
            | Self::HashKey
            | Self::HashCombine => CType::U64,
            Self::OrderValueInt | Self::BitsOfDouble => CType::I64,
            Self::SingleOfBits => CType::F32,
            Self::DoubleOfBits | Self::OrderValueDouble | Self::CentralSquare | Self::CentralSum => CType::F64,
            Self::DateYear
            | Self::DateIsoYear
            | Self::DateQuarter
            | Self::DateMonth
            | Self::DateWeek
            | Self::DateDay
            | Self::DateDayOfYear
            | Self::DateDayOfWeek
            | Self::DateIsoDayOfWeek
            | Self::DateFirstOfWeek
            | Self::DateFirstOfMonth
            | Self::DateFirstOfQuarter
            | Self::DateFirstOfYear
            | Self::DateAddMonths => CType::I32,
        }
    }
}
