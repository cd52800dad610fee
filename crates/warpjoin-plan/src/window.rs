//! Window functions: values computed for each row from the rows of its partition.
//!
//! Owns their description in device plans. Must not know how they are computed (`warpjoin::exec`).

mod spec;

use std::fmt;

use arrow::datatypes::DataType;

pub use spec::{WindowSpec, WindowWay};
use warpjoin_columns::expr::Expr;

use crate::plan::AggregateFunction;

/// One function of a window.
#[derive(Debug, Clone)]
pub struct WindowCall {
    /// The function.
    pub function: WindowFunction,
    /// Its argument; `None` for positional functions (such as `row_number`), and for `count(*)`.
    pub argument: Option<Expr>,
    /// For `Shift`: the value where there is no such row; `None`: null.
    pub default: Option<Expr>,
    /// For functions that read another row's value: rows whose argument is null are skipped (IGNORE NULLS).
    pub ignores_nulls: bool,
    /// The frame; positional functions and `Shift` use the whole partition.
    pub frame: Frame,
    /// Type of the result.
    pub data_type: DataType,
}

/// Functions of a window. Positions count from 1. Rows with equal order keys are peers; without an order, all rows of a
/// partition are peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowFunction {
    /// The row's position. UInt64.
    RowNumber,
    /// Position of the first peer. UInt64.
    Rank,
    /// Number of peer groups up to this row's. UInt64.
    DenseRank,
    /// Rows before the first peer, divided by the partition's rows minus one; 0 for a single row. Float64.
    PercentRank,
    /// Rows up to the last peer, divided by the partition's rows. Float64.
    CumeDist,
    /// Number of the row's bucket when the partition is cut into n buckets, whose sizes differ by at most one, larger
    /// ones first. UInt64.
    Ntile(u64),
    /// The argument of the n-th row after this one; negative: before it.
    Shift(i64),
    /// The argument of the frame's first row; null or not.
    First,
    /// The argument of the frame's last row.
    Last,
    /// The argument of the frame's n-th row, from 1; negative: from the end, where -1 is the last row; 0: null.
    Nth(i64),
    /// An aggregate of the frame, for functions whose spec supports frames.
    Aggregate(AggregateFunction),
}

/// A frame: the rows of a partition that a function reads for one row, from start to end inclusive, within the
/// partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Where it begins.
    pub start: FrameBound,
    /// Where it ends.
    pub end: FrameBound,
}

/// A bound of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameBound {
    /// The first or last row of the partition.
    Partition,
    /// The n-th row after the current one; negative: before it.
    Rows(i64),
    /// The first or last row of the n-th peer group after the row's own; 0: its own peer group; negative: before it.
    Groups(i64),
    /// The first or last row whose key is at most `distance` away (RANGE); for windows with one key. The frame of a
    /// null key holds the nulls. An unsigned key minus a distance is at least 0. If the bound leaves the key's type, it
    /// is the bound of the partition; if nulls are at that end, the query is declined, since DataFusion's answer
    /// depends on the direction in which it reads the rows.
    Range {
        /// In the direction of the order, or against it.
        is_following: bool,
        /// Maximum distance of the keys.
        distance: Distance,
    },
}

/// A distance between keys; never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distance {
    /// In units of the key's type: integers, last digits of decimals, days, ticks of timestamps.
    Units(i128),
    /// For dates: months (clamped to the last day of the month), then days.
    Months(u32, u32),
    /// For floats: bits of a finite double, which is added in the key's type.
    Double(u64),
}

impl Frame {
    /// All rows of the partition.
    pub const PARTITION: Self = Self { start: FrameBound::Partition, end: FrameBound::Partition };

    /// Number of rows of a frame that the partition does not cut off; `None` if that number is not fixed.
    #[doc(hidden)]
    pub fn rows(self) -> Option<u64> {
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
    /// Whether it is a RANGE bound.
    #[doc(hidden)]
    pub fn is_range(self) -> bool {
        matches!(self, Self::Range { .. })
    }
}

impl WindowCall {
    /// The call with its expressions replaced by `with`.
    #[must_use]
    #[doc(hidden)]
    pub fn map(&self, with: &mut dyn FnMut(&Expr) -> Expr) -> Self {
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
