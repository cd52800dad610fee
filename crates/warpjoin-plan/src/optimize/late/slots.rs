//! Columns on their way through a plan: where they are, what they came from, what reading them costs.

use arrow::datatypes::{DataType, FieldRef};
use warpjoin_columns::Table;
use warpjoin_columns::column::{Domain, holds_strings, span_bits};

use crate::optimize::estimate::stored_bytes;
use crate::plan::Plan;

/// A column of the node that was given.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// Where the rewritten node has it; `None`: it is late.
    pub at: Option<usize>,
    /// The scan and the column of its table that it is.
    pub origin: Option<(usize, usize)>,
    pub width: Width,
    pub read: Read,
}

/// What a value takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Width {
    /// Where it is packed.
    pub bits: f64,
    /// Where it has a column of its own.
    pub bytes: f64,
    pub is_float: bool,
}

/// What it costs to read a column when it is used next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub ps_per_row: f64,
    /// Reading all there is, one value after the other.
    pub all_ps: f64,
    /// By row numbers, of this scan.
    pub fetched: Option<usize>,
}

impl Read {
    /// It is there, or comes with another one.
    pub(super) const DONE: Self = Self { ps_per_row: 0.0, all_ps: 0.0, fetched: None };

    pub(super) fn by_row(ps_per_row: f64) -> Self {
        Self { ps_per_row, all_ps: f64::INFINITY, fetched: None }
    }

    pub(super) fn ps(&self, rows: f64) -> f64 {
        (rows * self.ps_per_row).min(self.all_ps)
    }
}

impl Width {
    /// Of a column of a table, whose bounds are known.
    pub(super) fn of_column(table: &Table, column: usize) -> Self {
        let column_type = &table.column_types()[column];
        let bytes = f64::from(column_type.layout().width_bytes);
        let (bits, is_float) = match column_type.domain {
            Domain::Int { .. } if column_type.data_type == DataType::Boolean => (1.0, false),
            Domain::Int { min, max } => (f64::from(span_bits(min, max)), false),
            Domain::Float32 | Domain::Float64 => (64.0, true),
            Domain::Bytes => (bytes * 8.0, false),
        };
        let null = f64::from(u8::from(column_type.has_nulls));
        Self { bits: bits + null, bytes: bytes + null, is_float }
    }

    /// Of something of which only the type is known.
    pub(super) fn of_type(data_type: &DataType) -> Self {
        let bytes = if holds_strings(data_type) { 4.0 } else { stored_bytes(data_type) };
        Self { bits: bytes * 8.0, bytes, is_float: data_type.is_floating() }
    }

    /// Of the number of one of so many rows.
    pub(super) fn of_row_number(rows: u64) -> Self {
        let bits = 64 - rows.saturating_sub(1).leading_zeros();
        Self { bits: bits.into(), bytes: f64::from(bits.div_ceil(8).next_power_of_two()), is_float: false }
    }
}

/// The number of a scan's row, as long as a column of it is late.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowNumber {
    pub scan: usize,
    /// Where the rewritten node has it.
    pub at: usize,
    /// Times it was written down since the scan.
    pub written: u32,
    pub width: Width,
    pub read: Read,
}

/// A rewritten node.
#[derive(Debug, Clone)]
pub(super) struct Lifted {
    /// `None` where only costs are asked for.
    pub plan: Option<Plan>,
    /// Columns of the rewritten node.
    pub fields: Vec<FieldRef>,
    /// Those of the one that was given.
    pub slots: Vec<Slot>,
    pub rows: Vec<RowNumber>,
}

impl Lifted {
    /// Where the rewritten node has a column that was asked for.
    pub(super) fn at(&self, column: usize) -> usize {
        self.slots.get(column).and_then(|slot| slot.at).unwrap_or(usize::MAX)
    }
}
