//! Copies of a one-device table on other devices, for queries that find its own device busy.
//!
//! They are kept while memory is free: an allocation that fails drops those that no query uses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use warpjoin_device::{Device, MemoryCache, Stream};

use super::place::copied;
use super::resident::{ShardColumn, Table};
use super::stored::StoredColumn;
use crate::Result;
use crate::devices::waits::Waits;
use crate::devices::{DeviceSet, MemoryBudget};

/// Replicas take up to this fraction of a device's memory (1 / divisor): the rest is for queries.
const REPLICAS_DIVISOR: u64 = 2;

/// Copies of one table.
#[derive(Debug, Default)]
pub(super) struct Replicas(Mutex<Vec<Replica>>);

#[derive(Debug)]
struct Replica {
    devices: Arc<DeviceSet>,
    table: Arc<Table>,
}

impl Replicas {
    fn locked(&self) -> MutexGuard<'_, Vec<Replica>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryCache for Replicas {
    fn give_back(&self, _: u64) -> bool {
        // Whoever copies holds the lock, and asks for memory.
        let Ok(mut replicas) = self.0.try_lock() else { return false };
        let unused: Vec<_> = replicas.extract_if(.., |replica| Arc::strong_count(&replica.table) == 1).collect();
        drop(replicas);
        !unused.is_empty()
    }
}

impl Table {
    /// The table on another single device: a copy that is there, or is made now.
    ///
    /// # Errors
    /// When there is no room, or a device fails.
    #[doc(hidden)]
    pub fn replica(self: &Arc<Self>, devices: &Arc<DeviceSet>, budget: MemoryBudget) -> Result<Arc<Self>> {
        if Arc::ptr_eq(self.devices(), devices) {
            return Ok(Arc::clone(self));
        }
        // Others that want it wait until it is there.
        let mut replicas = self.replicas.locked();
        if let Some(known) = replicas.iter().find(|replica| Arc::ptr_eq(&replica.devices, devices)) {
            return Ok(Arc::clone(&known.table));
        }
        let streams: Vec<Stream> = devices.load_streams().iter().map(|it| budget.of_stream(it.clone())).collect();
        let copy = |column: &Arc<StoredColumn>| column.replica(&streams[0]);
        let table = Arc::new(self.copied_to(devices, copy)?);
        let cache: Weak<Replicas> = Arc::downgrade(&self.replicas);
        devices.devices()[0].memory().add_cache(cache);
        replicas.push(Replica { devices: Arc::clone(devices), table: Arc::clone(&table) });
        Ok(table)
    }

    /// Whether a device has room for copies of these tables, not counting those that it already has.
    #[doc(hidden)]
    pub fn have_room_on(tables: &[Arc<Self>], devices: &Arc<DeviceSet>, budget: MemoryBudget) -> bool {
        let is_there =
            |table: &&Arc<Self>| table.replicas.locked().iter().any(|known| Arc::ptr_eq(&known.devices, devices));
        let missing = tables.iter().filter(|table| !is_there(table)).map(|table| table.resident_bytes()).sum::<u64>();
        let memory = devices.devices()[0].memory();
        let limit_bytes = memory.limit_bytes().min(budget.device_bytes) / REPLICAS_DIVISOR;
        missing == 0 || memory.used_bytes().saturating_add(missing) <= limit_bytes
    }
}

/// A column on another device; tables that share the column share it.
#[derive(Debug)]
pub(super) struct ColumnReplica {
    device: Device,
    column: Weak<StoredColumn>,
}

impl StoredColumn {
    fn replica(&self, stream: &Stream) -> Result<Arc<Self>> {
        let mut replicas = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
        replicas.retain(|replica| replica.column.strong_count() > 0);
        let known = replicas.iter().find(|replica| replica.device.is_same(stream.device()));
        if let Some(known) = known.and_then(|replica| replica.column.upgrade()) {
            return Ok(known);
        }
        let own = self.buffers();
        let mut waits = Waits::of(std::slice::from_ref(stream));
        let place = warpjoin_device::MemoryPlace::Device;
        let copy = |buffer: &Option<Arc<_>>| {
            buffer.as_ref().map(|buffer| copied(stream, buffer, place).map(Arc::new)).transpose()
        };
        let [values, offsets, validity] = [copy(&own.values)?, copy(&own.offsets)?, copy(&own.validity)?];
        waits.end()?;
        let column = Self::new(ShardColumn { values, offsets, validity });
        replicas.push(ColumnReplica { device: stream.device().clone(), column: Arc::downgrade(&column) });
        Ok(column)
    }
}
