//! Times of a query by device events: of its kernels, and from its first work to its result.

use warpjoin_device::{Event, Stream};

use super::Query;
use crate::Result;

/// What is timed while a query runs.
#[derive(Default)]
pub(crate) struct Times {
    /// On each device, before its first work.
    begun: Vec<Event>,
    /// Behind its last work before the result is fetched.
    ended: Vec<Event>,
    /// Kernels of each device.
    kernel_ns: Vec<u64>,
}

impl Times {
    /// Adds the time of a device's kernels.
    pub(in crate::exec) fn add_kernel(&mut self, device: usize, kernel_ns: u64) {
        if self.kernel_ns.len() <= device {
            self.kernel_ns.resize(device + 1, 0);
        }
        self.kernel_ns[device] += kernel_ns;
    }
}

impl Query<'_> {
    /// The first work is about to be enqueued.
    pub(crate) fn note_first_work(&mut self) -> Result<()> {
        if self.times.begun.is_empty() {
            self.times.begun = self.record_events()?;
        }
        Ok(())
    }

    /// The result is on the devices once what is enqueued by now has ended. What is enqueued later brings it to the host.
    pub(crate) fn note_result(&mut self) -> Result<()> {
        if self.times.ended.is_empty() {
            self.times.ended = self.record_events()?;
        }
        Ok(())
    }

    /// Adds up kernels of devices, each between two events that have been waited for; nanoseconds of the slowest device.
    pub(crate) fn add_kernels<'e>(
        &mut self,
        spans: impl IntoIterator<Item = (usize, &'e Event, &'e Event)>,
    ) -> Result<u64> {
        let mut slowest_ns = 0;
        for (device, begin, end) in spans {
            let kernel_ns = end.elapsed_ns(begin)?;
            self.times.add_kernel(device, kernel_ns);
            slowest_ns = slowest_ns.max(kernel_ns);
        }
        Ok(slowest_ns)
    }

    /// Puts the times into the metrics, once all streams have been waited for.
    pub(crate) fn settle_times(&mut self) -> Result<()> {
        self.metrics.kernel_ns = self.times.kernel_ns.iter().copied().max().unwrap_or(0);
        for (begun, ended) in self.times.begun.iter().zip(&self.times.ended) {
            self.metrics.device_ns = self.metrics.device_ns.max(ended.elapsed_ns(begun)?);
        }
        Ok(())
    }

    /// An event of each device after everything that was enqueued there.
    pub(crate) fn record_events(&self) -> Result<Vec<Event>> {
        Ok(self.streams.iter().map(Stream::record).collect::<Result<_, _>>()?)
    }
}
