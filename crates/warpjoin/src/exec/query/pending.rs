//! Work that was enqueued and that nobody has waited for.

use std::sync::Arc;

use warpjoin_device::{Buffer, Event};

use super::Query;
use super::report::read_report;
use crate::Result;
use crate::exec::relation::TableColumns;
use crate::runtime::lookup_copies::UploadedColumn;

/// What a kernel reads besides its inputs.
type Held = (Vec<Arc<UploadedColumn>>, Arc<TableColumns>, Option<Buffer>);

/// A launch under way on one device. Holds what the kernel reads until it has ended.
pub(in crate::exec) struct Flight {
    pub control: Buffer,
    pub lookups: Vec<Arc<UploadedColumn>>,
    pub columns: Arc<TableColumns>,
    /// The program that is interpreted.
    pub program: Option<Buffer>,
    /// Before and after the kernel.
    pub events: (Event, Event),
}

impl Flight {
    /// The kernel reports to whoever waits for the streams next; its work lies between these events.
    pub(in crate::exec) fn into_pending(self, events: (Event, Event)) -> PendingDevice {
        let Self { control, lookups, columns, program, events: _ } = self;
        PendingDevice { control: Some(control), events, _held: Some((lookups, columns, program)) }
    }
}

/// A pipeline that was enqueued and not waited for: whoever waits for the streams next looks at it.
pub(in crate::exec) struct Pending {
    /// Its line in the metrics.
    pub pipeline: usize,
    /// One a device; `None`: nothing was enqueued there.
    pub devices: Vec<Option<PendingDevice>>,
    /// What the status that a kernel reports comes to.
    pub check: fn(u64) -> Result<()>,
}

/// Its part on one device.
pub(in crate::exec) struct PendingDevice {
    /// Where kernels report; `None`: nothing there can go wrong.
    control: Option<Buffer>,
    /// Before and after its work.
    events: (Event, Event),
    /// What kernels use until they have ended.
    _held: Option<Held>,
}

impl PendingDevice {
    /// Work that reports.
    pub(in crate::exec) fn reporting((control, begin, end): (Buffer, Event, Event)) -> Self {
        Self { control: Some(control), events: (begin, end), _held: None }
    }
}

impl Pending {
    /// A pipeline that can't go wrong: its time is taken.
    pub(in crate::exec) fn timed(pipeline: usize, events: Vec<(Event, Event)>) -> Self {
        let device = |events| Some(PendingDevice { control: None, events, _held: None });
        Self { pipeline, devices: events.into_iter().map(device).collect(), check: |_| Ok(()) }
    }
}

impl Query<'_> {
    /// Looks at what was enqueued, now that the streams have been waited for: errors of the data are errors.
    pub(in crate::exec) fn settle(&mut self) -> Result<()> {
        for Pending { pipeline, devices, check } in std::mem::take(&mut self.pending) {
            for (stream, device) in self.streams.iter().zip(&devices) {
                if let Some(control) = device.as_ref().and_then(|device| device.control.as_ref()) {
                    check(read_report(stream, control)?.status)?;
                }
            }
            let spans = devices.iter().enumerate().filter_map(|(device, part)| {
                let (begin, end) = &part.as_ref()?.events;
                Some((device, begin, end))
            });
            self.metrics.pipelines[pipeline].kernel_ns = self.add_kernels(spans)?;
        }
        Ok(())
    }
}
