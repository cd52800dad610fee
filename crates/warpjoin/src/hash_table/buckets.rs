//! The buckets of a hash table on its device: how they are allocated, filled, probed and exported.

use warpjoin_codegen::{BucketShape, FixedModule, SlotForm};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Kernel, Launch, Ptr};
use warpjoin_kernels::common::RESERVATION_BYTES;
use warpjoin_kernels::table::{
    BuildParams, EraseParams, ExportParams, FOUND_ROWS, FindParams, InsertParams, KeyBins, ProbeParams,
};
use warpjoin_kernels::{KernelParams, table};

use super::device::{Report, TableDevice};
use super::partitioned::PartitionedWords;
use super::segments::Segments;
use crate::exec::partition::RowWords;

/// Bytes of the entry of key 0, which lies outside the slots.
const SIDE_BYTES: u64 = 16;

/// Buckets, and how keys are mapped to them.
#[derive(Debug)]
pub(super) struct Buckets {
    pub form: SlotForm,
    pub shape: BucketShape,
    pub segments: Segments,
    pub seed: u64,
    hash_bits: u32,
    /// The slots; from `passed_at`, one byte for each bucket; from `side_at`, the entry of key 0: its presence and
    /// value.
    memory: Buffer,
    passed_at: u64,
    side_at: u64,
    /// Slots were freed.
    has_gaps: bool,
}

/// What an insert does with a key that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// The key keeps its value.
    Keep,
    /// The key gets the new value.
    Assign,
}

/// Keys to probe, whose results may come in any order.
#[derive(Clone, Copy)]
pub(super) enum ProbedKeys<'a> {
    AsTheyAre(&'a RowWords<'a>),
    /// Partitioned by bits of their hashes, with the rounds of a block.
    Partitioned(&'a PartitionedWords, u64),
}

/// Bins of partitioned keys.
#[derive(Clone, Copy)]
struct Bins<'a> {
    /// Keys in each.
    rows: &'a Buffer,
    room: u64,
    blocks_each: u64,
    /// 2^bits bins.
    bits: u32,
}

impl<'a> Bins<'a> {
    fn params(self) -> KeyBins<'a, Buffer> {
        KeyBins { rows: Ptr::of(self.rows), room: self.room, blocks: self.blocks_each }
    }
}

/// Output buffers of a lookup.
#[derive(Debug, Default)]
pub(super) struct FindOutputs<'a> {
    /// For each key, the value or the number of the stored row (8 bytes).
    pub values: Option<&'a Buffer>,
    /// For each key, the position of its slot (8 bytes), instead of `values`.
    pub places: Option<&'a Buffer>,
    /// For each key, a bit: whether it was found.
    pub bits: Option<&'a Buffer>,
    /// For each key, a byte: whether it was found.
    pub bytes: Option<&'a Buffer>,
}

impl Buckets {
    /// Empty buckets. Their content is undefined unless cleared; a build then writes all of it.
    pub(super) fn new(
        device: &TableDevice,
        form: SlotForm,
        shape: BucketShape,
        segments: Segments,
        (seed, hash_bits): (u64, u32),
        is_cleared: bool,
    ) -> Result<Self> {
        let buckets = segments.buckets();
        if buckets > u64::from(u32::MAX) {
            return Err(warpjoin_columns::Reason::Limit(format!("{buckets} buckets of a hash table")).into());
        }
        let passed_at = buckets * u64::from(shape.bytes);
        let side_at = (passed_at + buckets).next_multiple_of(16);
        let bytes = side_at + SIDE_BYTES;
        let memory = if is_cleared { device.stream.alloc_filled(bytes, 0)? } else { device.stream.alloc(bytes)? };
        if !is_cleared {
            device.stream.fill(&memory, side_at, SIDE_BYTES, 0)?;
        }
        Ok(Self { form, shape, segments, seed, hash_bits, memory, passed_at, side_at, has_gaps: false })
    }

    /// Number of slots, without the entry of key 0.
    pub(super) fn slot_count(&self) -> u64 {
        self.segments.buckets() * self.slots_of_bucket()
    }

