//! An active query, and its parts on the devices.
//!
//! A query is what runs in one [`TaskContext`]. Must not know what its parts do.
//!
//! ```text
//!  a part is made        it is polled          permit           rows, error or drop of the last part
//!  ------------> not yet ------------> waiting -----> running -------------------> not listed
//!                                         |              | fallback                    | another part is made
//!                                         '--------------'--------> cpu                v
//!                                                                               as before, same id and start
//!  from each state: KILL, or the time is over -----> cancelled
//! ```

use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use futures::future::{Either, select};
use futures::{StreamExt, stream};
use tokio::sync::watch;
use warpjoin::Cancellation;
use warpjoin_device::sync::{Mutex, locked};

use crate::config::{QueryTimeout, WarpjoinOptions};
use crate::runtime::admission::PermitOfQuery;
use crate::runtime::ended::QueryEnded;
use crate::runtime::query_info::{QueryInfo, QueryState};

/// The text of a query: an extension of its context's configuration.
#[derive(Debug, Default)]
pub(crate) struct QueryText(OnceLock<String>);

impl QueryText {
    /// Sets the text, unless it is known.
    pub(crate) fn set(&self, text: &str) {
        self.0.get_or_init(|| text.to_string());
    }
}

/// An active query.
pub(crate) struct ActiveQuery {
    id: u64,
    /// Weak, because a context may keep tables. The weak reference keeps the address unique.
    context: Weak<TaskContext>,
    text: Option<Arc<QueryText>>,
    timeout: Option<Duration>,
    permit: PermitOfQuery,
    ended: watch::Sender<Option<QueryEnded>>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Number of existing parts.
    parts: usize,
    /// When the first part was polled.
    started: Option<Instant>,
    /// The task that ends the query when its time is over; only while there are parts.
    timer: Option<SpawnedTask<()>>,
    /// Cancellations of its device work.
    cancellations: Vec<Weak<Cancellation>>,
    /// The nodes of its first part; only while there are parts, as nodes may keep tables.
    root: Option<Arc<dyn ExecutionPlan>>,
}

impl ActiveQuery {
    pub(super) fn new(id: u64, context: &Arc<TaskContext>) -> Arc<Self> {
        let config = context.session_config();
        let options = config.options().extensions.get::<WarpjoinOptions>();
        Arc::new(Self {
            id,
            context: Arc::downgrade(context),
            text: config.get_extension::<QueryText>(),
            timeout: options.and_then(|options| QueryTimeout::new(options.query_timeout).time()),
            permit: PermitOfQuery::default(),
            ended: watch::Sender::new(None),
            progress: Mutex::default(),
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whether it has parts, or may get more.
    pub(super) fn is_under_way(&self) -> bool {
        self.context.strong_count() > 0 || locked(&self.progress).parts > 0
    }

    /// Ends it: its parts fail with the first reason.
    pub(super) fn end(&self, why: QueryEnded) {
        let is_first = self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(why);
            is_first
        });
        if is_first {
            let cancellations = std::mem::take(&mut locked(&self.progress).cancellations);
            cancellations.iter().filter_map(Weak::upgrade).for_each(|work| work.cancel());
        }
    }

    /// Information about the query; `None` if no part of it runs.
    pub(super) fn info(&self) -> Option<QueryInfo> {
        let (started, root) = {
            let progress = locked(&self.progress);
            if progress.parts == 0 {
                return None;
            }
            (progress.started?, progress.root.clone())
        };
        let state = match self.permit.is_acquired() {
            _ if self.why_ended().is_some() => QueryState::Cancelled,
            Some(true) => QueryState::Running,
            Some(false) => QueryState::Waiting,
            None => QueryState::Cpu,
        };
        let text = self.text.as_ref().and_then(|text| text.0.get().cloned());
        let of_plan = || root.map_or_else(String::new, |root| displayable(root.as_ref()).one_line().to_string());
        let text = text.unwrap_or_else(of_plan).trim().to_string();
        Some(QueryInfo::new(self.id, state, started.elapsed(), text))
    }

    fn why_ended(&self) -> Option<QueryEnded> {
        self.ended.borrow().clone()
    }

    /// A task that ends the query when its time is over. `sleep` needs the timer of a tokio runtime, and panics without
    /// one.
    fn timer(self: &Arc<Self>, started: Instant, limit: Duration) -> SpawnedTask<()> {
        let sleep = tokio::time::sleep(limit.saturating_sub(started.elapsed()));
        let query = Arc::downgrade(self);
        SpawnedTask::spawn(async move {
            sleep.await;
            if let Some(query) = query.upgrade() {
                query.end(QueryEnded::TimedOut { limit });
            }
        })
    }
}

/// A part of a query that runs on the devices, or on the CPU after a fallback.
pub(crate) struct QueryPart {
    query: Arc<ActiveQuery>,
}

impl QueryPart {
    /// A part of a query, with the nodes that it replaces.
    pub(super) fn new(query: Arc<ActiveQuery>, root: &Arc<dyn ExecutionPlan>) -> Arc<Self> {
        let mut progress = locked(&query.progress);
        progress.parts += 1;
        progress.root.get_or_insert_with(|| Arc::clone(root));
        drop(progress);
        Arc::new(Self { query })
    }

