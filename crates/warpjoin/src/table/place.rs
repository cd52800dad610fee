//! Where a column of a table lies: on its device, or in the host's memory, so that queries have room on the device.

use warpjoin_device::{Buffer, Cause, MemoryPlace, Stream};

use crate::Result;
use crate::devices::{alloc_in_order, place_of};

/// Memory for a column; `wanted`: where, if that matters.
pub(super) fn alloc_column(stream: &Stream, bytes: u64, wanted: Option<MemoryPlace>) -> Result<Buffer> {
    match wanted {
        None => alloc_in_order(stream, bytes),
        Some(MemoryPlace::Device) => Ok(stream.alloc(bytes)?),
        Some(MemoryPlace::Host) => Ok(stream.alloc_host(bytes)?),
    }
}

/// Moves a column to the host's memory, if that is where it should lie.
pub(crate) fn settle(stream: &Stream, column: Buffer) -> Result<Buffer> {
    // It has its own memory already.
    if place_of(stream, 0) == MemoryPlace::Device || stream.free_host_bytes() < column.bytes() {
        return Ok(column);
    }
    match stream.alloc_host(column.bytes()) {
        Ok(moved) => {
            stream.copy((&column, 0), (&moved, 0), column.bytes())?;
            Ok(moved)
        }
        Err(error) if error.cause() == Cause::OutOfMemory => Ok(column),
        Err(error) => Err(error.into()),
    }
}
