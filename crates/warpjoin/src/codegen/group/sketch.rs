//! The sink that counts the different keys of a sample of rows.

use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;

use crate::codegen::bind::{Binder, Environment, Value, hoist_word, partition_hash};
use crate::codegen::constants::PIPELINE_BLOCK_THREADS;
use crate::codegen::expr::evaluate;
use crate::codegen::program::{Binding, Code, Head, Item, SketchPart, Type};
use crate::codegen::shapes::Packing;
use crate::codegen::value::CType;

/// Binds [`crate::codegen::Sink::Sketch`]; returns the head of the loop: one row of each stride, at a place within it
/// that does not repeat.
pub(in crate::codegen) fn sketch(b: &mut Binder, environment: &Environment, keys: &[Expr]) -> Result<Head> {
    let values = keys.iter().map(|key| evaluate(b, key, environment)).collect::<Result<Vec<_>>>()?;
    let words = Packing::of(values.iter().map(Value::value_type)).pack(b, &values);
    let words: Vec<Code> = words.into_iter().map(|word| hoist_word(b, word)).collect();
    let set = b.params.once(Type::Output(CType::U64), Binding::Sketch(SketchPart::Set));
    let stride = b.params.once(Type::Value(CType::U64), Binding::Sketch(SketchPart::Stride));
    let control = b.params.control();
    let rows = b.params.once(Type::Value(CType::U64), Binding::SourceRows);
    let (hash, alive) = (partition_hash(b, &words), b.alive);
    b.item(Item::AddToSketch { set, control, hash, alive });
    Ok(Head::Sample { rows, stride, block_threads: PIPELINE_BLOCK_THREADS })
}
