//! Runs generated pipelines: sinks are opened on each device, take chunk after chunk, and are brought together.
//!
//! Must not know what sinks make of rows.

mod binder;
mod drive;
mod lane;
mod shape;
mod sink;

use std::sync::Arc;

use warpjoin_device::{AbortGuard, Buffer, Event, Stream};

use super::group::{GroupTarget, SketchTarget};
use super::partition::PartitionTarget;
use super::query::Query;
use super::relation::{IntermediateShard, Relation};
use crate::codegen::{Binding, GeneratedPipeline, Lookup, control, status};
use crate::column::ColumnType;
use crate::{Error, Result};

pub(super) use lane::{Job, Lane};
pub(super) use shape::launch_shape;
pub(super) use sink::{DeviceSink, Pushed};

/// Where a pipeline's sink writes on one device.
pub(crate) enum Target<'a> {
    Rows {
        shard: &'a IntermediateShard,
        capacity: u64,
        /// The columns, where rows lie as those of the source do.
        in_place: Option<&'a [ColumnType]>,
    },
    Groups(&'a GroupTarget),
    Partition(&'a PartitionTarget),
    Sketch(&'a SketchTarget),
    /// Slots indexed by the packed key.
    Slots(&'a Buffer),
}

/// What kernels of one device reported.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    pub status: u64,
    pub rows: u64,
    pub probes: u64,
    pub pruned: u64,
}

impl Report {
    /// Adds what a later launch of the same pipeline reported.
    fn add(&mut self, later: &Self) {
        self.status |= later.status;
        self.rows += later.rows;
        self.probes += later.probes;
        self.pruned += later.pruned;
    }
}

/// A launch under way on one device. Holds what the kernel reads until it has ended.
pub(super) struct Flight {
    /// Ends the kernel when the query is cancelled.
    _abort: AbortGuard,
    control: Buffer,
    _lookups: Vec<Arc<UploadedColumn>>,
    /// Before and after the kernel.
    pub events: (Event, Event),
}

impl Flight {
    /// Waits for the kernel; errors of the data are errors.
    pub(super) fn check(&self, stream: &Stream) -> Result<()> {
        check_status(read_report(stream, &self.control)?.status)
    }
}

/// What is read by code, on one device.
pub(super) struct UploadedColumn {
    values: Arc<Buffer>,
    validity: Option<Buffer>,
}

impl Query<'_> {
    /// Has the status of a control block set when the query is cancelled.
    pub(super) fn watch(&self, control: &Buffer) -> Result<AbortGuard> {
        Ok(self.abort.watch(control, control::STATUS as u64 * 8, status::CANCELLED)?)
    }

    /// What a pipeline reads by code, on one device.
    pub(super) fn look_up_all(
        &mut self,
        device: usize,
        generated: &GeneratedPipeline,
    ) -> Result<Vec<Arc<UploadedColumn>>> {
        generated.lookups.iter().map(|lookup| self.look_up(device, lookup)).collect()
    }

    fn look_up(&mut self, device: usize, lookup: &Lookup) -> Result<Arc<UploadedColumn>> {
        let column = match lookup {
            Lookup::Column(column) => column,
            Lookup::Test(test) => {
                let values = self.tested(test)?.swap_remove(device);
                return Ok(Arc::new(UploadedColumn { values, validity: None }));
            }
        };
        let key = (device, Arc::as_ptr(column).addr());
        if let Some((_, known)) = self.uploads.get(&key) {
            return Ok(Arc::clone(known));
        }
        let stream = &self.streams[device];
        self.metrics.uploaded_bytes += column.values.len() as u64;
        let validity = column.validity.as_ref().map(|bits| stream.upload(bits)).transpose()?;
        let uploaded = Arc::new(UploadedColumn { values: Arc::new(stream.upload(&column.values)?), validity });
        self.uploads.insert(key, (Arc::clone(column), Arc::clone(&uploaded)));
        Ok(uploaded)
    }
}

/// Bytes of a source row that a pipeline reads.
fn read_row_bytes(relation: &Relation, generated: &GeneratedPipeline) -> u64 {
    let bytes_of = |binding: &Binding| match binding {
        Binding::SourceValues(column) => relation.source.width_bytes(*column),
        Binding::SourceGroups => relation.source.width_bytes(0),
        _ => 0,
    };
    generated.bindings.iter().map(bytes_of).sum()
}

/// Waits for the stream and reads a control block.
pub(crate) fn read_report(stream: &Stream, control: &Buffer) -> Result<Report> {
    let mut words = [0u64; control::WORDS];
    stream.read(control, 0, bytemuck::cast_slice_mut(&mut words))?;
    Ok(Report {
        status: words[control::STATUS],
        rows: words[control::ROWS],
        probes: words[control::PROBES],
        pruned: words[control::PRUNED],
    })
}

/// Errors of the data, as opposed to tables that are too small.
pub(super) fn check_status(bits: u64) -> Result<()> {
    if bits & status::CANCELLED != 0 {
        Err(Error::Cancelled)
    } else if bits & status::OVERFLOW != 0 {
        Err(Error::Overflow)
    } else if bits & status::DIVISION != 0 {
        Err(Error::DivisionByZero)
    } else if bits & status::CAST != 0 {
        Err(Error::CastFailed)
    } else {
        Ok(())
    }
}
