//! Conversion of device errors to DataFusion errors.
//!
//! Must not decide whether a query falls back to the CPU: [`crate::exec`] does.

use datafusion::common::DataFusionError;

/// Wraps a device error. Its message says what the user can do.
pub(crate) fn to_datafusion(error: warpjoin::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
