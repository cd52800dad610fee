//! Reports of kernels in control blocks.

use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Stream};
use warpjoin_kernels::common::{control, status};

/// A report of kernels on one device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    pub status: u64,
    pub rows: u64,
    pub probes: u64,
    pub pruned: u64,
}

impl Report {
    /// Adds the report of a later launch of the same pipeline.
    pub(in crate::exec) fn add(&mut self, later: &Self) {
        self.status |= later.status;
        self.rows += later.rows;
        self.probes += later.probes;
        self.pruned += later.pruned;
    }
}

/// Waits for the stream and reads a control block.
pub(in crate::exec) fn read_report(stream: &Stream, control: &Buffer) -> Result<Report> {
    let mut words = [0u64; control::WORDS];
    stream.read(control, 0, bytemuck::cast_slice_mut(&mut words))?;
    Ok(Report {
        status: words[control::STATUS],
        rows: words[control::ROWS],
        probes: words[control::PROBES],
        pruned: words[control::PRUNED],
    })
}

/// Converts status bits of data errors and cancellation to an error; ignores bits of full tables.
pub(in crate::exec) fn check_status(bits: u64) -> Result<()> {
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
