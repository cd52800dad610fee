//! Exchange of rows between devices: by owner (multisplit and transposition), broadcast, or gathering of few rows.
//!
//! The host waits only for row counts; events order the work of several devices.

use warpjoin_codegen::Constants;
use warpjoin_columns::column::ColumnType;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Event, Kernel, Launch, ModuleSource, Ptr, Stream, span};
use warpjoin_kernels::common::DEVICES_MAX;
use warpjoin_kernels::exchange::{
    COLUMNS, Columns, CopyParams, CountParams, ITEMS, Route, RowsParams, TARGETS, rank_shared_bytes,
};

use super::launch::{Lane, Strides};
use super::metrics::PipelineMetrics;
use super::query::{Pending, Query};
use super::relation::{Intermediate, IntermediateColumn, IntermediateShard, Relation};
use super::rows::{allocate, row_bytes};

mod split;

pub(super) use split::{SplitKernels, split_by_ranges};

/// Maximum rows, and bytes of rows, that are gathered on one device: this is faster than an exchange.
const FEW_ROWS: u64 = 1 << 17;
const FEW_BYTES: u64 = 8 << 20;
/// Minimum bytes of a run for copy engines; kernels copy shorter runs to another device.
const COPY_BYTES_MIN: u64 = 1 << 20;
/// Blocks of a multiprocessor that send rows. The rows of each block are counted by owner, and the host sums the
/// counts.
const BLOCKS_EACH: u64 = 4;

/// Which device owns a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owners<'a> {
    /// By the hash of its key word, a u64.
    Hash,
    /// By the range of its key word, of 4 or 8 bytes: the device's index is the number of splitters that are not above
    /// the word.
    Splitters(&'a [u64]),
    /// Each device whose range (least and greatest word) contains its key word.
    Ranges(&'a [[u64; 2]]),
}

impl Owners<'_> {
    fn words(&self) -> &[u64] {
        match self {
            Self::Hash => &[],
            Self::Splitters(words) => words,
            Self::Ranges(ranges) => ranges.as_flattened(),
        }
    }
}

