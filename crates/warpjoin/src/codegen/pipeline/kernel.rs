//! A whole pipeline kernel: source, steps, sink.

use std::sync::Arc;

use warpjoin_device::ModuleSource;

use super::batch::{BATCH_BLOCKS, Batch};
use super::matches::{self, Matches};
use super::partition::partition;
use super::source::open_source;
use super::steps::emit_step;
use crate::Result;
use crate::codegen::constants::{Constants, PARTITION_THREADS_MANY, PIPELINE_BLOCK_THREADS};
use crate::codegen::emit::{Binding, Emitter, Environment};
use crate::codegen::output::RESERVATION_BYTES;
use crate::codegen::precomputed::Lookup;
use crate::codegen::shapes::{
    GroupLimits, GroupShape, JoinShape, MatchForm, Packing, PartitionStage, PayloadForm, RowShape, Sink, SortShape,
    SourceShape, Step,
};
use crate::codegen::{group, join, output};
use crate::column::ColumnType;

/// A generated kernel and what its launch needs.
#[derive(Debug)]
pub(crate) struct GeneratedPipeline {
    pub module: ModuleSource,
    /// What to pass, in order.
    pub bindings: Vec<Binding>,
    /// Host-made columns that the kernel reads.
    pub lookups: Vec<Lookup>,
    pub sink: SinkShape,
    pub grid: Grid,
}

impl GeneratedPipeline {
    /// Whether both are the same kernel, to be launched with the same numbers.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.module == other.module
            && self.bindings == other.bindings
            && self.grid == other.grid
            && self.lookups.len() == other.lookups.len()
    }
}

/// How rows are spread over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grid {
    /// A row a thread, grid stride.
    Tiles { block_threads: u32, shared_bytes: u32 },
    /// [`super::batch::ITEMS`] rows a thread, grid stride, [`BATCH_BLOCKS`] blocks a multiprocessor.
    Batches { block_threads: u32, shared_bytes: u32 },
    /// [`crate::codegen::PARTITION_ITEMS`] rows a thread, grid stride, a counter a partition.
    Count,
    /// A tile of a partition a block, of at most so many threads.
    Scatter { threads: u32 },
    /// Work items of a join, grid stride.
    Matches,
}

/// What the sink puts out.
#[derive(Debug)]
pub(crate) enum SinkShape {
    /// Rows of these columns.
    Rows(Vec<ColumnType>),
    /// Build rows: key word, then payload.
    Build { columns: Vec<ColumnType>, packing: Packing, payload: PayloadForm },
    /// A table indexed by the packed key; `None`: these keys and this payload make none.
    Direct(Option<JoinShape>),
    /// Words of an order's keys, then columns.
    Sort(SortShape),
    /// A group table.
    Groups(GroupShape),
    /// Rows of words.
    Partition(Arc<RowShape>),
    /// Counters in the control block.
    Sketch,
}

/// Text around the loop over rows.
struct Frame {
    prologue: String,
    epilogue: String,
    /// The head of the loop over tiles, with `row` and `alive`; `None`: grid stride.
    head: Option<String>,
    shared_bytes: u32,
    block_threads: u32,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            prologue: String::new(),
            epilogue: String::new(),
            head: None,
            shared_bytes: 0,
            block_threads: PIPELINE_BLOCK_THREADS,
        }
    }
}

/// What a query's settings say of its kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GenerateOptions {
    /// Bits of key hashes that are kept.
    pub hash_bits: u32,
    /// Distinct strings from which on devices test them.
    pub tested_strings_min: usize,
}

