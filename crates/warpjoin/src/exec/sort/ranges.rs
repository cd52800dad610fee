//! Sorts and windows that do not fit a device: rows are partitioned by ranges of a key word, chunk by chunk on the
//! device, and spilled to host memory or a file; then one range after the other is sorted. With several devices, each
//! finishes some neighboring ranges.
//!
//! A range that still does not fit is cut again: by the same word, or, if it has a single value of it, by the next
//! word.

use std::ops::Range;

use warpjoin_codegen::SortShape;
use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::devices::{ColumnBytes, Outbound, SpilledColumns};
use warpjoin_device::{Buffer, Cause, Stream};
use warpjoin_plan::options::MemoryUse;

use super::order::sample_words;
use crate::exec::exchange::{SplitKernels, split_by_ranges};
use crate::exec::launch::{Lane, share_of};
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::Query;
use crate::exec::relation::{Intermediate, IntermediateColumn, IntermediateShard};
use crate::exec::rows::{AppendedRows, allocate, copy_rows, row_bytes};

/// Bytes that sorting takes for each row besides the row: two copies of a key word, three of a row number, and tile
/// status.
const SORT_ROW_BYTES: u64 = 2 * 8 + 3 * 4 + 4;
/// Bytes of a chunk to cut, and the maximum fraction of a device's free memory that it takes (1 / divisor). A chunk is
/// on the device in its original order, cut, and while it is copied to the host.
const CHUNK_BYTES: u64 = 256 << 20;
const FREE_DIVISOR: u64 = 8;
const CHUNK_ROWS_MIN: u64 = 128;
/// Preferred minimum bytes of a chunk, if they fit a quarter of the free memory: host memory comes in pages.
const CHUNK_BYTES_MIN: u64 = 32 << 20;
/// A device sorts fewer rows than this at once: row numbers have 32 bits.
const SORT_ROWS_MAX: u64 = u32::MAX as u64;
/// Ranges of one cut: the number of owners that exchange kernels support.
const RANGES: usize = 8;

/// Finishes the rows of a range.
pub(in crate::exec) type Finish<'f> = dyn Fn(&mut Query<'_>, Intermediate) -> Result<Intermediate> + Sync + 'f;

/// How rows are cut and finished.
pub(in crate::exec) struct ByRanges<'r> {
    pub shape: &'r SortShape,
    /// Bits of each key word by which rows may be cut.
    pub masks: &'r [u64],
    /// Whether rows with equal keys may be finished separately.
    pub may_part_equals: bool,
    pub finish: &'r Finish<'r>,
}

/// Ranges of a key word.
#[derive(Debug)]
struct Cuts {
    word: usize,
    /// Where each range but the first begins.
    splitters: Vec<u64>,
    /// Known bounds of all ranges together.
    span: Range<u128>,
    /// Distance between successive values of the word.
    step: u64,
}

/// All values of a word.
const WHOLE: Range<u128> = 0..1 << 64;

impl Cuts {
    /// Ranges of a word, restricted to the bits of `mask`, with about the same number of samples each; frequent values
    /// become their own ranges.
    fn of(mut samples: Vec<u64>, word: usize, mask: u64, span: Range<u128>) -> Self {
        samples.iter_mut().for_each(|sample| *sample &= mask);
        samples.sort_unstable();
        let step = mask & mask.wrapping_neg();
        let quantiles: Vec<u64> =
            (1..RANGES).filter_map(|range| samples.get(samples.len() * range / RANGES)).copied().collect();
        let mut splitters = quantiles.clone();
        splitters.dedup();
        let is_frequent = |value: &&u64| quantiles.iter().filter(|quantile| quantile == value).count() > 1;
        let ends: Vec<u64> = splitters.iter().filter(is_frequent).filter_map(|value| value.checked_add(step)).collect();
        splitters.extend(ends);
        splitters.sort_unstable();
        splitters.dedup();
        splitters.retain(|&splitter| span.start < splitter.into() && u128::from(splitter) < span.end);
        Self { word, splitters, span, step }
    }

    /// Ranges of the same word with about equal spans, independent of the rows. If samples do not help, repeated cuts
    /// arrive at single values.
    fn evenly(word: usize, mask: u64, span: Range<u128>) -> Self {
        let step = mask & mask.wrapping_neg();
        let ranges = RANGES as u128;
        let at = |range: u128| (span.start + (span.end - span.start) * range / ranges) as u64 & !(step - 1);
        let mut splitters: Vec<u64> =
            (1..ranges).map(at).filter(|&splitter| u128::from(splitter) > span.start).collect();
        splitters.dedup();
        Self { word, splitters, span, step }
    }

