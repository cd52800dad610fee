//! Loading rows of a DataFusion plan onto devices.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use tokio::sync::mpsc;
use warpjoin::{MemoryBudget, Session, Table};

use crate::error::to_datafusion;
use crate::runtime::thread::{CancelOnDrop, Upload, on_thread, receive_table, upload_channel};

/// Why a table could not be loaded.
pub(crate) enum LoadError {
    /// The rows could not be read.
    Source(DataFusionError),
    /// The rows could not be encoded or uploaded to the devices.
    Device(warpjoin::Error),
}

impl LoadError {
    /// The result of a thread that worked on a device. Its panic is a defect of the engine.
    pub(crate) fn of_thread<T>(ended: Result<warpjoin::Result<T>>) -> Result<T, Self> {
        ended.unwrap_or_else(|error| Err(warpjoin::Error::Internal(error.to_string()))).map_err(Self::Device)
    }
}

impl From<LoadError> for DataFusionError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Source(error) => error,
            LoadError::Device(error) => to_datafusion(error),
        }
    }
}

/// Loads the batches that `send` sends, with a limit on the memory in use; to the first device alone if they take at
/// most `home_bytes_max`. Ends early if the future is dropped.
///
/// # Errors
/// Returns errors of `send`, unsupported types, and running out of device memory.
pub(crate) async fn load<F: Future<Output = Result<()>>>(
    session: &Arc<Session>,
    schema: SchemaRef,
    send: impl FnOnce(mpsc::Sender<Upload>) -> F,
    budget: MemoryBudget,
    home_bytes_max: u64,
) -> Result<Table, LoadError> {
    let session = Arc::clone(session);
    let (sender, receiver) = upload_channel();
    let cancel = CancelOnDrop::default();
    let cancellation = cancel.cancellation();
    let receive = move || receive_table(&session, &schema, receiver, &cancellation, budget, home_bytes_max);
    let table = on_thread("warpjoin-load", receive).map_err(LoadError::Source)?;
    let (sent, table) = futures::join!(send(sender), table);
    sent.map_err(LoadError::Source)?;
    LoadError::of_thread(table)
}
