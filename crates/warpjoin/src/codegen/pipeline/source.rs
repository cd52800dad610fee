//! The columns of a source.

use crate::codegen::emit::{Binding, Cell, Emitter, Environment};
use crate::codegen::group::group_columns;
use crate::codegen::shapes::{GroupMode, RowShape, SourceShape};

/// The columns of the source; rows of a group table that hold no group are not alive.
pub(super) fn open_source(emitter: &mut Emitter, source: &SourceShape) -> Environment {
    match source {
        SourceShape::Columns(columns, _) => Environment::new((0..columns.len()).map(Cell::Source).collect()),
        SourceShape::Groups(shape) => {
            let rows = emitter.params.once("const u64*", Binding::SourceGroups);
            let stride = shape.stride_words;
            // Whether there are any is seen when rows are aggregated, and decides nothing here: so a dry run need not know.
            if shape.mode == GroupMode::Narrow {
                let finished = emitter.params.once("const u64*", Binding::SourceFinished);
                let count = emitter.params.once("u64", Binding::SourceFinishedRows);
                emitter.line(&format!(
                    "const u64* const group = row < {count} ? {finished} + row * {stride} : {rows} + (row - {count}) * {stride};"
                ));
            } else {
                emitter.line(&format!("const u64* const group = {rows} + row * {stride};"));
            }
            emitter.line("alive = alive && group[0] != 0;");
            group_columns(emitter, shape)
        }
        SourceShape::Words(shape) => word_columns(emitter, shape),
        // These open their own loops.
        SourceShape::Matches { .. } => Environment::new(vec![]),
    }
}

/// The columns of rows of words.
fn word_columns(emitter: &mut Emitter, shape: &RowShape) -> Environment {
    let words: Vec<String> = (shape.word_bytes().iter().enumerate())
        .map(|(word, bytes)| {
            let field = emitter.params.once(&format!("const u{}*", bytes * 8), Binding::SourceValues(word));
            format!("((u64){field}[row])")
        })
        .collect();
    let values = shape.packing.unpack(emitter, &words);
    let cell = |field: &Option<usize>| field.map_or(Cell::Absent, |field| Cell::Load(values[field].clone()));
    Environment::new(shape.field_of.iter().map(cell).collect())
}
