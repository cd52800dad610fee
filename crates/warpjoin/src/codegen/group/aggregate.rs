//! The sink that aggregates.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::slot::{Slot, Slots, ValueKey};
use super::{block, walk};
use crate::codegen::constants::PIPELINE_BLOCK_THREADS;
use crate::codegen::emit::{Binding, Emitter, Environment, GroupPart};
use crate::codegen::expr::{evaluate, moment_term};
use crate::codegen::lookup;
use crate::codegen::shapes::{
    Accumulator, AccumulatorKind, AccumulatorResult, Front, GroupLimits, GroupMode, GroupShape, Packing,
};
use crate::codegen::value::{CType, Kind, Range, Value, ValueType, bits, range_of_type};
use crate::expr::Expr;
use crate::identity::{Identity, Scope};
use crate::plan::{Fold, State, Term};
use crate::{Error, Reason, Result};

/// Rows that one thread sees at most: the launch uses enough threads, and the executor checks it.
pub(crate) const ROWS_PER_THREAD_BITS_MAX: u32 = 20;
/// Rows that a thread sees, or that a block sees before it flushes its table, have no more bits.
const PARTIAL_ROWS_BITS_MAX: u32 = 22;
/// Largest table that is indexed by the packed key.
const DENSE_BITS_MAX: u32 = 22;
/// The same where rows come in the order of the keys: then the table is gone through once, whatever its size.
const SORTED_BITS_MAX: u32 = 32;

/// Text around the tile loop, and what the sink found out.
pub(in crate::codegen) struct AggregateOutput {
    pub shape: GroupShape,
    pub prologue: String,
    pub epilogue: String,
    /// The head of the loop over tiles, with `row` and `alive`; `None`: grid stride.
    pub head: Option<String>,
    pub shared_bytes: u32,
    pub block_threads: u32,
}

/// Emits [`crate::codegen::Sink::Aggregate`].
pub(in crate::codegen) fn aggregate(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[Expr],
    accumulators: &[Accumulator],
    limits: GroupLimits,
) -> Result<AggregateOutput> {
    let key_values = keys.iter().map(|key| evaluate(emitter, key, environment)).collect::<Result<Vec<_>>>()?;
    let packing = Packing::of(key_values.iter().map(Value::value_type));
    // Behind a probe of duplicate keys a thread sees any number of rows.
    let mut slots = Slots { is_bounded: emitter.alive == "alive", ..Slots::default() };
    let mut results = vec![];
    for accumulator in accumulators {
        results.push(plan_accumulator(
            emitter,
            environment,
            accumulator,
            keys.is_empty(),
            limits.rows_bits,
            &mut slots,
        )?);
    }
    let mode = choose_mode(keys.is_empty(), &packing, limits);
    // Other loops than that over tiles have no place for a table in front.
    let front = if emitter.is_tiles {
        block::choose_front(mode, &packing, &slots, limits, emitter.is_partitioned)
    } else {
        Front::None
    };
    let header = mode.header_words(&packing);
    for result in &mut results {
        result.word += header;
        if let Some(word) = &mut result.count_word {
            *word += header;
        }
    }
    let accumulators = slots.slots.iter().map(|slot| (slot.kind, header + slot.word)).collect();
    let has_finished = emitter.is_partitioned && mode == GroupMode::Narrow && matches!(front, Front::Hashed { .. });
    let stride_words = header + slots.words;
    let mut output = AggregateOutput {
        shape: GroupShape { mode, front, has_finished, stride_words, results, accumulators, packing },
        prologue: String::new(),
        epilogue: String::new(),
        head: None,
        shared_bytes: 0,
        block_threads: PIPELINE_BLOCK_THREADS,
    };
    match mode {
        GroupMode::Global => global(emitter, &slots, &mut output),
        _ => table(emitter, &key_values, &slots, limits, &mut output),
    }
    Ok(output)
}

