//! The columns of a finished group table.

use arrow::datatypes::DataType;

use crate::codegen::emit::{Binding, Cell, Emitter, Environment};
use crate::codegen::shapes::{AccumulatorKind, GroupMode, GroupShape};
use crate::codegen::value::{Kind, Value};

/// The columns of a finished group table, read from the row pointer `group` of source row `row`:
/// keys, then accumulated values.
pub(in crate::codegen) fn group_columns(emitter: &mut Emitter, shape: &GroupShape) -> Environment {
    let words: Vec<String> = match shape.mode {
        GroupMode::Global => vec![],
        GroupMode::Dense => vec!["row".into()],
        GroupMode::Narrow if shape.packing.single_word_bits() == Some(64) => {
            // The last row is that of the key whose word would be 0.
            let rows = emitter.params.once("u64", Binding::SourceRows);
            vec![format!("(row + 1 == {rows} ? ~0ULL : group[0] - 1)")]
        }
        GroupMode::Narrow => vec!["(group[0] - 1)".into()],
        GroupMode::Wide => (0..shape.packing.words()).map(|word| format!("group[{}]", 1 + word)).collect(),
    };
    let mut cells: Vec<Cell> = shape.packing.unpack(emitter, &words).into_iter().map(Cell::Load).collect();
    cells.extend(shape.results.iter().map(|result| {
        let word = format!("group[{}]", result.word);
        let c_type = result.value.kind.c_type().name();
        let is_bool = result.value.kind == Kind::Bool;
        let code = match result.encoding {
            AccumulatorKind::Count => format!("(({c_type}){word})"),
            AccumulatorKind::Sum64 if result.value.data_type == DataType::UInt64 => format!("(({c_type}){word})"),
            AccumulatorKind::Sum64 => format!("(({c_type})(i64){word})"),
            AccumulatorKind::Sum128 => format!("wide_of_words(group + {})", result.word),
            AccumulatorKind::SumFloat => format!("__longlong_as_double((i64){word})"),
            AccumulatorKind::MaxInt if is_bool => format!("(order_value_i64({word}) != 0)"),
            AccumulatorKind::MinInt if is_bool => format!("(order_value_i64(~{word}) != 0)"),
            AccumulatorKind::MaxInt => format!("(({c_type})order_value_i64({word}))"),
            AccumulatorKind::MinInt => format!("(({c_type})order_value_i64(~{word}))"),
            AccumulatorKind::MaxUnsigned | AccumulatorKind::MinUnsigned => {
                let base = result.value.kind.range().map_or(0, |range| range.min);
                let base = emitter.params.wide_number(base);
                let sign = if result.encoding == AccumulatorKind::MinUnsigned { "~" } else { "" };
                format!("(({c_type})((u128){base} + (u128)({sign}{word})))")
            }
            AccumulatorKind::BitAnd | AccumulatorKind::BitOr | AccumulatorKind::BitXor => {
                let sign = if result.encoding == AccumulatorKind::BitAnd { "~" } else { "" };
                let is_unsigned = result.value.data_type == DataType::UInt64;
                format!("(({c_type}){}({sign}{word}))", if is_unsigned { "" } else { "(i64)" })
            }
            AccumulatorKind::MaxFloat => format!("(({c_type})order_value_f64({word}))"),
            AccumulatorKind::MinFloat => format!("(({c_type})order_value_f64(~{word}))"),
        };
        let valid = result.count_word.map(|word| format!("(group[{word}] != 0)"));
        let mut value = Value::new(code, result.value.kind, result.value.data_type.clone()).with_valid(valid);
        value.dictionary = result.value.dictionary.clone();
        Cell::Load(value)
    }));
    Environment::new(cells)
}
