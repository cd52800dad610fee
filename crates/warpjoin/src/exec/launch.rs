//! Runs one generated pipeline on all devices: compile, bind, launch, wait, look at the status.

use std::ops::Range;
use std::sync::Arc;

use warpjoin_device::{AbortGuard, Arg, Buffer, Event, Kernel, Launch, Stream};

use super::group::{GroupTarget, SketchTarget};
use super::join::threads_of;
use super::metrics::PipelineMetrics;
use super::partition::{PartitionTarget, partition_launch};
use super::query::Query;
use super::relation::{IntermediateShard, JoinTable, Relation, Source};
use crate::codegen::{
    BATCH_BLOCKS, Binding, FetchPart, GeneratedPipeline, Grid, GroupPart, JoinPart, Lookup, MatchPart, PARTITION_ITEMS,
    PARTITION_THREADS_MANY, PartitionPart, ROWS_PER_THREAD_BITS_MAX, SketchPart, control, status,
};
use crate::column::ColumnType;
use crate::{Error, Result};

/// Chunks start at multiples of this many rows, so that values and validity bits stay aligned.
const CHUNK_ROWS_UNIT: u64 = 128;

/// Where a pipeline's sink writes on one device.
pub(crate) enum Target<'a> {
    Rows {
        shard: &'a IntermediateShard,
        capacity: u64,
        /// The columns, where rows lie as those of the source do.
        in_place: Option<&'a [ColumnType]>,
    },
    Groups(&'a GroupTarget),
    Partition(&'a PartitionTarget),
    Sketch(&'a SketchTarget),
    /// Slots indexed by the packed key.
    Slots(&'a Buffer),
}

/// What the kernel of one device reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub status: u64,
    pub rows: u64,
    pub probes: u64,
    pub pruned: u64,
}

/// A launch under way on one device. Holds what the kernel reads until it has ended.
pub(super) struct Flight {
    /// Ends the kernel when the query is cancelled.
    _abort: AbortGuard,
    control: Buffer,
    _lookups: Vec<Arc<UploadedColumn>>,
    /// Before and after the kernel.
    pub events: (Event, Event),
}

impl Flight {
    /// Waits for the kernel; errors of the data are errors.
    pub(super) fn check(&self, stream: &Stream) -> Result<()> {
        check_status(read_report(stream, &self.control)?.status)
    }
}

/// What is read by code, on one device.
pub(super) struct UploadedColumn {
    values: Arc<Buffer>,
    validity: Option<Buffer>,
}

impl Query<'_> {
    /// Runs `generated` over `relation` on every device. Arithmetic errors become errors here; a full
    /// table or output is left to the caller.
    pub(crate) fn run_pipeline(
        &mut self,
        relation: &Relation,
        generated: &GeneratedPipeline,
        targets: &[Target<'_>],
        sink_name: &str,
    ) -> Result<Vec<Report>> {
        self.run_chunks(relation, generated, targets, sink_name, 0..self.chunks(relation))
    }

    /// The same over some of the source's chunks.
    pub(crate) fn run_chunks(
        &mut self,
        relation: &Relation,
        generated: &GeneratedPipeline,
        targets: &[Target<'_>],
        sink_name: &str,
        chunks: Range<u64>,
    ) -> Result<Vec<Report>> {
        self.options.check_cancelled()?;
        let kernels = self.compile(&generated.module, "pipeline")?;
        let mut flights = vec![];
        for (device, target) in targets.iter().enumerate() {
            flights.push(self.launch_on(device, &kernels[device], relation, generated, (target, chunks.clone()))?);
        }
        let mut reports = vec![];
        for (stream, flight) in self.streams.iter().zip(&flights) {
            reports.push(read_report(stream, &flight.control)?);
        }
        let spans = flights.iter().enumerate().map(|(device, flight)| (device, &flight.events.0, &flight.events.1));
        let kernel_ns = self.add_kernels(spans)?;
        drop(flights);
        self.settle()?;
        let bits = reports.iter().fold(0, |bits, report| bits | report.status);
        let chunk_rows = self.chunk_rows(relation).unwrap_or(u64::MAX);
        let of_chunks = |rows: u64| {
            let end = chunks.end.saturating_mul(chunk_rows).min(rows);
            end - chunks.start.saturating_mul(chunk_rows).min(end)
        };
        let rows_in = (0..reports.len()).map(|device| of_chunks(relation.source.shard_rows(device))).sum();
        self.note_pipeline(relation, generated, sink_name, &reports, (rows_in, kernel_ns));
        check_status(bits)?;
        Ok(reports)
    }

    /// Number of chunks on the device with the most rows. Each chunk is one launch.
    pub(crate) fn chunks(&self, relation: &Relation) -> u64 {
        let rows = relation.source.shard_rows_max(self.devices());
        self.chunk_rows(relation).map_or(1, |chunk_rows| rows.div_ceil(chunk_rows).max(1))
    }

    /// Rows of a chunk; `None`: all.
    fn chunk_rows(&self, relation: &Relation) -> Option<u64> {
        let is_cut = matches!(relation.source, Source::Table(..) | Source::Intermediate(_));
        self.options.chunk_rows.filter(|_| is_cut).map(|rows| rows.max(1).next_multiple_of(CHUNK_ROWS_UNIT))
    }

    /// Launches the kernel once per chunk. Skips chunks beyond the device's rows, except the first.
    pub(super) fn launch_on(
        &mut self,
        device: usize,
        kernel: &Kernel,
        relation: &Relation,
        generated: &GeneratedPipeline,
        (target, chunks): (&Target<'_>, Range<u64>),
    ) -> Result<Flight> {
        let stream = self.streams[device].clone();
        let lookups =
            generated.lookups.iter().map(|lookup| self.look_up(device, lookup)).collect::<Result<Vec<_>>>()?;
        let control = stream.alloc_filled(control::WORDS as u64 * 8, 0)?;
        let abort = self.watch(&control)?;
        let all_rows = relation.source.shard_rows(device);
        let bits = if let Target::Partition(partition) = target { partition.bits } else { 0 };
        // A sample is drawn of all rows.
        let chunk_rows = self.chunk_rows(relation).filter(|_| !matches!(target, Target::Sketch(_))).unwrap_or(u64::MAX);
        let begin = stream.record()?;
        for chunk in chunks {
            let first = chunk.saturating_mul(chunk_rows).min(all_rows);
            let rows = chunk_rows.min(all_rows - first);
            // A kernel without rows still has its part in some sinks: a global aggregate has one row.
            if chunk > 0 && rows == 0 {
                break;
            }
            let binder = Binder { device, relation, target, lookups: &lookups, control: &control, first, rows };
            let args = generated.bindings.iter().map(|binding| binder.arg(binding)).collect::<Result<Vec<_>>>()?;
            let launch = launch_shape(&stream, rows, generated, relation, bits);
            stream.launch(kernel, launch, &args)?;
            self.metrics.launches += 1;
        }
        let end = stream.record()?;
        Ok(Flight { _abort: abort, control, _lookups: lookups, events: (begin, end) })
    }

    /// Has the status of a control block set when the query is cancelled.
    pub(super) fn watch(&self, control: &Buffer) -> Result<AbortGuard> {
        Ok(self.abort.watch(control, control::STATUS as u64 * 8, status::CANCELLED)?)
    }

    fn look_up(&mut self, device: usize, lookup: &Lookup) -> Result<Arc<UploadedColumn>> {
        let column = match lookup {
            Lookup::Column(column) => column,
            Lookup::Test(test) => {
                let values = self.tested(test)?.swap_remove(device);
                return Ok(Arc::new(UploadedColumn { values, validity: None }));
            }
        };
        let key = (device, Arc::as_ptr(column).addr());
        if let Some((_, known)) = self.uploads.get(&key) {
            return Ok(Arc::clone(known));
        }
        let stream = &self.streams[device];
        self.metrics.uploaded_bytes += column.values.len() as u64;
        let validity = column.validity.as_ref().map(|bits| stream.upload(bits)).transpose()?;
        let uploaded = Arc::new(UploadedColumn { values: Arc::new(stream.upload(&column.values)?), validity });
        self.uploads.insert(key, (Arc::clone(column), Arc::clone(&uploaded)));
        Ok(uploaded)
    }

    fn note_pipeline(
        &mut self,
        relation: &Relation,
        generated: &GeneratedPipeline,
        sink_name: &str,
        reports: &[Report],
        (rows_in, kernel_ns): (u64, u64),
    ) {
        let mut row_bytes = 0;
        for binding in &generated.bindings {
            match binding {
                Binding::SourceValues(column) => row_bytes += relation.source.width_bytes(*column),
                Binding::SourceGroups => row_bytes += relation.source.width_bytes(0),
                _ => {}
            }
        }
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("{} -> {sink_name}", relation.describe()),
            rows_in,
            rows_out: reports.iter().map(|report| report.rows).sum(),
            read_bytes: rows_in * row_bytes,
            kernel_ns,
            probes: reports.iter().map(|report| report.probes).sum(),
            pruned: reports.iter().map(|report| report.pruned).sum(),
            retries: 0,
        });
    }
}

/// Waits for the stream and reads a control block.
pub(crate) fn read_report(stream: &Stream, control: &Buffer) -> Result<Report> {
    let mut words = [0u64; control::WORDS];
    stream.read(control, 0, bytemuck::cast_slice_mut(&mut words))?;
    Ok(Report {
        status: words[control::STATUS],
        rows: words[control::ROWS],
        probes: words[control::PROBES],
        pruned: words[control::PRUNED],
    })
}

/// Errors of the data, as opposed to tables that are too small.
pub(super) fn check_status(bits: u64) -> Result<()> {
    if bits & status::CANCELLED != 0 {
        Err(Error::Cancelled)
    } else if bits & status::OVERFLOW != 0 {
        Err(Error::Overflow)
    } else if bits & status::DIVISION != 0 {
        Err(Error::DivisionByZero)
    } else if bits & status::CAST != 0 {
        Err(Error::CastFailed)
    } else {
        Ok(())
    }
}

/// Enough blocks to fill the device, and so many that no thread sees too many rows; `bits` of a partition that is
/// written.
pub(super) fn launch_shape(
    stream: &Stream,
    rows: u64,
    generated: &GeneratedPipeline,
    relation: &Relation,
    bits: u32,
) -> Launch {
    let info = stream.device().info();
    let shared_bytes_max = info.shared_bytes_per_block_max.max(1);
    // Blocks that a multiprocessor holds at once.
    let resident = |threads: u32, shared_bytes: u32| match shared_bytes {
        0 => 2048 / threads,
        bytes => (shared_bytes_max / bytes).clamp(1, 2048 / threads),
    };
    let fill =
        |threads: u32, shared_bytes: u32| u64::from(info.multiprocessors) * u64::from(resident(threads, shared_bytes));
    let (blocks, block_threads, shared_bytes) = match generated.grid {
        Grid::Tiles { block_threads, shared_bytes } => {
            let threads = u64::from(block_threads);
            let tiles = rows.div_ceil(threads).max(1);
            let least = rows.div_ceil(threads << ROWS_PER_THREAD_BITS_MAX);
            (tiles.min(fill(block_threads, shared_bytes)).max(least), block_threads, shared_bytes)
        }
        Grid::Batches { block_threads, shared_bytes } => {
            let tiles = rows.div_ceil(u64::from(block_threads)).max(1);
            (tiles.min(u64::from(info.multiprocessors * BATCH_BLOCKS)), block_threads, shared_bytes)
        }
        Grid::Count => {
            let threads = info.block_threads(PARTITION_THREADS_MANY);
            let shared_bytes = 4 << bits;
            let tiles = rows.div_ceil(u64::from(threads * PARTITION_ITEMS));
            (tiles.min(fill(threads, shared_bytes)), threads, shared_bytes)
        }
        Grid::Scatter { threads } => {
            let tile = partition_launch(info, bits, threads);
            (rows.div_ceil(tile.tile_rows()), tile.threads, tile.shared_bytes)
        }
        Grid::Matches => {
            let (threads, shared_bytes) = match &relation.source {
                Source::Matches(matches, form) => {
                    let shared_bytes = matches.table(*form).shared_bytes;
                    (threads_of(info, *form, shared_bytes), shared_bytes)
                }
                _ => (32, 0),
            };
            (fill(threads, shared_bytes), threads, shared_bytes)
        }
    };
    Launch { blocks: blocks.clamp(1, i32::MAX as u64) as u32, block_threads, shared_bytes }
}

/// Finds what to pass for a binding on one device.
struct Binder<'a> {
    device: usize,
    relation: &'a Relation,
    target: &'a Target<'a>,
    lookups: &'a [Arc<UploadedColumn>],
    control: &'a Buffer,
    /// The chunk: its first row among those of the device, and how many there are.
    first: u64,
    rows: u64,
}

impl<'a> Binder<'a> {
    /// The address of the chunk's first row in a buffer with this many bytes per row.
    fn at_first_row(&self, buffer: Option<&'a Buffer>, row_bytes: u64) -> Arg<'a> {
        match (buffer, self.first) {
            (Some(buffer), 1..) => Arg::BufferAt(buffer, self.first * row_bytes),
            (buffer, _) => Arg::or_null(buffer),
        }
    }

    /// The address of the chunk's first validity bit or byte.
    fn validity(&self, column: usize) -> Arg<'a> {
        let source = &self.relation.source;
        let buffer = source.validity(self.device, column);
        match (buffer, source) {
            (Some(buffer), Source::Table(..)) if self.first > 0 => Arg::BufferAt(buffer, self.first / 8),
            (buffer, _) => self.at_first_row(buffer, 1),
        }
    }

    fn arg(&self, binding: &Binding) -> Result<Arg<'a>> {
        let source = &self.relation.source;
        Ok(match binding {
            Binding::Word(word) => Arg::U64(*word),
            Binding::SourceRows => Arg::U64(self.rows),
            Binding::SourceFirstRow => {
                let before: u64 = (0..self.device).map(|device| source.shard_rows(device)).sum();
                Arg::U64(before + self.first)
            }
            Binding::SourceValues(column) => {
                self.at_first_row(source.values(self.device, *column), source.width_bytes(*column))
            }
            Binding::SourceValidity(column) => self.validity(*column),
            Binding::SourceGroups | Binding::SourceFinished | Binding::SourceFinishedRows => {
                let Source::Groups(groups) = source else {
                    return Err(Error::internal("groups of a table"));
                };
                let shard = &groups.shards[self.device];
                match binding {
                    Binding::SourceGroups => Arg::Buffer(&shard.rows),
                    Binding::SourceFinished => Arg::or_null(shard.finished.as_ref().map(|finished| &finished.rows)),
                    _ => Arg::U64(shard.finished.as_ref().map_or(0, |finished| finished.count)),
                }
            }
            Binding::SourceOffsets | Binding::SourcePartitions => {
                let Source::Partitioned(rows) = source else {
                    return Err(Error::internal("partitions of a table"));
                };
                let shard = &rows.shards[self.device];
                match binding {
                    Binding::SourceOffsets => Arg::Buffer(&shard.offsets),
                    _ => Arg::U64(shard.partitions()),
                }
            }
            Binding::Join(join, part) => self.join_arg(&self.relation.joins[*join], *part),
            Binding::Fetched { step, part } => {
                let shards = self.relation.fetched[*step].shards();
                match *part {
                    FetchPart::FirstRow { shard } => Arg::U64(shards[shard].first_row),
                    FetchPart::Values { shard, column } => Arg::or_null(shards[shard].columns[column].values.as_ref()),
                    FetchPart::Validity { shard, column } => {
                        Arg::or_null(shards[shard].columns[column].validity.as_ref())
                    }
                }
            }
            Binding::LookupValues(number) => Arg::Buffer(&self.lookups[*number].values),
            Binding::LookupValidity(number) => Arg::or_null(self.lookups[*number].validity.as_ref()),
            Binding::Control => Arg::Buffer(self.control),
            Binding::OutputValues(column) => self.output_values(*column)?,
            Binding::OutputValidity(column) => {
                let validity = self.output()?.0.columns[*column].validity.as_ref();
                match self.target {
                    Target::Rows { in_place: Some(_), .. } => self.at_first_row(validity, 1),
                    _ => Arg::or_null(validity),
                }
            }
            Binding::OutputSlots => {
                let Target::Slots(slots) = self.target else {
                    return Err(Error::internal("slots where rows are written"));
                };
                Arg::Buffer(slots)
            }
            Binding::OutputCapacity => Arg::U64(self.output()?.1),
            Binding::Group(part) => self.group_arg(*part)?,
            Binding::Partition(part) => {
                let Target::Partition(target) = self.target else {
                    return Err(Error::internal("a partition where rows are written"));
                };
                match part {
                    PartitionPart::Bits => Arg::U64(target.bits.into()),
                    PartitionPart::Counts => Arg::Buffer(&target.counts),
                    PartitionPart::Cursors => Arg::Buffer(&target.cursors),
                    PartitionPart::Word(word) => Arg::Buffer(&target.words[*word]),
                }
            }
            Binding::Match(part) => self.match_arg(*part)?,
            Binding::Sketch(part) => {
                let Target::Sketch(target) = self.target else {
                    return Err(Error::internal("a sketch where rows are written"));
                };
                match part {
                    SketchPart::Set => Arg::Buffer(&target.set),
                    SketchPart::Stride => Arg::U64(target.stride),
                }
            }
        })
    }

    fn output_values(&self, column: usize) -> Result<Arg<'a>> {
        let values = self.output()?.0.columns[column].values.as_ref();
        Ok(match self.target {
            Target::Rows { in_place: Some(columns), .. } => {
                self.at_first_row(values, columns[column].layout().width_bytes.into())
            }
            _ => Arg::or_null(values),
        })
    }

    fn match_arg(&self, part: MatchPart) -> Result<Arg<'a>> {
        let Source::Matches(matches, form) = &self.relation.source else {
            return Err(Error::internal("matches of a table"));
        };
        let (build, probe) = (&matches.build.shards[self.device], &matches.probe.shards[self.device]);
        Ok(match part {
            MatchPart::Bits => Arg::U64(matches.bits.into()),
            MatchPart::BuildOffsets => Arg::Buffer(&build.offsets),
            MatchPart::ProbeOffsets => Arg::Buffer(&probe.offsets),
            MatchPart::Items => Arg::Buffer(&matches.items[self.device]),
            MatchPart::Capacity => Arg::U64(matches.capacity.into()),
            MatchPart::HeadsBits => Arg::U64(matches.table(*form).heads_bits.into()),
            MatchPart::ChunkRows => Arg::U64(matches.chunk_rows.into()),
            MatchPart::BuildWord(word) => Arg::Buffer(&build.words[word]),
            MatchPart::ProbeWord(word) => Arg::Buffer(&probe.words[word]),
        })
    }

    fn join_arg(&self, table: &'a JoinTable, part: JoinPart) -> Arg<'a> {
        let shard = &table.shards[self.device];
        let columns = &table.build.shards[self.device].columns;
        match part {
            JoinPart::Slots => Arg::Buffer(&shard.slots),
            JoinPart::Windows => Arg::U64(shard.windows),
            JoinPart::RowList => Arg::or_null(shard.row_list.as_ref()),
            JoinPart::Bounds => Arg::or_null(shard.bounds.as_ref()),
            JoinPart::PayloadWords => Arg::or_null(columns.get(1).and_then(|column| column.values.as_ref())),
            JoinPart::PayloadValues(column) => Arg::or_null(columns[1 + column].values.as_ref()),
            JoinPart::PayloadValidity(column) => Arg::or_null(columns[1 + column].validity.as_ref()),
        }
    }

    fn output(&self) -> Result<(&'a IntermediateShard, u64)> {
        match self.target {
            Target::Rows { shard, capacity, .. } => Ok((shard, *capacity)),
            _ => Err(Error::internal("rows written to something else")),
        }
    }

    fn group_arg(&self, part: GroupPart) -> Result<Arg<'a>> {
        let Target::Groups(target) = self.target else {
            return Err(Error::internal("groups written to rows"));
        };
        Ok(match part {
            GroupPart::Rows => Arg::Buffer(&target.shard.rows),
            GroupPart::Capacity => Arg::U64(target.slots),
            GroupPart::Index => Arg::or_null(target.index.as_ref()),
            GroupPart::IndexSlots => Arg::U64(target.index_slots),
            GroupPart::StepsMax => Arg::U64(target.steps_max),
            GroupPart::GrowSteps => Arg::U64(target.grow_steps),
            GroupPart::SpillRows => Arg::U64(target.spill_rows),
            GroupPart::Counters => Arg::Buffer(&target.counters),
            GroupPart::Cursors => Arg::Buffer(&target.cursors),
            GroupPart::ChunkRows => Arg::U64(target.chunk_rows),
            GroupPart::PrefetchSteps => Arg::U64(target.prefetch_steps),
            GroupPart::Finished => Arg::or_null(target.finished.as_ref()),
            GroupPart::FinishedRows => Arg::U64(target.finished_rows),
        })
    }
}
