//! Where a column of a table lies: on its device, or in the host's memory, so that queries have room on the device.

use warpjoin_device::{Buffer, Cause, MemoryPlace, Stream};

use crate::Result;
use crate::devices::place_of;

/// Memory for a column; `wanted`: where, if that matters.
pub(super) fn alloc_column(stream: &Stream, bytes: u64, wanted: Option<MemoryPlace>) -> Result<Buffer> {
    if wanted.unwrap_or_else(|| place_of(stream, bytes)) == MemoryPlace::Device {
        return Ok(stream.alloc(bytes)?);
    }
    match stream.alloc_host(bytes) {
        // The budget allowed it, the host does not.
        Err(error) if error.cause() == Cause::OutOfMemory && wanted.is_none() => Ok(stream.alloc(bytes)?),
        made => Ok(made?),
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
