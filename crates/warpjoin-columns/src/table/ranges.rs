//! Ranges of a column's values on each device, for rows sorted by the column.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::resident::Table;
use crate::column::Domain;
use crate::{Error, Result};

/// The least and the greatest value of each device; `None` for those without rows.
pub type Ranges = Arc<[Option<[i128; 2]>]>;

/// The ranges of columns read so far; `None`: the column has none.
#[derive(Debug, Default)]
pub(super) struct KnownRanges(Mutex<HashMap<usize, Option<Ranges>>>);

impl Table {
    /// The range of a sorted integer column on each device; `None` if the column is not sorted.
    #[doc(hidden)]
    pub fn sorted_ranges(&self, column: usize) -> Option<Ranges> {
        let column_type = &self.column_types()[column];
        let is_integer = matches!(column_type.domain, Domain::Int { .. }) && column_type.dictionary.is_none();
        let may_be_null = column_type.has_nulls || self.statistics()[column].null_count > 0;
        if !is_integer || may_be_null || !self.statistics()[column].sorted || column_type.layout().width_bytes > 8 {
            return None;
        }
        let mut known = self.ranges.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let ranges = self.read_ranges(column);
            ranges.inspect_err(|error| log::debug!("a column whose ranges are not known: {error}")).ok()
        };
        known.entry(column).or_insert_with(read).clone()
    }

    /// Reads the first and the last value of each device.
    fn read_ranges(&self, column: usize) -> Result<Ranges> {
        let layout = self.column_types()[column].layout();
        let width = u64::from(layout.width_bytes);
        let range = |(device, stream): (usize, &warpjoin_device::Stream)| {
            let rows = self.shard_rows(device);
            if rows == 0 {
                return Ok(None);
            }
            if width == 0 {
                return Ok(Some([layout.base; 2]));
            }
            let stored = self.column(device, column);
            let values = stored.values.as_ref().ok_or_else(|| Error::internal("a column without values"))?;
            let value = |row: u64| {
                let mut bytes = [0u8; 8];
                stream.read(values, row * width, &mut bytes[..width as usize])?;
                Ok::<_, Error>(layout.base + i128::from(u64::from_le_bytes(bytes)))
            };
            Ok(Some([value(0)?, value(rows - 1)?]))
        };
        self.devices().load_streams().iter().enumerate().map(range).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use warpjoin_device::{SimOptions, open_simulated};

    use crate::{DeviceSet, TableBuilder};

    #[test]
    fn ranges_are_those_of_the_devices_rows() {
        let options = SimOptions { devices: 3, ..SimOptions::default() };
        let set = DeviceSet::new(open_simulated(&options).unwrap()).unwrap();
        let ascending: ArrayRef = Arc::new((0..150).map(|row| 1000 + row / 10).collect::<Int64Array>());
        let other: ArrayRef = Arc::new((0..150).map(|row| row * 7 % 150).collect::<Int64Array>());
        let batch = RecordBatch::try_from_iter([("ascending", ascending), ("other", other)]).unwrap();
        let mut builder = TableBuilder::new(&set, batch.schema());
        builder.push(&batch).unwrap();
        let table = builder.finish().unwrap();
        // Runs of 64 rows.
        let expected = [Some([1000, 1006]), Some([1006, 1012]), Some([1012, 1014])];
        assert_eq!(*table.sorted_ranges(0).unwrap(), expected);
        assert!(table.sorted_ranges(1).is_none());
    }
}
