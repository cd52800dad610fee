//! The interface of sinks to the code that drives devices.

use warpjoin_codegen::GeneratedPipeline;
use warpjoin_columns::Result;

use super::lane::Lane;
use super::target::Target;
use crate::exec::query::{Query, Report};
use crate::exec::relation::Relation;
use std::sync::Arc;

/// The sink of a pipeline.
///
/// A sink is opened on each device, receives the device's rows chunk after chunk, and is finished. Devices do not wait
/// for each other, and may have a thread each. Their results are combined once all are finished.
pub(in crate::exec) trait DeviceSink: Sync {
    /// State while one device is being filled.
    type Filling: Send;
    /// Result of one device.
    type Filled: Send;
    /// Combined result of all devices.
    type Output;

    /// Its name in metrics.
    fn name(&self) -> String;

    /// Allocates the output on a device.
    ///
    /// # Errors
    /// When the device has no memory, or fails.
    fn open(&self, lane: &mut Lane<'_>) -> Result<Self::Filling>;

    /// The result of a device without rows, if known without a launch.
    ///
    /// # Errors
    /// When the device has no memory.
    fn nothing(&self, _lane: &mut Lane<'_>) -> Result<Option<Self::Filled>> {
        Ok(None)
    }

    /// Where the kernel writes.
    fn target<'t>(&'t self, filling: &'t Self::Filling) -> Target<'t>;

    /// Whether a launch takes one chunk, whose report is checked before the next. Otherwise all chunks are launched,
    /// and one report is checked.
    fn takes_one_chunk(&self) -> bool {
        false
    }

    /// Whether it accepts rows in several chunks.
    fn takes_chunks(&self) -> bool {
        true
    }

    /// Checks the result of a push. `is_last`: no chunk follows.
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

    /// Makes room for the next try on a device whose output was full.
    fn make_room(&mut self, _device: usize, _full: Self::Filling, _report: &Report) {}

    /// Another kernel for the devices that try again, if the reports suggest one.
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

    /// Combines the results of all devices.
    fn combine(self, filled: Vec<Self::Filled>) -> Self::Output;
}

/// Result of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Pushed {
    /// All rows were processed.
    Done,
    /// The kernel has stopped early; a relaunch continues from the recorded position.
    Resume,
    /// The output is full: the device begins again at its first row, with more room.
    Full,
}
