//! Sorts and windows that a device has no room for: rows are cut into ranges of a key word, chunk by chunk on the device, and go to
//! the host's memory; then one range after the other is finished. Each of several devices finishes its own, which are neighbours.
//!
//! A range that still has no room is cut again: by the same word, or, where the range is one value of it, by the next one.

use std::collections::VecDeque;

use warpjoin_device::{Cause, Event, MemoryPlace, Stream};

use super::order::sample_words;
use crate::Result;
use crate::codegen::SortShape;
use crate::column::ColumnType;
use crate::devices::CopyLane;
use crate::exec::exchange::{SplitKernels, split_by_ranges};
use crate::exec::launch::Lane;
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::Query;
use crate::exec::relation::{Intermediate, IntermediateShard};
use crate::exec::rows::{AppendedRows, allocate, allocate_in, copy_rows, row_bytes};
use crate::options::MemoryUse;

/// What sorting takes for each row beside the rows: two copies of a key word, three of a row's number, and what tiles publish.
const SORT_ROW_BYTES: u64 = 2 * 8 + 3 * 4 + 4;
/// Bytes of a chunk that is cut, and the part of a device's free memory that it takes at most: it is there as it lies, cut, and on its
/// way to the host.
const CHUNK_BYTES: u64 = 256 << 20;
const FREE_DIVISOR: u64 = 8;
const CHUNK_ROWS_MIN: u64 = 128;
/// Ranges that rows are cut into at once: as many as the kernels of an exchange have owners.
const RANGES: usize = 8;

/// What is made of the rows of a range.
pub(in crate::exec) type Finish<'f> = dyn Fn(&mut Query<'_>, Intermediate) -> Result<Intermediate> + Sync + 'f;

/// How rows are cut and finished.
pub(in crate::exec) struct ByRanges<'r> {
    pub shape: &'r SortShape,
    /// Bits of each key word by which rows may be cut.
    pub masks: &'r [u64],
    /// Rows of equal keys may be finished apart.
    pub may_part_equals: bool,
    pub finish: &'r Finish<'r>,
}

/// Ranges of a key word.
#[derive(Debug)]
struct Cuts {
    word: usize,
    /// Where each range but the first begins.
    splitters: Vec<u64>,
    /// How far the next value of the word is.
    step: u64,
}

impl Cuts {
    /// Ranges with about as many of the samples each; values that many have are ranges of their own.
    fn of(mut samples: Vec<u64>, word: usize, mask: u64) -> Self {
        samples.iter_mut().for_each(|sample| *sample &= mask);
        samples.sort_unstable();
        let step = mask & mask.wrapping_neg();
        let quantiles: Vec<u64> =
            (1..RANGES).filter_map(|range| samples.get(samples.len() * range / RANGES)).copied().collect();
        let mut splitters = quantiles.clone();
        splitters.dedup();
        let is_frequent = |value: &u64| quantiles.iter().filter(|quantile| *quantile == value).count() > 1;
        let ends: Vec<u64> =
            splitters.iter().filter(|value| is_frequent(value)).filter_map(|value| value.checked_add(step)).collect();
        splitters.extend(ends);
        splitters.sort_unstable();
        splitters.dedup();
        // Nothing is below 0.
        splitters.retain(|&splitter| splitter > 0);
        Self { word, splitters, step }
    }

    fn count(&self) -> usize {
        self.splitters.len() + 1
    }

    /// Whether a range is one value of the word.
    fn is_single(&self, range: usize) -> bool {
        let begin = range.checked_sub(1).map_or(0, |before| self.splitters[before]);
        self.splitters.get(range).is_some_and(|end| end - begin == self.step)
    }
}

/// Rows of a chunk in the host's memory, range after range.
#[derive(Debug)]
struct Run {
    rows: IntermediateShard,
    /// Where each range begins, and the number of rows.
    begins: Vec<u64>,
}

/// Rows that were cut.
#[derive(Debug)]
struct CutRows {
    columns: Vec<ColumnType>,
    rows_max: u64,
    cuts: Cuts,
    runs: Vec<Run>,
}

impl CutRows {
    fn rows_of(&self, range: usize) -> u64 {
        self.runs.iter().map(|run| run.begins[range + 1] - run.begins[range]).sum()
    }

    /// The rows of a range, of all runs or of one of them, in the memory of the device or of the host.
    fn load(&self, stream: &Stream, range: usize, run: Option<usize>, place: MemoryPlace) -> Result<Intermediate> {
        let runs = || self.runs.iter().enumerate().filter(|(number, _)| run.is_none_or(|run| run == *number));
        let rows = runs().map(|(_, run)| run.begins[range + 1] - run.begins[range]).sum();
        let mut loaded = allocate_in(stream, &self.columns, rows, place)?;
        for (_, run) in runs() {
            let (first, count) = (run.begins[range], run.begins[range + 1] - run.begins[range]);
            copy_rows(stream, &self.columns, (&run.rows, first), (&loaded, loaded.rows), count)?;
            loaded.rows += count;
        }
        Ok(Intermediate::new(self.columns.clone(), self.rows_max, vec![loaded]))
    }
}

