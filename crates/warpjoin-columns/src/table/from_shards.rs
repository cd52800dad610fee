//! Tables of columns that are on the devices already.
//!
//! Owns the check that buffers match their description. Must not read their contents.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use warpjoin_device::{Buffer, Device};

use super::resident::{BUFFER_ALIGNMENT_BYTES, OFFSET_BYTES, Shard, ShardColumn, Table};
use crate::column::{ColumnStatistics, ColumnType, Domain, Physical, check_type, is_string, is_text};
use crate::devices::DeviceSet;
use crate::{Error, Result};

/// Rows whose validity is on the host at once: a multiple of 8.
const COUNTED_ROWS: usize = 64 << 20;

/// A caller's description of a column that is on the devices already.
#[derive(Debug, Clone)]
pub struct ResidentColumn {
    /// Type, domain and, for codes, the dictionary; the layout of the buffers follows from the domain.
    pub column_type: ColumnType,
    /// Statistics of the values. They must be true: joins and group-bys rely on `unique` keys.
    pub statistics: ColumnStatistics,
}

impl ResidentColumn {
    /// A column without nulls and without further statistics.
    pub fn new(data_type: DataType, domain: Domain) -> Self {
        let column_type = ColumnType { data_type, has_nulls: false, domain, dictionary: None };
        let statistics = ColumnStatistics { null_count: 0, distinct: None, sorted: false, unique: None };
        Self { column_type, statistics }
    }
}

impl Table {
    /// A table of rows that are on `devices` already: one shard a device, in row order,
    /// and in each shard one column a field of `schema`.
    ///
    /// A column's values lie side by side in [`crate::column::Layout::width_bytes`] bytes each, as
    /// unsigned differences from [`crate::column::Layout::base`]; floats, and layouts of 16 bytes, as
    /// they are. Buffers are multiples of 16 bytes, and 0 past the rows. A column with `has_nulls`
    /// brings a validity bitmap (a bit a row, least significant first, set where valid; the values of
    /// null rows do not count); one without brings none. Strings are codes of their dictionary, or
    /// offsets (u64, rows + 1 of them) and bytes.
    ///
    /// The work that writes the buffers must have ended: synchronize its stream first. Nulls are counted here from the
    /// validity bitmaps (one bit a row), whatever `statistics` say. Every value must lie in its column's domain, every
    /// code in its dictionary, and columns declared unique must be unique: generated kernels rely on this, and it is
    /// not checked.
    ///
    /// # Errors
    /// When the schema, the columns and the shards contradict each other, a type can't live on a
    /// device, or a buffer is too short or on another device.
    pub fn from_shards(
        devices: &Arc<DeviceSet>,
        schema: SchemaRef,
        columns: Vec<ResidentColumn>,
        shards: Vec<Shard>,
    ) -> Result<Self> {
        let count = devices.devices().len();
        if columns.len() != schema.fields().len() || shards.len() != count {
            return Err(invalid(format!(
                "{} fields of {} columns, {} devices with {} shards",
                schema.fields().len(),
                columns.len(),
                count,
                shards.len()
            )));
        }
        for (field, column) in schema.fields().iter().zip(&columns) {
            let facts = &column.column_type;
            if *field.data_type() != facts.data_type || (facts.has_nulls && !field.is_nullable()) {
                return Err(invalid(format!("column {} is not as its field says", field.name())));
            }
            check_domain(facts).map_err(|error| named(field.name(), error))?;
        }
        let mut columns = columns;
        let mut first_row = 0;
        for (shard, device) in shards.iter().zip(devices.devices()) {
            if shard.first_row != first_row || shard.columns.len() != columns.len() {
                return Err(invalid(format!("a shard of {} columns at row {}", shard.columns.len(), shard.first_row)));
            }
            for ((field, column), stored) in schema.fields().iter().zip(&columns).zip(&shard.columns) {
                check_buffers(&column.column_type, stored, shard.rows, device)
                    .map_err(|error| named(field.name(), error))?;
            }
            first_row += shard.rows;
        }
        for (index, column) in columns.iter_mut().enumerate() {
            column.statistics.null_count = count_nulls(devices, &shards, index)?;
        }
        let (column_types, statistics) = columns.into_iter().map(|c| (c.column_type, c.statistics)).unzip();
        Ok(Self::from_result(Arc::clone(devices), schema, column_types, statistics, shards))
    }
}

