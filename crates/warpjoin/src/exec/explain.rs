//! The pipelines of a plan in words, for EXPLAIN.

use std::sync::Arc;

use warpjoin_plan::optimize::{Optimized, optimize, pipelines};
use warpjoin_plan::options::ExecOptions;
use warpjoin_plan::plan::Plan;
use warpjoin_plan::plan::physical::in_words;

use crate::Session;

/// A plan in words.
#[derive(Debug, Clone, Default)]
pub struct Explanation {
    /// One line for each pipeline, in execution order: source, steps and sink. Forms that depend on unknown row counts are left
    /// open.
    pub pipelines: Vec<String>,
    /// Decisions that the host will make after each pipeline, from data that it reads from the devices: their kinds and
    /// alternatives.
    pub host_decisions: Vec<Vec<String>>,
    /// Changes by the optimizer: decisions that are known before execution.
    pub decisions: Vec<String>,
}

/// Explains how a plan would run. The order of joins over unknown inputs is left open. For a plan that cannot run there are no
/// pipelines, and the decisions contain the reason.
pub fn explain(plan: &Plan, session: &Arc<Session>, options: &ExecOptions) -> Explanation {
    let session = &*session.of_plan(plan);
    let Optimized { plan, notes, .. } = match optimize(plan, &[], session.device_set(), session.orders(), options) {
        Ok(optimized) => optimized,
        Err(error) => return Explanation { decisions: vec![error.to_string()], ..Explanation::default() },
    };
    let (physical, bindings) = pipelines(&plan, session.devices(), &[], options);
    let lines = in_words(&physical, &bindings);
    let host_decisions = lines.iter().map(|line| line.decisions.iter().map(ToString::to_string).collect()).collect();
    Explanation { pipelines: lines.into_iter().map(|line| line.text).collect(), host_decisions, decisions: notes }
}
