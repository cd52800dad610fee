//! Spilling of rows: they are partitioned chunk by chunk on the device, and each chunk is copied to host memory.
//!
//! While a kernel partitions a chunk, the previous one is copied to the host, and the next one of the source to the
//! device. So each row crosses the bus once in each direction, regardless of the number of passes that follow.

use warpjoin_codegen::{RowShape, partition_module};
use warpjoin_columns::Result;
use warpjoin_columns::devices::{Outbound, SpilledColumns};
use warpjoin_device::{Buffer, Cause, Kernel, Stream};

use super::passes::{PlannedPartition, Scan};
use super::spilled::{Run, SPILL_BITS, SpilledRows};
use crate::exec::launch::{Job, Lane, Target};
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::{Query, check_status};

/// Spilled partitions use the hash bits just above the 16 that choose a device. Tables of some partitions, and their
/// further partitions, use the top bits.
pub(super) const SPILL_SKIPPED_BITS: u32 = 64 - 16 - SPILL_BITS.first;

/// Bytes of a partitioned chunk: large enough to copy each partition of it in one piece at the full bus rate.
const CHUNK_BYTES: u64 = 256 << 20;
/// A partitioned chunk takes at most this fraction of a device's free memory (1 / divisor). There are two of them, and
/// two of the source.
const FREE_DIVISOR: u64 = 8;
/// Maximum chunks on the device at a time: one is written, one is copied.
const CHUNKS_MAX: usize = 2;
/// Rows stay on the device if they take at most this fraction of its free memory (1 / divisor).
const KEPT_DIVISOR: u64 = 4;

/// How the rows of each device are spilled.
struct Spilling<'s> {
    count: Job<'s>,
    scatter: Job<'s>,
    /// One kernel for each device.
    scan: Vec<Kernel>,
    shape: &'s RowShape,
    /// Whether rows may stay on the device, as no other device reads them.
    may_stay: bool,
}

/// The spilled rows of a device.
struct Spilled {
    runs: Vec<Run>,
    kernel_ns: u64,
}

impl Query<'_> {
    /// Partitions and spills rows for which `spill_obstacle` found none.
    pub(in crate::exec) fn spill(&mut self, planned: PlannedPartition) -> Result<SpilledRows> {
        let PlannedPartition { relation, count, scatter, shape, .. } = planned;
        let module = partition_module(self.options.hash_bits);
        let ([count_kernels, scatter_kernels], [scan]) =
            self.compile_pipelines(&relation, [&*count, &*scatter], SPILL_BITS.first, [(&module, Scan::ENTRY)])?;
        self.options.check_cancelled()?;
        let free_bytes = self.streams.iter().map(Stream::free_bytes).min().unwrap_or(0);
        let mut scatter = self.job(&relation, &scatter, &scatter_kernels)?;
        scatter.cut(CHUNK_BYTES.min(free_bytes / FREE_DIVISOR) / shape.row_bytes());
        let count = self.job(&relation, &count, &count_kernels)?.sharing_chunks_of(&scatter);
        let may_stay = self.devices() == 1 && !self.options.writes_to_host;
        let spilling = Spilling { count, scatter, scan, shape: &shape, may_stay };
        let spilled = self.on_each(|lane| spilling.run(lane))?;
        drop(spilling);
        let kernel_ns = spilled.iter().map(|of_device| of_device.kernel_ns).max().unwrap_or(0);
        let runs: Vec<Run> = spilled.into_iter().flat_map(|of_device| of_device.runs).collect();
        let rows_in = (0..self.devices()).map(|device| relation.source.shard_rows(device)).sum::<u64>();
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("{} -> Spill[{}]", relation.describe(), SPILL_BITS.describe()),
            rows_in,
            rows_out: runs.iter().map(Run::rows).sum(),
            read_bytes: rows_in * shape.row_bytes(),
            kernel_ns,
            ..PipelineMetrics::default()
        });
        Ok(SpilledRows { shape, rows_max: relation.rows_max, runs })
    }
}

impl Spilling<'_> {
    /// Partitions the rows of a device; each chunk becomes a run.
    fn run(&self, lane: &mut Lane<'_>) -> Result<Spilled> {
        let Self { count, scatter, shape, .. } = self;
        let (device, stream, row_bytes) = (lane.device, lane.stream.clone(), shape.row_bytes());
        let rows = scatter.relation.source.shard_rows(device);
        let stays = self.may_stay && rows * row_bytes <= stream.free_bytes() / KEPT_DIVISOR;
        // Dropped behind what is on its way to them.
        let (mut runs, mut kernel_ns) = (vec![], 0);
        let mut outbound = Outbound::new(&stream, lane.options.spill_path.as_deref())?;
        let chunks = if rows == 0 { 0 } else { scatter.chunks(device) };
        for chunk in 0..chunks {
            lane.options.check_cancelled()?;
            outbound.retire(CHUNKS_MAX - 1)?;
            let chunk_rows = scatter.chunk_rows.unwrap_or(rows).min(rows);
            let (scan, mut target) = Scan::open(&stream, SPILL_BITS, SPILL_SKIPPED_BITS)?;
            let counted = lane.enqueue(count, &Target::Partition(&target), chunk..chunk + 1)?;
            scan.launch(lane, &self.scan[device], &target)?;
            let is_on_host;
            (target.words, is_on_host) = chunk_words(&stream, shape, chunk_rows)?;
            let scattered = lane.enqueue(scatter, &Target::Partition(&target), chunk..chunk + 1)?;
            for flight in [&counted, &scattered] {
                check_status(lane.wait(flight)?.status)?;
                kernel_ns += flight.events.1.elapsed_ns(&flight.events.0)?;
            }
            let mut begins = vec![0u32; scan.offsets.bytes() as usize / 4];
            stream.read(&scan.offsets, 0, bytemuck::cast_slice_mut(&mut begins))?;
            let chunk_rows = u64::from(begins[begins.len() - 1]);
            let columns = target.words.into_iter().zip(shape.word_bytes().into_iter().map(u64::from)).collect();
            let rows = match stays || is_on_host {
                true => SpilledColumns::staying(columns),
                false => outbound.send(columns, chunk_rows)?,
            };
            lane.work.spilled_bytes += if stays && !is_on_host { 0 } else { chunk_rows * row_bytes };
            runs.push(Run { rows, begins });
        }
        outbound.retire(0)?;
        // What a function returns is lost where a drop behind it panics.
        drop(outbound);
        if self.scan.len() > 1 {
            // Other devices read what was copied.
            stream.synchronize()?;
        }
        Ok(Spilled { runs, kernel_ns })
    }
}

/// Memory for the words of a chunk's rows: on the device, or in host memory if the device has no room. Also returns
/// whether it is host memory.
fn chunk_words(stream: &Stream, shape: &RowShape, rows: u64) -> Result<(Vec<Buffer>, bool)> {
    let bytes = shape.word_bytes().into_iter().map(|bytes| rows * u64::from(bytes));
    match bytes.clone().map(|bytes| stream.alloc(bytes)).collect::<Result<_, _>>() {
        Ok(words) => Ok((words, false)),
        Err(error) if error.cause() == Cause::OutOfMemory => {
            let words = bytes.map(|bytes| stream.alloc_host(bytes)).collect::<Result<_, _>>();
            Ok((words.map_err(|_| error)?, true))
        }
        Err(error) => Err(error.into()),
    }
}
