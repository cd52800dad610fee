//! Rows partitioned by the hash of their keys, to build or probe one part of a table at a time.

use warpjoin_codegen::{FixedModule, RESTORE, pass_entry};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Launch, Ptr};
use warpjoin_kernels::common::BLOCK_SUMS;
use warpjoin_kernels::padded;
use warpjoin_kernels::partition::{
    CountParams, PARTITION_ITEMS, PARTITION_THREADS_FEW, PARTITION_THREADS_MANY, PassParams, RestoreParams, ScanParams,
};

use super::buckets::{Buckets, FindOutputs};
use super::device::TableDevice;
use crate::exec::Strides;
use crate::exec::partition::{
    PARTITION_BITS_MAX, PassBits, RowWords, TileLaunch, WordColumn, one_block, partition_launch,
};

/// Threads of a block that moves a tile: the first choice with enough tiles for [`FILLED_SHARE`] of the
/// multiprocessors.
const TILE_THREADS: [u32; 3] = [PARTITION_THREADS_FEW, 256, 128];
const FILLED_SHARE: f64 = 0.9;
/// Rows of a thread that counts (`each` of `partition.cu`).
const COUNTED_ROWS: u64 = 8;
/// Maximum bits of bins: with more, runs get short.
pub(super) const BIN_BITS_MAX: u32 = 10;

/// Minimum bits for `count` partitions.
pub(super) fn bits_for(count: u64) -> u32 {
    64 - count.max(1).saturating_sub(1).leading_zeros()
}

/// Restoring the order does not use hashes; its kernel is in the module of 64-bit hashes.
const RESTORED_HASH_BITS: u32 = 64;
/// Maximum table bytes for each key at which keys share cache lines often enough.
const RESTORED_BYTES_PER_KEY: u64 = 32;

/// As [`probe_bits`], for results that must be restored to the order of the keys. That pays for slots of 8 bytes; with
/// 16 bytes it costs as much as reading the table at random.
pub(super) fn restored_bits(device: &TableDevice, buckets: &Buckets, keys: u64, is_test: bool) -> u32 {
    if buckets.form.holds_rows() {
        return 0;
    }
    let l2_bytes = device.stream.device().info().l2_bytes.max(1);
    let bytes = buckets.bytes();
    let pays = bytes >= l2_bytes && buckets.form.slot_bytes() <= 8 && keys >= bytes / RESTORED_BYTES_PER_KEY;
    if is_test || pays { probe_bits(device, bytes, keys, is_test) } else { 0 }
}

/// A part of a table that is probed takes this fraction of the L2 cache (1 / divisor).
const PROBED_SHARE: u64 = 6;
const PROBE_BITS_MAX: u32 = 8;

/// Bits by which keys are partitioned before a lookup in a table of `table_bytes`, so that the table is read part by
/// part through the cache; 0 if that does not pay.
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

/// Room of a bin beyond the mean, in standard deviations of the rows of a partition.
const BIN_SPREADS: f64 = 8.0;

/// Bins begin at a multiple of this: a warp writes one bit for each row.
const BIN_ALIGNMENT_ROWS: u64 = 32;

/// How rows are partitioned.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByHash {
    /// Into 2^bits partitions.
    pub bits: u32,
    /// Bits of a hash that are kept.
    pub hash_bits: u32,
    /// Records the position of each row, so that results can be restored to row order; for bins only.
    pub notes_places: bool,
}

/// Rows of words by the top bits of their key's hash.
pub(super) struct PartitionedWords {
    words: Vec<(Buffer, bool)>,
    /// Where partitions begin, and where the last one ends (partitions + 1 u32); for bins, the rows in each.
    pub offsets: Buffer,
    pub bits: u32,
    /// Room of each bin; 0: partitions of exact size, without gaps.
    pub bin_rows: u64,
    /// Allocated rows, including room for rows that overflow bins.
    pub room: u64,
    /// The position of each row, if recorded.
    places: Option<Buffer>,
}

impl PartitionedWords {
    pub(super) fn row_words(&self, seed: u64) -> RowWords<'_> {
        let columns =
            self.words.iter().map(|(buffer, is_wide)| WordColumn { buffer: Some(buffer), is_wide: *is_wide, bias: 0 });
        RowWords { columns: columns.collect(), key_masks: vec![u64::MAX], seed, validity: None }
    }
}

