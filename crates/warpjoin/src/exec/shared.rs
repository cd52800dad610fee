//! Plans that several others read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::query::Query;
use super::relation::{Relation, Source};
use crate::Result;
use crate::codegen::Step;
use crate::plan::{Plan, PlanKind, Share};

/// Rows that one plan leaves on the devices for another one, which runs later. Whoever reads them takes them along.
#[derive(Debug, Clone, Default)]
pub struct HandOver(Arc<Mutex<Option<Relation>>>);

impl HandOver {
    fn locked<T>(&self, with: impl FnOnce(&mut Option<Relation>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Share {
    pub(crate) fn key(&self) -> SharedKey {
        match self {
            Self::Within(number) => SharedKey::Marked(*number),
            Self::Left(hand_over) => SharedKey::Left(Arc::as_ptr(&hand_over.0).addr()),
            Self::Found(hand_over) => SharedKey::Found(Arc::as_ptr(&hand_over.0).addr()),
        }
    }
}

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
    /// The address of what is handed over to a later plan.
    Left(usize),
    /// The address of what was handed over by an earlier one.
    Found(usize),
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
    pub(super) fn shared_subplan(&mut self, plan: &Plan, share: &Share) -> Result<Relation> {
        if let Share::Found(hand_over) = share
            && let Some(found) = hand_over.locked(|rows| if self.is_dry() { rows.clone() } else { rows.take() })
        {
            self.shared.0.insert(share.key(), (None, found));
        }
        let relation = self.run_once(share.key(), plan, None)?;
        if let Share::Left(hand_over) = share
            && !self.is_dry()
        {
            hand_over.locked(|rows| *rows = Some(relation.clone()));
        }
        Ok(relation)
    }

    /// What earlier plans have left to this one, for its dry runs.
    pub(super) fn found(&self) -> SharedRelations {
        let is_found = |(key, _): &(&SharedKey, _)| matches!(key, SharedKey::Found(_));
        SharedRelations(self.shared.0.iter().filter(is_found).map(|(key, kept)| (*key, kept.clone())).collect())
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
