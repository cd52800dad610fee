//! The kernels of a query, and what it finds out on which they depend.
//!
//! A query asks for a kernel where it is wanted, and waits for those that are not in memory. A pipeline seldom waits: while
//! its own kernel is missing, one that is there interprets it (`launch/tier.rs`). Kernels of pipelines that were interpreted
//! are compiled when the query has ended, and run from then on.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use warpjoin_device::{Kernel, ModuleSource, span};

use super::Query;
use crate::devices::compiler::{QueryId, note};
use crate::exec::decision::{DecisionKind, RuntimeDecision};
use crate::exec::metrics::HostDecision;
use crate::options::CodeTier;
use crate::{DeviceSet, Error, Result};

/// What a query has compiled, and has found out that kernels depend on.
pub(crate) struct Compilation {
    devices: Arc<DeviceSet>,
    /// What only a run can tell; each with the number of pipelines before it.
    decisions: Vec<(usize, RuntimeDecision)>,
    /// Whether the background threads were asked for modules.
    has_asked: bool,
    /// Modules in whose place kernels that interpret have run.
    better: Vec<ModuleSource>,
    query: QueryId,
}

impl Compilation {
    /// Of a query that has compiled nothing yet.
    pub(crate) fn new(devices: &Arc<DeviceSet>) -> Self {
        let devices = Arc::clone(devices);
        Self { devices, decisions: vec![], has_asked: false, better: vec![], query: QueryId::new() }
    }
}

impl Query<'_> {
    /// Notes what a run has found out, before anything is compiled that depends on it.
    pub(crate) fn note_decision(&mut self, decision: RuntimeDecision) {
        self.compilation.decisions.push((self.metrics.pipelines.len(), decision));
    }

    /// The number of decisions so far, for [`Self::note_decision_instead`].
    pub(crate) fn decisions(&self) -> usize {
        self.compilation.decisions.len()
    }

    /// What the run tried after its first `decisions` decisions failed: one decision replaces those of the attempt.
    pub(crate) fn note_decision_instead(&mut self, decisions: usize, decision: RuntimeDecision) {
        self.compilation.decisions.truncate(decisions);
        self.note_decision(decision);
    }

    /// What the host has decided, for the metrics.
    pub(in crate::exec) fn host_decisions(&self) -> Vec<HostDecision> {
        // The only device has the build side anyway.
        let is_open = |decision: &RuntimeDecision| decision.kind() != DecisionKind::BuildSide || self.devices() > 1;
        let said = self.compilation.decisions.iter().filter(|(_, decision)| is_open(decision));
        said.map(|&(pipelines, decision)| HostDecision { pipelines, decision: decision.to_string() }).collect()
    }

    /// Compiles an entry of a module for every device; a kernel for each.
    pub(crate) fn compile(&mut self, module: &ModuleSource, entry: &str) -> Result<Vec<Kernel>> {
        self.compile_all([(module, entry)]).map(|[kernels]| kernels)
    }

    /// Compiles entries that are wanted at one point, those that are missing at once.
    pub(crate) fn compile_all<const N: usize>(
        &mut self,
        wanted: [(&ModuleSource, &str); N],
    ) -> Result<[Vec<Kernel>; N]> {
        let kernels = self.compile_some(&wanted)?;
        kernels.try_into().map_err(|_| Error::internal("more or fewer kernels than were asked for"))
    }

    /// The same of any number.
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
                }
            }
        }
        self.metrics.compile_ns += started.elapsed().as_nanos() as u64;
        self.note_first_work()?;
        Ok(kernels)
    }

    /// Counts the modules that are missing, and has the background threads compile all but the one that is waited for first.
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

    /// A pipeline's own module, where it is interpreted: compiled when the query has ended.
    pub(in crate::exec) fn note_interpreted(&mut self, module: &ModuleSource) {
        self.metrics.interpreted_kernels += 1;
        if self.options.code_tier == CodeTier::Auto && self.session.devices()[0].can_compile() {
            self.compilation.better.push(module.clone());
        }
    }
}

impl Drop for Compilation {
    /// Nobody waits for what a query that has failed had asked for.
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
