//! What pipelines read by code: columns that were made on the host, and tests of strings.

use std::sync::Arc;

use crate::Result;
use crate::codegen::{GeneratedPipeline, Lookup};
use crate::exec::query::{Query, UploadedColumn};

impl Query<'_> {
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