    fn slots_of_bucket(&self) -> u64 {
        u64::from(self.shape.bytes / self.form.slot_bytes())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    pub(super) fn clear(&mut self, device: &TableDevice) -> Result<()> {
        device.stream.fill(&self.memory, 0, self.memory.bytes(), 0)?;
        self.has_gaps = false;
        Ok(())
    }

    fn kernel(&self, device: &TableDevice, entry: &'static str) -> Result<Kernel> {
        device.kernel(FixedModule::Table(self.form, self.shape, self.hash_bits), entry)
    }

    /// Kernel parameters; `stored` are the rows that slots refer to.
    fn params<'a>(&'a self, stored: &RowWords<'a>) -> table::Buckets<'a, Buffer> {
        table::Buckets {
            slots: Ptr::of(&self.memory),
            passed: Ptr::at_byte(&self.memory, self.passed_at),
            segment_bits: self.segments.bits.into(),
            segment_buckets: self.segments.buckets_each,
            seed: self.seed,
            has_gaps: self.has_gaps,
            side: Ptr::at_byte(&self.memory, self.side_at),
            rows: stored.params(),
        }
    }

    /// Keys that a lane loads at once (`LANE_KEYS`).
    fn lane_keys(&self) -> u64 {
        u64::from((4 / self.shape.lanes).max(1))
    }

    /// Shared memory for the queues of a block's warps (`QUEUE_KEYS` of `QueuedKey`).
    fn queue_bytes(&self, device: &TableDevice) -> u32 {
        let queued_key_bytes = if self.form.key_bytes == 4 { 12 } else { 16 };
        device.block_threads() / 32 * 32 * (self.lane_keys() as u32 + 1) * queued_key_bytes
    }

    /// Inserts rows `first_row..first_row + count`, and reports the number of new keys. `places` receives the slot of
    /// each row's key. `is_empty`: the table has no key yet.
    pub(super) fn insert(
        &self,
        device: &TableDevice,
        rows: &RowWords<'_>,
        (first_row, count): (u64, u64),
        (existing, is_empty): (Existing, bool),
        places: Option<&Buffer>,
    ) -> Result<Report> {
        let control = device.control()?;
        let params = InsertParams {
            table: self.params(rows),
            rows: rows.params(),
            first_row,
            count,
            assigns: existing == Existing::Assign,
            control: Ptr::of(&control),
            places: places.map(Ptr::of),
        };
        let claims = is_empty && places.is_none() && !self.form.holds_rows();
        let kernel = self.kernel(device, if claims { "claim_rows" } else { "insert_rows" })?;
        device.launch_rows(&kernel, count, 4, 0, &params)?;
        device.report(&control)
    }

    /// Fills the buckets from rows partitioned by segment, and reports the number of keys.
    pub(super) fn build(&self, device: &TableDevice, rows: &PartitionedWords) -> Result<Report> {
        let words = rows.row_words(self.seed);
        let control = device.control()?;
        let params = BuildParams {
            table: self.params(&words),
            rows: words.params(),
            offsets: Ptr::of(&rows.offsets),
            bin_rows: rows.bin_rows,
            late_max: self.segments.late_max(self.form, self.shape).into(),
            control: Ptr::of(&control),
        };
        let launch = Launch {
            blocks: 1 << self.segments.bits,
            block_threads: device.info().block_threads(self.segments.block_threads(self.form, self.shape)),
            shared_bytes: self.segments.shared_bytes(self.form, self.shape),
        };
        device.launch(&self.kernel(device, "build_segments")?, launch, &params)?;
        device.report(&control)
    }

    /// Looks keys up in row order, and reports the number found.
    pub(super) fn find(
        &self,
        device: &TableDevice,
        wanted: &RowWords<'_>,
        stored: &RowWords<'_>,
        count: u64,
        outputs: &FindOutputs<'_>,
    ) -> Result<Report> {
        let control = device.control()?;
        let params = self.find_params(wanted, stored, count, (outputs, &control), None);
        let kernel = self.kernel(device, "find_rows")?;
        device.launch_rows(&kernel, count, self.lane_keys(), self.queue_bytes(device), &params)?;
        device.report(&control)
    }

    /// Looks partitioned keys up, and outputs the results in the original order of the keys. Reports the number found,
    /// and `is_full` if a bin overflowed, so that results are missing.
    pub(super) fn find_partitioned(
        &self,
        device: &TableDevice,
        wanted: &PartitionedWords,
        count: u64,
        rounds: u64,
        outputs: &FindOutputs<'_>,
    ) -> Result<Report> {
        let control = device.control()?;
        let is_wide = outputs.places.is_some() || self.form.value_bytes == 8;
        let value_bytes = if is_wide { 8 } else { 4 };
        let puts_values = outputs.values.is_some() || outputs.places.is_some();
        let values = puts_values.then(|| device.alloc(wanted.room * value_bytes)).transpose()?;
        let puts_bits = outputs.bits.is_some() || outputs.bytes.is_some();
        let bits = puts_bits.then(|| device.alloc_bits(wanted.room)).transpose()?;
        let by_place = FindOutputs {
            values: outputs.values.and(values.as_ref()),
            places: outputs.places.and(values.as_ref()),
            bits: bits.as_ref(),
            bytes: None,
        };
        let words = wanted.row_words(self.seed);
        let bins = self.bins(device, wanted, rounds);
        let params = self.find_params(&words, &words, count, (&by_place, &control), bins);
        let kernel = self.kernel(device, "find_bins")?;
        self.launch_keys(device, &kernel, (count, bins), self.queue_bytes(device), &params)?;
        device.restore(wanted, count, (&by_place, is_wide), outputs, &control)?;
        device.report(&control)
    }

    fn find_params<'a>(
        &'a self,
        wanted: &RowWords<'a>,
        stored: &RowWords<'a>,
        count: u64,
        (outputs, control): (&FindOutputs<'a>, &'a Buffer),
        bins: Option<Bins<'a>>,
    ) -> FindParams<'a, Buffer> {
        FindParams {
            table: self.params(stored),
            wanted: wanted.params(),
            count,
            values: outputs.places.or(outputs.values).map(Ptr::of),
            found: outputs.bits.map(Ptr::of),
            found_bytes: outputs.bytes.map(Ptr::of),
            wants_places: outputs.places.is_some(),
            control: Ptr::of(control),
            bins: bins.map(Bins::params),
        }
    }

    /// The bins of partitioned keys, if they are in bins.
    fn bins<'a>(&self, device: &TableDevice, keys: &'a PartitionedWords, rounds: u64) -> Option<Bins<'a>> {
        let block_rows = u64::from(device.block_threads()) * self.lane_keys() * rounds;
        let blocks_each = keys.bin_rows.div_ceil(block_rows);
        (keys.bin_rows > 0).then_some(Bins { rows: &keys.offsets, room: keys.bin_rows, blocks_each, bits: keys.bits })
    }

    /// Launches a lookup kernel over rows or over bins.
    fn launch_keys(
        &self,
        device: &TableDevice,
        kernel: &Kernel,
        (count, bins): (u64, Option<Bins<'_>>),
        shared_bytes: u32,
        params: &impl KernelParams<Buffer>,
    ) -> Result<()> {
        let Some(bins) = bins else { return device.launch_rows(kernel, count, self.lane_keys(), shared_bytes, params) };
        let blocks = u32::try_from(bins.blocks_each << bins.bits).unwrap_or(u32::MAX);
        device.launch(kernel, Launch { blocks, block_threads: device.block_threads(), shared_bytes }, params)
    }

    /// Looks keys up, and outputs the found ones with their values, in any order. Reports their number, and `is_full`
    /// if a bin of the partitioned keys overflowed, so that results are missing.
    pub(super) fn probe(
        &self,
        device: &TableDevice,
        wanted: &ProbedKeys<'_>,
        count: u64,
        keys: &Buffer,
        values: &Buffer,
    ) -> Result<Report> {
        let control = device.control()?;
        let (words, bins) = match wanted {
            ProbedKeys::AsTheyAre(words) => ((*words).clone(), None),
            ProbedKeys::Partitioned(rows, rounds) => (rows.row_words(self.seed), self.bins(device, rows, *rounds)),
        };
        let params = ProbeParams {
            table: self.params(&words),
            wanted: words.params(),
            count,
            bins: bins.map(Bins::params),
            keys: Ptr::of(keys),
            values: Ptr::of(values),
            control: Ptr::of(&control),
        };
        let kernel = self.kernel(device, "probe_rows")?;
        // A value on its way (`ValueWord`).
        let value_bytes = if self.form.value_bytes == 4 { 4 } else { 8 };
        let found_bytes = device.block_threads() / 32 * FOUND_ROWS * (self.form.key_bytes + value_bytes);
        self.launch_keys(device, &kernel, (count, bins), found_bytes + self.queue_bytes(device), &params)?;
        device.report(&control)
    }

    /// Frees the slots of keys, and reports the number of keys that were found.
    pub(super) fn erase(
        &mut self,
        device: &TableDevice,
        wanted: &RowWords<'_>,
        stored: &RowWords<'_>,
        count: u64,
    ) -> Result<u64> {
        let control = device.control()?;
        // Slots become free while others search.
        let had_gaps = std::mem::replace(&mut self.has_gaps, true);
        let params =
            EraseParams { table: self.params(stored), wanted: wanted.params(), count, control: Ptr::of(&control) };
        let kernel = self.kernel(device, "erase_rows")?;
        device.launch_rows(&kernel, count, self.lane_keys(), self.queue_bytes(device), &params)?;
        let erased = device.report(&control)?.rows;
        self.has_gaps = had_gaps || erased > 0;
        Ok(erased)
    }

    /// Keys and values (or, in `values`, the numbers of stored rows) of all `len` keys, in any order.
    pub(super) fn export(&self, device: &TableDevice, len: u64) -> Result<(Option<Buffer>, Buffer)> {
        let control = device.control()?;
        let (key_bytes, value_bytes) = match self.form.key_bytes {
            0 => (0, 8),
            bytes => (u64::from(bytes), u64::from(self.form.value_bytes)),
        };
        let keys = (key_bytes > 0).then(|| device.alloc(len * key_bytes)).transpose()?;
        let values = device.alloc(len * value_bytes)?;
        let places = self.slot_count() + 1;
        let none = RowWords { columns: vec![], key_masks: vec![], seed: 0, validity: None };
        let params = ExportParams {
            table: self.params(&none),
            places,
            rows_max: len,
            keys: keys.as_ref().map(Ptr::of),
            values: Ptr::of(&values),
            control: Ptr::of(&control),
        };
        device.launch_rows(&self.kernel(device, "export_slots")?, places, 4, RESERVATION_BYTES, &params)?;
        let exported = device.report(&control)?.rows;
        if exported != len {
            return Err(Error::internal(format!("{exported} keys in a hash table of {len}")));
        }
        Ok((keys, values))
    }
}
