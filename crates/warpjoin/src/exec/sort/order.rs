//! Orders rows: all of them, or the first ones only.
//!
//! One pipeline writes the words of the keys and the output columns. Then the order is found from the words alone, and
//! the needed rows of the columns are gathered once. On several devices, few needed rows are gathered on one device.
//! Otherwise all rows are exchanged by ranges of the first word, so that a device's rows precede those of the next
//! device.

use std::sync::Arc;

use warpjoin_codegen::{Sink, SinkShape, SortShape};
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_device::{Buffer, Event, Stream};
use warpjoin_kernels::common::{control, status};
use warpjoin_kernels::sort::{SORT_FEW_ROWS, SORT_FEW_WORDS};
use warpjoin_plan::plan::SortKey;
use warpjoin_plan::plan::ordered::OutputRange;

use super::kernels::{KeyWord, Moved, SortKernels, SortLaunches, SortStep, TopK};
use super::ranges::ByRanges;
use crate::exec::exchange::Owners;
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::{Pending, PendingDevice, Query};
use crate::exec::relation::{Intermediate, IntermediateShard, Relation, Source};
use crate::exec::rows::allocate_in_order;

/// Maximum needed rows of each of several devices that are gathered on one.
const GATHERED_ROWS_MAX: u64 = 1 << 20;
/// Minimum rows for each needed one for a top-k selection before the sort.
const TOP_K_SHARE: u64 = 4;
/// Number of key words sampled over all devices before an exchange.
const SAMPLES: u64 = 4096;

