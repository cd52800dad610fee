//! A bound kernel as a program for the kernels that interpret pipelines (`kernels/interpret`).
//!
//! Owns what each node, statement and item becomes in instructions, and which registers they take. Must not know what the
//! kernel is for.

mod allocate;
mod body;
mod builder;
mod call;
mod group;
mod matches;
mod operand;
mod partition;
mod passes;
mod probe;
mod program;
mod simplify;
mod statement;
mod value;

pub use operand::ProgramKind;
pub use program::{EncodedProgram, Program, SharedBytes};
