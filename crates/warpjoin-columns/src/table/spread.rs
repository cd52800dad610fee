//! Copies a table of one device to several, for queries that join it with tables on all of them.

use std::sync::Arc;

use warpjoin_device::{Buffer, Stream};

use super::builder::cut;
use super::place::alloc_column;
use super::resident::{BUFFER_ALIGNMENT_BYTES, Shard, ShardColumn, Table};
use crate::Result;
use crate::devices::DeviceSet;
use crate::devices::waits::Waits;

/// Minimum bytes of a table that is copied in runs to all devices: one device scans a smaller one as fast.
const SPREAD_BYTES_MIN: u64 = 256 << 20;

/// The rows of the table in runs on these devices; `None` if it is better read where it is.
pub(super) fn spread(table: &Table, devices: &Arc<DeviceSet>) -> Option<Vec<Shard>> {
    let [whole] = &table.shards()[..] else { return None };
    let is_raw = whole.columns.iter().any(|column| column.offsets.is_some());
    if is_raw || !devices.has_peer_access() || table.resident_bytes() < SPREAD_BYTES_MIN {
        return None;
    }
    let runs = runs(table, whole, devices.load_streams());
    runs.inspect_err(|error| log::debug!("a table stays on one device: {error}")).ok()
}

fn runs(table: &Table, whole: &Shard, streams: &[Stream]) -> Result<Vec<Shard>> {
    let mut runs = cut(whole.rows, streams.len());
    let mut waits = Waits::of(streams);
    for (run, stream) in runs.iter_mut().zip(streams) {
        let (first, rows) = (run.first_row, run.rows);
        for (column, column_type) in whole.columns.iter().zip(table.column_types()) {
            let width = u64::from(column_type.layout().width_bytes);
            let part = |source: &Option<Arc<Buffer>>, from: u64, bytes: u64| match source {
                Some(source) if bytes > 0 => run_of(stream, source, from, bytes).map(Some),
                _ => Ok(None),
            };
            run.columns.push(ShardColumn {
                values: part(&column.values, first * width, rows * width)?,
                offsets: None,
                // Runs begin at multiples of 64 rows.
                validity: part(&column.validity, first / 8, rows.div_ceil(8))?,
            });
        }
    }
    waits.end()?;
    Ok(runs)
}

/// A copy of some bytes, padded with 0.
fn run_of(stream: &Stream, source: &Buffer, from: u64, bytes: u64) -> Result<Arc<Buffer>> {
    let padded = bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES);
    let target = alloc_column(stream, padded, None)?;
    stream.copy((source, from), (&target, 0), bytes)?;
    stream.fill(&target, bytes, padded - bytes, 0)?;
    Ok(Arc::new(target))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
    use warpjoin_device::{SimOptions, open_simulated};

    use super::*;
    use crate::TableBuilder;

    #[test]
    fn runs_have_all_rows_of_the_table() {
        for (devices, rows) in [(2, 0), (3, 1), (2, 64), (3, 1000), (8, 100)] {
            let set = DeviceSet::new(open_simulated(&SimOptions { devices, ..SimOptions::default() }).unwrap());
            let set = &set.unwrap();
            let numbers: ArrayRef =
                Arc::new((0..rows).map(|row| (row % 7 > 0).then_some(row * 1000)).collect::<Int64Array>());
            let flags: ArrayRef = Arc::new((0..rows).map(|row| Some(row % 3 == 0)).collect::<BooleanArray>());
            let words: ArrayRef =
                Arc::new((0..rows).map(|row| Some(format!("{}", row % 300))).collect::<StringArray>());
            let same: ArrayRef = Arc::new((0..rows).map(|_| Some(5)).collect::<Int64Array>());
            let columns =
                [("numbers", numbers, true), ("flags", flags, true), ("words", words, true), ("same", same, true)];
            let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            let mut builder = TableBuilder::new(&set.member(devices - 1).unwrap(), batch.schema());
            builder.push(&batch).unwrap();
            let table = Arc::new(builder.finish().unwrap());

            let runs = runs(&table, &table.shards()[0], set.load_streams()).unwrap();
            assert_eq!(runs.iter().map(|run| run.rows).sum::<u64>(), rows as u64);
            let (schema, types) = (table.schema(), table.column_types().to_vec());
            let spread = Table::from_result(Arc::clone(set), schema, types, table.statistics().to_vec(), runs);
            let where_it_is = table.on(set).unwrap();
            for other in [&spread, &*where_it_is] {
                let all = [0, 1, 2, 3];
                assert_eq!(other.download(&all, 64).unwrap(), table.download(&all, 64).unwrap(), "{devices} devices");
            }
        }
    }
}
