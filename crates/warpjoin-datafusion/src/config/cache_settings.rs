//! Settings of the column cache, for the devices of a session.

use warpjoin::{MemoryBudget, Session};

use super::{Distribute, MemoryShare, ParquetDecode, WarpjoinOptions};

/// Settings of the column cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheSettings {
    device: MemoryShare,
    host: MemoryShare,
    pub(crate) decode: ParquetDecode,
    pub(crate) distribute: Distribute,
    pub(crate) budget: MemoryBudget,
}

/// Limits of the memory of cached columns, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheLimits {
    /// Limit on all devices together.
    pub(crate) device_bytes: u64,
    /// Limit in host memory, for all devices together.
    pub(crate) host_bytes: u64,
    /// Limit of all memory in use on each device.
    pub(crate) device_budget_bytes: u64,
    /// Limit of host memory for columns and rows together.
    pub(crate) host_budget_bytes: u64,
}

impl CacheSettings {
    pub(crate) fn of(options: &WarpjoinOptions) -> Self {
        let WarpjoinOptions { cache, host_cache, parquet_decode, distribute, .. } = *options;
        let budget = options.memory_budget();
        Self { device: cache, host: host_cache, decode: parquet_decode, distribute, budget }
    }

    /// Whether nothing is cached.
    pub(crate) fn is_off(&self) -> bool {
        self.device.is_off()
    }

    /// Limits on the devices of a session.
    pub(crate) fn limits(&self, session: &Session) -> CacheLimits {
        let device_budget_bytes = self.budget.device_bytes;
        let device =
            |device: &warpjoin_device::Device| self.device.of(device.memory().limit_bytes().min(device_budget_bytes));
        let host = session.devices().iter().map(|device| device.host_memory().limit_bytes()).min().unwrap_or(0);
        CacheLimits {
            device_bytes: session.devices().iter().map(device).sum(),
            host_bytes: self.host.of(host.min(self.budget.host_bytes)),
            device_budget_bytes,
            host_budget_bytes: self.budget.host_bytes,
        }
    }
}

impl CacheLimits {
    /// Limit on devices and in host memory together.
    pub(crate) fn bytes(self) -> u64 {
        self.device_bytes.saturating_add(self.host_bytes)
    }
}