    fn count(&self) -> usize {
        self.splitters.len() + 1
    }

    fn span_of(&self, range: usize) -> Range<u128> {
        let begin = range.checked_sub(1).map_or(self.span.start, |before| self.splitters[before].into());
        begin..self.splitters.get(range).map_or(self.span.end, |&end| end.into())
    }

    /// Whether a range is one value of the word.
    fn is_single(&self, range: usize) -> bool {
        let Range { start, end } = self.span_of(range);
        end - start <= self.step.into()
    }
}

/// Spilled rows of a chunk, range after range: values of a column, then its validity, column by column.
#[derive(Debug)]
struct Run {
    rows: SpilledColumns,
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
    fn rows(&self) -> u64 {
        self.runs.iter().filter_map(|run| run.begins.last()).sum()
    }

    fn rows_of(&self, range: usize) -> u64 {
        self.runs.iter().map(|run| run.begins[range + 1] - run.begins[range]).sum()
    }

    /// Loads `count` rows of a range to a device, from row `first`.
    fn load(&self, stream: &Stream, range: usize, first: u64, count: u64) -> Result<IntermediateShard> {
        let mut loaded = allocate(stream, &self.columns, count)?;
        let targets: Vec<&Buffer> = loaded.columns.iter().flat_map(IntermediateColumn::buffers).collect();
        // Rows of the range in the runs before, and how many were brought.
        let (mut before, mut at) = (0, 0);
        for run in &self.runs {
            let (begin, rows) = (run.begins[range], run.begins[range + 1] - run.begins[range]);
            let from = first.saturating_sub(before).min(rows);
            let to = (first + count).saturating_sub(before).min(rows);
            if from < to {
                run.rows.copy(stream, begin + from..begin + to, (&targets, at))?;
                at += to - from;
            }
            before += rows;
        }
        loaded.rows = at;
        Ok(loaded)
    }

    /// The same as rows of the only device.
    fn loaded(&self, stream: &Stream, range: usize, first: u64, count: u64) -> Result<Intermediate> {
        let shard = self.load(stream, range, first, count)?;
        Ok(Intermediate::new(self.columns.clone(), self.rows_max, vec![shard]))
    }
}

