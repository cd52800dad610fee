//! Brings rows together across devices: multisplit and transposition, or a copy to all.

use warpjoin_device::{Buffer, ModuleSource, Ptr};
use warpjoin_kernels::common::DEVICES_MAX;
use warpjoin_kernels::exchange::{RouteParams, ScatterParams};

use super::launch::Strides;
use super::query::Query;
use super::relation::{Intermediate, IntermediateShard};
use super::rows::allocate;
use crate::codegen::Constants;
use crate::{Error, Result};

/// Bytes of shared memory of the routing kernels: a 64-bit and a 32-bit word a device.
const ROUTE_SHARED_BYTES: u32 = DEVICES_MAX as u32 * 12;

/// Which device owns a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owners<'a> {
    /// By the hash of its key word, a u64.
    Hash,
    /// By the range of its key word, of 4 or 8 bytes: a device less than there are numbers that the word is not below.
    Ranges(&'a [u64]),
}

/// One run of bytes a row: the values of a column, or its validity.
#[derive(Clone, Copy)]
struct Part {
    column: usize,
    is_validity: bool,
    width_bytes: u64,
}

impl Part {
    fn of(self, shard: &IntermediateShard) -> Option<&Buffer> {
        let column = &shard.columns[self.column];
        if self.is_validity { column.validity.as_ref() } else { column.values.as_ref() }
    }

    /// All parts of rows with these columns.
    fn all(rows: &Intermediate) -> Vec<Part> {
        let mut all = vec![];
        for (column, column_type) in rows.columns.iter().enumerate() {
            let width_bytes = u64::from(column_type.layout().width_bytes);
            if width_bytes > 0 {
                all.push(Part { column, is_validity: false, width_bytes });
            }
            if column_type.has_nulls {
                all.push(Part { column, is_validity: true, width_bytes: 1 });
            }
        }
        all
    }
}

