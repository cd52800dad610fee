//! Spilled rows: partitioned chunk by chunk on the device, each chunk then copied to the host's memory.
//!
//! While a kernel partitions a chunk, the one before is copied to the host, and the next one of the source to the device. So
//! each row crosses the bus once in each direction, however many passes over the partitions follow.

use std::collections::VecDeque;

use warpjoin_device::{Buffer, Cause, Event, Stream};

use super::passes::{PlannedPartition, Scan};
use super::spilled::{Run, SPILL_BITS, SpilledRows};
use crate::Result;
use crate::codegen::{RowShape, partition_module};
use crate::devices::CopyLane;
use crate::exec::launch::Target;
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::{Query, check_status};

/// Spilled partitions go by bits of the hash just above the 16 that choose a device: tables of some partitions, and further
/// partitions of them, go by the bits from the top.
pub(super) const SPILL_SKIPPED_BITS: u32 = 64 - 16 - SPILL_BITS.first;

/// Bytes of a partitioned chunk: each partition of it is copied in one piece, at the rate of the bus.
const CHUNK_BYTES: u64 = 256 << 20;
/// A partitioned chunk takes at most this part of a device's free memory. There are two of them, and two of the source.
const FREE_DIVISOR: u64 = 8;
/// Chunks that are there at a time: one is written, one is copied.
const CHUNKS_MAX: usize = 2;
/// Rows stay on the device if they take at most this part of its free memory.
const KEPT_DIVISOR: u64 = 4;

/// Chunks on their way to the host. They are freed behind the copies.
struct Outbound {
    lane: CopyLane,
    under_way: VecDeque<(Vec<Buffer>, Event)>,
}

impl Outbound {
    /// Copies `rows` rows to the host, behind the kernels that write their words.
    fn send(&mut self, shape: &RowShape, words: Vec<Buffer>, rows: u64) -> Result<Vec<Buffer>> {
        let bytes = |word_bytes: u32| rows * u64::from(word_bytes);
        let widths = shape.word_bytes();
        let on_host =
            widths.iter().map(|&width| self.lane.kernels().alloc_host(bytes(width))).collect::<Result<Vec<_>, _>>()?;
        let copied = self.lane.enqueue(|copies| {
            for ((from, to), &width) in words.iter().zip(&on_host).zip(&widths) {
                copies.copy((from, 0), (to, 0), bytes(width))?;
            }
            Ok(())
        })?;
        self.under_way.push_back((words, copied));
        Ok(on_host)
    }

    fn retire(&mut self, count: usize) -> Result<()> {
        self.lane.retire(&mut self.under_way, count)
    }
}

impl Query<'_> {
    /// Partitions the rows of the only device, for which nothing is in the way, and spills them.
    pub(in crate::exec) fn spill(&mut self, planned: PlannedPartition) -> Result<SpilledRows> {
        let PlannedPartition { relation, count, scatter, shape, .. } = planned;
        let module = partition_module(self.options.hash_bits);
        let ([count_kernels, scatter_kernels], [scan_kernels]) =
            self.compile_pipelines(&relation, [&*count, &*scatter], SPILL_BITS.first, [(&module, Scan::ENTRY)])?;
        self.options.check_cancelled()?;
        let stream = self.streams[0].clone();
        let row_bytes = shape.row_bytes();
        let rows = relation.source.shard_rows(0);
        let chunk_bytes = CHUNK_BYTES.min(stream.free_bytes() / FREE_DIVISOR);
        let mut scattering = self.job(&relation, &scatter, &scatter_kernels)?;
        scattering.cut(chunk_bytes / row_bytes);
        let counting = self.job(&relation, &count, &count_kernels)?.sharing_chunks_of(&scattering);
        let is_kept = !self.options.writes_to_host && rows * row_bytes <= stream.free_bytes() / KEPT_DIVISOR;
        // Dropped behind what is on its way to them.
        let (mut runs, mut kernel_ns, mut spilled_bytes) = (vec![], 0, 0);
        let mut outbound = Outbound { lane: CopyLane::new(&stream)?, under_way: VecDeque::new() };
        let mut lane = self.lane(0);
        for chunk in 0..scattering.chunks(0) {
            lane.options.check_cancelled()?;
            outbound.retire(CHUNKS_MAX - 1)?;
            let chunk_rows = scattering.chunk_rows.unwrap_or(rows).min(rows);
            let (scan, mut target) = Scan::open(&stream, SPILL_BITS, SPILL_SKIPPED_BITS)?;
            let counted = lane.enqueue(&counting, &Target::Partition(&target), chunk..chunk + 1)?;
            scan.launch(&mut lane, &scan_kernels[0], &target)?;
            let is_on_host;
            (target.words, is_on_host) = chunk_words(&stream, &shape, chunk_rows)?;
            let scattered = lane.enqueue(&scattering, &Target::Partition(&target), chunk..chunk + 1)?;
            for flight in [&counted, &scattered] {
                check_status(lane.wait(flight)?.status)?;
                kernel_ns += flight.events.1.elapsed_ns(&flight.events.0)?;
            }
            let mut begins = vec![0u32; scan.offsets.bytes() as usize / 4];
            stream.read(&scan.offsets, 0, bytemuck::cast_slice_mut(&mut begins))?;
            let chunk_rows = u64::from(begins[begins.len() - 1]);
            let mut words = target.words;
            if !is_kept && !is_on_host {
                words = outbound.send(&shape, words, chunk_rows)?;
            }
            spilled_bytes += if is_kept && !is_on_host { 0 } else { chunk_rows * row_bytes };
            runs.push(Run { words, begins });
        }
        outbound.retire(0)?;
        let mut work = std::mem::take(&mut lane.work);
        work.spilled_bytes += spilled_bytes;
        drop(lane);
        self.take_work(0, work);
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("{} -> Spill[{}]", relation.describe(), SPILL_BITS.describe()),
            rows_in: rows,
            rows_out: runs.iter().map(Run::rows).sum(),
            read_bytes: rows * row_bytes,
            kernel_ns,
            ..PipelineMetrics::default()
        });
        Ok(SpilledRows { shape, rows_max: relation.rows_max, runs })
    }
}

/// Memory for the words of a chunk's rows: on the device, or where it has no room in the host's memory, which is told.
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
