//! Tables that several joins probe, by number.

use super::build_probe::probe_here;
use crate::Result;
use crate::exec::query::Query;
use crate::exec::relation::{Published, Relation};
use crate::plan::join::JoinNode;

impl Query<'_> {
    /// Makes the table of that number; its rows stay beside it where filters are made of them.
    pub(in crate::exec) fn publish(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        build: &Relation,
        has_filters: bool,
    ) -> Result<()> {
        let made = self.broadcast_table(plan, build, has_filters)?;
        self.joins.publish(number, Published::new(made));
        Ok(())
    }

    /// Appends the probe of the table of that number.
    pub(in crate::exec) fn probe_published(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        probe: Relation,
    ) -> Result<Relation> {
        let published = self.joins.published(number)?;
        let made = (published.table.clone(), published.payload_of.clone());
        probe_here(plan, probe, made, self.options.counts_rows)
    }
}
