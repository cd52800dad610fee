//! Group-bys whose groups do not fit a device: rows are spilled by partitions of their keys, and some partitions are
//! grouped at a time.

use std::ops::Range;
use std::sync::Arc;

use warpjoin_codegen::{Accumulator, Sink, Step};
use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;
use warpjoin_device::Cause;

use super::aggregate::Aggregation;
use crate::exec::decision::RuntimeDecision;
use crate::exec::partition::{Inbound, PartitionRanges, SPILL_BITS, SpilledRows};
use crate::exec::query::Query;
use crate::exec::relation::{Intermediate, Relation, RowSlice, Source};
use crate::exec::rows::AppendedRows;

/// Copies of a row on the device at a time: in this pass, in the next one, and partitioned.
const ROW_COPIES: u64 = 4;
/// Slots of a group table for each group, including the room for growing it.
const SLOTS_PER_GROUP: f64 = 4.0;
/// Safety margin: maximum expected groups of a partition, relative to the partitions before.
const GROUPS_MARGIN: f64 = 1.25;

/// Properties that the passes of all devices share.
struct Passes<'p> {
    rows: Arc<SpilledRows>,
    /// Keys over the spilled rows.
    keys: &'p [Expr],
    accumulators: &'p [Accumulator],
    aggregation: &'p Aggregation,
}

/// Device room of a pass.
struct PassRoom {
    /// Bytes that a pass may take.
    bytes: u64,
    row_bytes: u64,
    group_bytes: u64,
}

impl PassRoom {
    /// Maximum rows of a pass, with `groups` groups for each row.
    fn rows(&self, groups: f64) -> u64 {
        let group_bytes = groups * self.group_bytes as f64 * SLOTS_PER_GROUP;
        (self.bytes as f64 / ((self.row_bytes * ROW_COPIES) as f64 + group_bytes)) as u64
    }
}

impl Query<'_> {
    /// Groups the rows of a relation, some partitions at a time; each device has its own partitions. `None` if they
    /// can't be partitioned.
    pub(super) fn group_in_passes(
        &mut self,
        relation: &Relation,
        keys: &[Expr],
        aggregation: &Aggregation,
    ) -> Result<Option<Relation>> {
        let (decisions, devices) = (self.decisions(), self.devices());
        let (planned, keys, accumulators) =
            self.plan_group_partition(relation, keys, &aggregation.accumulators, SPILL_BITS)?;
        if let Some(obstacle) = self.spill_obstacle(&[&planned]) {
            log::debug!("a group-by without passes: {obstacle:?}");
            return Ok(None);
        }
        let rows = Arc::new(self.spill(planned)?);
        let passes = Passes { rows, keys: &keys, accumulators: &accumulators, aggregation };
        let groups = self
            .on_members(|query, device| query.group_partitions(&passes, SpilledRows::partitions_of(device, devices)))?;
        self.note_decision_instead(decisions, RuntimeDecision::Groups(None));
        Ok(Some(Relation::new(Source::Intermediate(Arc::new(Intermediate::of_members(groups)?)))))
    }

    /// Groups the rows of some partitions on the only device.
    fn group_partitions(&mut self, passes: &Passes<'_>, partitions: Range<usize>) -> Result<Intermediate> {
        let Passes { rows, keys, accumulators, aggregation } = passes;
        let stream = self.streams[0].clone();
        let key_words = rows.shape.key_masks().len();
        let room = PassRoom {
            bytes: stream.free_bytes() / 4 * 3,
            row_bytes: rows.shape.row_bytes(),
            group_bytes: 8 * (1 + key_words + 2 * accumulators.len()) as u64,
        };
        let all_rows = rows.rows_of(&partitions) as f64;
        // Of the first pass nothing is known: there may be a group a row.
        let rows_max = self.options.pass_rows.unwrap_or_else(|| room.rows(1.0));
        let mut ranges = PartitionRanges::of(rows, partitions, rows_max);
        let mut inbound = Inbound::new(&stream)?;
        let mut groups = AppendedRows::new(&stream)?;
        let (mut grouped_rows, mut count) = (0, 0);
        while let Some(range) = ranges.advance() {
            self.options.check_cancelled()?;
            let piece = rows.piece(&range);
            let slice = inbound.take(rows, &piece);
            if slice.is_ok()
                && let Some(next) = ranges.next()
            {
                inbound.prefetch(rows, &rows.piece(&next))?;
            }
            let pass = slice.and_then(|slice| self.group_pass(slice, keys, accumulators, aggregation));
            match pass {
                Ok(part) => {
                    (grouped_rows, count) = (grouped_rows + rows.rows_of(&range), count + 1);
                    groups.push(part, grouped_rows as f64 / all_rows)?;
                    if self.options.pass_rows.is_none() && grouped_rows > 0 {
                        let groups_a_row = groups.rows() as f64 / grouped_rows as f64;
                        ranges.limit(room.rows((groups_a_row * GROUPS_MARGIN).min(1.0)));
                    }
                }
                Err(error) if error.cause() == Cause::OutOfMemory => {
                    if !ranges.retry(&mut inbound)? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        log::debug!("{count} passes over a group-by whose groups have no room");
        self.metrics.host_read_bytes += inbound.bytes;
        self.metrics.spilled_bytes += groups.spilled_bytes();
        drop(inbound);
        groups.finish()
    }

    /// Groups of some partitions, materialized.
    fn group_pass(
        &mut self,
        slice: RowSlice,
        keys: &[Expr],
        accumulators: &[Accumulator],
        aggregation: &Aggregation,
    ) -> Result<Intermediate> {
        let relation = Relation::new(Source::Slice(Arc::new(slice)));
        let groups = self.group(&relation, keys, accumulators)?;
        drop(relation);
        let mut result = Relation::new(Source::Groups(Arc::new(groups)));
        result.width = aggregation.outputs.len();
        result.steps.push(Step::Project(aggregation.outputs.clone()));
        let columns = (0..result.width).collect();
        Ok(self.run_rows(&result, &Sink::Materialise(columns), "Groups")?.0)
    }
}
