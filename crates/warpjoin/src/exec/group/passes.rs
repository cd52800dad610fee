//! Group-bys whose groups a device has no room for: rows are partitioned by key, and groups are made of some of the
//! partitions at a time.

use std::sync::Arc;

use warpjoin_device::Cause;

use super::aggregate::Aggregation;
use super::estimate::PartitionedGroups;
use crate::Result;
use crate::codegen::{Accumulator, Sink, Step};
use crate::exec::decision::RuntimeDecision;
use crate::exec::partition::{PASSES_BITS, Slices};
use crate::exec::query::Query;
use crate::exec::relation::{Intermediate, PartitionSlice, Relation, Source};
use crate::expr::Expr;

/// Slots of a group table for each group, and the room that growing it takes beside it.
const SLOTS_PER_GROUP: u64 = 4;

impl Query<'_> {
    /// Groups the rows of a relation on the only device, some partitions at a time. `None` if they can't be partitioned.
    pub(super) fn group_in_passes(
        &mut self,
        relation: &Relation,
        keys: &[Expr],
        aggregation: &Aggregation,
    ) -> Result<Option<Relation>> {
        if self.devices() > 1 || self.is_dry() {
            return Ok(None);
        }
        let decisions = self.decisions();
        let partitioned = self.partition_groups(relation, keys, &aggregation.accumulators, PASSES_BITS)?;
        let Some(PartitionedGroups { relation, keys, accumulators }) = partitioned else { return Ok(None) };
        let Source::Partitioned(rows) = &relation.source else { return Ok(None) };
        // Of the least there may be: a group a row.
        let planned = self.plan_groups(&relation, keys.clone(), accumulators.clone(), None)?;
        let row_bytes = planned.shape.stride_words as u64 * 8 * SLOTS_PER_GROUP;
        let rows_max = self.options.pass_rows.unwrap_or(self.streams[0].free_bytes() / 2 / row_bytes);
        let stream = self.streams[0].clone();
        let mut slices = Slices::of(&stream, [rows], rows_max)?;
        let mut parts = vec![];
        while let Some([slice]) = slices.next(&stream)? {
            self.options.check_cancelled()?;
            match self.group_pass(slice, &keys, &accumulators, aggregation) {
                Ok(groups) => parts.push(groups),
                Err(error) if error.cause() == Cause::OutOfMemory && slices.halve() => {}
                Err(error) => return Err(error),
            }
        }
        log::debug!("{} passes over a group-by whose groups have no room", parts.len());
        self.known_instead(decisions, RuntimeDecision::Groups(None));
        let rows = self.appended(parts)?;
        Ok(Some(Relation::new(Source::Intermediate(Arc::new(rows)))))
    }

    /// Groups of some partitions, written down.
    fn group_pass(
        &mut self,
        slice: PartitionSlice,
        keys: &[Expr],
        accumulators: &[Accumulator],
        aggregation: &Aggregation,
    ) -> Result<Intermediate> {
        let relation = Relation::new(Source::Slice(Arc::new(slice)));
        let planned = self.plan_groups(&relation, keys.to_vec(), accumulators.to_vec(), None)?;
        let groups = self.run_planned(&relation, planned, None)?;
        drop(relation);
        let mut result = Relation::new(Source::Groups(Arc::new(groups)));
        result.width = aggregation.outputs.len();
        result.steps.push(Step::Project(aggregation.outputs.clone()));
        let columns = (0..result.width).collect();
        Ok(self.run_rows(&result, &Sink::Materialise(columns), "Groups")?.0)
    }
}
