//! Window functions: what a row is told about the rows of its partition.
//!
//! Owns their description in device plans. Must not know how they are computed ([`crate::exec`]).

mod spec;

use std::fmt;

use arrow::datatypes::DataType;

pub use spec::{WindowSpec, WindowWay};

use crate::expr::Expr;
use crate::plan::AggregateFunction;

/// One function of a window.
#[derive(Debug, Clone)]
pub struct WindowCall {
    /// The function.
    pub function: WindowFunction,
    /// Its argument; `None` for those by place, and for `count(*)`.
    pub argument: Option<Expr>,
    /// Of `Shift`: the value of rows without such a row; without it, null.
    pub default: Option<Expr>,
    /// Of values of other rows: rows whose argument is null are not counted.
    pub ignores_nulls: bool,
    /// Rows that count; those by place and `Shift` look at the whole partition.
    pub frame: Frame,
    /// Type of the result.
    pub data_type: DataType,
}

/// Functions of a window. Places count from 1. Rows that are equal in the order of a window are peers; without an order all
/// rows of a partition are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WindowFunction {
    /// The row's place. UInt64.
    RowNumber,
    /// Place of the first peer. UInt64.
    Rank,
    /// How many different rows of the order there are up to this one. UInt64.
    DenseRank,
    /// Rows before the peers, of all others of the partition; 0 for one alone. Float64.
    PercentRank,
    /// Rows up to the last peer, of all of the partition. Float64.
    CumeDist,
    /// The part of so many that the row is in, of sizes that differ by one at most, the larger ones first. UInt64.
    Ntile(u64),
    /// The argument of the row that comes so many behind this one; negative: before it.
    Shift(i64),
    /// The argument of the frame's first row; null or not.
    First,
    /// Of its last row.
    Last,
    /// Of its n-th row, from 1; negative: from the end, the last one being -1; 0: null.
    Nth(i64),
    /// An aggregate of the frame, as group-bys have it, if its spec says that frames have it.
    Aggregate(AggregateFunction),
}

/// Rows of a partition that count for one of them: from the start to the end, both included, as far as there are rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Where it begins.
    pub start: FrameBound,
    /// Where it ends.
    pub end: FrameBound,
}

/// An end of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameBound {
    /// The partition's.
    Partition,
    /// The row so many behind the current one; negative: before it.
    Rows(i64),
    /// The first or last one of the peers that come so many different rows of the order behind; 0: its own peers.
    Groups(i64),
    /// The first or last row whose key is that far away, or nearer; of windows with one key. What a null is away from are
    /// nulls. Unsigned keys less a distance are 0 at least. Where no key of the type is that far away the bound is the
    /// partition's; if nulls stand there, the query ends with a reason, as DataFusion's answer depends on whether it
    /// goes through the rows from behind.
    Range {
        /// In the direction of the order, or against it.
        is_following: bool,
        /// How far.
        distance: Distance,
    },
}

/// How far keys are from each other; never less than nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distance {
    /// In units of the key's type: of integers, the last digit of decimals, days, ticks of timestamps.
    Units(i128),
    /// Of dates: so many months, of which the last day may be earlier, then so many days.
    Months(u32, u32),
    /// Of floats: bits of a finite double, added in the key's type.
    Double(u64),
}

impl Frame {
    /// All rows of the partition.
    pub const PARTITION: Self = Self { start: FrameBound::Partition, end: FrameBound::Partition };

    /// Rows of a frame that is cut off by nothing; `None` where that is no number of its own.
    pub(crate) fn rows(self) -> Option<u64> {
        match (self.start, self.end) {
            (FrameBound::Rows(start), FrameBound::Rows(end)) => {
                let rows = i128::from(end) - i128::from(start) + 1;
                u64::try_from(rows.max(0)).ok()
            }
            _ => None,
        }
    }
}

impl FrameBound {
    /// Whether it is found by distances of keys.
    pub(crate) fn is_range(self) -> bool {
        matches!(self, Self::Range { .. })
    }
}

impl WindowCall {
    /// The call over what `with` makes of the expressions that it reads.
    #[must_use]
    pub(crate) fn map(&self, with: &mut dyn FnMut(&Expr) -> Expr) -> Self {
        let (argument, default) = (self.argument.as_ref().map(&mut *with), self.default.as_ref().map(&mut *with));
        Self { argument, default, ..self.clone() }
    }
}

impl fmt::Display for WindowFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Aggregate(function) = self {
            return write!(f, "{function}");
        }
        f.write_str(self.spec().name)?;
        match self {
            Self::Ntile(parts) => write!(f, " {parts}"),
            Self::Shift(rows) => write!(f, " {rows}"),
            Self::Nth(place) => write!(f, " {place}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for FrameBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition => f.write_str("partition"),
            Self::Rows(rows) => write!(f, "{rows:+} rows"),
            Self::Groups(groups) => write!(f, "{groups:+} peers"),
            Self::Range { is_following, distance } => {
                write!(f, "{distance} {}", if *is_following { "behind" } else { "before" })
            }
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Units(units) => write!(f, "{units}"),
            Self::Months(months, 0) => write!(f, "{months} months"),
            Self::Months(months, days) => write!(f, "{months} months and {days} days"),
            Self::Double(bits) => write!(f, "{}", f64::from_bits(*bits)),
        }
    }
}

impl fmt::Display for WindowCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.function)?;
        self.argument.iter().try_for_each(|argument| write!(f, "{argument}"))?;
        self.default.iter().try_for_each(|default| write!(f, ", {default}"))?;
        f.write_str(if self.ignores_nulls { ") IGNORE NULLS" } else { ")" })?;
        if self.function.spec().reads_frame {
            write!(f, " from {} to {}", self.frame.start, self.frame.end)?;
        }
        Ok(())
    }
}
