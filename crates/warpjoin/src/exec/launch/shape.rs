//! Blocks, threads and shared memory of a launch.

use warpjoin_codegen::{BATCH_BLOCKS, GeneratedPipeline, Grid, ROWS_PER_THREAD_BITS_MAX};
use warpjoin_columns::Result;
use warpjoin_device::{DeviceInfo, Kernel, Launch, Stream};
use warpjoin_kernels::common::BLOCK_THREADS;
use warpjoin_kernels::partition::{PARTITION_ITEMS, PARTITION_THREADS_MANY};

use crate::exec::relation::{Relation, Source, threads_of};

/// A grid whose threads stride over rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strides {
    /// Threads of a block; fewer on a device that does not allow that many.
    pub threads: u32,
    /// Rows of a thread, if there are enough rows.
    pub rows_each: u64,
    /// Maximum resident blocks of a multiprocessor.
    pub resident: u64,
    pub shared_bytes: u32,
}

impl Strides {
    /// One row for each thread, until the device is full.
    pub(crate) const ROWS: Self = Self { threads: BLOCK_THREADS, rows_each: 1, resident: 8, shared_bytes: 0 };

    pub(crate) fn over(self, rows: u64, stream: &Stream) -> Launch {
        let info = stream.device().info();
        let block_threads = info.block_threads(self.threads);
        let fill = u64::from(info.multiprocessors) * self.resident;
        let blocks = rows.div_ceil(u64::from(block_threads) * self.rows_each).clamp(1, fill.max(1));
        Launch { blocks: blocks as u32, block_threads, shared_bytes: self.shared_bytes }
    }
}

/// Enough blocks to fill the device, and to limit the rows of a thread. `rows`: those of a launch, times the lanes that share
/// each ([`slice_bits`]). `bits`: those of a partition that is written.
pub(in crate::exec) fn launch_shape(
    stream: &Stream,
    rows: u64,
    generated: &GeneratedPipeline,
    relation: &Relation,
    bits: u32,
) -> Launch {
    let info = stream.device().info();
    let shared_bytes_max = info.shared_bytes_per_block_max.max(1);
    // Blocks that a multiprocessor holds at once.
    let resident = |threads: u32, shared_bytes: u32| {
        let by_threads = (info.threads_per_multiprocessor / threads).max(1);
        shared_bytes_max.checked_div(shared_bytes).map_or(by_threads, |by_shared| by_shared.clamp(1, by_threads))
    };
    let fill =
        |threads: u32, shared_bytes: u32| u64::from(info.multiprocessors) * u64::from(resident(threads, shared_bytes));
    let (blocks, block_threads, shared_bytes) = match generated.grid {
        Grid::Tiles { block_threads, shared_bytes, .. } => {
            let tiles = rows.div_ceil(u64::from(block_threads)).max(1);
            let blocks = tiles.min(fill(block_threads, shared_bytes)).max(blocks_min(rows, block_threads));
            (blocks, block_threads, shared_bytes)
        }
        Grid::Batches { block_threads, shared_bytes } => {
            let tiles = rows.div_ceil(u64::from(block_threads)).max(1);
            (tiles.min(u64::from(info.multiprocessors * BATCH_BLOCKS)), block_threads, shared_bytes)
        }
        Grid::Count => {
            let threads = info.block_threads(PARTITION_THREADS_MANY);
            let shared_bytes = 4 << bits;
            let tiles = rows.div_ceil(u64::from(threads * PARTITION_ITEMS));
            (tiles.min(fill(threads, shared_bytes)), threads, shared_bytes)
        }
        Grid::Scatter { threads } => {
            let tile = partition_launch(info, bits, threads);
            (rows.div_ceil(tile.tile_rows()), tile.threads, tile.shared_bytes)
        }
        Grid::Matches => {
            let (threads, shared_bytes) = match &relation.source {
                Source::Matches(matches, form) => {
                    let shared_bytes = matches.table(*form).shared_bytes;
                    (threads_of(info, *form, shared_bytes), shared_bytes)
                }
                _ => (32, 0),
            };
            (fill(threads, shared_bytes), threads, shared_bytes)
        }
    };
    Launch { blocks: blocks.clamp(1, i32::MAX as u64) as u32, block_threads, shared_bytes }
}

/// Lanes that share the matches of a row, as a power of two, so that all rows of a device occupy the threads that it runs at
/// once. All chunks of these rows have as many, so that none has more blocks than all rows have: group tables keep a place
/// for each block of those.
pub(in crate::exec) fn slice_bits(info: &DeviceInfo, rows: u64, grid: Grid) -> u32 {
    let Grid::Tiles { slice_bits_max, .. } = grid else { return 0 };
    let threads = u64::from(info.multiprocessors) * u64::from(info.threads_per_multiprocessor);
    threads.checked_div(rows).unwrap_or(0).checked_ilog2().unwrap_or(0).min(slice_bits_max)
}

/// Blocks of which no thread adds up more rows than fit its sums.
pub(super) fn blocks_min(rows: u64, block_threads: u32) -> u64 {
    rows.div_ceil(u64::from(block_threads) << ROWS_PER_THREAD_BITS_MAX)
}

/// No more blocks than the device holds at once, if they stride over rows: of later ones, fewer would run together.
pub(super) fn resident_shape(
    stream: &Stream,
    kernel: &Kernel,
    rows: u64,
    grid: Grid,
    launch: Launch,
) -> Result<Launch> {
    let least = match grid {
        Grid::Tiles { block_threads, .. } => blocks_min(rows, block_threads),
        Grid::Batches { .. } | Grid::Count | Grid::Matches => 1,
        Grid::Scatter { .. } => return Ok(launch),
    };
    let multiprocessors = stream.device().info().multiprocessors;
    if launch.blocks <= multiprocessors {
        return Ok(launch);
    }
    let Some(resident) = stream.resident_blocks(kernel, launch)? else { return Ok(launch) };
    let fill = u64::from(multiprocessors) * u64::from(resident.max(1));
    Ok(Launch { blocks: u64::from(launch.blocks).min(fill.max(least)) as u32, ..launch })
}

/// Threads and shared memory of a block that moves a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileLaunch {
    pub threads: u32,
    pub shared_bytes: u32,
}

impl TileLaunch {
    pub(crate) fn tile_rows(self) -> u64 {
        u64::from(self.threads * PARTITION_ITEMS)
    }
}

/// Blocks of at most `threads_max` threads, fewer where they do not fit.
pub(crate) fn partition_launch(info: &DeviceInfo, bits: u32, threads_max: u32) -> TileLaunch {
    let of = |threads: u32| {
        // Stage and partition of each row, two counters a partition, one more, sums.
        let shared_bytes = threads * PARTITION_ITEMS * 10 + (8 << bits) + 34 * 4;
        TileLaunch { threads, shared_bytes }
    };
    let threads_max = info.block_threads(threads_max);
    let fits = |threads: &u32| of(*threads).shared_bytes <= info.shared_bytes_per_block_max;
    of([threads_max, 512, 256, 128].into_iter().filter(|&threads| threads <= threads_max).find(fits).unwrap_or(64))
}
