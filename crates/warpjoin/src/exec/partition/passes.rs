//! Radix partitions of relations: count, scan, then one or two passes.

use std::sync::Arc;

use warpjoin_codegen::{
    COUNT_WITHIN, GeneratedPipeline, PASS_MULTIPLE, PartitionStage, RowShape, RowSpec, Sink, SinkShape, Step,
    partition_module, pass_entry,
};
use warpjoin_columns::devices::place_of;
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_device::{Buffer, Cause, Kernel, Launch, MemoryPlace, Ptr, Stream};
use warpjoin_kernels::common::BLOCK_SUMS;
use warpjoin_kernels::partition::{
    CountWithinParams, PARTITION_THREADS_FEW, PARTITION_THREADS_MANY, PARTITION_THREADS_WORD, PassParams,
    ROW_WORDS_MAX, ScanParams,
};
use warpjoin_kernels::{padded, partition};

use super::row_words::{RowWords, WordColumn};
use crate::exec::launch::{Job, Lane, PartitionTarget, Target, TileLaunch, partition_launch};
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::{Pending, PendingDevice, Query, check_status};
use crate::exec::relation::{PARTITION_BITS_MAX, PartitionedRows, PartitionedShard, PassBits, Relation, Source};

/// Minimum bits of a pass that uses large tiles.
const MANY_BITS: u32 = 8;

/// Rows of a device at which the kernels' 32-bit counts no longer suffice.
const ROWS_MAX: u64 = u32::MAX as u64 - 0x10_0000;

/// Buffers that are no longer needed are kept up to this fraction of a device's memory (1 / divisor).
const KEPT_SHARE: u64 = 16;

/// A partition whose kernels are bound.
pub(crate) struct PlannedPartition {
    pub(in crate::exec) relation: Relation,
    bits: PassBits,
    /// Whether the first pass is counted alone, and the second one after it.
    counts_twice: bool,
    pub(super) count: Arc<GeneratedPipeline>,
    pub(super) scatter: Arc<GeneratedPipeline>,
    pub shape: Arc<RowShape>,
}

/// The reason why rows can't be partitioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// A row has more words than kernels support.
    Words(usize),
    /// A device has more rows than kernels count.
    Rows(u64),
    /// A device has no room for the partitioned rows.
    Memory { asked_bytes: u64, free_bytes: u64 },
}

impl From<Obstacle> for Reason {
    fn from(obstacle: Obstacle) -> Self {
        Self::Limit(match obstacle {
            Obstacle::Words(words) => format!("rows of {words} words in a partition"),
            Obstacle::Rows(rows) => format!("{rows} rows of a partition on one device"),
            Obstacle::Memory { asked_bytes, free_bytes } => {
                format!("{asked_bytes} bytes for a partition on a device that has {free_bytes} left")
            }
        })
    }
}

impl PlannedPartition {
    /// Bytes of a device's partitioned rows, including those between two passes.
    fn bytes(&self, device: usize) -> u64 {
        let row_bytes = self.shape.row_bytes();
        let copies = if self.bits.second > 0 { 2 } else { 1 };
        let counters = (4 * 4) << self.bits.total();
        self.relation.source.shard_rows(device).saturating_mul(row_bytes * copies).saturating_add(counters)
    }
}