    /// A part of a query that is not listed by a runtime.
    pub(crate) fn alone(context: &Arc<TaskContext>, root: &Arc<dyn ExecutionPlan>) -> Arc<Self> {
        Self::new(ActiveQuery::new(0, context), root)
    }

    /// Marks the part as running. This starts the time of its query, unless another part has started it.
    pub(crate) fn start(&self) {
        let mut progress = locked(&self.query.progress);
        let started = *progress.started.get_or_insert_with(Instant::now);
        if progress.timer.is_none()
            && let Some(limit) = self.query.timeout
        {
            progress.timer = Some(self.query.timer(started, limit));
        }
    }

    /// The permit of the query.
    pub(crate) fn permit(&self) -> &PermitOfQuery {
        &self.query.permit
    }

    /// Why the query was ended, if it was.
    pub(crate) fn why_ended(&self) -> Option<QueryEnded> {
        self.query.why_ended()
    }

    /// Cancels `work` when the query is ended, even if the part is not polled.
    pub(crate) fn cancels(&self, work: &Arc<Cancellation>) {
        let mut progress = locked(&self.query.progress);
        progress.cancellations.retain(|other| other.strong_count() > 0);
        progress.cancellations.push(Arc::downgrade(work));
        drop(progress);
        // The query may have been ended before the lock was taken.
        if self.why_ended().is_some() {
            work.cancel();
        }
    }

    /// The result of `work`; if the query is ended first, `work` is dropped.
    pub(crate) async fn unless_ended<T>(&self, work: impl Future<Output = T>) -> Result<T, QueryEnded> {
        let mut receiver = self.query.ended.subscribe();
        let ended = pin!(async move {
            loop {
                if let Some(why) = receiver.borrow_and_update().clone() {
                    return why;
                }
                // The sender is in the query, so it is there.
                if receiver.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        });
        match select(ended, pin!(work)).await {
            Either::Left((why, _)) => Err(why),
            Either::Right((done, _)) => Ok(done),
        }
    }

    /// The batches, or an error once the query is ended.
    pub(crate) fn until_ended(self: Arc<Self>, batches: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = batches.schema();
        let batches = stream::unfold(Some((batches, self)), async |rest| {
            let (mut batches, part) = rest?;
            let ended = match part.unless_ended(batches.next()).await {
                Ok(None) => return None,
                Ok(Some(Ok(batch))) => return Some((Ok(batch), Some((batches, part)))),
                // The error may be of work that was cancelled because the query was ended.
                Ok(Some(Err(error))) => part.why_ended().map_or(error, Into::into),
                Err(ended) => ended.into(),
            };
            Some((Err(ended), None))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

impl Drop for QueryPart {
    fn drop(&mut self) {
        let mut progress = locked(&self.query.progress);
        progress.parts -= 1;
        if progress.parts > 0 {
            return;
        }
        let gone = (progress.timer.take(), progress.root.take(), std::mem::take(&mut progress.cancellations));
        // What they drop may be large.
        drop(progress);
        drop(gone);
    }
}
