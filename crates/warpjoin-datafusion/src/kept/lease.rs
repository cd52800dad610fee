//! A kept plan, and how several queries run it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use warpjoin_device::sync::{self, Mutex};

use super::TableId;
use crate::pass_through::{PassThroughExec, Role};

/// Most idle instances of a plan whose instances cannot be copied.
const IDLE_MAX: usize = 16;

/// A plan that queries run again.
#[derive(Debug)]
pub(crate) struct KeptPlan {
    tables: Vec<TableId>,
    instances: Instances,
}

/// How a query gets its own instance of a plan.
enum Instances {
    /// As a copy.
    Copies(Arc<dyn ExecutionPlan>),
    /// As one of the idle ones. Expressions of such a plan share the results of scalar subqueries, so a copy would share them too.
    Idle(Mutex<Vec<Arc<dyn ExecutionPlan>>>),
}

impl KeptPlan {
    /// Keeps a plan whose nodes copy all their state when they are reset.
    pub(crate) fn of_copies(plan: &Arc<dyn ExecutionPlan>, tables: Vec<TableId>) -> Arc<Self> {
        Arc::new(Self { tables, instances: Instances::Copies(Arc::clone(plan)) })
    }

    /// Keeps a plan whose instances run one query at a time. None is there yet: see [`Self::lend`].
    pub(crate) fn of_instances(tables: Vec<TableId>) -> Arc<Self> {
        Arc::new(Self { tables, instances: Instances::Idle(Mutex::default()) })
    }

    /// The tables that it reads.
    pub(crate) fn tables(&self) -> &[TableId] {
        &self.tables
    }

    /// An instance for one query; `None` if other queries run all of them. `fresh` copies a plan without the state of a run.
    ///
    /// # Errors
    /// Those of `fresh`.
    pub(crate) fn instance(
        self: &Arc<Self>,
        fresh: impl Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        match &self.instances {
            Instances::Copies(plan) => fresh(Arc::clone(plan)).map(Some),
            Instances::Idle(idle) => {
                let idle = sync::locked(idle).pop();
                idle.map(|plan| Ok(self.lend(&fresh(plan)?))).transpose()
            }
        }
    }

    /// An instance that comes back when the query that runs it has ended. A plan that is copied needs no way back.
    pub(crate) fn lend(self: &Arc<Self>, plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        match &self.instances {
            Instances::Copies(_) => Arc::clone(plan),
            Instances::Idle(_) => {
                let lent = Arc::new(Lent { home: Arc::clone(self), plan: Arc::clone(plan) });
                Arc::new(LeasedExec::new(Arc::clone(plan), Lease(lent)))
            }
        }
    }
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copies(plan) => write!(f, "Copies({})", plan.name()),
            Self::Idle(idle) => write!(f, "Idle({})", sync::locked(idle).len()),
        }
    }
}

/// The root of an instance that nobody else may run until the query has ended.
pub(crate) type LeasedExec = PassThroughExec<Lease>;

/// Holds an instance for the plan's root and for its running streams.
#[derive(Debug, Clone)]
pub(crate) struct Lease(Arc<Lent>);

impl Lease {
    /// The kept plan that the instance comes back to.
    pub(crate) fn home(&self) -> &Arc<KeptPlan> {
        &self.0.home
    }
}

#[derive(Debug)]
struct Lent {
    home: Arc<KeptPlan>,
    plan: Arc<dyn ExecutionPlan>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Instances::Idle(idle) = &self.home.instances {
            let mut idle = sync::locked(idle);
            if idle.len() < IDLE_MAX {
                idle.push(Arc::clone(&self.plan));
            }
        }
    }
}

impl Role for Lease {
    const NAME: &'static str = "WarpjoinKept";

    fn label(&self) -> String {
        "one query at a time".to_string()
    }

    fn fresh(&self) -> Self {
        self.clone()
    }

    fn execute(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batches = input.execute(partition, context)?;
        let (schema, lease) = (batches.schema(), self.clone());
        // The stream holds the lease until it is dropped.
        let batches = batches.inspect(move |_| {
            let _ = &lease;
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}
