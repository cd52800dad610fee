//! What the calls of a window are made of: columns that kernels put out, and expressions over these.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;

use super::kernels::{ScanOp, Segments};
use crate::codegen::{Kind, Range, range_of_type, window_kind as kind};
use crate::column::{ColumnType, Domain};
use crate::expr::{CompareOp, Expr, ExprKind, Scalar};
use crate::plan::build::{case, compare};
use crate::plan::{AggregateFunction, sum_type};
use crate::window::{Frame, FrameBound, WindowCall, WindowFunction};
use crate::{Error, Reason, Result};

/// Rows of a stretch of frames that are longer than a device has rows.
const PERIOD_MAX: u64 = u32::MAX as u64;

/// A column that kernels put out. Arguments are positions among the stored columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raw {
    /// A place, share or count; of values that are there, if an argument with nulls is counted.
    Place { place: u64, number: i64, frame: Frame, counts: Option<usize> },
    /// A sum, minimum or maximum of a frame.
    Fold { argument: usize, op: ScanOp, form: Form, frame: Frame, has_nulls: bool },
    /// The value of another row, maybe of those whose value is there.
    Value { argument: usize, which: u64, number: i64, frame: Frame, skips_nulls: bool },
}

/// How scans make what a frame has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// What a scan has at the frame's end, less what it has before the frame.
    Difference,
    /// A scan that begins where the frame does: with the partition or, of frames of peers, with these.
    Forward { by_peers: bool },
    /// A scan from behind that begins where the frame ends, with the partition.
    Backward,
    /// Scans in both directions over stretches of so many rows, the most that a frame has.
    Stretches(u64),
    /// A tree over all rows, of frames of any length.
    Tree,
}

impl Form {
    /// Where sums of the function are not exact, or it is no sum.
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

    /// The number by which kernels know it, and its period.
    pub(super) fn code(self) -> (u64, u64) {
        match self {
            Self::Difference => (kind::DIFFERENCE, 0),
            Self::Forward { .. } => (kind::FORWARD, 0),
            Self::Backward => (kind::BACKWARD, 0),
            Self::Stretches(rows) => (kind::STRETCHES, rows),
            Self::Tree => (kind::TREE, 0),
        }
    }

    /// The scans that it takes: forward, and backward.
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

impl Segments {
    /// A scan of whole partitions.
    pub(super) const PARTITIONS: Self = Self { by_peers: false, period_rows: 0, is_backward: false };
}

impl Raw {
    /// The scans that it reads.
    pub(super) fn scans(&self) -> Vec<(usize, ScanOp, Segments)> {
        match *self {
            Self::Place { counts, .. } => {
                counts.into_iter().map(|argument| (argument, ScanOp::Count, Segments::PARTITIONS)).collect()
            }
            Self::Fold { argument, op, form, has_nulls, .. } => {
                let counts = has_nulls.then_some((argument, ScanOp::Count, Segments::PARTITIONS));
                let folds = form.segments().into_iter().flatten().map(|segments| (argument, op, segments));
                folds.chain(counts).collect()
            }
            Self::Value { skips_nulls: false, .. } => vec![],
            Self::Value { argument, .. } => vec![(argument, ScanOp::Count, Segments::PARTITIONS)],
        }
    }

    /// The tree that it reads.
    pub(super) fn tree(&self) -> Option<(usize, ScanOp)> {
        match *self {
            Self::Fold { argument, op, form: Form::Tree, .. } => Some((argument, op)),
            _ => None,
        }
    }

    fn frame(&self) -> Frame {
        match *self {
            Self::Place { frame, .. } | Self::Fold { frame, .. } | Self::Value { frame, .. } => frame,
        }
    }

    /// The bounds of its frame that are found by distances, and whether they are ends.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (FrameBound, bool)> + use<> {
        let frame = self.frame();
        [(frame.start, false), (frame.end, true)].into_iter().filter(|(bound, _)| bound.is_range())
    }

