//! A running query: its streams, its state, and the resources still in use.

mod binding;
mod compile;
mod copy;
mod inputs;
mod pending;
mod report;
mod tested;
mod times;

use std::collections::HashMap;
use std::sync::Arc;

use warpjoin_codegen::LookupColumn;
use warpjoin_columns::devices::scheduler::LaunchPermits;
use warpjoin_columns::devices::waits::Waits;
use warpjoin_columns::{Error, Result, Table};
use warpjoin_device::{Buffer, CancelWord, Device, Kernel, Launch, Stream};
use warpjoin_kernels::KernelParams;
use warpjoin_plan::options::ExecOptions;

use super::metrics::QueryMetrics;
use super::relation::{Joins, SharedRelations};
use crate::Session;
use crate::runtime::lookup_copies::UploadedColumn;
pub(super) use binding::Execution;
use compile::Compilation;
pub use inputs::{Inputs, OptimizedPlan};
pub(super) use pending::{Flight, Pending, PendingDevice};
pub(super) use report::{Report, check_status, read_report};
pub(super) use tested::TestResults;
use times::Times;

/// A running query. Owns one stream for each device. It belongs to a single thread; sinks lend devices to other threads
/// ([`Lane`]).
///
/// [`Lane`]: super::launch::Lane
///
/// Architecture invariant: everything that a stream still uses is kept until the query has waited
/// for all its streams, so that no buffer is freed under a running kernel of another device.
pub(crate) struct Query<'a> {
    /// The first field, so that the wait on drop comes before any buffer is freed.
    pub last_wait: Waits,
    pub permits: Arc<LaunchPermits>,
    pub session: &'a Arc<Session>,
    pub streams: Vec<Stream>,
    /// One for each device. Kernels read them to end early when the query is cancelled.
    pub cancel_words: Arc<[CancelWord]>,
    pub inputs: &'a Inputs,
    pub options: &'a ExecOptions,
    pub metrics: QueryMetrics,
    pub times: Times,
    pub compilation: Compilation,
    pub joins: Joins,
    /// Enqueued work whose status has not been checked yet.
    pub pending: Vec<Pending>,
    /// Columns uploaded from the host, by device and address. Each is kept alive, so that its address stays unique.
    pub uploads: HashMap<(usize, usize), (Arc<LookupColumn>, Arc<UploadedColumn>)>,
    /// Results of tests on dictionaries.
    pub tests: TestResults,
    /// Buffers that are no longer needed, kept until the query ends.
    pub kept: Vec<Buffer>,
    /// Rows that several pipelines or plans read.
    pub shared: SharedRelations,
}

impl<'a> Query<'a> {
    pub(crate) fn new(session: &'a Arc<Session>, inputs: &'a Inputs, options: &'a ExecOptions) -> Result<Self> {
        let permits = session.device_set().scheduler().open(&options.cancel);
        let streams = session.device_set().query_streams(options.memory_budget(), &permits)?;
        Self::over(session, inputs, options, Arc::new(permits), streams)
    }

    /// A query over existing permits and streams.
    pub(super) fn over(
        session: &'a Arc<Session>,
        inputs: &'a Inputs,
        options: &'a ExecOptions,
        permits: Arc<LaunchPermits>,
        streams: Vec<Stream>,
    ) -> Result<Self> {
        let word = |device: &Device| device.cancel_word(&options.cancel);
        let cancel_words = session.devices().iter().map(word).collect::<Result<_, _>>()?;
        Ok(Self {
            last_wait: Waits::of(&streams),
            permits,
            session,
            streams,
            cancel_words,
            inputs,
            options,
            metrics: QueryMetrics::default(),
            times: Times::default(),
            compilation: Compilation::new(session.device_set()),
            joins: Joins::default(),
            pending: vec![],
            uploads: HashMap::new(),
            tests: TestResults::default(),
            kept: vec![],
            shared: SharedRelations::default(),
        })
    }

    /// Releases the launch permit before the query waits for something other than its kernels.
    pub(super) fn release_permit(&self) {
        self.permits.release();
    }

    pub(crate) fn devices(&self) -> usize {
        self.streams.len()
    }

    /// Enqueues a kernel on a device.
    pub(super) fn launch(
        &mut self,
        device: usize,
        kernel: &Kernel,
        launch: Launch,
        params: &impl KernelParams<Buffer>,
    ) -> Result<()> {
        self.streams[device].launch(kernel, launch, params)?;
        self.metrics.launches += 1;
        Ok(())
    }

    /// Waits for all enqueued work on all devices, even after failures; returns the first error.
    pub(crate) fn synchronize(&self) -> Result<()> {
        Waits::of(&self.streams).end()
    }

    /// Ends the query: waits for all work, whatever the outcome, and settles its cost.
    pub(super) fn end<T>(&mut self, outcome: Result<T>) -> Result<T> {
        // A result that stays on the devices has not recorded its end yet.
        let noted = self.note_result();
        // Nothing may still run when buffers go. A panic leaves that to the query's drop.
        let synchronized = self.last_wait.end();
        let result = outcome?;
        noted?;
        synchronized?;
        self.settle()?;
        self.settle_times()?;
        self.metrics.permit_wait_ns += self.permits.waited_ns();
        Ok(result)
    }

    /// A guard that waits for all devices when dropped. Declared after buffers that other devices use, it is dropped
    /// before them on every path.
    pub(crate) fn waits(&self) -> Waits {
        Waits::of(&self.streams)
    }

    pub(super) fn check_table(&self, table: &Table) -> Result<()> {
        if Arc::ptr_eq(table.devices(), self.session.device_set()) {
            Ok(())
        } else {
            Err(Error::InvalidArgument("the table belongs to another session: upload it to this one".into()))
        }
    }
}
