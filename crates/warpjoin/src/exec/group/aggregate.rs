//! Group-bys: aggregation on every device, then merging of the partial groups.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_codegen::{
    Accumulator, GeneratedPipeline, GroupLimits, GroupMode, GroupShape, Sink, SinkShape, Step, regroup,
};
use warpjoin_columns::expr::Expr;
use warpjoin_columns::table::Ranges;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Cause, Stream};
use warpjoin_plan::plan::{AggregateCall, State, Term};

use super::borders::{merge_borders, move_border_groups, open_ends};
use super::estimate::{Estimate, PartitionedGroups};
use super::pieces::{Cut, OrderedColumn};
use super::target::{GroupRoom, GroupsSink};
use crate::exec::decision::RuntimeDecision;
use crate::exec::launch::{launch_shape, slice_bits};
use crate::exec::query::Query;
use crate::exec::relation::{ColumnRanges, GroupShard, GroupTable, PartitionChoice, Relation, Source, are_apart};

/// How many times smaller a table is if most groups are finished without it, and the minimum size for that.
const FINISHED_SHARE: u64 = 16;
const FINISHED_SLOTS_MIN: u64 = 1 << 16;

/// Minimum range of a key for grouping rows sorted by it in a table indexed by the key: fewer groups fit block-local
/// tables, partition by partition, which is faster.
const ORDERED_SPAN_MIN: u64 = 1 << 28;

/// The same if each device has a range of the keys.
const ORDERED_RANGES_SPAN_MIN: u64 = 1 << 20;

/// A table with a row for each value takes at most this fraction of a device's memory (1 / divisor).
const SORTED_TABLE_SHARE: u64 = 3;

/// Prefetch distance, in steps, when there are so few groups that the kernel is bound by memory.
const PREFETCH_STEPS: u64 = 2;
const PREFETCH_GROUPS_MAX: f64 = 256.0;

/// A group-by whose kernel was generated.
struct PlannedGroups<'r> {
    generated: Arc<GeneratedPipeline>,
    shape: Arc<GroupShape>,
    /// Bound of the groups.
    groups_max: u64,
    /// Whether rows are sorted by the key; see [`Sink::Aggregate`].
    is_sorted: bool,
    /// Range of the key on each of several devices.
    ranges: Option<Ranges>,
    /// The column by whose order rows may be cut.
    ordered: Option<OrderedColumn<'r>>,
}

/// Accumulators of a group-by, and the expressions that compute its output from them.
pub(super) struct Aggregation {
    pub accumulators: Vec<Accumulator>,
    /// Over the group keys, then the accumulators.
    pub outputs: Vec<Expr>,
}