impl Query<'_> {
    /// The first `width` columns in the order of the keys.
    pub(in crate::exec) fn sort(
        &mut self,
        relation: Relation,
        keys: Vec<SortKey>,
        width: usize,
        range: OutputRange,
    ) -> Result<Relation> {
        let sink = Sink::Sort { keys, columns: (0..width).collect(), window: None };
        let (rows, generated) = self.run_rows(&relation, &sink, "SortKeys")?;
        drop(relation);
        let SinkShape::Sort(shape) = &generated.sink else {
            return Err(Error::internal("a pipeline without key words"));
        };
        let mut rows = self.order(rows, shape, range)?;
        rows.rows_max = rows.rows_max.min(range.fetch.unwrap_or(u64::MAX));
        Ok(Relation::new(Source::Intermediate(Arc::new(rows))))
    }

    /// The rows of the range without their words, in order.
    fn order(&mut self, rows: Intermediate, shape: &SortShape, range: OutputRange) -> Result<Intermediate> {
        let total = rows.rows();
        let masks = vec![u64::MAX; shape.word_bits.len()];
        if range.end() > total / TOP_K_SHARE && self.sorts_by_ranges(&rows, &masks, 0) {
            let finish = |query: &mut Query<'_>, rows| query.ordered_shard(rows, shape, false);
            let by = ByRanges { shape, masks: &masks, may_part_equals: true, finish: &finish };
            let rows = self.finished_by_ranges(rows, &by)?;
            return self.sliced(rows, range.skip, range.fetch);
        }
        let rows = if self.are_few(&rows.columns, total) { self.gather(rows)? } else { rows };
        if let Some(home) = rows.home() {
            return self.order_shards(rows, shape, &self.slices_at(home, range), false);
        }
        let is_few = total <= self.few_rows() || range.end() <= total / TOP_K_SHARE;
        if is_few && range.end().min(total) <= GATHERED_ROWS_MAX {
            let each = vec![Slice { first: 0, rows: range.end() }; self.devices()];
            let rows = self.order_shards(rows, shape, &each, true)?;
            let rows = self.gather(rows)?;
            let slices = self.slices_at(rows.home().unwrap_or(0), range);
            return self.order_shards(rows, shape, &slices, false);
        }
        let rows = match shape.word_bits.is_empty() {
            true => rows,
            false => self.exchange_by_range(rows, &shape.word_bits, u64::MAX)?,
        };
        let mut before = 0u64;
        let mut slices = vec![];
        for shard in &rows.shards {
            let first = range.skip.saturating_sub(before).min(shard.rows);
            let end = range.end().saturating_sub(before).min(shard.rows);
            slices.push(Slice { first, rows: end.saturating_sub(first) });
            before += shard.rows;
        }
        self.order_shards(rows, shape, &slices, false)
    }

    /// The range of the rows of one device, and none of others.
    fn slices_at(&self, device: usize, range: OutputRange) -> Vec<Slice> {
        let mut slices = vec![Slice { first: 0, rows: 0 }; self.devices()];
        slices[device] = Slice { first: range.skip, rows: range.fetch.unwrap_or(u64::MAX) };
        slices
    }

    /// The rows of the only device in order.
    pub(in crate::exec) fn ordered_shard(
        &mut self,
        rows: Intermediate,
        shape: &SortShape,
        keeps_words: bool,
    ) -> Result<Intermediate> {
        self.order_shards(rows, shape, &[Slice { first: 0, rows: u64::MAX }], keeps_words)
    }

    /// All rows in the order of a window, including their key words. No partition is on two devices.
    pub(in crate::exec) fn ordered_partitions(
        &mut self,
        rows: Intermediate,
        shape: &SortShape,
    ) -> Result<Intermediate> {
        let mask = shape.partition_masks.first().copied().unwrap_or(0);
        let rows = match mask {
            _ if rows.home().is_some() => rows,
            0 => self.gather(rows)?,
            _ if self.are_few(&rows.columns, rows.rows()) => self.gather(rows)?,
            _ => self.exchange_by_range(rows, &shape.word_bits, mask)?,
        };
        let all = vec![Slice { first: 0, rows: u64::MAX }; self.devices()];
        self.order_shards(rows, shape, &all, true)
    }

    /// Orders the rows of each device separately, and keeps a slice of each.
    fn order_shards(
        &mut self,
        rows: Intermediate,
        shape: &SortShape,
        slices: &[Slice],
        keeps_words: bool,
    ) -> Result<Intermediate> {
        self.options.check_cancelled()?;
        let mut launches = 0;
        let mut pending = vec![];
        let bits = &shape.word_bits;
        let mut kernels = SortKernels::default();
        for (device, shard) in rows.shards.iter().enumerate() {
            if shard.rows >= u64::from(u32::MAX) {
                return Err(Reason::Limit(format!("{} rows of a sort on one device", shard.rows)).into());
            }
            if shard.rows == 0 && rows.shards.len() > 1 {
                pending.push(None);
                continue;
            }
            let stream = self.streams[device].clone();
            let slice = slices[device].of(shard.rows);
            let words = key_words(shard, bits)?;
            let is_top_k = !words.is_empty() && self.is_top_k(shard.rows, slice);
            if is_top_k {
                // Most often few are left.
                kernels.compile(self, bits, &[SortStep::TopK, SortStep::Few, SortStep::Gather])?;
            }
            let control = stream.alloc_filled(control::BYTES, 0)?;
            stream.wait_for_permit()?;
            let begin = stream.record()?;
            let mut on = kernels.on(device, &stream, &control);
            let top_k = match words.first() {
                Some(first) if is_top_k => {
                    let capacity = (slice.end() * 2).max(self.few_rows());
                    Some(on.top_k(first, shard.rows, slice.end(), capacity, words.len() == 1)?)
                }
                _ => None,
            };
            launches += on.on.launches;
            pending.push(Some((slice, control, begin, top_k)));
        }
        let mut shards = vec![];
        let mut flights = vec![];
        let outputs = if keeps_words { stored(&rows.columns) } else { outputs(shape) };
        let columns: Vec<ColumnType> = outputs.iter().map(|output| output.column.clone()).collect();
        for (device, begun) in pending.into_iter().enumerate() {
            let shard = &rows.shards[device];
            let stream = self.streams[device].clone();
            let Some((slice, control, begin, top_k)) = begun else {
                shards.push(allocate_in_order(&stream, &columns, 0)?);
                flights.push(None);
                continue;
            };
            let words = key_words(shard, bits)?;
            let candidates = match top_k {
                Some(top_k) => top_k.collected(&stream)?,
                None => None,
            };
            if slice.rows > 0 {
                let left = candidates.as_ref().map_or(shard.rows, |(_, rows)| *rows);
                kernels.compile(self, bits, &[sort_step(bits, left, self.few_rows()), SortStep::Gather])?;
            }
            let mut on = kernels.on(device, &stream, &control);
            let mut target = allocate_in_order(&stream, &columns, slice.rows)?;
            target.rows = slice.rows;
            let parts = parts(shard, &target, &outputs);
            if candidates.is_some() || !sort_with_keys(&mut on, &words, shard.rows, slice, &parts, self.few_rows())? {
                let numbers = order_of(&mut on, &words, shard.rows, slice, candidates, self.few_rows())?;
                let parts: Vec<_> = parts.iter().map(|part| (part.from, part.to, part.width_bytes)).collect();
                on.gather(numbers.as_ref(), slice.first, slice.rows, &parts)?;
            }
            launches += on.on.launches;
            shards.push(target);
            flights.push(Some((control, begin, stream.record()?)));
        }
        self.metrics.launches += launches;
        self.note_sort(&rows, &shards, &shape.word_bits, flights);
        Ok(Intermediate::new(columns, rows.rows_max, shards))
    }

    /// Rows that one block sorts by itself.
    fn few_rows(&self) -> u64 {
        self.options.sort_few_rows.unwrap_or(SORT_FEW_ROWS).min(SORT_FEW_ROWS).into()
    }

    /// Whether a top-k selection before the sort pays.
    fn is_top_k(&self, rows: u64, slice: Slice) -> bool {
        rows > self.few_rows() && slice.rows > 0 && slice.end() <= rows / TOP_K_SHARE
    }

    /// A line in the metrics for a window.
    pub(in crate::exec) fn note_window(
        &mut self,
        columns: &[ColumnType],
        shards: &[IntermediateShard],
        made: usize,
        flights: Vec<DeviceFlight>,
    ) {
        let rows = shards.iter().map(|shard| shard.rows).sum();
        let row_bytes: u64 = columns.iter().map(|column| u64::from(column.layout().width_bytes)).sum();
        self.pending.push(pending(self.metrics.pipelines.len(), flights));
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("Rows[{}] -> Window[{made} columns]", columns.len() - made),
            rows_in: rows,
            rows_out: rows,
            read_bytes: rows * row_bytes,
            ..PipelineMetrics::default()
        });
    }

    fn note_sort(
        &mut self,
        rows: &Intermediate,
        shards: &[IntermediateShard],
        word_bits: &[u32],
        flights: Vec<DeviceFlight>,
    ) {
        let rows_in = rows.rows();
        let row_bytes: u64 = rows.columns.iter().map(|column| u64::from(column.layout().width_bytes)).sum();
        self.pending.push(pending(self.metrics.pipelines.len(), flights));
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("Rows[{}] -> Sort[{} bits]", rows.columns.len(), word_bits.iter().sum::<u32>()),
            rows_in,
            rows_out: shards.iter().map(|shard| shard.rows).sum(),
            read_bytes: rows_in * row_bytes,
            ..PipelineMetrics::default()
        });
    }

    /// Sends every row to the device that owns the range of its first word, or of the bits in `mask`.
    fn exchange_by_range(&mut self, rows: Intermediate, word_bits: &[u32], mask: u64) -> Result<Intermediate> {
        let mut samples = sample_words(self, &rows, word_bits, 0)?;
        samples.sort_unstable();
        let devices = self.devices();
        let splitters: Vec<u64> = (1..devices)
            .map(|owner| samples.get(samples.len() * owner / devices).map_or(u64::MAX, |sample| sample & mask))
            .collect();
        self.exchange_by(rows, Owners::Splitters(&splitters))
    }
}

