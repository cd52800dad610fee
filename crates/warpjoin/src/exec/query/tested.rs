//! What a query knows of the strings of large dictionaries.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use warpjoin_device::Buffer;

use crate::DeviceSet;
use crate::column::Dictionary;
use crate::string_test::TestProgram;

/// What a query has tested already.
#[derive(Default)]
pub(in crate::exec) struct TestResults {
    /// By address of the dictionary, which `kept` keeps alive: the results on each device.
    pub of: HashMap<(usize, Arc<TestProgram>), Vec<Arc<Buffer>>>,
    pub kept: Vec<(Arc<Dictionary>, Option<Arc<DeviceStrings>>)>,
}

/// The strings of a dictionary on the devices of a session.
pub(in crate::exec) struct DeviceStrings {
    pub devices: Weak<DeviceSet>,
    pub shards: Vec<StringShard>,
}

impl DeviceStrings {
    /// Bytes on all devices together.
    pub(in crate::exec) fn bytes(&self) -> u64 {
        let shard = |shard: &StringShard| shard.bytes.bytes() + shard.tile_starts.bytes() + shard.ends.bytes();
        self.shards.iter().map(shard).sum()
    }
}

/// The strings of one device.
pub(in crate::exec) struct StringShard {
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
