//! Columns that pipelines read by code: precomputed lookups from the host, and results of string tests.

use std::sync::Arc;

use warpjoin_codegen::{GeneratedPipeline, Lookup, LookupColumn};
use warpjoin_columns::Result;
use warpjoin_device::{Event, Stream};

use super::lane::Lane;
use crate::exec::query::Query;
use crate::runtime::lookup_copies::UploadedColumn;

/// Minimum bytes of a column that stays on the devices as long as it lives on the host.
const KEPT_BYTES_MIN: usize = 64 << 10;
/// Minimum bytes of a column that is copied to all devices in parallel.
const LARGE_BYTES_MIN: usize = 1 << 20;

impl Query<'_> {
    /// The columns that a pipeline reads by code, for each device.
    pub(super) fn look_up_all(&mut self, generated: &GeneratedPipeline) -> Result<Vec<Vec<Arc<UploadedColumn>>>> {
        for lookup in &generated.lookups {
            if let Lookup::Column(column) = lookup {
                self.bring_large(column)?;
            }
        }
        let look_up = |query: &mut Self, device: usize| {
            generated.lookups.iter().map(|lookup| query.look_up(device, lookup)).collect::<Result<Vec<_>>>()
        };
        (0..self.devices()).map(|device| look_up(self, device)).collect()
    }

    /// Copies a large column to several devices in parallel, if none has it.
    fn bring_large(&mut self, column: &Arc<LookupColumn>) -> Result<()> {
        let is_there = |device: usize| {
            let copies = self.session.lookup_copies();
            self.uploads.contains_key(&key_of(device, column))
                || copies.find(column, self.session.device_set(), device).is_some()
        };
        if self.devices() == 1 || column.encoded().values.len() < LARGE_BYTES_MIN || (0..self.devices()).any(is_there) {
            return Ok(());
        }
        let copies = self.on_each(|lane| lane.upload_to_keep(column))?;
        for (device, copy) in copies.into_iter().enumerate() {
            self.keep_copy(device, column, copy)?;
        }
        Ok(())
    }

    fn look_up(&mut self, device: usize, lookup: &Lookup) -> Result<Arc<UploadedColumn>> {
        let column = match lookup {
            Lookup::Column(column) => column,
            Lookup::Test(test) => {
                let values = self.tested(test)?.swap_remove(device);
                return Ok(Arc::new(UploadedColumn { values, validity: None }));
            }
        };
        let key = key_of(device, column);
        if let Some((_, known)) = self.uploads.get(&key) {
            return Ok(Arc::clone(known));
        }
        if column.encoded().values.len() < KEPT_BYTES_MIN {
            self.metrics.uploaded_bytes += column.encoded().values.len() as u64;
            let uploaded = upload(column, &self.streams[device])?;
            self.uploads.insert(key, (Arc::clone(column), Arc::clone(&uploaded)));
            return Ok(uploaded);
        }
        if let Some((known, ready)) = self.session.lookup_copies().find(column, self.session.device_set(), device) {
            self.streams[device].wait(&ready)?;
            self.uploads.insert(key, (Arc::clone(column), Arc::clone(&known)));
            return Ok(known);
        }
        let copy = self.lane(device).upload_to_keep(column)?;
        self.keep_copy(device, column, copy)
    }

    /// Keeps a copy that was made for this query for later queries.
    fn keep_copy(
        &mut self,
        device: usize,
        column: &Arc<LookupColumn>,
        (uploaded, ready): (Arc<UploadedColumn>, Event),
    ) -> Result<Arc<UploadedColumn>> {
        self.metrics.uploaded_bytes += column.encoded().values.len() as u64;
        self.streams[device].wait(&ready)?;
        self.uploads.insert(key_of(device, column), (Arc::clone(column), Arc::clone(&uploaded)));
        let copy = (device, Arc::clone(&uploaded), ready);
        self.session.lookup_copies().keep(column, self.session.device_set(), copy);
        Ok(uploaded)
    }
}

impl Lane<'_> {
    /// Copies a column to the device, on a stream that outlives the query. Also returns an event for its arrival.
    fn upload_to_keep(&self, column: &LookupColumn) -> Result<(Arc<UploadedColumn>, Event)> {
        let stream = self.options.memory_budget().of_stream(self.load_stream());
        let uploaded = upload(column, &stream)?;
        Ok((uploaded, stream.record()?))
    }
}

fn key_of(device: usize, column: &Arc<LookupColumn>) -> (usize, usize) {
    (device, Arc::as_ptr(column).addr())
}

fn upload(column: &LookupColumn, stream: &Stream) -> Result<Arc<UploadedColumn>> {
    let column = column.encoded();
    let validity = column.validity.as_ref().map(|bits| stream.upload(bits)).transpose()?;
    Ok(Arc::new(UploadedColumn { values: Arc::new(stream.upload(&column.values)?), validity }))
}
