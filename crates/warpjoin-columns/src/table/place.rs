//! Where a column of a table lies: on its device, or in the host's memory, so that queries have room on the device.

use warpjoin_device::{Buffer, Cause, MemoryPlace, Stream};

use crate::Result;
use crate::devices::{alloc_in_order, place_of};

/// Memory for a column, at the place `wanted` if given.
pub(super) fn alloc_column(stream: &Stream, bytes: u64, wanted: Option<MemoryPlace>) -> Result<Buffer> {
    wanted.map_or_else(|| alloc_in_order(stream, bytes), |place| Ok(stream.alloc_at(place, bytes)?))
}

/// A copy of a buffer at another place. The copy is enqueued.
pub(super) fn copied(stream: &Stream, buffer: &Buffer, place: MemoryPlace) -> Result<Buffer> {
    let copy = stream.alloc_at(place, buffer.bytes())?;
    stream.copy((buffer, 0), (&copy, 0), buffer.bytes())?;
    Ok(copy)
}

/// Moves a column to the host's memory, if that is where it should lie.
pub fn settle(stream: &Stream, column: Buffer) -> Result<Buffer> {
    // It has its own memory already.
    if place_of(stream, 0) == MemoryPlace::Device || stream.free_host_bytes() < column.bytes() {
        return Ok(column);
    }
    match copied(stream, &column, MemoryPlace::Host) {
        Err(error) if error.cause() == Cause::OutOfMemory => Ok(column),
        copied => copied,
    }
}
