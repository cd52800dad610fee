//! Errors on their way from the devices to DataFusion's user.
//!
//! Must not decide whether an error falls back: that is the plan node's business.

use datafusion::common::DataFusionError;

/// Wraps an error of the devices; its own message says what can be done about it.
pub(crate) fn to_datafusion(error: warpjoin::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
