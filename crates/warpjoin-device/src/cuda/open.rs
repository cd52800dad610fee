//! Opening GPUs: a requested number, or all usable ones.
//!
//! Owns the GPUs that are open in this process, so that each is opened once. Must not know what they are used for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::CudaDevice;
use super::driver::Driver;
use super::{CudaOptions, info, no_visible_gpu};
use crate::cache::KernelCache;
use crate::device::WeakDevice;
use crate::memory::host_memory;
use crate::{DEVICES_MAX, Device, DeviceError, Result};

/// The oldest supported GPUs: Ampere.
const OLDEST_CAPABILITY: (u32, u32) = (8, 0);

/// The opened GPUs, and those that were left out.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenedDevices {
    /// Opened GPUs by ordinal. All have peer access to each other, unless [`CudaOptions::devices`] is set.
    pub devices: Vec<Device>,
    /// Visible GPUs that are not used, each with the reason.
    pub left_out: Vec<LeftOut>,
}

/// A GPU that is not used.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LeftOut {
    /// Ordinal of the GPU.
    pub ordinal: usize,
    /// For example `Tesla T4`; empty if unknown.
    pub name: String,
    /// Why it is not used.
    pub error: DeviceError,
}

/// Opens GPUs, starting at ordinal 0. Each [`Device`] has its own memory pool in the GPU's primary context, or in a new context
/// if a kernel of this process broke the primary one.
///
/// A GPU that is already open in this process is not opened again. Devices of the same GPU share its context, memory pool and
/// budget, and are the same device if they have the same kernel cache. [`CudaOptions::memory_bytes`] then changes the shared
/// budget.
///
/// # Errors
/// [`DeviceError::NoDriver`], [`DeviceError::NoGpu`] (also when there are fewer than requested),
/// [`DeviceError::UnknownArchitecture`], [`DeviceError::UnusableGpu`], or a failed driver call.
/// Then no GPU is opened.
pub fn open_cuda(options: &CudaOptions) -> Result<Vec<Device>> {
    let driver = Driver::get()?;
    let gpus = driver.gpus()?;
    let devices = options.devices.unwrap_or(gpus);
    if gpus == 0 {
        return Err(no_visible_gpu());
    }
    if devices == 0 || devices > gpus {
        return Err(DeviceError::NoGpu { reason: format!("{devices} requested, {gpus} visible") });
    }
    (0..devices).map(|ordinal| open(driver, ordinal, gpus, options)).collect()
}

/// Opens the GPUs that a session can use together, starting at ordinal 0: at most [`DEVICES_MAX`] that can be opened and have
/// peer access to each other. The other GPUs are left out, each with the reason. If [`CudaOptions::devices`] is set, peer
/// access is not required; callers then copy between GPUs without it through the host.
///
/// # Errors
/// When CUDA cannot be used at all: [`DeviceError::NoDriver`], [`DeviceError::NoGpu`].
pub fn open_usable_cuda(options: &CudaOptions) -> Result<OpenedDevices> {
    let driver = Driver::get()?;
    let gpus = driver.gpus()?;
    if gpus == 0 {
        return Err(no_visible_gpu());
    }
    let devices_max = options.devices.unwrap_or(DEVICES_MAX).min(DEVICES_MAX);
    let reach = |from: &Device, to: &Device| match from.open_peer_access(to) {
        Err(DeviceError::NoPeerLink { .. }) if options.devices.is_some() => Ok(()),
        opened => opened,
    };
    let (devices, left_out) = select(gpus, devices_max, |ordinal| open(driver, ordinal, gpus, options), reach);
    let named = |(ordinal, error)| LeftOut { ordinal, name: info::name_of(ordinal).unwrap_or_default(), error };
    Ok(OpenedDevices { devices, left_out: left_out.into_iter().map(named).collect() })
}

/// The chosen devices, and the ordinals that were left out with the reason.
type Selection<D> = (Vec<D>, Vec<(usize, DeviceError)>);

/// Opens one device after the other, and keeps those that have peer access to and from all kept ones.
fn select<D>(
    count: usize,
    devices_max: usize,
    open: impl Fn(usize) -> Result<D>,
    reach: impl Fn(&D, &D) -> Result<()>,
) -> Selection<D> {
    let (mut kept, mut left_out): Selection<D> = (vec![], vec![]);
    for ordinal in 0..count {
        let opened = if kept.len() < devices_max {
            open(ordinal).and_then(|device| {
                let both_ways = |other: &D| reach(&device, other).and_then(|()| reach(other, &device));
                kept.iter().try_for_each(both_ways)?;
                Ok(device)
            })
        } else {
            let reason = format!("{devices_max} GPUs are in use already, which is the maximum");
            Err(DeviceError::UnusableGpu { device: format!("cuda:{ordinal}"), reason })
        };
        match opened {
            Ok(device) => kept.push(device),
            Err(error) => left_out.push((ordinal, error)),
        }
    }
    (kept, left_out)
}

/// Devices that are open in this process.
static OPEN: Mutex<Vec<WeakDevice>> = Mutex::new(vec![]);

