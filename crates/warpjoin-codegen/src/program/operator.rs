//! Operators of code, with their types.

use crate::value::CType;

/// Operators of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Negate,
    /// All bits turned.
    Complement,
}

/// Operators of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    ShiftLeft,
    ShiftRight,
    BitAnd,
    BitOr,
    BitXor,
    And,
    Or,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Op {
    /// Type of the result.
    pub(crate) fn result(self, left: CType, right: CType) -> CType {
        match self {
            Self::And | Self::Or => CType::Bool,
            Self::Equal | Self::NotEqual | Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => {
                CType::Bool
            }
            Self::ShiftLeft | Self::ShiftRight => left.promoted(),
            Self::Add
            | Self::Subtract
            | Self::Multiply
            | Self::Divide
            | Self::Remainder
            | Self::BitAnd
            | Self::BitOr
            | Self::BitXor => left.common(right),
        }
    }
}
