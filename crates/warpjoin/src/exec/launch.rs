//! Runs one generated pipeline on all devices: compile, bind, launch, wait, look at the status.

use warpjoin_device::{Arg, Buffer, Event, Kernel, Launch, Stream};

use super::metrics::PipelineMetrics;
use super::query::Query;
use super::group_target::GroupTarget;
use super::relation::{IntermediateShard, JoinTable, Relation};
use crate::codegen::{Binding, GeneratedPipeline, GroupPart, JoinPart, ROWS_PER_THREAD_BITS_MAX, control, status};
use crate::column::EncodedColumn;
use crate::{Error, Result};

/// Where a pipeline's sink writes on one device.
pub(crate) enum Target<'a> {
    Rows { shard: &'a IntermediateShard, capacity: u64 },
    Groups(&'a GroupTarget),
}

/// What the kernel of one device reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub status: u64,
    pub rows: u64,
}

/// A launch under way on one device. Holds what the kernel reads until it has ended.
struct Flight {
    control: Buffer,
    _lookups: Vec<UploadedColumn>,
    events: (Event, Event),
}

struct UploadedColumn {
    values: Buffer,
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
        self.options.check_cancelled()?;
        let kernels = self.compile(&generated.module, "pipeline")?;
        let mut flights = vec![];
        for (device, target) in targets.iter().enumerate() {
            flights.push(self.launch_on(device, &kernels[device], relation, generated, target)?);
        }
        let mut reports = vec![];
        let mut kernel_ns = 0;
        for (device, flight) in flights.into_iter().enumerate() {
            reports.push(read_report(&self.streams[device], &flight.control)?);
            kernel_ns = kernel_ns.max(flight.events.1.elapsed_ns(&flight.events.0)?);
        }
        let bits = reports.iter().fold(0, |bits, report| bits | report.status);
        self.note_pipeline(relation, generated, sink_name, &reports, kernel_ns);
        check_status(bits)?;
        Ok(reports)
    }

    fn launch_on(
        &mut self,
        device: usize,
        kernel: &Kernel,
        relation: &Relation,
        generated: &GeneratedPipeline,
        target: &Target<'_>,
    ) -> Result<Flight> {
        let stream = self.streams[device].clone();
        let lookups =
            generated.lookups.iter().map(|column| self.upload(&stream, column)).collect::<Result<Vec<_>>>()?;
        let control = stream.alloc_filled(control::WORDS as u64 * 8, 0)?;
        let rows = relation.source.shard_rows(device);
        let binder = Binder { device, relation, target, lookups: &lookups, control: &control };
        let args = generated.bindings.iter().map(|binding| binder.arg(binding)).collect::<Result<Vec<_>>>()?;
        let begin = stream.record()?;
        // A kernel without rows still has its part in some sinks: a global aggregate has one row.
        let launch = launch_shape(&stream, rows, generated);
        stream.launch(kernel, launch, &args)?;
        self.metrics.launches += 1;
        let end = stream.record()?;
        Ok(Flight { control, _lookups: lookups, events: (begin, end) })
    }

    fn upload(&mut self, stream: &Stream, column: &EncodedColumn) -> Result<UploadedColumn> {
        self.metrics.uploaded_bytes += column.values.len() as u64;
        let validity = column.validity.as_ref().map(|bits| stream.upload(bits)).transpose()?;
        Ok(UploadedColumn { values: stream.upload(&column.values)?, validity })
    }

    fn note_pipeline(
        &mut self,
        relation: &Relation,
        generated: &GeneratedPipeline,
        sink_name: &str,
        reports: &[Report],
        kernel_ns: u64,
    ) {
        let rows_in = (0..reports.len()).map(|device| relation.source.shard_rows(device)).sum();
        let mut row_bytes = 0;
        for binding in &generated.bindings {
            match binding {
                Binding::SourceValues(column) => row_bytes += relation.source.width_bytes(*column),
                Binding::SourceGroups => row_bytes += relation.source.width_bytes(0),
                _ => {}
            }
        }
        self.metrics.kernel_ns += kernel_ns;
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("{} -> {sink_name}", relation.describe()),
            rows_in,
            rows_out: reports.iter().map(|report| report.rows).sum(),
            read_bytes: rows_in * row_bytes,
            kernel_ns,
            retries: 0,
        });
    }
}

/// Waits for the stream and reads a control block.
pub(crate) fn read_report(stream: &Stream, control: &Buffer) -> Result<Report> {
    let mut words = [0u64; control::WORDS];
    stream.read(control, 0, bytemuck::cast_slice_mut(&mut words))?;
    Ok(Report { status: words[control::STATUS], rows: words[control::ROWS] })
}

/// Errors of the data, as opposed to tables that are too small.
fn check_status(bits: u64) -> Result<()> {
    if bits & status::OVERFLOW != 0 {
        Err(Error::Overflow)
    } else if bits & status::DIVISION != 0 {
        Err(Error::DivisionByZero)
    } else if bits & status::CAST != 0 {
        Err(Error::CastFailed)
    } else {
        Ok(())
    }
}

