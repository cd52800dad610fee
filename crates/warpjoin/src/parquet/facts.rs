//! Statistics of a decoded column: whether its rows are sorted or distinct, and a sample for estimates.

use warpjoin_columns::column::{ColumnStatistics, DISTINCT_SPAN_MAX, Domain, Layout};
use warpjoin_device::{Buffer, Ptr, Stream};
use warpjoin_kernels::common::control;
use warpjoin_kernels::decode::{FACT_REPEATED, FACT_UNSORTED, OrderParams, RepeatsParams, TakeParams};

use super::error::DecodeError;
use super::kernels::{launch_over_rows, read_control};
use super::part::DecodedColumn;

/// Statistics of a column with a part on each device, as the encoder would find them. `rows`: the rows of each part.
pub(super) fn statistics_of(
    streams: &[Stream],
    parts: &[DecodedColumn],
    rows: &[u64],
    is_boolean: bool,
) -> Result<ColumnStatistics, DecodeError> {
    let null_count = parts.iter().map(|part| part.nulls).sum();
    let unknown = ColumnStatistics { null_count, distinct: None, sorted: false, unique: None };
    let Some(DecodedColumn { domain: Domain::Int { min, max }, dictionary, .. }) = parts.first() else {
        return Ok(unknown);
    };
    let (all_rows, width) = (rows.iter().sum::<u64>(), Layout::of(parts[0].domain).width_bytes);
    let distinct = match dictionary {
        Some(dictionary) => Some(dictionary.len() as u64),
        // Of booleans all values are counted.
        None => is_boolean.then(|| if all_rows == null_count { 0 } else { (max - min) as u64 + 1 }),
    };
    if null_count > 0 {
        return Ok(ColumnStatistics { distinct, ..unknown });
    }
    let is_counted = distinct.is_some();
    if width == 0 || all_rows == 0 {
        // One value, or no row.
        let unique = (all_rows <= 1).then_some(true).or((!is_counted).then_some(false));
        return Ok(ColumnStatistics { null_count, distinct, sorted: true, unique });
    }
    let all_differ = dictionary.is_some() && distinct == Some(all_rows);
    if dictionary.as_ref().is_some_and(|dictionary| !dictionary.is_sorted()) {
        return Ok(ColumnStatistics { null_count, distinct, sorted: false, unique: all_differ.then_some(true) });
    }
    let (sorted, is_repeated) = order_of(streams, parts, rows, width)?;
    let unique = match (sorted, is_repeated) {
        (true, false) => Some(true),
        _ if is_counted => all_differ.then_some(true),
        (_, true) => Some(false),
        (false, false) => are_distinct(streams, parts, rows, (*min, *max), width)?,
    };
    Ok(ColumnStatistics { null_count, distinct, sorted, unique })
}

/// Whether no value is less than the one before it, and whether any value equals the one before it.
fn order_of(
    streams: &[Stream],
    parts: &[DecodedColumn],
    rows: &[u64],
    width: u32,
) -> Result<(bool, bool), DecodeError> {
    let (mut status, mut before) = (0, None::<i128>);
    for ((stream, part), &rows) in streams.iter().zip(parts).zip(rows) {
        let Some(values) = &part.values else { continue };
        let found = stream.alloc_filled(control::BYTES, 0)?;
        let params = OrderParams { rows, values: Ptr::of(values), control: Ptr::of(&found) };
        launch_over_rows(stream, &format!("column_order_{width}"), rows, &params)?;
        status |= read_control(stream, &found)?[control::STATUS];
        let value_at = |row: u64| {
            let mut value = [0; 16];
            stream.read(values, row * u64::from(width), &mut value[..width as usize])?;
            Ok::<_, DecodeError>(i128::from_le_bytes(value))
        };
        if streams.len() > 1 {
            let first = value_at(0)?;
            status |= before.filter(|before| first < *before).map_or(0, |_| FACT_UNSORTED);
            status |= before.filter(|before| first == *before).map_or(0, |_| FACT_REPEATED);
            before = Some(value_at(rows - 1)?);
        }
    }
    Ok((status & FACT_UNSORTED == 0, status & FACT_REPEATED != 0))
}

/// Whether all values are distinct; `None` if their range is too large to find out.
fn are_distinct(
    streams: &[Stream],
    parts: &[DecodedColumn],
    rows: &[u64],
    (min, max): (i128, i128),
    width: u32,
) -> Result<Option<bool>, DecodeError> {
    let all_rows = i128::from(rows.iter().sum::<u64>());
    let span = max.checked_sub(min).and_then(|span| span.checked_add(1));
    // Values of 16 bytes have no base, by which they could be counted.
    let is_near = |&span: &i128| span <= DISTINCT_SPAN_MAX * all_rows && width < 16;
    let Some(span) = span.filter(is_near) else { return Ok(None) };
    if span < all_rows {
        return Ok(Some(false));
    }
    let words = (span as u64).div_ceil(32);
    let mut seen_before: Option<Vec<u32>> = None;
    for ((stream, part), &rows) in streams.iter().zip(parts).zip(rows) {
        let Some(values) = &part.values else { continue };
        let found = stream.alloc_filled(control::BYTES, 0)?;
        let seen = stream.alloc_filled(words * 4, 0)?;
        let params = RepeatsParams { rows, values: Ptr::of(values), seen: Ptr::of(&seen), control: Ptr::of(&found) };
        launch_over_rows(stream, &format!("column_repeats_{width}"), rows, &params)?;
        if read_control(stream, &found)?[control::STATUS] & FACT_REPEATED != 0 {
            return Ok(Some(false));
        }
        if streams.len() == 1 {
            break;
        }
        let mut bits = vec![0u32; words as usize];
        stream.read(&seen, 0, bytemuck::cast_slice_mut(&mut bits))?;
        if let Some(before) = &mut seen_before {
            if before.iter().zip(&bits).any(|(before, bits)| before & bits != 0) {
                return Ok(Some(false));
            }
            before.iter_mut().zip(&bits).for_each(|(before, bits)| *before |= bits);
        } else {
            seen_before = Some(bits);
        }
    }
    Ok(Some(true))
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
