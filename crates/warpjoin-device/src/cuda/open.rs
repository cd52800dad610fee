//! Opening GPUs: all that were asked for, or those that can be used; each once a process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::CudaDevice;
use super::driver::Driver;
use super::{CudaOptions, info, none_shown};
use crate::cache::KernelCache;
use crate::device::WeakDevice;
use crate::{DEVICES_MAX, Device, DeviceError, Result};

/// The oldest GPUs that kernels are written for: Ampere.
const OLDEST_CAPABILITY: (u32, u32) = (8, 0);

/// GPUs that were opened, and those that were left out.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenedDevices {
    /// In the order of their ordinals. Each can reach the memory of all others, unless a number of them was asked for.
    pub devices: Vec<Device>,
    /// GPUs that the driver shows and that are not used, each with the reason.
    pub left_out: Vec<LeftOut>,
}

/// A GPU that is not used.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LeftOut {
    /// The driver's number of the GPU.
    pub ordinal: usize,
    /// Such as `Tesla T4`; empty where the driver does not say.
    pub name: String,
    /// Why.
    pub error: DeviceError,
}

/// Opens GPUs, ordinals 0 and on. Each is a [`Device`] with its own memory pool in the primary context, or in a new one where
/// a kernel of this process has broken that. A GPU that is open in this process already is not opened again: the devices share
/// context, memory pool and budget, and are the same if they have the same kernel cache. [`CudaOptions::memory_bytes`] then
/// sets the budget that is shared.
///
/// # Errors
/// [`DeviceError::NoDriver`], [`DeviceError::NoGpu`] (also when there are fewer than asked for),
/// [`DeviceError::NoNvrtc`], [`DeviceError::UnknownArchitecture`], [`DeviceError::UnusableGpu`], or a failed call of the
/// driver: all or none are opened.
pub fn open_cuda(options: &CudaOptions) -> Result<Vec<Device>> {
    let driver = Driver::get()?;
    let gpus = driver.gpus()?;
    let devices = options.devices.unwrap_or(gpus);
    if gpus == 0 {
        return Err(none_shown());
    }
    if devices == 0 || devices > gpus {
        return Err(DeviceError::NoGpu { reason: format!("{devices} asked for, {gpus} there") });
    }
    (0..devices).map(|ordinal| open(driver, ordinal, gpus, options)).collect()
}

/// Opens the GPUs that a session can use together, ordinals 0 and on: at most [`DEVICES_MAX`], that can be opened and that can
/// reach each other's memory. Where [`CudaOptions::devices`] asks for a number of them, they need not reach each other: what
/// goes between two that don't has to be brought through the host. The others are left out, each with the reason.
///
/// # Errors
/// Where no GPU can be used, whichever it is: [`DeviceError::NoDriver`], [`DeviceError::NoGpu`], [`DeviceError::NoNvrtc`].
pub fn open_usable_cuda(options: &CudaOptions) -> Result<OpenedDevices> {
    let driver = Driver::get()?;
    let gpus = driver.gpus()?;
    if gpus == 0 {
        return Err(none_shown());
    }
    super::Nvrtc::get()?;
    let devices_max = options.devices.unwrap_or(DEVICES_MAX).min(DEVICES_MAX);
    let reach = |from: &Device, to: &Device| match from.open_peer_access(to) {
        Err(DeviceError::NoPeerLink { .. }) if options.devices.is_some() => Ok(()),
        opened => opened,
    };
    let (devices, left_out) = select(gpus, devices_max, |ordinal| open(driver, ordinal, gpus, options), reach);
    let named = |(ordinal, error)| LeftOut { ordinal, name: info::name_of(ordinal).unwrap_or_default(), error };
    Ok(OpenedDevices { devices, left_out: left_out.into_iter().map(named).collect() })
}

/// What was chosen, and what was left out and why.
type Selection<D> = (Vec<D>, Vec<(usize, DeviceError)>);

