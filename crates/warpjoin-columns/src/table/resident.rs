//! A table resident on devices.
//!
//! Owns shards.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use warpjoin_device::{Buffer, MemoryPlace, Stream};

use super::download::Pieces;
use super::movable::Movable;
use super::ranges::KnownRanges;
use super::replicas::Replicas;
use super::sample::TableSample;
use super::spread::spread;
use super::stored::{MovedBytes, StoredColumn};
use crate::column::{ColumnStatistics, ColumnType};
use crate::devices::{DeviceSet, MemoryBudget};
use crate::{Error, Result};

/// An immutable table, its rows spread over devices in contiguous runs, or all on one of them.
pub struct Table {
    devices: Arc<DeviceSet>,
    schema: SchemaRef,
    rows: u64,
    column_types: Vec<ColumnType>,
    statistics: Vec<ColumnStatistics>,
    shards: Vec<StoredShard>,
    /// Whether domains are the smallest and largest values, not only bounds of them.
    exact_bounds: bool,
    /// Rows on the host; `None` where the table was made on the devices.
    sample: Option<TableSample>,
    /// Eviction of its columns, if allowed. Tables that share all columns share it.
    pub(super) movable: Arc<OnceLock<Arc<Movable>>>,
    /// For a table on one of several devices: the same table on all of them.
    on_all: OnceLock<Arc<Self>>,
    pub(super) replicas: Arc<Replicas>,
    pub(super) ranges: KnownRanges,
}

/// The rows of a table on one device, with columns that may move.
struct StoredShard {
    rows: u64,
    first_row: u64,
    columns: Vec<Arc<StoredColumn>>,
}

impl StoredShard {
    /// Its columns as they lie now.
    fn shard(&self) -> Shard {
        let columns = self.columns.iter().map(|column| column.buffers()).collect();
        Shard { rows: self.rows, first_row: self.first_row, columns }
    }
}

/// The rows of a table on one device.
#[derive(Debug, Clone)]
pub struct Shard {
    /// Number of rows; a shard may be empty.
    pub rows: u64,
    /// Position of its first row in the table.
    pub first_row: u64,
    /// One entry a column.
    pub columns: Vec<ShardColumn>,
}

/// A column of one shard. Every buffer is at least 16 bytes long and a multiple of that, so that
/// kernels can read whole vectors; what is past the rows is 0. Clones share the buffers.
#[derive(Debug, Clone)]
pub struct ShardColumn {
    /// Rows x width, or the bytes of raw strings; `None` with width 0 or without rows.
    pub values: Option<Arc<Buffer>>,
    /// Raw strings: rows + 1 u64, from 0 on; `None` without rows.
    pub offsets: Option<Arc<Buffer>>,
    /// A bit a row, set where valid; `None` without nulls in the table's column, or without rows.
    pub validity: Option<Arc<Buffer>>,
}

/// Buffers of columns have a multiple of this.
pub const BUFFER_ALIGNMENT_BYTES: u64 = 16;
pub(super) const OFFSET_BYTES: usize = size_of::<u64>();
impl Table {
    /// A table of shards as they are: its domains are bounds.
    #[doc(hidden)]
    pub fn from_result(
        devices: Arc<DeviceSet>,
        schema: SchemaRef,
        column_types: Vec<ColumnType>,
        statistics: Vec<ColumnStatistics>,
        shards: Vec<Shard>,
    ) -> Self {
        let stored = |Shard { rows, first_row, columns }: Shard| {
            let columns = columns.into_iter().map(StoredColumn::new).collect();
            StoredShard { rows, first_row, columns }
        };
        Self::of_stored(devices, schema, column_types, statistics, shards.into_iter().map(stored).collect())
    }

    fn of_stored(
        devices: Arc<DeviceSet>,
        schema: SchemaRef,
        column_types: Vec<ColumnType>,
        statistics: Vec<ColumnStatistics>,
        shards: Vec<StoredShard>,
    ) -> Self {
        let rows = shards.iter().map(|shard| shard.rows).sum();
        devices.dictionaries().add(dictionaries(&column_types));
        Self {
            devices,
            schema,
            rows,
            column_types,
            statistics,
            shards,
            exact_bounds: false,
            sample: None,
            movable: Arc::default(),
            on_all: OnceLock::new(),
            replicas: Arc::default(),
            ranges: KnownRanges::default(),
        }
    }

