//! Brings record batches to devices.
//!
//! Owns how rows are cut into shards.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use warpjoin_device::{Buffer, Cancellation, MemoryPlace, Stream};

use super::download::rebase_offsets;
use super::place::alloc_column;
use super::resident::{BUFFER_ALIGNMENT_BYTES, OFFSET_BYTES, Shard, ShardColumn, Table};
use super::sample::TableSample;
use crate::column::{EncodedColumn, StringEncoding, TableEncoder};
use crate::devices::{DeviceSet, MemoryBudget};
use crate::{Error, Result};

/// Shards begin at multiples of this, so that validity bitmaps are cut between bytes.
const SHARD_ALIGNMENT_ROWS: u64 = 64;
/// Bytes uploaded between checks for cancellation.
const UPLOAD_BYTES: usize = 256 << 20;

/// Collects batches into a [`Table`]. Host memory holds the encoded columns until `finish`.
pub struct TableBuilder {
    devices: Arc<DeviceSet>,
    schema: SchemaRef,
    encoder: TableEncoder,
    cancel: Option<Arc<Cancellation>>,
    budget: MemoryBudget,
    place: Option<MemoryPlace>,
    /// Bytes up to which all rows go to the first device alone.
    on_first_bytes_max: u64,
}

impl TableBuilder {
    /// A builder of a table of this schema, on `devices`.
    pub fn new(devices: &Arc<DeviceSet>, schema: SchemaRef) -> Self {
        let encoder = TableEncoder::new(schema.clone(), StringEncoding::default());
        let budget = MemoryBudget::OF_DEVICES;
        let devices = Arc::clone(devices);
        Self { devices, schema, encoder, cancel: None, budget, place: None, on_first_bytes_max: 0 }
    }

    /// Chooses how string columns are stored. Call it before the first [`Self::push`]: it drops rows pushed before.
    #[must_use]
    pub fn with_strings(mut self, strings: StringEncoding) -> Self {
        self.encoder = TableEncoder::new(self.schema.clone(), strings);
        self
    }

    /// Once it is cancelled, [`Self::push`] and [`Self::finish`] end with [`Error::Cancelled`].
    #[must_use]
    pub fn with_cancel(mut self, cancel: Arc<Cancellation>) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Limits the memory in use: [`Self::finish`] fails rather than exceed it.
    #[must_use]
    pub fn with_memory_budget(mut self, budget: MemoryBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Places all columns in host memory, where kernels read them over the bus. By default only columns that would
    /// leave too little device memory for queries lie there.
    #[must_use]
    pub fn in_host_memory(mut self) -> Self {
        self.place = Some(MemoryPlace::Host);
        self
    }

    /// Places all rows on the first device if they take at most `bytes` there. The table then belongs to the
    /// `Session::member` of that device.
    #[must_use]
    pub fn on_first_up_to(mut self, bytes: u64) -> Self {
        self.on_first_bytes_max = bytes;
        self
    }

    /// Takes the rows of a batch (rows x columns of the schema), after those taken before.
    ///
    /// # Errors
    /// As [`TableEncoder::push`].
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.push_to(0, batch)
    }

