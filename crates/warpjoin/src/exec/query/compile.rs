//! Compiles kernels: those of a query that was never seen all at once, on all cores.
//!
//! A query finds out what to compile as it goes, one pipeline after the other. So the first module that is not in
//! memory starts a *dry run* of the plan, which generates the same kernels without running any. They are compiled in
//! the background in the order in which they will be wanted, and the query goes on as soon as its next one is there.
//!
//! What only the data tells (whether keys are unique, how many groups there are) a dry run guesses. A wrong guess is
//! noticed when a kernel is wanted that was not foreseen. Then another dry run starts, which knows what the query has
//! found out until then: its [`RuntimeDecision`]s, in the order in which it came upon them.
//!
//! The kernel of a pipeline that was interpreted is compiled when the query has ended, and runs from then on.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use warpjoin_device::{DeviceKind, Kernel, ModuleSource, span};

use super::Query;
use crate::devices::compiler::{QueryId, note};
use crate::exec::decision::{DecisionKind, RuntimeDecision};
use crate::exec::metrics::HostDecision;
use crate::optimize::expected_rows;
use crate::options::CodeTier;
use crate::plan::Plan;
use crate::{DeviceSet, Error, Result};

/// Dry runs of one query. Each goes a step further than the one before, so that more are hardly ever asked for.
const DRY_RUNS_MAX: u32 = 16;

/// Part of the expected rows that are left where fewer than expected are.
const FEW_SHARE: u64 = 64;

/// What a query has compiled, and has found out that kernels depend on.
pub(crate) struct Compilation {
    devices: Arc<DeviceSet>,
    mode: Mode,
    /// The decisions that the last dry run guessed, to log which were wrong.
    guessed: Vec<RuntimeDecision>,
    /// Modules that are compiled or will be.
    asked: HashSet<ModuleSource>,
    /// Modules in whose place kernels that interpret have run.
    better: Vec<ModuleSource>,
    query: QueryId,
}

/// Whether a query runs, or only finds out which modules it needs.
#[derive(Debug)]
enum Mode {
    /// Runs, and notes what only a run can tell; each with the number of pipelines before it.
    Run(Vec<(usize, RuntimeDecision)>),
    /// Collects modules.
    Dry(DryRun),
}

/// What a dry run has found, and what it knows.
#[derive(Debug, Default)]
pub(crate) struct DryRun {
    /// In the order in which a run will want them.
    modules: Vec<ModuleSource>,
    seen: HashSet<ModuleSource>,
    /// Wanted in place of others, if a guess is wrong.
    speculative: Vec<ModuleSource>,
    /// Decisions that lie ahead.
    decisions: VecDeque<RuntimeDecision>,
    /// Decisions that were known or guessed.
    guessed: Vec<RuntimeDecision>,
    /// Conditions of which nothing is known are taken to keep next to nothing.
    expects_few: bool,
    /// A choice is open, and the less likely form is looked at.
    is_speculative: bool,
}

impl Compilation {
    /// Of a query that runs.
    pub(crate) fn new(devices: &Arc<DeviceSet>) -> Self {
        Self {
            devices: Arc::clone(devices),
            mode: Mode::Run(vec![]),
            guessed: vec![],
            asked: HashSet::new(),
            better: vec![],
            query: QueryId::new(),
        }
    }
}

impl DryRun {
    fn add(&mut self, module: ModuleSource) {
        if self.seen.insert(module.clone()) {
            if self.is_speculative { &mut self.speculative } else { &mut self.modules }.push(module);
        }
    }
}