impl TableDevice {
    /// Partitions rows with a key of one word into bins of equal room, in one pass. A bin may overflow; its rows are
    /// then incomplete. `None` if a pass has fewer bits, or the rows can't be partitioned.
    pub(super) fn partition_into_bins(
        &self,
        rows: &RowWords<'_>,
        count: u64,
        by: ByHash,
    ) -> Result<Option<PartitionedWords>> {
        let bits = by.bits;
        let mean = count >> bits;
        let bin_rows = mean + (BIN_SPREADS * (mean as f64).sqrt()) as u64 + 16;
        let bin_rows = bin_rows.next_multiple_of(BIN_ALIGNMENT_ROWS);
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
        let places = by.notes_places.then(|| self.stream.alloc(count.max(1) * 4)).transpose()?;
        let pass = Pass { before: 0, bits, cursors: &cursors, firsts: None, bin_rows, places: places.as_ref() };
        self.move_rows(rows, &words, count, by.hash_bits, pass)?;
        let words = words.into_iter().zip(rows.columns.iter().map(|column| column.is_wide)).collect();
        Ok(Some(PartitionedWords { words, offsets: cursors, bits, bin_rows, room, places }))
    }

    /// Partitions rows without gaps, in one or two passes. `None` if passes have fewer bits, or the rows can't be
    /// partitioned.
    pub(super) fn partition(&self, rows: &RowWords<'_>, count: u64, by: ByHash) -> Result<Option<PartitionedWords>> {
        let (hash_bits, bits) = (by.hash_bits, PassBits::of(by.bits));
        if by.bits > PARTITION_BITS_MAX || !is_partitionable(rows, count) {
            return Ok(None);
        }
        let stream = &self.stream;
        let partitions = 1u64 << bits.total();
        let firsts = 1u64 << bits.first;
        let counts = stream.alloc_filled(partitions * 4, 0)?;
        self.count_rows(rows, count, bits.total(), hash_bits, &counts)?;
        let offsets = stream.alloc((partitions + 1) * 4)?;
        let cursors = stream.alloc(partitions * 4)?;
        let first_cursors = stream.alloc(firsts * 4)?;
        let first_offsets = stream.alloc((firsts + 1) * 4)?;
        let first_tiles = stream.alloc((firsts + 1) * 4)?;
        let params = ScanParams {
            counts: Ptr::of(&counts),
            first_bits: bits.first.into(),
            second_bits: bits.second.into(),
            tile_rows: self.tile(bits.second, count).tile_rows(),
            offsets: Ptr::of(&offsets),
            cursors: Ptr::of(&cursors),
            first_cursors: Ptr::of(&first_cursors),
            first_offsets: Ptr::of(&first_offsets),
            first_tiles: Ptr::of(&first_tiles),
        };
        let launch = one_block(stream, BLOCK_SUMS * 4);
        self.launch(&self.kernel(FixedModule::Partition(hash_bits), "partition_scan")?, launch, &params)?;
        let mut words = self.alloc_words(rows, count)?;
        let pass =
            Pass { before: 0, bits: bits.first, cursors: &first_cursors, firsts: None, bin_rows: 0, places: None };
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
            let pass =
                Pass { before: bits.first, bits: bits.second, cursors: &cursors, firsts, bin_rows: 0, places: None };
            self.move_rows(&from, &moved, count, hash_bits, pass)?;
            words = moved;
        }
        let words = words.into_iter().zip(is_wide).collect();
        Ok(Some(PartitionedWords { words, offsets, bits: by.bits, bin_rows: 0, room: count, places: None }))
    }

    /// Restores lookup results of partitioned rows to row order. `by_place` has values (or slot positions) and bits in
    /// partitioned order. `control` is that of the lookup.
    pub(super) fn restore(
        &self,
        rows: &PartitionedWords,
        count: u64,
        (by_place, is_wide): (&FindOutputs<'_>, bool),
        by_row: &FindOutputs<'_>,
        control: &Buffer,
    ) -> Result<()> {
        let tile = self.tile(rows.bits, count);
        let places = rows.places.as_ref().ok_or_else(|| Error::internal("partitioned rows without positions"))?;
        let params = RestoreParams {
            places: Ptr::of(places),
            rows: count,
            values: by_place.values.or(by_place.places).map(Ptr::of),
            is_wide,
            found: by_place.bits.map(Ptr::of),
            restored: by_row.values.or(by_row.places).map(Ptr::of),
            found_bits: by_row.bits.map(Ptr::of),
            found_bytes: by_row.bytes.map(Ptr::of),
            control: Ptr::of(control),
        };
        let blocks = u32::try_from(count.div_ceil(tile.tile_rows()).max(1)).unwrap_or(u32::MAX);
        let launch = Launch { blocks, block_threads: tile.threads, shared_bytes: 0 };
        self.launch(&self.kernel(FixedModule::Partition(RESTORED_HASH_BITS), RESTORE)?, launch, &params)
    }

    fn count_rows(&self, rows: &RowWords<'_>, count: u64, bits: u32, hash_bits: u32, counts: &Buffer) -> Result<()> {
        let info = self.stream.device().info();
        let params = CountParams { input: rows.params(), rows: count, bits: bits.into(), counts: Ptr::of(counts) };
        let shared_bytes = 4u32 << bits;
        let resident = if shared_bytes > info.shared_bytes_per_block_max / 2 { 1 } else { 2 };
        let strides = Strides { threads: PARTITION_THREADS_MANY, rows_each: COUNTED_ROWS, resident, shared_bytes };
        let kernel = self.kernel(FixedModule::Partition(hash_bits), "partition_count")?;
        self.launch(&kernel, strides.over(count, &self.stream), &params)
    }

    /// The tile of a block that moves rows; registers limit its threads.
    fn tile(&self, bits: u32, count: u64) -> TileLaunch {
        let info = self.stream.device().info();
        let tiles = |threads: u32| count.div_ceil(u64::from(threads * PARTITION_ITEMS));
        let fills = |threads: &u32| tiles(*threads) as f64 >= f64::from(info.multiprocessors) * FILLED_SHARE;
        let threads = TILE_THREADS.into_iter().find(fills).unwrap_or(TILE_THREADS[2]);
        partition_launch(info, bits, threads)
    }

    fn alloc_words(&self, rows: &RowWords<'_>, count: u64) -> Result<Vec<Buffer>> {
        let alloc = |column: &WordColumn<'_>| Ok(self.stream.alloc(count * if column.is_wide { 8 } else { 4 })?);
        rows.columns.iter().map(alloc).collect()
    }

    fn move_rows(&self, from: &RowWords<'_>, to: &[Buffer], count: u64, hash_bits: u32, pass: Pass<'_>) -> Result<()> {
        let tile = self.tile(pass.bits, count);
        let (offsets, tiles) = pass.firsts.unzip();
        let params = PassParams {
            input: from.params(),
            outputs: padded(to.iter().map(|word| Some(Ptr::of(word))), None),
            rows: count,
            first_bits: pass.before.into(),
            bits: pass.bits.into(),
            cursors: Ptr::of(pass.cursors),
            first_offsets: offsets.map(Ptr::of),
            first_tiles: tiles.map(Ptr::of),
            bin_rows: pass.bin_rows,
            places: pass.places.map(Ptr::of),
        };
        let extra = if pass.before == 0 { 0 } else { 1u64 << pass.before };
        let blocks = u32::try_from((count.div_ceil(tile.tile_rows()) + extra).max(1)).unwrap_or(u32::MAX);
        let launch = Launch { blocks, block_threads: tile.threads, shared_bytes: tile.shared_bytes };
        let entry = pass_entry(from.columns[0].is_wide, pass.places.is_some());
        self.launch(&self.kernel(FixedModule::Partition(hash_bits), entry)?, launch, &params)
    }
}

/// One pass over rows.
struct Pass<'a> {
    /// Bits of the pass before.
    before: u32,
    bits: u32,
    cursors: &'a Buffer,
    /// For each partition of the pass before: where it begins, and the number of tiles before it.
    firsts: Option<(&'a Buffer, &'a Buffer)>,
    bin_rows: u64,
    /// Receives the position of each row.
    places: Option<&'a Buffer>,
}

/// Rows of a partition are counted in 32 bits, and the last tile may go past them.
const PARTITION_ROWS_MAX: u64 = u32::MAX as u64 - (1 << 20);

fn is_partitionable(rows: &RowWords<'_>, count: u64) -> bool {
    rows.validity.is_none() && rows.key_masks.len() == 1 && count <= PARTITION_ROWS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_as_many_rows_as_their_kernel_takes() {
        let text = warpjoin_kernels::PARTITION.text;
        let kernel = text.split("WJ_ENTRY").find(|entry| entry.starts_with("(partition_count,"));
        let defined = format!("constexpr u32 each = {COUNTED_ROWS};");
        assert!(kernel.is_some_and(|kernel| kernel.contains(&defined)), "{defined}");
    }
}
