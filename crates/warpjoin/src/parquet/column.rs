//! Decodes a column, a part of it on each device.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::DataType;
use warpjoin_columns::column::{Domain, Layout};
use warpjoin_device::{Buffer, Stream};
use warpjoin_kernels::string::TILE;

use super::batch::candidates;
use super::error::DecodeError;
use super::part::{DecodedColumn, Part, Spans};
use super::stored::{Stored, StoredColumn};
use super::text::{Strings, dictionary_of};
use crate::runtime::device_strings::StringShard;

/// Maximum strings of several devices that the host merges; with more, each device finds all distinct strings by
/// itself.
const MERGED_STRINGS_MAX: u64 = 100_000;

/// Decodes a column of an Arrow type on the device of a stream, and waits for it.
///
/// # Errors
/// [`DecodeError::Declined`] if kernels can't decode it, its bytes are damaged, or a value leaves the domain.
pub fn decode_column(
    stream: &Stream,
    column: &StoredColumn<'_>,
    data_type: &DataType,
) -> Result<DecodedColumn, DecodeError> {
    let rows = 0..column.rows();
    let mut decoded = decode_parts(std::slice::from_ref(stream), column, std::slice::from_ref(&rows), data_type)?;
    decoded.parts.pop().ok_or_else(|| DecodeError::Declined("no part".into()))
}

/// A column with a part on each device; all parts have the same domain and dictionary.
pub(super) struct DecodedParts {
    pub(super) parts: Vec<DecodedColumn>,
    /// The strings of a large dictionary, a share on each device, if the devices have them.
    pub(super) strings: Vec<StringShard>,
}

/// Decodes a column, some rows on each device.
pub(super) fn decode_parts(
    streams: &[Stream],
    column: &StoredColumn<'_>,
    rows: &[Range<u64>],
    data_type: &DataType,
) -> Result<DecodedParts, DecodeError> {
    let part = |(stream, rows): (_, &Range<u64>)| Part::new(stream, column, rows.clone());
    if column.stored != Stored::Strings {
        let parts: Vec<Part<'_>> = streams.iter().zip(rows).map(part).collect::<Result<_, _>>()?;
        return Ok(DecodedParts { parts: numbers(&parts, column)?, strings: vec![] });
    }
    if streams.len() > 1 && candidates(column)? > MERGED_STRINGS_MAX {
        let part = |(stream, rows): (_, &Range<u64>)| Part::of_all(stream, column, rows.clone());
        let parts: Vec<Part<'_>> = streams.iter().zip(rows).map(part).collect::<Result<_, _>>()?;
        return strings(&parts, data_type, true);
    }
    let parts: Vec<Part<'_>> = streams.iter().zip(rows).map(part).collect::<Result<_, _>>()?;
    strings(&parts, data_type, parts.len() == 1)
}

fn numbers(parts: &[Part<'_>], column: &StoredColumn<'_>) -> Result<Vec<DecodedColumn>, DecodeError> {
    let domain = column.domain.unwrap_or_else(|| column.stored.domain());
    let layout = Layout::of(domain);
    // Values of constants are decoded, too, to see that they are.
    let width_bytes = u64::from(layout.width_bytes.max(1));
    let values = parts.iter().map(|part| part.numbers(domain, width_bytes)).collect::<Result<Vec<_>, _>>()?;
    let (Domain::Int { min, .. }, None) = (domain, column.domain) else {
        let finish = |(part, (values, spans)): (&Part<'_>, (Buffer, Spans))| {
            let values = if layout.width_bytes == 0 { None } else { part.cut(values, width_bytes)? };
            part.finish(domain, None, values, &spans)
        };
        return parts.iter().zip(values).map(finish).collect();
    };
    // Damaged pages have no bounds.
    parts.iter().try_for_each(Part::check)?;
    let mut bounds: Option<(i128, i128)> = None;
    for (part, (values, _)) in parts.iter().zip(&values) {
        let of_part = part.bounds(values, layout, min)?;
        bounds = match (bounds, of_part) {
            (Some((min, max)), Some((low, high))) => Some((min.min(low), max.max(high))),
            (known, None) | (None, known) => known,
        };
    }
    let (min, max) = bounds.unwrap_or((0, 0));
    let narrow = Domain::Int { min, max };
    let finish = |(part, (values, spans)): (&Part<'_>, (Buffer, Spans))| {
        let values = part.narrowed(values, layout, Layout::of(narrow))?;
        part.finish(narrow, None, values, &spans)
    };
    parts.iter().zip(values).map(finish).collect()
}

/// `are_all`: each part has all strings of the column, so that all parts find the same strings and assign the same
/// codes.
fn strings(parts: &[Part<'_>], value_type: &DataType, are_all: bool) -> Result<DecodedParts, DecodeError> {
    let batches = parts.iter().map(Part::load_all).collect::<Result<Vec<_>, _>>()?;
    let strings = parts
        .iter()
        .zip(&batches)
        .enumerate()
        .map(|(device, (part, batch))| Strings::find(part.stream, &part.control, batch, device == 0 || !are_all));
    let mut strings: Vec<Strings<'_>> = strings.collect::<Result<_, _>>()?;
    // Damaged strings make no dictionary.
    parts.iter().try_for_each(Part::check)?;
    let started = Instant::now();
    let dictionary = Arc::new(dictionary_of(&mut strings, value_type)?);
    log::debug!("a dictionary of {} strings made in {:.1?}", dictionary.len(), started.elapsed());
    let domain = Domain::Int { min: 0, max: (dictionary.len() as i128 - 1).max(0) };
    let width_bytes = u64::from(Layout::of(domain).width_bytes);
    let mut tested = vec![];
    if are_all && !dictionary.is_sorted() {
        let (tiles, devices) = (dictionary.len().div_ceil(TILE), strings.len());
        for (device, strings) in strings.iter_mut().enumerate() {
            let share = tiles * device / devices..tiles * (device + 1) / devices;
            tested.extend(strings.for_tests(&dictionary, share)?);
        }
        if tested.len() < devices {
            tested.clear();
        }
    }
    let mut decoded = vec![];
    for ((part, batch), strings) in parts.iter().zip(&batches).zip(&strings) {
        let values = match width_bytes {
            0 => None,
            _ => {
                let values = part.room(width_bytes)?;
                part.spread(batch, &values, width_bytes, 0, |target| strings.decode(width_bytes, target))?;
                part.cut(values, width_bytes)?
            }
        };
        let spans = [(batch.begin.clone(), part.stream.record()?)];
        decoded.push(part.finish(domain, Some(Arc::clone(&dictionary)), values, &spans)?);
    }
    Ok(DecodedParts { parts: decoded, strings: tested })
}
