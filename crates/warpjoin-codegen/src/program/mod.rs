//! A kernel as data: typed code, statements, sections, parameters.
//!
//! Everything that an expression does is a node or a statement with a type, so that a printer and an interpreter can walk it.
//! Conversions are those of C++: usual ones between the sides of an operator, and that to a variable's type where it is set.
//! Must not know what the code is for, nor its text.

mod batch;
mod body;
mod code;
mod function;
mod group;
mod kernel;
mod matches;
mod operator;
mod params;
mod partition;
mod probe;
mod statement;
mod variable;

pub(super) use batch::BatchItem;
pub(super) use body::{
    Body, FRONT_ITEMS, First, Front, Head, Item, QUEUE_HEAD_BYTES, Reservation, TURN_ITEMS, queue_bytes,
};
pub(super) use code::{Code, Codes, Node, Nodes};
pub(super) use function::Function;
pub(super) use group::{
    Accumulate, GroupFrame, GroupLoop, GroupTarget, GroupTiles, GroupWalk, Prefetch, Slot, TableFields,
};
pub(super) use kernel::{Around, Kernel};
pub(super) use matches::{MatchLookUp, MatchUnits, SharedWord};
pub(super) use operator::{Op, Unary};
pub use params::{Binding, FetchPart, GroupPart, JoinPart, MatchPart, PartitionPart, SketchPart};
pub(super) use params::{Field, Params, Type};
pub(super) use partition::PartitionItem;
pub(super) use probe::{Find, MatchLoop, SlicedLoop, Slices};
pub(super) use statement::{Branch, Case, Counter, Declaration, Statement, Status};
pub(super) use variable::Variable;
