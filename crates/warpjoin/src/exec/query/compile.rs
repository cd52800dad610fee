//! The kernels of a query, and the runtime decisions that they depend on.
//!
//! A query requests a kernel when it needs it, and waits for it if it is not in memory. A pipeline seldom waits: while
//! its own kernel is missing, a compiled interpreter kernel runs it (`launch/tier.rs`). Kernels of interpreted
//! pipelines are compiled when the query has ended, and are used from then on.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpjoin_columns::devices::compiler::{QueryId, note};
use warpjoin_columns::{DeviceSet, Error, Result};
use warpjoin_device::{Kernel, ModuleSource, span};
use warpjoin_plan::options::CodeTier;

use super::Query;
use crate::exec::decision::RuntimeDecision;
use crate::exec::metrics::HostDecision;

/// The shortest wait for a kernel that metrics name.
const WAIT_MIN: Duration = Duration::from_millis(20);

/// The kernels that a query has compiled, and its runtime decisions.
pub(crate) struct Compilation {
    devices: Arc<DeviceSet>,
    /// Runtime decisions, each with the number of pipelines before it.
    decisions: Vec<(usize, RuntimeDecision)>,
    /// Whether modules were requested from the background threads.
    has_asked: bool,
    /// Modules of pipelines that were interpreted.
    better: Vec<ModuleSource>,
    query: QueryId,
}

impl Compilation {
    /// State of a query that has compiled nothing yet.
    pub(crate) fn new(devices: &Arc<DeviceSet>) -> Self {
        let devices = Arc::clone(devices);
        Self { devices, decisions: vec![], has_asked: false, better: vec![], query: QueryId::new() }
    }
}

impl Query<'_> {
    /// Records a runtime decision, before anything that depends on it is compiled.
    pub(crate) fn note_decision(&mut self, decision: RuntimeDecision) {
        self.compilation.decisions.push((self.metrics.pipelines.len(), decision));
    }

    /// The number of decisions so far, for [`Self::note_decision_instead`].
    pub(crate) fn decisions(&self) -> usize {
        self.compilation.decisions.len()
    }

    /// Replaces all decisions after the first `decisions` by one: an attempt has failed.
    pub(crate) fn note_decision_instead(&mut self, decisions: usize, decision: RuntimeDecision) {
        self.compilation.decisions.truncate(decisions);
        self.note_decision(decision);
    }

    /// The host's decisions, for the metrics.
    pub(in crate::exec) fn host_decisions(&self) -> Vec<HostDecision> {
        let said = self.compilation.decisions.iter().filter(|(_, decision)| decision.kind().is_open(self.devices()));
        said.map(|&(pipelines, decision)| HostDecision { pipelines, decision: decision.to_string() }).collect()
    }

    /// Compiles an entry of a module for every device; a kernel for each.
    pub(crate) fn compile(&mut self, module: &ModuleSource, entry: &str) -> Result<Vec<Kernel>> {
        self.compile_all([(module, entry)]).map(|[kernels]| kernels)
    }

    /// Compiles entries that are needed at one point; missing ones are compiled in parallel.
    pub(crate) fn compile_all<const N: usize>(
        &mut self,
        wanted: [(&ModuleSource, &str); N],
    ) -> Result<[Vec<Kernel>; N]> {
        let kernels = self.compile_some(&wanted)?;
        kernels.try_into().map_err(|_| Error::internal("wrong number of kernels"))
    }

    /// As [`Self::compile_all`], for any number of entries.
    pub(crate) fn compile_some(&mut self, wanted: &[(&ModuleSource, &str)]) -> Result<Vec<Vec<Kernel>>> {
        let devices = self.session.devices();
        let modules: Vec<_> = wanted.iter().map(|(module, entry)| devices[0].module_of(module, entry)).collect();
        let _span = span(|| "kernels");
        let started = Instant::now();
        // Hashing and comparing a text takes its time: once a device, where it was compiled before.
        let known = |(module, &(_, entry)): (&Cow<'_, ModuleSource>, &(&ModuleSource, &str))| {
            devices.iter().map(|device| Some(device.compiled(module)?.kernel(entry))).collect::<Option<Vec<_>>>()
        };
        if let Some(known) = modules.iter().zip(wanted).map(known).collect::<Option<Vec<_>>>() {
            let kernels = known.into_iter().map(|kernels| kernels.into_iter().collect()).collect::<Result<_, _>>();
            self.metrics.compile_ns += started.elapsed().as_nanos() as u64;
            // Whatever is enqueued needs a kernel.
            self.note_first_work()?;
            return Ok(kernels?);
        }
        self.compile_at_once(&modules);
        self.release_permit();
        let mut kernels = vec![vec![]; wanted.len()];
        for ((module, (_, entry)), kernels) in modules.iter().zip(wanted).zip(&mut kernels) {
            for device in devices {
                let begun = Instant::now();
                let was_missing = !device.is_compiled(module);
                let compiled = device.compile_unless(module, Some(&self.options.cancel))?;
                kernels.push(compiled.kernel(entry)?);
                if was_missing {
                    note(module, begun, "waited for");
                    let waited = begun.elapsed();
                    if waited >= WAIT_MIN {
                        let wait = format!("{} ms for {entry} of {}", waited.as_millis(), module.name);
                        self.metrics.kernel_waits.push(wait);
                    }
                }
            }
        }
        self.metrics.compile_ns += started.elapsed().as_nanos() as u64;
        self.note_first_work()?;
        Ok(kernels)
    }

    /// Counts the missing modules, and lets the background threads compile all but the first, which this thread
    /// compiles.
    fn compile_at_once(&mut self, modules: &[Cow<'_, ModuleSource>]) {
        let devices = self.session.devices();
        let mut missing: Vec<ModuleSource> = vec![];
        for module in modules {
            let count = devices.iter().filter(|device| !device.is_compiled(module)).count() as u64;
            if count > 0 && !missing.contains(module) {
                self.metrics.compiled_modules += count;
                missing.push(ModuleSource::clone(module));
            }
        }
        if missing.len() > 1 {
            self.compilation.has_asked = true;
            let others = missing.split_off(1);
            self.session.device_set().compiler().enqueue(self.compilation.query, others, devices);
        }
    }

    /// Records the module of an interpreted pipeline, to be compiled when the query has ended.
    pub(in crate::exec) fn note_interpreted(&mut self, module: &ModuleSource) {
        self.metrics.interpreted_kernels += 1;
        if self.options.code_tier == CodeTier::Auto && self.session.devices()[0].can_compile() {
            self.compilation.better.push(module.clone());
        }
    }
}

impl Drop for Compilation {
    /// Requests the kernels of interpreted pipelines, and cancels other requests that are still queued.
    fn drop(&mut self) {
        if !self.better.is_empty() {
            let better = std::mem::take(&mut self.better);
            self.devices.compiler().improve(self.query, better, self.devices.devices());
        }
        if self.has_asked {
            self.devices.compiler().forget(self.query);
        }
    }
}
