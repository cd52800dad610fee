//! The sink that counts the different keys of a sample of rows.

use crate::Result;
use crate::codegen::constants::PIPELINE_BLOCK_THREADS;
use crate::codegen::emit::{Binding, Emitter, Environment, SketchPart, hoist_word, partition_hash};
use crate::codegen::expr::evaluate;
use crate::codegen::shapes::Packing;
use crate::codegen::value::Value;
use crate::expr::Expr;

/// Emits [`crate::codegen::Sink::Sketch`]; returns the head of the loop: one row of each stride, at a place within it
/// that does not repeat.
pub(in crate::codegen) fn sketch(emitter: &mut Emitter, environment: &Environment, keys: &[Expr]) -> Result<String> {
    let values = keys.iter().map(|key| evaluate(emitter, key, environment)).collect::<Result<Vec<_>>>()?;
    let words = Packing::of(values.iter().map(Value::value_type)).pack(emitter, &values);
    let words: Vec<String> = words.iter().map(|word| hoist_word(emitter, word)).collect();
    let set = emitter.params.once("u64*", Binding::Sketch(SketchPart::Set));
    let stride = emitter.params.once("u64", Binding::Sketch(SketchPart::Stride));
    let control = emitter.params.once("u64*", Binding::Control);
    let rows = emitter.params.once("u64", Binding::SourceRows);
    let alive = emitter.alive.clone();
    emitter.line(&format!("sketch_add({set}, {control}, {}, {alive});", partition_hash(&words)));
    Ok(format!(
        "    const u64 tiles = (({rows} + {stride} - 1) / {stride} + {last}) / {PIPELINE_BLOCK_THREADS};\n    \
         for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{\n        \
         const u64 sample = tile * {PIPELINE_BLOCK_THREADS} + threadIdx.x;\n        \
         const u64 row = sample * {stride} + __umul64hi(hash_word(sample + 1), {stride});\n        \
         bool alive = row < {rows};\n",
        last = PIPELINE_BLOCK_THREADS - 1
    ))
}
