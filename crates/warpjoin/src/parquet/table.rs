//! Tables of decoded columns.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::devices::MemoryBudget;
use warpjoin_columns::table::{ShardColumn, Table, TableSample, cut, settle};
use warpjoin_device::{Buffer, Stream};

use super::column::{DecodedParts, decode_parts};
use super::error::{DecodeError, declined};
use super::facts;
use super::part::DecodedColumn;
use super::stored::StoredColumn;
use crate::runtime::device_strings::DeviceStrings;
use crate::runtime::session::Session;

/// Decodes the columns of `schema` to a table on the devices of a session.
///
/// The result equals the table that a [`TableBuilder`](warpjoin_columns::TableBuilder) makes from the same rows. Bounds of
/// `columns`, if given, must be their smallest and largest values. Memory in use stays within `budget`.
///
/// # Errors
/// [`DecodeError::Declined`] where a column can't be decoded; [`DecodeError::Device`] when a device fails or has too little
/// memory.
pub fn decode_table(
    session: &Session,
    schema: SchemaRef,
    columns: &[StoredColumn<'_>],
    budget: MemoryBudget,
) -> Result<Table, DecodeError> {
    let devices = session.device_set();
    let streams = devices.decode_streams()?.into_iter();
    let streams: Vec<Stream> = streams.map(|stream| budget.of_stream(stream)).collect();
    let rows = columns.first().map_or(0, StoredColumn::rows);
    if columns.len() != schema.fields().len() || columns.iter().any(|column| column.rows() != rows) {
        return declined("columns that do not match the schema or each other");
    }
    let mut shards = cut(rows, streams.len());
    let ranges: Vec<Range<u64>> = shards.iter().map(|shard| shard.first_row..shard.first_row + shard.rows).collect();
    let shard_rows: Vec<u64> = shards.iter().map(|shard| shard.rows).collect();
    let (mut types, mut statistics, mut sample) = (vec![], vec![], TableSample::default());
    for (column, field) in columns.iter().zip(schema.fields()) {
        let data_type = field.data_type().clone();
        let DecodedParts { mut parts, strings } = decode_parts(&streams, column, &ranges, &data_type)?;
        let has_nulls = parts.iter().any(|part| part.nulls > 0);
        if !has_nulls {
            // Columns without nulls have no validity.
            parts.iter_mut().for_each(|part| part.validity = None);
        }
        let Some(first) = parts.first() else { return declined("no device") };
        let facts = ColumnType {
            data_type: data_type.clone(),
            has_nulls,
            domain: first.domain,
            dictionary: first.dictionary.clone(),
        };
        if let (false, Some(dictionary)) = (strings.is_empty(), &facts.dictionary) {
            DeviceStrings { devices: Arc::downgrade(devices), shards: strings }.keep(dictionary, session);
        }
        statistics.push(facts::statistics_of(&streams, &parts, &shard_rows, data_type == DataType::Boolean)?);
        push_sample(&mut sample, &streams, &facts, &parts, &ranges)?;
        types.push(facts);
        for ((shard, part), stream) in shards.iter_mut().zip(parts).zip(&streams) {
            let settled =
                |buffer: Option<Buffer>| buffer.map(|buffer| settle(stream, buffer).map(Arc::new)).transpose();
            let (values, validity) = (settled(part.values)?, settled(part.validity)?);
            shard.columns.push(ShardColumn { values, offsets: None, validity });
        }
    }
    streams.iter().try_for_each(Stream::synchronize)?;
    let table = Table::from_result(Arc::clone(devices), schema, types, statistics, shards);
    Ok(table.with_sample(sample))
}

fn push_sample(
    sample: &mut TableSample,
    streams: &[Stream],
    facts: &ColumnType,
    parts: &[DecodedColumn],
    ranges: &[Range<u64>],
) -> Result<(), DecodeError> {
    let sampled = TableSample::rows_of(ranges.last().map_or(0, |range| range.end));
    let (mut values, mut valid) = (vec![], facts.has_nulls.then(Vec::new));
    for ((stream, part), range) in streams.iter().zip(parts).zip(ranges) {
        let rows: Vec<u64> = sampled.iter().filter(|row| range.contains(row)).map(|row| row - range.start).collect();
        if rows.is_empty() {
            continue;
        }
        let (of_part, validity) = facts::take(stream, part, facts.layout().width_bytes, &rows)?;
        values.extend(of_part);
        if let (Some(valid), Some(bytes)) = (&mut valid, validity) {
            valid.extend(bytes.into_iter().map(|byte| byte != 0));
        }
    }
    sample.push_taken(facts, sampled.len(), &values, valid);
    Ok(())
}
