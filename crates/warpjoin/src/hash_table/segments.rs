//! The segments of a hash table, and rows partitioned by them: so that a block builds one in shared memory.

use warpjoin_device::{Arg, Buffer, Launch};

use super::device::TableDevice;
use super::slots::{BucketShape, SlotForm};
use crate::Result;
use crate::codegen::{PARTITION_THREADS_FEW, PARTITION_THREADS_MANY, ROW_WORDS_MAX};
use crate::exec::partition::{
    MANY_BITS, PARTITION_BITS_MAX, PASS_SINGLE, PassBits, one_block, partition_launch, partition_module, pointers,
};
use crate::exec::row_words::{RowWords, WordColumn};

/// Equal runs of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segments {
    /// 2^bits segments.
    pub bits: u32,
    pub buckets_each: u64,
}

/// From this load factor on, segments are as large as they can be: their fill varies less.
const HIGH_LOAD: f64 = 0.8;
/// Counters, and what alignment takes, beside buckets and late rows.
const SHARED_BYTES_BESIDE: u32 = 16;
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
        let shared_bytes = device.stream.device().info().shared_bytes_per_block_max;
        // Two blocks a multiprocessor, where fill does not vary too much.
        let share = if load_factor > HIGH_LOAD { 1 } else { 2 };
        let budget_bytes =
            segment_bytes_max.unwrap_or((shared_bytes / share).saturating_sub(1024)).max(shape.bytes + 64);
        let most = u64::from((budget_bytes - SHARED_BYTES_BESIDE) / bytes_of_bucket(form, shape)).max(1);
        let bits = if is_cut { bits_for(buckets.div_ceil(most)) } else { 0 };
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

/// Slots, a counter, a passed byte, and late rows.
fn bytes_of_bucket(form: SlotForm, shape: BucketShape) -> u32 {
    shape.bytes + 5 + (4 * (shape.bytes / form.slot_bytes())).div_ceil(SLOTS_PER_LATE)
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

/// Rows of words by the top bits of their key's hash.
pub(super) struct PartitionedWords {
    words: Vec<(Buffer, bool)>,
    /// Partitions + 1 u32.
    pub offsets: Buffer,
}

impl PartitionedWords {
    pub(super) fn row_words(&self, seed: u64) -> RowWords<'_> {
        let columns =
            self.words.iter().map(|(buffer, is_wide)| WordColumn { buffer: Some(buffer), is_wide: *is_wide, bias: 0 });
        RowWords { columns: columns.collect(), key_masks: vec![u64::MAX], seed, validity: None }
    }
}

impl TableDevice {
    /// Partitions rows, all of which count, with a key of one word. `None` for more bits than passes have.
    pub(super) fn partition(
        &self,
        rows: &RowWords<'_>,
        count: u64,
        bits: u32,
        hash_bits: u32,
    ) -> Result<Option<PartitionedWords>> {
        if bits > PARTITION_BITS_MAX || rows.validity.is_some() || rows.key_masks.len() != 1 {
            return Ok(None);
        }
        let stream = &self.stream;
        let info = stream.device().info();
        let bits = PassBits::of(bits);
        let module = partition_module(hash_bits);
        let partitions = 1u64 << bits.total();
        let firsts = 1u64 << bits.first;
        let counts = stream.alloc_filled(partitions * 4, 0)?;
        let one = one_block(stream);
        let mut args = rows.args();
        args.extend([Arg::U64(count), Arg::U64(bits.total().into()), Arg::Buffer(&counts)]);
        let threads = if self.is_simulated() { 64 } else { PARTITION_THREADS_MANY };
        let shared_bytes = 4u32 << bits.total();
        let resident = if shared_bytes > info.shared_bytes_per_block_max / 2 { 1 } else { 2048 / threads.max(1024) };
        let fill = u64::from(info.multiprocessors * resident);
        let blocks = count.div_ceil(u64::from(threads) * 8).clamp(1, fill) as u32;
        let launch = Launch { blocks, block_threads: threads, shared_bytes };
        self.launch(&self.kernel(&module, "partition_count")?, launch, &args)?;
        let offsets = stream.alloc((partitions + 1) * 4)?;
        let cursors = stream.alloc(partitions * 4)?;
        let first_cursors = stream.alloc(firsts * 4)?;
        let first_offsets = stream.alloc((firsts + 1) * 4)?;
        let first_tiles = stream.alloc((firsts + 1) * 4)?;
        let second = partition_launch(info, bits.second, PARTITION_THREADS_FEW);
        let args = [
            Arg::Buffer(&counts),
            Arg::U64(bits.first.into()),
            Arg::U64(bits.second.into()),
            Arg::U64(second.tile_rows()),
            Arg::Buffer(&offsets),
            Arg::Buffer(&cursors),
            Arg::Buffer(&first_cursors),
            Arg::Buffer(&first_offsets),
            Arg::Buffer(&first_tiles),
        ];
        self.launch(&self.kernel(&module, "partition_scan")?, Launch { shared_bytes: 33 * 4, ..one }, &args)?;
        let pass = self.kernel(&module, PASS_SINGLE)?;
        let alloc = |rows: &RowWords<'_>| -> Result<Vec<Buffer>> {
            rows.columns.iter().map(|column| self.alloc(count * if column.is_wide { 8 } else { 4 })).collect()
        };
        let move_rows = |from: &RowWords<'_>, to: &[Buffer], before: u32, bits: u32, cursors: &Buffer| -> Result<()> {
            let threads = if bits >= MANY_BITS { PARTITION_THREADS_MANY } else { PARTITION_THREADS_FEW };
            // The pass's own kernel has registers for few threads.
            let tile = partition_launch(info, bits, threads.min(PARTITION_THREADS_FEW));
            let mut args = from.args();
            args.extend(pointers(to));
            args.extend([
                Arg::U64(count),
                Arg::U64(before.into()),
                Arg::U64(bits.into()),
                Arg::Buffer(cursors),
                Arg::Buffer(&first_offsets),
                Arg::Buffer(&first_tiles),
            ]);
            let extra = if before == 0 { 0 } else { 1u64 << before };
            let blocks = u32::try_from((count.div_ceil(tile.tile_rows()) + extra).max(1)).unwrap_or(u32::MAX);
            let launch = Launch { blocks, block_threads: tile.threads, shared_bytes: tile.shared_bytes };
            self.launch(&pass, launch, &args)
        };
        let mut words = alloc(rows)?;
        move_rows(rows, &words, 0, bits.first, &first_cursors)?;
        let is_wide: Vec<bool> = rows.columns.iter().map(|column| column.is_wide).collect();
        if bits.second > 0 {
            let moved = alloc(rows)?;
            let columns = words
                .iter()
                .zip(&is_wide)
                .map(|(buffer, &is_wide)| WordColumn { buffer: Some(buffer), is_wide, bias: 0 })
                .collect();
            let from = RowWords { columns, ..rows.clone() };
            move_rows(&from, &moved, bits.first, bits.second, &cursors)?;
            words = moved;
        }
        debug_assert!(words.len() <= ROW_WORDS_MAX);
        Ok(Some(PartitionedWords { words: words.into_iter().zip(is_wide).collect(), offsets }))
    }
}
