//! Tables that several joins probe, by number.

use super::build_probe::probe_here;
use crate::Result;
use crate::exec::query::Query;
use crate::exec::relation::{Relation, SharedBuild};
use crate::plan::join::JoinNode;

impl Query<'_> {
    /// Makes the table of that number; its rows stay beside it where filters are made of them.
    pub(in crate::exec) fn share_build(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        build: &Relation,
        has_filters: bool,
    ) -> Result<()> {
        let made = self.broadcast_table(plan, build, has_filters)?;
        self.joins.share_build(number, SharedBuild::new(made));
        Ok(())
    }

    /// Appends the probe of the table of that number.
    pub(in crate::exec) fn probe_shared_build(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        probe: Relation,
    ) -> Result<Relation> {
        let shared_build = self.joins.shared_build(number)?;
        let made = (shared_build.table.clone(), shared_build.payload_of.clone());
        probe_here(plan, probe, made, self.options.counts_rows)
    }
}
