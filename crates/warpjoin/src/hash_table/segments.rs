//! The segments of a hash table, and rows partitioned by them: so that a block builds one in shared memory.

use warpjoin_device::{Arg, Buffer, DeviceInfo, Launch};

use super::device::TableDevice;
use super::slots::{BucketShape, SlotForm, TableModule};
use crate::Result;
use crate::codegen::{PARTITION_THREADS_FEW, PARTITION_THREADS_MANY};
use crate::exec::partition::{
    PARTITION_BITS_MAX, PASS_SINGLE, PassBits, TileLaunch, one_block, partition_launch, pointers,
};
use crate::exec::row_words::{RowWords, WordColumn};

/// Equal runs of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segments {
    /// 2^bits segments.
    pub bits: u32,
    pub buckets_each: u64,
}

/// Room of a segment beyond the mean, in spreads of its keys: one of a million segments gets more.
const SEGMENT_SPREADS: f64 = 4.7;
/// Bytes of shared memory a thread of a build: with more threads, registers would keep the blocks of a multiprocessor few.
const BYTES_PER_THREAD: u32 = 256;
/// Threads of a block of a build (the bound of `build_segments`).
const BUILD_THREADS_MAX: u32 = 512;
/// Of shared memory, by the driver, a block.
const RESERVED_BYTES: u64 = 1024;
/// Smaller segments than this vary too much in fill.
const SEGMENT_BYTES_MIN: u64 = 24 << 10;
/// Keys up to which tiles of a pass are small: there are too few for large ones to fill the device.
const FEW_ROWS: u64 = 1 << 22;
/// Threads of a block that moves a small tile.
const SMALL_TILE_THREADS: u32 = 128;
/// Counters, and what alignment takes, beside buckets and late rows.
const SHARED_BYTES_BESIDE: u32 = 16;
/// Most bits of bins: with more, runs get short.
const BIN_BITS_MAX: u32 = 10;
/// One of so many slots' rows may find its home bucket full before a build takes longer: at a load factor of 0.95 one of
/// 8 does.
const SLOTS_PER_LATE: u32 = 6;

impl Segments {
    /// Segments for `keys` keys at a load factor.
    pub(super) fn new(
        device: &TableDevice,
        form: SlotForm,
        shape: BucketShape,
        keys: u64,
        load_factor: f64,
        (is_cut, segment_bytes_max): (bool, Option<u32>),
    ) -> Self {
        let slots_of_bucket = f64::from(shape.bytes / form.slot_bytes());
        let buckets = ((keys as f64 / load_factor / slots_of_bucket).ceil() as u64).max(1);
        if !is_cut {
            return Self { bits: 0, buckets_each: buckets };
        }
        let info = device.stream.device().info();
        let bits = |budget_bytes: u64| {
            let most =
                (budget_bytes.saturating_sub(SHARED_BYTES_BESIDE.into())) / u64::from(bytes_of_bucket(form, shape));
            bits_for(buckets.div_ceil(most.max(1)))
        };
        let bits = match segment_bytes_max {
            Some(bytes) => bits(bytes.into()),
            None => {
                let all_bytes = buckets * u64::from(bytes_of_bucket(form, shape));
                chosen_bits(info, (keys, load_factor), all_bytes, bits)
            }
        };
        Self { bits, buckets_each: buckets.div_ceil(1 << bits) }
    }

    pub(super) fn buckets(self) -> u64 {
        self.buckets_each << self.bits
    }

    /// Rows of a segment that may find their home bucket full.
    pub(super) fn late_max(self, form: SlotForm, shape: BucketShape) -> u32 {
        let slots = self.buckets_each * u64::from(shape.bytes / form.slot_bytes());
        u32::try_from(slots / u64::from(SLOTS_PER_LATE)).unwrap_or(u32::MAX)
    }

    /// Of a block that builds a segment.
    pub(super) fn shared_bytes(self, form: SlotForm, shape: BucketShape) -> u32 {
        let buckets = u32::try_from(self.buckets_each).unwrap_or(u32::MAX);
        buckets.saturating_mul(bytes_of_bucket(form, shape)).saturating_add(SHARED_BYTES_BESIDE)
    }
}

