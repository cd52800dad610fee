//! Why a query was ended before it was complete.

use std::time::Duration;

use datafusion::common::DataFusionError;

use crate::config::QueryTimeout;

/// Why a query was ended before it was complete. It is the root of the query's [`DataFusionError`], as
/// [`External`](DataFusionError::External).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryEnded {
    /// It took longer than `warpjoin.query_timeout`.
    #[error(
        "the query was cancelled: it took longer than warpjoin.query_timeout, {}; SET warpjoin.query_timeout to a longer time, \
         or to 'off'",
        QueryTimeout::new(Some(*.limit))
    )]
    TimedOut {
        /// The value of the setting.
        limit: Duration,
    },
    /// It was ended by [`WarpjoinRuntime::kill`](crate::WarpjoinRuntime::kill) or the statement `KILL`.
    #[error("the query was cancelled by KILL {id}")]
    Killed {
        /// The query's id.
        id: u64,
    },
}

impl From<QueryEnded> for DataFusionError {
    fn from(ended: QueryEnded) -> Self {
        // Not an error of data or of a device: nothing starts over on the CPU.
        Self::External(Box::new(ended))
    }
}
