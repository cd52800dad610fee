//! Modules of decoding kernels, and their launches.

use warpjoin_codegen::Constants;
use warpjoin_columns::Result;
use warpjoin_device::{Buffer, Kernel, Launch, ModuleSource, Stream};
use warpjoin_kernels::KernelParams;
use warpjoin_kernels::common::control;
use warpjoin_kernels::decode::{
    BitsParams, BoundsParams, CodeStringsParams, DECODE_THREADS, DecompressParams, ELEMENTS_BYTES, FindStringsParams,
    GatherStringsParams, HYBRID_BYTES, IndicesParams, InternParams, LevelsParams, MarkEntriesParams, NarrowParams,
    NumberStringsParams, OrderParams, PlainParams, RepeatsParams, SpreadParams, TEXT_TILE_BYTES, TakeParams,
    TileStringsParams,
};

use super::error::DecodeError;
use crate::exec::Strides;

/// Maximum resident blocks of a multiprocessor.
const RESIDENT: u64 = 16;

/// The module that has an entry.
fn module_of(entry: &str) -> ModuleSource {
    match entry {
        "pack_validity" => Constants::USUAL.module(warpjoin_kernels::VALIDITY, [entry]),
        _ if ["column", "narrow", "take"].iter().any(|facts| entry.starts_with(facts)) => {
            let entries = [
                OrderParams::<()>::ENTRIES,
                RepeatsParams::<()>::ENTRIES,
                BoundsParams::<()>::ENTRIES,
                NarrowParams::<()>::ENTRIES,
                TakeParams::<()>::ENTRIES,
            ];
            Constants::USUAL.module(warpjoin_kernels::DECODE_FACTS, entries.concat())
        }
        _ if entry == "mark_entries" || entry.contains("_strings") => {
            let entries = [
                FindStringsParams::<()>::ENTRIES,
                MarkEntriesParams::<()>::ENTRIES,
                InternParams::<()>::ENTRIES,
                NumberStringsParams::<()>::ENTRIES,
                GatherStringsParams::<()>::ENTRIES,
                TileStringsParams::<()>::ENTRIES,
                CodeStringsParams::<()>::ENTRIES,
            ];
            Constants::USUAL.module(warpjoin_kernels::DECODE_TEXT, entries.concat())
        }
        "decompress_snappy" => {
            let entries = DecompressParams::<()>::ENTRIES.iter().copied();
            Constants::USUAL.module(warpjoin_kernels::DECODE_SNAPPY, entries)
        }
        _ => {
            let entries = [
                LevelsParams::<()>::ENTRIES,
                PlainParams::<()>::ENTRIES,
                BitsParams::<()>::ENTRIES,
                IndicesParams::<()>::ENTRIES,
                SpreadParams::<()>::ENTRIES,
            ];
            Constants::USUAL.module(warpjoin_kernels::DECODE_VALUES, entries.concat())
        }
    }
}

pub(super) fn kernel(stream: &Stream, entry: &str) -> Result<Kernel> {
    let module = module_of(entry);
    let device = stream.device();
    Ok(device.compile(&device.module_of(&module, entry))?.kernel(entry)?)
}

/// Enqueues a kernel over pages, a block for each.
pub(super) fn launch_over_pages(
    stream: &Stream,
    entry: &str,
    pages: u64,
    params: &impl KernelParams<Buffer>,
) -> Result<()> {
    if pages == 0 {
        return Ok(());
    }
    let info = stream.device().info();
    let block_threads = info.block_threads(DECODE_THREADS);
    let blocks = pages.min(u64::from(info.multiprocessors) * RESIDENT) as u32;
    let shared_bytes = match entry {
        "decompress_snappy" => ELEMENTS_BYTES,
        "find_strings" => TEXT_TILE_BYTES * block_threads / 32,
        _ => HYBRID_BYTES,
    };
    let launch = Launch { blocks, block_threads, shared_bytes };
    Ok(stream.launch(&kernel(stream, entry)?, launch, params)?)
}

/// Warps of a kernel over rows.
pub(super) fn warps_over_rows(stream: &Stream, rows: u64) -> u64 {
    let launch = over_rows(rows, stream);
    u64::from(launch.blocks) * u64::from(launch.block_threads.div_ceil(32))
}

fn over_rows(rows: u64, stream: &Stream) -> Launch {
    Strides { resident: RESIDENT, ..Strides::ROWS }.over(rows, stream)
}

/// Enqueues a kernel over rows.
pub(super) fn launch_over_rows(
    stream: &Stream,
    entry: &str,
    rows: u64,
    params: &impl KernelParams<Buffer>,
) -> Result<()> {
    let launch = over_rows(rows, stream);
    Ok(stream.launch(&kernel(stream, entry)?, launch, params)?)
}

/// Waits for a control block.
pub(super) fn read_control(stream: &Stream, control: &Buffer) -> Result<[u64; control::WORDS], DecodeError> {
    let mut words = [0; control::WORDS];
    stream.read(control, 0, bytemuck::cast_slice_mut(&mut words))?;
    Ok(words)
}