impl Query<'_> {
    /// Whether the devices lack the room to sort rows by these masks at once, and the rows can be cut. `more_bytes`:
    /// additional bytes for each row besides the sort.
    pub(in crate::exec) fn sorts_by_ranges(&mut self, rows: &Intermediate, masks: &[u64], more_bytes: u64) -> bool {
        if masks.first().is_none_or(|&mask| mask == 0) {
            return false;
        }
        if let Some(rows_max) = self.options.pass_rows {
            return rows.rows() > rows_max;
        }
        let all_bytes = rows.rows().saturating_mul(row_bytes(&rows.columns));
        if self.options.spill_path.is_none() && self.streams.iter().any(|stream| stream.free_host_bytes() < all_bytes) {
            return false;
        }
        let is_least = self.options.memory_use == MemoryUse::Least;
        let (each, exchanged_bytes) = match rows.home() {
            Some(home) => (rows.shards[home].rows, 0),
            // One device may have nearly all, which the first try has shown.
            None if is_least => (rows.rows(), row_bytes(&rows.columns)),
            None => (rows.rows().div_ceil(self.devices() as u64), row_bytes(&rows.columns)),
        };
        let bytes = each.saturating_mul(SORT_ROW_BYTES + exchanged_bytes + more_bytes);
        each >= SORT_ROWS_MAX || !self.streams.iter().all(|stream| stream.make_room(bytes))
    }

    /// Cuts the rows of all devices, and finishes one range after the other: in the order of the ranges, from device to device.
    pub(in crate::exec) fn finished_by_ranges(
        &mut self,
        rows: Intermediate,
        by: &ByRanges<'_>,
    ) -> Result<Intermediate> {
        let cuts = Cuts::of(sample_words(self, &rows, &by.shape.word_bits, 0)?, 0, by.masks[0], WHOLE);
        let chunk_rows = self.chunk_rows_of(&rows.columns);
        let (kernels, columns) = (SplitKernels::of(self)?, &rows.columns);
        let runs = self.on_each(|lane| {
            let shard = &rows.shards[lane.device];
            let load = |stream: &Stream, first, count| {
                let mut chunk = allocate(stream, columns, count)?;
                copy_rows(stream, columns, (shard, first), (&chunk, 0), count)?;
                chunk.rows = count;
                Ok(chunk)
            };
            cut_rows(lane, &kernels, (columns, shard.rows), &cuts, chunk_rows, load)
        })?;
        self.note_ranges(columns, rows.rows(), &cuts);
        let Intermediate { columns, rows_max, shards, .. } = rows;
        // They are in the runs now.
        drop(shards);
        let cut = CutRows { columns, rows_max, cuts, runs: runs.into_iter().flatten().collect() };
        let devices = self.devices();
        let parts = self.on_members(|query, device| {
            let own = share_of(device, devices, cut.cuts.count());
            let mut finished = AppendedRows::new(&query.streams[0])?;
            let all = own.clone().map(|range| cut.rows_of(range)).sum::<u64>();
            for range in own {
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
        let is_tried = self.options.pass_rows.unwrap_or(SORT_ROWS_MAX - 1) >= rows || !can_cut;
        let mut error = None;
        if is_tried {
            match self.finish_rows(cut, range, (0, rows), by) {
                Ok(part) => return finished.push(part, share(finished.rows() + rows, all)),
                Err(failed) if failed.cause() == Cause::OutOfMemory => error = Some(failed),
                Err(failed) => return Err(failed),
            }
        }
        if can_cut {
            let cut = self.cut_again(cut, range, word, by)?;
            return (0..cut.cuts.count()).try_for_each(|range| self.finish_range(&cut, range, by, all, finished));
        }
        if let (Some(error), false) = (error, by.may_part_equals) {
            return Err(error);
        }
        // All keys are equal.
        let chunk_rows = self.chunk_rows_of(&cut.columns);
        for first in (0..rows).step_by(chunk_rows as usize) {
            let part = self.finish_rows(cut, range, (first, chunk_rows.min(rows - first)), by)?;
            let rows = finished.rows() + part.rows();
            finished.push(part, share(rows, all))?;
        }
        Ok(())
    }

    /// Loads `count` rows of a range to the device, from row `first`, and finishes them.
    fn finish_rows(
        &mut self,
        cut: &CutRows,
        range: usize,
        (first, count): (u64, u64),
        by: &ByRanges<'_>,
    ) -> Result<Intermediate> {
        let rows = cut.loaded(&self.streams[0], range, first, count)?;
        self.metrics.host_read_bytes += rows.rows() * row_bytes(&cut.columns);
        (by.finish)(self, rows)
    }

    /// Cuts a range on the only device, by this word.
    fn cut_again(&mut self, cut: &CutRows, range: usize, word: usize, by: &ByRanges<'_>) -> Result<CutRows> {
        let (rows, chunk_rows) = (cut.rows_of(range), self.chunk_rows_of(&cut.columns));
        let is_same_word = word == cut.cuts.word;
        let span = if is_same_word { cut.cuts.span_of(range) } else { WHOLE };
        let cuts = if is_same_word && rows == cut.rows() {
            Cuts::evenly(word, by.masks[word], span)
        } else {
            let mut samples = vec![];
            for first in (0..rows).step_by(chunk_rows as usize) {
                let chunk = cut.loaded(&self.streams[0], range, first, chunk_rows.min(rows - first))?;
                samples.extend(sample_words(self, &chunk, &by.shape.word_bits, word)?);
            }
            Cuts::of(samples, word, by.masks[word], span)
        };
        let kernels = SplitKernels::of(self)?;
        let load = |stream: &Stream, first, count| cut.load(stream, range, first, count);
        let runs = self.on_each(|lane| cut_rows(lane, &kernels, (&cut.columns, rows), &cuts, chunk_rows, load))?;
        self.note_ranges(&cut.columns, rows, &cuts);
        let runs = runs.into_iter().flatten().collect();
        Ok(CutRows { columns: cut.columns.clone(), rows_max: cut.rows_max, cuts, runs })
    }

    /// Rows of a chunk that is cut.
    fn chunk_rows_of(&self, columns: &[ColumnType]) -> u64 {
        let free_bytes = self.streams.iter().map(Stream::free_bytes).min().unwrap_or(0);
        let bytes = CHUNK_BYTES.min(free_bytes / FREE_DIVISOR).max(CHUNK_BYTES_MIN.min(free_bytes / 4));
        (bytes / row_bytes(columns).max(1)).max(CHUNK_ROWS_MIN)
    }

    /// A line in the metrics.
    fn note_ranges(&mut self, columns: &[ColumnType], rows: u64, cuts: &Cuts) {
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("Rows[{}] -> Ranges[{}]", columns.len(), cuts.count()),
            rows_in: rows,
            rows_out: rows,
            read_bytes: rows * row_bytes(columns),
            ..PipelineMetrics::default()
        });
    }
}

