//! Loading of spilled rows, some partitions at a time: the next ones are copied while these are used.

use std::ops::Range;
use std::sync::Arc;

use warpjoin_codegen::RowShape;
use warpjoin_columns::Result;
use warpjoin_columns::devices::{CopyLane, SpilledColumns};
use warpjoin_device::{Cause, Event, Stream};

use crate::exec::launch::share_of;
use crate::exec::relation::{PassBits, RowSlice};

/// Bits of spilled partitions: enough for partitions of similar size.
pub(in crate::exec) const SPILL_BITS: PassBits = PassBits { first: 8, second: 0 };

/// Buffers have a multiple of this, so that kernels can read whole vectors.
const ALIGNMENT_BYTES: u64 = 16;

/// Spilled rows of all devices, as runs of partitioned rows.
#[derive(Debug)]
pub(in crate::exec) struct SpilledRows {
    pub shape: Arc<RowShape>,
    /// Bound of the rows that was known before they were made.
    pub rows_max: u64,
    pub runs: Vec<Run>,
}

/// Rows of a chunk, by partition.
#[derive(Debug)]
pub(in crate::exec) struct Run {
    /// One column for each word.
    pub rows: SpilledColumns,
    /// Where each partition begins, and the number of rows.
    pub begins: Vec<u32>,
}

/// Rows of some partitions that are loaded together: a range of rows of each run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exec) struct Piece(Vec<(usize, Range<u64>)>);

impl Run {
    pub(super) fn rows(&self) -> u64 {
        self.begins.last().copied().unwrap_or(0).into()
    }

    fn rows_of(&self, partitions: &Range<usize>) -> Range<u64> {
        self.begins[partitions.start].into()..self.begins[partitions.end].into()
    }
}

impl Piece {
    fn rows(&self) -> u64 {
        self.0.iter().map(|(_, rows)| rows.end - rows.start).sum()
    }
}

impl SpilledRows {
    /// All rows.
    pub(in crate::exec) fn rows(&self) -> u64 {
        self.runs.iter().map(Run::rows).sum()
    }

    /// The partitions that one of several devices processes.
    pub(in crate::exec) fn partitions_of(device: usize, devices: usize) -> Range<usize> {
        share_of(device, devices, 1 << SPILL_BITS.total())
    }

    /// Rows of some partitions.
    pub(in crate::exec) fn rows_of(&self, partitions: &Range<usize>) -> u64 {
        self.runs.iter().map(|run| run.rows_of(partitions)).map(|rows| rows.end - rows.start).sum()
    }

    /// All rows of some partitions.
    pub(in crate::exec) fn piece(&self, partitions: &Range<usize>) -> Piece {
        self.pieces(partitions, u64::MAX).swap_remove(0)
    }

    /// The rows of some partitions, at most `rows_max` at a time; at least one piece, which may have none.
    pub(in crate::exec) fn pieces(&self, partitions: &Range<usize>, rows_max: u64) -> Vec<Piece> {
        let rows_max = rows_max.max(1);
        let mut pieces = vec![Piece(vec![])];
        let mut room = rows_max;
        for (index, run) in self.runs.iter().enumerate() {
            let mut rows = run.rows_of(partitions);
            while !rows.is_empty() {
                if room == 0 {
                    pieces.push(Piece(vec![]));
                    room = rows_max;
                }
                let end = rows.end.min(rows.start.saturating_add(room));
                room -= end - rows.start;
                if let Some(piece) = pieces.last_mut() {
                    piece.0.push((index, rows.start..end));
                }
                rows.start = end;
            }
        }
        pieces
    }
}

/// Iterates over partitions of spilled rows, some neighbors at a time.
pub(in crate::exec) struct PartitionRanges {
    rows: Arc<SpilledRows>,
    /// The index after the last partition.
    end: usize,
    /// Maximum rows of a range of several partitions.
    rows_max: u64,
    last: Range<usize>,
    /// The next range, if [`Self::next`] has computed it.
    next: Option<Range<usize>>,
}

impl PartitionRanges {
    pub(in crate::exec) fn of(rows: &Arc<SpilledRows>, partitions: Range<usize>, rows_max: u64) -> Self {
        let Range { start, end } = partitions;
        Self { rows: Arc::clone(rows), end, rows_max, last: start..start, next: None }
    }

    /// The next range, which [`Self::advance`] will return; `None` after the last one.
    pub(in crate::exec) fn next(&mut self) -> Option<Range<usize>> {
        let first = self.last.end;
        if self.next.is_none() && first < self.end {
            let fits = |&end: &usize| self.rows.rows_of(&(first..end)) <= self.rows_max;
            self.next = Some(first..(first + 2..=self.end).take_while(fits).last().unwrap_or(first + 1));
        }
        self.next.clone()
    }

