//! One spec for each window function, read by matcher, checks, execution and tests.

use arrow::datatypes::DataType;

use super::WindowFunction;
use crate::plan::AggregateFunction;

/// Properties that all calls of a window function share.
#[derive(Debug, Clone, Copy)]
pub struct WindowSpec {
    /// Its name in plans.
    pub name: &'static str,
    /// Its names in DataFusion.
    pub sql: &'static [&'static str],
    /// What its result depends on.
    pub way: WindowWay,
    /// Whether it depends on the call's frame.
    pub reads_frame: bool,
    /// Whether it depends on which rows are peers, whatever the frame.
    pub reads_peers: bool,
    /// Whether it supports IGNORE NULLS.
    pub skips_nulls: bool,
    /// Whether a call may have a default, for rows where the other row does not exist.
    pub has_default: bool,
    /// Whether devices support this type of the argument (`None`: no argument) and this type of the result.
    pub takes: fn(WindowFunction, Option<&DataType>, &DataType) -> bool,
}

/// What the result of a window function depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowWay {
    /// The row's position.
    Place,
    /// The argument of another row.
    OtherRow,
    /// The arguments of all rows of a frame.
    Frame,
}

const PLACE: WindowSpec = WindowSpec {
    name: "",
    sql: &[],
    way: WindowWay::Place,
    reads_frame: false,
    reads_peers: false,
    skips_nulls: false,
    has_default: false,
    takes: |_, of, to| of.is_none() && *to == DataType::UInt64,
};

const RANK: WindowSpec = WindowSpec { reads_peers: true, ..PLACE };

const SHARE: WindowSpec = WindowSpec { takes: |_, of, to| of.is_none() && *to == DataType::Float64, ..RANK };

const OF_FRAME_ROW: WindowSpec = WindowSpec {
    way: WindowWay::OtherRow,
    reads_frame: true,
    skips_nulls: true,
    takes: |_, of, to| of == Some(to),
    ..PLACE
};

impl WindowFunction {
    /// All functions, those with a parameter once.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [
            Self::RowNumber,
            Self::Rank,
            Self::DenseRank,
            Self::PercentRank,
            Self::CumeDist,
            Self::Ntile(1),
            Self::Shift(1),
            Self::First,
            Self::Last,
            Self::Nth(1),
        ];
        let aggregates = AggregateFunction::all().filter(|function| function.spec().over_frames);
        own.into_iter().chain(aggregates.map(Self::Aggregate))
    }

    /// The function's spec.
    pub fn spec(self) -> WindowSpec {
        match self {
            Self::RowNumber => WindowSpec { name: "row_number", sql: &["row_number"], ..PLACE },
            Self::Rank => WindowSpec { name: "rank", sql: &["rank"], ..RANK },
            Self::DenseRank => WindowSpec { name: "dense_rank", sql: &["dense_rank"], ..RANK },
            Self::PercentRank => WindowSpec { name: "percent_rank", sql: &["percent_rank"], ..SHARE },
            Self::CumeDist => WindowSpec { name: "cume_dist", sql: &["cume_dist"], ..SHARE },
            Self::Ntile(_) => WindowSpec {
                name: "ntile",
                sql: &["ntile"],
                takes: |function, of, to| function != Self::Ntile(0) && (PLACE.takes)(function, of, to),
                ..PLACE
            },
            Self::Shift(rows) => WindowSpec {
                name: "shift",
                sql: &["lag", "lead"],
                reads_frame: false,
                // With IGNORE NULLS, the row itself has no defined value.
                skips_nulls: rows != 0,
                has_default: true,
                ..OF_FRAME_ROW
            },
            Self::First => WindowSpec { name: "first_value", sql: &["first_value"], ..OF_FRAME_ROW },
            Self::Last => WindowSpec { name: "last_value", sql: &["last_value"], ..OF_FRAME_ROW },
            Self::Nth(_) => WindowSpec { name: "nth_value", sql: &["nth_value"], ..OF_FRAME_ROW },
            Self::Aggregate(function) => WindowSpec {
                name: function.spec().name,
                way: WindowWay::Frame,
                reads_frame: true,
                takes: takes_aggregate,
                ..PLACE
            },
        }
    }
}

/// Types of an aggregate over frames.
fn takes_aggregate(function: WindowFunction, of: Option<&DataType>, to: &DataType) -> bool {
    let WindowFunction::Aggregate(function) = function else { return false };
    let spec = function.spec();
    spec.over_frames
        && match of {
            // Rows are counted.
            None => function == AggregateFunction::Count && *to == DataType::Int64,
            Some(of) => spec.arguments == 1 && (spec.takes)(of, to),
        }
}
