//! Rows that several pipelines read, or another plan.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::codegen::Step;
use crate::exec::query::Query;
use crate::exec::relation::{Relation, Source};
use crate::plan::physical::Found;
use crate::plan::{HandOver, Plan, Share};

/// Rows that plans leave on the devices for plans of the same query, which run later. Whoever reads them takes them along.
/// Clones are one.
#[derive(Debug, Clone, Default)]
pub struct HandedOver(Arc<Mutex<HashMap<HandOver, Relation>>>);

impl HandedOver {
    fn locked<T>(&self, with: impl FnOnce(&mut HashMap<HandOver, Relation>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Rows that several pipelines read, by their mark.
#[derive(Default)]
pub(crate) struct SharedRelations(HashMap<Share, Relation>);

impl Query<'_> {
    /// Runs a plan that plans made while the query runs read: what stands for it in them.
    pub(in crate::exec) fn given(&mut self, plan: &Plan) -> Result<Plan> {
        let relation = self.run_plan(plan)?;
        let relation = self.settled(relation)?;
        let share = Share::Found(HandOver::new());
        self.shared.0.insert(share, relation);
        Ok(plan.clone().shared_by(share))
    }

    /// What earlier plans have left of what this one needs.
    pub(in crate::exec) fn find_rows<'p>(&mut self, wanted: &'p [Found]) -> Vec<(&'p Found, Relation)> {
        let mut found = vec![];
        for rows in wanted {
            let (key, name) = (Share::Found(rows.name), rows.name);
            // A dry run is told, and leaves rows to the run.
            let known = self.shared.0.get(&key).cloned().or_else(|| {
                let is_dry = self.is_dry();
                let handed_over = &self.inputs.handed_over;
                handed_over.locked(|left| if is_dry { left.get(&name).cloned() } else { left.remove(&name) })
            });
            if let Some(relation) = known {
                self.shared.0.insert(key, relation.clone());
                found.push((rows, relation));
            }
        }
        found
    }

    /// Rows that the optimizer has found in several places, so that they may be read more than once.
    pub(in crate::exec) fn share(&mut self, share: Share, relation: Relation) -> Result<Relation> {
        if let Some(known) = self.shared.0.get(&share) {
            return Ok(known.clone());
        }
        let relation = self.settled(relation)?;
        self.shared.0.insert(share, relation.clone());
        if let Share::Left(name) = share
            && !self.is_dry()
        {
            self.inputs.handed_over.locked(|rows| rows.insert(name, relation.clone()));
        }
        Ok(relation)
    }

    /// What earlier plans have left to this one, for its dry runs.
    pub(in crate::exec) fn found(&self) -> SharedRelations {
        let is_found = |(share, _): &(&Share, _)| matches!(share, Share::Found(_));
        SharedRelations(self.shared.0.iter().filter(is_found).map(|(share, rows)| (*share, rows.clone())).collect())
    }

    /// Rows that may be read more than once: what probes find is written down, filters and projections run again.
    pub(in crate::exec) fn settled(&mut self, relation: Relation) -> Result<Relation> {
        let is_probed = relation.steps.iter().any(|step| matches!(step, Step::Probe(_)));
        if !is_probed && matches!(relation.source, Source::Table(..) | Source::Intermediate(_) | Source::Groups(_)) {
            return Ok(relation);
        }
        let rows = self.materialise(&relation, (0..relation.width).collect())?;
        Ok(Relation::new(Source::Intermediate(rows)))
    }
}