/// Checks that the domain fits the type.
fn check_domain(facts: &ColumnType) -> Result<()> {
    check_type(&facts.data_type)?;
    let has_codes = is_string(&facts.data_type) || matches!(facts.data_type, DataType::Dictionary(..));
    let (least, most) = match facts.domain {
        Domain::Bytes if is_text(&facts.data_type) => return Ok(()),
        Domain::Float32 if Physical::of(&facts.data_type) == Some(Physical::F32) => return Ok(()),
        Domain::Float64 if Physical::of(&facts.data_type) == Some(Physical::F64) => return Ok(()),
        Domain::Int { min, max } if min <= max => (min, max),
        domain => return Err(invalid(format!("{domain:?} is no domain of {}", facts.data_type))),
    };
    let (type_min, type_max) = match Physical::of(&facts.data_type) {
        _ if has_codes => match &facts.dictionary {
            Some(dictionary) => (0, (dictionary.len() as i128 - 1).max(0)),
            None => return Err(invalid("codes without a dictionary".into())),
        },
        Some(Physical::F32 | Physical::F64) => {
            return Err(invalid(format!("{:?} is no domain of {}", facts.domain, facts.data_type)));
        }
        Some(Physical::I128) => (i128::MIN, i128::MAX),
        Some(Physical::U8 | Physical::U16 | Physical::U32 | Physical::U64) => {
            (0, (1i128 << bits_of(&facts.data_type)) - 1)
        }
        Some(_) => (-(1i128 << (bits_of(&facts.data_type) - 1)), (1i128 << (bits_of(&facts.data_type) - 1)) - 1),
        // Booleans, and columns of nulls alone.
        None => (0, 1),
    };
    if least < type_min || most > type_max {
        return Err(invalid(format!("bounds {least} to {most} leave {}", facts.data_type)));
    }
    Ok(())
}

fn bits_of(data_type: &DataType) -> u32 {
    Physical::of(data_type).map_or(0, Physical::width_bytes) * 8
}

/// Tells whether the buffers of a column hold `rows` rows on `device`.
fn check_buffers(facts: &ColumnType, column: &ShardColumn, rows: u64, device: &Device) -> Result<()> {
    let is_raw = facts.domain == Domain::Bytes;
    let width_bytes = u64::from(facts.layout().width_bytes);
    // How many bytes raw strings have, only their offsets know.
    let values_bytes = if is_raw { Some(0) } else { rows.checked_mul(width_bytes) };
    let offsets_bytes = rows.checked_add(1).and_then(|offsets| offsets.checked_mul(OFFSET_BYTES as u64));
    check_buffer("values", column.values.as_deref(), (rows > 0 && width_bytes > 0).then_some(values_bytes), device)?;
    check_buffer("offsets", column.offsets.as_deref(), (rows > 0 && is_raw).then_some(offsets_bytes), device)?;
    let validity_bytes = (rows > 0 && facts.has_nulls).then_some(Some(rows.div_ceil(8)));
    check_buffer("validity", column.validity.as_deref(), validity_bytes, device)
}

/// `needed` is `None` where there must be no buffer, `Some(None)` where no buffer can be so long.
fn check_buffer(what: &str, buffer: Option<&Buffer>, needed: Option<Option<u64>>, device: &Device) -> Result<()> {
    let (buffer, needed_bytes) = match (buffer, needed) {
        (None, None) => return Ok(()),
        (Some(_), None) => return Err(invalid(format!("{what} where there must be none"))),
        (None, Some(_)) => return Err(invalid(format!("no {what}"))),
        (Some(buffer), Some(needed)) => {
            (buffer, needed.and_then(|bytes| bytes.checked_next_multiple_of(BUFFER_ALIGNMENT_BYTES)))
        }
    };
    let needed_bytes = needed_bytes.map(|bytes| bytes.max(BUFFER_ALIGNMENT_BYTES));
    if needed_bytes.is_none_or(|bytes| buffer.bytes() < bytes) || !buffer.bytes().is_multiple_of(BUFFER_ALIGNMENT_BYTES)
    {
        return Err(invalid(format!("{what} in a buffer of {} bytes, {needed_bytes:?} needed", buffer.bytes())));
    }
    if !buffer.device().is_same(device) {
        return Err(invalid(format!("{what} on {}, not on {}", buffer.device().label(), device.label())));
    }
    Ok(())
}

/// Rows of a column that are null, by its validity bitmaps, whose buffers have been checked.
fn count_nulls(devices: &DeviceSet, shards: &[Shard], column: usize) -> Result<u64> {
    let mut nulls = 0;
    for (shard, stream) in shards.iter().zip(devices.load_streams()) {
        let Some(validity) = &shard.columns[column].validity else { continue };
        let mut bits = vec![];
        for first in (0..shard.rows).step_by(COUNTED_ROWS) {
            let rows = (shard.rows - first).min(COUNTED_ROWS as u64);
            bits.resize(rows.div_ceil(8) as usize, 0);
            stream.read(validity, first / 8, &mut bits)?;
            if let (Some(last), rest @ 1..) = (bits.last_mut(), rows % 8) {
                *last &= (1 << rest) - 1;
            }
            nulls += rows - bits.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        }
    }
    Ok(nulls)
}

fn invalid(message: String) -> Error {
    Error::InvalidArgument(message)
}

fn named(column: &str, error: Error) -> Error {
    match error {
        Error::InvalidArgument(message) => invalid(format!("column {column}: {message}")),
        other => other,
    }
}
