//! Runs blocking device work on threads of its own, and passes batches between async streams and these threads.
//!
//! Device work may take long. It must not occupy threads of the async runtime, nor its blocking pool, which is bounded and
//! also reads files. Must not know plans.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::JoinSet;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, execute_stream_partitioned};
use futures::{Stream, StreamExt, stream};
use tokio::sync::{mpsc, oneshot};
use warpjoin::{Cancellation, MemoryBudget, Session, Table, TableBuilder};

use crate::error::to_datafusion;
use crate::runtime::worker;

/// Batches buffered between a stream and its upload.
const WAITING_BATCHES_MAX: usize = 16;

/// Items that a thread produces ahead of the reader.
const ITEMS_AHEAD: usize = 1;

/// A message to an upload. If the channel closes before `End`, the upload is cancelled.
pub(crate) enum Upload {
    /// A batch of rows, and its part: the table has the rows of part 0 first, then those of part 1, and so on.
    Batch(usize, RecordBatch),
    /// The end of the input.
    End,
}

/// The channel of one upload.
pub(crate) fn upload_channel() -> (mpsc::Sender<Upload>, mpsc::Receiver<Upload>) {
    mpsc::channel(WAITING_BATCHES_MAX)
}

/// Runs `work` on its own thread. The future returns its result, or an error with the message of its panic.
///
/// # Errors
/// Returns an error if the system cannot start a thread.
pub(crate) fn on_thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<impl Future<Output = Result<T>> + Send + 'static> {
    let (sender, receiver) = oneshot::channel();
    let job = move || {
        let result = catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message_of(&*panic));
        // The receiver is gone if the stream was dropped.
        let _ = sender.send(result);
    };
    worker::run(name, Box::new(job))
        .map_err(|error| DataFusionError::Execution(format!("cannot start a thread for device work: {error}")))?;
    Ok(async move {
        let panicked =
            |message: &str| DataFusionError::Execution(format!("the device thread {name} panicked: {message}"));
        match receiver.await {
            Ok(result) => result.map_err(|message| panicked(&message)),
            Err(_) => Err(panicked("it ended without a result")),
        }
    })
}

/// Iterates over `items` on its own thread, slightly ahead of the reader of the stream, and stops if the stream is
/// dropped. Ends with the first error, or with the message of a panic.
///
/// # Errors
/// Returns an error if the system cannot start a thread.
pub(crate) fn from_thread<T, I>(
    name: &'static str,
    items: impl FnOnce() -> I + Send + 'static,
) -> Result<impl Stream<Item = Result<T>> + Send + 'static>
where
    T: Send + 'static,
    I: Iterator<Item = warpjoin::Result<T>>,
{
    let (sender, receiver) = mpsc::channel(ITEMS_AHEAD);
    let ended = on_thread(name, move || {
        for item in items() {
            let failed = item.is_err();
            // The receiver is gone if the stream was dropped.
            if sender.blocking_send(item.map_err(to_datafusion)).is_err() || failed {
                return;
            }
        }
    })?;
    let received = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    // Behind all items: only what went wrong with the thread itself.
    let ended = stream::once(ended).filter_map(async |ended| ended.err().map(Err));
    Ok(received.chain(ended))
}

/// The message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let fixed = panic.downcast_ref::<&str>().map(ToString::to_string);
    fixed.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_string())
}

/// Sends all batches of `stream` to an upload. Stops early, without an error, if the upload has ended.
///
/// # Errors
/// Returns errors of the stream.
pub(crate) async fn pump(stream: SendableRecordBatchStream, upload: mpsc::Sender<Upload>) -> Result<()> {
    send_part(0, stream, upload.clone()).await?;
    let _ = upload.send(Upload::End).await;
    Ok(())
}

/// Sends all partitions of a plan to an upload, as a part each. A task each reads them, so that all cores decode. Stops
/// early, without an error, if the upload has ended.
///
/// # Errors
/// Returns errors of the plan, and panics of the tasks.
pub(crate) async fn pump_partitions(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    upload: mpsc::Sender<Upload>,
) -> Result<()> {
    let mut partitions = execute_stream_partitioned(plan, context)?;
    if partitions.len() == 1
        && let Some(rows) = partitions.pop()
    {
        return pump(rows, upload).await;
    }
    let mut tasks = JoinSet::new();
    for (part, rows) in partitions.into_iter().enumerate() {
        tasks.spawn(send_part(part, rows, upload.clone()));
    }
    while let Some(sent) = tasks.join_next().await {
        sent.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
    }
    let _ = upload.send(Upload::End).await;
    Ok(())
}

async fn send_part(part: usize, mut rows: SendableRecordBatchStream, upload: mpsc::Sender<Upload>) -> Result<()> {
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 && upload.send(Upload::Batch(part, batch)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Cancels work on another thread when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(Arc<Cancellation>);

impl CancelOnDrop {
    /// The cancellation that the work polls.
    pub(crate) fn cancellation(&self) -> Arc<Cancellation> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Uploads the received batches to the session's devices, or to the first alone if they take at most `home_bytes_max`.
/// Blocks, so call it on its own thread.
///
/// # Errors
/// Returns [`warpjoin::Error::Cancelled`] if it is cancelled or the sender is dropped early, and errors of the upload.
pub(crate) fn receive_table(
    session: &Arc<Session>,
    schema: &SchemaRef,
    mut batches: mpsc::Receiver<Upload>,
    cancel: &Arc<Cancellation>,
    budget: MemoryBudget,
    home_bytes_max: u64,
) -> warpjoin::Result<Table> {
    let builder = TableBuilder::new(session.device_set(), Arc::clone(schema)).on_first_up_to(home_bytes_max);
    let mut builder = builder.with_cancel(Arc::clone(cancel)).with_memory_budget(budget);
    let started = Instant::now();
    let mut waited = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let received = batches.blocking_recv();
        waited += asked.elapsed();
        match received {
            Some(Upload::Batch(part, batch)) => builder.push_to(part, &with_schema(batch, schema)?)?,
            Some(Upload::End) => {
                log::debug!("rows received in {:.1?}, of which {waited:.1?} without any", started.elapsed());
                return builder.finish();
            }
            None => return Err(warpjoin::Error::Cancelled),
        }
    }
}

/// The batch with another schema of the same types. Names, nullability and metadata may differ.
///
/// # Errors
/// Returns an error if types differ, or a non-nullable column has nulls.
pub(crate) fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, arrow::error::ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)
}
