//! A whole pipeline kernel: source, steps, sink.

use warpjoin_device::ModuleSource;

use super::aggregate::{self, Limits};
use super::aggregate_columns;
use super::constants::Constants;
use super::emitter::{Cell, Emitter, Environment, ValidityForm};
use super::expr::{conjuncts, evaluate};
use super::packing::Packing;
use super::params::Binding;
use super::shapes::{GroupShape, PayloadForm, Sink, SourceShape, Step};
use super::{probe, store};
use crate::Result;
use crate::column::{ColumnType, EncodedColumn};
use std::sync::Arc;

/// Threads of a block of a generated kernel.
pub(super) const BLOCK_THREADS: u32 = 256;

/// A generated kernel and what its launch needs.
#[derive(Debug)]
pub(crate) struct GeneratedPipeline {
    pub module: ModuleSource,
    /// What to pass, in order.
    pub bindings: Vec<Binding>,
    /// Host-made columns that the kernel reads.
    pub lookups: Vec<Arc<EncodedColumn>>,
    pub sink: SinkShape,
    pub block_threads: u32,
    pub shared_bytes: u32,
}

/// What the sink puts out.
#[derive(Debug)]
pub(crate) enum SinkShape {
    /// Rows of these columns.
    Rows(Vec<ColumnType>),
    /// Build rows: key word, then payload.
    Build { columns: Vec<ColumnType>, packing: Packing, payload: PayloadForm },
    /// A group table.
    Groups(GroupShape),
}

/// Text around the tile loop.
struct Frame {
    prologue: String,
    epilogue: String,
    /// The loop over tiles, up to the number of the tile; `None`: grid stride.
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
            block_threads: BLOCK_THREADS,
        }
    }
}

/// Generates the kernel of a pipeline.
pub(crate) fn generate(source: &SourceShape, steps: &[Step], sink: &Sink, hash_bits: u32) -> Result<GeneratedPipeline> {
    let mut emitter = match source {
        SourceShape::Columns(columns, form) => Emitter::new(columns.clone(), *form),
        SourceShape::Groups(_) => Emitter::new(vec![], ValidityForm::Bytes),
    };
    let mut environment = open_source(&mut emitter, source);
    let mut probes = 0;
    for step in steps {
        environment = emit_step(&mut emitter, &environment, step, &mut probes)?;
    }
    let (shape, frame) = emit_sink(&mut emitter, &environment, sink)?;
    let block_threads = frame.block_threads;
    let rows = emitter.params.once("u64", Binding::SourceRows);
    emitter.params.once("u64*", Binding::Control);
    let (body, params) = emitter.finish();
    let head = frame.head.unwrap_or_else(|| {
        format!(
            "    const u64 tiles = ({rows} + {last}) / {block_threads};\n    \
             for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{\n",
            last = block_threads - 1
        )
    });
    let text = format!(
        "#include \"wj/pipeline.cuh\"\n{declaration}\n\
         WJ_ENTRY(pipeline, Params, {block_threads}) {{\n{prologue}{head}        \
         const u64 row = tile * {block_threads} + threadIdx.x;\n        \
         bool alive = row < {rows};\n{body}    }}\n{epilogue}}}\n",
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
    Ok(GeneratedPipeline {
        module,
        bindings: params.bindings(),
        lookups: params.lookups,
        sink: shape,
        block_threads,
        shared_bytes: frame.shared_bytes,
    })
}

/// The columns of the source; rows of a group table that hold no group are not alive.
fn open_source(emitter: &mut Emitter, source: &SourceShape) -> Environment {
    match source {
        SourceShape::Columns(columns, _) => Environment::new((0..columns.len()).map(Cell::Source).collect()),
        SourceShape::Groups(shape) => {
            let rows = emitter.params.once("const u64*", Binding::SourceGroups);
            emitter.line(&format!("const u64* const group = {rows} + row * {};", shape.stride_words));
            emitter.line("alive = alive && group[0] != 0;");
            aggregate_columns::group_columns(emitter, shape)
        }
    }
}

fn emit_step(emitter: &mut Emitter, environment: &Environment, step: &Step, probes: &mut usize) -> Result<Environment> {
    match step {
        Step::Filter(predicate) => {
            // One section a condition: a column is loaded only for rows that passed those before.
            let mut conditions = vec![];
            conjuncts(predicate, &mut conditions);
            for condition in conditions {
                let value = evaluate(emitter, condition, environment)?;
                emitter.narrow(&value.is_true());
            }
            Ok(environment.clone())
        }
        Step::Project(exprs) => {
            let cells = exprs.iter().map(|expr| match expr.kind {
                crate::expr::ExprKind::Column(index) => environment.cell(index),
                _ => Ok(Cell::Computed(expr.clone(), environment.clone())),
            });
            Ok(Environment::new(cells.collect::<Result<_>>()?))
        }
        Step::Probe(step) => {
            let after = probe::probe(emitter, environment, step, *probes)?;
            *probes += 1;
            Ok(after)
        }
    }
}

fn emit_sink(emitter: &mut Emitter, environment: &Environment, sink: &Sink) -> Result<(SinkShape, Frame)> {
    let rows = |columns| (SinkShape::Rows(columns), Frame::default());
    Ok(match sink {
        Sink::Materialise(columns) => rows(store::materialise(emitter, environment, columns)?),
        Sink::Build { keys, null_equals_null, payload } => {
            let built = store::build(emitter, environment, keys, *null_equals_null, payload)?;
            let shape = SinkShape::Build { columns: built.columns, packing: built.packing, payload: built.payload };
            (shape, Frame::default())
        }
        Sink::Route { shape, keys, null_equals_null, columns } => {
            rows(store::route(emitter, environment, shape, keys, *null_equals_null, columns)?)
        }
        Sink::RouteGroups { keys, columns } => rows(store::route_groups(emitter, environment, keys, columns)?),
        Sink::Aggregate { keys, accumulators, rows_bits, shared_bytes_max, form, block_slots } => {
            let limits = Limits {
                rows_bits: *rows_bits,
                shared_bytes_max: *shared_bytes_max,
                form: *form,
                block_slots: *block_slots,
            };
            let output = aggregate::aggregate(emitter, environment, keys, accumulators, limits)?;
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
