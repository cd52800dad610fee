//! Static properties of a GPU, read from the driver.
//!
//! Must not know how the properties are used.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{self, CUdevice_P2PAttribute, CUdevice_attribute};

use super::context::Context;
use super::driver::check;
use super::functions;
use crate::{DeviceInfo, DeviceKind, Link, Result};

/// Default budget, as a share of the free memory. The rest is for the driver, kernel stacks and
/// fragmentation of the pool.
const BUDGET_PERCENT: u64 = 90;

/// Reads the properties of the GPU of `context`, as it is without a compiler. `ordinals` are those of all GPUs.
pub(super) fn read(
    context: &Context,
    ordinal: usize,
    ordinals: std::ops::Range<usize>,
    memory_bytes: Option<u64>,
) -> Result<DeviceInfo> {
    let (free_bytes, total_bytes) = context.memory_info()?;
    let links = ordinals.filter(|&peer| peer != ordinal).map(|peer| link(context, peer));
    Ok(DeviceInfo {
        kind: DeviceKind::Cuda,
        ordinal,
        name: name(context)?,
        memory_bytes: total_bytes,
        budget_bytes: memory_bytes.unwrap_or(free_bytes / 100 * BUDGET_PERCENT),
        compute_capability: compute_capability(context)?,
        multiprocessors: attribute(context, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        threads_per_multiprocessor: attribute(
            context,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
        )?,
        l2_bytes: attribute(context, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        memory_bytes_per_s: memory_bytes_per_s(context),
        block_threads_max: 1024,
        shared_bytes_per_block_max: attribute(
            context,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?,
        driver: context.driver().version().to_string(),
        compiler: "none: prebuilt kernels".into(),
        links: links.collect::<Result<_>>()?,
    })
}

/// Two transfers per clock over the whole bus. 0 if the driver does not report the clock, as newer drivers may.
fn memory_bytes_per_s(context: &Context) -> u64 {
    let clock_khz = attribute(context, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).unwrap_or(0);
    let bus_bits = attribute(context, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).unwrap_or(0);
    u64::from(clock_khz) * 1000 * 2 * u64::from(bus_bits) / 8
}

/// Major and minor; (9, 0) for an H100.
pub(super) fn compute_capability(context: &Context) -> Result<(u32, u32)> {
    Ok((
        attribute(context, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(context, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// Whether kernels of `from` can reach the memory of GPU `peer`.
pub(super) fn can_access(from: &Context, peer: usize) -> Result<bool> {
    let (mut yes, peer) = (0, device(from, peer)?);
    // SAFETY: both handles came from the driver; `yes` outlives the call.
    from.check("cuDeviceCanAccessPeer", unsafe { functions::cuDeviceCanAccessPeer(&mut yes, from.device(), peer) })?;
    Ok(yes != 0)
}

fn link(from: &Context, peer: usize) -> Result<Link> {
    let access = can_access(from, peer)?;
    let mut native_atomics = 0;
    let attribute = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    let to = device(from, peer)?;
    // SAFETY: both handles came from the driver; `native_atomics` outlives the call.
    let result = unsafe { functions::cuDeviceGetP2PAttribute(&mut native_atomics, attribute, from.device(), to) };
    from.check("cuDeviceGetP2PAttribute", result)?;
    // The driver does not report the kind of link. NVLink supports native atomics, PCIe does not.
    let name = match (access, native_atomics != 0) {
        (true, true) => "NVLink",
        (true, false) => "PCIe",
        (false, _) => "no peer access",
    };
    Ok(Link { peer, access, name: name.into() })
}

fn device(context: &Context, ordinal: usize) -> Result<sys::CUdevice> {
    handle(context.label(), ordinal)
}

/// The driver's handle of a GPU. Callers have a [`super::driver::Driver`], so the driver is initialized.
fn handle(label: &str, ordinal: usize) -> Result<sys::CUdevice> {
    let mut device = 0;
    let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: the driver is initialized; `device` outlives the call.
    check(label, "cuDeviceGet", unsafe { functions::cuDeviceGet(&mut device, number) })?;
    Ok(device)
}

fn attribute(context: &Context, attribute: CUdevice_attribute) -> Result<u32> {
    attribute_by(context.label(), context.device(), attribute)
}

fn attribute_by(label: &str, device: sys::CUdevice, attribute: CUdevice_attribute) -> Result<u32> {
    let mut value: c_int = 0;
    // SAFETY: the handle came from the driver; `value` outlives the call.
    check(label, "cuDeviceGetAttribute", unsafe { functions::cuDeviceGetAttribute(&mut value, attribute, device) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn name(context: &Context) -> Result<String> {
    name_by(context.label(), context.device())
}

fn name_by(label: &str, device: sys::CUdevice) -> Result<String> {
    let mut bytes = [0_u8; 256];
    let length = bytes.len() as c_int;
    // SAFETY: the driver writes at most `length` bytes, including a terminating zero.
    let result = unsafe { functions::cuDeviceGetName(bytes.as_mut_ptr().cast::<c_char>(), length, device) };
    check(label, "cuDeviceGetName", result)?;
    Ok(CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned())
}

/// The name of a GPU, which need not be open.
pub(super) fn name_of(ordinal: usize) -> Result<String> {
    let label = format!("cuda:{ordinal}");
    name_by(&label, handle(&label, ordinal)?)
}

/// The compute capability of a GPU, which need not be open.
pub(super) fn capability_of(ordinal: usize) -> Result<(u32, u32)> {
    let label = format!("cuda:{ordinal}");
    let device = handle(&label, ordinal)?;
    Ok((
        attribute_by(&label, device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute_by(&label, device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}
