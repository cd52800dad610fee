//! Compiles kernels: those of a query that was never seen all at once, on all cores.
//!
//! A query finds out what to compile as it goes, one pipeline after the other. So the first module
//! that is not in memory starts a dry run of the plan, which generates the same kernels without
//! running any; they are compiled in parallel, and the query goes on.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use warpjoin_device::{Device, DeviceError, Kernel, Module, ModuleSource};

use super::query::Query;
use crate::Result;

/// Whether a query runs, or only finds out which modules it needs.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Runs; `true` once a dry run was made.
    Run(bool),
    /// Collects modules.
    Dry(HashSet<ModuleSource>),
}

impl Query<'_> {
    pub(crate) fn is_dry(&self) -> bool {
        matches!(self.mode, Mode::Dry(_))
    }

    /// Compiles a module for every device; the entry on each. A dry run notes it and returns none.
    pub(crate) fn compile(&mut self, module: &ModuleSource, entry: &str) -> Result<Vec<Kernel>> {
        if let Mode::Dry(modules) = &mut self.mode {
            modules.insert(module.clone());
            return Ok(vec![]);
        }
        let started = Instant::now();
        // Hashing and comparing a text takes its time: once a device, where it was compiled before.
        let known: Option<Vec<Module>> = self.session.devices().iter().map(|device| device.compiled(module)).collect();
        let kernels = match known {
            Some(modules) => modules.iter().map(|module| module.kernel(entry)).collect::<Result<_, _>>(),
            None => self.compile_new(module, entry),
        };
        self.metrics.compile_ns += started.elapsed().as_nanos() as u64;
        Ok(kernels?)
    }

    fn compile_new(&mut self, module: &ModuleSource, entry: &str) -> Result<Vec<Kernel>, DeviceError> {
        if let Mode::Run(false) = self.mode {
            self.mode = Mode::Run(true);
            self.compile_ahead(module);
        }
        let devices = self.session.devices();
        self.metrics.compiled_modules += devices.iter().filter(|device| !device.is_compiled(module)).count() as u64;
        devices.iter().map(|device| device.compile(module)?.kernel(entry)).collect()
    }

    /// Compiles, in parallel, what a dry run of the plan finds missing. What fails here fails again,
    /// with its message, where it is used.
    fn compile_ahead(&mut self, first: &ModuleSource) {
        let Ok(mut dry) = Query::new(self.session, self.inputs, self.options, self.plan) else { return };
        dry.mode = Mode::Dry(HashSet::from([first.clone()]));
        // Where the dry run ends early, what it found until then is still right.
        let _ = dry.output(self.plan).and_then(|relation| dry.result_rows(relation));
        let Mode::Dry(modules) = dry.mode else { return };
        // One device first: the others then find its kernels in the cache, and compile nothing twice.
        let (first, others) = self.session.devices().split_at(1);
        for devices in [first, others] {
            self.metrics.compiled_modules += compile_all(devices, &modules);
        }
    }
}

/// Compiles, in parallel, the modules that are not in the devices' memory; how many those are.
fn compile_all(devices: &[Device], modules: &HashSet<ModuleSource>) -> u64 {
    let work: Vec<(&Device, &ModuleSource)> = modules
        .iter()
        .flat_map(|module| devices.iter().map(move |device| (device, module)))
        .filter(|(device, module)| !device.is_compiled(module))
        .collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((device, module)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = device.compile(module) {
                        log::debug!("{}: {error}", module.name);
                    }
                }
            });
        }
    });
    work.len() as u64
}
