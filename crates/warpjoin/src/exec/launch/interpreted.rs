//! Launches of interpreted pipelines.

use warpjoin_codegen::{EncodedProgram, GeneratedPipeline, Grid, Program, ProgramKind, SharedBytes};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Arg, Buffer, DeviceInfo, Kernel, Launch, Ptr, Stream};
use warpjoin_kernels::interpret::InterpretParams;
use warpjoin_kernels::padded;
use warpjoin_kernels::partition::PARTITION_ITEMS;

use super::shape::{blocks_min, partition_launch};
use crate::exec::relation::{Relation, Source};

/// Threads of a block that has no table in its shared memory (`interpret.cu`).
const THREADS: u32 = 256;
/// The same with a table.
const TABLE_THREADS: u32 = 768;
/// Maximum resident blocks of a multiprocessor (`interpret.cu`).
const BLOCKS_MAX: u32 = 5;

/// A program on a device.
pub(super) struct Interpreted {
    kind: ProgramKind,
    program: EncodedProgram,
    words: Buffer,
    shape: BlockShape,
}

/// Threads and shared memory of a block.
#[derive(Debug, Clone, Copy)]
struct BlockShape {
    threads: u32,
    shared: SharedBytes,
}

/// Whether a device has room for the program of a pipeline over a relation, which writes 2^bits partitions, if any.
pub(super) fn can_interpret(info: &DeviceInfo, relation: &Relation, generated: &GeneratedPipeline, bits: u32) -> bool {
    generated.program().is_some_and(|program| block_shape(info, relation, generated, program, bits).is_some())
}

/// The largest blocks that fit.
fn block_shape(
    info: &DeviceInfo,
    relation: &Relation,
    generated: &GeneratedPipeline,
    program: &Program,
    bits: u32,
) -> Option<BlockShape> {
    let most = match program.kind {
        ProgramKind::Groups if program.has_front() => TABLE_THREADS,
        _ => THREADS,
    };
    let fits = |threads: u32| {
        let before_bytes = match (program.kind, generated.grid) {
            (ProgramKind::Count, _) => 4u32.checked_shl(bits)?,
            (ProgramKind::Scatter, _) => {
                let tile = partition_launch(info, bits, threads);
                (tile.threads == threads).then_some(tile.shared_bytes)?
            }
            // Heads and links of chains.
            (ProgramKind::Matches, _) => {
                let Source::Matches(matches, form) = &relation.source else { return None };
                (4u32.checked_shl(matches.table(*form).heads_bits)?).checked_add(2 * matches.capacity)?
            }
            // Group tables have theirs by the program.
            (ProgramKind::Groups, _) => 0,
            (ProgramKind::Rows, Grid::Tiles { shared_bytes, .. } | Grid::Batches { shared_bytes, .. }) => shared_bytes,
            (ProgramKind::Rows, _) => return None,
        };
        let shared = program.shared_bytes(before_bytes, threads, info.shared_bytes_per_block_max)?;
        Some(BlockShape { threads, shared })
    };
    let sizes = [TABLE_THREADS, 640, 512, 384, THREADS, 128, 64].into_iter().filter(|&threads| threads <= most);
    sizes.map(|threads| info.block_threads(threads)).find_map(fits)
}

impl Interpreted {
    /// Brings the program of a pipeline to a device.
    pub(super) fn open(stream: &Stream, relation: &Relation, generated: &GeneratedPipeline, bits: u32) -> Result<Self> {
        let missing = || Error::internal("a pipeline that no kernel interprets");
        let program = generated.program().ok_or_else(missing)?;
        let shape = block_shape(stream.device().info(), relation, generated, program, bits).ok_or_else(missing)?;
        let kind = program.kind;
        let program = program.encoded(shape.shared, shape.threads);
        let words = stream.upload(bytemuck::cast_slice(&program.words))?;
        Ok(Self { kind, program, words, shape })
    }

    /// The program's words, which must live until the launch has ended.
    pub(super) fn into_words(self) -> Buffer {
        self.words
    }

    /// Enqueues the program over some rows; `plain` is the launch shape of the pipeline's own kernel.
    pub(super) fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        rows: u64,
        plain: Launch,
        args: Vec<Arg<'_>>,
    ) -> Result<()> {
        let Self { kind, program, words, shape: BlockShape { threads, shared } } = self;
        let info = stream.device().info();
        let by_shared = (info.shared_bytes_per_block_max / shared.bytes.max(1)).clamp(1, BLOCKS_MAX);
        let shape = Launch { blocks: 1, block_threads: *threads, shared_bytes: shared.bytes };
        let resident = stream.resident_blocks(kernel, shape)?.map_or(by_shared, |blocks| blocks.max(1));
        let fill = u64::from(info.multiprocessors * resident);
        let tiles = rows.div_ceil(u64::from(*threads)).max(1);
        let tiles_of_items = rows.div_ceil(u64::from(threads * PARTITION_ITEMS)).max(1);
        let blocks = match kind {
            ProgramKind::Rows => tiles.min(fill).max(blocks_min(rows, *threads)),
            // Each block has a place of its own, of which there are no more.
            ProgramKind::Groups => tiles.min(fill).min(plain.blocks.into()),
            ProgramKind::Matches => fill,
            ProgramKind::Count => tiles_of_items.min(fill),
            ProgramKind::Scatter => tiles_of_items,
        };
        let params = InterpretParams {
            program: Ptr::of(words),
            words: program.words.len() as u64,
            fields: program.fields,
            instructions: program.instructions,
            list: program.list,
            match_list: program.match_list,
            shared_words: program.shared_words,
            values: padded(args, Arg::U64(0)),
        };
        let blocks = blocks.clamp(1, i32::MAX as u64) as u32;
        Ok(stream.launch(kernel, Launch { blocks, ..shape }, &params)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_agree_with_the_bounds_of_the_kernels() {
        let text = warpjoin_kernels::INTERPRET.text;
        let bounds_of = |line: &str| {
            let (params, _) = line.strip_prefix("WJ_ENTRY_RESIDENT(")?.split_once(')')?;
            let [entry, _, threads, blocks] = params.split(", ").collect::<Vec<_>>()[..] else { return None };
            Some((entry.to_string(), threads.parse().ok()?, blocks.parse().ok()?))
        };
        let bounds: Vec<(String, u32, u32)> = text.lines().filter_map(bounds_of).collect();
        assert_eq!(bounds.len(), warpjoin_kernels::INTERPRET.entries().count());
        for (entry, threads, _) in &bounds {
            let expected = if entry == "interpret_groups" { TABLE_THREADS } else { THREADS };
            assert_eq!(*threads, expected, "{entry}");
        }
        assert_eq!(bounds.iter().map(|(_, _, blocks)| *blocks).max(), Some(BLOCKS_MAX));
    }
}
