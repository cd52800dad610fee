//! A group table being filled on one device, and how it grows.

use warpjoin_device::{Arg, Buffer};

use crate::codegen::{GroupMode, GroupShape, PLACES_EACH, PLACES_HEAD, control, group_counter, regroup};
use crate::exec::exchange::launch;
use crate::exec::launch::read_report;
use crate::exec::query::Query;
use crate::exec::relation::{FinishedGroups, GroupShard};
use crate::{Error, Result};

/// Slots that an insert reads before its key is spilled.
const STEPS_MAX: u64 = 512;
/// Slots that an insert reads before it asks for a larger table.
const GROW_STEPS: u64 = 64;
/// Chunks of rows that lie by partition: so many a block that the last ones end together, and no more than that takes.
const CHUNKS_A_BLOCK_MIN: u64 = 3;
const CHUNKS_A_BLOCK_MAX: u64 = 16;
const CHUNK_ROWS_MIN: u64 = 64;
/// How much larger a table is than the one before.
const GROWTH: u64 = 8;

/// A group table being filled on one device.
///
/// ```text
/// rows: slots (or appended rows) | the row of key word 0 | spilled rows, not cleared
/// ```
#[derive(Debug)]
pub(in crate::exec) struct GroupTarget {
    /// The rows to read once all are in: spilled ones excluded.
    pub shard: GroupShard,
    /// Rows that keys are placed in, or that may be appended.
    pub slots: u64,
    pub index: Option<Buffer>,
    pub index_slots: u64,
    pub steps_max: u64,
    pub grow_steps: u64,
    pub spill_rows: u64,
    /// See `group_counter`.
    pub counters: Buffer,
    /// The next turn of each block, or the places of a walk: what was accumulated stays when the table grows.
    pub cursors: Buffer,
    /// Rows that a block takes at a time where they lie by partition.
    pub chunk_rows: u64,
    /// How many steps ahead of the rows at hand a block asks for rows.
    pub prefetch_steps: u64,
    /// Rows of groups that are finished, which no table holds.
    pub finished: Option<Buffer>,
    pub finished_rows: u64,
}

/// How large a table is.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupRoom {
    pub slots: u64,
    /// Slots beyond which more do not help: only longer probes can.
    pub slots_max: u64,
    pub steps_max: u64,
    pub spill_rows: u64,
    /// Blocks of the launch.
    pub blocks: u64,
    /// Rows that a block takes at a time where they lie by partition; 0: they do not.
    pub chunk_rows: u64,
    /// Rows of finished groups.
    pub finished_rows: u64,
    /// How many steps ahead of the rows at hand a block asks for rows.
    pub prefetch_steps: u64,
}

impl GroupRoom {
    pub(super) fn new(slots: u64, slots_max: u64, spill_rows: u64, blocks: u64) -> Self {
        let slots_max = slots_max.max(slots);
        Self {
            slots,
            slots_max,
            steps_max: STEPS_MAX,
            spill_rows,
            blocks,
            chunk_rows: 0,
            finished_rows: 0,
            prefetch_steps: 0,
        }
    }

    /// For rows in so many partitions: what blocks take at a time, and room for finished groups.
    pub(super) fn by_partition(self, rows: u64, partitions: u64, finished_rows: u64) -> Self {
        let each = (rows / partitions).max(rows / (CHUNKS_A_BLOCK_MAX * self.blocks));
        let chunk_rows = each.min(rows / (CHUNKS_A_BLOCK_MIN * self.blocks)).max(CHUNK_ROWS_MIN);
        Self { chunk_rows, finished_rows, ..self }
    }

    /// Eight times the room; once there is room for every row, longer probes.
    pub(super) fn grow(&mut self) {
        if self.slots >= self.slots_max {
            self.steps_max = self.steps_max.saturating_mul(16);
        }
        self.slots = self.slots.saturating_mul(GROWTH).min(self.slots_max);
    }
}

