//! Generated kernels, one for each pipeline: an internal part of warpjoin, without promises of stability.
//!
//! Owns how a pipeline's shape is bound to a kernel as data, with the list of what its parameters are bound to, and how that
//! is printed as CUDA C++. Must not know devices, row counts or where anything lies.
//!
//! Architecture invariant: the text depends on the shape only. Literals, bounds, bases, row counts
//! and addresses are parameters, so another literal, alias or shard compiles nothing.
//!
//! Each folder imports only what stands below it:
//! - `pipeline`: whole kernels, and what they follow from
//! - `join`, `group`: join tables and group tables, with their sinks
//! - `output`: sinks that write rows
//! - `expr`: rules of expressions
//! - `lookup`: reading what was precomputed
//! - `bind`: code, sections and columns of a kernel that is being bound
//! - `print`: the text of a bound kernel
//! - `interpret`: a bound kernel as a program for kernels that interpret
//! - `program`: a bound kernel, as data
//! - `fixed`: hand-written modules
//! - `precomputed`: what the host evaluates before a kernel runs
//! - `shapes`: what code depends on
//! - `value`, `constants`: what is known of values; constants that kernels and host share

#![allow(missing_docs, reason = "what only the other crates of warpjoin use need not be documented")]

mod bind;
mod constants;
mod expr;
mod fixed;
mod group;
mod interpret;
mod join;
mod lookup;
mod output;
mod pipeline;
mod precomputed;
mod print;
mod program;
mod shapes;
mod value;

pub use constants::Constants;
pub use expr::{IN_LIST_MAX, check_cast};
pub use fixed::prebuilt_modules;
pub use fixed::{
    BucketShape, COUNT_WITHIN, FixedModule, PASS_MULTIPLE, RESTORE, SlotForm, USUAL_HASH_BITS, interpreters,
    partition_module, pass_entry, prebuilt, regroup,
};
pub use group::{ROWS_PER_THREAD_BITS_MAX, key_bytes, partition_slots};
pub use interpret::{EncodedProgram, Program, ProgramKind, SharedBytes};
pub use output::common_columns;
pub use pipeline::{
    BATCH_BLOCKS, GenerateOptions, GeneratedPipeline, Grid, PipelineKey, SinkShape, bind_pipeline, match_threads,
    shared_row_bytes,
};
pub use precomputed::{DictionaryTest, Lookup, LookupColumn, forget};
pub use program::{Binding, FetchPart, GroupPart, JoinPart, MatchPart, PartitionPart, SketchPart};
pub use shapes::{
    Accumulator, DirectSlots, FetchStep, FilterTest, GroupLimits, GroupMode, GroupShape, JoinShape, MatchForm,
    PartitionStage, PayloadForm, ProbeKey, ProbeKind, ProbeStep, RowShape, RowSpec, Sink, Slots, SortShape,
    SourceShape, Step, StoredKey, ValidityForm, WindowKeys, WordSlots,
};
pub use value::{Kind, Range, range_of_type};
