//! What the rows of a decoded column tell: whether they are sorted, or different, and some of them for estimates.

use warpjoin_device::{Buffer, Ptr, Stream};
use warpjoin_kernels::common::control;
use warpjoin_kernels::decode::{FACT_REPEATED, FACT_UNSORTED, OrderParams, RepeatsParams, TakeParams};

use super::column::DecodedColumn;
use super::error::DecodeError;
use super::kernels::{launch_over_rows, read_control};
use crate::column::{ColumnStatistics, DISTINCT_SPAN_MAX, Domain, Layout};

/// Statistics of a column, as the encoder finds them.
pub(super) fn statistics_of(
    stream: &Stream,
    column: &DecodedColumn,
    rows: u64,
    is_boolean: bool,
) -> Result<ColumnStatistics, DecodeError> {
    let (null_count, domain) = (column.nulls, column.domain);
    let unknown = ColumnStatistics { null_count, distinct: None, sorted: false, unique: None };
    let Domain::Int { min, max } = domain else { return Ok(unknown) };
    let distinct = match &column.dictionary {
        Some(dictionary) => Some(dictionary.len() as u64),
        // Of booleans all values are counted.
        None => is_boolean.then(|| if rows == null_count { 0 } else { (max - min) as u64 + 1 }),
    };
    if null_count > 0 {
        return Ok(ColumnStatistics { distinct, ..unknown });
    }
    let is_counted = distinct.is_some();
    let (Some(values), true) = (&column.values, rows > 0) else {
        // No row, or one value.
        let unique = (rows <= 1).then_some(true).or((!is_counted).then_some(false));
        return Ok(ColumnStatistics { null_count, distinct, sorted: true, unique });
    };
    if let Some(dictionary) = &column.dictionary
        && !dictionary.is_sorted()
    {
        let unique = (distinct == Some(rows)).then_some(true);
        return Ok(ColumnStatistics { null_count, distinct, sorted: false, unique });
    }
    let width = Layout::of(domain).width_bytes;
    let found = stream.alloc_filled(control::BYTES, 0)?;
    let params = OrderParams { rows, values: Ptr::of(values), control: Ptr::of(&found) };
    launch_over_rows(stream, &format!("column_order_{width}"), rows, &params)?;
    let status = read_control(stream, &found)?[control::STATUS];
    let (sorted, is_repeated) = (status & FACT_UNSORTED == 0, status & FACT_REPEATED != 0);
    let unique = match (sorted, is_repeated) {
        (true, false) => Some(true),
        _ if is_counted => (column.dictionary.is_some() && distinct == Some(rows)).then_some(true),
        (_, true) => Some(false),
        (false, false) => are_distinct(stream, values, rows, (min, max), width)?,
    };
    Ok(ColumnStatistics { null_count, distinct, sorted, unique })
}

/// Whether all values are different; `None` where their bounds are too far apart to find out.
fn are_distinct(
    stream: &Stream,
    values: &Buffer,
    rows: u64,
    (min, max): (i128, i128),
    width: u32,
) -> Result<Option<bool>, DecodeError> {
    let span = max.checked_sub(min).and_then(|span| span.checked_add(1));
    let Some(span) = span.filter(|&span| span <= DISTINCT_SPAN_MAX * i128::from(rows)) else { return Ok(None) };
    if span < i128::from(rows) {
        return Ok(Some(false));
    }
    let found = stream.alloc_filled(control::BYTES, 0)?;
    let seen = stream.alloc_filled((span as u64).div_ceil(32) * 4, 0)?;
    let params = RepeatsParams { rows, values: Ptr::of(values), seen: Ptr::of(&seen), control: Ptr::of(&found) };
    launch_over_rows(stream, &format!("column_repeats_{width}"), rows, &params)?;
    Ok(Some(read_control(stream, &found)?[control::STATUS] & FACT_REPEATED == 0))
}

/// Values and validity of some rows: rows x width, and a byte each.
pub(super) fn take(
    stream: &Stream,
    column: &DecodedColumn,
    width: u32,
    rows: &[u64],
) -> Result<(Vec<u8>, Option<Vec<u8>>), DecodeError> {
    let count = rows.len() as u64;
    let places = stream.upload(bytemuck::cast_slice(rows))?;
    let taken = |entry: &str, from: &Buffer, width: u64| {
        let target = stream.alloc(count * width)?;
        let params = TakeParams { count, rows: Ptr::of(&places), values: Ptr::of(from), target: Ptr::of(&target) };
        launch_over_rows(stream, entry, count, &params)?;
        let mut bytes = vec![0; (count * width) as usize];
        stream.read(&target, 0, &mut bytes)?;
        Ok::<_, DecodeError>(bytes)
    };
    let values = match &column.values {
        Some(values) => taken(&format!("take_rows_{width}"), values, width.into())?,
        None => vec![],
    };
    let validity = column.validity.as_ref().map(|validity| taken("take_valid", validity, 1)).transpose()?;
    Ok((values, validity))
}
