//! What the optimiser has marked: tables that several joins probe, rows that nobody needs, plans that are run once.

use super::join::probe_here;
use super::query::Query;
use super::relation::Relation;
use super::runtime_filter::Published;
use crate::plan::join::JoinNode;
use crate::plan::{JoinPlan, Mark, Plan};
use crate::{Error, Result};

impl Query<'_> {
    pub(super) fn marked(&mut self, input: &Plan, mark: &Mark) -> Result<Relation> {
        match mark {
            // The join above has seen it.
            Mark::Published(_) => self.relation(input),
            Mark::Reduced { table, keys, test } => {
                let relation = self.relation(input)?;
                self.reduced(relation, *table, keys, *test)
            }
            Mark::Shared(share) => self.shared_subplan(input, *share),
        }
    }

    /// Makes the table, on every device, before the probe side is read; unless it reads tables of that side.
    pub(super) fn published_join(&mut self, plan: &JoinPlan, number: usize) -> Result<Relation> {
        let node = JoinNode::of(plan);
        let first = if plan.build.reads_tables_of(&plan.probe) { Some(self.relation(&plan.probe)?) } else { None };
        // Joins with equal build sides have one number.
        if !self.published.contains_key(&number) {
            let build = self.relation(&plan.build)?;
            self.publish(&node, number, &build, self.plan.has_filters_of(number))?;
        }
        let probe = match first {
            Some(probe) => probe,
            None => self.relation(&plan.probe)?,
        };
        self.probe_published(&node, number, probe)
    }

    /// Makes the table of that number; its rows stay beside it where filters are made of them.
    pub(super) fn publish(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        build: &Relation,
        has_filters: bool,
    ) -> Result<()> {
        let made = self.broadcast_table(plan, build, has_filters)?;
        self.published.insert(number, Published::new(made));
        Ok(())
    }

    /// Appends the probe of the table of that number.
    pub(super) fn probe_published(&mut self, plan: &JoinNode<'_>, number: usize, probe: Relation) -> Result<Relation> {
        let published = self.published.get(&number).ok_or_else(|| Error::internal(format!("no table {number} yet")))?;
        let made = (published.table.clone(), published.payload_of.clone());
        Ok(probe_here(plan, probe, made, self.options.counts_rows))
    }
}
