//! Aggregates over frames: which operation folds the values, which scans it needs, and how results are stored.

use arrow::datatypes::DataType;
use warpjoin_codegen::{Kind, Range, range_of_type};
use warpjoin_columns::column::{ColumnType, Domain};
use warpjoin_columns::expr::{Expr, ExprKind, Scalar};
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_kernels::window::window_kind as kind;
use warpjoin_plan::plan::{AggregateCall, AggregateFunction, Fold, State};
use warpjoin_plan::window::{Frame, FrameBound};

/// Maximum rows of a stretch: no device has more rows.
const PERIOD_MAX: u64 = u32::MAX as u64;

/// The operation of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ScanOp {
    /// The number of values that are not null.
    Count,
    /// Sums, modulo 2^64 and 2^128, and in doubles.
    Add64,
    Add128,
    AddDouble,
    /// The number of values, their mean, and the sum of squared distances from it.
    Squares,
    /// The largest code of a value, in 8 and in 16 bytes; or the smallest one.
    Extreme {
        is_wide: bool,
        is_least: bool,
    },
}

impl ScanOp {
    pub(super) fn entries(self) -> (&'static str, &'static str) {
        match self {
            Self::Count => ("window_count", "window_place"),
            Self::Add64 => ("window_add_64", "window_of_sums_64"),
            Self::Add128 => ("window_add_128", "window_of_sums_128"),
            Self::AddDouble => ("window_add_f64", "window_of_sums_f64"),
            Self::Squares => ("window_squares", "window_of_squares"),
            Self::Extreme { is_wide: false, .. } => ("window_max_64", "window_of_maxima_64"),
            Self::Extreme { is_wide: true, .. } => ("window_max_128", "window_of_maxima_128"),
        }
    }

    /// The kernel entry that computes a level of a tree. `None`: no frame needs a tree.
    pub(super) fn tree_entry(self) -> Option<&'static str> {
        match self {
            Self::AddDouble => Some("window_tree_add_f64"),
            Self::Squares => Some("window_tree_squares"),
            Self::Extreme { is_wide: false, .. } => Some("window_tree_max_64"),
            Self::Extreme { is_wide: true, .. } => Some("window_tree_max_128"),
            Self::Count | Self::Add64 | Self::Add128 => None,
        }
    }

    /// Bytes of a result.
    pub(super) fn width_bytes(self) -> u64 {
        match self {
            Self::Count => 4,
            Self::Squares => 24,
            Self::Add128 | Self::Extreme { is_wide: true, .. } => 16,
            _ => 8,
        }
    }

    /// Mask that complements codes, for minima.
    pub(super) fn flip(self) -> u64 {
        if matches!(self, Self::Extreme { is_least: true, .. }) { u64::MAX } else { 0 }
    }
}

/// Where the segments of a scan end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Segments {
    /// At the end of peers, instead of partitions.
    pub by_peers: bool,
    /// Also after every multiple of this many rows; 0: not.
    pub period_rows: u64,
    pub is_backward: bool,
}

impl Segments {
    /// A scan of whole partitions.
    pub(super) const PARTITIONS: Self = Self { by_peers: false, period_rows: 0, is_backward: false };
}

/// How the result of a frame follows from scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The scan at the frame's end minus the scan before the frame.
    Difference,
    /// A scan that starts where the frame does: with the partition, or with the peers if they are the frame.
    Forward { by_peers: bool },
    /// A backward scan from where the frame ends, the end of the partition.
    Backward,
    /// Scans in both directions over stretches of this many rows, the most that a frame has.
    Stretches(u64),
    /// A tree over all rows, for frames of any length.
    Tree,
}