impl Query<'_> {
    /// Binds the kernels that partition the rows of a relation by the hash of their keys.
    pub(crate) fn plan_partition(
        &mut self,
        relation: Relation,
        spec: RowSpec,
        bits: PassBits,
    ) -> Result<PlannedPartition> {
        let width = relation.width;
        let (relation, spec, kept) = self.without_probes(relation, spec)?;
        let sink = |query: &mut Self, stage| query.bind(&relation, &Sink::Partition { stage, rows: spec.clone() });
        let count = sink(self, PartitionStage::Count)?;
        let threads = if bits.first >= MANY_BITS { PARTITION_THREADS_MANY } else { PARTITION_THREADS_FEW };
        let threads_of_one_word = if bits.first == MANY_BITS { PARTITION_THREADS_WORD } else { threads };
        let scatter = sink(self, PartitionStage::Scatter { threads, threads_of_one_word })?;
        let SinkShape::Partition(shape) = &scatter.sink else {
            return Err(Error::internal("a partition sink without a partition"));
        };
        let field_of = |column: usize| match &kept {
            Some(kept) => kept.iter().position(|&k| k == column).and_then(|position| shape.field_of[position]),
            None => shape.field_of[column],
        };
        let shape = Arc::new(RowShape { field_of: (0..width).map(field_of).collect(), ..RowShape::clone(shape) });
        let counts_twice = bits.second > 0 && bits.total() > self.options.counted_bits.unwrap_or(PARTITION_BITS_MAX);
        Ok(PlannedPartition { relation, bits, counts_twice, count, scatter, shape })
    }

    /// The obstacle to making these partitions together; `None`: there is none. Without room on the devices, partitions
    /// may lie in host memory if there is no alternative (`goes_to_host`) or there are several devices; a single device
    /// spills rows instead.
    pub(crate) fn obstacle(&self, planned: &[&PlannedPartition], goes_to_host: bool) -> Option<Obstacle> {
        if let Some(obstacle) = self.spill_obstacle(planned) {
            return Some(obstacle);
        }
        (0..self.devices()).find_map(|device| {
            let rows = planned.iter().map(|planned| planned.relation.source.shard_rows(device)).max().unwrap_or(0);
            if rows >= ROWS_MAX {
                return Some(Obstacle::Rows(rows));
            }
            let asked_bytes = planned.iter().fold(0u64, |bytes, planned| bytes.saturating_add(planned.bytes(device)));
            let stream = &self.streams[device];
            let goes_to_host = goes_to_host || self.devices() > 1 || self.options.writes_to_host;
            let has_room = stream.make_room(asked_bytes) || goes_to_host && asked_bytes <= stream.free_host_bytes();
            (!has_room).then(|| Obstacle::Memory { asked_bytes, free_bytes: stream.free_bytes() })
        })
    }

    /// The obstacle to spilling rows; `None`: there is none.
    pub(in crate::exec) fn spill_obstacle(&self, planned: &[&PlannedPartition]) -> Option<Obstacle> {
        planned.iter().find_map(|planned| {
            let (words, source) = (planned.shape.words(), &planned.relation.source);
            let at_once = if source.comes_in_chunks() { 0 } else { source.shard_rows_max(self.devices()) };
            if words > ROW_WORDS_MAX {
                Some(Obstacle::Words(words))
            } else {
                (at_once >= ROWS_MAX).then_some(Obstacle::Rows(at_once))
            }
        })
    }

    /// Partitions rows for which [`Self::obstacle`] found none.
    pub(crate) fn partition(&mut self, planned: PlannedPartition) -> Result<PartitionedRows> {
        let PlannedPartition { relation, bits, counts_twice, count, scatter, shape } = planned;
        let module = partition_module(self.options.hash_bits);
        let is_single = shape.key_masks().len() == 1;
        let pass = if is_single { pass_entry(shape.word_bytes()[0] == 8, false) } else { PASS_MULTIPLE };
        let [scan_of, pass_of, count_of] = [Scan::ENTRY, pass, COUNT_WITHIN].map(|entry| (&module, entry));
        let pipelines = [&*count, &*scatter];
        let (kernels, scan, pass, count_within) = if counts_twice {
            let (kernels, [scan, pass, count_within]) =
                self.compile_pipelines(&relation, pipelines, bits.first, [scan_of, pass_of, count_of])?;
            (kernels, scan, pass, count_within)
        } else if bits.second > 0 {
            let (kernels, [scan, pass]) =
                self.compile_pipelines(&relation, pipelines, bits.first, [scan_of, pass_of])?;
            (kernels, scan, pass, vec![])
        } else {
            let (kernels, [scan]) = self.compile_pipelines(&relation, pipelines, bits.first, [scan_of])?;
            (kernels, scan, vec![], vec![])
        };
        let [count_kernels, scatter_kernels] = kernels;
        let steps = Steps { scan, pass, count_within };
        self.options.check_cancelled()?;
        let counting = self.job(&relation, &count, &count_kernels)?;
        let scattering = self.job(&relation, &scatter, &scatter_kernels)?;
        let mut pending = vec![];
        for device in 0..self.devices() {
            pending.push(self.partition_on(device, &shape, bits, [&counting, &scattering], &steps)?);
        }
        drop((counting, scattering));
        let (shards, devices): (Vec<PartitionedShard>, Vec<_>) =
            pending.into_iter().map(|(shard, part)| (shard, Some(part))).unzip();
        let rows_in = shards.iter().map(|shard| shard.rows_max).sum();
        self.pending.push(Pending { pipeline: self.metrics.pipelines.len(), devices, check: check_status });
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("{} -> Partition[{}]", relation.describe(), bits.describe()),
            rows_in,
            read_bytes: rows_in * shape.row_bytes(),
            ..PipelineMetrics::default()
        });
        Ok(PartitionedRows { shape, rows_max: relation.rows_max, shards })
    }

    /// A relation that can be read twice, without probes; they are materialized. Also returns the columns that it kept,
    /// if not all.
    fn without_probes(&mut self, relation: Relation, spec: RowSpec) -> Result<(Relation, RowSpec, Option<Vec<usize>>)> {
        let has_probe = relation.steps.iter().any(|step| matches!(step, Step::Probe(_)));
        if !has_probe && !matches!(relation.source, Source::Matches(..)) {
            return Ok((relation, spec, None));
        }
        let mut columns = spec.payload.clone();
        spec.keys.iter().for_each(|key| key.visit_columns(&mut |column| columns.push(column)));
        columns.sort_unstable();
        columns.dedup();
        let rows = self.materialise(&relation, columns.clone())?;
        let position = |column: usize| columns.iter().position(|&c| c == column).unwrap_or(0);
        let spec = RowSpec {
            keys: spec.keys.iter().map(|key| key.remap(&position)).collect(),
            payload: spec.payload.iter().map(|&column| position(column)).collect(),
            ..spec
        };
        Ok((Relation::new(Source::Intermediate(rows)), spec, Some(columns)))
    }

    fn partition_on(
        &mut self,
        device: usize,
        shape: &RowShape,
        bits: PassBits,
        [count, scatter]: [&Job<'_>; 2],
        steps: &Steps,
    ) -> Result<(PartitionedShard, PendingDevice)> {
        let mut lane = self.lane(device);
        let stream = lane.stream.clone();
        let rows_max = count.relation.source.shard_rows(device);
        let counts_twice = !steps.count_within.is_empty();
        let counted = if counts_twice { PassBits { second: 0, ..bits } } else { bits };
        let (mut scan, mut target) = Scan::open(&stream, counted, 0)?;
        let counting = lane.enqueue(count, &Target::Partition(&target), 0..count.chunks(device))?;
        scan.launch(&mut lane, &steps.scan[device], &target)?;
        let second = second_pass(&stream, bits);
        target.bits = bits.first;
        target.words = allocate_words(&mut lane, shape, rows_max)?;
        let scattering = lane.enqueue(scatter, &Target::Partition(&target), 0..scatter.chunks(device))?;
        let (mut words, mut aside) = (target.words, vec![]);
        if counts_twice {
            scan = count_within(
                &mut lane,
                (&steps.count_within[device], &steps.scan[device]),
                shape,
                (&words, rows_max),
                (scan, bits),
            )?;
        }
        if bits.second > 0 {
            let moved = allocate_words(&mut lane, shape, rows_max)?;
            let params = PassParams {
                input: row_words(shape, &words),
                outputs: padded(moved.iter().map(|word| Some(Ptr::of(word))), None),
                rows: rows_max,
                first_bits: bits.first.into(),
                bits: bits.second.into(),
                cursors: Ptr::of(&scan.cursors),
                first_offsets: Some(Ptr::of(&scan.first_offsets)),
                first_tiles: Some(Ptr::of(&scan.first_tiles)),
                bin_rows: 0,
                places: None,
            };
            let launch = Launch {
                blocks: u32::try_from(rows_max.div_ceil(second.tile_rows()) + (1 << bits.first)).unwrap_or(u32::MAX),
                block_threads: second.threads,
                shared_bytes: second.shared_bytes,
            };
            lane.launch(&steps.pass[device], launch, &params)?;
            aside = std::mem::replace(&mut words, moved);
        }
        let end = stream.record()?;
        let work = std::mem::take(&mut lane.work);
        drop(lane);
        self.take_work(device, work);
        self.set_aside(&stream, aside);
        let begin = counting.events.0;
        // What the count met, the kernel that evaluates all that the rows hold meets too.
        Ok((PartitionedShard { rows_max, words, offsets: scan.offsets }, scattering.into_pending((begin, end))))
    }
}