impl Query<'_> {
    /// Whether the devices have no room to sort rows by these masks at once, and there is a way to cut them. `more_bytes`: what is made
    /// of each row beside the sort.
    pub(in crate::exec) fn sorts_by_ranges(&mut self, rows: &Intermediate, masks: &[u64], more_bytes: u64) -> bool {
        if masks.first().is_none_or(|&mask| mask == 0) {
            return false;
        }
        if let Some(rows_max) = self.options.pass_rows {
            return rows.rows() > rows_max;
        }
        let most = rows.shards.iter().map(|shard| shard.rows).max().unwrap_or(0);
        let (each, exchanged_bytes) = match rows.home() {
            Some(_) => (most, 0),
            None => (rows.rows().div_ceil(self.devices() as u64), row_bytes(&rows.columns)),
        };
        let row_bytes = SORT_ROW_BYTES + exchanged_bytes + more_bytes;
        // Where an estimate was wrong before, it is not trusted.
        let doubt = if self.options.memory_use == MemoryUse::Least { 4 } else { 1 };
        let bytes = each.saturating_mul(row_bytes).saturating_mul(doubt);
        !self.streams.iter().all(|stream| stream.make_room(bytes))
    }

    /// Cuts the rows of all devices, and finishes one range after the other: in the order of the ranges, from device to device.
    pub(in crate::exec) fn finished_by_ranges(
        &mut self,
        rows: Intermediate,
        by: &ByRanges<'_>,
    ) -> Result<Intermediate> {
        let cut = self.cut_into_ranges(rows, 0, by)?;
        let devices = self.devices();
        let parts = self.on_members(|query, device| {
            let begin = |device: usize| device * cut.cuts.count() / devices;
            let mut finished = AppendedRows::new(&query.streams[0])?;
            let all = (begin(device)..begin(device + 1)).map(|range| cut.rows_of(range)).sum::<u64>();
            for range in begin(device)..begin(device + 1) {
                query.finish_range(&cut, range, by, all, &mut finished)?;
            }
            if !finished.has_parts() {
                let nothing = allocate(&query.streams[0], &cut.columns, 0)?;
                let nothing = Intermediate::new(cut.columns.clone(), cut.rows_max, vec![nothing]);
                finished.push((by.finish)(query, nothing)?, 1.0)?;
            }
            query.metrics.spilled_bytes += finished.spilled_bytes();
            finished.finish()
        })?;
        Intermediate::of_members(parts)
    }

    /// Finishes a range on the only device, of `all` rows that it finishes.
    fn finish_range(
        &mut self,
        cut: &CutRows,
        range: usize,
        by: &ByRanges<'_>,
        all: u64,
        finished: &mut AppendedRows,
    ) -> Result<()> {
        self.options.check_cancelled()?;
        let rows = cut.rows_of(range);
        if rows == 0 {
            return Ok(());
        }
        let is_single = cut.cuts.is_single(range);
        let word = if is_single { cut.cuts.word + 1 } else { cut.cuts.word };
        let can_cut = by.masks.get(word).is_some_and(|&mask| mask != 0);
        let is_tried = self.options.pass_rows.is_none_or(|rows_max| rows <= rows_max) || !can_cut;
        let mut error = None;
        if is_tried {
            match self.finish_rows(cut, range, None, by) {
                Ok(part) => return finished.push(part, share(finished.rows() + rows, all)),
                Err(failed) if failed.cause() == Cause::OutOfMemory => error = Some(failed),
                Err(failed) => return Err(failed),
            }
        }
        if can_cut {
            let rows = cut.load(&self.streams[0], range, None, MemoryPlace::Host)?;
            let cut = self.cut_into_ranges(rows, word, by)?;
            return (0..cut.cuts.count()).try_for_each(|range| self.finish_range(&cut, range, by, all, finished));
        }
        if let (Some(error), false) = (error, by.may_part_equals) {
            return Err(error);
        }
        // All keys are equal.
        for run in 0..cut.runs.len() {
            let part = self.finish_rows(cut, range, Some(run), by)?;
            let rows = finished.rows() + part.rows();
            finished.push(part, share(rows, all))?;
        }
        Ok(())
    }

    /// Brings the rows of a range to the device, of all runs or of one of them, and finishes them.
    fn finish_rows(
        &mut self,
        cut: &CutRows,
        range: usize,
        run: Option<usize>,
        by: &ByRanges<'_>,
    ) -> Result<Intermediate> {
        let rows = cut.load(&self.streams[0], range, run, MemoryPlace::Device)?;
        self.metrics.host_read_bytes += rows.rows() * row_bytes(&cut.columns);
        (by.finish)(self, rows)
    }

    /// Cuts the rows of all devices by ranges of a key word.
    fn cut_into_ranges(&mut self, rows: Intermediate, word: usize, by: &ByRanges<'_>) -> Result<CutRows> {
        let samples = sample_words(self, &rows, &by.shape.word_bits, word)?;
        let cuts = Cuts::of(samples, word, by.masks[word]);
        let kernels = SplitKernels::of(self)?;
        let free_bytes = self.streams.iter().map(Stream::free_bytes).min().unwrap_or(0);
        let row_bytes = row_bytes(&rows.columns).max(1);
        let chunk_rows = (CHUNK_BYTES.min(free_bytes / FREE_DIVISOR) / row_bytes).max(CHUNK_ROWS_MIN);
        let (columns, splitters) = (&rows.columns, &cuts.splitters);
        let cut = self.on_each(|lane| {
            let shard = &rows.shards[lane.device];
            cut_shard(lane, &kernels, (columns, shard), (word, splitters), chunk_rows)
        })?;
        let runs: Vec<Run> = cut.into_iter().flatten().collect();
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("Rows[{}] -> Ranges[{}]", rows.columns.len(), cuts.count()),
            rows_in: rows.rows(),
            rows_out: rows.rows(),
            read_bytes: rows.rows() * row_bytes,
            ..PipelineMetrics::default()
        });
        let Intermediate { columns, rows_max, .. } = rows;
        Ok(CutRows { columns, rows_max, cuts, runs })
    }
}

