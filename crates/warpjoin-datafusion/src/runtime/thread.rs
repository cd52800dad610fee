//! Blocking work on threads of its own, and batches on their way between async streams and it.
//!
//! Device work may take long and must not occupy an async runtime's threads, the blocking pool
//! included: that one is bounded and shared with file reading.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use tokio::sync::{mpsc, oneshot};
use warpjoin::{Session, Table, TableBuilder};

use crate::runtime::worker;

/// Batches that may wait between a stream and its upload.
const WAITING_BATCHES_MAX: usize = 16;

/// What travels to an upload. A channel that closes without `End` was given up.
pub(crate) enum Upload {
    /// Rows.
    Batch(RecordBatch),
    /// There are no more.
    End,
}

/// A channel for one upload.
pub(crate) fn upload_channel() -> (mpsc::Sender<Upload>, mpsc::Receiver<Upload>) {
    mpsc::channel(WAITING_BATCHES_MAX)
}

/// Runs `work` on a thread of its own; the future gives its result, or an error that says with what it panicked.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn on_thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<impl Future<Output = Result<T>> + Send + 'static> {
    let (sender, receiver) = oneshot::channel();
    let job = move || {
        let result = catch_unwind(AssertUnwindSafe(work)).map_err(|panic| words_of(&*panic));
        // Nobody listens when the stream was dropped.
        let _ = sender.send(result);
    };
    worker::run(name, Box::new(job))
        .map_err(|error| DataFusionError::Execution(format!("no thread for device work: {error}")))?;
    Ok(async move {
        let panicked = |words: &str| DataFusionError::Execution(format!("the device thread {name} panicked: {words}"));
        match receiver.await {
            Ok(result) => result.map_err(|words| panicked(&words)),
            Err(_) => Err(panicked("it is gone")),
        }
    })
}

/// What a panic says.
fn words_of(panic: &(dyn Any + Send)) -> String {
    let fixed = panic.downcast_ref::<&str>().map(ToString::to_string);
    fixed.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_string())
}

/// Sends all of `stream` to an upload. Ends early, without an error, when the upload gave up.
///
/// # Errors
/// Those of the stream.
pub(crate) async fn pump(mut stream: SendableRecordBatchStream, upload: mpsc::Sender<Upload>) -> Result<()> {
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 && upload.send(Upload::Batch(batch)).await.is_err() {
            return Ok(());
        }
    }
    let _ = upload.send(Upload::End).await;
    Ok(())
}

/// Tells work on another thread, once this is dropped, that nobody waits any more.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// What is set then.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts what arrives on the session's devices. Blocks: call it on a thread of its own.
///
/// # Errors
/// [`warpjoin::Error::Cancelled`] when `cancel` is set or the sender gave up; those of the upload.
pub(crate) fn receive_table(
    session: &Arc<Session>,
    schema: &SchemaRef,
    mut batches: mpsc::Receiver<Upload>,
    cancel: &Arc<AtomicBool>,
    memory_budget_bytes: u64,
) -> warpjoin::Result<Table> {
    let builder = TableBuilder::new(session.device_set(), Arc::clone(schema));
    let mut builder = builder.with_cancel(Arc::clone(cancel)).with_memory_budget(memory_budget_bytes);
    loop {
        match batches.blocking_recv() {
            Some(Upload::Batch(batch)) => builder.push(&with_schema(batch, schema)?)?,
            Some(Upload::End) => return builder.finish(),
            None => return Err(warpjoin::Error::Cancelled),
        }
    }
}

/// The batch under `schema`: same types, whose names, nullability and metadata may differ.
///
/// # Errors
/// When types differ, or a column that must not has nulls.
pub(crate) fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, arrow::error::ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)
}