fn open_devices() -> MutexGuard<'static, Vec<WeakDevice>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the free memory of all GPUs that this process has open to the driver, for other processes. The next allocations
/// take 1.3 ms a GiB again. A GPU that fails is left as it is.
pub fn trim_open_gpus() {
    // Not under the lock: trimming waits for the GPU.
    let devices: Vec<Device> = open_devices().iter().filter_map(WeakDevice::upgrade).collect();
    for device in devices {
        if let Err(error) = device.trim() {
            log::debug!("free memory is not returned: {error}");
        }
    }
}

/// Opens a GPU, or returns the device that is already open.
fn open(driver: Driver, ordinal: usize, gpus: usize, options: &CudaOptions) -> Result<Device> {
    let capability = info::capability_of(ordinal)?;
    if capability < OLDEST_CAPABILITY {
        let (major, minor) = OLDEST_CAPABILITY;
        let reason = format!(
            "its compute capability is {}.{}, warpjoin needs {major}.{minor} (Ampere) or later",
            capability.0, capability.1
        );
        return Err(DeviceError::UnusableGpu { device: format!("cuda:{ordinal}"), reason });
    }
    let cache = KernelCache::open(options.kernel_cache.as_deref());
    let mut open = open_devices();
    open.retain(WeakDevice::is_open);
    let devices: Vec<Device> = open.iter().filter_map(WeakDevice::upgrade).collect();
    // Skips devices with a broken context. Opening the GPU again tries a new context.
    let of_gpu: Vec<(&Device, &CudaDevice)> = (devices.iter())
        .filter_map(|device| Some((device, CudaDevice::of(device)?)))
        .filter(|(device, gpu)| device.info().ordinal == ordinal && gpu.is_alive())
        .collect();
    let device = match (of_gpu.iter().find(|(_, gpu)| gpu.has_cache(&cache)), of_gpu.first()) {
        (Some((device, _)), _) => Device::clone(device),
        (None, Some((device, gpu))) => Device::sharing_memory(Arc::new(gpu.with_cache(cache)), device),
        (None, None) => {
            let opened = CudaDevice::open(driver, ordinal, 0..gpus, options, cache)?;
            Device::new(Arc::new(opened), host_memory())
        }
    };
    if let Some(bytes) = options.memory_bytes {
        device.memory().set_limit_bytes(bytes);
    }
    if !devices.iter().any(|known| known.is_same(&device)) {
        open.push(device.downgrade());
    }
    drop(open);
    Ok(device)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn lost(ordinal: usize) -> DeviceError {
        DeviceError::DeviceLost { device: format!("cuda:{ordinal}"), call: "cuX", reason: String::new() }
    }

    /// The chosen ordinals, and those that were left out.
    fn ordinals(
        count: usize,
        devices_max: usize,
        opens: impl Fn(usize) -> bool,
        reaches: impl Fn(usize, usize) -> bool,
    ) -> (Vec<usize>, Vec<usize>) {
        let open = |ordinal| if opens(ordinal) { Ok(ordinal) } else { Err(lost(ordinal)) };
        let no_link = |from: &usize, to: &usize| DeviceError::NoPeerLink { from: from.to_string(), to: to.to_string() };
        let reach = |from: &usize, to: &usize| if reaches(*from, *to) { Ok(()) } else { Err(no_link(from, to)) };
        let (kept, left_out) = select(count, devices_max, open, reach);
        (kept, left_out.into_iter().map(|(ordinal, _)| ordinal).collect())
    }

    #[test]
    fn devices_with_mutual_access_are_kept() {
        let yes = |_, _| true;
        assert_eq!(ordinals(4, 8, |_| true, yes), (vec![0, 1, 2, 3], vec![]));
        assert_eq!(ordinals(4, 8, |gpu| gpu != 0 && gpu != 2, yes), (vec![1, 3], vec![0, 2]));
        assert_eq!(ordinals(2, 8, |_| false, yes), (vec![], vec![0, 1]));
        // More than the maximum, and one of them does not open.
        assert_eq!(ordinals(10, 8, |gpu| gpu != 3, yes), (vec![0, 1, 2, 4, 5, 6, 7, 8], vec![3, 9]));
        // Access in one direction is not enough.
        assert_eq!(ordinals(3, 8, |_| true, |from, to| (from, to) != (1, 0)), (vec![0, 2], vec![1]));
        assert_eq!(ordinals(3, 8, |_| true, |from, to| (from, to) != (0, 1)), (vec![0, 2], vec![1]));
        assert_eq!(ordinals(3, 8, |_| true, |_, _| false), (vec![0], vec![1, 2]));
    }

    #[test]
    fn each_left_out_device_has_a_reason() {
        let open = |ordinal| if ordinal == 1 { Err(lost(1)) } else { Ok(ordinal) };
        let (kept, left_out) = select(4, 2, open, |_, _| Ok(()));
        assert_eq!(kept, [0, 2]);
        assert!(matches!(left_out[0], (1, DeviceError::DeviceLost { .. })));
        let (ordinal, error) = &left_out[1];
        assert!(*ordinal == 3 && error.to_string().contains("2 GPUs are in use already"), "{error}");
    }
}
