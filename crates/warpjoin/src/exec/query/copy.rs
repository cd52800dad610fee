//! Copies from device to device.

use warpjoin_columns::Result;
use warpjoin_device::Buffer;

use super::Query;

/// Maximum bytes that the host buffers at once for a copy between devices.
const HOST_PIECE_BYTES: u64 = 32 << 20;

impl Query<'_> {
    /// Enqueues a copy from `(device, buffer, offset)` to another device. If one can't reach the other's memory, the
    /// copy goes through the host and is complete on return, so that the source may be freed. The work that writes the
    /// source must be done, or the target's stream must wait for it.
    pub(in crate::exec) fn copy_across(
        &self,
        (from_device, from, from_offset): (usize, &Buffer, u64),
        (to_device, to, to_offset): (usize, &Buffer, u64),
        bytes: u64,
    ) -> Result<()> {
        let (source, target) = (&self.streams[from_device], &self.streams[to_device]);
        let (source_device, target_device) = (source.device(), target.device());
        if target_device.can_reach(source_device) && source_device.can_reach(target_device) {
            return Ok(target.copy((from, from_offset), (to, to_offset), bytes)?);
        }
        let mut piece = vec![0; bytes.min(HOST_PIECE_BYTES) as usize];
        let mut done = 0;
        while done < bytes {
            self.options.check_cancelled()?;
            let piece = &mut piece[..(bytes - done).min(HOST_PIECE_BYTES) as usize];
            source.read(from, from_offset + done, piece)?;
            target.write(to, to_offset + done, piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }
}