/// Cuts the rows of a device chunk by chunk; `load` loads a number of rows from a first row. While a chunk is cut, the
/// previous one is copied to the host.
fn cut_rows(
    lane: &mut Lane<'_>,
    kernels: &SplitKernels,
    (columns, rows): (&[ColumnType], u64),
    cuts: &Cuts,
    chunk_rows: u64,
    load: impl Fn(&Stream, u64, u64) -> Result<IntermediateShard>,
) -> Result<Vec<Run>> {
    let stream = lane.stream.clone();
    // Dropped behind what is on its way to them.
    let mut runs = vec![];
    let mut outbound = Outbound::new(&stream, lane.options.spill_path.as_deref())?;
    for first in (0..rows).step_by(chunk_rows as usize) {
        lane.options.check_cancelled()?;
        let count = chunk_rows.min(rows - first);
        let chunk = load(&stream, first, count)?;
        let (split, begins) = split_by_ranges(lane, kernels, (columns, chunk), (cuts.word, &cuts.splitters))?;
        outbound.retire(0)?;
        let away = outbound.send(column_bytes(columns, split), count)?;
        lane.work.spilled_bytes += count * row_bytes(columns);
        runs.push(Run { rows: away, begins });
    }
    outbound.retire(0)?;
    // What a function returns is lost where a drop behind it panics.
    drop(outbound);
    // Other devices, and the host, read what was copied.
    stream.synchronize()?;
    Ok(runs)
}

/// The stored bytes of rows: values of a column, then its validity, column by column.
fn column_bytes(columns: &[ColumnType], rows: IntermediateShard) -> Vec<ColumnBytes> {
    let mut all = vec![];
    for (column_type, column) in columns.iter().zip(rows.columns) {
        all.extend(column.values.map(|values| (values, u64::from(column_type.layout().width_bytes))));
        all.extend(column.validity.map(|validity| (validity, 1)));
    }
    all
}

/// The share of all rows that is finished with these.
fn share(rows: u64, all: u64) -> f64 {
    rows as f64 / all.max(1) as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn frequent_values_are_ranges_of_their_own() {
        let samples = |of: &dyn Fn(u64) -> u64| (0..4096).map(of).collect::<Vec<_>>();
        let of = |samples: Vec<u64>, mask: u64| Cuts::of(samples, 0, mask, WHOLE);
        let singles = |cuts: &Cuts| (0..cuts.count()).filter(|&range| cuts.is_single(range)).collect::<Vec<_>>();
        let even = of(samples(&|sample| sample), u64::MAX);
        assert_eq!(even.splitters, [512, 1024, 1536, 2048, 2560, 3072, 3584]);
        assert!(singles(&even).is_empty());
        let half = of(samples(&|sample| if sample < 2048 { 7 } else { sample }), u64::MAX);
        assert_eq!((half.splitters.as_slice(), singles(&half)), (&[7, 8, 2048, 2560, 3072, 3584][..], vec![1]));
        // Only some bits tell rows apart.
        let masked = of(samples(&|_| 0x7f), 0xf0);
        assert_eq!((masked.splitters.as_slice(), singles(&masked)), (&[0x70, 0x80][..], vec![1]));
        let zero = of(samples(&|_| 0), u64::MAX);
        assert_eq!((zero.splitters.as_slice(), singles(&zero)), (&[1][..], vec![0]));
        let last = of(samples(&|_| u64::MAX), u64::MAX << 3);
        assert_eq!((last.splitters.as_slice(), singles(&last)), (&[u64::MAX << 3][..], vec![1]));
        assert_eq!(of(vec![], u64::MAX).count(), 1);
    }

    #[test]
    fn ranges_come_to_single_values_whatever_samples_say() {
        for (mask, value) in
            [(u64::MAX, 0u64), (u64::MAX, 12_345), (u64::MAX, u64::MAX), (u64::MAX << 7, 1 << 40), (0xf0, 0x70)]
        {
            let (mut span, mut levels) = (WHOLE, 0);
            loop {
                let cuts = Cuts::evenly(0, mask, span.clone());
                let of_value = (0..cuts.count()).find(|&range| cuts.span_of(range).contains(&value.into())).unwrap();
                if cuts.is_single(of_value) {
                    break;
                }
                assert!(cuts.count() > 1 && levels < 64, "{mask:x} {value}: {cuts:?}");
                (span, levels) = (cuts.span_of(of_value), levels + 1);
            }
        }
    }
}
