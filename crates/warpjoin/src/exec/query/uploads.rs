//! What is read by code.

use std::sync::Arc;

use warpjoin_device::Buffer;

/// What is read by code, on one device.
pub(in crate::exec) struct UploadedColumn {
    pub values: Arc<Buffer>,
    pub validity: Option<Buffer>,
}
