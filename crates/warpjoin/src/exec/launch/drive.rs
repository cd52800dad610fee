//! Drives the devices of a pipeline through its sink: one thread for all of them, or a thread each.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use warpjoin_codegen::{Binding, GeneratedPipeline};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{DeviceKind, span};
use warpjoin_kernels::common::status;
use warpjoin_plan::options::DeviceThreads;

use super::lane::{Job, Lane, Work};
use super::sink::{DeviceSink, Pushed};
use crate::Cause;
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::{Flight, Query, Report, check_status};
use crate::exec::relation::Relation;

/// Maximum tries until an output has enough room.
const TRIES_MAX: u64 = 24;
/// Maximum launches of a chunk: a growing table gets eight times larger between two launches.
const LAUNCHES_MAX: u64 = 4096;

/// Result of a pipeline on one device.
enum Outcome<S: DeviceSink> {
    Filled(S::Filled),
    /// The output was full: the device tries again.
    Full(S::Filling),
    /// The data has an error: its status bits are in the report.
    Raised,
}

/// State of a device that processes the chunks of a pipeline.
struct Driving<'q, S: DeviceSink> {
    lane: Lane<'q>,
    job: &'q Job<'q>,
    sink: &'q S,
    filling: S::Filling,
    /// Chunks of the current launch, and how often they were launched.
    pushed: Range<u64>,
    launches: u64,
    flight: Flight,
    /// Report of all launches.
    report: Report,
}

/// A device that has processed all chunks, or stopped.
struct Driven<S: DeviceSink> {
    device: usize,
    outcome: Outcome<S>,
    report: Report,
    work: Work,
}

impl<'q, S: DeviceSink> Driving<'q, S> {
    /// Opens the sink on a device, and enqueues the first launch.
    fn begin(mut lane: Lane<'q>, job: &'q Job<'q>, sink: &'q S) -> Result<Self> {
        let filling = sink.open(&mut lane)?;
        let pushed = Self::chunks_from(0, &lane, job, sink);
        let flight = lane.enqueue(job, &sink.target(&filling), pushed.clone())?;
        Ok(Self { lane, job, sink, filling, pushed, launches: 1, flight, report: Report::default() })
    }

    /// The chunks of the launch that begins with chunk `first`.
    fn chunks_from(first: u64, lane: &Lane<'_>, job: &Job<'_>, sink: &S) -> Range<u64> {
        let all = job.chunks(lane.device);
        first..if sink.takes_one_chunk() { (first + 1).min(all) } else { all }
    }

    /// Waits for the launch, and enqueues the next one; breaks at the end.
    fn advance(mut self) -> Result<ControlFlow<Driven<S>, Self>> {
        let report = self.lane.wait(&self.flight)?;
        self.report.add(&report);
        if report.status & status::ERRORS != 0 {
            return Ok(ControlFlow::Break(self.end(|_| Outcome::Raised)));
        }
        let (all, is_last) = (self.job.chunks(self.lane.device), self.pushed.end == self.job.chunks(self.lane.device));
        match self.sink.pushed(&mut self.lane, &mut self.filling, &report, is_last)? {
            Pushed::Full => return Ok(ControlFlow::Break(self.end(Outcome::Full))),
            Pushed::Resume if self.launches == LAUNCHES_MAX => {
                return Err(Error::kernel_bound(format!("{} exceeded {LAUNCHES_MAX} relaunches", self.sink.name())));
            }
            Pushed::Resume => self.launches += 1,
            Pushed::Done if is_last => {
                let filled = self.sink.finish(&mut self.lane, self.filling, &self.report)?;
                let (device, work) = (self.lane.device, std::mem::take(&mut self.lane.work));
                return Ok(ControlFlow::Break(Driven {
                    device,
                    outcome: Outcome::Filled(filled),
                    report: self.report,
                    work,
                }));
            }
            Pushed::Done => {
                debug_assert!(self.pushed.end < all);
                self.pushed = Self::chunks_from(self.pushed.end, &self.lane, self.job, self.sink);
                self.launches = 1;
            }
        }
        self.lane.options.check_cancelled()?;
        self.flight = self.lane.enqueue(self.job, &self.sink.target(&self.filling), self.pushed.clone())?;
        Ok(ControlFlow::Continue(self))
    }

    fn end(mut self, outcome: impl FnOnce(S::Filling) -> Outcome<S>) -> Driven<S> {
        let (device, work, report) = (self.lane.device, std::mem::take(&mut self.lane.work), self.report);
        Driven { device, outcome: outcome(self.filling), report, work }
    }

