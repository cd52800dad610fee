//! Plans that several others read.

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

impl Query<'_> {
    /// The relation of a plan that may have run already.
    pub(super) fn shared(&mut self, plan: &Arc<Plan>) -> Result<Relation> {
        let address = Arc::as_ptr(plan) as usize;
        if let Some((_, relation)) = self.shared.get(&address) {
            return Ok(relation.clone());
        }
        let relation = self.relation(plan)?;
        let relation = self.settled(relation)?;
        self.shared.insert(address, (plan.clone(), relation.clone()));
        Ok(relation)
    }

    /// Gives up what is kept of a plan that nobody reads any more.
    pub(super) fn release(&mut self, plan: &Plan) {
        if let PlanKind::Shared(plan) = &plan.kind {
            self.shared.remove(&(Arc::as_ptr(plan) as usize));
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