/// The values of a column, or its validity.
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
    fn all(columns: &[ColumnType]) -> Vec<Part> {
        let mut all = vec![];
        for (column, column_type) in columns.iter().enumerate() {
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

/// Row counts by source and owner, and the inputs of the kernel that sends the rows.
struct Counted {
    /// By source and owner.
    rows: Vec<Vec<u64>>,
    launches: Vec<Option<CountedShard>>,
}

struct CountedShard {
    launch: Launch,
    rows_each: u64,
    counts: Buffer,
    splitters: Option<Buffer>,
    ranges: Option<Buffer>,
}

/// A column's rows for a device whose memory the source can't reach.
struct Run {
    part: usize,
    owner: usize,
    bytes: u64,
    buffer: Buffer,
}

impl Query<'_> {
    /// A barrier between devices: work enqueued from now on runs after all work enqueued before, on any device. The
    /// host does not wait. Returns an event for each device, recorded before the barrier.
    pub(super) fn meet(&self) -> Result<Vec<Event>> {
        let _span = span(|| "meet");
        let reached = self.record_events()?;
        // The first device waits for all others, and these for it: calls of the driver are dear.
        if let ([first, others @ ..], [own, of_others @ ..]) = (&self.streams[..], &reached[..]) {
            of_others.iter().try_for_each(|event| first.wait(event))?;
            let met = if others.len() > 1 { first.record()? } else { own.clone() };
            others.iter().try_for_each(|other| other.wait(&met))?;
        }
        Ok(reached)
    }

    /// Whether rows of several devices are few enough to gather on one.
    pub(super) fn are_few(&self, columns: &[ColumnType], rows: u64) -> bool {
        rows <= self.options.few_rows.unwrap_or(FEW_ROWS) && rows.saturating_mul(row_bytes(columns)) <= FEW_BYTES
    }

    /// Copies the rows of all devices to each of `devices`.
    pub(super) fn broadcast_to(&mut self, rows: Intermediate, devices: &[usize]) -> Result<Intermediate> {
        self.copy_to(rows, devices, "Broadcast")
    }

    /// The devices where a relation has rows; the first device if there are no rows.
    pub(super) fn devices_with_rows(&self, relation: &Relation) -> Vec<usize> {
        let has_rows = |&device: &usize| relation.source.shard_rows(device) > 0;
        let devices: Vec<usize> = (0..self.devices()).filter(has_rows).collect();
        if devices.is_empty() { vec![0] } else { devices }
    }

    /// Copies of build rows for each probing device: those in its range of key words, or all if there are few rows or
    /// no ranges.
    pub(super) fn build_rows_for(&mut self, rows: &Intermediate, ranges: Option<&[[u64; 2]]>) -> Result<Intermediate> {
        let shards = match ranges {
            Some(ranges) if !self.are_few(&rows.columns, rows.rows()) => {
                self.exchanged(rows, Owners::Ranges(ranges))?
            }
            _ => {
                let all: Vec<usize> = (0..self.devices()).collect();
                self.copies(rows, &all, "Broadcast")?
            }
        };
        Ok(Intermediate::new(rows.columns.clone(), rows.rows_max, shards))
    }

    /// Gathers all rows on one device: the one that already has all of them, else the first.
    pub(super) fn gather(&mut self, rows: Intermediate) -> Result<Intermediate> {
        let home = rows.home();
        self.copy_to(rows, &[home.unwrap_or(0)], "Gather")
    }

    /// All rows on each of some devices, in the order of the devices that they come from.
    fn copy_to(&mut self, rows: Intermediate, targets: &[usize], name: &str) -> Result<Intermediate> {
        let is_there = rows.home().is_some_and(|home| targets == [home]);
        if self.devices() == 1 || is_there || rows.rows() == 0 {
            return Ok(rows);
        }
        let shards = self.copies(&rows, targets, name)?;
        Ok(Intermediate::new(rows.columns, rows.rows_max, shards))
    }

    /// As [`Self::copy_to`], keeping the source rows.
    fn copies(&mut self, rows: &Intermediate, targets: &[usize], name: &str) -> Result<Vec<IntermediateShard>> {
        let _span = span(|| name);
        let kernels = self.compile(&exchange_module(self.options.hash_bits), "exchange_copy")?;
        let total = rows.rows();
        let mut shards = vec![];
        for (device, stream) in self.streams.iter().enumerate() {
            let total = if targets.contains(&device) { total } else { 0 };
            shards.push(IntermediateShard { rows: total, ..allocate(stream, &rows.columns, total)? });
        }
        let waits = self.waits();
        // The rows are written, and there is room for them.
        let begun = self.meet()?;
        let parts = Part::all(&rows.columns);
        let reaches =
            |device: usize, target: usize| self.streams[device].device().can_reach(self.streams[target].device());
        let is_by_kernel = |device: usize, part: &Part| {
            let is_small = rows.shards[device].rows * part.width_bytes < COPY_BYTES_MIN;
            is_small && targets.iter().all(|&target| reaches(device, target))
        };
        let (by_kernel, by_copy): (Vec<Vec<Part>>, Vec<Vec<Part>>) =
            (0..self.devices()).map(|device| parts.iter().partition(|part| is_by_kernel(device, part))).unzip();
        let firsts: Vec<u64> =
            (0..self.devices()).map(|device| rows.shards[..device].iter().map(|s| s.rows).sum()).collect();
        // Devices begin with different sources, so that all links are in use.
        for step in 0..self.devices() {
            for &target in targets {
                let device = (target + step) % self.devices();
                let shard = &rows.shards[device];
                for part in &by_copy[device] {
                    if let (Some(from), Some(to)) = (part.of(shard), part.of(&shards[target])) {
                        let first = firsts[device] * part.width_bytes;
                        self.copy_across((device, from, 0), (target, to, first), shard.rows * part.width_bytes)?;
                    }
                }
            }
        }
        let mut sent_bytes = 0;
        for (device, shard) in rows.shards.iter().enumerate().filter(|(_, shard)| shard.rows > 0) {
            let others = targets.iter().filter(|&&target| target != device).count() as u64;
            sent_bytes += shard.rows * row_bytes(&rows.columns) * others;
            let to = (&shards[..], targets, firsts[device]);
            self.copy_by_kernel((device, &kernels[device]), shard, &by_kernel[device], to)?;
        }
        // The sources may go once they are read, which other devices do.
        let ended = self.meet()?;
        waits.leave();
        self.note_exchange(rows, &shards, name, sent_bytes, (begun, ended));
        Ok(shards)
    }

    /// Writes columns of a device's rows to others, from row `first` on.
    fn copy_by_kernel(
        &mut self,
        (device, kernel): (usize, &Kernel),
        shard: &IntermediateShard,
        parts: &[Part],
        (shards, targets, first): (&[IntermediateShard], &[usize], u64),
    ) -> Result<()> {
        let launch = Strides::ROWS.over(shard.rows, &self.streams[device]);
        for parts in parts.chunks(COLUMNS) {
            let target_of = |part: usize, owner: usize| {
                let target = targets.contains(&owner).then(|| parts[part].of(&shards[owner])).flatten()?;
                Some((target, first * parts[part].width_bytes))
            };
            let params = CopyParams { rows: shard.rows, columns: columns_of(parts, shard, target_of) };
            self.launch(device, kernel, launch, &params)?;
        }
        Ok(())
    }

    /// Sends every row to the device that owns the hash of its key word, which is column 0.
    pub(crate) fn exchange(&mut self, rows: Intermediate) -> Result<Intermediate> {
        self.exchange_by(rows, Owners::Hash)
    }

    /// Sends every row to the device or devices that own its key word, which is column 0.
    pub(super) fn exchange_by(&mut self, rows: Intermediate, owners: Owners<'_>) -> Result<Intermediate> {
        if self.devices() == 1 {
            return Ok(rows);
        }
        let shards = self.exchanged(&rows, owners)?;
        Ok(Intermediate::new(rows.columns, rows.rows_max, shards))
    }

    /// As [`Self::exchange`], but the key word only tells the owner: it is neither sent nor among the columns afterwards.
    pub(super) fn exchange_without_word(&mut self, rows: Intermediate) -> Result<Intermediate> {
        let mut shards = self.exchanged_from(&rows, Owners::Hash, 1)?;
        shards.iter_mut().for_each(|shard| drop(shard.columns.remove(0)));
        let columns = rows.columns[1..].to_vec();
        Ok(Intermediate::new(columns, rows.rows_max, shards))
    }

    /// As [`Self::exchange_by`], keeping the source rows.
    fn exchanged(&mut self, rows: &Intermediate, owners: Owners<'_>) -> Result<Vec<IntermediateShard>> {
        self.exchanged_from(rows, owners, 0)
    }

    /// As [`Self::exchanged`], with values of the columns from `first` on.
    fn exchanged_from(
        &mut self,
        rows: &Intermediate,
        owners: Owners<'_>,
        first: usize,
    ) -> Result<Vec<IntermediateShard>> {
        let _span = span(|| "exchange");
        self.options.check_cancelled()?;
        let counted = self.count_owners(rows, owners)?;
        let mut shards = vec![];
        for (owner, stream) in self.streams.iter().enumerate() {
            let total = counted.rows.iter().map(|from| from[owner]).sum();
            let mut shard = IntermediateShard { rows: total, ..allocate(stream, &rows.columns[first..], total)? };
            // Nothing is sent where an owner has no values.
            shard.columns.splice(0..0, (0..first).map(|_| IntermediateColumn::default()));
            shards.push(shard);
        }
        let waits = self.waits();
        // There is room at the owners.
        let begun = self.meet()?;
        let mut sent_bytes = 0;
        for (device, shard) in rows.shards.iter().enumerate() {
            if let Some(launch) = &counted.launches[device] {
                sent_bytes += self.send(device, (&rows.columns, shard), launch, (&shards, &counted.rows))?;
            }
        }
        // Whoever reads the rows comes after those that sent them.
        let ended = self.meet()?;
        waits.leave();
        self.note_exchange(rows, &shards, "Exchange", sent_bytes, (begun, ended));
        Ok(shards)
    }

    /// Counts the rows of each device by owner.
    fn count_owners(&mut self, rows: &Intermediate, owners: Owners<'_>) -> Result<Counted> {
        let kernels = self.compile(&exchange_module(self.options.hash_bits), "exchange_count")?;
        let devices = self.devices();
        let counted = self.on_each(|lane| {
            let shard = &rows.shards[lane.device];
            if shard.rows == 0 {
                return Ok((vec![0; devices], None));
            }
            let upload = || lane.stream.upload(bytemuck::cast_slice(owners.words())).map(Some);
            let (splitters, ranges) = match owners {
                Owners::Hash => (None, None),
                Owners::Splitters(_) => (upload()?, None),
                Owners::Ranges(_) => (None, upload()?),
            };
            let (launch, rows_each) = blocks_for(shard.rows, &lane.stream);
            let counts = lane.stream.alloc(u64::from(launch.blocks) * devices as u64 * 8)?;
            let counted = CountedShard { launch, rows_each, counts, splitters, ranges };
            let by_owner = count_shard(lane, &kernels[lane.device], (&rows.columns, shard, 0), &counted, devices)?;
            Ok((by_owner, Some(counted)))
        })?;
        let (rows, launches) = counted.into_iter().unzip();
        Ok(Counted { rows, launches })
    }

    /// Writes a device's rows to their owners; returns the bytes sent to other devices. At an owner, the runs of all
    /// sources are contiguous, in the order of sources; they begin at prefix sums over the table of counts. A run for
    /// an owner that the source can't reach is written to the source's memory, and copied from there.
    fn send(
        &mut self,
        device: usize,
        (columns, shard): (&[ColumnType], &IntermediateShard),
        counted: &CountedShard,
        (targets, counts): (&[IntermediateShard], &[Vec<u64>]),
    ) -> Result<u64> {
        let kernels = self.compile(&exchange_module(self.options.hash_bits), "exchange_rows")?;
        let stream = self.streams[device].clone();
        let devices = self.devices();
        let first_of = |owner: usize| counts[..device].iter().map(|from| from[owner]).sum::<u64>();
        let mut parts = Part::all(columns);
        parts.retain(|part| targets.iter().any(|target| part.of(target).is_some()));
        let mut runs: Vec<Run> = vec![];
        for owner in (0..devices).filter(|&owner| !stream.device().can_reach(self.streams[owner].device())) {
            for (part, width_bytes) in parts.iter().map(|part| part.width_bytes).enumerate() {
                let bytes = counts[device][owner] * width_bytes;
                runs.push(Run { part, owner, bytes, buffer: stream.alloc(bytes)? });
            }
        }
        for (number, some) in parts.chunks(COLUMNS).enumerate() {
            let target_of = |part: usize, owner: usize| {
                let run = runs.iter().find(|run| (run.part, run.owner) == (number * COLUMNS + part, owner));
                match run {
                    Some(run) => Some((&run.buffer, 0)),
                    None => some[part].of(targets.get(owner)?).map(|to| (to, first_of(owner) * some[part].width_bytes)),
                }
            };
            let params = RowsParams {
                route: route_of((columns, shard, 0), counted, devices)?,
                columns: columns_of(some, shard, target_of),
            };
            self.launch(device, &kernels[device], counted.launch, &params)?;
        }
        for Run { part, owner, bytes, buffer } in &runs {
            if let Some(target) = parts[*part].of(&targets[*owner]) {
                let first = first_of(*owner) * parts[*part].width_bytes;
                self.copy_across((device, buffer, 0), (*owner, target, first), *bytes)?;
            }
        }
        let sent = (0..devices).filter(|&owner| owner != device).map(|owner| counts[device][owner]);
        Ok(sent.sum::<u64>() * parts.iter().map(|part| part.width_bytes).sum::<u64>())
    }

    /// A line in the metrics.
    fn note_exchange(
        &mut self,
        rows: &Intermediate,
        shards: &[IntermediateShard],
        name: &str,
        sent_bytes: u64,
        (begun, ended): (Vec<Event>, Vec<Event>),
    ) {
        self.metrics.exchanged_bytes += sent_bytes;
        let spans = begun.into_iter().zip(ended).collect();
        self.pending.push(Pending::timed(self.metrics.pipelines.len(), spans));
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("Rows[{}] -> {name}", rows.columns.len()),
            rows_in: rows.rows(),
            rows_out: shards.iter().map(|shard| shard.rows).sum(),
            read_bytes: sent_bytes,
            ..PipelineMetrics::default()
        });
    }
}

