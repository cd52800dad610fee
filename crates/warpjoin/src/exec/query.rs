//! One query under way: its streams, what it has found out, and what is still in use.

use std::collections::HashMap;
use std::sync::Arc;

use warpjoin_device::{Abort, Buffer, Stream};

use super::Inputs;
use super::compile::Compilation;
use super::execution::Execution;
use super::join::Joins;
use super::launch::UploadedColumn;
use super::metrics::QueryMetrics;
use super::partition::Deferred;
use super::rows::SharedRelations;
use super::sort::SortFlights;
use super::string_tests::TestResults;
use super::times::Times;
use crate::column::EncodedColumn;
use crate::devices::waits::Waits;
use crate::options::ExecOptions;
use crate::plan::Plan;
use crate::{Error, Result, Session, Table};

/// One query under way. Owns one stream a device. A single thread has it; sinks lend devices to threads of their own ([`Lane`]).
///
/// [`Lane`]: super::launch::Lane
///
/// Architecture invariant: everything that a stream still uses is kept until the query has waited
/// for all its streams, so that no buffer is freed under a running kernel of another device.
pub(crate) struct Query<'a> {
    /// The first field, so that the wait comes before any buffer goes.
    pub last_wait: Waits,
    pub session: &'a Arc<Session>,
    pub streams: Vec<Stream>,
    /// Ends kernels that run, when the query is cancelled.
    pub abort: Abort,
    /// The optimized plan.
    pub plan: &'a Plan,
    pub execution: &'a Execution<'a>,
    pub inputs: &'a Inputs,
    pub options: &'a ExecOptions,
    pub metrics: QueryMetrics,
    pub times: Times,
    pub compilation: Compilation,
    /// Rows and groups that a dry run expects of the next group-by.
    pub expected_groups: Option<(f64, f64)>,
    pub joins: Joins,
    /// Partitions that nobody has looked at yet.
    pub deferred: Vec<Deferred>,
    /// Host-made columns on the devices, by device and address; each is kept, so that no other gets its address.
    pub uploads: HashMap<(usize, usize), (Arc<EncodedColumn>, Arc<UploadedColumn>)>,
    /// What was tested of dictionaries.
    pub tests: TestResults,
    /// Sorts that nobody has looked at yet.
    pub sorts: Vec<SortFlights>,
    /// Buffers that nobody needs any more.
    pub kept: Vec<Buffer>,
    /// Rows that several plans read, those that are made while the query runs among them.
    pub shared: SharedRelations,
}

impl<'a> Query<'a> {
    pub(crate) fn new(
        session: &'a Arc<Session>,
        inputs: &'a Inputs,
        options: &'a ExecOptions,
        plan: &'a Plan,
        execution: &'a Execution<'a>,
    ) -> Result<Self> {
        let streams = session.device_set().query_streams(options.memory_budget_bytes)?;
        Ok(Self {
            last_wait: Waits::of(&streams),
            session,
            streams,
            abort: Abort::new(&options.cancel),
            plan,
            execution,
            inputs,
            options,
            metrics: QueryMetrics::default(),
            times: Times::default(),
            compilation: Compilation::new(session.device_set()),
            expected_groups: None,
            joins: Joins::default(),
            deferred: vec![],
            uploads: HashMap::new(),
            tests: TestResults::default(),
            sorts: vec![],
            kept: vec![],
            shared: SharedRelations::default(),
        })
    }

    pub(crate) fn devices(&self) -> usize {
        self.streams.len()
    }

    /// Waits for everything that was enqueued on any device, whatever fails; the first error.
    pub(crate) fn synchronize(&self) -> Result<()> {
        Waits::of(&self.streams).end()
    }

    /// Waits for all devices when it goes. Declared behind buffers that other devices use, it goes
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