    /// Drives one device to its end.
    fn run(lane: Lane<'q>, job: &'q Job<'q>, sink: &'q S) -> Result<Driven<S>> {
        let mut driving = Self::begin(lane, job, sink)?;
        loop {
            match driving.advance()? {
                ControlFlow::Continue(next) => driving = next,
                ControlFlow::Break(driven) => return Ok(driven),
            }
        }
    }
}

impl Query<'_> {
    /// Runs `relation` into a sink on every device. Arithmetic errors are returned. Only devices whose output was full
    /// try again.
    pub(in crate::exec) fn run_sink<S: DeviceSink>(
        &mut self,
        relation: &Relation,
        generated: &Arc<GeneratedPipeline>,
        mut sink: S,
    ) -> Result<S::Output> {
        let _span = span(|| format!("sink {}", sink.name()));
        let mut relation = relation.clone();
        let mut generated = Arc::clone(generated);
        let devices = self.devices();
        let mut filled: Vec<Option<S::Filled>> = (0..devices).map(|_| None).collect();
        let (mut reports, mut kernel_ns) = (vec![Report::default(); devices], vec![0; devices]);
        if devices > 1 {
            for device in (0..devices).filter(|&device| relation.source.shard_rows(device) == 0) {
                filled[device] = sink.nothing(&mut self.lane(device))?;
            }
        }
        for tries in 0..TRIES_MAX {
            self.options.check_cancelled()?;
            let kernels = self.compile_pipeline(&relation, &generated)?;
            let mut job = self.job(&relation, &generated, &kernels)?;
            job.chunk_rows = job.chunk_rows.filter(|_| sink.takes_chunks());
            let left: Vec<usize> = (0..devices).filter(|&device| filled[device].is_none()).collect();
            let driven = self.drive(&job, &sink, &left);
            let columns = Arc::clone(&job.columns);
            drop(job);
            let driven = match driven {
                // Columns that this pipeline reads have left the device to make room, which they are free to do now.
                Err(error) if error.cause() == Cause::OutOfMemory && columns.have_moved(&relation) => {
                    self.synchronize()?;
                    continue;
                }
                driven => driven?,
            };
            let (mut raised, mut full) = (0, vec![]);
            for Driven { device, outcome, report, work } in driven {
                kernel_ns[device] += work.kernel_ns;
                self.take_work(device, work);
                reports[device] = report;
                raised |= report.status & status::ERRORS;
                match outcome {
                    Outcome::Filled(made) => filled[device] = Some(made),
                    Outcome::Full(filling) => full.push((device, filling)),
                    Outcome::Raised => {}
                }
            }
            if left.len() < devices && !self.pending.is_empty() {
                // Other devices are not waited for otherwise.
                self.synchronize()?;
            }
            self.settle()?;
            check_status(raised)?;
            if full.is_empty() {
                self.note_pipeline(&relation, &generated, &sink.name(), &reports, &kernel_ns, tries);
                return Ok(sink.combine(filled.into_iter().flatten().collect()));
            }
            for (device, filling) in full {
                sink.make_room(device, filling, &reports[device]);
            }
            if let Some(other) = sink.other_pipeline(self, &mut relation)? {
                generated = other;
            }
        }
        Err(Error::kernel_bound(format!("{}: output still too small after {TRIES_MAX} tries", sink.name())))
    }

    /// Drives devices to their ends.
    fn drive<S: DeviceSink>(&self, job: &Job<'_>, sink: &S, devices: &[usize]) -> Result<Vec<Driven<S>>> {
        if self.has_thread_each() && devices.len() > 1 {
            return self.on_threads(devices, |lane| Driving::run(lane, job, sink));
        }
        let seed = match self.options.device_threads {
            DeviceThreads::One(seed) => seed,
            DeviceThreads::Auto | DeviceThreads::Each => 0,
        };
        self.drive_in_turn(job, sink, devices, seed)
    }

    pub(super) fn has_thread_each(&self) -> bool {
        match self.options.device_threads {
            DeviceThreads::Auto => self.session.device_set().kind() == DeviceKind::Cuda,
            DeviceThreads::One(_) => false,
            DeviceThreads::Each => true,
        }
    }

    /// Runs `work` for some devices in parallel, each on its own thread.
    fn on_threads<'q, T: Send>(
        &'q self,
        devices: &[usize],
        work: impl Fn(Lane<'q>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        // The threads are shared with other queries, so they must not wait for a permit.
        let _permit = self.permits.keep()?;
        let _span = span(|| "devices");
        let work = &work;
        let of_device = |&device: &usize| {
            let lane = self.lane(device);
            move || {
                let _span = span(|| format!("device {device}"));
                work(lane)
            }
        };
        let works = devices.iter().map(of_device).collect();
        self.session.device_set().run_on_threads(works).into_iter().collect()
    }

    /// Runs `work`, which waits for its device, for each device; in parallel if each device has a thread. Returns the
    /// results in device order.
    pub(in crate::exec) fn on_each<T: Send>(
        &mut self,
        work: impl Fn(&mut Lane<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let all: Vec<usize> = (0..self.devices()).collect();
        let done = |mut lane: Lane<'_>| {
            let outcome = work(&mut lane)?;
            Ok((outcome, std::mem::take(&mut lane.work)))
        };
        let outcomes = match self.has_thread_each() && all.len() > 1 {
            true => self.on_threads(&all, done)?,
            false => all.iter().map(|&device| done(self.lane(device))).collect::<Result<_>>()?,
        };
        let mut all = vec![];
        for (device, (outcome, work)) in outcomes.into_iter().enumerate() {
            self.take_work(device, work);
            all.push(outcome);
        }
        Ok(all)
    }

    /// One thread drives all devices, in an order drawn from a seed; the order of devices for seed 0.
    fn drive_in_turn<S: DeviceSink>(
        &self,
        job: &Job<'_>,
        sink: &S,
        devices: &[usize],
        seed: u64,
    ) -> Result<Vec<Driven<S>>> {
        let mut seed = seed;
        let mut waiting = vec![];
        for device in in_seeded_order(devices.to_vec(), &mut seed) {
            waiting.push(Driving::begin(self.lane(device), job, sink)?);
        }
        let mut ended = vec![];
        while !waiting.is_empty() {
            let mut next = vec![];
            for driving in in_seeded_order(std::mem::take(&mut waiting), &mut seed) {
                match driving.advance()? {
                    ControlFlow::Continue(driving) => next.push(driving),
                    ControlFlow::Break(driven) => ended.push(driven),
                }
            }
            waiting = next;
        }
        Ok(ended)
    }

    /// Adds the work done on a device to the query's metrics.
    pub(in crate::exec) fn take_work(&mut self, device: usize, work: Work) {
        let Work { launches, kernel_ns, compile_ns, host_read_bytes, spilled_bytes } = work;
        self.metrics.launches += launches;
        self.metrics.compile_ns += compile_ns;
        self.metrics.host_read_bytes += host_read_bytes;
        self.metrics.spilled_bytes += spilled_bytes;
        self.times.add_kernel(device, kernel_ns);
    }

    fn note_pipeline(
        &mut self,
        relation: &Relation,
        generated: &GeneratedPipeline,
        sink_name: &str,
        reports: &[Report],
        kernel_ns: &[u64],
        retries: u64,
    ) {
        let rows_in = (0..reports.len()).map(|device| relation.source.shard_rows(device)).sum();
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("{} -> {sink_name}", relation.describe()),
            rows_in,
            rows_out: reports.iter().map(|report| report.rows).sum(),
            read_bytes: rows_in * read_row_bytes(relation, generated),
            kernel_ns: kernel_ns.iter().copied().max().unwrap_or(0),
            probes: reports.iter().map(|report| report.probes).sum(),
            pruned: reports.iter().map(|report| report.pruned).sum(),
            retries,
        });
    }
}

/// Bytes of a source row that a pipeline reads.
fn read_row_bytes(relation: &Relation, generated: &GeneratedPipeline) -> u64 {
    let bytes_of = |binding: &Binding| match binding {
        Binding::SourceValues(column) => relation.source.width_bytes(*column),
        Binding::SourceGroups => relation.source.width_bytes(0),
        _ => 0,
    };
    generated.bindings.iter().map(bytes_of).sum()
}

/// Items in an order drawn from a seed, which is advanced; in their given order for seed 0.
fn in_seeded_order<T>(mut items: Vec<T>, seed: &mut u64) -> Vec<T> {
    if *seed != 0 {
        for end in (1..items.len()).rev() {
            // xorshift: never 0 once it is not.
            *seed ^= *seed << 13;
            *seed ^= *seed >> 7;
            *seed ^= *seed << 17;
            items.swap(end, (*seed % (end as u64 + 1)) as usize);
        }
    }
    items
}
