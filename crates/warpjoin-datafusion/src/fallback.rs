//! Why a device part ran on the CPU.
//!
//! Owns the log lines of fallbacks. Must not decide whether a part falls back: [`crate::exec`] does.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use datafusion::common::DataFusionError;
use warpjoin::{Cause, Error, cause_of_arrow};

/// The device error that made the CPU take over. The answer is correct: the CPU computed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The kind of error.
    pub cause: Cause,
    /// The error message.
    pub message: String,
}

impl Fallback {
    pub(crate) fn new(error: &Error) -> Self {
        Self { cause: error.cause(), message: error.to_string() }
    }

    /// A fallback because an input failed.
    pub(crate) fn of_input(error: &DataFusionError) -> Self {
        let cause = match error.find_root() {
            DataFusionError::ArrowError(error, _) => cause_of_arrow(error),
            _ => Cause::InvalidInput,
        };
        Self { cause, message: format!("an input failed: {}", error.strip_backtrace()) }
    }

    /// Whether the error is a defect; see [`Cause::is_fault`].
    pub fn is_fault(&self) -> bool {
        self.cause.is_fault()
    }

    /// Logs the first fallback of each cause in a process as a warning or error, later ones at debug level.
    pub(crate) fn log(&self) {
        static LOGGED: Mutex<Option<HashSet<Cause>>> = Mutex::new(None);
        let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        if !logged.get_or_insert_default().insert(self.cause) {
            log::debug!("ran on the CPU: {self}");
        } else if self.is_fault() {
            log::error!(
                "a query ran on the CPU because of a device fault: {self}. Please report it with the query, its EXPLAIN and \
                 the output of `warpjoin devices`. Further faults with this cause are logged at debug level. \
                 SET warpjoin.on_fault = 'error' turns faults into errors"
            );
        } else {
            log::warn!("a query ran on the CPU: {self}. Further fallbacks with this cause are logged at debug level");
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_fault() { "fault, " } else { "" };
        write!(f, "{} ({kind}{:?})", self.message, self.cause)
    }
}