/// Bits for `keys` keys in segments of `all_bytes` together, of which `bits_of` tells how many a size takes. Small segments
/// are built by more blocks at once; but the keys of each must have room, however they fall.
fn chosen_bits(
    info: &DeviceInfo,
    (keys, load_factor): (u64, f64),
    all_bytes: u64,
    bits_of: impl Fn(u64) -> u32,
) -> u32 {
    let shared_bytes = u64::from(info.shared_bytes_per_block_max);
    let spread_keys = (SEGMENT_SPREADS * load_factor / (1.0 - load_factor).max(1e-3)).powi(2) as u64;
    // Blocks that a multiprocessor holds.
    let most_bytes = |resident: u64| shared_bytes / resident - RESERVED_BYTES;
    let chosen = |resident: u64| {
        let most_bytes = most_bytes(resident);
        let even_bytes = all_bytes / (u64::from(info.multiprocessors) * resident).max(1);
        let wanted = bits_of(even_bytes.clamp(most_bytes.min(SEGMENT_BYTES_MIN), most_bytes));
        let fits = |bits: &u32| *bits <= PARTITION_BITS_MAX && keys >> bits >= spread_keys;
        (bits_of(most_bytes)..=wanted).rev().find(fits)
    };
    match (chosen(4), chosen(2)) {
        // Bins take one pass.
        (Some(fine), Some(coarse)) if coarse <= BIN_BITS_MAX && fine > BIN_BITS_MAX => coarse,
        (fine, coarse) => fine.or(coarse).or_else(|| chosen(1)).unwrap_or_else(|| bits_of(most_bytes(1))),
    }
}

/// Slots, a counter, a passed byte, and late rows with their links.
fn bytes_of_bucket(form: SlotForm, shape: BucketShape) -> u32 {
    shape.bytes + 5 + (8 * (shape.bytes / form.slot_bytes())).div_ceil(SLOTS_PER_LATE)
}

impl Segments {
    /// Threads of a block that builds a segment.
    pub(super) fn block_threads(self, form: SlotForm, shape: BucketShape, is_simulated: bool) -> u32 {
        if is_simulated {
            return 64;
        }
        (self.shared_bytes(form, shape) / BYTES_PER_THREAD).next_power_of_two().clamp(128, BUILD_THREADS_MAX)
    }
}

/// The fewest bits that tell `count` partitions apart.
fn bits_for(count: u64) -> u32 {
    64 - count.max(1).saturating_sub(1).leading_zeros()
}

/// Share of the L2 cache that a part of a table takes while it is probed.
const PROBED_SHARE: u64 = 6;
const PROBE_BITS_MAX: u32 = 8;

/// Bits by which keys are partitioned before they are looked for in a table of `table_bytes`, so that the parts of the
/// table come into the cache one after the other; 0 where that does not pay.
pub(super) fn probe_bits(device: &TableDevice, table_bytes: u64, keys: u64, is_test: bool) -> u32 {
    if is_test {
        return 3;
    }
    let l2_bytes = device.stream.device().info().l2_bytes.max(1);
    // Fewer keys than lines of the table find little in the cache either way.
    if table_bytes <= l2_bytes / 2 || keys < table_bytes / 256 {
        return 0;
    }
    bits_for(table_bytes.div_ceil(l2_bytes / PROBED_SHARE)).clamp(1, PROBE_BITS_MAX)
}

/// Room of a bin beyond the mean, in spreads of the rows of a partition.
const BIN_SPREADS: f64 = 8.0;

/// Rows of words by the top bits of their key's hash.
pub(super) struct PartitionedWords {
    words: Vec<(Buffer, bool)>,
    /// Where partitions begin, and where the last one ends (partitions + 1 u32); for bins the rows in each.
    pub offsets: Buffer,
    /// Room of each partition; 0: they lie side by side.
    pub bin_rows: u64,
}