/// Opens one after the other, and keeps those that reach all that are kept, and are reached by them.
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
            let reason = format!("{devices_max} GPUs are in use already, and no more are wanted");
            Err(DeviceError::UnusableGpu { device: format!("cuda:{ordinal}"), reason })
        };
        match opened {
            Ok(device) => kept.push(device),
            Err(error) => left_out.push((ordinal, error)),
        }
    }
    (kept, left_out)
}

/// GPUs that are open in this process.
static OPEN: Mutex<Vec<WeakDevice>> = Mutex::new(vec![]);

fn open_devices() -> MutexGuard<'static, Vec<WeakDevice>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device of a GPU: the one that is open, if there is one.
fn open(driver: Driver, ordinal: usize, gpus: usize, options: &CudaOptions) -> Result<Device> {
    let capability = info::capability_of(ordinal)?;
    if capability < OLDEST_CAPABILITY {
        let (major, minor) = OLDEST_CAPABILITY;
        let reason = format!(
            "its compute capability is {}.{}, and {major}.{minor} (Ampere) or later is needed",
            capability.0, capability.1
        );
        return Err(DeviceError::UnusableGpu { device: format!("cuda:{ordinal}"), reason });
    }
    let cache = KernelCache::open(options.kernel_cache.as_deref());
    let mut open = open_devices();
    open.retain(WeakDevice::is_open);
    let devices: Vec<Device> = open.iter().filter_map(WeakDevice::upgrade).collect();
    // One whose context is broken serves nobody any more: that comes out where the GPU is opened anew.
    let of_gpu: Vec<(&Device, &CudaDevice)> = (devices.iter())
        .filter_map(|device| Some((device, CudaDevice::of(device)?)))
        .filter(|(device, gpu)| device.info().ordinal == ordinal && gpu.is_alive())
        .collect();
    let device = match (of_gpu.iter().find(|(_, gpu)| gpu.has_cache(&cache)), of_gpu.first()) {
        (Some((device, _)), _) => Device::clone(device),
        (None, Some((device, gpu))) => Device::sharing_memory(Arc::new(gpu.with_cache(cache)), device),
        (None, None) => Device::new(Arc::new(CudaDevice::open(driver, ordinal, 0..gpus, options, cache)?)),
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

    /// Chosen ordinals, and those that were left out.
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
    fn what_can_be_opened_and_reached_is_kept() {
        let yes = |_, _| true;
        assert_eq!(ordinals(4, 8, |_| true, yes), (vec![0, 1, 2, 3], vec![]));
        assert_eq!(ordinals(4, 8, |gpu| gpu != 0 && gpu != 2, yes), (vec![1, 3], vec![0, 2]));
        assert_eq!(ordinals(2, 8, |_| false, yes), (vec![], vec![0, 1]));
        // More than a session takes, of which one does not open.
        assert_eq!(ordinals(10, 8, |gpu| gpu != 3, yes), (vec![0, 1, 2, 4, 5, 6, 7, 8], vec![3, 9]));
        // Access one way only is none.
        assert_eq!(ordinals(3, 8, |_| true, |from, to| (from, to) != (1, 0)), (vec![0, 2], vec![1]));
        assert_eq!(ordinals(3, 8, |_| true, |from, to| (from, to) != (0, 1)), (vec![0, 2], vec![1]));
        assert_eq!(ordinals(3, 8, |_| true, |_, _| false), (vec![0], vec![1, 2]));
    }

    #[test]
    fn each_that_is_left_out_has_its_reason() {
        let open = |ordinal| if ordinal == 1 { Err(lost(1)) } else { Ok(ordinal) };
        let (kept, left_out) = select(4, 2, open, |_, _| Ok(()));
        assert_eq!(kept, [0, 2]);
        assert!(matches!(left_out[0], (1, DeviceError::DeviceLost { .. })));
        let (ordinal, error) = &left_out[1];
        assert!(*ordinal == 3 && error.to_string().contains("2 GPUs are in use already"), "{error}");
    }
}
