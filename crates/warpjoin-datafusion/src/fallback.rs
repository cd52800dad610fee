//! Why a part that was planned for the devices ran on the CPU.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use datafusion::common::DataFusionError;
use warpjoin::{Cause, Error, cause_of_arrow};

/// What made the devices give up. The answer is right all the same: the CPU gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// What kind of error it was.
    pub cause: Cause,
    /// The error.
    pub message: String,
}

impl Fallback {
    pub(crate) fn new(error: &Error) -> Self {
        Self { cause: error.cause(), message: error.to_string() }
    }

    /// Of an input that could not be computed.
    pub(crate) fn of_input(error: &DataFusionError) -> Self {
        let cause = match error.find_root() {
            DataFusionError::ArrowError(error, _) => cause_of_arrow(error),
            _ => Cause::InvalidInput,
        };
        Self { cause, message: format!("an input failed: {}", error.strip_backtrace()) }
    }

    /// Whether it should be reported; see [`Cause::is_fault`].
    pub fn is_fault(&self) -> bool {
        self.cause.is_fault()
    }

    /// Tells the log, once a process for each cause.
    pub(crate) fn log(&self) {
        static TOLD: Mutex<Option<HashSet<Cause>>> = Mutex::new(None);
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.get_or_insert_default().insert(self.cause) {
            log::debug!("ran on the CPU: {self}");
        } else if self.is_fault() {
            log::error!(
                "a query ran on the CPU because of a fault of the devices: {self}. Please report it with the query, its \
                 EXPLAIN and the output of `warpjoin devices`. Further faults of this kind are logged at debug level; \
                 SET warpjoin.on_fault = 'error' makes them errors"
            );
        } else {
            log::warn!("a query ran on the CPU: {self}. Further ones for this cause are logged at debug level");
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_fault() { "fault, " } else { "" };
        write!(f, "{} ({kind}{:?})", self.message, self.cause)
    }
}
