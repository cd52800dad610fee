//! Threads that drive the devices of a session.

use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads of a session for each device but the first: as many queries as this drive a device without waiting for each other.
const THREADS_EACH: usize = 4;

/// Threads that drive the devices of a session but the first, which the thread of the query drives. They are made when they
/// are first wanted.
#[derive(Default)]
pub(crate) struct DeviceThreads(OnceLock<Option<ThreadPool>>);

impl DeviceThreads {
    /// `None` where there is one device, or no thread can be made: then the thread of the query drives all of them.
    pub(crate) fn of(&self, devices: usize) -> Option<&ThreadPool> {
        let make = || {
            let builder =
                ThreadPoolBuilder::new().num_threads(THREADS_EACH * devices.checked_sub(1).filter(|&n| n > 0)?);
            let pool = builder.thread_name(|index| format!("warpjoin-device-{index}")).build();
            pool.inspect_err(|error| log::warn!("one thread drives all devices: {error}")).ok()
        };
        self.0.get_or_init(make).as_ref()
    }
}
