//! The strings of a dictionary on devices, for kernels that test them (`kernels/string/strings.cu`).

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use warpjoin_columns::column::Dictionary;
use warpjoin_columns::devices::DeviceSet;
use warpjoin_device::Buffer;

use super::session::Session;

/// Kernels read whole words, and one behind that of the last byte.
pub(crate) const STRING_PADDING_BYTES: u64 = 16;
/// Bytes of a tile, whose places are signed numbers of 32 bits, also a step behind its end.
pub(crate) const STRING_TILE_BYTES_MAX: u64 = (u32::MAX / 2 - 64) as u64;

/// The strings of a dictionary on each set of devices that has tested them.
#[derive(Debug, Default)]
pub(crate) struct StringsOnDevices(Mutex<Vec<Arc<DeviceStrings>>>);

/// The strings of a dictionary on the devices of a session.
pub(crate) struct DeviceStrings {
    pub devices: Weak<DeviceSet>,
    pub shards: Vec<StringShard>,
}

/// Strings that a query uses: as long as it does, they stay with their dictionary.
#[derive(Clone)]
pub(crate) struct UsedStrings {
    pub strings: Arc<DeviceStrings>,
    _all: Arc<StringsOnDevices>,
}

impl StringsOnDevices {
    fn locked(&self) -> MutexGuard<'_, Vec<Arc<DeviceStrings>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceStrings {
    /// The strings of a dictionary on some devices, if they are there.
    pub(crate) fn find(dictionary: &Arc<Dictionary>, session: &Session) -> Option<UsedStrings> {
        let all = dictionary.attached::<StringsOnDevices>()?;
        let devices = Arc::downgrade(session.device_set());
        let strings = all.locked().iter().find(|strings| Weak::ptr_eq(&strings.devices, &devices)).cloned()?;
        Self::note_use(dictionary, &all, session);
        Some(UsedStrings { strings, _all: all })
    }

    /// Keeps them with their dictionary.
    pub(crate) fn keep(self, dictionary: &Arc<Dictionary>, session: &Session) -> UsedStrings {
        let (all, strings) = (dictionary.attached_or_default::<StringsOnDevices>(), Arc::new(self));
        {
            let mut known = all.locked();
            known.retain(|other| other.devices.strong_count() > 0 && !Weak::ptr_eq(&other.devices, &strings.devices));
            known.push(Arc::clone(&strings));
        }
        Self::note_use(dictionary, &all, session);
        UsedStrings { strings, _all: all }
    }

    fn note_use(dictionary: &Arc<Dictionary>, all: &StringsOnDevices, session: &Session) {
        let bytes = all.locked().iter().map(|strings| strings.bytes()).sum();
        session.dictionary_cache().use_attached::<StringsOnDevices>(dictionary, bytes);
    }

    /// Bytes on all devices together.
    pub(crate) fn bytes(&self) -> u64 {
        let shard = |shard: &StringShard| shard.bytes.bytes() + shard.tile_starts.bytes() + shard.ends.bytes();
        self.shards.iter().map(shard).sum()
    }
}

/// The strings of one device.
pub(crate) struct StringShard {
    /// Positions in the dictionary.
    pub strings: Range<usize>,
    pub bytes: Buffer,
    pub tile_starts: Buffer,
    pub ends: Buffer,
    pub text_bytes: u64,
}

impl std::fmt::Debug for DeviceStrings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceStrings({} shards)", self.shards.len())
    }
}
