//! A group table that is filled on one device, and how it grows.

use warpjoin_codegen::{GroupMode, GroupShape, regroup};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Ptr, Stream};
use warpjoin_kernels::common::{control, status};
use warpjoin_kernels::group::{GroupTable, PLACES_EACH, PLACES_HEAD, RegroupParams, group_counter};

use super::pieces::{Cut, OrderedColumn};
use crate::exec::launch::{DeviceSink, GroupTarget, Lane, Pushed, Strides, Target};
use crate::exec::query::{Report, read_report};
use crate::exec::relation::{FinishedGroups, GroupShard};

/// Maximum slots that an insert reads before its key is spilled.
pub(super) const STEPS_MAX: u64 = 128;
/// Maximum slots that an insert reads before it requests a larger table.
const GROW_STEPS: u64 = 64;
/// Minimum chunks of partitioned rows for each block, so that blocks end at about the same time.
const CHUNKS_A_BLOCK_MIN: u64 = 3;
const CHUNKS_A_BLOCK_MAX: u64 = 16;
const CHUNK_ROWS_MIN: u64 = 64;
/// Room for finished groups, relative to their expected number, and additional rows.
const FINISHED_MARGIN: f64 = 1.1;
const FINISHED_MORE: u64 = 1 << 16;
/// Slots of the table for groups that could not be finished.
const UNFINISHED_SLOTS: u64 = 1 << 16;
/// How much larger a table is than the one before.
const GROWTH: u64 = 8;
/// Slots for each known row when a table grows: more rows will come.
const SLOTS_A_ROW: u64 = 4;

/// Size of a group table, and parameters of its launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupRoom {
    pub slots: u64,
    /// For a table indexed by the packed key: the key of its first slot.
    pub first_key: u64,
    /// Maximum useful slots: beyond, only longer probes help.
    pub slots_max: u64,
    pub steps_max: u64,
    pub spill_rows: u64,
    /// Blocks of the launch.
    pub blocks: u64,
    /// Rows of a chunk that a block takes at a time, for partitioned rows; 0: rows are not partitioned.
    pub chunk_rows: u64,
    /// Rows of finished groups.
    pub finished_rows: u64,
    /// The ends of cut rows whose key also occurs on other devices.
    pub open_ends: u64,
    /// Prefetch distance, in steps.
    pub prefetch_steps: u64,
}

impl GroupRoom {
    pub(super) fn new(slots: u64, slots_max: u64, spill_rows: u64, blocks: u64) -> Self {
        let slots_max = slots_max.max(slots);
        Self {
            slots,
            first_key: 0,
            slots_max,
            steps_max: STEPS_MAX,
            spill_rows,
            blocks,
            chunk_rows: 0,
            finished_rows: 0,
            open_ends: 0,
            prefetch_steps: 0,
        }
    }

    /// For partitioned rows: sets the chunks that blocks take, and the room for finished groups.
    pub(super) fn by_partition(self, rows: u64, partitions: u64, finished_rows: u64) -> Self {
        let each = (rows / partitions).max(rows / (CHUNKS_A_BLOCK_MAX * self.blocks));
        let chunk_rows = each.min(rows / (CHUNKS_A_BLOCK_MIN * self.blocks)).max(CHUNK_ROWS_MIN);
        Self { chunk_rows, finished_rows, ..self }
    }

    /// For cut rows: nearly all groups are finished. There is room for `finished_max` of them at first.
    pub(super) fn of_pieces(self, cut: Cut, finished_max: Option<u64>) -> Self {
        let expected = ((cut.groups * FINISHED_MARGIN) as u64 + FINISHED_MORE).min(cut.rows);
        let finished_rows = expected.min(finished_max.unwrap_or(u64::MAX)).max(1);
        let room = self.by_partition(cut.rows, cut.pieces().max(1), finished_rows);
        Self { slots: room.slots.min(UNFINISHED_SLOTS), ..room }
    }

    /// For a table with a slot for each packed key from the first to the last.
    pub(super) fn of_keys(self, [first, last]: [u64; 2]) -> Self {
        Self { slots: last.saturating_sub(first) + 1, first_key: first, ..self }
    }

    /// The same with at least `slots` slots, up to `slots_max`.
    fn at_least(self, slots: u64) -> Self {
        Self { slots: self.slots.max(slots.min(self.slots_max)), ..self }
    }

