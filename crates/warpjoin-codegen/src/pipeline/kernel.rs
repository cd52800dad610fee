//! A whole pipeline kernel: source, steps, sink.

use std::sync::{Arc, OnceLock};

use warpjoin_columns::Result;
use warpjoin_columns::column::ColumnType;
use warpjoin_device::ModuleSource;
use warpjoin_kernels::common::RESERVATION_BYTES;
use warpjoin_kernels::partition::PARTITION_THREADS_MANY;

use super::batch::{BATCH_BLOCKS, Batch};
use super::matches::{self, Matches};
use super::partition::partition;
use super::queue;
use super::slices::{open_slices, sliced_loop};
use super::source::open_source;
use super::steps::{bind_step, pass_step};
use crate::bind::{Binder, Environment, FrontPlace, HeadPlace};
use crate::constants::{Constants, PIPELINE_BLOCK_THREADS};
use crate::interpret::Program;
use crate::precomputed::Lookup;
use crate::program::{Around, Binding, GroupFrame, GroupLoop, Head, Kernel, QUEUE_HEAD_BYTES, Type, queue_bytes};
use crate::shapes::{
    GroupLimits, GroupShape, JoinShape, MatchForm, Packing, PartitionStage, PayloadForm, RowShape, Sink, SortShape,
    SourceShape, Step,
};
use crate::value::CType;
use crate::{group, join, output, print};

/// A bound kernel and what its launch needs.
#[derive(Debug)]
pub struct GeneratedPipeline {
    /// What to pass, in order.
    pub bindings: Vec<Binding>,
    /// Host-made columns that the kernel reads.
    pub lookups: Vec<Lookup>,
    pub sink: SinkShape,
    pub grid: Grid,
    kernel: Kernel,
    hash_bits: u32,
    module: OnceLock<ModuleSource>,
    program: OnceLock<Option<Program>>,
}

impl GeneratedPipeline {
    /// The kernel's text, printed when it is first asked for.
    pub fn module(&self) -> &ModuleSource {
        self.module.get_or_init(|| ModuleSource {
            name: "pipeline".into(),
            text: print::print(&self.kernel),
            entries: vec!["pipeline".into()],
            defines: Constants { hash_bits: self.hash_bits, lanes: 1 }.defines(),
        })
    }

    /// The same as a program for the kernels that interpret, made when it is first asked for; `None`: these lack something.
    pub fn program(&self) -> Option<&Program> {
        let made = || match Program::of(&self.kernel) {
            Ok(program) => Some(program),
            Err(what) => {
                log::debug!("not interpreted: {what}");
                None
            }
        };
        self.program.get_or_init(made).as_ref()
    }

    /// Whether both are the same kernel, to be launched with the same numbers.
    pub fn is_same(&self, other: &Self) -> bool {
        self.module() == other.module()
            && self.bindings == other.bindings
            && self.grid == other.grid
            && self.lookups.len() == other.lookups.len()
    }
}

/// How rows are spread over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// A row a thread, grid stride. 2^`slice_bits_max` threads may share a row at most ([`Binding::SliceBits`]).
    Tiles { block_threads: u32, shared_bytes: u32, slice_bits_max: u32 },
    /// `batch::ITEMS` rows a thread, grid stride, [`BATCH_BLOCKS`] blocks a multiprocessor.
    Batches { block_threads: u32, shared_bytes: u32 },
    /// [`warpjoin_kernels::partition::PARTITION_ITEMS`] rows a thread, grid stride, a counter a partition.
    Count,
    /// A tile of a partition a block, of at most so many threads.
    Scatter { threads: u32 },
    /// Work items of a join, grid stride.
    Matches,
}