/// Samples values of a key word, over all devices.
pub(super) fn sample_words(
    query: &mut Query<'_>,
    rows: &Intermediate,
    word_bits: &[u32],
    word: usize,
) -> Result<Vec<u64>> {
    let mut kernels = SortKernels::default();
    kernels.compile(query, &word_bits[word..], &[SortStep::Sample])?;
    let stride = rows.rows().div_ceil(SAMPLES).max(1);
    let mut samples: Vec<u64> = vec![];
    for (device, shard) in rows.shards.iter().enumerate().filter(|(_, shard)| shard.rows > 0) {
        let stream = query.streams[device].clone();
        let words = key_words(shard, word_bits)?;
        let control = stream.alloc(0)?;
        let mut on = kernels.on(device, &stream, &control);
        samples.extend(on.sample(&words[word], shard.rows, stride)?);
        query.metrics.launches += on.on.launches;
    }
    Ok(samples)
}

/// Control block of a device, and events before and after its work; `None`: it has no rows.
pub(in crate::exec) type DeviceFlight = Option<(Buffer, Event, Event)>;

/// The range of a device's ordered rows that is needed.
#[derive(Debug, Clone, Copy)]
struct Slice {
    first: u64,
    rows: u64,
}

impl Slice {
    /// The range, cut to `rows` rows.
    fn of(self, rows: u64) -> Self {
        let first = self.first.min(rows);
        Self { first, rows: self.rows.min(rows - first) }
    }