impl Query<'_> {
    /// Gives every device all rows of all devices.
    pub(crate) fn broadcast(&mut self, rows: Intermediate) -> Result<Intermediate> {
        if self.devices() == 1 || self.is_dry() {
            return Ok(rows);
        }
        let total = rows.rows();
        let mut shards = vec![];
        let mut waits = self.waits();
        // Their streams may still write the rows: to smaller buffers, say.
        let ready = self.record_events()?;
        for device in 0..self.devices() {
            ready.iter().try_for_each(|written| self.streams[device].wait(written))?;
            let mut target = allocate(&self.streams[device], &rows.columns, total)?;
            target.rows = total;
            for part in Part::all(&rows) {
                let mut first = 0;
                for (peer, shard) in rows.shards.iter().enumerate() {
                    let bytes = shard.rows * part.width_bytes;
                    if let (Some(from), Some(to)) = (part.of(shard), part.of(&target)) {
                        self.copy_across((peer, from, 0), (device, to, first), bytes)?;
                    }
                    first += bytes;
                    self.metrics.exchanged_bytes += if peer == device { 0 } else { bytes };
                }
            }
            shards.push(target);
        }
        // The sources may go once every device has its copy.
        waits.end()?;
        Ok(Intermediate { shards, ..rows })
    }

    /// Sends every row to the device that owns the hash of its key word, which is column 0.
    pub(crate) fn exchange(&mut self, rows: Intermediate) -> Result<Intermediate> {
        self.exchange_by(rows, Owners::Hash)
    }

    /// Sends every row to the device that owns its key word, which is column 0.
    pub(super) fn exchange_by(&mut self, rows: Intermediate, owners: Owners<'_>) -> Result<Intermediate> {
        let devices = self.devices();
        if devices == 1 {
            return Ok(rows);
        }
        if self.is_dry() {
            let module = exchange_module(self.options.hash_bits);
            self.compile_all(["route_count", "route_assign"].map(|entry| (&module, entry)))?;
            for part in Part::all(&rows) {
                self.compile(&module, &format!("scatter_{}", part.width_bytes))?;
            }
            return Ok(rows);
        }
        self.options.check_cancelled()?;
        let counts = self.route(&rows, "route_count", owners, false)?.0;
        let mut shards = vec![];
        for owner in 0..devices {
            let total = counts.iter().map(|from| from[owner]).sum();
            let mut shard = allocate(&self.streams[owner], &rows.columns, total)?;
            shard.rows = total;
            shards.push(shard);
        }
        // The owners' buffers exist in their streams' order: peers may write once that is reached.
        self.synchronize()?;
        let positions = self.route(&rows, "route_assign", owners, true)?.1;
        let mut waits = self.waits();
        self.transpose(&rows, &shards, &counts, &positions)?;
        waits.end()?;
        Ok(Intermediate { shards, ..rows })
    }

    /// Runs a routing kernel on every device: rows for each owner, and positions if asked for.
    fn route(
        &mut self,
        rows: &Intermediate,
        entry: &str,
        owners: Owners<'_>,
        wants_positions: bool,
    ) -> Result<(Vec<Vec<u64>>, Vec<Buffer>)> {
        let kernels = self.compile(&exchange_module(self.options.hash_bits), entry)?;
        let mut pending = vec![];
        for (device, shard) in rows.shards.iter().enumerate() {
            let stream = &self.streams[device];
            let counts = stream.alloc_filled(DEVICES_MAX as u64 * 8, 0)?;
            let places = stream.alloc(if wants_positions { shard.rows * 8 } else { 0 })?;
            let splitters = match owners {
                Owners::Hash => None,
                Owners::Ranges(splitters) => Some(stream.upload(bytemuck::cast_slice(splitters))?),
            };
            if shard.rows > 0 {
                let keys = shard.columns[0].values.as_ref().ok_or_else(|| Error::internal("rows without key words"))?;
                let params = RouteParams {
                    rows: shard.rows,
                    keys: Ptr::of(keys),
                    devices: self.streams.len() as u64,
                    counts: Ptr::of(&counts),
                    positions: Ptr::of(&places),
                    splitters: splitters.as_ref().map(Ptr::of),
                    is_wide: rows.columns[0].layout().width_bytes == 8,
                };
                let launch = Strides { shared_bytes: ROUTE_SHARED_BYTES, ..Strides::ROWS }.over(shard.rows, stream);
                self.launch(device, &kernels[device], launch, &params)?;
            }
            pending.push((counts, places));
        }
        let mut all = vec![];
        for (device, (counts, _)) in pending.iter().enumerate() {
            let mut words = [0u64; DEVICES_MAX];
            self.streams[device].read(counts, 0, bytemuck::cast_slice_mut(&mut words))?;
            all.push(words.to_vec());
        }
        Ok((all, pending.into_iter().map(|(_, places)| places).collect()))
    }

    /// Writes all columns to their owners. Runs of one source lie side by side at the owner, in the
    /// order of sources: their starts are prefix sums over the table of counts. A run for an owner that
    /// the source can't reach is written beside the source, and copied from there.
    fn transpose(
        &mut self,
        rows: &Intermediate,
        targets: &[IntermediateShard],
        counts: &[Vec<u64>],
        positions: &[Buffer],
    ) -> Result<()> {
        let module = exchange_module(self.options.hash_bits);
        for part in Part::all(rows) {
            let kernels = self.compile(&module, &format!("scatter_{}", part.width_bytes))?;
            let mut runs: Vec<Run> = vec![];
            for (device, shard) in rows.shards.iter().enumerate().filter(|(_, shard)| shard.rows > 0) {
                let stream = &self.streams[device];
                let source = part.of(shard).ok_or_else(|| Error::internal("a column without values"))?;
                let first_of = |owner: usize| {
                    let before: u64 = counts[..device].iter().map(|from| from[owner]).sum();
                    before * part.width_bytes
                };
                let own = runs.len();
                for (owner, _) in targets.iter().enumerate().filter(|(_, target)| part.of(target).is_some()) {
                    if !stream.device().can_reach(self.streams[owner].device()) {
                        let bytes = counts[device][owner] * part.width_bytes;
                        runs.push(Run { device, owner, first: first_of(owner), bytes, buffer: stream.alloc(bytes)? });
                    }
                }
                let target_of = |owner: usize| {
                    let run = runs[own..].iter().find(|run| run.owner == owner);
                    match (run, targets.get(owner).and_then(|target| part.of(target))) {
                        (Some(run), _) => Some(Ptr::of(&run.buffer)),
                        (None, Some(buffer)) => Some(Ptr::at(buffer, first_of(owner))),
                        (None, None) => None,
                    }
                };
                let params = ScatterParams {
                    rows: shard.rows,
                    source: Ptr::of(source),
                    positions: Ptr::of(&positions[device]),
                    targets: std::array::from_fn(target_of),
                };
                let launch = Strides::ROWS.over(shard.rows, stream);
                self.launch(device, &kernels[device], launch, &params)?;
                let sent: u64 =
                    (0..targets.len()).filter(|&owner| owner != device).map(|owner| counts[device][owner]).sum();
                self.metrics.exchanged_bytes += sent * part.width_bytes;
            }
            for Run { device, owner, first, bytes, buffer } in &runs {
                if let Some(target) = part.of(&targets[*owner]) {
                    self.copy_across((*device, buffer, 0), (*owner, target, *first), *bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// The rows of one column that a device has for another one, which it can't reach.
struct Run {
    device: usize,
    owner: usize,
    /// Where they belong in the owner's buffer, in bytes.
    first: u64,
    bytes: u64,
    buffer: Buffer,
}

fn exchange_module(hash_bits: u32) -> ModuleSource {
    let entries = [RouteParams::<()>::ENTRIES, ScatterParams::<()>::ENTRIES].concat();
    Constants { hash_bits, ..Constants::USUAL }.module(warpjoin_kernels::EXCHANGE, entries)
}
