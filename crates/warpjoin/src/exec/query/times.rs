//! Times of a query, measured by device events: of its kernels, and from its first work to its result.

use warpjoin_columns::Result;
use warpjoin_device::{Event, Stream};

use super::Query;

/// Events and times of a running query.
#[derive(Default)]
pub(crate) struct Times {
    /// Recorded on each device before its first work.
    begun: Vec<Event>,
    /// Recorded on each device after its last work, before the result is fetched.
    ended: Vec<Event>,
    /// Kernel time of each device.
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
    /// Records the time before the first work is enqueued.
    pub(crate) fn note_first_work(&mut self) -> Result<()> {
        if self.times.begun.is_empty() {
            self.times.begun = self.record_events()?;
        }
        Ok(())
    }

    /// Records that the result is complete on the devices once the work enqueued so far has ended. Later work only
    /// fetches it.
    pub(crate) fn note_result(&mut self) -> Result<()> {
        if self.times.ended.is_empty() {
            self.times.ended = self.record_events()?;
        }
        Ok(())
    }

    /// Adds kernel times, each between two events that have been waited for. Returns the longest, in nanoseconds.
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
