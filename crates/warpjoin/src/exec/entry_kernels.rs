//! Hand-written kernels, compiled entry by entry on first use, for every device.

use std::collections::HashMap;

use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Kernel, Launch, ModuleSource, Stream};
use warpjoin_kernels::KernelParams;

use super::query::Query;

/// Kernels by the names of their entries.
#[derive(Default)]
pub(super) struct EntryKernels(HashMap<&'static str, Vec<Kernel>>);

impl EntryKernels {
    /// Compiles the entries that are missing, each from the one of `modules` that has it.
    pub(super) fn add(
        &mut self,
        query: &mut Query<'_>,
        entries: impl IntoIterator<Item = &'static str>,
        modules: impl FnOnce() -> [ModuleSource; 2],
    ) -> Result<()> {
        let entries: Vec<_> = entries.into_iter().filter(|entry| !self.0.contains_key(entry)).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let modules = modules();
        let module_of = |entry: &str| {
            let found = modules.iter().find(|module| module.entries.iter().any(|known| known == entry));
            found.ok_or_else(|| Error::internal(format!("no module has kernel {entry}")))
        };
        let wanted = entries.iter().map(|entry| Ok((module_of(entry)?, *entry))).collect::<Result<Vec<_>>>()?;
        let kernels = query.compile_some(&wanted)?;
        self.0.extend(entries.into_iter().zip(kernels));
        Ok(())
    }

    fn get(&self, entry: &str, device: usize) -> Result<&Kernel> {
        let kernels = self.0.get(entry).and_then(|kernels| kernels.get(device));
        kernels.ok_or_else(|| Error::internal(format!("kernel {entry} was requested but not compiled")))
    }
}

/// Enqueues these kernels on one device, and counts the launches.
pub(super) struct EntryLaunches<'a> {
    kernels: &'a EntryKernels,
    device: usize,
    pub stream: &'a Stream,
    pub launches: u64,
}

impl<'a> EntryLaunches<'a> {
    pub(super) fn new(kernels: &'a EntryKernels, device: usize, stream: &'a Stream) -> Self {
        Self { kernels, device, stream, launches: 0 }
    }

    pub(super) fn launch(&mut self, entry: &str, launch: Launch, params: &impl KernelParams<Buffer>) -> Result<()> {
        self.stream.launch(self.kernels.get(entry, self.device)?, launch, params)?;
        self.launches += 1;
        Ok(())
    }

    /// Threads of a block: `wanted`, or fewer if the device does not allow that many.
    pub(super) fn threads(&self, wanted: u32) -> u32 {
        self.stream.device().info().block_threads(wanted)
    }
}
