//! `warpjoin warm`: compiles the kernels that any query may want, so that no first query waits for them.

use std::time::Instant;

use warpjoin::Session;
use warpjoin_device::{CudaOptions, open_usable_cuda};

use crate::error::Result;

/// Compiles them for the first GPU of this machine; says how long that took.
///
/// # Errors
/// When no GPU can be used.
pub fn warm() -> Result<String> {
    let started = Instant::now();
    let opened = open_usable_cuda(&CudaOptions::default())?;
    let session = Session::new(opened.devices.into_iter().take(1).collect())?;
    session.finish_compiling();
    let seconds = started.elapsed().as_secs_f64();
    Ok(format!("kernels for {} are ready after {seconds:.1} s", session.devices()[0].label()))
}