    /// Eight times the slots; once there is a slot for every row, longer probes.
    fn grown(self) -> Self {
        let factor = if self.slots >= self.slots_max { 16 } else { 1 };
        Self {
            steps_max: self.steps_max.saturating_mul(factor),
            slots: self.slots.saturating_mul(GROWTH).min(self.slots_max),
            ..self
        }
    }
}

/// The sink of a group-by: accumulates groups. A table that runs full is enlarged between launches.
pub(super) struct GroupsSink<'s> {
    pub shape: &'s GroupShape,
    /// Table size of each device.
    pub rooms: Vec<GroupRoom>,
    /// How the rows of each device are cut, if they are.
    pub cut: Option<(OrderedColumn<'s>, Vec<Cut>)>,
}

impl DeviceSink for GroupsSink<'_> {
    type Filling = (GroupTarget, GroupRoom);
    type Filled = GroupShard;
    type Output = Vec<GroupShard>;

    fn name(&self) -> String {
        format!("GroupBy[{}]", self.shape.form())
    }

    fn open(&self, lane: &mut Lane<'_>) -> Result<Self::Filling> {
        let room = self.rooms[lane.device];
        let mut target = GroupTarget::allocate(&lane.stream, self.shape, room)?;
        if let Some((ordered, cuts)) = &self.cut {
            target.pieces = Some(ordered.cut_rows(lane, cuts[lane.device])?);
        }
        Ok((target, room))
    }

    /// A group-by without keys always has a row, on the first device.
    fn nothing(&self, lane: &mut Lane<'_>) -> Result<Option<GroupShard>> {
        if self.shape.mode == GroupMode::Global && lane.device == 0 {
            return Ok(None);
        }
        Ok(Some(GroupShard { rows: lane.stream.alloc(0)?, capacity: 0, first_key: 0, finished: None }))
    }

    fn target<'t>(&'t self, (groups, _): &'t Self::Filling) -> Target<'t> {
        Target::Groups(groups)
    }

    fn takes_one_chunk(&self) -> bool {
        true
    }

    /// Pieces need all rows at once.
    fn takes_chunks(&self) -> bool {
        self.cut.is_none()
    }

    fn pushed(
        &self,
        lane: &mut Lane<'_>,
        (groups, room): &mut Self::Filling,
        report: &Report,
        is_last: bool,
    ) -> Result<Pushed> {
        if report.status & status::FULL != 0 {
            return Ok(Pushed::Full);
        }
        // Blocks that stopped are counted as rows.
        let stops = report.status & status::GROW != 0;
        if stops && (report.rows > 0 || groups.spilled(&lane.stream)? > 0) {
            groups.grow(lane, self.shape, room)?;
        }
        if report.rows > 0 {
            return Ok(Pushed::Resume);
        }
        if !is_last {
            // Blocks begin with the next chunk.
            lane.stream.fill(&groups.cursors, 0, groups.cursors.bytes(), 0)?;
        }
        Ok(Pushed::Done)
    }

    fn finish(&self, lane: &mut Lane<'_>, (groups, _): Self::Filling, _: &Report) -> Result<GroupShard> {
        groups.finish(&lane.stream, self.shape)
    }

    fn make_room(&mut self, device: usize, (_, room): Self::Filling, _: &Report) {
        self.rooms[device] = room.grown();
    }

    fn combine(self, shards: Vec<GroupShard>) -> Vec<GroupShard> {
        shards
    }
}