/// Generates the kernel of a pipeline.
pub(crate) fn generate(
    source: &SourceShape,
    steps: &[Step],
    sink: &Sink,
    options: GenerateOptions,
) -> Result<GeneratedPipeline> {
    let hash_bits = options.hash_bits;
    let mut emitter = Emitter::of_source(source);
    emitter.tested_strings_min = options.tested_strings_min;
    if let Sink::Partition { stage, rows } = sink {
        let shape = partition(&mut emitter, source, steps, rows, *stage)?;
        let (grid, threads_max) = match *stage {
            PartitionStage::Count => (Grid::Count, PARTITION_THREADS_MANY),
            PartitionStage::Scatter { threads, threads_of_one_word } => {
                let threads = if shape.words() == 1 { threads_of_one_word } else { threads };
                (Grid::Scatter { threads }, threads)
            }
        };
        return Ok(finish(emitter, &Frame::default(), threads_max, grid, SinkShape::Partition(shape), hash_bits));
    }
    let (shape, frame, grid) = match source {
        SourceShape::Matches { build, probe, form } => {
            // The other sinks that write rows may drop some of them first.
            let writes_rows = matches!(sink, Sink::Materialise(_));
            let matches = Matches { build, probe, form: *form };
            let (environment, rest) = if *form == MatchForm::Lists {
                (matches.open_lists(&mut emitter, writes_rows && !steps.iter().any(Step::drops_rows)), steps)
            } else {
                matches.open(&mut emitter, steps, writes_rows)?
            };
            let (shape, frame) = emit_rest(&mut emitter, environment, rest, sink)?;
            (shape, frame, Grid::Matches)
        }
        _ => {
            emitter.is_streaming = steps.iter().any(|step| matches!(step, Step::Probe(_)));
            match Batch::of(source, steps, sink) {
                Some(batch) => {
                    let environment = batch.open(&mut emitter, PIPELINE_BLOCK_THREADS)?;
                    let (shape, frame) = emit_rest(&mut emitter, environment, batch.after, sink)?;
                    (
                        shape,
                        frame,
                        Grid::Batches { block_threads: PIPELINE_BLOCK_THREADS, shared_bytes: RESERVATION_BYTES },
                    )
                }
                None => emit_tiles(&mut emitter, source, steps, sink)?,
            }
        }
    };
    let block_threads = match source {
        SourceShape::Matches { form, .. } => matches::match_threads(*form),
        _ => frame.block_threads,
    };
    Ok(finish(emitter, &frame, block_threads, grid, shape, hash_bits))
}

/// The loop over tiles of rows, a row a thread.
fn emit_tiles(
    emitter: &mut Emitter,
    source: &SourceShape,
    steps: &[Step],
    sink: &Sink,
) -> Result<(SinkShape, Frame, Grid)> {
    // The loop's head is written last: the sink chooses the threads of a block.
    let head = emitter.begin_head();
    emitter.is_block_uniform = true;
    emitter.is_tiles = true;
    emitter.is_partitioned = matches!(source, SourceShape::Words(_));
    emitter.reads_all = !steps.iter().any(Step::drops_rows);
    if let Sink::Limit { wanted, .. } = sink {
        emitter.wanted = Some(emitter.params.add("u64", Binding::Word(*wanted)));
    }
    let environment = open_source(emitter, source);
    let (shape, frame) = emit_rest(emitter, environment, steps, sink)?;
    let rows = emitter.params.once("u64", Binding::SourceRows);
    let control = emitter.params.once("u64*", Binding::Control);
    let block_threads = frame.block_threads;
    let (before, stop) = match &emitter.wanted {
        Some(wanted) => (
            "    bool is_full = false;\n    u64 turn = 0;\n",
            format!("        if (has_enough(&{control}[WJ_CONTROL_ROWS], {wanted}, turn++)) break;\n"),
        ),
        None => ("", String::new()),
    };
    let loop_head = frame.head.clone().unwrap_or_else(|| {
        format!(
            "{before}    const u64 tiles = ({rows} + {last}) / {block_threads};\n    \
             for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{\n{stop}        \
             const u64 row = tile * {block_threads} + threadIdx.x;\n        \
             bool alive = row < {rows};\n",
            last = block_threads - 1
        )
    });
    emitter.end_head(head, &loop_head);
    let grid = Grid::Tiles { block_threads, shared_bytes: frame.shared_bytes };
    Ok((shape, frame, grid))
}

/// Steps and sink.
fn emit_rest(
    emitter: &mut Emitter,
    mut environment: Environment,
    steps: &[Step],
    sink: &Sink,
) -> Result<(SinkShape, Frame)> {
    let mut probes = 0;
    for step in steps {
        environment = emit_step(emitter, &environment, step, &mut probes)?;
    }
    emit_sink(emitter, &environment, sink)
}

