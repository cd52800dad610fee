//! Plans that several others read.

use std::collections::HashMap;
use std::sync::Arc;

use super::query::Query;
use super::relation::{Relation, Source};
use crate::Result;
use crate::codegen::Step;
use crate::plan::{Plan, PlanKind};

impl Plan {
    /// This plan as one that may stand in several places, and runs once.
    pub(super) fn into_shared(self) -> Self {
        let schema = self.schema.clone();
        Self { kind: PlanKind::Shared(Arc::new(self)), schema }
    }
}

/// By what a plan that has run is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SharedKey {
    /// The address of a plan that was made while the query runs, and is kept.
    Made(usize),
    /// The number that the optimiser gave to equal plans.
    Marked(usize),
}

/// What plans with several readers gave.
#[derive(Default)]
pub(crate) struct SharedRelations(HashMap<SharedKey, (Option<Arc<Plan>>, Relation)>);

impl Query<'_> {
    /// The relation of a plan that was made while the query runs.
    pub(super) fn shared(&mut self, plan: &Arc<Plan>) -> Result<Relation> {
        self.run_once(SharedKey::Made(Arc::as_ptr(plan).addr()), plan, Some(Arc::clone(plan)))
    }

    /// The relation of a plan that the optimiser has found in several places.
    pub(super) fn shared_subplan(&mut self, plan: &Plan, number: usize) -> Result<Relation> {
        self.run_once(SharedKey::Marked(number), plan, None)
    }

    fn run_once(&mut self, key: SharedKey, plan: &Plan, kept: Option<Arc<Plan>>) -> Result<Relation> {
        if let Some((_, relation)) = self.shared.0.get(&key) {
            return Ok(relation.clone());
        }
        let relation = self.relation(plan)?;
        let relation = self.settled(relation)?;
        self.shared.0.insert(key, (kept, relation.clone()));
        Ok(relation)
    }

    /// Gives up what is kept of a plan that nobody reads any more.
    pub(super) fn release(&mut self, plan: &Plan) {
        if let PlanKind::Shared(plan) = &plan.kind {
            self.shared.0.remove(&SharedKey::Made(Arc::as_ptr(plan).addr()));
        }
    }

    /// Rows that may be read more than once: what probes find is written down, filters and projections run again.
    pub(super) fn settled(&mut self, relation: Relation) -> Result<Relation> {
        let is_probed = relation.steps.iter().any(|step| matches!(step, Step::Probe(_)));
        if !is_probed && matches!(relation.source, Source::Table(..) | Source::Intermediate(_) | Source::Groups(_)) {
            return Ok(relation);
        }
        let rows = self.materialise(&relation, (0..relation.width).collect())?;
        Ok(Relation::new(Source::Intermediate(rows)))
    }
}
