//! Information about an active query.

use std::fmt;
use std::time::Duration;

/// Information about an active query at the time of listing.
/// [`WarpjoinRuntime::queries`](crate::WarpjoinRuntime::queries) lists them.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryInfo {
    id: u64,
    state: QueryState,
    elapsed: Duration,
    text: String,
}

/// State of an active query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueryState {
    /// It waits for admission: other queries use the devices.
    Waiting,
    /// It uses the devices.
    Running,
    /// The CPU runs it: after a fallback, or between two parts on the devices.
    Cpu,
    /// It was ended. It is listed until its memory is freed and its stream is dropped.
    Cancelled,
}

impl QueryInfo {
    pub(super) fn new(id: u64, state: QueryState, elapsed: Duration, text: String) -> Self {
        Self { id, state, elapsed, text }
    }

    /// Id of the query in its runtime, for [`WarpjoinRuntime::kill`](crate::WarpjoinRuntime::kill).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its state.
    pub fn state(&self) -> QueryState {
        self.state
    }

    /// The time since its first part began to run or to wait.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Its SQL, if it is a [`Query`](crate::Query); else the first node that the devices replace.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for QueryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Cpu => "cpu",
            Self::Cancelled => "cancelled",
        })
    }
}