fn finish(
    emitter: Emitter,
    frame: &Frame,
    block_threads: u32,
    grid: Grid,
    sink: SinkShape,
    hash_bits: u32,
) -> GeneratedPipeline {
    let (body, params) = emitter.finish();
    let entry = match grid {
        Grid::Scatter { threads } if threads < PARTITION_THREADS_MANY => {
            format!("WJ_ENTRY_RESIDENT(pipeline, Params, {block_threads}, 2)")
        }
        Grid::Tiles { block_threads, .. }
            if [group::TABLE_BLOCK_THREADS, group::SKEWED_BLOCK_THREADS].contains(&block_threads) =>
        {
            format!("WJ_ENTRY_RESIDENT(pipeline, Params, {block_threads}, 2)")
        }
        Grid::Batches { .. } => format!("WJ_ENTRY_RESIDENT(pipeline, Params, {block_threads}, {BATCH_BLOCKS})"),
        Grid::Matches if block_threads == matches::MATCH_THREADS => {
            format!("WJ_ENTRY_RESIDENT(pipeline, Params, {block_threads}, {})", matches::MATCH_BLOCKS)
        }
        _ => format!("WJ_ENTRY(pipeline, Params, {block_threads})"),
    };
    let text = format!(
        "#include \"common/pipeline.cuh\"\n{declaration}\n\
         {entry} {{\n{prologue}{body}{epilogue}}}\n",
        declaration = params.declaration(),
        prologue = frame.prologue,
        epilogue = frame.epilogue,
    );
    let module = ModuleSource {
        name: "pipeline".into(),
        text,
        entries: vec!["pipeline".into()],
        defines: Constants { hash_bits, lanes: 1 }.defines(),
    };
    let (bindings, lookups) = params.into_bindings();
    GeneratedPipeline { module, bindings, lookups, sink, grid }
}

fn emit_sink(emitter: &mut Emitter, environment: &Environment, sink: &Sink) -> Result<(SinkShape, Frame)> {
    let frame = || Frame { shared_bytes: RESERVATION_BYTES, ..Frame::default() };
    let rows = |columns| (SinkShape::Rows(columns), frame());
    Ok(match sink {
        Sink::Materialise(columns) | Sink::Limit { columns, .. } => {
            rows(output::materialise(emitter, environment, columns)?)
        }
        Sink::Conform(columns) => rows(output::conform(emitter, environment, columns)?),
        Sink::Build { keys, null_equals_null, payload } => {
            let built = join::build(emitter, environment, keys, *null_equals_null, payload)?;
            let shape = SinkShape::Build { columns: built.columns, packing: built.packing, payload: built.payload };
            (shape, frame())
        }
        Sink::Direct { keys, null_equals_null, payload, is_set } => {
            let shape = join::direct(emitter, environment, keys, *null_equals_null, payload, *is_set)?;
            let control = emitter.params.once("u64*", Binding::Control);
            let frame = Frame {
                prologue: "    u32 written = 0;\n".into(),
                epilogue: format!("    add_rows({control}, written);\n"),
                ..Frame::default()
            };
            (SinkShape::Direct(shape), frame)
        }
        Sink::Route { shape, keys, null_equals_null, keeps_unmatched, columns } => {
            let route = join::Route { shape, keys, null_equals_null: *null_equals_null, columns };
            rows(join::route(emitter, environment, &route, *keeps_unmatched)?)
        }
        Sink::Sort { keys, columns, window } => {
            (SinkShape::Sort(output::sort(emitter, environment, keys, columns, window.as_ref())?), frame())
        }
        Sink::InPlace(columns) => rows(output::in_place(emitter, environment, columns)?),
        Sink::RouteGroups { keys, columns } => rows(group::route_groups(emitter, environment, keys, columns)?),
        Sink::Sketch { keys } => {
            let head = Some(group::sketch(emitter, environment, keys)?);
            (SinkShape::Sketch, Frame { head, ..Frame::default() })
        }
        Sink::Partition { .. } => return Err(crate::Error::internal("a partition within a loop over rows")),
        Sink::Aggregate { keys, accumulators, limits } => {
            let limits = GroupLimits {
                table_blocks: if emitter.is_partitioned { limits.table_blocks } else { 2 },
                is_skewed: limits.is_skewed && emitter.is_partitioned,
                ..*limits
            };
            let output = group::aggregate(emitter, environment, keys, accumulators, limits)?;
            let frame = Frame {
                prologue: output.prologue,
                epilogue: output.epilogue,
                head: output.head,
                shared_bytes: output.shared_bytes,
                block_threads: output.block_threads,
            };
            (SinkShape::Groups(output.shape), frame)
        }
    })
}
