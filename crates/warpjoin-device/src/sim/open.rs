//! Opens simulated devices.

use std::sync::Arc;

use super::device::SimDevice;
use super::options::SimOptions;
use super::simulation::Simulation;
use crate::backend::DeviceBackend;
use crate::{Device, DeviceError, MemoryPool, Result};

/// Opens simulated devices. The devices of one call can open peer access to each other and wait for
/// each other's events.
///
/// # Errors
/// When there is no C++ compiler, when `sanitize` is set but the sanitizer is not loaded, or when options exclude each
/// other.
pub fn open_simulated(options: &SimOptions) -> Result<Vec<Device>> {
    if options.sanitize && !SimOptions::sanitizer_is_loaded() {
        return Err(DeviceError::Invalid(
            "sanitize: AddressSanitizer must be loaded first; set the variables of SimOptions::sanitizer_environment"
                .into(),
        ));
    }
    if options.races && (options.seed.is_none() || options.sanitize || options.yield_at_plain_accesses) {
        return Err(DeviceError::Invalid(
            "races: needs a seed, and excludes sanitize and yield_at_plain_accesses".into(),
        ));
    }
    let simulation = Arc::new(Simulation::new(options)?);
    let host_memory = Arc::new(MemoryPool::new(options.host_memory_bytes));
    let device = |ordinal| {
        let backend: Arc<dyn DeviceBackend> = Arc::new(SimDevice::new(simulation.clone(), ordinal, options));
        Device::new(backend, Arc::clone(&host_memory))
    };
    Ok((0..options.devices).map(device).collect())
}
