//! Shared by the tests of the simulated device.
#![allow(dead_code, clippy::unwrap_used, reason = "tests; each uses a part")]

use warpjoin_device::{
    Arg, Buffer, Device, DeviceError, Launch, Module, ModuleSource, SimOptions, Stream, open_simulated,
};

pub(crate) fn options(seed: Option<u64>) -> SimOptions {
    SimOptions { seed, ..SimOptions::default() }
}

pub(crate) fn open(seed: Option<u64>) -> Device {
    open_simulated(&options(seed)).unwrap().remove(0)
}

pub(crate) fn open_many(devices: usize, seed: Option<u64>) -> Vec<Device> {
    open_simulated(&SimOptions { devices, ..options(seed) }).unwrap()
}

pub(crate) fn source(text: &str, entries: &[&str]) -> ModuleSource {
    ModuleSource {
        name: "test".into(),
        text: format!("#include \"common/simt.cuh\"\n{text}"),
        entries: entries.iter().map(ToString::to_string).collect(),
        defines: vec![],
    }
}

/// A module with one entry `kernel` over `struct Params { u64* out; u64 n; }`.
pub(crate) fn kernel_source(body: &str) -> ModuleSource {
    source(&format!("struct Params {{ u64* out; u64 n; }};\nWJ_ENTRY(kernel, Params, 1024) {{ {body} }}"), &["kernel"])
}

pub(crate) fn compile(device: &Device, body: &str) -> Module {
    device.compile(&kernel_source(body)).unwrap()
}

pub(crate) fn shape(blocks: u32, block_threads: u32) -> Launch {
    Launch { blocks, block_threads, shared_bytes: 0 }
}

pub(crate) fn read_u64(stream: &Stream, buffer: &Buffer) -> Result<Vec<u64>, DeviceError> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    stream.read(buffer, 0, &mut bytes)?;
    Ok(bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect())
}

/// Runs `body` once over `slots` zeroed numbers, and returns them.
pub(crate) fn try_run(device: &Device, body: &str, launch: Launch, slots: u64) -> Result<Vec<u64>, DeviceError> {
    let module = device.compile(&kernel_source(body))?;
    let stream = device.create_stream()?;
    let out = stream.alloc_filled(slots * 8, 0)?;
    stream.launch(&module.kernel("kernel")?, launch, &[Arg::Buffer(&out), Arg::U64(slots)])?;
    read_u64(&stream, &out)
}

pub(crate) fn run(device: &Device, body: &str, launch: Launch, slots: u64) -> Vec<u64> {
    try_run(device, body, launch, slots).unwrap()
}

/// The error that `body` ends with.
pub(crate) fn error_of(device: &Device, body: &str, launch: Launch) -> String {
    try_run(device, body, launch, 1024).unwrap_err().to_string()
}

/// No seed, and a few seeds.
pub(crate) fn seeds() -> impl Iterator<Item = Option<u64>> {
    std::iter::once(None).chain((0..5).map(Some))
}