impl Query<'_> {
    /// Keeps buffers that are no longer needed until the query has ended, if they are a small part of the device's
    /// memory. Otherwise larger buffers would reuse pieces of freed memory, which the driver then remaps in each query.
    fn set_aside(&mut self, stream: &Stream, buffers: Vec<Buffer>) {
        let bytes: u64 = self.kept.iter().chain(&buffers).map(Buffer::bytes).sum();
        if bytes <= stream.budget_bytes() / KEPT_SHARE {
            self.kept.extend(buffers);
        }
    }
}

/// Counts the rows of the second pass of a partition after the first one, of which `first` is the scan; returns the scan of both.
fn count_within(
    lane: &mut Lane<'_>,
    (count, scan): (&Kernel, &Kernel),
    shape: &RowShape,
    (words, rows): (&[Buffer], u64),
    (first, bits): (Scan, PassBits),
) -> Result<Scan> {
    let stream = lane.stream.clone();
    let (both, target) = Scan::open(&stream, bits, 0)?;
    let tile = second_pass(&stream, first.bits);
    let params = CountWithinParams {
        input: row_words(shape, words),
        rows,
        first_bits: bits.first.into(),
        bits: bits.second.into(),
        first_offsets: Ptr::of(&first.first_offsets),
        first_tiles: Ptr::of(&first.first_tiles),
        counts: Ptr::of(&target.counts),
    };
    let blocks = u32::try_from(rows.div_ceil(tile.tile_rows()) + (1 << bits.first)).unwrap_or(u32::MAX);
    let launch = Launch { blocks, block_threads: tile.threads, shared_bytes: 4 << bits.second };
    lane.launch(count, launch, &params)?;
    both.launch(lane, scan, &target)?;
    Ok(both)
}