fn choose_mode(no_keys: bool, packing: &Packing, limits: GroupLimits) -> GroupMode {
    match packing.single_word_bits() {
        _ if no_keys => GroupMode::Global,
        None => GroupMode::Wide,
        Some(bits) if bits <= DENSE_BITS_MAX && bits <= limits.rows_bits => GroupMode::Dense,
        Some(bits) if limits.is_sorted && bits <= SORTED_BITS_MAX => GroupMode::Dense,
        Some(_) => GroupMode::Narrow,
    }
}

fn plan_accumulator(
    emitter: &mut Emitter,
    environment: &Environment,
    accumulator: &Accumulator,
    is_global: bool,
    rows_bits: u32,
    slots: &mut Slots,
) -> Result<AccumulatorResult> {
    let state = &accumulator.state;
    let argument = state.argument.as_ref().map(|e| evaluate(emitter, e, environment)).transpose()?;
    let second = state.second.as_ref().map(|e| evaluate(emitter, e, environment)).transpose()?;
    let Some(argument) = argument else {
        let word = slots.count(ValueKey::Rows, None);
        return Ok(result(word, AccumulatorKind::Count, count_kind(rows_bits), state, None));
    };
    let count_key = match argument.valid {
        Some(_) => ValueKey::ValuesOf(Arc::new(Identity::in_query(&state.argument))),
        None => ValueKey::Rows,
    };
    if state.fold == Fold::Count {
        let word = slots.count(count_key, argument.valid.clone());
        return Ok(result(word, AccumulatorKind::Count, count_kind(rows_bits), state, None));
    }
    let is_extreme = matches!(state.fold, Fold::Min | Fold::Max);
    let argument = if is_extreme { lookup::with_ordered_codes(emitter, argument)? } else { argument };
    let argument = moment_term(emitter, state.term, &argument, second.as_ref())?;
    let (kind, code, narrow_partial, result_kind) =
        encode(emitter, accumulator, &argument, rows_bits, slots.is_bounded)?;
    // What the result is called and its type don't count: a mean and a sum share a word.
    let Accumulator { state: State { fold: _, argument: of, second, term, data_type: _ }, is_merge } = accumulator;
    let key = Identity::new(Scope::Query).with(of).with(second).with(term).with(is_merge);
    let word = slots.slot(kind, ValueKey::Term(Arc::new(key)), || (argument.valid.clone(), code, narrow_partial));
    let count_word = (argument.valid.is_some() || is_global).then(|| slots.count(count_key, argument.valid.clone()));
    let mut result = result(word, kind, result_kind, state, count_word);
    result.value.dictionary = argument.dictionary.clone();
    Ok(result)
}

fn count_kind(rows_bits: u32) -> Kind {
    Kind::Int(Range::new(0, (1i128 << rows_bits.min(62)) - 1))
}

fn result(
    word: usize,
    encoding: AccumulatorKind,
    kind: Kind,
    state: &State,
    count_word: Option<usize>,
) -> AccumulatorResult {
    let value =
        ValueType { kind, data_type: state.data_type.clone(), dictionary: None, nullable: count_word.is_some() };
    AccumulatorResult { word, encoding, value, count_word }
}