    /// The table as a table of all these devices. If it lies on one of them alone, the other devices have no rows, or,
    /// if the table is large, its rows are copied in runs to all of them.
    ///
    /// # Errors
    /// When it lies on other devices.
    #[doc(hidden)]
    pub fn on(self: &Arc<Self>, devices: &Arc<DeviceSet>) -> Result<Arc<Self>> {
        if Arc::ptr_eq(&self.devices, devices) {
            return Ok(Arc::clone(self));
        }
        let (Some(own), [shard]) = (devices.device_of_member(&self.devices), self.shards.as_slice()) else {
            return Err(Error::InvalidArgument("the table belongs to another session: upload it to this one".into()));
        };
        let on_all = self.on_all.get_or_init(|| {
            let (types, statistics) = (self.column_types.clone(), self.statistics.clone());
            if let Some(shards) = spread(self, devices) {
                let schema = Arc::clone(&self.schema);
                let table = Self::from_result(Arc::clone(devices), schema, types, statistics, shards);
                let table = Arc::new(table.with_facts_of(self));
                table.make_room_when_asked();
                return table;
            }
            let place = |device| match device == own {
                true => StoredShard { rows: shard.rows, first_row: 0, columns: shard.columns.clone() },
                false => {
                    let nothing = || StoredColumn::new(ShardColumn { values: None, offsets: None, validity: None });
                    let columns = shard.columns.iter().map(|_| nothing()).collect();
                    StoredShard { rows: 0, first_row: if device < own { 0 } else { shard.rows }, columns }
                }
            };
            let shards = (0..devices.devices().len()).map(place).collect();
            let mut table = Self::of_stored(Arc::clone(devices), Arc::clone(&self.schema), types, statistics, shards);
            table.movable = Arc::clone(&self.movable);
            Arc::new(table.with_facts_of(self))
        });
        Ok(Arc::clone(on_all))
    }

    /// A table of columns (by position) of tables that lie on the same devices with the same rows, in one order. It shares
    /// their memory.
    ///
    /// # Errors
    /// When there is no column, the tables' rows or devices differ, or a field of `schema` is not of its column's type.
    pub fn of_columns(schema: SchemaRef, columns: &[(&Table, usize)]) -> Result<Self> {
        let Some((first, _)) = columns.first() else { return Err(Error::InvalidArgument("no column".into())) };
        let rows_of =
            |table: &Table| table.shards.iter().map(|shard| (shard.rows, shard.first_row)).collect::<Vec<_>>();
        let rows = rows_of(first);
        if schema.fields().len() != columns.len() {
            return Err(Error::InvalidArgument(format!(
                "{} columns of {} fields",
                columns.len(),
                schema.fields().len()
            )));
        }
        for ((table, index), field) in columns.iter().zip(schema.fields()) {
            if !Arc::ptr_eq(&table.devices, &first.devices) || rows_of(table) != rows {
                return Err(Error::InvalidArgument(format!("column {} has other rows or devices", field.name())));
            }
            let fits = |column: &ColumnType| {
                column.data_type == *field.data_type() && (field.is_nullable() || !column.has_nulls)
            };
            if !table.column_types.get(*index).is_some_and(fits) {
                return Err(Error::InvalidArgument(format!("column {} is not of its field's type", field.name())));
            }
        }
        let shard = |(device, (rows, first_row)): (usize, (u64, u64))| {
            let column = |(table, index): &(&Self, usize)| Arc::clone(&table.shards[device].columns[*index]);
            StoredShard { rows, first_row, columns: columns.iter().map(column).collect() }
        };
        let shards = rows.into_iter().enumerate().map(shard).collect();
        let column_types = columns.iter().map(|(table, index)| table.column_types[*index].clone()).collect();
        let statistics = columns.iter().map(|(table, index)| table.statistics[*index].clone()).collect();
        let samples: Vec<_> = columns.iter().map(|(table, index)| (table.sample.as_ref(), *index)).collect();
        let mut table = Self::of_stored(Arc::clone(&first.devices), schema, column_types, statistics, shards);
        table.exact_bounds = columns.iter().all(|(table, _)| table.exact_bounds);
        table.sample = TableSample::of_columns(&samples);
        Ok(table)
    }

