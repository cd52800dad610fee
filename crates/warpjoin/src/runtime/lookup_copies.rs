//! Copies on devices of columns that pipelines read by code: kept as long as the columns, and given back when memory is needed.
//!
//! Must not know what reads them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use warpjoin_codegen::LookupColumn;
use warpjoin_columns::devices::DeviceSet;
use warpjoin_device::{Buffer, Event, MemoryCache};

/// Part of each device's memory that copies may take.
const KEPT_SHARE: u64 = 16;

/// What is read by code, on one device.
#[derive(Debug)]
pub(crate) struct UploadedColumn {
    pub values: Arc<Buffer>,
    pub validity: Option<Buffer>,
}

impl UploadedColumn {
    fn bytes(&self) -> u64 {
        self.values.bytes() + self.validity.as_ref().map_or(0, Buffer::bytes)
    }
}

/// A column on one device, and when it is there.
struct DeviceCopy {
    devices: Weak<DeviceSet>,
    device: usize,
    uploaded: Arc<UploadedColumn>,
    ready: Event,
}

/// The copies of one column.
#[derive(Default)]
struct Copies(Mutex<Vec<DeviceCopy>>);

impl Copies {
    fn locked(&self) -> MutexGuard<'_, Vec<DeviceCopy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes those that no query uses, of devices that are gone in any case.
    fn take_unused(&self) -> Vec<DeviceCopy> {
        self.locked().extract_if(.., |copy| Arc::strong_count(&copy.uploaded) == 1).collect()
    }

    fn bytes(&self) -> u64 {
        self.locked().iter().map(|copy| copy.uploaded.bytes()).sum()
    }
}

/// The columns with copies, least recently used first.
#[derive(Default)]
pub(crate) struct LookupCopies {
    columns: Mutex<Vec<Weak<LookupColumn>>>,
}

impl LookupCopies {
    /// The copy of a column on a device, and when it is there.
    pub(crate) fn find(
        &self,
        column: &Arc<LookupColumn>,
        devices: &Arc<DeviceSet>,
        device: usize,
    ) -> Option<(Arc<UploadedColumn>, Event)> {
        let copies = column.attached::<Copies>()?;
        let is_it = |copy: &&DeviceCopy| copy.device == device && copy.devices.as_ptr() == Arc::as_ptr(devices);
        let found = copies.locked().iter().find(is_it).map(|copy| (Arc::clone(&copy.uploaded), copy.ready.clone()));
        if found.is_some() {
            self.note_use(column);
        }
        found
    }

    /// Keeps a copy. Those that were used longest ago go, if they are more than there should be.
    pub(crate) fn keep(
        &self,
        column: &Arc<LookupColumn>,
        devices: &Arc<DeviceSet>,
        (device, uploaded, ready): (usize, Arc<UploadedColumn>, Event),
    ) {
        let copy = DeviceCopy { devices: Arc::downgrade(devices), device, uploaded, ready };
        column.attached_or_default::<Copies>().locked().push(copy);
        self.note_use(column);
        let limits = devices.devices().iter().map(|device| device.memory().limit_bytes());
        let bytes_max = limits.fold(0u64, u64::saturating_add) / KEPT_SHARE;
        let columns = self.locked();
        let copies = columns.iter().filter_map(|column| column.upgrade()?.attached::<Copies>());
        let excess = copies.map(|copies| copies.bytes()).sum::<u64>().saturating_sub(bytes_max);
        drop(columns);
        if excess > 0 {
            self.give_back(excess);
        }
    }

    fn note_use(&self, column: &Arc<LookupColumn>) {
        let mut columns = self.locked();
        columns.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(column));
        columns.push(Arc::downgrade(column));
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Weak<LookupColumn>>> {
        self.columns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryCache for LookupCopies {
    fn give_back(&self, bytes: u64) -> bool {
        // Dropped at the end, without the lock.
        let mut freed = vec![];
        let mut freed_bytes = 0;
        let mut columns = self.locked();
        columns.retain(|column| {
            let Some(column) = column.upgrade() else { return false };
            if freed_bytes >= bytes {
                return true;
            }
            let Some(copies) = column.attached::<Copies>() else { return false };
            let unused = copies.take_unused();
            freed_bytes += unused.iter().map(|copy| copy.uploaded.bytes()).sum::<u64>();
            let is_empty = copies.locked().is_empty();
            freed.push((unused, column));
            !is_empty
        });
        drop(columns);
        freed_bytes > 0
    }
}
