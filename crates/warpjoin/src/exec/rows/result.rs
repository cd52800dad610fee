//! Fetches a relation as record batches.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use rayon::prelude::*;
use warpjoin_columns::Result;
use warpjoin_columns::column::{ColumnType, Validity, decode};
use warpjoin_device::Buffer;

use crate::exec::query::Query;
use crate::exec::relation::{Intermediate, Relation};

/// Rows of a piece: those that are on the host at a time, besides pieces already taken by the caller.
const PIECE_ROWS: usize = 1 << 20;
/// Rows of a column that one core decodes at a time.
const DECODED_ROWS: usize = 1 << 16;
/// Bytes read between checks for cancellation.
const READ_BYTES: usize = 64 << 20;
/// Rows that one core decodes before other cores would start to help.
const ALONE_ROWS: usize = 1 << 9;

impl Query<'_> {
    /// Runs the last pipeline and fetches its rows, device after device, in pieces, until `take` returns false.
    pub(crate) fn fetch(
        &mut self,
        relation: Relation,
        schema: &SchemaRef,
        take: &mut dyn FnMut(Vec<RecordBatch>) -> bool,
    ) -> Result<()> {
        let rows = self.result_rows(relation)?;
        self.note_result()?;
        self.metrics.rows = rows.rows();
        let is_large = rows.rows() > PIECE_ROWS as u64;
        if is_large {
            // Whatever went wrong is said before somebody has rows.
            self.synchronize()?;
            self.settle()?;
        }
        let mut batches = vec![];
        for (device, shard) in rows.shards.iter().enumerate() {
            for first in (0..shard.rows).step_by(PIECE_ROWS) {
                let started = std::time::Instant::now();
                batches.extend(self.download(&rows, device, first, schema)?);
                self.metrics.transfer_ns += started.elapsed().as_nanos() as u64;
                if is_large && !take(std::mem::take(&mut batches)) {
                    return Ok(());
                }
            }
        }
        if !batches.is_empty() {
            take(batches);
        }
        Ok(())
    }

    /// Reads buffers: all at once, or in pieces between which the query may be cancelled.
    fn read_parts(&self, device: usize, parts: &mut [(&Buffer, u64, &mut [u8])]) -> Result<()> {
        self.options.check_cancelled()?;
        let stream = &self.streams[device];
        if parts.iter().map(|(.., bytes)| bytes.len()).sum::<usize>() <= READ_BYTES {
            return Ok(stream.read_all(parts)?);
        }
        for (buffer, first, bytes) in parts {
            for (number, piece) in bytes.chunks_mut(READ_BYTES).enumerate() {
                stream.read(buffer, *first + (number * READ_BYTES) as u64, piece)?;
                self.options.check_cancelled()?;
            }
        }
        Ok(())
    }

    /// A piece of a device's rows, from row `first`.
    fn download(
        &mut self,
        rows: &Intermediate,
        device: usize,
        first: u64,
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>> {
        let shard = &rows.shards[device];
        let count = PIECE_ROWS.min((shard.rows - first) as usize);
        let mut fetched: Vec<(ColumnType, Vec<u8>, Option<Vec<u8>>)> = vec![];
        for (index, (column, column_type)) in shard.columns.iter().zip(&rows.columns).enumerate() {
            let values = vec![0u8; count * column_type.layout().width_bytes as usize];
            let validity = column.validity.is_some().then(|| vec![0u8; count]);
            self.metrics.downloaded_bytes += (values.len() + validity.as_ref().map_or(0, Vec::len)) as u64;
            let declared = ColumnType { data_type: schema.field(index).data_type().clone(), ..column_type.clone() };
            fetched.push((declared, values, validity));
        }
        let mut parts: Vec<(&Buffer, u64, &mut [u8])> = vec![];
        for (column, (declared, values, validity)) in shard.columns.iter().zip(&mut fetched) {
            let offset = first * u64::from(declared.layout().width_bytes);
            parts.extend(column.values.as_ref().map(|buffer| (buffer, offset, values.as_mut_slice())));
            let validity = column.validity.as_ref().zip(validity.as_mut());
            parts.extend(validity.map(|(buffer, validity)| (buffer, first, validity.as_mut_slice())));
        }
        self.read_parts(device, &mut parts)?;
        let options = self.options;
        // Not by each of the threads below.
        fetched.iter().filter_map(|(declared, ..)| declared.dictionary.as_ref()).for_each(|dictionary| {
            dictionary.prepare(count);
        });
        // Pieces of columns are decoded on all cores: strings are looked up value by value.
        let pieces: Vec<(usize, usize)> =
            (0..count).step_by(DECODED_ROWS).map(|first| (first, DECODED_ROWS.min(count - first))).collect();
        let decode_piece =
            |(declared, values, validity): &(ColumnType, Vec<u8>, Option<Vec<u8>>), first: usize, rows: usize| {
                options.check_cancelled()?;
                let width = declared.layout().width_bytes as usize;
                let validity = validity.as_ref().map(|bytes| Validity::Bytes(&bytes[first..first + rows]));
                decode(declared, rows, &values[first * width..(first + rows) * width], None, validity)
            };
        let batches: Vec<Vec<ArrayRef>> = if count <= ALONE_ROWS {
            vec![fetched.iter().map(|column| decode_piece(column, 0, count)).collect::<Result<_>>()?]
        } else {
            let decode_all = |&(first, rows): &(usize, usize)| {
                fetched.par_iter().map(|column| decode_piece(column, first, rows)).collect::<Result<_>>()
            };
            pieces.par_iter().map(decode_all).collect::<Result<_>>()?
        };
        let step = self.options.batch_rows.max(1);
        let mut result = vec![];
        for (arrays, (_, rows)) in batches.into_iter().zip(pieces) {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?;
            result.extend((0..rows).step_by(step).map(|first| batch.slice(first, step.min(rows - first))));
        }
        Ok(result)
    }
}
