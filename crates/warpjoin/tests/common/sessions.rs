//! Sessions of every kind of device, so that the same cases run on all of them.

use std::sync::Arc;

use warpjoin::Session;
use warpjoin_device::{SimOptions, open_simulated};

/// Opens sessions on so many devices.
pub(crate) trait Opener: Sync {
    /// `None` where there are not so many devices.
    fn open(&self, devices: usize) -> Option<Arc<Session>>;
}

/// Opens simulated devices like these.
pub(crate) struct Simulated(pub(crate) SimOptions);

impl Opener for Simulated {
    fn open(&self, devices: usize) -> Option<Arc<Session>> {
        let options = SimOptions { devices, threads: 1, ..self.0.clone() };
        Some(Session::new(open_simulated(&options).expect("devices")).expect("a session"))
    }
}

/// Simulated devices as they come.
pub(crate) fn simulated() -> Simulated {
    Simulated(SimOptions::default())
}
