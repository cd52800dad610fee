//! The tables of a join: open addressing in slots of one or two words, slots indexed by the key, lists of rows
//! of duplicate keys.
//!
//! Must not know where the build rows come from, nor what probes the tables.

use std::sync::Arc;

use warpjoin_codegen::{Constants, DirectSlots, JoinShape, PayloadForm, Slots, WordSlots};
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_device::{Buffer, DeviceInfo, Kernel, ModuleSource, Ptr, Stream, span};
use warpjoin_kernels::common::{RESERVATION_BYTES, control, status};
use warpjoin_kernels::join::{BuildParams, DirectParams, FillParams, FilterParams, OffsetsParams, WordsParams};
use warpjoin_plan::optimize::costs::{LOAD_FACTOR, SLOT_BYTES, is_direct_small};
use warpjoin_plan::options::{ExecOptions, JoinForm};

use super::runtime_filter::filter_module;
use crate::exec::decision::RuntimeDecision;
use crate::exec::launch::{Lane, Strides};
use crate::exec::metrics::PipelineMetrics;
use crate::exec::query::{Query, check_status, read_report};
use crate::exec::relation::{BuildKeys, Intermediate, IntermediateShard, JoinShard, JoinTable};

/// Entries of `join_build.cu`.
const BUILD_ENTRIES: [&str; 9] = [
    "build_unique",
    "build_set",
    "build_count",
    "build_offsets",
    "build_fill",
    "build_direct_4",
    "build_direct_8",
    "build_words_4",
    "build_words_8",
];
/// The entries that build row lists, in execution order.
const LIST_ENTRIES: [&str; 3] = ["build_count", "build_offsets", "build_fill"];
/// Maximum bytes of a direct table that the options ask for.
const DIRECT_BYTES_MAX: u64 = 4 << 30;
/// Initial maximum of windows that an insert reads before it gives up.
const STEPS_MAX: u64 = 4096;

