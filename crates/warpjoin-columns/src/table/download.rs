//! Downloads a table's columns to the host, some rows at a time.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use rayon::prelude::*;
use warpjoin_device::{Buffer, Stream};

use super::resident::{OFFSET_BYTES, ShardColumn};
use super::stored::StoredColumn;
use crate::Result;
use crate::column::{ColumnType, Domain, EncodedRows, Validity, decode_rows};
use crate::devices::DeviceSet;

/// Rows of a piece: enough to saturate the bus, and to give all cores work.
const PIECE_ROWS: usize = 1 << 20;
/// Maximum batches of the first piece, which is small for readers that stop early; later pieces grow.
const FIRST_BATCHES: usize = 8;
const GROWTH: usize = 4;

/// Iterates over the rows of some columns of a table, in row order, some batches at a time.
pub struct Pieces {
    devices: Arc<DeviceSet>,
    schema: SchemaRef,
    types: Vec<ColumnType>,
    /// Rows and columns on each device.
    shards: Vec<(u64, Vec<Arc<StoredColumn>>)>,
    batch_rows: usize,
    /// Device and first row of the next piece.
    next: (usize, usize),
    /// Maximum batches of the next piece: a multiple of 8, so that bitmaps are cut between bytes.
    batches: usize,
}

impl Pieces {
    pub(super) fn of(
        devices: Arc<DeviceSet>,
        schema: SchemaRef,
        types: Vec<ColumnType>,
        shards: Vec<(u64, Vec<Arc<StoredColumn>>)>,
        batch_rows: usize,
    ) -> Self {
        Self { devices, schema, types, shards, batch_rows, next: (0, 0), batches: FIRST_BATCHES }
    }

    /// Reads `rows` rows of a device, from row `first`.
    fn read(&self, device: usize, first: usize, rows: usize) -> Result<Vec<RecordBatch>> {
        let stream = &self.devices.load_streams()[device];
        let columns = self.types.iter().zip(&self.shards[device].1);
        let read = |(column_type, column): (&ColumnType, &Arc<StoredColumn>)| {
            ColumnPiece::read(stream, column_type, &column.buffers(), first, rows)
        };
        let pieces: Vec<ColumnPiece> = columns.map(read).collect::<Result<_>>()?;
        // Not by each of the threads below.
        self.types.iter().filter_map(|column_type| column_type.dictionary.as_ref()).for_each(|dictionary| {
            dictionary.prepare(rows);
        });
        let starts: Vec<usize> = (0..rows).step_by(self.batch_rows).collect();
        let batch = |start: usize| {
            let batch_rows = self.batch_rows.min(rows - start);
            let columns = self.types.iter().zip(&pieces);
            let arrays = columns.map(|(column_type, piece)| piece.decode(column_type, start, batch_rows));
            let options = RecordBatchOptions::new().with_row_count(Some(batch_rows));
            let arrays = arrays.collect::<Result<_>>()?;
            Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
        };
        starts.into_par_iter().map(batch).collect()
    }
}

impl Iterator for Pieces {
    type Item = Result<Vec<RecordBatch>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut device, mut first) = self.next;
        let rows_of = |device: usize| self.shards.get(device).map(|(rows, _)| *rows as usize);
        while first >= rows_of(device)? {
            (device, first) = (device + 1, 0);
        }
        let rows = self.batch_rows.saturating_mul(self.batches).min(rows_of(device)? - first);
        self.next = (device, first + rows);
        let batches_max = (PIECE_ROWS / self.batch_rows / 8 * 8).max(8);
        self.batches = (self.batches * GROWTH).min(batches_max);
        let piece = self.read(device, first, rows);
        if piece.is_err() {
            // Nothing behind what failed.
            self.next = (self.shards.len(), 0);
        }
        Some(piece)
    }
}

/// Some rows of a shard's column, on the host.
struct ColumnPiece {
    values: Vec<u8>,
    offsets: Option<Vec<u8>>,
    validity: Option<Vec<u8>>,
}

impl ColumnPiece {
    /// Reads `rows` rows from row `start` on, a multiple of 8.
    fn read(
        stream: &Stream,
        column_type: &ColumnType,
        column: &ShardColumn,
        start: usize,
        rows: usize,
    ) -> Result<Self> {
        let read = |buffer: &Option<Arc<Buffer>>, offset: usize, bytes: usize| -> Result<Option<Vec<u8>>> {
            let Some(buffer) = buffer else { return Ok(None) };
            let mut target = vec![0; bytes];
            stream.read(buffer, offset as u64, &mut target)?;
            Ok(Some(target))
        };
        let validity = read(&column.validity, start / 8, rows.div_ceil(8))?;
        if column_type.domain != Domain::Bytes {
            let width = column_type.layout().width_bytes as usize;
            let values = read(&column.values, start * width, rows * width)?.unwrap_or_default();
            return Ok(Self { values, offsets: None, validity });
        }
        let mut offsets = read(&column.offsets, start * OFFSET_BYTES, (rows + 1) * OFFSET_BYTES)?.unwrap_or_default();
        let (first, last) = rebase_offsets(&mut offsets);
        let values = read(&column.values, first, last - first)?.unwrap_or_default();
        Ok(Self { values, offsets: Some(offsets), validity })
    }

    fn decode(&self, column_type: &ColumnType, first: usize, rows: usize) -> Result<ArrayRef> {
        let validity = self.validity.as_deref().map(Validity::Bits);
        let encoded = EncodedRows { values: &self.values, offsets: self.offsets.as_deref(), validity };
        decode_rows(column_type, first, rows, encoded)
    }
}

/// Rebases offsets (u64, little endian) to begin at 0. Returns the original first and last offset.
pub(super) fn rebase_offsets(offsets: &mut [u8]) -> (usize, usize) {
    let slots = offsets.as_chunks_mut::<OFFSET_BYTES>().0;
    let first = slots.first().map_or(0, |raw| u64::from_le_bytes(*raw));
    let last = slots.last().map_or(first, |raw| u64::from_le_bytes(*raw));
    if first > 0 {
        for slot in slots {
            *slot = (u64::from_le_bytes(*slot) - first).to_le_bytes();
        }
    }
    (first as usize, last as usize)
}
