//! Leaves rows for several pipelines, or for another plan, and finds them.

use std::collections::{HashMap, HashSet};

use crate::codegen::Step;
use crate::exec::query::Query;
use crate::exec::relation::{Relation, SharedRelations, Source};
use crate::plan::physical::{Found, KnownParts};
use crate::plan::{HandOver, Plan, Share};
use crate::{Error, Result};

impl Query<'_> {
    /// Runs a plan once, and returns a node that stands for its rows in plans that are made while the query runs.
    pub(in crate::exec) fn given(&mut self, plan: &Plan) -> Result<Plan> {
        let relation = self.run_plan(plan)?;
        self.given_as(plan, relation)
    }

    /// Runs `run` with a node that stands for the rows of `plan` that are there, and gives these up.
    pub(in crate::exec) fn with_given<T>(
        &mut self,
        plan: &Plan,
        relation: Relation,
        run: impl FnOnce(&mut Self, &Plan) -> Result<T>,
    ) -> Result<T> {
        let before = self.given_names();
        let rows = self.given_as(plan, relation)?;
        let result = run(self, &rows)?;
        self.keep_given(&before);
        Ok(result)
    }

    fn given_as(&mut self, plan: &Plan, relation: Relation) -> Result<Plan> {
        let relation = self.settled(relation)?;
        let name = HandOver::new();
        self.shared.given.insert(name, relation);
        Ok(plan.clone().shared_by(Share::Found(name)))
    }

    /// Names of the rows that are given now.
    pub(in crate::exec) fn given_names(&self) -> HashSet<HandOver> {
        self.shared.given.keys().copied().collect()
    }

    /// Gives up rows with other names: the plan that read them has run.
    pub(in crate::exec) fn keep_given(&mut self, names: &HashSet<HandOver>) {
        self.shared.given.retain(|name, _| names.contains(name));
    }

    /// What a plan that is made while the query runs need not make again.
    pub(in crate::exec) fn known_parts(&self) -> KnownParts {
        KnownParts { shares: self.shared.marked.keys().copied().collect(), tables: self.joins.published_numbers() }
    }

    /// Rows that were shared before.
    pub(in crate::exec) fn known_rows_of(&self, share: Share) -> Result<Relation> {
        self.shared_before(share).ok_or_else(|| Error::internal("shared rows that are not there"))
    }

    /// What earlier plans have left of what this one needs.
    pub(in crate::exec) fn find_rows<'p>(&mut self, wanted: &'p [Found]) -> Vec<(&'p Found, Relation)> {
        let mut found = vec![];
        for rows in wanted {
            let (key, name) = (Share::Found(rows.name), rows.name);
            // A dry run is told, and leaves rows to the run.
            let known = self.shared.given.get(&name).or_else(|| self.shared.marked.get(&key)).cloned();
            let known = known.or_else(|| {
                let is_dry = self.is_dry();
                let handed_over = &self.inputs.handed_over;
                handed_over.locked(|left| if is_dry { left.get(&name).cloned() } else { left.remove(&name) })
            });
            if let Some(relation) = known {
                if !self.shared.given.contains_key(&name) {
                    self.shared.marked.insert(key, relation.clone());
                }
                found.push((rows, relation));
            }
        }
        found
    }

    /// Rows that were shared before, if they were.
    pub(in crate::exec) fn shared_before(&self, share: Share) -> Option<Relation> {
        self.shared.marked.get(&share).cloned()
    }

    /// Rows that the optimizer has found in several places, so that they may be read more than once.
    pub(in crate::exec) fn share(&mut self, share: Share, relation: Relation) -> Result<Relation> {
        let relation = self.settled(relation)?;
        self.shared.marked.insert(share, relation.clone());
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
        let found = self.shared.marked.iter().filter(is_found);
        let marked = found.map(|(share, rows)| (*share, rows.clone())).collect();
        SharedRelations { marked, given: HashMap::new() }
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