impl Query<'_> {
    pub(super) fn allocate_groups(&self, device: usize, shape: &GroupShape, room: GroupRoom) -> Result<GroupTarget> {
        let stream = &self.streams[device];
        let is_wide = shape.mode == GroupMode::Wide;
        let (cleared_rows, spill_rows) = match shape.mode {
            GroupMode::Global | GroupMode::Dense => (room.slots, 0),
            GroupMode::Narrow | GroupMode::Wide => (room.slots + 1, room.spill_rows),
        };
        let row_bytes = shape.stride_words as u64 * 8;
        let bytes = (cleared_rows.checked_add(spill_rows))
            .and_then(|rows| rows.checked_mul(row_bytes))
            .ok_or_else(|| Error::internal("a group table beyond 64 bits"))?;
        let index_slots = if is_wide { room.slots * 2 } else { 0 };
        if is_wide && room.slots > u64::from(u32::MAX) {
            return Err(crate::Reason::Limit("2^32 groups of long keys on one device".into()).into());
        }
        let index = is_wide.then(|| stream.alloc_filled(index_slots * 8, 0)).transpose()?;
        let rows = stream.alloc(bytes)?;
        stream.fill(&rows, 0, cleared_rows * row_bytes, 0)?;
        let probed = if is_wide { index_slots } else { room.slots };
        let cursor_words = if room.chunk_rows > 0 { PLACES_HEAD + PLACES_EACH * room.blocks } else { room.blocks };
        let finished = (room.finished_rows > 0).then(|| stream.alloc(room.finished_rows * row_bytes)).transpose()?;
        Ok(GroupTarget {
            shard: GroupShard { rows, capacity: cleared_rows, finished: None },
            slots: room.slots,
            index,
            index_slots,
            steps_max: room.steps_max.min(probed),
            grow_steps: if room.slots >= room.slots_max { u64::MAX } else { GROW_STEPS },
            spill_rows,
            counters: stream.alloc_filled(group_counter::WORDS as u64 * 8, 0)?,
            cursors: stream.alloc_filled(cursor_words * 8, 0)?,
            chunk_rows: room.chunk_rows,
            prefetch_steps: room.prefetch_steps,
            finished,
            finished_rows: room.finished_rows,
        })
    }

    /// Rows that were spilled behind a table.
    pub(super) fn spilled(&self, device: usize, target: &GroupTarget) -> Result<u64> {
        let counters = self.group_counters(device, target)?;
        Ok(counters[group_counter::SPILLED].min(target.spill_rows))
    }

    fn group_counters(&self, device: usize, target: &GroupTarget) -> Result<[u64; group_counter::WORDS]> {
        let mut words = [0u64; group_counter::WORDS];
        self.streams[device].read(&target.counters, 0, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words)
    }

    /// Ends filling: the rows to read. Appended rows are known, those of other tables are all that there are.
    pub(super) fn finish_groups(&self, device: usize, shape: &GroupShape, target: GroupTarget) -> Result<GroupShard> {
        let mut shard = target.shard;
        if let Some(rows) = target.finished {
            // The second of the places' words.
            let mut count = [0u64; 1];
            self.streams[device].read(&target.cursors, 8, bytemuck::cast_slice_mut(&mut count))?;
            let count = count[0].min(target.finished_rows);
            shard.capacity += count;
            shard.finished = Some(FinishedGroups { rows, count });
        }
        if shape.mode == GroupMode::Wide {
            let mut words = [0u64; group_counter::WORDS];
            self.streams[device].read(&target.counters, 0, bytemuck::cast_slice_mut(&mut words))?;
            shard.capacity = words[group_counter::APPENDED].min(target.slots);
        }
        Ok(shard)
    }

    /// Merges a table and its spilled rows into larger ones until all fits; what blocks have still to do stays
    /// as it was.
    pub(super) fn grow_groups(
        &mut self,
        device: usize,
        shape: &GroupShape,
        mut old: GroupTarget,
        room: &mut GroupRoom,
    ) -> Result<GroupTarget> {
        let module = regroup(shape, self.options.hash_bits);
        let kernels = self.compile(&module, "regroup")?;
        for _ in 0..24 {
            let count = old.slots + 1 + self.spilled(device, &old)?;
            room.grow();
            // Every row may be a spilled one.
            let spill_rows = room.spill_rows.max(count);
            let mut new = self.allocate_groups(device, shape, GroupRoom { spill_rows, finished_rows: 0, ..*room })?;
            let stream = self.streams[device].clone();
            let control = stream.alloc_filled(control::WORDS as u64 * 8, 0)?;
            let args = [
                Arg::Buffer(&old.shard.rows),
                Arg::U64(count),
                Arg::U64(old.slots),
                Arg::Buffer(&new.shard.rows),
                Arg::U64(new.slots),
                Arg::or_null(new.index.as_ref()),
                Arg::U64(new.index_slots),
                Arg::U64(new.steps_max),
                Arg::U64(new.grow_steps),
                Arg::U64(new.spill_rows),
                Arg::Buffer(&new.counters),
                Arg::Buffer(&control),
            ];
            let begin = stream.record()?;
            stream.launch(&kernels[device], launch(count, &stream, 0), &args)?;
            let end = stream.record()?;
            self.metrics.launches += 1;
            read_report(&stream, &control)?;
            self.add_kernels([(device, &begin, &end)])?;
            new.cursors = old.cursors;
            new.finished = old.finished;
            new.finished_rows = old.finished_rows;
            if self.spilled(device, &new)? == 0 {
                return Ok(new);
            }
            old = new;
        }
        Err(Error::kernel_bound("a group table stays full however large it is"))
    }
}
