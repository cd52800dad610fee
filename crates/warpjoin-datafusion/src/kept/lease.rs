//! A kept plan, and how several queries run it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{Result, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use warpjoin_device::sync::{self, Mutex};

use super::parameter::Parameters;
use super::{Files, TableId};
use crate::pass_through::{PassThroughExec, Role};

/// Maximum instances of a plan that cannot be copied: the number of queries that can run it concurrently without
/// planning.
const INSTANCES_MAX: usize = 64;

/// A kept plan, and the values of its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    pub(crate) plan: Arc<KeptPlan>,
    pub(crate) values: Arc<[ScalarValue]>,
}

impl Bound {
    /// A plan without parameters.
    pub(crate) fn of(plan: Arc<KeptPlan>) -> Self {
        Self { plan, values: Arc::new([]) }
    }
}

/// A plan that queries run again.
#[derive(Debug)]
pub(crate) struct KeptPlan {
    tables: Vec<TableId>,
    files: Files,
    instances: Instances,
}

/// How a query gets its own instance of a plan.
enum Instances {
    /// As a copy.
    Copies(Arc<dyn ExecutionPlan>),
    /// As one of the idle ones. Expressions of such a plan share parameters and results of scalar subqueries, so a copy would share
    /// them too.
    Idle(Mutex<Pool>),
}

/// Instances of a plan.
#[derive(Default)]
struct Pool {
    idle: Vec<Instance>,
    /// Number of instances, idle or not.
    made: usize,
}

/// An instance that runs one query at a time.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    /// The plan that runs, with the values of its parameters.
    plan: Arc<dyn ExecutionPlan>,
    /// The plan with parameters, if there are any.
    parameterized: Option<(Arc<dyn ExecutionPlan>, Arc<Parameters>)>,
}

impl Instance {
    /// A plan without parameters.
    pub(crate) fn of(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self { plan, parameterized: None }
    }

    /// A plan with parameters whose values are set; `bound` is the plan with these values.
    pub(crate) fn of_parameters(
        plan: Arc<dyn ExecutionPlan>,
        parameters: Arc<Parameters>,
        bound: Arc<dyn ExecutionPlan>,
    ) -> Self {
        Self { plan: bound, parameterized: Some((plan, parameters)) }
    }
}

impl KeptPlan {
    /// Keeps a plan whose nodes copy all their state when they are reset.
    pub(crate) fn of_copies(plan: &Arc<dyn ExecutionPlan>, tables: Vec<TableId>, files: Files) -> Arc<Self> {
        Arc::new(Self { tables, files, instances: Instances::Copies(Arc::clone(plan)) })
    }

    /// Keeps a plan whose instances run one query at a time. It has no instances yet.
    pub(crate) fn of_instances(tables: Vec<TableId>, files: Files) -> Arc<Self> {
        Arc::new(Self { tables, files, instances: Instances::Idle(Mutex::default()) })
    }

    /// The tables that it reads.
    pub(crate) fn tables(&self) -> &[TableId] {
        &self.tables
    }

    /// Its dependencies if it reads files.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Whether another plan of the same query reads the same files and columns.
    pub(crate) fn reads_same(&self, other: &Self) -> bool {
        self.files.are(&other.files)
    }

    /// An instance for one query with these values; `None` if other queries use all instances. `fresh` copies a plan
    /// without the state of a run, `bound` sets the values of its parameters.
    ///
    /// # Errors
    /// Those of `fresh` and `bound`.
    pub(crate) fn instance(
        self: &Arc<Self>,
        values: &[ScalarValue],
        fresh: impl Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
        bound: impl Fn(&Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        match &self.instances {
            Instances::Copies(plan) => fresh(Arc::clone(plan)).map(Some),
            Instances::Idle(idle) => {
                let idle = sync::locked(idle).idle.pop();
                idle.map(|Instance { mut plan, parameterized }| {
                    if let Some((of_all, parameters)) = &parameterized
                        && parameters.set(values)
                    {
                        plan = bound(of_all)?;
                    }
                    self.lend(Instance { plan, parameterized }, fresh)
                })
                .transpose()
            }
        }
    }

    /// Whether there is room for another instance.
    pub(crate) fn has_room(&self) -> bool {
        matches!(&self.instances, Instances::Idle(pool) if sync::locked(pool).made < INSTANCES_MAX)
    }

    /// Adds an instance for later queries.
    pub(crate) fn add(&self, instance: Instance) {
        if let Instances::Idle(pool) = &self.instances {
            let mut pool = sync::locked(pool);
            pool.made += 1;
            pool.idle.push(instance);
        }
    }

    /// Adds an instance, and lends it to a query.
    ///
    /// # Errors
    /// Those of `fresh`.
    pub(crate) fn add_lent(
        self: &Arc<Self>,
        instance: Instance,
        fresh: impl Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Instances::Idle(pool) = &self.instances {
            let mut pool = sync::locked(pool);
            if pool.made == INSTANCES_MAX {
                return Ok(instance.plan);
            }
            pool.made += 1;
        }
        self.lend(instance, fresh)
    }

    /// Lends an instance, which is returned when the query has ended. The query runs a fresh copy, so that its state is
    /// dropped with it.
    fn lend(
        self: &Arc<Self>,
        instance: Instance,
        fresh: impl Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match &self.instances {
            // What is kept never runs itself: filters of its scans stay as they are.
            Instances::Copies(plan) => fresh(Arc::clone(plan)),
            Instances::Idle(_) => {
                let lent = Lent { home: Arc::clone(self), instance };
                let plan = fresh(Arc::clone(&lent.instance.plan))?;
                Ok(Arc::new(LeasedExec::new(plan, Lease(Arc::new(lent)))))
            }
        }
    }
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copies(plan) => write!(f, "Copies({})", plan.name()),
            Self::Idle(pool) => write!(f, "Idle({})", sync::locked(pool).idle.len()),
        }
    }
}

/// The root of an instance that is reserved for one query until it has ended.
pub(crate) type LeasedExec = PassThroughExec<Lease>;

/// Holds an instance for the plan's root and for its running streams.
#[derive(Debug, Clone)]
pub(crate) struct Lease(Arc<Lent>);

impl Lease {
    /// The kept plan to which the instance is returned.
    pub(crate) fn home(&self) -> &Arc<KeptPlan> {
        &self.0.home
    }
}

#[derive(Debug)]
struct Lent {
    home: Arc<KeptPlan>,
    instance: Instance,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Instances::Idle(pool) = &self.home.instances {
            sync::locked(pool).idle.push(self.instance.clone());
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
