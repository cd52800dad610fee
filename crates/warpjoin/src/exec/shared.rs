//! Plans that several others read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::query::Query;
use super::relation::{Relation, Source};
use crate::Result;
use crate::codegen::Step;
use crate::plan::physical::Found;
use crate::plan::{HandOver, Plan, PlanKind, Share};

/// Rows that plans leave on the devices for plans of the same query, which run later. Whoever reads them takes them along.
/// Clones are one.
#[derive(Debug, Clone, Default)]
pub struct HandedOver(Arc<Mutex<HashMap<HandOver, Relation>>>);

impl HandedOver {
    fn locked<T>(&self, with: impl FnOnce(&mut HashMap<HandOver, Relation>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// By what a plan that has run is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SharedKey {
    /// The address of a plan that was made while the query runs, and is kept.
    Made(usize),
    /// What the optimizer has marked.
    Marked(Share),
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
    pub(super) fn shared_subplan(&mut self, plan: &Plan, share: Share) -> Result<Relation> {
        let (key, is_dry) = (SharedKey::Marked(share), self.is_dry());
        let handed_over = &self.inputs.handed_over;
        if let Share::Found(name) = share
            && let Some(found) =
                handed_over.locked(|rows| if is_dry { rows.get(&name).cloned() } else { rows.remove(&name) })
        {
            self.shared.0.insert(key, (None, found));
        }
        let relation = self.run_once(key, plan, None)?;
        if let Share::Left(name) = share
            && !is_dry
        {
            self.inputs.handed_over.locked(|rows| rows.insert(name, relation.clone()));
        }
        Ok(relation)
    }

    /// What earlier plans have left of what this one needs.
    pub(super) fn find_rows<'p>(&mut self, wanted: &'p [Found]) -> Vec<(&'p Found, Relation)> {
        let mut found = vec![];
        for rows in wanted {
            let (key, name) = (SharedKey::Marked(Share::Found(rows.name)), rows.name);
            // A dry run is told, and leaves rows to the run.
            let known = self.shared.0.get(&key).map(|(_, relation)| relation.clone()).or_else(|| {
                let is_dry = self.is_dry();
                let handed_over = &self.inputs.handed_over;
                handed_over.locked(|left| if is_dry { left.get(&name).cloned() } else { left.remove(&name) })
            });
            if let Some(relation) = known {
                self.shared.0.insert(key, (None, relation.clone()));
                found.push((rows, relation));
            }
        }
        found
    }

    /// Rows that the optimizer has found in several places, so that they may be read more than once.
    pub(super) fn share(&mut self, share: Share, relation: Relation) -> Result<Relation> {
        let key = SharedKey::Marked(share);
        if let Some((_, known)) = self.shared.0.get(&key) {
            return Ok(known.clone());
        }
        let relation = self.settled(relation)?;
        self.shared.0.insert(key, (None, relation.clone()));
        if let Share::Left(name) = share
            && !self.is_dry()
        {
            self.inputs.handed_over.locked(|rows| rows.insert(name, relation.clone()));
        }
        Ok(relation)
    }

    /// What earlier plans have left to this one, for its dry runs.
    pub(super) fn found(&self) -> SharedRelations {
        let is_found = |(key, _): &(&SharedKey, _)| matches!(key, SharedKey::Marked(Share::Found(_)));
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
