//! The strings of a dictionary on devices, for kernels that test them (`kernels/string/strings.cu`).

use std::ops::Range;
use std::sync::Weak;

use warpjoin_device::Buffer;

use crate::devices::DeviceSet;

/// Kernels read whole words, and one behind that of the last byte.
pub(crate) const STRING_PADDING_BYTES: u64 = 16;
/// Bytes of a tile, whose places are signed numbers of 32 bits, also a step behind its end.
pub(crate) const STRING_TILE_BYTES_MAX: u64 = (u32::MAX / 2 - 64) as u64;

/// The strings of a dictionary on the devices of a session.
pub(crate) struct DeviceStrings {
    pub devices: Weak<DeviceSet>,
    pub shards: Vec<StringShard>,
}

impl DeviceStrings {
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
