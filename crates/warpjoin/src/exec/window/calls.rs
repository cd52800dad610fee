//! Breaks the calls of a window into columns that kernels compute, and expressions over these.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use warpjoin_columns::column::{ColumnType, Domain};
use warpjoin_columns::expr::{CompareOp, Expr, ExprKind, Scalar};
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_kernels::window::window_kind as kind;
use warpjoin_plan::plan::build::{case, compare};
use warpjoin_plan::plan::{AggregateCall, Fold};
use warpjoin_plan::window::{Frame, FrameBound, WindowCall, WindowFunction};

use super::fold::{Form, FrameFold, FrameState, ScanOp, Segments};

/// A column that kernels compute. Arguments are positions among the stored columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raw {
    /// A position, share or count; `counts`: the argument whose non-null values are counted.
    Place { place: u64, number: i64, frame: Frame, counts: Option<usize> },
    /// A sum, minimum or maximum of a frame.
    Fold { argument: usize, op: ScanOp, form: Form, frame: Frame, has_nulls: bool },
    /// The value of another row; with `skips_nulls`, among rows whose value is not null.
    Value { argument: usize, which: u64, number: i64, frame: Frame, skips_nulls: bool },
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

    /// The RANGE bounds of its frame, and whether each is the end.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (FrameBound, bool)> + use<> {
        let frame = self.frame();
        [(frame.start, false), (frame.end, true)].into_iter().filter(|(bound, _)| bound.is_range())
    }

    /// The kernels that compute it, except the kernel for bounds.
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

/// Whether a call compares values.
pub(super) fn is_extreme(call: &WindowCall) -> bool {
    match call.function {
        WindowFunction::Aggregate(function) => matches!(function.fold(), Some(Fold::Min | Fold::Max)),
        _ => false,
    }
}

/// The columns that kernels compute, after those of the input.
pub(super) struct Made {
    pub width: usize,
    pub columns: Vec<(Raw, ColumnType)>,
}

impl Made {
    /// The column of `raw`; equal ones are computed once.
    fn add(&mut self, raw: Raw, column: ColumnType) -> Expr {
        let known = self.columns.iter().position(|(other, of)| *other == raw && of.data_type == column.data_type);
        let position = known.unwrap_or(self.columns.len());
        let expr = Expr::column(self.width + position, column.data_type.clone(), column.has_nulls);
        if known.is_none() {
            self.columns.push((raw, column));
        }
        expr
    }

    /// The kernels that compute the columns.
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

    /// The result of `call`, whose argument is stored in a column; `rows_bits`: bits of a bound of the rows.
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
            WindowFunction::Aggregate(function) => {
                let mut failed = None;
                let aggregate = AggregateCall::new(function, call.argument.clone(), data_type);
                let result = FrameState::accumulate(&aggregate, &mut |state| {
                    let made = self.state(&state, argument, call.frame, rows_bits);
                    made.unwrap_or_else(|error| {
                        failed.get_or_insert(error);
                        Expr::literal(Scalar::Null, state.data_type)
                    })
                });
                match (failed, result) {
                    (Some(error), _) => return Err(error),
                    (None, Some(result)) => result,
                    (None, None) => return Err(Reason::Aggregate(format!("{function} of a window")).into()),
                }
            }
        })
    }

    /// A state that a frame accumulates, as an expression.
    fn state(
        &mut self,
        state: &FrameState,
        argument: Option<(usize, &ColumnType)>,
        frame: Frame,
        rows_bits: u32,
    ) -> Result<Expr> {
        if state.is_count() {
            return Ok(self.count(argument, frame, state.data_type.clone()));
        }
        let (argument, column) = argument.ok_or_else(|| Error::internal(format!("{state:?} of nothing")))?;
        let FrameFold { op, form, column: result } = state.fold_over(frame, column, rows_bits)?;
        Ok(self.add(Raw::Fold { argument, op, form, frame, has_nulls: column.has_nulls }, result))
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
}
