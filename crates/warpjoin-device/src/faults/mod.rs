//! Fault injection, for tests: the n-th call of some kind to a device fails, panics or cancels a query.
//!
//! Owns a decorator around the backend traits (`backend.rs`), which works for every kind of device; a check that no
//! buffer is freed while another stream may still use it ([`order`]); and a record of all calls ([`Recording`]).
//! Must not know what a query is.

mod device;
mod order;
mod plan;
mod recording;
mod stream;

use std::sync::Arc;

pub(crate) use plan::fail_file_write;
pub use plan::{CallKind, Fault, FaultPlan};
pub use recording::Recording;

use crate::Device;
use device::FaultyDevice;

/// Wraps devices so that `plan` counts their calls and can make one fail. Budgets, modules in memory and opened peers start
/// fresh. Streams, buffers and events of `devices` cannot be used with the result.
pub fn with_faults(devices: &[Device], plan: &FaultPlan) -> Vec<Device> {
    let wrap = |device: &Device| {
        let backend = FaultyDevice::new(device.backend().clone(), plan.clone());
        Device::new(Arc::new(backend), Arc::clone(device.shared_host_memory()))
    };
    devices.iter().map(wrap).collect()
}