    /// The kernels that make it, but that of bounds.
    fn entries(&self) -> Vec<&'static str> {
        let mut entries: Vec<&str> = self.scans().iter().map(|(_, op, _)| op.entries().0).collect();
        entries.extend(self.tree().and_then(|(_, op)| op.tree_entry()));
        entries.extend(self.ranges().map(|_| "window_range"));
        entries.push(match self {
            Self::Place { .. } => "window_place",
            Self::Fold { op, .. } => op.entries().1,
            Self::Value { .. } => "window_value",
        });
        entries
    }
}

impl WindowCall {
    /// Whether values are compared.
    pub(super) fn is_extreme(&self) -> bool {
        matches!(self.function, WindowFunction::Aggregate(AggregateFunction::Min | AggregateFunction::Max))
    }
}

/// The columns that kernels put out behind those of the input.
pub(super) struct Made {
    pub width: usize,
    pub columns: Vec<(Raw, ColumnType)>,
}

impl Made {
    /// The column of `raw`, which is made once.
    fn add(&mut self, raw: Raw, column: ColumnType) -> Expr {
        let known = self.columns.iter().position(|(other, of)| *other == raw && of.data_type == column.data_type);
        let position = known.unwrap_or(self.columns.len());
        let expr = Expr::column(self.width + position, column.data_type.clone(), column.has_nulls);
        if known.is_none() {
            self.columns.push((raw, column));
        }
        expr
    }