    /// As [`Self::push`], into a part: the table has all rows of part 0 first, then those of part 1, and so on.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_to(&mut self, part: usize, batch: &RecordBatch) -> Result<()> {
        check_cancelled(self.cancel.as_deref())?;
        self.encoder.push_to(part, batch)
    }

    /// Brings all rows to the devices, column by column, and waits until they are there.
    ///
    /// # Errors
    /// As [`Self::push`], and when a device has too little memory.
    pub fn finish(self) -> Result<Table> {
        let cancel = self.cancel.as_deref();
        check_cancelled(cancel)?;
        let rows = self.encoder.rows();
        let started = Instant::now();
        let (row_bytes, columns) = self.encoder.finish_columns()?;
        let is_on_first = self.on_first_bytes_max > 0 && rows.saturating_mul(row_bytes) <= self.on_first_bytes_max;
        let devices = if is_on_first { self.devices.member(0)? } else { self.devices };
        let streams = devices.load_streams().iter().cloned();
        let streams: Vec<Stream> = streams.map(|stream| self.budget.of_stream(stream)).collect();
        let mut shards = cut(rows, streams.len());
        let (mut column_types, mut statistics, mut sample) = (vec![], vec![], TableSample::default());
        let encoded = started.elapsed();
        for column in columns {
            let column = column?;
            sample.push(&column);
            // From one thread, so that a simulation with a seed does the same each time.
            for (shard, stream) in shards.iter_mut().zip(&streams) {
                check_cancelled(cancel)?;
                let uploaded = upload_column(stream, &column, shard, self.place, cancel)?;
                shard.columns.push(uploaded);
            }
            column_types.push(column.column_type);
            statistics.push(column.statistics);
        }
        streams.iter().try_for_each(Stream::synchronize)?;
        log::debug!(
            "{rows} rows x {} columns: last rows encoded in {encoded:.1?}, joined and copied in {:.1?}",
            statistics.len(),
            started.elapsed() - encoded
        );
        let table = Table::from_result(devices, self.schema, column_types, statistics, shards);
        Ok(table.with_sample(sample))
    }
}

/// Contiguous runs of rows, as equal as their alignment allows.
pub fn cut(rows: u64, devices: usize) -> Vec<Shard> {
    let shard_rows = rows.div_ceil(devices as u64).next_multiple_of(SHARD_ALIGNMENT_ROWS);
    (0..devices as u64)
        .map(|index| {
            let first_row = (index * shard_rows).min(rows);
            Shard { rows: shard_rows.min(rows - first_row), first_row, columns: vec![] }
        })
        .collect()
}

fn check_cancelled(cancel: Option<&Cancellation>) -> Result<()> {
    if cancel.is_some_and(Cancellation::is_cancelled) { Err(Error::Cancelled) } else { Ok(()) }
}

fn upload_column(
    stream: &Stream,
    column: &EncodedColumn,
    shard: &Shard,
    place: Option<MemoryPlace>,
    cancel: Option<&Cancellation>,
) -> Result<ShardColumn> {
    let upload = |bytes: &[u8]| upload(stream, bytes, place, cancel).map(Arc::new);
    let (first, rows) = (shard.first_row as usize, shard.rows as usize);
    if rows == 0 {
        return Ok(ShardColumn { values: None, offsets: None, validity: None });
    }
    let validity = column.validity.as_ref().map(|bits| upload(&bits[first / 8..(first + rows).div_ceil(8)]));
    let (values, offsets) = match &column.offsets {
        Some(offsets) => {
            let mut offsets = offsets[first * OFFSET_BYTES..(first + rows + 1) * OFFSET_BYTES].to_vec();
            let (start, end) = rebase_offsets(&mut offsets);
            (Some(upload(&column.values[start..end])?), Some(upload(&offsets)?))
        }
        None => {
            let width = column.column_type.layout().width_bytes as usize;
            let bytes = &column.values[first * width..(first + rows) * width];
            ((width > 0).then(|| upload(bytes)).transpose()?, None)
        }
    };
    Ok(ShardColumn { values, offsets, validity: validity.transpose()? })
}

/// Uploads bytes, filled up with 0.
fn upload(stream: &Stream, bytes: &[u8], place: Option<MemoryPlace>, cancel: Option<&Cancellation>) -> Result<Buffer> {
    let filled = bytes.len() as u64;
    let padded = filled.next_multiple_of(BUFFER_ALIGNMENT_BYTES).max(BUFFER_ALIGNMENT_BYTES);
    let buffer = alloc_column(stream, padded, place)?;
    for (number, piece) in bytes.chunks(UPLOAD_BYTES).enumerate() {
        check_cancelled(cancel)?;
        stream.write(&buffer, (number * UPLOAD_BYTES) as u64, piece)?;
    }
    stream.fill(&buffer, filled, padded - filled, 0)?;
    Ok(buffer)
}
