//! One device's part of a query, which its own thread may drive.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use warpjoin_codegen::GeneratedPipeline;
use warpjoin_columns::Result;
use warpjoin_device::{Buffer, CancelWord, Event, Kernel, Launch, ModuleSource, Stream, span};
use warpjoin_kernels::KernelParams;
use warpjoin_kernels::common::control;
use warpjoin_plan::options::ExecOptions;

use super::binder::Binder;
use super::interpreted::Interpreted;
use super::shape::{launch_shape, resident_shape, slice_bits};
use super::staging::{HostPart, Staging, bits_of, parts_on_host, staged_rows};
use super::target::Target;
use super::tier::PipelineKernels;
use crate::Session;
use crate::exec::query::{Flight, Query, Report, read_report};
use crate::exec::relation::{Relation, TableColumns};
use crate::runtime::lookup_copies::UploadedColumn;

/// Chunks start at multiples of this many rows, so that values and validity bits stay aligned.
const CHUNK_ROWS_UNIT: u64 = 128;

/// A pipeline that runs on all devices.
pub(in crate::exec) struct Job<'q> {
    pub relation: &'q Relation,
    pub generated: &'q GeneratedPipeline,
    pub kernels: &'q PipelineKernels,
    /// Columns of tables, kept where they lie now.
    pub columns: Arc<TableColumns>,
    /// Host-resident columns that the kernel reads, for each device.
    pub(super) on_host: Vec<Vec<HostPart>>,
    /// Columns that are read by code, for each device.
    pub lookups: Vec<Vec<Arc<UploadedColumn>>>,
    /// Rows of a chunk; `None`: all.
    pub chunk_rows: Option<u64>,
    /// Identifies the job's chunks on a device; jobs may share chunks.
    pub(super) chunks_of: usize,
}

/// One device's part of a query.
pub(in crate::exec) struct Lane<'q> {
    pub device: usize,
    pub stream: Stream,
    pub options: &'q ExecOptions,
    session: &'q Session,
    cancel: &'q CancelWord,
    pub work: Work,
    staging: Staging,
}

/// Work done on a device, for the metrics of the query.
#[derive(Default)]
pub(in crate::exec) struct Work {
    pub launches: u64,
    pub kernel_ns: u64,
    pub compile_ns: u64,
    /// Bytes of host memory that kernels read, in place or after a copy to the device.
    pub host_read_bytes: u64,
    /// Bytes of rows that were written to the host's memory.
    pub spilled_bytes: u64,
}

impl<'q> Query<'q> {
    pub(in crate::exec) fn lane(&self, device: usize) -> Lane<'_> {
        Lane {
            device,
            stream: self.streams[device].clone(),
            options: self.options,
            session: self.session,
            cancel: &self.cancel_words[device],
            work: Work::default(),
            staging: Staging::new(),
        }
    }

    /// The job of a pipeline, with the columns that it reads by code.
    pub(in crate::exec) fn job<'j>(
        &mut self,
        relation: &'j Relation,
        generated: &'j GeneratedPipeline,
        kernels: &'j PipelineKernels,
    ) -> Result<Job<'j>> {
        let _span = span(|| "job");
        let lookups = self.look_up_all(generated)?;
        let columns = Arc::new(TableColumns::of(relation, self.devices()));
        let parts = |device| parts_on_host(relation, &columns, generated, device);
        let on_host: Vec<_> = (0..self.devices()).map(parts).collect();
        let chunk_rows = self.chunk_rows(relation, &on_host);
        let chunks_of = std::ptr::from_ref(generated).addr();
        Ok(Job { relation, generated, kernels, columns, on_host, lookups, chunk_rows, chunks_of })
    }

    /// Rows of a chunk of the relation; `None`: all.
    fn chunk_rows(&self, relation: &Relation, on_host: &[Vec<HostPart>]) -> Option<u64> {
        let rows = self.options.chunk_rows.or_else(|| staged_rows(relation, on_host, &self.streams));
        rows.filter(|_| relation.source.comes_in_chunks()).map(|rows| rows.max(1).next_multiple_of(CHUNK_ROWS_UNIT))
    }
}

impl Job<'_> {
    /// Limits chunks to `rows` rows, if the source comes in chunks.
    pub(in crate::exec) fn cut(&mut self, rows: u64) {
        if self.relation.source.comes_in_chunks() {
            let rows = rows.clamp(CHUNK_ROWS_UNIT, u64::MAX / 2).next_multiple_of(CHUNK_ROWS_UNIT);
            self.chunk_rows = Some(self.chunk_rows.map_or(rows, |chunk_rows| chunk_rows.min(rows)));
        }
    }

    /// Shares the chunks of another job over the same rows, which reads all columns that this one reads.
    pub(in crate::exec) fn sharing_chunks_of(mut self, other: &Self) -> Self {
        (self.chunk_rows, self.chunks_of) = (other.chunk_rows, other.chunks_of);
        self.on_host.clone_from(&other.on_host);
        self
    }

    /// Number of chunks on a device. Each is one launch.
    pub(in crate::exec) fn chunks(&self, device: usize) -> u64 {
        let rows = self.relation.source.shard_rows(device);
        self.chunk_rows.map_or(1, |chunk_rows| rows.div_ceil(chunk_rows).max(1))
    }
}