    /// The kernels that make the columns.
    pub(super) fn entries(&self) -> BTreeSet<&'static str> {
        let of_columns = self.columns.iter().flat_map(|(raw, _)| raw.entries());
        of_columns.chain(["window_bounds"]).collect()
    }

    fn number(&mut self, place: u64, number: i64, data_type: DataType) -> Expr {
        self.place(Raw::Place { place, number, frame: Frame::PARTITION, counts: None }, data_type)
    }

    fn place(&mut self, raw: Raw, data_type: DataType) -> Expr {
        let domain = match data_type {
            DataType::Float64 => Domain::Float64,
            _ => Domain::Int { min: 0, max: u32::MAX.into() },
        };
        self.add(raw, ColumnType { data_type, has_nulls: false, domain, dictionary: None })
    }

    /// The result of `call`, whose argument is stored in a column; `rows_bits` of a bound of the rows.
    pub(super) fn call(
        &mut self,
        call: &WindowCall,
        argument: Option<(usize, &ColumnType)>,
        rows_bits: u32,
    ) -> Result<Expr> {
        let data_type = call.data_type.clone();
        let of_value = || argument.ok_or_else(|| Error::internal(format!("{} of nothing", call.function)));
        Ok(match call.function {
            WindowFunction::RowNumber => self.number(kind::ROW_NUMBER, 0, data_type),
            WindowFunction::Rank => self.number(kind::RANK, 0, data_type),
            WindowFunction::DenseRank => self.number(kind::DENSE_RANK, 0, data_type),
            WindowFunction::PercentRank => self.number(kind::PERCENT_RANK, 0, data_type),
            WindowFunction::CumeDist => self.number(kind::CUME_DIST, 0, data_type),
            WindowFunction::Ntile(parts) => self.number(kind::NTILE, parts as i64, data_type),
            WindowFunction::Shift(rows) => {
                let value = self.value(of_value()?, (kind::SHIFT, rows), call);
                match &call.default {
                    None => value,
                    Some(default) if call.ignores_nulls => {
                        let is_null = ExprKind::IsNull(Box::new(value.clone()));
                        let is_missing = Expr { kind: is_null, data_type: DataType::Boolean, nullable: false };
                        case(vec![(is_missing, default.clone())], Some(value), data_type, true)
                    }
                    Some(default) => {
                        let found = self.number(kind::FOUND, rows, DataType::UInt64);
                        let zero = Expr::literal(Scalar::Int(0), DataType::UInt64);
                        let is_missing = compare(CompareOp::Equal, &found, &zero);
                        case(vec![(is_missing, default.clone())], Some(value), data_type, true)
                    }
                }
            }
            WindowFunction::First => self.value(of_value()?, (kind::NTH, 1), call),
            WindowFunction::Last => self.value(of_value()?, (kind::NTH, -1), call),
            WindowFunction::Nth(place) => self.value(of_value()?, (kind::NTH, place), call),
            WindowFunction::Aggregate(AggregateFunction::Count) => self.count(argument, call.frame, data_type),
            WindowFunction::Aggregate(AggregateFunction::Sum) => {
                self.sum(of_value()?, call.frame, data_type, rows_bits)?
            }
            WindowFunction::Aggregate(AggregateFunction::Avg) => {
                let summed = sum_type(&of_value()?.1.data_type);
                let sum = self.sum(of_value()?, call.frame, summed, rows_bits)?;
                let count = self.count(argument, call.frame, DataType::Int64);
                let kind = ExprKind::Average(Box::new(sum), Box::new(count));
                Expr { kind, data_type, nullable: true }
            }
            WindowFunction::Aggregate(AggregateFunction::Min) => self.extreme(of_value()?, call.frame, true)?,
            WindowFunction::Aggregate(AggregateFunction::Max) => self.extreme(of_value()?, call.frame, false)?,
            WindowFunction::Aggregate(function) => {
                return Err(Reason::Aggregate(format!("{function} of a window")).into());
            }
        })
    }

    fn value(
        &mut self,
        (argument, column): (usize, &ColumnType),
        (which, number): (u64, i64),
        call: &WindowCall,
    ) -> Expr {
        let frame = if which == kind::SHIFT { Frame::PARTITION } else { call.frame };
        let skips_nulls = call.ignores_nulls && column.has_nulls;
        let column = ColumnType { has_nulls: true, ..column.clone() };
        self.add(Raw::Value { argument, which, number, frame, skips_nulls }, column)
    }

    fn count(&mut self, argument: Option<(usize, &ColumnType)>, frame: Frame, data_type: DataType) -> Expr {
        let counts = argument.filter(|(_, column)| column.has_nulls).map(|(argument, _)| argument);
        self.place(Raw::Place { place: kind::COUNT, number: 0, frame, counts }, data_type)
    }

    fn sum(
        &mut self,
        (argument, column): (usize, &ColumnType),
        frame: Frame,
        data_type: DataType,
        rows_bits: u32,
    ) -> Result<Expr> {
        let (op, form, domain) = match Kind::of_column(column)? {
            Kind::F32 | Kind::F64 => (ScanOp::AddDouble, Form::of_inexact(frame), Domain::Float64),
            Kind::Int(range) => {
                let (is_wide, domain) = sum_domain(range, &data_type, rows_bits);
                (if is_wide { ScanOp::Add128 } else { ScanOp::Add64 }, Form::Difference, domain)
            }
            Kind::Bool => return Err(Reason::Aggregate("sum of Boolean".into()).into()),
        };
        let raw = Raw::Fold { argument, op, form, frame, has_nulls: column.has_nulls };
        Ok(self.add(raw, ColumnType { data_type, has_nulls: true, domain, dictionary: None }))
    }

    fn extreme(&mut self, (argument, column): (usize, &ColumnType), frame: Frame, is_least: bool) -> Result<Expr> {
        let op = ScanOp::Extreme { is_wide: column.layout().width_bytes == 16, is_least };
        let form = Form::of_inexact(frame);
        let raw = Raw::Fold { argument, op, form, frame, has_nulls: column.has_nulls };
        Ok(self.add(raw, ColumnType { has_nulls: true, ..column.clone() }))
    }
}

/// Bounds of sums of values, which are stored in 8 bytes, or in 16 where that is said.
fn sum_domain(range: Range, data_type: &DataType, rows_bits: u32) -> (bool, Domain) {
    let all = range_of_type(data_type).unwrap_or(Range::new(i128::MIN, i128::MAX));
    let factor = 1i128.checked_shl(rows_bits).filter(|factor| *factor > 0);
    let scaled = |bound: i128| factor.and_then(|factor| bound.checked_mul(factor));
    let total = match (scaled(range.min.min(0)), scaled(range.max.max(0))) {
        (Some(min), Some(max)) if min >= all.min && max <= all.max => Range::new(min, max),
        // The sum wraps, or nobody knows.
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
    use super::*;
    use crate::column::Layout;

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