    fn end(self) -> u64 {
        self.first + self.rows
    }
}

/// Chooses how rows are sorted, for [`order_of`] and [`sort_with_keys`].
fn sort_step(word_bits: &[u32], rows: u64, few_rows: u64) -> SortStep {
    let is_few = rows <= few_rows && (1..=SORT_FEW_WORDS).contains(&word_bits.len());
    if is_few { SortStep::Few } else { SortStep::Radix }
}

/// The row numbers in order, at least up to the end of the slice; `None`: the present order.
fn order_of(
    on: &mut SortLaunches<'_>,
    words: &[KeyWord<'_>],
    rows: u64,
    slice: Slice,
    candidates: Option<(Buffer, u64)>,
    few_rows: u64,
) -> Result<Option<Buffer>> {
    if slice.rows == 0 || words.is_empty() {
        return Ok(None);
    }
    let (numbers, rows) = match candidates {
        Some((numbers, rows)) => (Some(numbers), rows),
        None => (None, rows),
    };
    if rows <= few_rows && words.len() <= SORT_FEW_WORDS {
        return on.few(words, numbers.as_ref(), rows).map(Some);
    }
    // The least significant word first: a sort keeps the order of rows with equal keys.
    let mut numbers = numbers;
    for word in words.iter().rev() {
        numbers = Some(on.radix(word, rows, numbers.as_ref())?);
    }
    Ok(numbers)
}

/// The words of a shard's keys, the most significant one first.
fn key_words<'a>(shard: &'a IntermediateShard, word_bits: &[u32]) -> Result<Vec<KeyWord<'a>>> {
    if shard.rows == 0 {
        return Ok(vec![]);
    }
    let word = |(column, &bits): (&'a crate::exec::relation::IntermediateColumn, &u32)| {
        let buffer = column.values.as_ref().ok_or_else(|| Error::internal("rows without key words"))?;
        Ok(KeyWord { buffer, bits })
    };
    shard.columns.iter().zip(word_bits).map(word).collect()
}

/// An output column, and the stored column that it comes from.
struct Output {
    source: usize,
    column: ColumnType,
}