    /// Goes on to the next range.
    pub(in crate::exec) fn advance(&mut self) -> Option<Range<usize>> {
        self.last = self.next()?;
        self.next = None;
        Some(self.last.clone())
    }

    /// Limits ranges of several partitions to `rows_max` rows, from the one after the next.
    pub(in crate::exec) fn limit(&mut self, rows_max: u64) {
        self.rows_max = rows_max;
    }

    /// Retries the last range after it ran out of memory: first without prefetched rows, then with half of its rows at
    /// a time. Returns false if neither is possible, as the range is a single partition.
    pub(in crate::exec) fn retry(&mut self, inbound: &mut Inbound) -> Result<bool> {
        if !inbound.give_up_ahead()? {
            if self.last.len() < 2 {
                return Ok(false);
            }
            self.rows_max = self.rows.rows_of(&self.last) / 2;
        }
        self.last = self.last.start..self.last.start;
        self.next = None;
        Ok(true)
    }
}

/// Loads pieces of spilled rows to the device.
pub(in crate::exec) struct Inbound {
    lane: CopyLane,
    /// Prefetched pieces.
    ahead: Vec<Loading>,
    /// The device had no room for a prefetch.
    has_no_room: bool,
    /// Bytes that were copied from the host.
    pub bytes: u64,
}

struct Loading {
    of: Arc<SpilledRows>,
    piece: Piece,
    slice: RowSlice,
    ready: Event,
}

impl Inbound {
    /// A loader for work on `stream`.
    pub(in crate::exec) fn new(stream: &Stream) -> Result<Self> {
        Ok(Self { lane: CopyLane::new(stream)?, ahead: vec![], has_no_room: false, bytes: 0 })
    }

    /// Starts to prefetch a piece, if there is room.
    pub(in crate::exec) fn prefetch(&mut self, rows: &Arc<SpilledRows>, piece: &Piece) -> Result<()> {
        if self.has_no_room || self.ahead.iter().any(|known| known.is(rows, piece)) {
            return Ok(());
        }
        match self.load(rows, piece) {
            Ok(loading) => self.ahead.push(loading),
            Err(error) if error.cause() == Cause::OutOfMemory => self.has_no_room = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A piece, ready for work enqueued on the stream from now on.
    pub(in crate::exec) fn take(&mut self, rows: &Arc<SpilledRows>, piece: &Piece) -> Result<RowSlice> {
        let known = self.ahead.iter().position(|known| known.is(rows, piece));
        let loading = match known {
            Some(known) => self.ahead.swap_remove(known),
            None => self.load(rows, piece)?,
        };
        self.lane.join(&loading.ready)?;
        Ok(loading.slice)
    }

    /// Frees prefetched pieces, and stops prefetching. Returns whether there were any.
    fn give_up_ahead(&mut self) -> Result<bool> {
        self.has_no_room = true;
        self.forget_ahead()
    }

    /// Frees prefetched pieces. Returns whether there were any.
    pub(in crate::exec) fn forget_ahead(&mut self) -> Result<bool> {
        let had_some = !self.ahead.is_empty();
        for loading in &self.ahead {
            self.lane.join(&loading.ready)?;
        }
        self.ahead.clear();
        Ok(had_some)
    }

    fn load(&mut self, rows: &Arc<SpilledRows>, piece: &Piece) -> Result<Loading> {
        let widths = rows.shape.word_bytes();
        let count = piece.rows();
        let alloc = |&bytes: &u32| {
            let bytes = count * u64::from(bytes);
            self.lane.kernels().alloc(bytes.next_multiple_of(ALIGNMENT_BYTES).max(ALIGNMENT_BYTES))
        };
        let words = widths.iter().map(alloc).collect::<Result<Vec<_>, _>>()?;
        let (mut bytes_read, targets) = (0, words.iter().collect::<Vec<_>>());
        let ready = self.lane.enqueue(|copies| {
            let mut first = 0;
            for (run, range) in &piece.0 {
                bytes_read += rows.runs[*run].rows.copy(copies, range.clone(), (&targets, first))?;
                first += range.end - range.start;
            }
            Ok(())
        })?;
        self.bytes += bytes_read;
        let slice = RowSlice { shape: Arc::clone(&rows.shape), rows_max: rows.rows_max, rows: count, words };
        Ok(Loading { of: Arc::clone(rows), piece: piece.clone(), slice, ready })
    }
}

impl Loading {
    fn is(&self, rows: &Arc<SpilledRows>, piece: &Piece) -> bool {
        Arc::ptr_eq(&self.of, rows) && self.piece == *piece
    }
}
