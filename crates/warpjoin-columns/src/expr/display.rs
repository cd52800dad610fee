//! Expressions in words, as plans and explanations show them.

use std::fmt;

use super::{ArithmeticOp, CompareOp, Expr, ExprKind, OrderPart, Scalar, SortKey};

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.descending { "DESC" } else { "ASC" };
        let nulls = if self.nulls_first { "FIRST" } else { "LAST" };
        write!(f, "{} {direction} NULLS {nulls}", self.expr)
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Column(index) => write!(f, "#{index}"),
            ExprKind::Literal(value) => write!(f, "{value}"),
            ExprKind::Deferred(value) => write!(f, "{value}"),
            ExprKind::Arithmetic(op, a, b) => write!(f, "({a} {op} {b})"),
            ExprKind::Compare(op, a, b) => write!(f, "({a} {op} {b})"),
            ExprKind::And(a, b) => write!(f, "({a} AND {b})"),
            ExprKind::Or(a, b) => write!(f, "({a} OR {b})"),
            ExprKind::Not(a) => write!(f, "NOT {a}"),
            ExprKind::IsNull(a) => write!(f, "{a} IS NULL"),
            ExprKind::Negative(a) => write!(f, "-{a}"),
            ExprKind::Case { branches, otherwise } => {
                write!(f, "CASE")?;
                for (when, then) in branches {
                    write!(f, " WHEN {when} THEN {then}")?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " ELSE {otherwise}")?;
                }
                write!(f, " END")
            }
            ExprKind::Cast(a) => write!(f, "CAST({a} AS {})", self.data_type),
            ExprKind::TryCast(a) => write!(f, "TRY_CAST({a} AS {})", self.data_type),
            ExprKind::Function(function, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(Expr::to_string).collect();
                write!(f, "{function}({})", arguments.join(", "))
            }
            ExprKind::InList { operand, list, negated } => {
                let items: Vec<String> = list.iter().map(Scalar::to_string).collect();
                write!(f, "{operand} {}IN ({})", if *negated { "NOT " } else { "" }, items.join(", "))
            }
            ExprKind::Moment { moment, sums, .. } => {
                let sums: Vec<String> = sums.iter().map(Expr::to_string).collect();
                write!(f, "{moment:?}({})", sums.join(", "))
            }
            ExprKind::OrderWord(parts) => {
                let part = |part: &OrderPart| format!("{} {:?} {}", part.key, part.piece, part.bits);
                write!(f, "order[{}]", parts.iter().map(part).collect::<Vec<_>>().join(", "))
            }
            ExprKind::RowNumber { .. } => f.write_str("row number"),
            ExprKind::Average(sum, count) => write!(f, "({sum} / {count})"),
            ExprKind::Tabulated { operands, function } => {
                let operands: Vec<String> = operands.iter().map(Expr::to_string).collect();
                write!(f, "tabulated[{}]({function})", operands.join(", "))
            }
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Bytes(value) => write!(f, "'{}'", String::from_utf8_lossy(value)),
            Self::Parameter(number) => write!(f, "${number}"),
            Self::Deferred(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for ArithmeticOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        })
    }
}

impl fmt::Display for CompareOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Identical => "IS",
        })
    }
}
