//! The sink that counts the different keys of a sample of rows.

use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;

use crate::bind::{Binder, Environment, Value, hoist_word, partition_hash};
use crate::constants::PIPELINE_BLOCK_THREADS;
use crate::expr::evaluate;
use crate::program::{Binding, Code, Head, Item, SketchPart, Type};
use crate::shapes::Packing;
use crate::value::CType;

/// Binds [`crate::Sink::Sketch`]; returns the head of the loop: one row of each stride, at a place within it
/// that does not repeat.
pub(crate) fn sketch(b: &mut Binder, environment: &Environment, keys: &[Expr]) -> Result<Head> {
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
