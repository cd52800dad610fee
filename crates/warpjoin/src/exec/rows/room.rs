//! Allocation of rows of columns, and copies between them.

use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::devices::place_of;
use warpjoin_device::{MemoryPlace, Stream};

use crate::exec::relation::{IntermediateColumn, IntermediateShard};

/// Bytes of a row of columns.
pub(crate) fn row_bytes(columns: &[ColumnType]) -> u64 {
    columns.iter().map(|column| u64::from(column.layout().width_bytes) + u64::from(column.has_nulls)).sum()
}

/// Buffers for `rows` rows of columns.
pub(crate) fn allocate(stream: &Stream, columns: &[ColumnType], rows: u64) -> Result<IntermediateShard> {
    allocate_in(stream, columns, rows, MemoryPlace::Device)
}

/// As [`allocate`], or in host memory if the device has no room.
pub(crate) fn allocate_in_order(stream: &Stream, columns: &[ColumnType], rows: u64) -> Result<IntermediateShard> {
    allocate_in(stream, columns, rows, place_of(stream, rows.saturating_mul(row_bytes(columns))))
}

/// As [`allocate`], in the memory of the device or of the host.
pub(super) fn allocate_in(
    stream: &Stream,
    columns: &[ColumnType],
    rows: u64,
    place: MemoryPlace,
) -> Result<IntermediateShard> {
    let columns = columns
        .iter()
        .map(|column| {
            let width = u64::from(column.layout().width_bytes);
            let alloc = |bytes: u64| if bytes == 0 { Ok(None) } else { stream.alloc_at(place, bytes).map(Some) };
            Ok(IntermediateColumn {
                values: alloc(width * rows)?,
                validity: alloc(if column.has_nulls { rows } else { 0 })?,
            })
        })
        .collect::<Result<_>>()?;
    Ok(IntermediateShard { rows: 0, columns })
}

/// Copies rows of a shard, from a first row, to another shard, at a first row.
pub(crate) fn copy_rows(
    stream: &Stream,
    columns: &[ColumnType],
    (from, first): (&IntermediateShard, u64),
    (to, behind): (&IntermediateShard, u64),
    rows: u64,
) -> Result<()> {
    for ((column, from), to) in columns.iter().zip(&from.columns).zip(&to.columns) {
        let width = u64::from(column.layout().width_bytes);
        for (from, to, width) in [(&from.values, &to.values, width), (&from.validity, &to.validity, 1)] {
            if let (Some(from), Some(to), 1..) = (from, to, rows) {
                stream.copy((from, first * width), (to, behind * width), rows * width)?;
            }
        }
    }
    Ok(())
}