impl Query<'_> {
    /// Builds the hash tables over build rows (key word, then payload): for unique keys first, and with row lists if a
    /// key occurs twice on any device. A set allows duplicate keys.
    pub(crate) fn build_table(
        &mut self,
        mut shape: JoinShape,
        rows: Intermediate,
        keys: BuildKeys,
    ) -> Result<Arc<JoinTable>> {
        let _span = span(|| "table");
        let load_factor = self.options.load_factor.unwrap_or(LOAD_FACTOR).clamp(0.01, 0.99);
        let lanes = self.options.probe_group_lanes.unwrap_or_else(|| lanes_for(load_factor));
        let pairs = Slots::Pairs { lanes };
        let rows_max = rows.shards.iter().map(|shard| shard.rows).max().unwrap_or(0);
        if rows_max > u64::from(u32::MAX) {
            return Err(Reason::Limit(format!("{rows_max} build rows on one device")).into());
        }
        let mut spent = vec![0; self.devices()];
        let is_set = keys == BuildKeys::Set;
        let mut unique = None;
        if keys != BuildKeys::Repeated {
            shape.slots = self.unique_slots(&shape, &rows, rows_max, lanes, is_set);
            let mut build = TableBuild { rows: &rows, shape: &shape, lanes, is_set, load_factor, steps_max: STEPS_MAX };
            unique = match shape.slots {
                Slots::Direct(slots) => self.build_direct(&build, slots, &mut spent)?,
                Slots::Bits => Some(self.build_bits(&build, &mut spent)?),
                Slots::Words(slots) => match self.build_words(&mut build, slots, &mut spent)? {
                    WordTables::Made(shards) => Some(shards),
                    WordTables::RepeatedKey => None,
                    WordTables::TooLarge => {
                        shape.slots = pairs;
                        let mut build =
                            TableBuild { rows: &rows, shape: &shape, lanes, is_set, load_factor, steps_max: STEPS_MAX };
                        self.build_unique(&mut build, &mut spent)?
                    }
                },
                Slots::Pairs { .. } => self.build_unique(&mut build, &mut spent)?,
            };
        }
        shape.unique = unique.is_some();
        if !shape.unique {
            shape.slots = pairs;
        }
        self.note_decision(RuntimeDecision::Table { unique: shape.unique, slots: shape.slots });
        let shards = match unique {
            Some(shards) => shards,
            None => {
                let mut build =
                    TableBuild { rows: &rows, shape: &shape, lanes, is_set, load_factor, steps_max: STEPS_MAX };
                self.build_lists(&mut build, &mut spent)?
            }
        };
        let kernel_ns = spent.into_iter().max().unwrap_or(0);
        self.metrics.pipelines.push(PipelineMetrics {
            name: format!("BuildRows -> {}", shape.describe()),
            rows_in: rows.rows(),
            rows_out: rows.rows(),
            read_bytes: rows.rows() * 16,
            kernel_ns,
            ..PipelineMetrics::default()
        });
        Ok(Arc::new(JoinTable { shape: Arc::new(shape), shards, build: Arc::new(rows) }))
    }

    /// Slots of a table of unique keys, or of a set, for at most `rows_max` rows on a device.
    fn unique_slots(&self, shape: &JoinShape, rows: &Intermediate, rows_max: u64, lanes: u32, is_set: bool) -> Slots {
        if is_set && self.is_small_in_bits(shape, || rows_max) {
            return Slots::Bits;
        }
        if let Some(slots) = self.direct_slots(shape, || rows_max) {
            return Slots::Direct(slots);
        }
        let words = WordSlots::of(&shape.packing, &shape.payload, rows.rows_max);
        words.filter(|_| lanes == 1 && !shape.is_hashed()).map_or(Slots::Pairs { lanes }, Slots::Words)
    }

    /// Whether one bit for each possible key takes little memory, and only the existence of keys is needed.
    pub(super) fn is_small_in_bits(&self, shape: &JoinShape, rows_max: impl FnOnce() -> u64) -> bool {
        let is_free = self.options.join_form.is_none() && self.options.load_factor.is_none();
        let span = shape.packing.span().filter(|_| is_free && shape.payload.is_empty() && !shape.is_hashed());
        let l2_bytes = self.session.devices().iter().map(|device| device.info().l2_bytes).min().unwrap_or(0);
        span.is_some_and(|span| is_direct_small(span as f64 / 8.0, l2_bytes as f64, || rows_max() as f64))
    }

    /// Slots of a table indexed by the packed key, if it takes not much more memory than hashing: one access finds a
    /// key, and rows clustered by key access neighboring slots.
    pub(super) fn direct_slots(&self, shape: &JoinShape, rows_max: impl FnOnce() -> u64) -> Option<DirectSlots> {
        let is_asked = match self.options.join_form {
            Some(JoinForm::Direct) => true,
            None if self.options.load_factor.is_none() => false,
            _ => return None,
        };
        let slots = DirectSlots::of(&shape.payload);
        let span = shape.packing.span().filter(|_| !shape.is_hashed())?;
        let bytes = span.checked_mul(slots.bytes.into())?;
        let least = |of: fn(&DeviceInfo) -> u64| {
            self.session.devices().iter().map(|device| of(device.info())).min().unwrap_or(0)
        };
        let l2_bytes = least(|info| info.l2_bytes);
        // A query may have several tables.
        let budgets = self.streams.iter().map(Stream::budget_bytes);
        let asked_bytes_max = DIRECT_BYTES_MAX.min(budgets.min().unwrap_or(0) / 8);
        let is_small = is_direct_small(bytes as f64, l2_bytes as f64, || rows_max() as f64);
        (is_small || (is_asked && bytes <= asked_bytes_max)).then_some(slots)
    }

    /// Tables indexed by the packed key; `None` when a key occurs twice.
    fn build_direct(
        &mut self,
        build: &TableBuild<'_>,
        slots: DirectSlots,
        spent: &mut [u64],
    ) -> Result<Option<Vec<JoinShard>>> {
        let module = build_module(1, self.options.hash_bits);
        let kernels = self.compile(&module, &format!("build_direct_{}", slots.bytes))?;
        let span = build.shape.packing.span().unwrap_or(0);
        let table_bytes = |_: u64| span * u64::from(slots.bytes);
        let (tables, bits) = self.fill_tables(build, table_bytes, spent, |lane, rows, keys, (table, control)| {
            let words = rows.columns.get(1).and_then(|column| column.values.as_ref());
            let params = DirectParams {
                rows: rows.rows,
                keys: Ptr::of(keys),
                values: words.filter(|_| slots.holds_payload).map(Ptr::of),
                slots: Ptr::of(table),
                control: Ptr::of(control),
            };
            let launch = Strides::ROWS.over(rows.rows, &lane.stream);
            lane.launch(&kernels[lane.device], launch, &params)
        })?;
        let is_unique = bits & status::DUPLICATE == 0;
        let shard = |slots| JoinShard { slots, windows: span, row_list: None, bounds: None };
        Ok((build.is_set || is_unique).then(|| tables.into_iter().map(shard).collect()))
    }

    /// A bit for each key.
    fn build_bits(&mut self, build: &TableBuild<'_>, spent: &mut [u64]) -> Result<Vec<JoinShard>> {
        let kernels = self.compile(&filter_module(self.options.hash_bits), "fill_bitmap")?;
        let span = build.shape.packing.span().unwrap_or(0);
        let table_bytes = |_: u64| build.shape.packing.bitmap_bytes();
        let (tables, _) = self.fill_tables(build, table_bytes, spent, |lane, rows, keys, (table, _)| {
            let params = FilterParams {
                rows: rows.rows,
                keys: Ptr::of(keys),
                words: Some(Ptr::of(table)),
                count: 0,
                bounds: None,
            };
            lane.launch(&kernels[lane.device], Strides::ROWS.over(rows.rows, &lane.stream), &params)
        })?;
        let shard = |slots| JoinShard { slots, windows: span, row_list: None, bounds: None };
        Ok(tables.into_iter().map(shard).collect())
    }

    /// Clears a table on each device, and fills it if the device has rows. `table_bytes` gives its size for a number of
    /// rows. Waits, returns the status bits raised on any device, and adds the time of each device, in ns, to `spent`.
    fn fill_tables(
        &mut self,
        build: &TableBuild<'_>,
        table_bytes: impl Fn(u64) -> u64 + Sync,
        spent: &mut [u64],
        fill: impl Fn(&mut Lane<'_>, &IntermediateShard, &Buffer, (&Buffer, &Buffer)) -> Result<()> + Sync,
    ) -> Result<(Vec<Buffer>, u64)> {
        let shards = &build.rows.shards;
        let filled = self.on_each(|lane| {
            let rows = &shards[lane.device];
            let begin = lane.stream.record()?;
            let table = lane.stream.alloc_filled(table_bytes(rows.rows), 0)?;
            let Some(keys) = &rows.columns[0].values else { return Ok((table, 0, 0)) };
            let control = lane.stream.alloc_filled(control::BYTES, 0)?;
            fill(lane, rows, keys, (&table, &control))?;
            let end = lane.stream.record()?;
            let bits = read_report(&lane.stream, &control)?.status;
            lane.note_kernel(&begin, &end)?;
            Ok((table, bits, lane.work.kernel_ns))
        })?;
        let (mut tables, mut all_bits) = (vec![], 0);
        for ((table, bits, ns), spent) in filled.into_iter().zip(spent) {
            tables.push(table);
            all_bits |= bits;
            *spent += ns;
        }
        check_status(all_bits)?;
        Ok((tables, all_bits))
    }

    /// Tables of unique keys in slots of one word.
    fn build_words(&mut self, build: &mut TableBuild<'_>, slots: WordSlots, spent: &mut [u64]) -> Result<WordTables> {
        let module = build_module(1, self.options.hash_bits);
        let kernels = self.compile(&module, &format!("build_words_{}", slots.bytes))?;
        loop {
            self.options.check_cancelled()?;
            let counts = build.rows.shards.iter().map(|rows| build.windows(rows.rows, self.options.first_capacity));
            if counts.max().unwrap_or(0) > self.options.word_slots_max.unwrap_or(WORD_SLOTS_MAX) {
                return Ok(WordTables::TooLarge);
            }
            let trial = &*build;
            let first_capacity = self.options.first_capacity;
            let table_bytes = |rows| (trial.windows(rows, first_capacity) + 1) * u64::from(slots.bytes);
            let (tables, bits) =
                self.fill_tables(trial, table_bytes, spent, |lane, rows, keys, (table, control)| {
                    let (values, has_row_numbers) = match &trial.shape.payload {
                        PayloadForm::Packed(_) => {
                            (rows.columns.get(1).and_then(|column| column.values.as_ref()), false)
                        }
                        PayloadForm::Columns(_) => (None, true),
                    };
                    let count = trial.windows(rows.rows, first_capacity);
                    let params = WordsParams {
                        rows: rows.rows,
                        keys: Ptr::of(keys),
                        values: values.map(Ptr::of),
                        has_row_numbers,
                        is_set: trial.is_set,
                        key_bits: slots.key_bits.into(),
                        slots: Ptr::of(table),
                        count,
                        steps_max: trial.steps_max.min(count),
                        control: Ptr::of(control),
                        cancel: lane.cancel_word().address(),
                    };
                    let launch = Strides::ROWS.over(rows.rows, &lane.stream);
                    lane.launch(&kernels[lane.device], launch, &params)
                })?;
            match bits {
                bits if bits & status::DUPLICATE != 0 => return Ok(WordTables::RepeatedKey),
                bits if bits & status::FULL == 0 => {
                    let counts = build.rows.shards.iter().map(|rows| build.windows(rows.rows, first_capacity));
                    let shard = |(slots, windows)| JoinShard { slots, windows, row_list: None, bounds: None };
                    return Ok(WordTables::Made(tables.into_iter().zip(counts).map(shard).collect()));
                }
                _ => build.grow()?,
            }
        }
    }

    /// Tables of unique keys; `None` when a key occurs twice.
    fn build_unique(&mut self, build: &mut TableBuild<'_>, spent: &mut [u64]) -> Result<Option<Vec<JoinShard>>> {
        let entry = if build.is_set { "build_set" } else { "build_unique" };
        let kernels = self.compile(&build_module(build.lanes, self.options.hash_bits), entry)?;
        loop {
            let (shards, bits) = self.insert_all(build, &kernels, true, spent)?;
            if bits & status::DUPLICATE != 0 {
                return Ok(None);
            }
            if bits & status::FULL == 0 {
                return Ok(Some(shards));
            }
            build.grow()?;
        }
    }

    /// Tables of keys with row lists: the rows of each key are contiguous.
    fn build_lists(&mut self, build: &mut TableBuild<'_>, spent: &mut [u64]) -> Result<Vec<JoinShard>> {
        let module = build_module(build.lanes, self.options.hash_bits);
        let [count, offsets, fill] = self.compile_all(LIST_ENTRIES.map(|entry| (&module, entry)))?;
        let mut shards = loop {
            let (shards, bits) = self.insert_all(build, &count, false, spent)?;
            if bits & status::FULL == 0 {
                break shards;
            }
            build.grow()?;
        };
        let (counted, build) = (&shards, &*build);
        let lists = self.on_each(|lane| {
            let (rows, shard) = (&build.rows.shards[lane.device], &counted[lane.device]);
            let slot_count = shard.windows * u64::from(build.lanes);
            let list = lane.stream.alloc(rows.rows.max(1) * 4)?;
            // A table without rows has no lists.
            let Some(keys) = &rows.columns[0].values else { return Ok((list, 0)) };
            let begin = lane.stream.record()?;
            let control = lane.stream.alloc_filled(control::BYTES, 0)?;
            let params = OffsetsParams { slot_count, slots: Ptr::of(&shard.slots), control: Ptr::of(&control) };
            let launch = Strides { shared_bytes: RESERVATION_BYTES, ..Strides::ROWS }.over(slot_count, &lane.stream);
            lane.launch(&offsets[lane.device], launch, &params)?;
            let params = FillParams {
                rows: rows.rows,
                keys: Ptr::of(keys),
                slots: Ptr::of(&shard.slots),
                windows: shard.windows,
                row_list: Ptr::of(&list),
                control: Ptr::of(&control),
                cancel: lane.cancel_word().address(),
            };
            let launch = Strides::ROWS.over(rows.rows, &lane.stream);
            lane.launch(&fill[lane.device], launch, &params)?;
            let end = lane.stream.record()?;
            lane.stream.synchronize()?;
            lane.note_kernel(&begin, &end)?;
            Ok((list, lane.work.kernel_ns))
        })?;
        // A cancelled kernel leaves lists unfinished.
        self.options.check_cancelled()?;
        for ((shard, spent), (list, ns)) in shards.iter_mut().zip(spent).zip(lists) {
            shard.row_list = Some(list);
            *spent += ns;
        }
        Ok(shards)
    }

    /// Clears tables and inserts all build rows on all devices.
    fn insert_all(
        &mut self,
        build: &TableBuild<'_>,
        kernels: &[Kernel],
        with_values: bool,
        spent: &mut [u64],
    ) -> Result<(Vec<JoinShard>, u64)> {
        self.options.check_cancelled()?;
        let windows_of = |rows, options: &ExecOptions| build.windows(rows, options.first_capacity);
        let options = self.options;
        let table_bytes = |rows| windows_of(rows, options) * u64::from(build.lanes) * SLOT_BYTES;
        let (tables, bits) = self.fill_tables(build, table_bytes, spent, |lane, rows, keys, (slots, control)| {
            // Values go into slots for unique keys with packed payload; else the row number does.
            let values = match &build.shape.payload {
                PayloadForm::Packed(_) if with_values => rows.columns.get(1).and_then(|c| c.values.as_ref()),
                _ => None,
            };
            let windows = windows_of(rows.rows, options);
            let params = BuildParams {
                rows: rows.rows,
                keys: Ptr::of(keys),
                values: values.map(Ptr::of),
                slots: Ptr::of(slots),
                windows,
                steps_max: build.steps_max.min(windows),
                control: Ptr::of(control),
                cancel: lane.cancel_word().address(),
            };
            let launch = Strides::ROWS.over(rows.rows, &lane.stream);
            lane.launch(&kernels[lane.device], launch, &params)
        })?;
        let windows = build.rows.shards.iter().map(|rows| windows_of(rows.rows, options));
        let shard = |(slots, windows)| JoinShard { slots, windows, row_list: None, bounds: None };
        Ok((tables.into_iter().zip(windows).map(shard).collect(), bits))
    }
}

