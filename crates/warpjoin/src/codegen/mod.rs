//! Generated kernels: one for each pipeline.
//!
//! Owns how a pipeline's shape becomes CUDA C++ text and the list of what its parameters are bound
//! to. Must not know devices, row counts or where anything lies.
//!
//! Architecture invariant: the text depends on the shape only. Literals, bounds, bases, row counts
//! and addresses are parameters, so another literal, alias or shard compiles nothing.

mod aggregate;
mod aggregate_block;
mod aggregate_columns;
mod aggregate_slot;
mod aggregate_walk;
mod arithmetic;
mod batch;
mod case;
mod cast;
mod compare;
mod constants;
mod dates;
mod emitter;
mod expr;
mod fault;
mod functions;
mod group_shapes;
mod key;
mod lookup;
mod matches;
mod moments;
mod order;
mod packing;
mod params;
mod partition;
mod pipeline;
mod probe;
mod regroup;
mod remembered;
mod shapes;
mod sketch;
mod store;
mod tabulated;
mod value;

pub(crate) use aggregate::ROWS_PER_THREAD_BITS_MAX;
pub(crate) use aggregate_block::{key_bytes, partition_slots};
pub(crate) use aggregate_walk::{PLACES_EACH, PLACES_HEAD};
pub(crate) use batch::BATCH_BLOCKS;
pub(crate) use cast::check as check_cast;
pub(crate) use compare::IN_LIST_MAX;
pub(crate) use constants::{
    BLOCK_THREADS, Constants, DEVICES_MAX, GATHER_COLUMNS, PARTITION_ITEMS, PARTITION_THREADS_FEW,
    PARTITION_THREADS_MANY, PARTITION_THREADS_WORD, ROW_WORDS_MAX, SAMPLE_SLOTS, SKETCH_BITS, SKETCH_KEYS_SHIFT,
    SKETCH_REPEATED_SHIFT, SORT_DIGIT_BITS, SORT_DIGITS, SORT_FEW_ROWS, SORT_FEW_WORDS, SORT_ITEMS, SORT_THREADS,
    TOP_K_DIGIT_BITS, WINDOW_FANOUT, WINDOW_ITEMS, WINDOW_WORDS, control, group_counter, sort_defines, status,
    top_k_state, window_defines, window_kind,
};
pub(crate) use emitter::ValidityForm;
pub(crate) use functions::check as check_function;
pub(crate) use group_shapes::{Accumulator, GroupLimits, GroupMode, GroupShape, Term};
pub(crate) use key::PipelineKey;
pub(crate) use lookup::{DictionaryTest, Lookup};
pub(crate) use matches::{match_threads, shared_row_bytes};
pub(crate) use params::{Binding, FetchPart, GroupPart, JoinPart, MatchPart, PartitionPart, SketchPart};
pub(crate) use pipeline::{GenerateOptions, GeneratedPipeline, Grid, SinkShape, generate};
pub(crate) use regroup::regroup;
pub(crate) use shapes::{
    DirectSlots, FetchStep, FilterTest, JoinShape, MatchForm, PartitionStage, PayloadForm, ProbeKey, ProbeKind,
    ProbeStep, RowShape, RowSpec, Sink, Slots, SortShape, SourceShape, Step, StoredKey, WindowKeys, WordSlots,
};
pub(crate) use store::{RESERVATION_BYTES, common_columns};
pub(crate) use value::{Kind, Range, range_of_type};