    /// The table of one device with copies of its columns on another one.
    pub(super) fn copied_to(
        &self,
        devices: &Arc<DeviceSet>,
        copy: impl Fn(&Arc<StoredColumn>) -> Result<Arc<StoredColumn>>,
    ) -> Result<Self> {
        let copied = |shard: &StoredShard| {
            let columns = shard.columns.iter().map(&copy).collect::<Result<_>>()?;
            Ok(StoredShard { rows: shard.rows, first_row: shard.first_row, columns })
        };
        let shards = self.shards.iter().map(copied).collect::<Result<_>>()?;
        let (types, statistics) = (self.column_types.clone(), self.statistics.clone());
        let table = Self::of_stored(Arc::clone(devices), Arc::clone(&self.schema), types, statistics, shards);
        Ok(table.with_facts_of(self))
    }

    /// This table, which has the rows of `other`, with the facts known of `other`.
    fn with_facts_of(mut self, other: &Self) -> Self {
        let columns: Vec<_> = (0..other.column_types.len()).map(|index| (other.sample.as_ref(), index)).collect();
        self.sample = TableSample::of_columns(&columns);
        self.exact_bounds = other.exact_bounds;
        self
    }

    /// Moves all columns to the devices or to host memory; queries that use them go on. A column shared with another
    /// table moves for both.
    ///
    /// # Errors
    /// When there is no room within `budget`, or a device fails; some columns may have moved then.
    pub fn move_to(&self, place: MemoryPlace, budget: MemoryBudget) -> Result<MovedBytes> {
        let mut bytes = MovedBytes::default();
        for (shard, stream) in self.shards.iter().zip(self.devices.load_streams()) {
            let stream = budget.of_stream(stream.clone());
            for column in &shard.columns {
                bytes = bytes + column.move_to(place, &stream)?;
            }
        }
        Ok(bytes)
    }

    /// Moves a column of a device.
    pub(super) fn move_column(
        &self,
        device: usize,
        column: usize,
        place: MemoryPlace,
        stream: &Stream,
    ) -> Result<MovedBytes> {
        self.shards[device].columns[column].move_to(place, stream)
    }

    /// Marks an uploaded table: its domains are the smallest and largest values, and a sample of its rows stays on the
    /// host.
    #[doc(hidden)]
    pub fn with_sample(mut self, sample: TableSample) -> Self {
        self.exact_bounds = true;
        self.sample = Some(sample);
        self
    }

    /// Whether the domains of the columns are their smallest and largest values. True for uploaded
    /// tables; results of queries, and tables made of shards, have bounds that may be wider.
    pub fn has_exact_bounds(&self) -> bool {
        self.exact_bounds
    }

    /// The declared schema.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Number of rows on all devices.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Types of the columns, in schema order.
    pub fn column_types(&self) -> &[ColumnType] {
        &self.column_types
    }

    /// Statistics of the columns, in schema order.
    pub fn statistics(&self) -> &[ColumnStatistics] {
        &self.statistics
    }

    /// Some rows on the host.
    #[doc(hidden)]
    pub fn sample(&self) -> Option<&TableSample> {
        self.sample.as_ref()
    }

    /// Forgets what queries have measured on its sample.
    #[doc(hidden)]
    pub fn forget_results(&self) {
        self.sample.iter().for_each(TableSample::forget_results);
    }

    /// One shard for each device, in row order, with the columns where they lie now. The shards keep the memory alive.
    pub fn shards(&self) -> Vec<Shard> {
        self.shards.iter().map(StoredShard::shard).collect()
    }

    /// Rows on a device.
    #[doc(hidden)]
    pub fn shard_rows(&self, device: usize) -> u64 {
        self.shards[device].rows
    }