impl Form {
    /// The form for inexact sums, and for operations that are not sums.
    fn of_inexact(frame: Frame) -> Self {
        match (frame.start, frame.end) {
            (FrameBound::Partition, _) => Self::Forward { by_peers: false },
            (_, FrameBound::Partition) => Self::Backward,
            (FrameBound::Groups(0), FrameBound::Groups(0)) => Self::Forward { by_peers: true },
            (FrameBound::Rows(_), FrameBound::Rows(_)) => {
                Self::Stretches(frame.rows().unwrap_or(u64::MAX).clamp(1, PERIOD_MAX))
            }
            _ => Self::Tree,
        }
    }

    /// Its number in kernels, and its period.
    pub(super) fn code(self) -> (u64, u64) {
        match self {
            Self::Difference => (kind::DIFFERENCE, 0),
            Self::Forward { .. } => (kind::FORWARD, 0),
            Self::Backward => (kind::BACKWARD, 0),
            Self::Stretches(rows) => (kind::STRETCHES, rows),
            Self::Tree => (kind::TREE, 0),
        }
    }

    /// The scans that it needs: forward and backward.
    pub(super) fn segments(self) -> [Option<Segments>; 2] {
        let scan = |by_peers, period_rows, is_backward| Some(Segments { by_peers, period_rows, is_backward });
        match self {
            Self::Difference => [scan(false, 0, false), None],
            Self::Forward { by_peers } => [scan(by_peers, 0, false), None],
            Self::Backward => [None, scan(false, 0, true)],
            Self::Stretches(rows) => [scan(false, rows, false), scan(false, rows, true)],
            Self::Tree => [None, None],
        }
    }
}

/// A value that a frame accumulates.
#[derive(Debug)]
pub(super) struct FrameState {
    folded: Folded,
    pub data_type: DataType,
}

/// How the values of a frame are folded.
#[derive(Debug, PartialEq, Eq)]
enum Folded {
    /// As in a group-by.
    By(Fold),
    /// The sum of squared distances from the mean.
    Squares,
}

/// How devices fold the values of a column over a frame.
pub(super) struct FrameFold {
    pub op: ScanOp,
    pub form: Form,
    /// The column of the results.
    pub column: ColumnType,
}

impl FrameState {
    /// Calls `add` for each state that a frame accumulates for an aggregate; `add` returns the state as an expression. Returns the
    /// aggregate's result, an expression of the states. `None`: frames do not support the aggregate.
    pub(super) fn accumulate(call: &AggregateCall, add: &mut dyn FnMut(Self) -> Expr) -> Option<Expr> {
        if let (AggregateFunction::Moment(moment), Some(argument)) = (call.function, &call.argument) {
            let count = add(Self { folded: Folded::By(Fold::Count), data_type: DataType::Int64 });
            let squares = add(Self { folded: Folded::Squares, data_type: DataType::Float64 });
            // Distances from the mean add up to 0.
            let distances = Expr::literal(Scalar::Float(0.0), DataType::Float64);
            let scale = match argument.data_type {
                DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => scale,
                _ => 0,
            };
            let scale = moment.scale(scale.into(), scale.into());
            let kind = ExprKind::Moment { moment, scale, sums: vec![count, distances, squares] };
            return Some(Expr { kind, data_type: call.data_type.clone(), nullable: true });
        }
        call.accumulate(&mut |State { fold, data_type, .. }| add(Self { folded: Folded::By(fold), data_type }))
    }

    /// Whether rows or values are counted.
    pub(super) fn is_count(&self) -> bool {
        self.folded == Folded::By(Fold::Count)
    }