impl GroupTarget {
    fn allocate(stream: &Stream, shape: &GroupShape, room: GroupRoom) -> Result<Self> {
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
            return Err(warpjoin_columns::Reason::Limit("2^32 groups of long keys on one device".into()).into());
        }
        let index = is_wide.then(|| stream.alloc_filled(index_slots * 8, 0)).transpose()?;
        let rows = stream.alloc(bytes)?;
        stream.fill(&rows, 0, cleared_rows * row_bytes, 0)?;
        let probed = if is_wide { index_slots } else { room.slots };
        let cursor_words = if room.chunk_rows > 0 { PLACES_HEAD + PLACES_EACH * room.blocks } else { room.blocks };
        let finished = (room.finished_rows > 0).then(|| stream.alloc(room.finished_rows * row_bytes)).transpose()?;
        Ok(Self {
            shard: GroupShard { rows, capacity: cleared_rows, first_key: room.first_key, finished: None },
            slots: room.slots,
            index,
            index_slots,
            steps_max: room.steps_max.min(probed),
            grow_steps: if room.slots >= room.slots_max { u64::MAX } else { GROW_STEPS },
            spill_rows,
            counters: stream.alloc_filled(group_counter::WORDS as u64 * 8, 0)?,
            cursors: stream.alloc_filled(cursor_words * 8, 0)?,
            pieces: None,
            chunk_rows: room.chunk_rows,
            open_ends: room.open_ends,
            prefetch_steps: room.prefetch_steps,
            finished,
            finished_rows: room.finished_rows,
        })
    }

    /// Rows that were spilled after the table.
    fn spilled(&self, stream: &Stream) -> Result<u64> {
        Ok(self.counted(stream)?[group_counter::SPILLED].min(self.spill_rows))
    }

    fn counted(&self, stream: &Stream) -> Result<[u64; group_counter::WORDS]> {
        let mut words = [0u64; group_counter::WORDS];
        stream.read(&self.counters, 0, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words)
    }

    /// The rows to read: the number of appended rows is known; other tables are read completely.
    fn finish(self, stream: &Stream, shape: &GroupShape) -> Result<GroupShard> {
        let appended = match shape.mode {
            GroupMode::Wide => Some(self.counted(stream)?[group_counter::APPENDED].min(self.slots)),
            _ => None,
        };
        let mut shard = self.shard;
        if let Some(rows) = self.finished {
            // The second of the places' words.
            let mut count = [0u64; 1];
            stream.read(&self.cursors, 8, bytemuck::cast_slice_mut(&mut count))?;
            let count = count[0].min(self.finished_rows);
            shard.capacity += count;
            shard.finished = Some(FinishedGroups { rows, count });
        }
        if let Some(appended) = appended {
            shard.capacity = appended;
        }
        Ok(shard)
    }

    /// Merges the table and its spilled rows into larger tables until all rows fit. Updates `room`; the cursors of
    /// blocks stay.
    fn grow(&mut self, lane: &mut Lane<'_>, shape: &GroupShape, room: &mut GroupRoom) -> Result<()> {
        let kernel = lane.kernel(&regroup(lane.options.hash_bits), "regroup")?;
        let mut merges = shape.merges();
        // A buffer has at least a word.
        let merge_count = merges.len() as u64;
        merges.resize(merges.len().max(1), 0);
        let merges = lane.stream.upload(bytemuck::cast_slice(&merges))?;
        let key_words = if shape.mode == GroupMode::Wide { shape.packing.words() as u64 } else { 0 };
        for _ in 0..24 {
            let count = self.slots + 1 + self.spilled(&lane.stream)?;
            let grown = room.grown().at_least(count.saturating_mul(SLOTS_A_ROW));
            // Every row may be a spilled one.
            let spill_rows = grown.spill_rows.max(count);
            let larger = GroupRoom { spill_rows, finished_rows: 0, ..grown };
            let new = Self::allocate(&lane.stream, shape, larger)?;
            let control = lane.stream.alloc_filled(control::BYTES, 0)?;
            let params = RegroupParams {
                rows: Ptr::of(&self.shard.rows),
                only: 0,
                count,
                zero_row: self.slots,
                table: GroupTable {
                    rows: Ptr::of(&new.shard.rows),
                    capacity: new.slots,
                    index: new.index.as_ref().map(Ptr::of),
                    index_slots: new.index_slots,
                    steps_max: new.steps_max,
                    grow_steps: new.grow_steps,
                    spill_rows: new.spill_rows,
                    counters: Ptr::of(&new.counters),
                    control: Ptr::of(&control),
                },
                stride: shape.stride_words as u64,
                key_words,
                merges: Ptr::of(&merges),
                merge_count,
            };
            lane.stream.wait_for_permit()?;
            let begin = lane.stream.record()?;
            lane.launch(&kernel, Strides::ROWS.over(count, &lane.stream), &params)?;
            let end = lane.stream.record()?;
            read_report(&lane.stream, &control)?;
            lane.note_kernel(&begin, &end)?;
            let old = std::mem::replace(self, new);
            *room = grown;
            self.cursors = old.cursors;
            self.pieces = old.pieces;
            self.finished = old.finished;
            self.finished_rows = old.finished_rows;
            if self.spilled(&lane.stream)? == 0 {
                return Ok(());
            }
        }
        Err(Error::kernel_bound("a group table is still full after the last retry"))
    }
}
