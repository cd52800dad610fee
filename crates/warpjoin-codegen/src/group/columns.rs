//! The columns of a finished group table.

use arrow::datatypes::DataType;

use crate::bind::{Binder, Cell, Environment, Value};
use crate::program::{Binding, Code, Function, Op, Type, Variable};
use crate::shapes::{AccumulatorKind, AccumulatorResult, GroupMode, GroupShape};
use crate::value::{CType, Kind};

/// The columns of a finished group table, read from the row pointer `group` of source row `row`:
/// keys, then accumulated values.
pub(crate) fn group_columns(b: &mut Binder, shape: &GroupShape) -> Environment {
    let row = b.variable(Variable::Row, CType::U64);
    let words: Vec<Code> = match shape.mode {
        GroupMode::Global => vec![],
        GroupMode::Dense if shape.by_range => {
            let first = b.params.once(Type::Value(CType::U64), Binding::SourceFirstKey);
            vec![b.in_parens(row, Op::Add, b.field(first))]
        }
        GroupMode::Dense => vec![row],
        GroupMode::Narrow => {
            let key = b.binary(word_of(b, 0), Op::Subtract, b.whole(1));
            let key = if shape.packing.single_word_bits() == Some(64) {
                // The last row is that of the key whose word would be 0.
                let rows = b.params.once(Type::Value(CType::U64), Binding::SourceRows);
                let is_last = b.binary(b.binary(row, Op::Add, b.whole(1)), Op::Equal, b.field(rows));
                b.select(is_last, b.complement(b.word(0)), key)
            } else {
                key
            };
            vec![b.parens(key)]
        }
        GroupMode::Wide => (0..shape.packing.words()).map(|word| word_of(b, 1 + word)).collect(),
    };
    let mut cells: Vec<Cell> = shape.packing.unpack(b, &words).into_iter().map(Cell::Load).collect();
    cells.extend(shape.results.iter().map(|result| {
        let code = result_code(b, result);
        let valid = result.count_word.map(|word| {
            let count = word_of(b, word);
            b.in_parens(count, Op::NotEqual, b.whole(0))
        });
        Cell::Load(Value::of_type(code, valid, &result.value))
    }));
    Environment::new(cells)
}

/// A word of the group's row.
fn word_of(b: &Binder, word: usize) -> Code {
    b.load(b.pointer(Variable::GroupRow, CType::U64), b.whole(word as i64))
}

/// What was accumulated for a result.
fn result_code(b: &mut Binder, result: &AccumulatorResult) -> Code {
    use AccumulatorKind as Encoding;
    let word = word_of(b, result.word);
    let c_type = result.value.kind.c_type();
    let is_unsigned = result.value.data_type == DataType::UInt64;
    let signed = |b: &Binder, code| if is_unsigned { code } else { b.cast(CType::I64, code) };
    // Minima and AND are kept as complements.
    let is_complement =
        matches!(result.encoding, Encoding::MinInt | Encoding::MinUnsigned | Encoding::MinFloat | Encoding::BitAnd);
    let kept = if is_complement { b.complement(word) } else { word };
    match result.encoding {
        Encoding::Count => b.cast_in_parens(c_type, word),
        Encoding::Sum64 => b.cast_in_parens(c_type, signed(b, word)),
        Encoding::Sum128 => {
            let pointer = b.pointer(Variable::GroupRow, CType::U64);
            b.call(Function::WideOfWords, &[b.offset(pointer, b.whole(result.word as i64))])
        }
        Encoding::SumFloat => b.call(Function::DoubleOfBits, &[b.cast(CType::I64, word)]),
        Encoding::MaxInt | Encoding::MinInt => {
            let value = b.call(Function::OrderValueInt, &[kept]);
            if result.value.kind == Kind::Bool {
                b.in_parens(value, Op::NotEqual, b.whole(0))
            } else {
                b.cast_in_parens(c_type, value)
            }
        }
        Encoding::MaxUnsigned | Encoding::MinUnsigned => {
            let least = result.value.kind.range().map_or(0, |range| range.min);
            let least = b.wide_number(least);
            let distance = b.cast(CType::U128, b.parens(kept));
            b.cast_in_parens(c_type, b.in_parens(b.cast(CType::U128, least), Op::Add, distance))
        }
        Encoding::BitAnd | Encoding::BitOr | Encoding::BitXor => b.cast_in_parens(c_type, signed(b, b.parens(kept))),
        Encoding::MaxFloat | Encoding::MinFloat => {
            b.cast_in_parens(c_type, b.call(Function::OrderValueDouble, &[kept]))
        }
    }
}
