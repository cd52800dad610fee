//! Launches of the kernels of `limits.cu`.
//!
//! Must not know how often they run, or what follows from their times.

use warpjoin_device::{Arg, Buffer, Kernel, Launch, ModuleSource};

use crate::shared::{ACCESSES_IN_FLIGHT, THREADS, VECTORS_IN_FLIGHT, module};
use crate::{Bench, Result};

const FILE: (&str, &str) = ("benches/limits.cu", include_str!("../../kernels/limits.cu"));
const ENTRIES: [&str; 9] = [
    "copy_stream",
    "read_stream",
    "write_stream",
    "random_read",
    "random_write",
    "random_cas",
    "random_add",
    "gather_4",
    "gather_8",
];
const VECTOR_BYTES: u64 = 16;
/// Bytes of a block's tile. Streams consist of whole tiles.
pub(crate) const STREAM_TILE_BYTES: u64 = THREADS as u64 * VECTORS_IN_FLIGHT * VECTOR_BYTES;
/// Random accesses of a block's tile. Runs consist of whole tiles.
pub(crate) const ACCESS_TILE: u64 = THREADS as u64 * ACCESSES_IN_FLIGHT;

/// The module of the limit kernels.
pub(crate) fn limits_module() -> ModuleSource {
    module(FILE, &ENTRIES)
}

const BLOCKS_MAX: u64 = i32::MAX as u64;

/// A kind of streaming access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Copy,
    Read,
    Write,
}

/// A kind of random access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RandomKind {
    Read,
    Write,
    Cas,
    Add,
}

/// Enqueues a streaming kernel over the whole tiles in `bytes` bytes of both buffers.
pub(crate) fn stream(
    bench: &Bench,
    kind: StreamKind,
    bytes: u64,
    buffers: (&Buffer, &Buffer),
    sink: &Buffer,
) -> Result<()> {
    let entry = match kind {
        StreamKind::Copy => "copy_stream",
        StreamKind::Read => "read_stream",
        StreamKind::Write => "write_stream",
    };
    let tiles = bytes / STREAM_TILE_BYTES;
    let vectors = tiles * STREAM_TILE_BYTES / VECTOR_BYTES;
    let args = [Arg::U64(vectors), Arg::Buffer(buffers.0), Arg::Buffer(buffers.1), Arg::Buffer(sink)];
    // One block per tile: concurrent accesses are closer together than with a grid stride.
    let launch = Launch { blocks: tiles.min(BLOCKS_MAX) as u32, ..bench.launch(tiles) };
    Ok(bench.stream().launch(&kernel(bench, entry)?, launch, &args)?)
}

/// Enqueues the whole tiles in `accesses` random accesses to the first `words` (a power of two) words of a buffer.
pub(crate) fn random(
    bench: &Bench,
    kind: RandomKind,
    accesses: u64,
    words: u64,
    buffer: &Buffer,
    sink: &Buffer,
) -> Result<()> {
    let entry = match kind {
        RandomKind::Read => "random_read",
        RandomKind::Write => "random_write",
        RandomKind::Cas => "random_cas",
        RandomKind::Add => "random_add",
    };
    let tiles = accesses / ACCESS_TILE;
    let args = [Arg::U64(tiles * ACCESS_TILE), Arg::U64(words - 1), Arg::Buffer(buffer), Arg::Buffer(sink)];
    Ok(bench.stream().launch(&kernel(bench, entry)?, bench.launch(tiles), &args)?)
}

/// Enqueues a gather of the whole tiles in `rows` values of 4 or 8 bytes.
pub(crate) fn gather(
    bench: &Bench,
    width_bytes: u64,
    rows: u64,
    places: &Buffer,
    values: &Buffer,
    output: &Buffer,
) -> Result<()> {
    let entry = if width_bytes == 4 { "gather_4" } else { "gather_8" };
    let tiles = rows / ACCESS_TILE;
    let args = [Arg::U64(tiles * ACCESS_TILE), Arg::Buffer(places), Arg::Buffer(values), Arg::Buffer(output)];
    Ok(bench.stream().launch(&kernel(bench, entry)?, bench.launch(tiles), &args)?)
}

fn kernel(bench: &Bench, entry: &str) -> Result<Kernel> {
    bench.kernel(FILE, &ENTRIES, entry)
}
