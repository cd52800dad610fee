//! Faults on demand: devices whose n-th call of some kind fails, panics or cancels a query.
//!
//! Owns a decorator around the seam (`backend.rs`), so that it works for every kind of device, a check that no
//! buffer is freed while another stream may still use it ([`order`]), and a record of what was asked for ([`Recording`]).
//! Must not know what a query is. For tests.

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

/// The same devices, by way of `plan`: it counts their calls, and makes one fail when it was told to. Budgets, modules in
/// memory and opened peers begin anew; streams, buffers and events of `devices` do not fit to those of the result.
pub fn with_faults(devices: &[Device], plan: &FaultPlan) -> Vec<Device> {
    let wrap = |device: &Device| Device::new(Arc::new(FaultyDevice::new(device.backend().clone(), plan.clone())));
    devices.iter().map(wrap).collect()
}