/// Cuts the rows of a device chunk by chunk: while one is cut, the one before is copied to the host.
fn cut_shard(
    lane: &mut Lane<'_>,
    kernels: &SplitKernels,
    (columns, shard): (&[ColumnType], &IntermediateShard),
    (word, splitters): (usize, &[u64]),
    chunk_rows: u64,
) -> Result<Vec<Run>> {
    let stream = lane.stream.clone();
    let mut runs = vec![];
    let copies = CopyLane::new(&stream)?;
    let mut under_way: VecDeque<(IntermediateShard, Event)> = VecDeque::new();
    let mut first = 0;
    while first < shard.rows {
        lane.options.check_cancelled()?;
        let count = chunk_rows.min(shard.rows - first);
        let mut chunk = allocate(&stream, columns, count)?;
        copy_rows(&stream, columns, (shard, first), (&chunk, 0), count)?;
        chunk.rows = count;
        let (split, begins) = split_by_ranges(lane, kernels, (columns, chunk), (word, splitters))?;
        copies.retire(&mut under_way, 0)?;
        let mut rows = allocate_in(&stream, columns, count, MemoryPlace::Host)?;
        rows.rows = count;
        let copied = copies.enqueue(|copies| copy_rows(copies, columns, (&split, 0), (&rows, 0), count))?;
        under_way.push_back((split, copied));
        lane.work.spilled_bytes += count * row_bytes(columns);
        runs.push(Run { rows, begins });
        first += count;
    }
    copies.retire(&mut under_way, 0)?;
    // Other devices, and the host, read what was copied.
    stream.synchronize()?;
    Ok(runs)
}

fn share(rows: u64, all: u64) -> f64 {
    rows as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_values_are_ranges_of_their_own() {
        let samples = |of: &dyn Fn(u64) -> u64| (0..4096).map(of).collect::<Vec<_>>();
        let even = Cuts::of(samples(&|sample| sample), 0, u64::MAX);
        assert_eq!(even.splitters, [512, 1024, 1536, 2048, 2560, 3072, 3584]);
        assert!((0..even.count()).all(|range| !even.is_single(range)));
        let half = Cuts::of(samples(&|sample| if sample < 2048 { 7 } else { sample }), 0, u64::MAX);
        assert_eq!(half.splitters, [7, 8, 2048, 2560, 3072, 3584]);
        assert_eq!((0..half.count()).filter(|&range| half.is_single(range)).collect::<Vec<_>>(), [1]);
        // Only some bits tell rows apart.
        let masked = Cuts::of(samples(&|_| 0x7f), 0, 0xf0);
        assert_eq!((masked.splitters.clone(), masked.is_single(1)), (vec![0x70, 0x80], true));
        let zero = Cuts::of(samples(&|_| 0), 0, u64::MAX);
        assert_eq!((zero.splitters.clone(), zero.is_single(0)), (vec![1], true));
        let last = Cuts::of(samples(&|_| u64::MAX), 0, u64::MAX);
        assert_eq!(last.splitters, [u64::MAX]);
        assert_eq!(Cuts::of(vec![], 0, u64::MAX).count(), 1);
    }
}
