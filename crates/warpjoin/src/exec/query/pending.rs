//! Enqueued work that has not been waited for.

use std::sync::Arc;

use warpjoin_columns::Result;
use warpjoin_device::{Buffer, Event};

use super::Query;
use super::report::read_report;
use crate::exec::relation::TableColumns;
use crate::runtime::lookup_copies::UploadedColumn;

/// Data that a kernel reads besides its inputs, kept alive until it has ended.
type Held = (Vec<Arc<UploadedColumn>>, Arc<TableColumns>, Option<Buffer>);

/// A launch in progress on one device. Keeps the data that the kernel reads alive.
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
    /// Pending work whose report is checked after the next wait for the streams; it lies between these events.
    pub(in crate::exec) fn into_pending(self, events: (Event, Event)) -> PendingDevice {
        let Self { control, lookups, columns, program, events: _ } = self;
        PendingDevice { control: Some(control), events, _held: Some((lookups, columns, program)) }
    }
}

/// A pipeline that was enqueued and not waited for. It is checked after the next wait for the streams.
pub(in crate::exec) struct Pending {
    /// Its line in the metrics.
    pub pipeline: usize,
    /// One for each device; `None`: nothing was enqueued there.
    pub devices: Vec<Option<PendingDevice>>,
    /// Converts the status bits of a kernel to an error.
    pub check: fn(u64) -> Result<()>,
}

/// Its part on one device.
pub(in crate::exec) struct PendingDevice {
    /// The control block for reports; `None`: the work can't fail.
    control: Option<Buffer>,
    /// Before and after its work.
    events: (Event, Event),
    /// Data that kernels use until they have ended.
    _held: Option<Held>,
}

impl PendingDevice {
    /// Work that reports.
    pub(in crate::exec) fn reporting((control, begin, end): (Buffer, Event, Event)) -> Self {
        Self { control: Some(control), events: (begin, end), _held: None }
    }
}

impl Pending {
    /// A pipeline that can't fail; only its time is recorded.
    pub(in crate::exec) fn timed(pipeline: usize, events: Vec<(Event, Event)>) -> Self {
        let device = |events| Some(PendingDevice { control: None, events, _held: None });
        Self { pipeline, devices: events.into_iter().map(device).collect(), check: |_| Ok(()) }
    }
}

impl Query<'_> {
    /// Checks enqueued work after the streams have been waited for, and records its times. Data errors are returned.
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