/// The scan that turns the counts of a partition into offsets.
pub(super) struct Scan {
    bits: PassBits,
    /// Where each partition begins, and where the last one ends (partitions + 1 u32).
    pub offsets: Buffer,
    cursors: Buffer,
    first_offsets: Buffer,
    first_tiles: Buffer,
}

impl Scan {
    pub(super) const ENTRY: &str = "partition_scan";

    /// Allocates the scan, together with the target of the counting kernel.
    pub(super) fn open(stream: &Stream, bits: PassBits, skipped_bits: u32) -> Result<(Self, PartitionTarget)> {
        let (partitions, firsts) = (1u64 << bits.total(), 1u64 << bits.first);
        let counts = stream.alloc_filled(partitions * 4, 0)?;
        let scan = Self {
            bits,
            offsets: stream.alloc((partitions + 1) * 4)?,
            cursors: stream.alloc(partitions * 4)?,
            first_offsets: stream.alloc((firsts + 1) * 4)?,
            first_tiles: stream.alloc((firsts + 1) * 4)?,
        };
        let cursors = stream.alloc(firsts * 4)?;
        Ok((scan, PartitionTarget { bits: bits.total(), skipped_bits, counts, cursors, words: vec![] }))
    }

    /// Launches the scan, after the counting kernel.
    pub(super) fn launch(&self, lane: &mut Lane<'_>, kernel: &Kernel, target: &PartitionTarget) -> Result<()> {
        let stream = lane.stream.clone();
        let params = ScanParams {
            counts: Ptr::of(&target.counts),
            first_bits: self.bits.first.into(),
            second_bits: self.bits.second.into(),
            tile_rows: second_pass(&stream, self.bits).tile_rows(),
            offsets: Ptr::of(&self.offsets),
            cursors: Ptr::of(&self.cursors),
            first_cursors: Ptr::of(&target.cursors),
            first_offsets: Ptr::of(&self.first_offsets),
            first_tiles: Ptr::of(&self.first_tiles),
        };
        lane.launch(kernel, one_block(&stream, BLOCK_SUMS * 4), &params)
    }
}

/// The launch of a second pass, without its number of blocks.
fn second_pass(stream: &Stream, bits: PassBits) -> TileLaunch {
    partition_launch(stream.device().info(), bits.second, PARTITION_THREADS_FEW)
}

/// The hand-written kernels, for every device.
struct Steps {
    scan: Vec<Kernel>,
    /// Only where there is a second pass.
    pass: Vec<Kernel>,
    /// Only where that pass is counted after the first.
    count_within: Vec<Kernel>,
}

/// A launch of one block, with the threads of partition kernels.
pub(crate) fn one_block(stream: &Stream, shared_bytes: u32) -> Launch {
    let block_threads = stream.device().info().block_threads(PARTITION_THREADS_MANY);
    Launch { blocks: 1, block_threads, shared_bytes }
}

/// Memory for the words of rows: on the device, or in host memory if the device has no room.
fn allocate_words(lane: &mut Lane<'_>, shape: &RowShape, rows: u64) -> Result<Vec<Buffer>> {
    let stream = lane.stream.clone();
    let bytes: Vec<u64> = shape.word_bytes().iter().map(|&bytes| rows * u64::from(bytes)).collect();
    let all_bytes = bytes.iter().sum();
    let mut full = None;
    let on_host = lane.options.writes_to_host && stream.free_host_bytes() >= all_bytes;
    if !on_host && place_of(&stream, all_bytes) == MemoryPlace::Device {
        match bytes.iter().map(|&bytes| stream.alloc(bytes)).collect::<Result<_, _>>() {
            Ok(words) => return Ok(words),
            Err(error) if error.cause() == Cause::OutOfMemory => full = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    let words = bytes.iter().map(|&bytes| stream.alloc_host(bytes)).collect::<Result<_, _>>();
    let words = words.map_err(|error| full.unwrap_or(error))?;
    lane.work.spilled_bytes += all_bytes;
    Ok(words)
}

/// Rows of words as kernels take them.
pub(crate) fn row_words<'a>(shape: &RowShape, words: &'a [Buffer]) -> partition::RowWords<'a, Buffer> {
    let column = |(buffer, bytes)| WordColumn { buffer: Some(buffer), is_wide: bytes == 8, bias: 0 };
    let columns = words.iter().zip(shape.word_bytes()).map(column).collect();
    RowWords { columns, key_masks: shape.key_masks(), seed: 0, validity: None }.params()
}
