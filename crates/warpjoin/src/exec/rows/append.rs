//! Appends rows that come in parts: each part is copied away while the next one is made.

use std::collections::VecDeque;

use warpjoin_columns::column::ColumnType;
use warpjoin_columns::devices::CopyLane;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Cause, Event, MemoryPlace, Stream};

use super::room::{allocate_in, copy_rows, row_bytes};
use crate::exec::relation::{Intermediate, IntermediateShard};

/// Room relative to the number of rows expected from the parts so far.
const ROOM: f64 = 1.1;
/// Rows stay on the device if they take at most this fraction of its free memory (1 / divisor).
const KEPT_DIVISOR: u64 = 8;
/// Maximum parts being copied at a time: one is copied while the next one is made.
const UNDER_WAY_MAX: usize = 1;

/// The rows of several parts of one relation on the only device, appended.
pub(in crate::exec) struct AppendedRows {
    lane: CopyLane,
    under_way: VecDeque<(IntermediateShard, Event)>,
    columns: Vec<ColumnType>,
    rows_max: u64,
    all: IntermediateShard,
    capacity: u64,
    has_parts: bool,
}

impl AppendedRows {
    pub(in crate::exec) fn new(stream: &Stream) -> Result<Self> {
        Ok(Self {
            lane: CopyLane::new(stream)?,
            under_way: VecDeque::new(),
            columns: vec![],
            rows_max: 0,
            all: IntermediateShard::default(),
            capacity: 0,
            has_parts: false,
        })
    }

    /// Whether a part was added, even without rows.
    pub(in crate::exec) fn has_parts(&self) -> bool {
        self.has_parts
    }

    /// Bytes of rows that lie in the host's memory.
    pub(in crate::exec) fn spilled_bytes(&self) -> u64 {
        if self.all.is_on_host() { self.all.rows * row_bytes(&self.columns) } else { 0 }
    }

    /// Rows so far.
    pub(in crate::exec) fn rows(&self) -> u64 {
        self.all.rows
    }

    /// Keeps only the first `rows` rows.
    pub(in crate::exec) fn truncate(&mut self, rows: u64) {
        self.all.rows = self.all.rows.min(rows);
    }

    /// Adds a part. `share`: the share of all input processed with it, from 0 to 1.
    pub(in crate::exec) fn push(&mut self, mut part: Intermediate, share: f64) -> Result<()> {
        if !self.has_parts {
            (self.columns, self.rows_max) = (part.columns, part.rows_max);
        } else {
            part.check_stored_as(&self.columns)?;
        }
        let Some(shard) = part.shards.pop().filter(|_| part.shards.is_empty()) else {
            return Err(Error::internal("parts on several devices"));
        };
        self.rows_max = self.rows_max.max(part.rows_max);
        let rows = self.all.rows + shard.rows;
        // Columns without rows are columns, too.
        if rows > self.capacity || !self.has_parts {
            self.grow(rows, share)?;
        }
        self.has_parts = true;
        let (all, columns) = (&self.all, &self.columns);
        let copied =
            self.lane.enqueue(|copies| copy_rows(copies, columns, (&shard, 0), (all, all.rows), shard.rows))?;
        self.under_way.push_back((shard, copied));
        self.all.rows = rows;
        self.lane.retire(&mut self.under_way, UNDER_WAY_MAX)
    }

    /// All rows, ready for work enqueued on the stream from now on.
    pub(in crate::exec) fn finish(self) -> Result<Intermediate> {
        let Self { lane, mut under_way, columns, rows_max, all, .. } = self;
        lane.retire(&mut under_way, 0)?;
        // What a function returns is lost where a drop behind it panics.
        drop((lane, under_way));
        Ok(Intermediate::new(columns, rows_max, vec![all]))
    }

    /// Moves the rows to larger buffers with room for the expected total; at least for `rows` rows.
    fn grow(&mut self, rows: u64, share: f64) -> Result<()> {
        let expected = if share > 0.0 && share < 1.0 { (rows as f64 / share * ROOM) as u64 } else { rows };
        let capacity = expected.max(rows);
        let stream = self.lane.kernels().clone();
        let bytes = capacity.saturating_mul(row_bytes(&self.columns));
        let is_small = bytes <= stream.free_bytes() / KEPT_DIVISOR;
        let place = if is_small { MemoryPlace::Device } else { MemoryPlace::Host };
        let mut capacity = capacity;
        let mut larger = allocate_in(&stream, &self.columns, capacity, place);
        // Then where there is room, and for no more than there are.
        for place in [MemoryPlace::Host, MemoryPlace::Device] {
            if larger.as_ref().is_err_and(|error| error.cause() == Cause::OutOfMemory) {
                capacity = rows;
                larger = allocate_in(&stream, &self.columns, capacity, place);
            }
        }
        let mut larger = larger?;
        let (all, columns) = (&self.all, &self.columns);
        let copied = self.lane.enqueue(|copies| copy_rows(copies, columns, (all, 0), (&larger, 0), all.rows))?;
        larger.rows = self.all.rows;
        self.capacity = capacity;
        let before = std::mem::replace(&mut self.all, larger);
        self.under_way.push_back((before, copied));
        Ok(())
    }
}
