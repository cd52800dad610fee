//! `warpjoin devices`: lists the devices of this machine, and says why any cannot be used.
//!
//! Owns the text. Must not know how a kind of device is opened.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, ContentArrangement, Table};
use warpjoin::Session;
use warpjoin_device::{
    CudaOptions, CudaStatus, Device, DeviceInfo, DeviceKind, KernelCache, OpenedDevices, SimOptions, cuda_status,
    open_simulated, open_usable_cuda,
};

const HEADER: [&str; 9] = ["device", "name", "memory", "capability", "SMs", "L2", "links", "driver", "kernel compiler"];

/// Describes all devices as text for a terminal. Never fails: the text says why a device cannot be used.
pub fn describe_devices() -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(HEADER.map(|title| Cell::new(title).add_attribute(Attribute::Bold)));
    let mut notes = vec![describe_cuda(&cuda_status(), &mut table), describe_simulated(&mut table)];
    let cache = KernelCache::open(None);
    let problem = cache.problem().map(str::to_string).or_else(|| cache.write_problem());
    notes.push(match (cache.dir(), problem) {
        (_, Some(problem)) => format!("Kernel cache: {problem}"),
        (Some(dir), None) => format!("Kernel cache: {}", dir.display()),
        (None, None) => "Kernel cache: off (set WARPJOIN_KERNEL_CACHE to a folder)".to_string(),
    });
    format!("{table}\n{}", notes.join("\n"))
}

fn describe_cuda(status: &CudaStatus, table: &mut Table) -> String {
    let versions = format!(
        "driver {}, {} GPUs, NVRTC {}",
        status.driver.as_deref().unwrap_or("none"),
        status.gpus,
        match (&status.nvrtc, &status.nvrtc_path) {
            (Some(version), Some(path)) => format!("{version} ({})", path.display()),
            (Some(version), None) => version.clone(),
            (None, _) => "none: pipelines are interpreted by prebuilt kernels, and would run faster if libnvrtc could compile them".to_string(),
        }
    );
    if let Some(problem) = &status.problem {
        return format!("CUDA: cannot be used: {problem}\n      ({versions})");
    }
    match open_usable_cuda(&CudaOptions::default()) {
        Ok(OpenedDevices { devices, left_out, .. }) => {
            devices.iter().for_each(|device| add_row(table, device));
            let left_out = left_out
                .iter()
                .map(|gpu| format!("\n      cuda:{} {} is not used: {}", gpu.ordinal, gpu.name, gpu.error));
            let in_use = devices.iter().filter_map(|device| {
                let held_bytes =
                    held_by_others(device.info().memory_bytes, device.unused_bytes()?, device.held_bytes()?)?;
                Some(format!("\n      {}: other processes hold {}", device.label(), show_bytes(held_bytes)))
            });
            format!("CUDA: {versions}{}{}", left_out.collect::<String>(), in_use.collect::<String>())
        }
        Err(error) => format!("CUDA: cannot be used: {error}\n      ({versions})"),
    }
}

fn describe_simulated(table: &mut Table) -> String {
    match open_simulated(&SimOptions { devices: 1, ..SimOptions::default() }) {
        Ok(devices) => {
            devices.iter().for_each(|device| add_row(table, device));
            format!("Simulated devices: 1 to {} are available (--device sim --devices N)", Session::DEVICES_MAX)
        }
        Err(error) => format!("Simulated devices: cannot be used: {error}"),
    }
}

/// Memory of a GPU that this process's own contexts and modules take, at most.
const CONTEXT_BYTES_MAX: u64 = 1 << 30;

/// Bytes that other processes hold of a device's memory, to about 1 GiB; `None` if that is all this process's.
fn held_by_others(memory_bytes: u64, unused_bytes: u64, held_bytes: u64) -> Option<u64> {
    let others = memory_bytes.saturating_sub(unused_bytes).saturating_sub(held_bytes);
    (others > CONTEXT_BYTES_MAX).then_some(others)
}

fn add_row(table: &mut Table, device: &Device) {
    let info = device.info();
    let unused = device.unused_bytes().map_or_else(String::new, |bytes| format!("{} free, ", show_bytes(bytes)));
    let capability = match info.kind {
        DeviceKind::Cuda => format!("{}.{}", info.compute_capability.0, info.compute_capability.1),
        DeviceKind::Simulated => "-".to_string(),
    };
    table.add_row([
        format!("{}:{}", info.kind, info.ordinal),
        info.name.clone(),
        format!("{} ({unused}budget {})", show_bytes(info.memory_bytes), show_bytes(info.budget_bytes)),
        capability,
        info.multiprocessors.to_string(),
        show_bytes(info.l2_bytes),
        show_links(info),
        info.driver.clone(),
        info.compiler.clone(),
    ]);
}

/// Links, grouped by name: `NVLink to 1, 2, 3`.
fn show_links(info: &DeviceInfo) -> String {
    let mut lines: Vec<(String, Vec<String>)> = vec![];
    for link in info.links.iter().filter(|link| link.peer != info.ordinal) {
        let name = if link.access { link.name.clone() } else { format!("{} (no access)", link.name) };
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, peers)) => peers.push(link.peer.to_string()),
            None => lines.push((name, vec![link.peer.to_string()])),
        }
    }
    if lines.is_empty() {
        return "-".to_string();
    }
    lines.iter().map(|(name, peers)| format!("{name} to {}", peers.join(", "))).collect::<Vec<_>>().join("\n")
}

/// Bytes in a suitable unit of a power of 1024.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(show_bytes(0), "0 B");
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(1536), "1.5 KiB");
        assert_eq!(show_bytes(80 << 30), "80.0 GiB");
        assert_eq!(show_bytes(u64::MAX), "16777216 TiB");
    }

    #[test]
    fn use_by_other_processes_is_told() {
        let gib = |count: u64| count << 30;
        assert_eq!(held_by_others(gib(80), gib(79), gib(1)), None);
        assert_eq!(held_by_others(gib(80), gib(80) - (500 << 20), 0), None, "a context");
        assert_eq!(held_by_others(gib(80), gib(10), gib(40)), Some(gib(30)));
        assert_eq!(held_by_others(gib(80), gib(10), gib(79)), None);
    }

    #[test]
    fn describing_devices_never_fails() {
        let text = describe_devices();
        assert!(
            text.contains("CUDA:") && text.contains("Simulated devices:") && text.contains("Kernel cache:"),
            "{text}"
        );
    }
}