impl Query<'_> {
    pub(crate) fn is_dry(&self) -> bool {
        matches!(self.compilation.mode, Mode::Dry(_))
    }

    /// Notes what a run has found out, before anything is compiled that depends on it. In a dry run, where `decision` is a guess:
    /// what the run has found out here, if it has come so far. Both come to the same places in the same order.
    pub(crate) fn known(&mut self, decision: RuntimeDecision) -> RuntimeDecision {
        match &mut self.compilation.mode {
            Mode::Run(decisions) => {
                if let Some(guess) = self.compilation.guessed.get(decisions.len()).filter(|guess| **guess != decision) {
                    log::debug!("guessed {guess:?}, found {decision:?}");
                }
                decisions.push((self.metrics.pipelines.len(), decision));
            }
            Mode::Dry(dry) if !dry.is_speculative => {
                let known = dry.decisions.pop_front().unwrap_or(decision);
                dry.guessed.push(known);
                return known;
            }
            Mode::Dry(_) => {}
        }
        decision
    }

    /// The number of decisions so far, for [`Self::known_instead`].
    pub(crate) fn decisions(&self) -> usize {
        match &self.compilation.mode {
            Mode::Run(decisions) => decisions.len(),
            Mode::Dry(_) => 0,
        }
    }

    /// What the run tried after its first `decisions` decisions failed: one decision replaces those of the attempt.
    pub(crate) fn known_instead(&mut self, decisions: usize, decision: RuntimeDecision) {
        if let Mode::Run(known) = &mut self.compilation.mode {
            known.truncate(decisions);
            known.push((self.metrics.pipelines.len(), decision));
        }
    }

    /// What the host has decided, for the metrics.
    pub(in crate::exec) fn host_decisions(&self) -> Vec<HostDecision> {
        let Mode::Run(decisions) = &self.compilation.mode else { return vec![] };
        // The only device has the build side anyway.
        let is_open = |decision: &RuntimeDecision| decision.kind() != DecisionKind::BuildSide || self.devices() > 1;
        let said = decisions.iter().filter(|(_, decision)| is_open(decision));
        said.map(|&(pipelines, decision)| HostDecision { pipelines, decision: decision.to_string() }).collect()
    }

    /// Rows that a dry run expects of a plan, of which there are no more than `rows_max`.
    pub(crate) fn expected_rows(&self, plan: Option<&Plan>, rows_max: u64) -> u64 {
        match (&self.compilation.mode, plan) {
            (Mode::Dry(dry), Some(plan)) if dry.decisions.is_empty() => {
                let rows = expected_rows(plan, &self.inputs.tables) as u64;
                rows_max.min(if dry.expects_few { rows / FEW_SHARE } else { rows })
            }
            _ => rows_max,
        }
    }

    /// Whether a dry run does not know what comes next, so that it has to guess.
    pub(crate) fn guesses(&self) -> bool {
        matches!(&self.compilation.mode, Mode::Dry(dry) if dry.decisions.is_empty())
    }

    /// Whether kernels are compiled that will only be wanted if a guess is wrong. The compiler of the simulated device keeps
    /// busy the cores on which its kernels run.
    pub(crate) fn wants_spares(&self) -> bool {
        self.session.kind() == DeviceKind::Cuda
    }

    /// In a dry run: what `find` generates is compiled last. A failure is none of the query.
    pub(crate) fn speculate(&mut self, find: impl FnOnce(&mut Self) -> Result<()>) {
        let Mode::Dry(dry) = &mut self.compilation.mode else { return };
        let was_speculative = std::mem::replace(&mut dry.is_speculative, true);
        if let Err(error) = find(self) {
            log::debug!("a form that was not looked at: {error}");
        }
        if let Mode::Dry(dry) = &mut self.compilation.mode {
            dry.is_speculative = was_speculative;
        }
    }

    /// Compiles an entry of a module for every device; a kernel for each. A dry run notes it and returns none.
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
        if let Mode::Dry(dry) = &mut self.compilation.mode {
            modules.into_iter().for_each(|module| dry.add(module.into_owned()));
            return Ok(vec![vec![]; wanted.len()]);
        }
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
        let is_missing = |module: &ModuleSource| devices.iter().any(|device| !device.is_compiled(module));
        let missing: Vec<ModuleSource> = modules
            .iter()
            .filter(|module| is_missing(module) && !self.compilation.asked.contains(&***module))
            .map(|module| ModuleSource::clone(module))
            .collect();
        if !missing.is_empty() {
            self.compile_ahead(missing);
        }
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

    /// A pipeline's own module, where it is interpreted: compiled when the query has ended.
    pub(in crate::exec) fn note_interpreted(&mut self, module: &ModuleSource) {
        if self.is_dry() {
            return;
        }
        self.metrics.interpreted_kernels += 1;
        if self.options.code_tier == CodeTier::Auto && self.session.devices()[0].can_compile() {
            self.compilation.better.push(module.clone());
        }
    }

    /// Has compiled what is wanted now, and what a dry run of the plan finds missing.
    fn compile_ahead(&mut self, wanted: Vec<ModuleSource>) {
        let is_foreseen = self.metrics.dry_runs == 0;
        let names = wanted.iter().map(|module| format!("{} [{}]", module.name, module.entries.join(" ")));
        log::debug!(
            "{}: {}",
            if is_foreseen { "first kernels" } else { "not foreseen" },
            names.collect::<Vec<_>>().join(", ")
        );
        // They are on their way while the dry run looks further.
        self.enqueue(wanted, false);
        if self.metrics.dry_runs >= DRY_RUNS_MAX {
            return;
        }
        self.metrics.dry_runs += 1;
        let started = Instant::now();
        match self.dry_run(false) {
            Ok(DryRun { modules, speculative, guessed, .. }) => {
                self.compilation.guessed = guessed;
                log::debug!(
                    "dry run {} in {:.1} ms: {} modules and {} speculative ones",
                    self.metrics.dry_runs,
                    started.elapsed().as_secs_f64() * 1e3,
                    modules.len(),
                    speculative.len()
                );
                self.enqueue(modules, false);
                self.enqueue(speculative, true);
            }
            Err(error) => log::debug!("no dry run: {error}"),
        }
        // Most wrong guesses are of too many rows.
        if is_foreseen
            && self.wants_spares()
            && let Ok(DryRun { modules, speculative, .. }) = self.dry_run(true)
        {
            self.enqueue(modules, true);
            self.enqueue(speculative, true);
        }
    }

    /// The modules that the plan needs by what is known, and those that it may need.
    fn dry_run(&self, expects_few: bool) -> Result<DryRun> {
        let Mode::Run(decisions) = &self.compilation.mode else {
            return Err(Error::internal("a dry run of a dry run"));
        };
        let decisions = decisions.iter().map(|(_, decision)| *decision).collect();
        let (streams, cancel_words) = (self.streams.clone(), Arc::clone(&self.cancel_words));
        let mut dry = Query::on(streams, cancel_words, self.session, self.inputs, self.options, self.execution);
        // It enqueues nothing.
        std::mem::take(&mut dry.last_wait).leave();
        dry.compilation.mode = Mode::Dry(DryRun { decisions, expects_few, ..DryRun::default() });
        dry.shared = self.found();
        // Where it ends early, what it found until then is still right.
        if let Err(error) = dry.run_pipelines(self.execution).and_then(|relation| dry.result_rows(relation)) {
            log::debug!("the dry run ended early: {error}");
        }
        match std::mem::replace(&mut dry.compilation.mode, Mode::Run(vec![])) {
            Mode::Dry(dry) => Ok(dry),
            Mode::Run(_) => Err(Error::internal("a dry run that runs")),
        }
    }

    /// Has modules compiled in the background that are not in memory; speculative ones after all others.
    fn enqueue(&mut self, modules: Vec<ModuleSource>, is_speculative: bool) {
        let devices = self.session.devices();
        let mut missing = vec![];
        for module in modules {
            let count = devices.iter().filter(|device| !device.is_compiled(&module)).count() as u64;
            if count > 0 && self.compilation.asked.insert(module.clone()) {
                self.metrics.compiled_modules += count;
                missing.push(module);
            }
        }
        self.session.device_set().compiler().enqueue(self.compilation.query, missing, devices, is_speculative);
    }
}

impl Drop for Compilation {
    /// Nobody waits for what was guessed wrong.
    fn drop(&mut self) {
        if !self.better.is_empty() {
            let better = std::mem::take(&mut self.better);
            self.devices.compiler().improve(self.query, better, self.devices.devices());
        }
        if !self.asked.is_empty() {
            self.devices.compiler().forget(self.query);
        }
    }
}