    /// A column on a device as it lies now.
    #[doc(hidden)]
    pub fn column(&self, device: usize, index: usize) -> ShardColumn {
        self.shards[device].columns[index].buffers()
    }

    /// The devices that hold it.
    pub fn devices(&self) -> &Arc<DeviceSet> {
        &self.devices
    }

    /// Device memory that it holds, in bytes, over all devices.
    pub fn resident_bytes(&self) -> u64 {
        self.bytes_in(MemoryPlace::Device)
    }

    /// The host's memory that it holds, in bytes, for all devices.
    pub fn host_bytes(&self) -> u64 {
        self.bytes_in(MemoryPlace::Host)
    }

    fn bytes_in(&self, place: MemoryPlace) -> u64 {
        self.shards.iter().flat_map(|shard| &shard.columns).map(|column| column.buffers().bytes_in(place)).sum()
    }

    /// Device memory that a column holds (by position), in bytes, over all devices.
    pub fn column_bytes(&self, column: usize) -> u64 {
        let columns = self.shards.iter().filter_map(|shard| shard.columns.get(column));
        columns.map(|column| column.buffers().bytes_in(MemoryPlace::Device)).sum()
    }

    /// Whether a column (by position) lies in the host's memory on some device.
    pub fn is_on_host(&self, column: usize) -> bool {
        let columns = self.shards.iter().filter_map(|shard| shard.columns.get(column));
        columns.map(|column| column.buffers().bytes_in(MemoryPlace::Host)).any(|bytes| bytes > 0)
    }

    /// The rows of some columns (by position, in the order asked for), in row order, in batches of
    /// at most `batch_rows` rows. A table without rows gives no batch.
    ///
    /// # Errors
    /// When there is no such column, `batch_rows` is 0, or a device fails.
    pub fn download(&self, projection: &[usize], batch_rows: usize) -> Result<Vec<RecordBatch>> {
        let pieces: Vec<Vec<RecordBatch>> = self.pieces(projection, batch_rows)?.collect::<Result<_>>()?;
        Ok(pieces.into_iter().flatten().collect())
    }

    /// As [`Self::download`], some batches at a time, so that a reader may stop early. The first piece is small.
    ///
    /// # Errors
    /// When there is no such column, or `batch_rows` is 0.
    pub fn pieces(&self, projection: &[usize], batch_rows: usize) -> Result<Pieces> {
        let schema = Arc::new(self.schema.project(projection)?);
        if batch_rows == 0 {
            return Err(Error::InvalidArgument("batches of 0 rows".into()));
        }
        let shards = self.shards.iter().map(|shard| {
            let columns = projection.iter().map(|&column| Arc::clone(&shard.columns[column])).collect();
            (shard.rows, columns)
        });
        let types = projection.iter().map(|&column| self.column_types[column].clone()).collect();
        Ok(Pieces::of(Arc::clone(&self.devices), schema, types, shards.collect(), batch_rows))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns, shards) = (self.rows, self.column_types.len(), self.shards.len());
        write!(f, "Table({rows} rows x {columns} columns on {shards} devices)")
    }
}

impl ShardColumn {
    /// Whether both are the same buffers.
    #[doc(hidden)]
    pub fn is_same(&self, other: &Self) -> bool {
        let buffers = |column: &Self| {
            [&column.values, &column.offsets, &column.validity].map(|buffer| buffer.as_ref().map(Arc::as_ptr))
        };
        buffers(self) == buffers(other)
    }

    pub(super) fn bytes_in(&self, place: MemoryPlace) -> u64 {
        let buffers = [&self.values, &self.offsets, &self.validity].into_iter().flatten();
        buffers.filter(|buffer| buffer.place() == place).map(|buffer| buffer.bytes()).sum()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.devices.dictionaries().remove(dictionaries(&self.column_types));
    }
}

/// Addresses of the columns' dictionaries.
fn dictionaries(columns: &[ColumnType]) -> impl Iterator<Item = usize> {
    columns.iter().filter_map(|column| column.dictionary.as_ref()).map(|dictionary| Arc::as_ptr(dictionary).addr())
}
