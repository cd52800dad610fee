//! The columns of a source.

use crate::bind::{Binder, Cell, Environment};
use crate::group::group_columns;
use crate::program::{Binding, Code, Item, Type, Variable};
use crate::shapes::{GroupMode, RowShape, SourceShape};
use crate::value::CType;

/// The columns of the source; rows of a group table that hold no group are not alive.
pub(super) fn open_source(b: &mut Binder, source: &SourceShape) -> Environment {
    match source {
        SourceShape::Columns(columns, _) => Environment::new((0..columns.len()).map(Cell::Source).collect()),
        SourceShape::Groups(shape) => {
            let rows = b.params.once(Type::Input(CType::U64), Binding::SourceGroups);
            let stride_words = shape.stride_words;
            // Whether there are any is seen when rows are aggregated, and decides nothing here.
            let finished = (shape.mode == GroupMode::Narrow).then(|| {
                let finished = b.params.once(Type::Input(CType::U64), Binding::SourceFinished);
                [finished, b.params.once(Type::Value(CType::U64), Binding::SourceFinishedRows)]
            });
            b.item(Item::OpenGroup { rows, stride_words, finished });
            group_columns(b, shape)
        }
        SourceShape::Words { rows, .. } => word_columns(b, rows),
        // These open their own loops.
        SourceShape::Matches { .. } => Environment::new(vec![]),
    }
}

/// The columns of rows of words.
fn word_columns(b: &mut Binder, shape: &RowShape) -> Environment {
    let word = |b: &mut Binder, word: usize, bytes: u32| {
        let field = b.params.once(Type::Input(CType::unsigned(bytes)), Binding::SourceValues(word));
        let stored = b.load(b.field(field), b.variable(Variable::Row, CType::U64));
        b.cast_in_parens(CType::U64, stored)
    };
    let words: Vec<Code> =
        shape.word_bytes().into_iter().enumerate().map(|(index, bytes)| word(b, index, bytes)).collect();
    let values = shape.packing.unpack(b, &words);
    let cell = |field: &Option<usize>| field.map_or(Cell::Absent, |field| Cell::Load(values[field].clone()));
    Environment::new(shape.field_of.iter().map(cell).collect())
}
