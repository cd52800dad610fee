//! What the optimiser has marked: tables that several joins probe, rows that nobody needs, plans that are run once.

use super::join::probe_here;
use super::query::Query;
use super::relation::Relation;
use super::runtime_filter::Published;
use crate::Result;
use crate::plan::{JoinPlan, Mark, Plan};

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
        let first = if plan.build.reads_tables_of(&plan.probe) { Some(self.relation(&plan.probe)?) } else { None };
        // Joins with equal build sides have one number.
        let made = match self.published.get(&number) {
            Some(made) => (made.table.clone(), made.payload_of.clone()),
            None => {
                let build = self.relation(&plan.build)?;
                let made = self.broadcast_table(plan, &build, self.plan.has_filters_of(number))?;
                self.published.insert(number, Published::new(made.clone()));
                made
            }
        };
        let probe = match first {
            Some(probe) => probe,
            None => self.relation(&plan.probe)?,
        };
        Ok(probe_here(plan, probe, made, self.options.counts_rows))
    }
}
