//! What a sink is to those that drive it.

use super::lane::Lane;
use super::target::Target;
use crate::Result;
use crate::codegen::GeneratedPipeline;
use crate::exec::query::{Query, Report};
use crate::exec::relation::Relation;
use std::sync::Arc;

/// What takes the rows of a pipeline.
///
/// A sink is opened on each device, and pushed chunk after chunk of the rows there until it is finished. Devices do not
/// wait for each other, and may have a thread each. What they have made is combined once all are finished.
pub(in crate::exec) trait DeviceSink: Sync {
    /// What is being filled on one device.
    type Filling: Send;
    /// What one device has made.
    type Filled: Send;
    /// What all devices have made.
    type Output;

    /// Its name in metrics.
    fn name(&self) -> String;

    /// Makes room on a device.
    ///
    /// # Errors
    /// When the device has no memory, or fails.
    fn open(&self, lane: &mut Lane<'_>) -> Result<Self::Filling>;

    /// What a device without rows makes, if that is known without a launch.
    ///
    /// # Errors
    /// When the device has no memory.
    fn nothing(&self, _lane: &mut Lane<'_>) -> Result<Option<Self::Filled>> {
        Ok(None)
    }

    /// Where the kernel writes.
    fn target<'t>(&'t self, filling: &'t Self::Filling) -> Target<'t>;

    /// Whether a launch takes one chunk, whose report is looked at before the next. Else all chunks are launched, and one
    /// report is looked at.
    fn takes_one_chunk(&self) -> bool {
        false
    }

    /// Whether it can be given some rows at a time.
    fn takes_chunks(&self) -> bool {
        true
    }

    /// Looks at what a push came to. `is_last`: no chunk follows.
    ///
    /// # Errors
    /// When the device fails.
    fn pushed(
        &self,
        lane: &mut Lane<'_>,
        filling: &mut Self::Filling,
        report: &Report,
        is_last: bool,
    ) -> Result<Pushed>;

    /// Ends filling. The report is that of all pushes.
    ///
    /// # Errors
    /// When the device fails.
    fn finish(&self, lane: &mut Lane<'_>, filling: Self::Filling, report: &Report) -> Result<Self::Filled>;

    /// The next try on a device whose output was full has more room.
    fn make_room(&mut self, _device: usize, _full: Self::Filling, _report: &Report) {}

    /// Another kernel for the devices that try again, if one suits better what was found out.
    ///
    /// # Errors
    /// When it can't be generated.
    fn other_pipeline(
        &self,
        _query: &mut Query<'_>,
        _relation: &mut Relation,
    ) -> Result<Option<Arc<GeneratedPipeline>>> {
        Ok(None)
    }

    /// Brings together what devices have made.
    fn combine(self, filled: Vec<Self::Filled>) -> Self::Output;
}

/// What a push came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Pushed {
    /// All rows are in.
    Done,
    /// The kernel has noted where it stopped, and goes on from there.
    Resume,
    /// The output is full: the device begins again at its first row, with more room.
    Full,
}