impl Lane<'_> {
    /// Launches the kernel once for each chunk.
    pub(in crate::exec) fn enqueue(
        &mut self,
        job: &Job<'_>,
        target: &Target<'_>,
        chunks: Range<u64>,
    ) -> Result<Flight> {
        let Job { relation, generated, .. } = *job;
        let (device, stream) = (self.device, self.stream.clone());
        let lookups = job.lookups[device].clone();
        let control = stream.alloc_filled(control::BYTES, 0)?;
        let all_rows = relation.source.shard_rows(device);
        let bits = if let Target::Partition(partition) = target { partition.bits } else { 0 };
        let chunk_rows = job.chunk_rows.unwrap_or(u64::MAX);
        let slice_bits = slice_bits(stream.device().info(), all_rows, generated.grid);
        let kernel = &job.kernels.kernels[device];
        let interpreted =
            job.kernels.interpret.then(|| Interpreted::open(&stream, relation, generated, bits)).transpose()?;
        stream.wait_for_permit()?;
        let begin = stream.record()?;
        let behind = chunks.end;
        for chunk in chunks {
            let first = chunk.saturating_mul(chunk_rows).min(all_rows);
            let rows = chunk_rows.min(all_rows - first);
            let (control, cancel, lookups) = (&control, self.cancel, &lookups[..]);
            let staged = self.staging.chunk(&stream, device, job, chunk)?;
            if staged.is_none() {
                self.work.host_read_bytes += rows * bits_of(&job.on_host[device]) / 8;
            }
            let columns = &*job.columns;
            let binder =
                Binder { device, relation, columns, target, lookups, control, cancel, first, rows, slice_bits, staged };
            let args = generated.bindings.iter().map(|binding| binder.arg(binding)).collect::<Result<Vec<_>>>()?;
            let sliced_rows = rows << slice_bits;
            let launch = launch_shape(&stream, sliced_rows, generated, relation, bits);
            match &interpreted {
                Some(interpreted) => interpreted.launch(&stream, kernel, sliced_rows, launch, args)?,
                None => {
                    let launch = resident_shape(&stream, kernel, sliced_rows, generated.grid, launch)?;
                    self.stream.launch(kernel, launch, &args[..])?;
                }
            }
            self.work.launches += 1;
            self.staging.launched(&stream, job, chunk)?;
        }
        let end = stream.record()?;
        // The next chunk is copied while the host checks this one.
        if behind < job.chunks(device) {
            self.staging.copy(&stream, device, job, behind)?;
        }
        self.work.host_read_bytes += std::mem::take(&mut self.staging.bytes);
        let program = interpreted.map(Interpreted::into_words);
        Ok(Flight { control, lookups, columns: Arc::clone(&job.columns), program, events: (begin, end) })
    }

    /// Waits for a launch, and records its kernel time.
    pub(in crate::exec) fn wait(&mut self, flight: &Flight) -> Result<Report> {
        let report = read_report(&self.stream, &flight.control)?;
        self.note_kernel(&flight.events.0, &flight.events.1)?;
        Ok(report)
    }

    /// Enqueues a kernel of any parameters.
    pub(in crate::exec) fn launch<P>(&mut self, kernel: &Kernel, launch: Launch, params: &P) -> Result<()>
    where
        P: KernelParams<Buffer> + ?Sized,
    {
        self.stream.launch(kernel, launch, params)?;
        self.work.launches += 1;
        Ok(())
    }

    /// Adds the time between two events that have been waited for.
    pub(in crate::exec) fn note_kernel(&mut self, begin: &Event, end: &Event) -> Result<()> {
        self.work.kernel_ns += end.elapsed_ns(begin)?;
        Ok(())
    }

    /// The stream for work that outlives the query.
    pub(super) fn load_stream(&self) -> Stream {
        self.session.device_set().load_streams()[self.device].clone()
    }

    /// The word that kernels poll to end early.
    pub(in crate::exec) fn cancel_word(&self) -> &CancelWord {
        self.cancel
    }

    /// Compiles an entry of a module that the plan does not name, for this device.
    pub(in crate::exec) fn kernel(&mut self, module: &ModuleSource, entry: &str) -> Result<Kernel> {
        let started = Instant::now();
        let devices = &self.session.devices()[self.device..=self.device];
        let module = devices[0].module_of(module, entry);
        let kernel = devices[0].compile_unless(&module, Some(&self.options.cancel))?.kernel(entry)?;
        self.work.compile_ns += started.elapsed().as_nanos() as u64;
        Ok(kernel)
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.staging.end(&self.stream);
    }
}
