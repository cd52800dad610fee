//! Tables that several joins probe, by number.

use super::build_probe::probe_here;
use super::runtime_filter::Published;
use crate::exec::query::Query;
use crate::exec::relation::Relation;
use crate::plan::join::JoinNode;
use crate::{Error, Result};

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
        self.published.insert(number, Published::new(made));
        Ok(())
    }

    /// Appends the probe of the table of that number.
    pub(in crate::exec) fn probe_published(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        probe: Relation,
    ) -> Result<Relation> {
        let published = self.published.get(&number).ok_or_else(|| Error::internal(format!("no table {number} yet")))?;
        let made = (published.table.clone(), published.payload_of.clone());
        Ok(probe_here(plan, probe, made, self.options.counts_rows))
    }
}
