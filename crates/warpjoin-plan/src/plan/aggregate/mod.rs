//! Aggregates of group-bys.

mod spec;
#[allow(missing_docs, reason = "internal to warpjoin")]
mod states;

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{Expr, Moment, SortKey};

pub use spec::{AggregateSpec, Way};
pub use states::{Fold, State, Term};

/// One aggregate of a group-by.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// The function.
    pub function: AggregateFunction,
    /// Its argument; `None` only for `Count`, which then counts rows.
    pub argument: Option<Expr>,
    /// The second argument of a function of pairs. A pair with a null is skipped.
    pub second: Option<Expr>,
    /// Equal arguments count once.
    pub is_distinct: bool,
    /// For `First` and `Last`: the order of rows. Among equal rows, or without an order, any row is chosen: the same
    /// one for all calls with the same order and filter.
    pub order_by: Vec<SortKey>,
    /// For `First` and `Last`: a Boolean; only rows for which it is true count.
    pub filter: Option<Expr>,
    /// Type of the result.
    pub data_type: DataType,
}

impl AggregateCall {
    /// A function of all arguments.
    pub fn new(function: AggregateFunction, argument: Option<Expr>, data_type: DataType) -> Self {
        Self { function, argument, second: None, is_distinct: false, order_by: vec![], filter: None, data_type }
    }

    #[doc(hidden)]
    pub fn is_ordered(&self) -> bool {
        self.function.spec().way == Way::FirstRow
    }

    pub(crate) fn is_moment_of_doubles(&self) -> bool {
        self.function.spec().way == Way::Moment
            && self.argument.iter().chain(&self.second).any(|argument| argument.data_type.is_floating())
    }

    pub(crate) fn is_quantile(&self) -> bool {
        self.function.spec().way == Way::Quantile
    }

    /// Whether it needs more than accumulators over one pass of the rows.
    pub(crate) fn needs_parts(&self) -> bool {
        self.is_distinct || self.is_ordered() || self.is_quantile() || self.is_moment_of_doubles()
    }

    /// Expressions over the input that it reads.
    #[doc(hidden)]
    pub fn read(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order_by.iter().map(|key| &key.expr);
        self.argument.iter().chain(&self.second).chain(&self.filter).chain(order)
    }

    /// The call with the expressions that it reads replaced by `with`.
    #[must_use]
    #[doc(hidden)]
    pub fn map(&self, with: &mut dyn FnMut(&Expr) -> Expr) -> Self {
        let order_by = self.order_by.iter().map(|key| SortKey { expr: with(&key.expr), ..*key }).collect();
        Self {
            argument: self.argument.as_ref().map(&mut *with),
            second: self.second.as_ref().map(&mut *with),
            filter: self.filter.as_ref().map(&mut *with),
            order_by,
            ..self.clone()
        }
    }

    /// The function of distinct arguments.
    #[must_use]
    pub fn distinct(self) -> Self {
        Self { is_distinct: true, ..self }
    }
}

/// Aggregate functions. Nulls are skipped; without a value left the result is null, a count 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AggregateFunction {
    /// Rows, or values that are not null. Int64.
    Count,
    /// Sum. Integers and decimals wrap in the result type.
    Sum,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Mean: of floats in Float64, of decimals in the result's scale, truncated. A mean beyond the result's
    /// precision is an overflow.
    Avg,
    /// Bits that are set in all integers.
    BitAnd,
    /// Bits that are set in one of the integers.
    BitOr,
    /// Bits that are set in an odd number of the integers.
    BitXor,
    /// A statistic of numbers, or of pairs, in Float64.
    Moment(Moment),
    /// The argument, null or not, of the row that comes first in the call's order.
    First,
    /// The argument, null or not, of the row that comes last.
    Last,
    /// The median: the middle value, or half the sum of the two middle values. For floats and decimals; means of
    /// decimals are truncated.
    Median,
    /// The value at this share of the sorted values, interpolated between its two neighbors in steps of a millionth.
    /// For Float64.
    Percentile {
        /// Bits of the share, a Float64 from 0 to 1.
        share_bits: u64,
    },
}