impl PartitionedWords {
    pub(super) fn row_words(&self, seed: u64) -> RowWords<'_> {
        let columns =
            self.words.iter().map(|(buffer, is_wide)| WordColumn { buffer: Some(buffer), is_wide: *is_wide, bias: 0 });
        RowWords { columns: columns.collect(), key_masks: vec![u64::MAX], seed, validity: None }
    }
}

impl TableDevice {
    /// Partitions rows, all of which count, with a key of one word, into bins of equal room in one pass: some may be
    /// overfull, and rows lost then. `None` for more bits than a pass has.
    pub(super) fn partition_into_bins(
        &self,
        rows: &RowWords<'_>,
        count: u64,
        bits: u32,
        hash_bits: u32,
    ) -> Result<Option<PartitionedWords>> {
        let mean = count >> bits;
        let bin_rows = mean + (BIN_SPREADS * (mean as f64).sqrt()) as u64 + 16;
        let tile = self.tile(bits, count);
        if bits > BIN_BITS_MAX
            || !is_partitionable(rows, count)
            || (bin_rows << bits) + tile.tile_rows() > u64::from(u32::MAX)
        {
            return Ok(None);
        }
        let cursors = self.stream.alloc_filled(4 << bits, 0)?;
        let room = (bin_rows << bits) + tile.tile_rows();
        let words = self.alloc_words(rows, room)?;
        let pass = Pass { before: 0, bits, cursors: &cursors, firsts: None, bin_rows };
        self.move_rows(rows, &words, count, hash_bits, pass)?;
        let words = words.into_iter().zip(rows.columns.iter().map(|column| column.is_wide)).collect();
        Ok(Some(PartitionedWords { words, offsets: cursors, bin_rows }))
    }

    /// The same side by side, in as many passes as needed. `None` for more bits than passes have.
    pub(super) fn partition(
        &self,
        rows: &RowWords<'_>,
        count: u64,
        bits: u32,
        hash_bits: u32,
    ) -> Result<Option<PartitionedWords>> {
        if bits > PARTITION_BITS_MAX || !is_partitionable(rows, count) {
            return Ok(None);
        }
        let stream = &self.stream;
        let bits = PassBits::of(bits);
        let partitions = 1u64 << bits.total();
        let firsts = 1u64 << bits.first;
        let counts = stream.alloc_filled(partitions * 4, 0)?;
        self.count_rows(rows, count, bits.total(), hash_bits, &counts)?;
        let offsets = stream.alloc((partitions + 1) * 4)?;
        let cursors = stream.alloc(partitions * 4)?;
        let first_cursors = stream.alloc(firsts * 4)?;
        let first_offsets = stream.alloc((firsts + 1) * 4)?;
        let first_tiles = stream.alloc((firsts + 1) * 4)?;
        let args = [
            Arg::Buffer(&counts),
            Arg::U64(bits.first.into()),
            Arg::U64(bits.second.into()),
            Arg::U64(self.tile(bits.second, count).tile_rows()),
            Arg::Buffer(&offsets),
            Arg::Buffer(&cursors),
            Arg::Buffer(&first_cursors),
            Arg::Buffer(&first_offsets),
            Arg::Buffer(&first_tiles),
        ];
        let launch = Launch { shared_bytes: 33 * 4, ..one_block(stream) };
        self.launch(&self.kernel(TableModule::Partition(hash_bits), "partition_scan")?, launch, &args)?;
        let mut words = self.alloc_words(rows, count)?;
        let pass = Pass { before: 0, bits: bits.first, cursors: &first_cursors, firsts: None, bin_rows: 0 };
        self.move_rows(rows, &words, count, hash_bits, pass)?;
        let is_wide: Vec<bool> = rows.columns.iter().map(|column| column.is_wide).collect();
        if bits.second > 0 {
            let moved = self.alloc_words(rows, count)?;
            let columns = words
                .iter()
                .zip(&is_wide)
                .map(|(buffer, &is_wide)| WordColumn { buffer: Some(buffer), is_wide, bias: 0 })
                .collect();
            let from = RowWords { columns, ..rows.clone() };
            let firsts = Some((&first_offsets, &first_tiles));
            let pass = Pass { before: bits.first, bits: bits.second, cursors: &cursors, firsts, bin_rows: 0 };
            self.move_rows(&from, &moved, count, hash_bits, pass)?;
            words = moved;
        }
        Ok(Some(PartitionedWords { words: words.into_iter().zip(is_wide).collect(), offsets, bin_rows: 0 }))
    }

