//! Tables whose columns are evicted to host memory when a device needs room, and come back when there is room again.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use warpjoin_device::{MemoryCache, MemoryPlace};

use super::resident::Table;
use super::stored::MovedBytes;
use crate::Result;
use crate::devices::MemoryBudget;

/// Minimum time that columns stay in host memory: moving them costs as much as reading them there once or twice.
const STAYS: Duration = Duration::from_secs(10);
/// Columns come back only if a quarter of a device's budget stays free.
const FREE_DIVISOR: u64 = 4;

/// A table whose columns may leave the devices.
#[derive(Debug)]
pub(super) struct Movable {
    table: Weak<Table>,
    left: Mutex<Option<Instant>>,
}

impl Table {
    /// Allows columns to be evicted to host memory when an allocation on a device needs the room. Queries then read
    /// them over the bus until there is room for them again.
    pub fn make_room_when_asked(self: &Arc<Self>) {
        let movable = self.movable.get_or_init(|| {
            let movable = Arc::new(Movable { table: Arc::downgrade(self), left: Mutex::default() });
            for device in self.devices().devices() {
                let weak: Weak<Movable> = Arc::downgrade(&movable);
                device.memory().add_cache(weak);
            }
            movable
        });
        debug_assert!(movable.table.ptr_eq(&Arc::downgrade(self)), "of another table");
    }

    /// Brings evicted columns back, as far as the devices have room within `budget`.
    ///
    /// # Errors
    /// When a device fails.
    #[doc(hidden)]
    pub fn bring_back(&self, columns: &[usize], budget: MemoryBudget) -> Result<()> {
        let Some(movable) = self.movable.get() else { return Ok(()) };
        if movable.left.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|left| left.elapsed() < STAYS) {
            return Ok(());
        }
        for &column in columns {
            for (device, stream) in self.devices().load_streams().iter().enumerate() {
                let stream = budget.of_stream(stream.clone());
                let host_bytes = self.column(device, column).bytes_in(MemoryPlace::Host);
                let wanted = host_bytes.saturating_add(stream.budget_bytes() / FREE_DIVISOR);
                if host_bytes > 0 && stream.free_bytes() >= wanted {
                    self.move_column(device, column, MemoryPlace::Device, &stream)?;
                }
            }
        }
        Ok(())
    }
}

impl MemoryCache for Movable {
    fn give_back(&self, bytes: u64) -> bool {
        let Some(table) = self.table.upgrade() else { return false };
        let mut moved = MovedBytes::default();
        for column in 0..table.column_types().len() {
            for (device, stream) in table.devices().load_streams().iter().enumerate() {
                let held = table.column(device, column).bytes_in(MemoryPlace::Device);
                if held == 0 || moved.freed + moved.in_use >= bytes {
                    continue;
                }
                match table.move_column(device, column, MemoryPlace::Host, stream) {
                    Ok(bytes) => moved = moved + bytes,
                    Err(error) => log::debug!("a column stays on its device: {error}"),
                }
            }
        }
        if moved != MovedBytes::default() {
            log::debug!("columns leave a device: {moved:?}");
            *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        moved.freed > 0
    }
}