/// What the sink puts out.
#[derive(Debug)]
pub enum SinkShape {
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

/// What a sink has around the loop over rows.
struct Frame {
    around: Around,
    /// The loop over tiles; `None`: grid stride.
    head: Option<Head>,
    shared_bytes: u32,
    block_threads: u32,
}

impl Default for Frame {
    fn default() -> Self {
        Self { around: Around::Nothing, head: None, shared_bytes: 0, block_threads: PIPELINE_BLOCK_THREADS }
    }
}

/// What a query's settings say of its kernels.
#[derive(Debug, Clone, Copy)]
pub struct GenerateOptions {
    /// Bits of key hashes that are kept.
    pub hash_bits: u32,
    /// Distinct strings from which on devices test them.
    pub tested_strings_min: usize,
}

/// Binds the kernel of a pipeline.
pub fn bind_pipeline(
    source: &SourceShape,
    steps: &[Step],
    sink: &Sink,
    options: GenerateOptions,
) -> Result<GeneratedPipeline> {
    let hash_bits = options.hash_bits;
    let mut binder = Binder::of_source(source);
    binder.tested_strings_min = options.tested_strings_min;
    let b = &mut binder;
    if let Sink::Partition { stage, rows } = sink {
        let shape = partition(b, source, steps, rows, *stage)?;
        let (grid, threads_max) = match *stage {
            PartitionStage::Count => (Grid::Count, PARTITION_THREADS_MANY),
            PartitionStage::Scatter { threads, threads_of_one_word } => {
                let threads = if shape.words() == 1 { threads_of_one_word } else { threads };
                (Grid::Scatter { threads }, threads)
            }
        };
        let frame = Frame { block_threads: threads_max, ..Frame::default() };
        return Ok(finish(binder, frame, grid, SinkShape::Partition(shape), hash_bits));
    }
    let (shape, frame, grid) = match source {
        SourceShape::Matches { build, probe, form } => {
            let matches = Matches { build, probe, form: *form };
            let (shape, frame) = bind_matches(b, &matches, steps, sink)?;
            (shape, Frame { block_threads: matches::match_threads(*form), ..frame }, Grid::Matches)
        }
        _ => {
            b.is_streaming = steps.iter().any(|step| matches!(step, Step::Probe(_)));
            match Batch::of(source, steps, sink) {
                Some(batch) => {
                    let environment = batch.open(b, PIPELINE_BLOCK_THREADS)?;
                    let (shape, frame) = bind_rest(b, environment, batch.after, 0, sink)?;
                    let (block_threads, shared_bytes) = (PIPELINE_BLOCK_THREADS, RESERVATION_BYTES);
                    (shape, frame, Grid::Batches { block_threads, shared_bytes })
                }
                None => bind_tiles(b, source, steps, sink)?,
            }
        }
    };
    Ok(finish(binder, frame, grid, shape, hash_bits))
}

/// The loops over matches of partitioned rows.
fn bind_matches(b: &mut Binder, matches: &Matches<'_>, steps: &[Step], sink: &Sink) -> Result<(SinkShape, Frame)> {
    // The other sinks that write rows may drop some of them first.
    let writes_rows = matches!(sink, Sink::Materialise(_));
    let (environment, rest) = if matches.form == MatchForm::Lists {
        (matches.open_lists(b, writes_rows && !steps.iter().any(Step::drops_rows)), steps)
    } else {
        matches.open(b, steps, writes_rows)?
    };
    bind_rest(b, environment, rest, 0, sink)
}

/// The loop over tiles of rows, a row a thread.
fn bind_tiles(b: &mut Binder, source: &SourceShape, steps: &[Step], sink: &Sink) -> Result<(SinkShape, Frame, Grid)> {
    // The loop's head is known last: the sink chooses the threads of a block.
    let place = b.begin_head();
    b.is_block_uniform = true;
    b.is_tiles = true;
    b.is_partitioned = matches!(source, SourceShape::Words { by_partition: true, .. });
    b.reads_all = !steps.iter().any(Step::drops_rows);
    let number = Type::Value(CType::U64);
    if let Sink::Limit { wanted, .. } = sink {
        b.wanted = Some(b.params.add(number, Binding::Word(*wanted)));
    }
    let (mut rest, mut probes, mut front, mut slice_bits_max) = (steps, 0, None, 0);
    let environment = if let Some((tests, behind)) = queue::split(source, steps, sink) {
        let (left, tested) = bind_front(b, source, tests, &place, &mut probes)?;
        (rest, front) = (behind, Some(tested));
        left
    } else {
        if let Some(sliced) = sliced_loop(steps, sink).filter(|_| !b.is_partitioned) {
            open_slices(b, sliced);
            slice_bits_max = sliced.bits_max();
        }
        open_source(b, source)
    };
    let (shape, mut frame) = bind_rest(b, environment, rest, probes, sink)?;
    let (rows, control) = (b.rows(), b.params.control());
    let block_threads = frame.block_threads;
    let wanted = b.wanted.map(|wanted| [control, wanted]);
    let is_ordered = frame.head.is_some();
    let mut shared_bytes = frame.shared_bytes;
    let head = match (frame.head.take(), &front) {
        (Some(head), _) => head,
        (None, Some(_)) => Head::Turns { rows, block_threads },
        (None, None) => Head::GridStride { rows, row: b.row, block_threads, wanted },
    };
    b.end_head(&place, head);
    if let Some(front) = front {
        let offset = shared_bytes.next_multiple_of(QUEUE_HEAD_BYTES);
        b.place_front(&front, block_threads, offset, is_ordered)?;
        shared_bytes = offset + queue_bytes(block_threads);
    }
    let grid = Grid::Tiles { block_threads, shared_bytes, slice_bits_max };
    Ok((shape, frame, grid))
}

/// Tests of the rows of a turn; then the columns for those that are left, read anew.
fn bind_front(
    b: &mut Binder,
    source: &SourceShape,
    tests: &[Step],
    head: &HeadPlace,
    probes: &mut usize,
) -> Result<(Environment, FrontPlace)> {
    let mut tested = open_source(b, source);
    for step in tests {
        tested = bind_step(b, &tested, step, probes)?;
    }
    let rows = b.params.once(Type::Value(CType::U64), Binding::SourceRows);
    let front = b.end_front(head, rows)?;
    // Matches are looked up again, under the same numbers.
    b.payloads.clear();
    let (mut left, mut passed) = (open_source(b, source), 0);
    for step in tests {
        left = pass_step(b, &left, step, &mut passed)?;
    }
    Ok((left, front))
}

/// Steps and sink.
fn bind_rest(
    b: &mut Binder,
    mut environment: Environment,
    steps: &[Step],
    mut probes: usize,
    sink: &Sink,
) -> Result<(SinkShape, Frame)> {
    for step in steps {
        environment = bind_step(b, &environment, step, &mut probes)?;
    }
    bind_sink(b, &environment, sink)
}

fn finish(binder: Binder, frame: Frame, grid: Grid, sink: SinkShape, hash_bits: u32) -> GeneratedPipeline {
    let (nodes, body, params) = binder.finish();
    let Frame { around, block_threads, .. } = frame;
    let is_of_two = |block_threads| [group::TABLE_BLOCK_THREADS, group::SKEWED_BLOCK_THREADS].contains(&block_threads);
    let blocks_min = match grid {
        Grid::Scatter { threads } if threads < PARTITION_THREADS_MANY => Some(2),
        Grid::Tiles { block_threads, .. } if is_of_two(block_threads) => Some(2),
        Grid::Batches { .. } => Some(BATCH_BLOCKS),
        Grid::Matches if block_threads == matches::MATCH_THREADS => Some(matches::MATCH_BLOCKS),
        _ => None,
    };
    let kernel = Kernel { params: params.types().collect(), nodes, body, around, block_threads, blocks_min };
    let (bindings, lookups) = params.into_bindings();
    GeneratedPipeline {
        bindings,
        lookups,
        sink,
        grid,
        kernel,
        hash_bits,
        module: OnceLock::new(),
        program: OnceLock::new(),
    }
}

fn bind_sink(b: &mut Binder, environment: &Environment, sink: &Sink) -> Result<(SinkShape, Frame)> {
    let frame = || Frame { shared_bytes: RESERVATION_BYTES, ..Frame::default() };
    let rows = |columns| (SinkShape::Rows(columns), frame());
    Ok(match sink {
        Sink::Materialise(columns) | Sink::Limit { columns, .. } => rows(output::materialise(b, environment, columns)?),
        Sink::Conform(columns) => rows(output::conform(b, environment, columns)?),
        Sink::Build { keys, null_equals_null, payload } => {
            let built = join::build(b, environment, keys, *null_equals_null, payload)?;
            let shape = SinkShape::Build { columns: built.columns, packing: built.packing, payload: built.payload };
            (shape, frame())
        }
        Sink::Direct { keys, null_equals_null, payload, is_set } => {
            let shape = join::direct(b, environment, keys, *null_equals_null, payload, *is_set)?;
            let around = Around::CountRows { control: b.params.control() };
            let frame = Frame { around, ..Frame::default() };
            (SinkShape::Direct(shape), frame)
        }
        Sink::Route { shape, keys, null_equals_null, keeps_unmatched, keeps_words, columns } => {
            let (null_equals_null, keeps_words) = (*null_equals_null, *keeps_words);
            let route = join::Route { shape, keys, null_equals_null, keeps_words, columns };
            rows(join::route(b, environment, &route, *keeps_unmatched)?)
        }
        Sink::Sort { keys, columns, window } => {
            (SinkShape::Sort(output::sort(b, environment, keys, columns, window.as_ref())?), frame())
        }
        Sink::InPlace(columns) => rows(output::in_place(b, environment, columns)?),
        Sink::RouteGroups { keys, columns } => rows(group::route_groups(b, environment, keys, columns)?),
        Sink::Sketch { keys } => {
            let head = Some(group::sketch(b, environment, keys)?);
            (SinkShape::Sketch, Frame { head, ..Frame::default() })
        }
        Sink::Partition { .. } => return Err(warpjoin_columns::Error::internal("a partition within a loop over rows")),
        Sink::Aggregate { keys, accumulators, limits } => {
            let limits = GroupLimits {
                table_blocks: if b.is_partitioned { limits.table_blocks } else { 2 },
                is_skewed: limits.is_skewed && b.is_partitioned,
                ..*limits
            };
            let output = group::aggregate(b, environment, keys, accumulators, limits)?;
            let group::AggregateOutput { shape, target, frame, shared_bytes, block_threads } = output;
            let has_loop = matches!(&frame, GroupFrame::Table { rows: GroupLoop::Tiles(_) | GroupLoop::Walk(_), .. });
            let head = has_loop.then_some(Head::Group);
            let frame = Frame { around: Around::Groups { target, frame }, head, shared_bytes, block_threads };
            (SinkShape::Groups(shape), frame)
        }
    })
}