/// The rows of a device by owner. Waits.
fn count_shard(
    lane: &mut Lane<'_>,
    kernel: &Kernel,
    rows: (&[ColumnType], &IntermediateShard, usize),
    counted: &CountedShard,
    owners: usize,
) -> Result<Vec<u64>> {
    let launch = Launch { shared_bytes: DEVICES_MAX as u32 * 4, ..counted.launch };
    lane.launch(kernel, launch, &CountParams { route: route_of(rows, counted, owners)? })?;
    let mut words = vec![0u64; launch.blocks as usize * owners];
    lane.stream.read(&counted.counts, 0, bytemuck::cast_slice_mut(&mut words))?;
    Ok((0..owners).map(|owner| words.iter().skip(owner).step_by(owners).sum()).collect())
}

/// Blocks that count rows by owner and send them, and the rows of each.
fn blocks_for(rows: u64, stream: &Stream) -> (Launch, u64) {
    let tiles = Strides { rows_each: ITEMS.into(), resident: BLOCKS_EACH, ..Strides::ROWS }.over(rows, stream);
    let tile_rows = u64::from(tiles.block_threads * ITEMS);
    let rows_each = rows.div_ceil(u64::from(tiles.blocks)).next_multiple_of(tile_rows);
    let blocks = rows.div_ceil(rows_each) as u32;
    (Launch { blocks, shared_bytes: rank_shared_bytes(tiles.block_threads), ..tiles }, rows_each)
}