/// Maximum slots of one word: kernels number them in 32 bits, including the slot after the last one
/// (`word_home` in `kernels/join/key_table.cuh`).
const WORD_SLOTS_MAX: u64 = u32::MAX as u64;

/// Result of building tables with slots of one word.
enum WordTables {
    Made(Vec<JoinShard>),
    /// A key occurs twice.
    RepeatedKey,
    /// A table has more than [`WORD_SLOTS_MAX`] slots, or would have after growing.
    TooLarge,
}

/// Inputs of a table build, and how far the table has grown.
struct TableBuild<'a> {
    rows: &'a Intermediate,
    shape: &'a JoinShape,
    lanes: u32,
    is_set: bool,
    load_factor: f64,
    steps_max: u64,
}

impl TableBuild<'_> {
    /// Windows of a table for `rows` keys.
    fn windows(&self, rows: u64, first_capacity: Option<u64>) -> u64 {
        // A first guess that is too small, grown as often as the table was full.
        let guess = first_capacity.filter(|_| self.steps_max == STEPS_MAX);
        windows_for(rows, self.load_factor, self.lanes, guess)
    }

    /// Grows after a full table: half the load factor, and longer probes.
    fn grow(&mut self) -> Result<()> {
        self.load_factor /= 2.0;
        self.steps_max = self.steps_max.saturating_mul(16);
        if self.load_factor < 1e-3 {
            return Err(Error::kernel_bound("a hash table is still full after the last retry"));
        }
        Ok(())
    }
}