/// How a sum, minimum or maximum is accumulated: kind, code of the addend, whether a thread's part of
/// a 128-bit sum fits 64 bits (if a thread's rows are bounded), and kind of the result.
fn encode(
    emitter: &mut Emitter,
    accumulator: &Accumulator,
    argument: &Value,
    rows_bits: u32,
    is_bounded: bool,
) -> Result<(AccumulatorKind, String, bool, Kind)> {
    let state = &accumulator.state;
    let is_sum = state.fold == Fold::Sum;
    let is_max = state.fold == Fold::Max;
    if let Some(kind) = bit_kind(state.fold) {
        let range = argument.range().ok_or_else(|| Error::internal("bits of no integer"))?;
        let code = format!("(u64)({})", argument.code);
        let code = if kind == AccumulatorKind::BitAnd { format!("~{code}") } else { code };
        return Ok((kind, code, false, Kind::Int(bits_range(range))));
    }
    match argument.kind {
        Kind::F32 | Kind::F64 if is_sum => {
            Ok((AccumulatorKind::SumFloat, format!("(f64){}", argument.code), false, Kind::F64))
        }
        Kind::F32 | Kind::F64 => {
            let code = format!("order_code_f64((f64){})", argument.code);
            let kind = if is_max { AccumulatorKind::MaxFloat } else { AccumulatorKind::MinFloat };
            Ok((kind, if is_max { code } else { format!("~{code}") }, false, argument.kind))
        }
        Kind::Bool | Kind::Int(_) if !is_sum => {
            if let (CType::I128, Some(range)) = (argument.c_type(), argument.range()) {
                if range.span_bits() > 64 {
                    let what = format!("{} of values that span more than 64 bits", state.fold.function());
                    return Err(Reason::Aggregate(what).into());
                }
                let base = emitter.params.wide_number(range.min);
                let code = format!("(u64)((u128){} - (u128){base})", argument.code);
                let kind = if is_max { AccumulatorKind::MaxUnsigned } else { AccumulatorKind::MinUnsigned };
                return Ok((kind, if is_max { code } else { format!("~{code}") }, false, argument.kind));
            }
            let code = format!("order_code_i64((i64){})", argument.code);
            let kind = if is_max { AccumulatorKind::MaxInt } else { AccumulatorKind::MinInt };
            Ok((kind, if is_max { code } else { format!("~{code}") }, false, argument.kind))
        }
        _ => {
            let range = argument.range().ok_or_else(|| Error::internal("sum of no number"))?;
            let scaled = |bits: u32| -> Option<Range> {
                let factor = 1i128.checked_shl(bits).filter(|f| *f > 0)?;
                Some(Range::new(range.min.min(0).checked_mul(factor)?, range.max.max(0).checked_mul(factor)?))
            };
            let total = if accumulator.is_merge { Some(range) } else { scaled(rows_bits) };
            if total.is_none() && state.term != Term::Value {
                return Err(Reason::Aggregate("second moment whose sums leave 128 bits".into()).into());
            }
            let type_range = range_of_type(&state.data_type).unwrap_or(Range::new(i128::MIN, i128::MAX));
            let total = total.unwrap_or(Range::new(i128::MIN, i128::MAX));
            let total = if total.min < type_range.min || total.max > type_range.max { type_range } else { total };
            let is_wide = total.c_type() == CType::I128 && state.data_type != DataType::UInt64;
            if is_wide {
                let narrow = is_bounded && scaled(PARTIAL_ROWS_BITS_MAX).is_some_and(|r| r.c_type() != CType::I128);
                let c_type = if narrow { CType::I64 } else { CType::I128 };
                Ok((AccumulatorKind::Sum128, argument.code_as(c_type), narrow, Kind::Int(total)))
            } else {
                Ok((AccumulatorKind::Sum64, format!("(u64){}", argument.code), false, Kind::Int(total)))
            }
        }
    }
}

fn bit_kind(fold: Fold) -> Option<AccumulatorKind> {
    Some(match fold {
        Fold::BitAnd => AccumulatorKind::BitAnd,
        Fold::BitOr => AccumulatorKind::BitOr,
        Fold::BitXor => AccumulatorKind::BitXor,
        Fold::Count | Fold::Sum | Fold::Min | Fold::Max => return None,
    })
}

/// What bits of values of this range can make.
fn bits_range(range: Range) -> Range {
    let width = bits(range.max.max(0)).max(bits(!range.min.min(-1)));
    let all = if width > 126 { i128::MAX } else { (1i128 << width) - 1 };
    Range::new(if range.min < 0 { !all } else { 0 }, all)
}