    fn count_rows(&self, rows: &RowWords<'_>, count: u64, bits: u32, hash_bits: u32, counts: &Buffer) -> Result<()> {
        let info = self.stream.device().info();
        let mut args = rows.args();
        args.extend([Arg::U64(count), Arg::U64(bits.into()), Arg::Buffer(counts)]);
        let block_threads = if self.is_simulated() { 64 } else { PARTITION_THREADS_MANY };
        let shared_bytes = 4u32 << bits;
        let resident = if shared_bytes > info.shared_bytes_per_block_max / 2 { 1 } else { 2 };
        let fill = u64::from(info.multiprocessors * resident);
        let blocks = count.div_ceil(u64::from(block_threads) * 8).clamp(1, fill) as u32;
        let kernel = self.kernel(TableModule::Partition(hash_bits), "partition_count")?;
        self.launch(&kernel, Launch { blocks, block_threads, shared_bytes }, &args)
    }

    /// The tile of a block that moves rows: the kernel has registers for few threads.
    fn tile(&self, bits: u32, count: u64) -> TileLaunch {
        let threads = if count <= FEW_ROWS { SMALL_TILE_THREADS } else { PARTITION_THREADS_FEW };
        partition_launch(self.stream.device().info(), bits, threads)
    }

    fn alloc_words(&self, rows: &RowWords<'_>, count: u64) -> Result<Vec<Buffer>> {
        let alloc = |column: &WordColumn<'_>| Ok(self.stream.alloc(count * if column.is_wide { 8 } else { 4 })?);
        rows.columns.iter().map(alloc).collect()
    }

    fn move_rows(&self, from: &RowWords<'_>, to: &[Buffer], count: u64, hash_bits: u32, pass: Pass<'_>) -> Result<()> {
        let tile = self.tile(pass.bits, count);
        let (offsets, tiles) = pass.firsts.unzip();
        let mut args = from.args();
        args.extend(pointers(to));
        args.extend([
            Arg::U64(count),
            Arg::U64(pass.before.into()),
            Arg::U64(pass.bits.into()),
            Arg::Buffer(pass.cursors),
            offsets.map_or(Arg::Null, Arg::Buffer),
            tiles.map_or(Arg::Null, Arg::Buffer),
            Arg::U64(pass.bin_rows),
        ]);
        let extra = if pass.before == 0 { 0 } else { 1u64 << pass.before };
        let blocks = u32::try_from((count.div_ceil(tile.tile_rows()) + extra).max(1)).unwrap_or(u32::MAX);
        let launch = Launch { blocks, block_threads: tile.threads, shared_bytes: tile.shared_bytes };
        self.launch(&self.kernel(TableModule::Partition(hash_bits), PASS_SINGLE)?, launch, &args)
    }
}

/// One pass over rows.
struct Pass<'a> {
    /// Bits of the pass before.
    before: u32,
    bits: u32,
    cursors: &'a Buffer,
    /// Of the partitions of the pass before: where they begin, tiles before each.
    firsts: Option<(&'a Buffer, &'a Buffer)>,
    bin_rows: u64,
}

/// Rows of a partition are counted in 32 bits, and the last tile may go past them.
const PARTITION_ROWS_MAX: u64 = u32::MAX as u64 - (1 << 20);

fn is_partitionable(rows: &RowWords<'_>, count: u64) -> bool {
    rows.validity.is_none() && rows.key_masks.len() == 1 && count <= PARTITION_ROWS_MAX
}