/// Enough blocks to fill the device, and so many that no thread sees too many rows.
pub(super) fn launch_shape(stream: &Stream, rows: u64, generated: &GeneratedPipeline) -> Launch {
    let info = stream.device().info();
    let threads = u64::from(generated.block_threads);
    let tiles = rows.div_ceil(threads).max(1);
    let shared_per_multiprocessor = u64::from(info.shared_bytes_per_block_max).max(1);
    let resident = match generated.shared_bytes {
        0 => 2048 / threads,
        bytes => (shared_per_multiprocessor / u64::from(bytes)).clamp(1, 2048 / threads),
    };
    let fill = u64::from(info.multiprocessors) * resident;
    let least = rows.div_ceil(threads << ROWS_PER_THREAD_BITS_MAX);
    let blocks = tiles.min(fill).max(least).clamp(1, i32::MAX as u64);
    Launch { blocks: blocks as u32, block_threads: generated.block_threads, shared_bytes: generated.shared_bytes }
}

/// Finds what to pass for a binding on one device.
struct Binder<'a> {
    device: usize,
    relation: &'a Relation,
    target: &'a Target<'a>,
    lookups: &'a [UploadedColumn],
    control: &'a Buffer,
}

impl<'a> Binder<'a> {
    fn arg(&self, binding: &Binding) -> Result<Arg<'a>> {
        let source = &self.relation.source;
        let buffer = |buffer: Option<&'a Buffer>| buffer.map_or(Arg::Null, Arg::Buffer);
        Ok(match binding {
            Binding::Word(word) => Arg::U64(*word),
            Binding::SourceRows => Arg::U64(source.shard_rows(self.device)),
            Binding::SourceValues(column) => buffer(source.values(self.device, *column)),
            Binding::SourceValidity(column) => buffer(source.validity(self.device, *column)),
            Binding::SourceGroups => match source {
                super::relation::Source::Groups(groups) => Arg::Buffer(&groups.shards[self.device].rows),
                _ => return Err(Error::internal("groups of a table")),
            },
            Binding::Join(join, part) => self.join_arg(&self.relation.joins[*join], *part),
            Binding::LookupValues(number) => Arg::Buffer(&self.lookups[*number].values),
            Binding::LookupValidity(number) => buffer(self.lookups[*number].validity.as_ref()),
            Binding::Control => Arg::Buffer(self.control),
            Binding::OutputValues(column) => buffer(self.output()?.0.columns[*column].values.as_ref()),
            Binding::OutputValidity(column) => buffer(self.output()?.0.columns[*column].validity.as_ref()),
            Binding::OutputCapacity => Arg::U64(self.output()?.1),
            Binding::Group(part) => self.group_arg(*part)?,
        })
    }

    fn join_arg(&self, table: &'a JoinTable, part: JoinPart) -> Arg<'a> {
        let shard = &table.shards[self.device];
        let columns = &table.build.shards[self.device].columns;
        let buffer = |buffer: Option<&'a Buffer>| buffer.map_or(Arg::Null, Arg::Buffer);
        match part {
            JoinPart::Slots => Arg::Buffer(&shard.slots),
            JoinPart::Windows => Arg::U64(shard.windows),
            JoinPart::RowList => buffer(shard.row_list.as_ref()),
            JoinPart::PayloadWords => buffer(columns.get(1).and_then(|column| column.values.as_ref())),
            JoinPart::PayloadValues(column) => buffer(columns[1 + column].values.as_ref()),
            JoinPart::PayloadValidity(column) => buffer(columns[1 + column].validity.as_ref()),
        }
    }

    fn output(&self) -> Result<(&'a IntermediateShard, u64)> {
        match self.target {
            Target::Rows { shard, capacity } => Ok((shard, *capacity)),
            Target::Groups(_) => Err(Error::internal("rows written to a group table")),
        }
    }

    fn group_arg(&self, part: GroupPart) -> Result<Arg<'a>> {
        let Target::Groups(target) = self.target else {
            return Err(Error::internal("groups written to rows"));
        };
        Ok(match part {
            GroupPart::Rows => Arg::Buffer(&target.shard.rows),
            GroupPart::Capacity => Arg::U64(target.slots),
            GroupPart::Index => target.index.as_ref().map_or(Arg::Null, Arg::Buffer),
            GroupPart::IndexSlots => Arg::U64(target.index_slots),
            GroupPart::StepsMax => Arg::U64(target.steps_max),
            GroupPart::GrowSteps => Arg::U64(target.grow_steps),
            GroupPart::SpillRows => Arg::U64(target.spill_rows),
            GroupPart::Counters => Arg::Buffer(&target.counters),
            GroupPart::Cursors => Arg::Buffer(&target.cursors),
        })
    }
}