/// The owners of a shard's rows, by the key word in one of its columns.
fn route_of<'b>(
    (columns, shard, key): (&[ColumnType], &'b IntermediateShard, usize),
    counted: &'b CountedShard,
    devices: usize,
) -> Result<Route<'b, Buffer>> {
    let keys = shard.columns[key].values.as_ref().ok_or_else(|| Error::internal("rows without key words"))?;
    Ok(Route {
        rows: shard.rows,
        rows_each: counted.rows_each,
        keys: Ptr::of(keys),
        is_wide: columns[key].layout().width_bytes == 8,
        ranges: counted.ranges.as_ref().map(Ptr::of),
        splitters: counted.splitters.as_ref().map(Ptr::of),
        devices: devices as u64,
        counts: Ptr::of(&counted.counts),
    })
}

/// Some parts of rows, with the buffer and byte offset where each begins on each device.
fn columns_of<'b>(
    parts: &[Part],
    shard: &'b IntermediateShard,
    target_of: impl Fn(usize, usize) -> Option<(&'b Buffer, u64)>,
) -> Columns<'b, Buffer> {
    let mut columns =
        Columns { count: parts.len() as u64, sources: [None; COLUMNS], widths: [0; COLUMNS], targets: [None; TARGETS] };
    for (number, part) in parts.iter().enumerate() {
        columns.sources[number] = part.of(shard).map(Ptr::of);
        columns.widths[number] = part.width_bytes;
        for owner in 0..DEVICES_MAX {
            columns.targets[number * DEVICES_MAX + owner] =
                target_of(number, owner).map(|(buffer, byte)| Ptr::at_byte(buffer, byte));
        }
    }
    columns
}

fn exchange_module(hash_bits: u32) -> ModuleSource {
    let file = warpjoin_kernels::EXCHANGE;
    Constants { hash_bits, ..Constants::USUAL }.module(file, file.entries())
}