/// One row: registers, then one merge a warp.
fn global(emitter: &mut Emitter, slots: &Slots, output: &mut AggregateOutput) {
    let rows = emitter.params.once("u64*", Binding::Group(GroupPart::Rows));
    output.epilogue.push_str(&format!("    if (blockIdx.x == 0 && threadIdx.x == 0) {rows}[0] = 1;\n"));
    for (index, slot) in slots.slots.iter().enumerate() {
        output.prologue.push_str(&format!("    {} part{index} = 0;\n", slot.partial_type()));
        let statement = slot.guarded(&slot.merge_local(&format!("part{index}"), &slot.code));
        emitter.statement(&statement);
        let reduce = slot.warp_merge();
        let target = format!("&{rows}[{}]", 1 + slot.word);
        output.epilogue.push_str(&format!(
            "    const {total} total{index} = {reduce}(({total})part{index});\n    if ((threadIdx.x & 31) == 0) {{ {} }}\n",
            Slot::merge_global(slot.kind, &target, &format!("total{index}")),
            total = slot.total_type(),
        ));
    }
    emitter.flush();
}

/// A table in global memory, with one in each block's shared memory in front of it.
fn table(emitter: &mut Emitter, keys: &[Value], slots: &Slots, limits: GroupLimits, output: &mut AggregateOutput) {
    let shape = output.shape.clone();
    let mut part = |c_type: &str, part: GroupPart| emitter.params.once(c_type, Binding::Group(part));
    let fields = [
        part("u64*", GroupPart::Rows),
        part("u64", GroupPart::Capacity),
        part("u64*", GroupPart::Index),
        part("u64", GroupPart::IndexSlots),
        part("u64", GroupPart::StepsMax),
        part("u64", GroupPart::GrowSteps),
        part("u64", GroupPart::SpillRows),
        part("u64*", GroupPart::Counters),
        emitter.params.once("u64*", Binding::Control),
    ];
    output.prologue = format!("    const GroupTable table = {{{}}};\n", fields.join(", "));
    if shape.mode == GroupMode::Wide {
        output.prologue.push_str("    SpareRow spare = {0, false};\n");
    }
    if limits.is_skewed && matches!(shape.front, Front::Hashed { .. }) {
        // Behind the columns, which are in variables, and in front of what only rows that are alive do.
        output.prologue.push_str("    u32 frequent = WJ_NO_SLOT;\n");
        emitter.line("const u32 lanes = __ballot_sync(0xffffffffu, alive);");
    }
    let words = shape.packing.pack(emitter, keys);
    let single = words.first().cloned().unwrap_or("0ULL".into());
    if shape.mode == GroupMode::Wide {
        emitter.statement(&format!("const u64 key_words[{}] = {{{}}};", words.len(), words.join(", ")));
    }
    block::accumulate(emitter, &shape, slots, &single, limits.is_skewed);
    emitter.flush();
    if emitter.is_partitioned {
        walk::frame(emitter, slots, output, limits);
    } else if emitter.is_tiles {
        block::frame(emitter, slots, output);
    }
}

/// Code that finds the row of a group: by its packed key, or by the array of its words.
pub(super) fn find_row(shape: &GroupShape, packed: &str, words: &str) -> String {
    let stride = shape.stride_words;
    match shape.mode {
        GroupMode::Wide => format!("group_row_wide(table, {stride}, {words}, spare)"),
        GroupMode::Narrow => format!("group_row_narrow(table, {stride}, {packed})"),
        _ => format!("group_row_dense(table, {stride}, {packed})"),
    }
}

/// Statements that merge a row's values into the row `group_id`.
pub(super) fn merge_row<'a>(shape: &GroupShape, values: impl Iterator<Item = (&'a Slot, String)>) -> Vec<String> {
    let header = shape.mode.header_words(&shape.packing);
    let mut lines = vec![
        "if (group_id != WJ_NO_ROW) {".to_string(),
        format!("    u64* const part = table.rows + group_id * {} + {header};", shape.stride_words),
    ];
    lines.extend(values.map(|(slot, code)| {
        let merge = Slot::merge_global(slot.kind, &format!("part + {}", slot.word), &code);
        format!("    {}", slot.guarded(&merge))
    }));
    lines.push("}".into());
    lines
}
