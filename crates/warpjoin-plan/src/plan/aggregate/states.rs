//! What group-bys accumulate for a call, how partial results are merged, and how the result is computed from them.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::build::where_not_null;
use warpjoin_columns::expr::{Expr, ExprKind, Moment};

use super::{AggregateCall, AggregateFunction};

/// How values are combined into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    Count,
    Sum,
    Min,
    Max,
    BitAnd,
    BitOr,
    BitXor,
}

/// What a row adds to a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Term {
    Value,
    /// How far an integer is from the middle of its bounds.
    Distance,
    /// The product of two distances, or the square of one. The sum must not wrap.
    Product,
}

/// A value that is accumulated.
#[derive(Debug, Clone)]
pub struct State {
    pub fold: Fold,
    /// `None`: rows are counted.
    pub argument: Option<Expr>,
    /// The other factor of a product of two arguments.
    pub second: Option<Expr>,
    pub term: Term,
    pub data_type: DataType,
}

impl Fold {
    /// The fold that merges partial results.
    pub fn merging(self) -> Self {
        match self {
            Self::Count => Self::Sum,
            Self::Sum | Self::Min | Self::Max | Self::BitAnd | Self::BitOr | Self::BitXor => self,
        }
    }

    /// The aggregate that puts out what is accumulated.
    pub fn function(self) -> AggregateFunction {
        match self {
            Self::Count => AggregateFunction::Count,
            Self::Sum => AggregateFunction::Sum,
            Self::Min => AggregateFunction::Min,
            Self::Max => AggregateFunction::Max,
            Self::BitAnd => AggregateFunction::BitAnd,
            Self::BitOr => AggregateFunction::BitOr,
            Self::BitXor => AggregateFunction::BitXor,
        }
    }
}

impl AggregateFunction {
    /// What it accumulates, if that is its result.
    #[doc(hidden)]
    pub fn fold(self) -> Option<Fold> {
        match self {
            Self::Count => Some(Fold::Count),
            Self::Sum => Some(Fold::Sum),
            Self::Min => Some(Fold::Min),
            Self::Max => Some(Fold::Max),
            Self::BitAnd => Some(Fold::BitAnd),
            Self::BitOr => Some(Fold::BitOr),
            Self::BitXor => Some(Fold::BitXor),
            Self::Avg | Self::Moment(_) | Self::First | Self::Last | Self::Median | Self::Percentile { .. } => None,
        }
    }
}

impl AggregateCall {
    /// Calls `add` for each state that the call accumulates; `add` returns the state as an expression. Returns the
    /// call's result, an expression of the states. `None`: one pass of accumulation is not enough.
    #[doc(hidden)]
    pub fn accumulate(&self, add: &mut dyn FnMut(State) -> Expr) -> Option<Expr> {
        let (function, data_type) = (self.function, self.data_type.clone());
        if let Some(fold) = function.fold() {
            let argument = self.argument.clone();
            return Some(add(State { fold, argument, second: None, term: Term::Value, data_type }));
        }
        let argument = self.argument.as_ref()?;
        match function {
            AggregateFunction::Avg => {
                let mut of_values = |fold, data_type| {
                    add(State { fold, argument: Some(argument.clone()), second: None, term: Term::Value, data_type })
                };
                let sum = of_values(Fold::Sum, sum_type(&argument.data_type));
                let count = of_values(Fold::Count, DataType::Int64);
                let kind = ExprKind::Average(Box::new(sum), Box::new(count));
                Some(Expr { kind, data_type, nullable: true })
            }
            AggregateFunction::Moment(moment) => {
                let (sums, scale) = moment_sums(moment, argument, self.second.as_ref(), add);
                Some(Expr { kind: ExprKind::Moment { moment, scale, sums }, data_type, nullable: true })
            }
            _ => None,
        }
    }
}

/// Type in which an average sums.
fn sum_type(argument: &DataType) -> DataType {
    match argument {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
            DataType::Decimal128(38, *scale)
        }
        _ => DataType::Float64,
    }
}

/// Adds the sums and the count of a second moment; with the powers of ten in the sums of products.
fn moment_sums(
    moment: Moment,
    argument: &Expr,
    second: Option<&Expr>,
    add: &mut dyn FnMut(State) -> Expr,
) -> (Vec<Expr>, i32) {
    let scale_of = |expr: &Expr| match expr.data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => scale.into(),
        _ => 0,
    };
    let mut sum = |x: &Expr, y: Option<&Expr>, term| {
        let (argument, second, data_type) = (Some(x.clone()), y.cloned(), DataType::Decimal128(38, 0));
        add(State { fold: Fold::Sum, argument, second, term, data_type })
    };
    let mut sums = vec![];
    let (x, scale) = match second {
        None => {
            sums.extend([sum(argument, None, Term::Distance), sum(argument, None, Term::Product)]);
            (argument.clone(), moment.scale(scale_of(argument), scale_of(argument)))
        }
        Some(second) => {
            let (x, y) = (where_not_null(argument, second), where_not_null(second, argument));
            sums.extend([sum(&x, None, Term::Distance), sum(&y, None, Term::Distance)]);
            sums.push(sum(&x, Some(&y), Term::Product));
            if moment.takes_squares() {
                sums.extend([sum(&x, None, Term::Product), sum(&y, None, Term::Product)]);
            }
            (x, moment.scale(scale_of(argument), scale_of(second)))
        }
    };
    let data_type = DataType::Int64;
    sums.insert(0, add(State { fold: Fold::Count, argument: Some(x), second: None, term: Term::Value, data_type }));
    (sums, scale)
}