/// Number of windows of `lanes` slots for `rows` keys at a load factor; `guess`: maximum slots.
fn windows_for(rows: u64, load_factor: f64, lanes: u32, guess: Option<u64>) -> u64 {
    let asked = (rows as f64 / load_factor).ceil() as u64;
    guess.map_or(asked, |guess| guess.min(asked)).max(32).div_ceil(u64::from(lanes))
}

/// Lanes of a probe group by load factor: more lanes pay when probes are long.
fn lanes_for(load_factor: f64) -> u32 {
    match load_factor {
        f if f <= 0.7 => 1,
        f if f <= 0.8 => 2,
        _ => 4,
    }
}

fn build_module(lanes: u32, hash_bits: u32) -> ModuleSource {
    Constants { hash_bits, lanes }.module(warpjoin_kernels::JOIN_BUILD, BUILD_ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sized_by_load_factor_lanes_and_guess() {
        assert_eq!(windows_for(0, 0.5, 1, None), 32);
        assert_eq!(windows_for(1000, 0.5, 1, None), 2000);
        assert_eq!(windows_for(1000, 0.5, 32, None), 63);
        assert_eq!(windows_for(1000, 0.5, 1, Some(40)), 40);
        assert_eq!(windows_for(1000, 0.5, 1, Some(1 << 40)), 2000);
    }

    #[test]
    fn the_most_rows_of_slots_of_a_word() {
        let fits = |rows: u64, load_factor: f64| windows_for(rows, load_factor, 1, None) <= WORD_SLOTS_MAX;
        assert!(fits(0x7fff_ffff, 0.5) && !fits(0x8000_0000, 0.5));
        // After a table was full.
        assert!(fits(0x3fff_ffff, 0.25) && !fits(0x4000_0000, 0.25));
        assert!(!fits(u64::from(u32::MAX), 0.7) && !fits(u64::MAX, 0.5));
        // The slot behind the last one has a number of 32 bits.
        assert!(u32::try_from(WORD_SLOTS_MAX).is_ok() && u32::try_from(WORD_SLOTS_MAX + 1).is_err());
    }
}