/// The output columns of rows that begin with key words.
fn outputs(shape: &SortShape) -> Vec<Output> {
    let mut outputs = stored(&shape.columns).split_off(shape.word_bits.len());
    if let Some((position, column)) = &shape.key_column {
        outputs.insert(*position, Output { source: 0, column: column.clone() });
    }
    outputs
}

/// A line of the metrics that waits for the control block of each device.
fn pending(pipeline: usize, flights: Vec<DeviceFlight>) -> Pending {
    let check = |bits: u64| {
        if bits & status::FULL != 0 {
            return Err(Error::kernel_bound("look-back of a sort or window did not finish"));
        }
        if bits & status::OVERFLOW != 0 {
            let what = "over a RANGE frame whose bound exceeds the key type, with null keys";
            return Err(Reason::Aggregate(what.into()).into());
        }
        Ok(())
    };
    Pending {
        pipeline,
        devices: flights.into_iter().map(|flight| flight.map(PendingDevice::reporting)).collect(),
        check,
    }
}

/// All stored columns as output columns.
fn stored(columns: &[ColumnType]) -> Vec<Output> {
    columns.iter().cloned().enumerate().map(|(source, column)| Output { source, column }).collect()
}

/// A run of bytes of a column, or of its validity.
struct Part<'a> {
    from: &'a Buffer,
    to: &'a Buffer,
    width_bytes: u64,
    /// The stored column.
    source: usize,
}

fn parts<'a>(from: &'a IntermediateShard, to: &'a IntermediateShard, outputs: &[Output]) -> Vec<Part<'a>> {
    let mut parts = vec![];
    for (Output { source, column }, to) in outputs.iter().zip(&to.columns) {
        let Some(from) = from.columns.get(*source) else { continue };
        let width_bytes = u64::from(column.layout().width_bytes);
        for (from, to, width_bytes) in [(&from.values, &to.values, width_bytes), (&from.validity, &to.validity, 1)] {
            if let (Some(from), Some(to)) = (from, to) {
                parts.push(Part { from, to, width_bytes, source: *source });
            }
        }
    }
    parts
}

/// Sorts all rows of a shard by their only word if that is one of the output columns, so that it needs no gather, or if there are
/// 4 other bytes, which move with it. Returns whether it did.
fn sort_with_keys(
    on: &mut SortLaunches<'_>,
    words: &[KeyWord<'_>],
    rows: u64,
    slice: Slice,
    parts: &[Part<'_>],
    few_rows: u64,
) -> Result<bool> {
    let ([word], true) = (words, rows > few_rows && slice.rows == rows) else { return Ok(false) };
    let (keys, others): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.source == 0);
    let moved = match (keys.as_slice(), others.as_slice()) {
        ([key], []) => Moved { values: None, sorted_keys: Some(key.to), sorted_values: None },
        ([key], [other]) if other.width_bytes == 4 => {
            Moved { values: Some(other.from), sorted_keys: Some(key.to), sorted_values: Some(other.to) }
        }
        ([], [other]) if other.width_bytes == 4 => {
            Moved { values: Some(other.from), sorted_keys: None, sorted_values: Some(other.to) }
        }
        ([key], others) => {
            let numbers = on.on.stream.alloc(rows * 4)?;
            let moved = Moved { values: None, sorted_keys: Some(key.to), sorted_values: Some(&numbers) };
            on.sweep(word, rows, None, moved)?;
            let others: Vec<_> = others.iter().map(|part| (part.from, part.to, part.width_bytes)).collect();
            on.gather(Some(&numbers), 0, rows, &others)?;
            return Ok(true);
        }
        _ => return Ok(false),
    };
    on.sweep(word, rows, None, moved)?;
    Ok(true)
}

impl TopK {
    /// Waits for the numbers of the collected rows, and their count; `None`: there was not enough room.
    fn collected(self, stream: &Stream) -> Result<Option<(Buffer, u64)>> {
        let Some(rows) = self.rows(stream)? else { return Ok(None) };
        Ok(Some((self.numbers, rows)))
    }
}
