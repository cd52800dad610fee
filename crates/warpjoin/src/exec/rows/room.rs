//! Memory for rows of columns, and copies between.

use warpjoin_device::{MemoryPlace, Stream};

use crate::Result;
use crate::column::ColumnType;
use crate::devices::place_of;
use crate::exec::relation::{IntermediateColumn, IntermediateShard};

/// Bytes of a row of columns.
pub(crate) fn row_bytes(columns: &[ColumnType]) -> u64 {
    columns.iter().map(|column| u64::from(column.layout().width_bytes) + u64::from(column.has_nulls)).sum()
}

/// Buffers for `rows` rows of columns.
pub(crate) fn allocate(stream: &Stream, columns: &[ColumnType], rows: u64) -> Result<IntermediateShard> {
    allocate_in(stream, columns, rows, MemoryPlace::Device)
}

/// The same where the device has room, else in the host's memory.
pub(crate) fn allocate_in_order(stream: &Stream, columns: &[ColumnType], rows: u64) -> Result<IntermediateShard> {
    allocate_in(stream, columns, rows, place_of(stream, rows.saturating_mul(row_bytes(columns))))
}

/// The same in the memory of the device or of the host.
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

/// Copies rows of a shard, from one of them on, to another, from one of its rows on.
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
