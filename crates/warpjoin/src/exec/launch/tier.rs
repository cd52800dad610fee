//! The code tier of a pipeline: its own kernel, or an interpreter kernel.
//!
//! Interpreter kernels are the same for all pipelines, so they are compiled before a new query comes. The pipeline's
//! own kernel is compiled in the background, and is used from then on.

use std::cell::LazyCell;
use std::time::Instant;

use warpjoin_codegen::{GeneratedPipeline, interpreters};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{DeviceKind, Kernel, ModuleSource};
use warpjoin_plan::options::CodeTier;

use super::interpreted::can_interpret;
use crate::exec::query::Query;
use crate::exec::relation::Relation;

/// What runs a pipeline: a kernel for each device.
pub(crate) struct PipelineKernels {
    pub kernels: Vec<Kernel>,
    /// Whether they interpret the pipeline's program.
    pub interpret: bool,
}

impl Query<'_> {
    /// The kernels of a bound pipeline over a relation.
    pub(crate) fn compile_pipeline(
        &mut self,
        relation: &Relation,
        pipeline: &GeneratedPipeline,
    ) -> Result<PipelineKernels> {
        self.compile_pipelines(relation, [pipeline], 0, []).map(|([kernels], [])| kernels)
    }

    /// The kernels of several pipelines (which write 2^bits partitions, if any), together with entries of hand-written
    /// modules that are needed at the same point.
    pub(crate) fn compile_pipelines<const P: usize, const N: usize>(
        &mut self,
        relation: &Relation,
        pipelines: [&GeneratedPipeline; P],
        bits: u32,
        others: [(&ModuleSource, &str); N],
    ) -> Result<([PipelineKernels; P], [Vec<Kernel>; N])> {
        let started = Instant::now();
        let own = pipelines.map(|pipeline| (pipeline.module(), "pipeline"));
        self.metrics.planning_ns += started.elapsed().as_nanos() as u64;
        // Made where a kernel is missing.
        let interpreters = LazyCell::new(|| interpreters(self.options.hash_bits));
        let interprets = pipelines.map(|pipeline| self.interprets(relation, pipeline, bits, &interpreters));
        let mut wanted = vec![];
        for ((pipeline, own), interprets) in pipelines.iter().zip(own).zip(interprets) {
            // Made only where it runs.
            match interprets.then(|| pipeline.program()).flatten() {
                Some(program) => wanted.push((&*interpreters, program.entry())),
                None => wanted.push(own),
            }
        }
        wanted.extend(others);
        let mut kernels = self.compile_some(&wanted)?.into_iter();
        for (index, (module, _)) in own.into_iter().enumerate() {
            if interprets[index] {
                log::debug!("pipeline {index} of {P} is interpreted");
                self.note_interpreted(module);
            } else {
                self.metrics.generated_kernels += 1;
            }
        }
        let mut next = || kernels.next().ok_or_else(|| Error::internal("fewer kernels than requested"));
        let mut of_pipelines = vec![];
        for interpret in interprets {
            of_pipelines.push(PipelineKernels { kernels: next()?, interpret });
        }
        let of_others = (0..N).map(|_| next()).collect::<Result<Vec<_>>>()?;
        let wrong = |_| Error::internal("wrong number of kernels");
        Ok((
            of_pipelines.try_into().map_err(|_| Error::internal("wrong number of pipelines"))?,
            of_others.try_into().map_err(wrong)?,
        ))
    }

    /// Whether a pipeline is interpreted: its own kernel is not compiled yet, and the interpreter kernels are.
    fn interprets(
        &self,
        relation: &Relation,
        pipeline: &GeneratedPipeline,
        bits: u32,
        interpreters: &LazyCell<ModuleSource, impl FnOnce() -> ModuleSource>,
    ) -> bool {
        let devices = self.session.devices();
        let can = || devices.iter().all(|device| can_interpret(device.info(), relation, pipeline, bits));
        match self.options.code_tier {
            CodeTier::Compiled => false,
            CodeTier::Interpreted => can(),
            CodeTier::Auto => {
                let is_there = |module: &ModuleSource| {
                    devices.iter().all(|device| device.is_compiled(module)) || devices[0].is_stored(module)
                };
                // The simulated device compiles in less time than it interprets.
                self.session.kind() == DeviceKind::Cuda
                    && !is_there(pipeline.module())
                    && can()
                    && pipeline
                        .program()
                        .is_some_and(|program| is_there(&devices[0].module_of(interpreters, program.entry())))
            }
        }
    }
}
