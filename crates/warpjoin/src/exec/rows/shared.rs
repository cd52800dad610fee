//! Shares rows between several pipelines, or with another plan.

use warpjoin_codegen::Step;
use warpjoin_columns::Result;
use warpjoin_plan::plan::Share;
use warpjoin_plan::plan::physical::Found;

use crate::exec::query::Query;
use crate::exec::relation::{Relation, Source};
impl Query<'_> {
    /// Rows that earlier plans have left and this one needs.
    pub(in crate::exec) fn find_rows<'p>(&mut self, wanted: &'p [Found]) -> Vec<(&'p Found, Relation)> {
        let mut found = vec![];
        for rows in wanted {
            let (key, name) = (Share::Found(rows.name), rows.name);
            let before = self.shared_before(key);
            if let Some(relation) = before.or_else(|| self.inputs.shared_rows.take(name, self.session.device_set())) {
                self.shared.marked.insert(key, relation.clone());
                found.push((rows, relation));
            }
        }
        found
    }

    /// Rows that were shared before, if they were.
    pub(in crate::exec) fn shared_before(&self, share: Share) -> Option<Relation> {
        self.shared.marked.get(&share).cloned()
    }

    /// Shares rows that occur in several places of a plan, in a form that can be read more than once.
    pub(in crate::exec) fn share(&mut self, share: Share, relation: Relation) -> Result<Relation> {
        let relation = self.settled(relation)?;
        self.shared.marked.insert(share, relation.clone());
        if let Share::Left(name) = share {
            self.inputs.shared_rows.leave(name, self.session.device_set(), relation.clone());
        }
        Ok(relation)
    }

    /// Rows that can be read more than once: matches of probes are materialized, filters and projections run again.
    pub(in crate::exec) fn settled(&mut self, relation: Relation) -> Result<Relation> {
        let is_probed = relation.steps.iter().any(|step| matches!(step, Step::Probe(_)));
        if !is_probed && matches!(relation.source, Source::Table(..) | Source::Intermediate(_) | Source::Groups(_)) {
            return Ok(relation);
        }
        let rows = self.materialise(&relation, (0..relation.width).collect())?;
        Ok(Relation::new(Source::Intermediate(rows)))
    }
}