    /// How the values of a column are folded. `rows_bits`: bits of an upper bound of the rows.
    pub(super) fn fold_over(&self, frame: Frame, column: &ColumnType, rows_bits: u32) -> Result<FrameFold> {
        let declined = |what: &str| Err(Reason::Aggregate(format!("{what} of {}", column.data_type)).into());
        let of_argument = |op| {
            let column = ColumnType { has_nulls: true, ..column.clone() };
            Ok(FrameFold { op, form: Form::of_inexact(frame), column })
        };
        let is_wide = column.layout().width_bytes == 16;
        let fold = match self.folded {
            Folded::By(fold) => fold,
            Folded::Squares => {
                // The kernel reads integers of 8 bytes as signed.
                if !is_wide && matches!(column.domain, Domain::Int { max, .. } if max > i64::MAX.into()) {
                    return declined("squares");
                }
                let data_type = self.data_type.clone();
                let column = ColumnType { data_type, has_nulls: true, domain: Domain::Float64, dictionary: None };
                return Ok(FrameFold { op: ScanOp::Squares, form: Form::of_inexact(frame), column });
            }
        };
        match fold {
            Fold::Sum => {
                let (op, form, domain) = match Kind::of_column(column)? {
                    Kind::F32 | Kind::F64 => (ScanOp::AddDouble, Form::of_inexact(frame), Domain::Float64),
                    Kind::Int(range) => {
                        let (is_wide, domain) = sum_domain(range, &self.data_type, rows_bits);
                        (if is_wide { ScanOp::Add128 } else { ScanOp::Add64 }, Form::Difference, domain)
                    }
                    Kind::Bool => return declined("sum"),
                };
                let data_type = self.data_type.clone();
                Ok(FrameFold { op, form, column: ColumnType { data_type, has_nulls: true, domain, dictionary: None } })
            }
            Fold::Min => of_argument(ScanOp::Extreme { is_wide, is_least: true }),
            Fold::Max => of_argument(ScanOp::Extreme { is_wide, is_least: false }),
            Fold::BitAnd | Fold::BitOr | Fold::BitXor => declined("bits"),
            Fold::Count => Err(Error::internal("a count is no fold of values")),
        }
    }
}

/// Whether sums are stored in 16 bytes instead of 8, and their bounds.
fn sum_domain(range: Range, data_type: &DataType, rows_bits: u32) -> (bool, Domain) {
    let all = range_of_type(data_type).unwrap_or(Range::new(i128::MIN, i128::MAX));
    let factor = 1i128.checked_shl(rows_bits).filter(|factor| *factor > 0);
    let scaled = |bound: i128| factor.and_then(|factor| bound.checked_mul(factor));
    let total = match (scaled(range.min.min(0)), scaled(range.max.max(0))) {
        (Some(min), Some(max)) if min >= all.min && max <= all.max => Range::new(min, max),
        // The sum may wrap.
        _ => all,
    };
    let is_wide =
        *data_type != DataType::UInt64 && (i64::try_from(total.min).is_err() || i64::try_from(total.max).is_err());
    if is_wide {
        // A bound beyond 64 bits makes the layout one of 16 bytes.
        return (true, Domain::Int { min: total.min.min(-1 << 64), max: total.max });
    }
    // More than 32 bits apart: the layout is one of 8 bytes.
    (false, Domain::Int { min: total.min, max: total.max.max(total.min + (1 << 32)) })
}

#[cfg(test)]
mod tests {
    use warpjoin_columns::column::Layout;

    use super::*;

    #[test]
    fn sums_are_stored_in_8_or_16_bytes() {
        let decimal = DataType::Decimal128(38, 0);
        for (min, max, data_type, width) in [
            (0, 0, DataType::Int64, 8),
            (-5, 7, DataType::Int64, 8),
            (i64::MIN.into(), i64::MAX.into(), DataType::Int64, 8),
            (0, u64::MAX.into(), DataType::UInt64, 8),
            (0, 100, decimal.clone(), 8),
            (0, i64::MAX.into(), decimal.clone(), 16),
            (1 << 50, 1 << 51, decimal.clone(), 16),
            (i128::MIN, i128::MAX, decimal, 16),
        ] {
            let (is_wide, domain) = sum_domain(Range::new(min, max), &data_type, 24);
            assert_eq!(Layout::of(domain).width_bytes, width, "{min} {max} {data_type}");
            assert_eq!(is_wide, width == 16);
        }
    }
}
