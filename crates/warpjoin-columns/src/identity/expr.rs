//! Identities of expressions.

use std::hash::Hash;

use super::{Identify, Identity, identify_by_hash, identify_fields};
use crate::expr::{Expr, ExprKind, KeyPiece, OrderPart, Scalar, SortKey};

identify_by_hash!(KeyPiece);

identify_fields! {
    Expr { kind, data_type, nullable }
    SortKey { expr, descending, nulls_first }
    OrderPart { key, piece, bits, least }
}

impl Identify for ExprKind {
    fn identify(&self, identity: &mut Identity) {
        std::mem::discriminant(self).hash(identity);
        match self {
            Self::Column(column) => column.identify(identity),
            Self::Literal(value) => value.identify(identity),
            Self::Deferred(value) => identity.add_deferred(value),
            Self::Arithmetic(op, a, b) => {
                op.hash(identity);
                [a, b].identify(identity);
            }
            Self::Compare(op, a, b) => {
                op.hash(identity);
                [a, b].identify(identity);
            }
            Self::And(a, b) | Self::Or(a, b) | Self::Average(a, b) => [a, b].identify(identity),
            Self::Not(a) | Self::IsNull(a) | Self::Negative(a) | Self::Cast(a) | Self::TryCast(a) => {
                a.identify(identity);
            }
            Self::Case { branches, otherwise } => {
                branches.identify(identity);
                otherwise.identify(identity);
            }
            Self::Function(function, arguments) => {
                function.hash(identity);
                arguments.identify(identity);
            }
            Self::InList { operand, list, negated } => {
                operand.identify(identity);
                list.identify(identity);
                negated.identify(identity);
            }
            Self::Tabulated { operands, function } => {
                operands.identify(identity);
                identity.add_function(function);
            }
            Self::OrderWord(parts) => parts.identify(identity),
            Self::RowNumber { max } => max.identify(identity),
            Self::Moment { moment, scale, sums } => {
                moment.hash(identity);
                scale.identify(identity);
                sums.identify(identity);
            }
        }
    }
}

/// By bits: zeros differ by their sign, and NaNs may be the same.
impl Identify for Scalar {
    fn identify(&self, identity: &mut Identity) {
        std::mem::discriminant(self).hash(identity);
        match self {
            Self::Null => {}
            Self::Boolean(value) => value.identify(identity),
            Self::Int(value) => value.hash(identity),
            Self::Float(value) => value.to_bits().identify(identity),
            Self::Bytes(value) => value.hash(identity),
            Self::Parameter(number) => number.identify(identity),
            Self::Deferred(value) => identity.add_deferred(value),
        }
    }
}