impl Query<'_> {
    /// Runs a group-by, and computes its output columns.
    pub(in crate::exec) fn aggregate_rows(
        &mut self,
        relation: Relation,
        keys: &[Expr],
        calls: &[AggregateCall],
    ) -> Result<Relation> {
        let aggregation = Aggregation::of(keys, calls)?;
        if self.options.pass_rows.is_some()
            && !keys.is_empty()
            && let Some(groups) = self.group_in_passes(&relation, keys, &aggregation)?
        {
            return Ok(groups);
        }
        let groups = match self.group(&relation, keys, &aggregation.accumulators) {
            Err(error) if error.cause() == Cause::OutOfMemory && !keys.is_empty() => {
                return self.group_in_passes(&relation, keys, &aggregation)?.ok_or(error);
            }
            groups => groups?,
        };
        drop(relation);
        let mut result = Relation::new(Source::Groups(Arc::new(groups)));
        result.width = aggregation.outputs.len();
        result.steps.push(Step::Project(aggregation.outputs));
        Ok(result)
    }

    /// Aggregates on every device, then merges groups, so that each group is on one device.
    pub(super) fn group(
        &mut self,
        relation: &Relation,
        keys: &[Expr],
        accumulators: &[Accumulator],
    ) -> Result<GroupTable> {
        let mut groups = self.run_groups(relation, keys.to_vec(), accumulators.to_vec())?;
        if self.devices() == 1 {
            return Ok(groups);
        }
        let Some(home) = relation.source.home(self.devices()) else {
            return match self.complete_in_place(&mut groups, relation.ranges_of(keys))? {
                true => Ok(groups),
                false => self.merge_groups(groups, keys, accumulators),
            };
        };
        if keys.is_empty() {
            groups.keep_row_of(home);
        }
        Ok(groups)
    }

    /// Completes groups in place, using the `ranges` of their keys. Returns false if that is not possible, so that
    /// groups must be exchanged.
    fn complete_in_place(&mut self, groups: &mut GroupTable, ranges: ColumnRanges) -> Result<bool> {
        if !ranges.iter().flatten().any(are_apart) {
            let ([Some(range)], true) = (&ranges[..], self.reach_all()) else { return Ok(false) };
            let module = regroup(self.options.hash_bits);
            if groups.shape.is_cut {
                let kernels = self.compile(&module, "regroup")?;
                let moves = move_border_groups(groups, range, &self.streams, &kernels)?;
                let Some(moves) = moves else { return Ok(false) };
                self.metrics.launches += moves.launches;
                let (kept, pending) = moves.into_pending(self.metrics.pipelines.len() - 1);
                self.kept.extend(kept);
                self.pending.push(pending);
            } else if groups.shape.by_range {
                let kernels = self.compile(&module, "merge_row")?;
                let (launches, kept) = merge_borders(groups, range, &self.streams, &kernels)?;
                self.metrics.launches += launches;
                self.kept.extend(kept);
            } else {
                return Ok(false);
            }
        }
        groups.ranges = ranges;
        Ok(true)
    }

    fn reach_all(&self) -> bool {
        let devices = self.session.devices();
        devices.iter().all(|device| devices.iter().all(|peer| device.can_reach(peer)))
    }

    /// Exchanges the partial groups and merges them: few groups on one device, others on the device that owns each.
    fn merge_groups(&mut self, groups: GroupTable, keys: &[Expr], accumulators: &[Accumulator]) -> Result<GroupTable> {
        let partial = Relation::new(Source::Groups(Arc::new(groups)));
        let sink = Sink::RouteGroups { keys: (0..keys.len()).collect(), columns: (0..partial.width).collect() };
        let (rows, _) = self.run_rows(&partial, &sink, "PartitionGroups")?;
        drop(partial);
        let are_few = self.are_few(&rows.columns, rows.rows());
        let rows = if are_few { self.gather(rows)? } else { self.exchange(rows)? };
        let home = rows.home();
        // Column 0 is the key word for routing.
        let column = |index: usize, key: &Expr| Expr::column(1 + index, key.data_type.clone(), true);
        let merged_keys = keys.iter().enumerate().map(|(index, key)| column(index, key)).collect();
        let merged = merging(accumulators, 1 + keys.len());
        let relation = Relation::new(Source::Intermediate(Arc::new(rows)));
        let mut groups = self.run_groups(&relation, merged_keys, merged)?;
        if let (true, Some(home)) = (keys.is_empty(), home) {
            groups.keep_row_of(home);
        }
        Ok(groups)
    }

    /// Aggregates on every device separately.
    fn run_groups(
        &mut self,
        relation: &Relation,
        keys: Vec<Expr>,
        accumulators: Vec<Accumulator>,
    ) -> Result<GroupTable> {
        let planned = self.plan_groups(relation, keys.clone(), accumulators.clone(), None)?;
        // Neighbours meet in a block's table, and what is left goes to the group table in its order.
        let is_in_order = planned.shape.is_cut || planned.is_sorted && planned.shape.mode == GroupMode::Dense;
        let estimate = if is_in_order { None } else { self.estimate_groups(relation, &planned.shape, &keys)? };
        if let Some(estimate) = estimate {
            // Rather than when rows are partitioned. A device has its share of the groups at least.
            let groups = estimate.groups / self.devices() as f64;
            let bytes = (groups * (planned.shape.stride_words * 8) as f64) as u64;
            self.streams.iter().try_for_each(|stream| stream.check_budget(bytes))?;
        }
        let choice =
            estimate.and_then(|estimate| self.choose_partition(relation, &planned.shape, &accumulators, estimate));
        let decisions = self.decisions();
        // One group has one form.
        if planned.shape.mode != GroupMode::Global {
            self.note_decision(RuntimeDecision::Groups(choice));
        }
        if let Some(choice) = choice {
            if let Some(partitioned) = self.partition_groups(relation, &keys, &accumulators, choice.bits)? {
                let PartitionedGroups { relation, keys, accumulators } = partitioned;
                let planned = self.plan_groups(&relation, keys, accumulators, Some(choice))?;
                return self.run_planned(&relation, planned, estimate);
            }
            self.note_decision_instead(decisions, RuntimeDecision::Groups(None));
        }
        self.run_planned(relation, planned, estimate)
    }

    /// Shared memory that a block may use on any device.
    pub(super) fn shared_bytes_max(&self) -> u32 {
        self.session.devices().iter().map(|d| d.info().shared_bytes_per_block_max).min().unwrap_or(0)
    }

    fn plan_groups<'r>(
        &mut self,
        relation: &'r Relation,
        keys: Vec<Expr>,
        accumulators: Vec<Accumulator>,
        choice: Option<PartitionChoice>,
    ) -> Result<PlannedGroups<'r>> {
        let (table_blocks, is_skewed) = choice.map_or((2, false), |choice| (choice.table_blocks, choice.is_skewed));
        let shared_bytes_max = self.shared_bytes_max();
        let rows_bits = relation.rows_bits();
        let (form, block_slots) = (self.options.group_by_form, self.options.block_table_slots);
        let ranges = self.ranges_of_key(relation, &keys);
        let by_range = ranges.is_some();
        let is_sorted = form.is_none() && self.is_in_order(relation, &keys, &accumulators, ranges.as_ref());
        let is_scarce = matches!(relation.source, Source::Slice(_));
        let ordered = if form.is_none() { self.ordered_column(relation, &keys, ranges.as_ref()) } else { None };
        let limits = GroupLimits {
            rows_bits,
            shared_bytes_max,
            form,
            block_slots,
            table_blocks,
            is_skewed,
            is_sorted,
            by_range,
            is_scarce,
            is_cut: ordered.is_some(),
        };
        let sink = Sink::Aggregate { keys, accumulators, limits };
        let generated = self.bind(relation, &sink)?;
        let SinkShape::Groups(shape) = &generated.sink else {
            return Err(Error::internal("a group sink without groups"));
        };
        let shape = Arc::new(shape.clone());
        let packed_bits = shape.packing.single_word_bits().unwrap_or(64);
        let keys_max = if packed_bits < 40 { 1u64 << packed_bits } else { u64::MAX };
        let groups_max = relation.rows_max.min(keys_max).max(1);
        Ok(PlannedGroups { generated, shape, groups_max, is_sorted, ranges, ordered })
    }

    /// The column by whose order rows can be cut in place, if that pays. `ranges`: those of the only key, on several
    /// devices.
    fn ordered_column<'r>(
        &self,
        relation: &'r Relation,
        keys: &[Expr],
        ranges: Option<&Ranges>,
    ) -> Option<OrderedColumn<'r>> {
        let (devices, rows_min) = (self.devices(), self.options.ordered_span_min);
        let are_complete = devices == 1 || ranges.is_some() && self.reach_all();
        let ordered = if are_complete { OrderedColumn::of(relation, keys, devices) } else { None };
        ordered.filter(|column| column.pays(rows_min))
    }

    /// How rows are cut by a column.
    fn cut<'r>(
        &mut self,
        relation: &Relation,
        generated: &GeneratedPipeline,
        shape: &GroupShape,
        ordered: OrderedColumn<'r>,
    ) -> Result<(OrderedColumn<'r>, Vec<Cut>)> {
        let rows = relation.source.shard_rows_max(self.devices());
        let grid = launch_shape(&self.streams[0], rows, generated, relation, 0);
        let cuts = self.cuts(&ordered, shape, grid.blocks.into())?;
        Ok((ordered, cuts))
    }

    /// Whether rows are sorted by a key whose range is small enough for a group table with a row for each value.
    fn is_in_order(
        &self,
        relation: &Relation,
        keys: &[Expr],
        accumulators: &[Accumulator],
        ranges: Option<&Ranges>,
    ) -> bool {
        let budgets = self.streams.iter().map(Stream::budget_bytes);
        let room = u128::from(budgets.min().unwrap_or(0) / SORTED_TABLE_SHARE);
        // A word for the group, and two for each accumulator at most.
        let row_bytes = 8 * (1 + 2 * accumulators.len()) as u128;
        // Groups of ranges are complete on their devices, which takes less time than to bring others together.
        let least = if ranges.is_some() { ORDERED_RANGES_SPAN_MIN } else { ORDERED_SPAN_MIN };
        let span_min = u128::from(self.options.ordered_span_min.unwrap_or(least));
        let of_device = |range: &[i128; 2]| range[1].abs_diff(range[0]) + 1;
        let largest = ranges.and_then(|ranges| ranges.iter().flatten().map(of_device).max());
        relation.span_in_order(keys).is_some_and(|span| span >= span_min && largest.unwrap_or(span) * row_bytes <= room)
    }

    /// Range of the only key, an integer, on each of several devices.
    fn ranges_of_key(&self, relation: &Relation, keys: &[Expr]) -> Option<Ranges> {
        let [key] = keys else { return None };
        let is_looked_for = self.devices() > 1 && key.data_type != DataType::Boolean;
        is_looked_for.then(|| relation.ranges_of(std::slice::from_ref(key)).pop().flatten()).flatten()
    }

    fn run_planned(
        &mut self,
        relation: &Relation,
        planned: PlannedGroups<'_>,
        estimate: Option<Estimate>,
    ) -> Result<GroupTable> {
        let PlannedGroups { generated, shape, groups_max, ranges, ordered, .. } = planned;
        let ordered = ordered.filter(|_| shape.is_cut);
        let cut = ordered.map(|ordered| self.cut(relation, &generated, &shape, ordered)).transpose()?;
        let room = |device: usize| {
            let room = self.first_room(relation, &generated, &shape, device, estimate);
            cut.as_ref().map_or(room, |(_, cuts)| room.of_pieces(cuts[device], self.options.first_capacity))
        };
        let mut rooms: Vec<GroupRoom> = (0..self.devices()).map(room).collect();
        if let (true, Some(ranges)) = (shape.is_cut, &ranges) {
            rooms.iter_mut().zip(open_ends(ranges)).for_each(|(room, ends)| room.open_ends = ends);
        }
        if let (true, Some(ranges), Some(bounds)) = (shape.by_range, ranges, shape.packing.single_integer()) {
            for (room, range) in rooms.iter_mut().zip(ranges.iter()) {
                *room = room.of_keys(range.map_or([0, 0], |range| range.map(|key| bounds.distance(key))));
            }
        }
        let shards = self.run_sink(relation, &generated, GroupsSink { shape: &shape, rooms, cut })?;
        self.note_groups(&shape, &shards);
        Ok(GroupTable::new(groups_max, shape, shards))
    }

    /// The first table.
    fn first_room(
        &self,
        relation: &Relation,
        generated: &GeneratedPipeline,
        shape: &GroupShape,
        device: usize,
        estimate: Option<Estimate>,
    ) -> GroupRoom {
        let packed_bits = shape.packing.single_word_bits().unwrap_or(64);
        let rows = relation.source.shard_rows(device);
        let slice_bits = slice_bits(self.streams[device].device().info(), rows, generated.grid);
        let grid = launch_shape(&self.streams[device], rows << slice_bits, generated, relation, 0);
        let blocks = u64::from(grid.blocks);
        let slots = match shape.mode {
            GroupMode::Global => 1,
            GroupMode::Dense => shape.packing.span().unwrap_or(u64::MAX).min(1 << packed_bits),
            GroupMode::Narrow | GroupMode::Wide => {
                // Twice the groups of the estimate, or as many as half of L2 holds; no more than there can be.
                let info = self.session.devices()[device].info();
                let in_cache = info.l2_bytes / 2 / (shape.stride_words as u64 * 8);
                // Rows of a slice are known.
                let is_slice = matches!(relation.source, Source::Slice(_));
                let rows = if is_slice { rows } else { relation.rows_max }.saturating_mul(2);
                let distinct = if packed_bits < 40 { 2u64 << packed_bits } else { u64::MAX };
                let wanted = match estimate {
                    Some(estimate) => (estimate.groups_max() * 2.0) as u64,
                    // Where room is scarce, a table does not grow beside the one before.
                    None if is_slice => rows,
                    None => in_cache,
                };
                self.options.first_capacity.unwrap_or(wanted).min(rows).min(distinct).max(64)
            }
        };
        let slots_max = match relation.source {
            Source::Slice(_) => rows,
            _ => rows.max(relation.rows_max),
        };
        let slots_max = slots_max.saturating_mul(2).max(64);
        let is_skewed = estimate.is_some_and(|estimate| estimate.is_skewed);
        let finished = estimate.filter(|_| shape.has_finished).map_or(0.0, |estimate| estimate.groups_max());

        // What blocks put out between two looks at the status, and when they flush their tables.
        let in_flight = blocks * (17 * u64::from(grid.block_threads) + u64::from(shape.front.slots()));
        // A row is put out once, by itself or with others; of matches, nobody knows how many there are.
        let in_flight =
            if matches!(relation.source, Source::Matches(..)) { in_flight } else { in_flight.min(rows.max(64)) };
        let mut room = GroupRoom::new(slots, slots_max, in_flight, blocks);
        if estimate.is_none_or(|estimate| estimate.groups < PREFETCH_GROUPS_MAX) {
            room.prefetch_steps = PREFETCH_STEPS;
        }
        match &relation.source {
            Source::Partitioned(parts) => {
                let partitions = parts.shards[device].partitions();
                let finished_rows = ((finished * 1.25) as u64 + FINISHED_SLOTS_MIN).min(rows);
                let finished_rows = self.options.first_capacity.map_or(finished_rows, |rows| rows.min(finished_rows));
                let finished_rows = if shape.has_finished { finished_rows.max(1) } else { 0 };
                let mut room = room.by_partition(rows, partitions, finished_rows);
                // Most groups of partitions that blocks have to themselves are finished there.
                if finished > 0.0 && !is_skewed && rows / partitions <= room.chunk_rows {
                    room.slots = (room.slots / FINISHED_SHARE).max(room.slots.min(FINISHED_SLOTS_MIN));
                }
                room
            }
            _ => room,
        }
    }

    fn note_groups(&mut self, shape: &GroupShape, shards: &[GroupShard]) {
        let known = match shape.mode {
            GroupMode::Global => shards.len() as u64,
            GroupMode::Wide => shards.iter().map(|shard| shard.capacity).sum(),
            GroupMode::Dense | GroupMode::Narrow => 0,
        };
        if let Some(pipeline) = self.metrics.pipelines.last_mut() {
            pipeline.rows_out = known;
        }
    }
}

