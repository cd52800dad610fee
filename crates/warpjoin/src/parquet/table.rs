//! Tables of decoded columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use warpjoin_device::Stream;

use super::column::decode_column;
use super::error::{DecodeError, declined};
use super::facts;
use super::stored::StoredColumn;
use crate::column::ColumnType;
use crate::devices::DeviceSet;
use crate::table::{Shard, ShardColumn, Table, TableSample};

/// Decodes columns, which are those of `schema`, to a table on the device of a session with one.
///
/// It is the table that a [`TableBuilder`](crate::TableBuilder) makes of the same rows. The bounds of `columns` must be
/// their smallest and largest values. No more than `memory_budget_bytes` are used on the device.
///
/// # Errors
/// [`DecodeError::Declined`] where a column can't be decoded, or the session has several devices;
/// [`DecodeError::Device`] when the device fails or has too little memory.
pub fn decode_table(
    devices: &Arc<DeviceSet>,
    schema: SchemaRef,
    columns: &[StoredColumn<'_>],
    memory_budget_bytes: u64,
) -> Result<Table, DecodeError> {
    if devices.devices().len() != 1 {
        return declined("several devices");
    }
    let stream = devices.decode_stream()?.within(memory_budget_bytes);
    let rows_of = |column: &StoredColumn<'_>| column.chunks.iter().map(|chunk| chunk.rows).sum::<u64>();
    let rows = columns.first().map_or(0, rows_of);
    if columns.len() != schema.fields().len() || columns.iter().any(|column| rows_of(column) != rows) {
        return declined("columns that do not fit together");
    }
    let mut shard = Shard { rows, first_row: 0, columns: vec![] };
    let (mut types, mut statistics, mut sample) = (vec![], vec![], TableSample::default());
    for (column, field) in columns.iter().zip(schema.fields()) {
        let data_type = field.data_type().clone();
        let mut decoded = decode_column(&stream, column, &data_type)?;
        // Columns without nulls have no validity.
        if decoded.nulls == 0 {
            decoded.validity = None;
        }
        let facts = ColumnType {
            data_type: data_type.clone(),
            has_nulls: decoded.nulls > 0,
            domain: decoded.domain,
            dictionary: decoded.dictionary.clone(),
        };
        statistics.push(facts::statistics_of(&stream, &decoded, rows, data_type == DataType::Boolean)?);
        push_sample(&mut sample, &stream, &facts, &decoded, rows)?;
        types.push(facts);
        shard.columns.push(ShardColumn {
            values: decoded.values.map(Arc::new),
            offsets: None,
            validity: decoded.validity.map(Arc::new),
        });
    }
    stream.synchronize()?;
    let table = Table::from_result(Arc::clone(devices), schema, types, statistics, vec![shard]);
    Ok(table.with_sample(sample))
}

fn push_sample(
    sample: &mut TableSample,
    stream: &Stream,
    facts: &ColumnType,
    decoded: &super::column::DecodedColumn,
    rows: u64,
) -> Result<(), DecodeError> {
    let sampled = TableSample::rows_of(rows);
    let (values, validity) = facts::take(stream, decoded, facts.layout().width_bytes, &sampled)?;
    let valid = validity.map(|bytes| bytes.into_iter().map(|byte| byte != 0).collect());
    sample.push_taken(facts, sampled.len(), &values, valid);
    Ok(())
}