impl Aggregation {
    /// The accumulators of calls, and the outputs computed from them. The sink keeps equal accumulators once.
    ///
    /// # Errors
    /// When a call needs more than accumulators.
    pub(super) fn of(keys: &[Expr], calls: &[AggregateCall]) -> Result<Self> {
        let mut accumulators: Vec<Accumulator> = vec![];
        let mut add = |state: State| {
            let column = Expr::column(keys.len() + accumulators.len(), state.data_type.clone(), true);
            accumulators.push(Accumulator { state, is_merge: false });
            column
        };
        let key = |(index, key): (usize, &Expr)| Expr::column(index, key.data_type.clone(), key.nullable);
        let mut outputs: Vec<Expr> = keys.iter().enumerate().map(key).collect();
        for call in calls {
            let output = call.accumulate(&mut add);
            outputs.push(output.ok_or_else(|| Error::internal(format!("{} in one pass", call.function)))?);
        }
        Ok(Self { accumulators, outputs })
    }
}

/// Accumulators that merge partial results, which are in the columns from `first`.
pub(super) fn merging(accumulators: &[Accumulator], first: usize) -> Vec<Accumulator> {
    let merge = |(index, Accumulator { state, .. }): (usize, &Accumulator)| {
        let data_type = state.data_type.clone();
        let argument = Some(Expr::column(first + index, data_type.clone(), true));
        let state = State { fold: state.fold.merging(), argument, second: None, term: Term::Value, data_type };
        Accumulator { state, is_merge: true }
    };
    accumulators.iter().enumerate().map(merge).collect()
}
