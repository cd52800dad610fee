//! The sink that aggregates.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_columns::column::bits;
use warpjoin_columns::expr::Expr;
use warpjoin_columns::identity::{Identity, Scope};
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_kernels::group::WALK_WORDS;
use warpjoin_plan::plan::bounds::summed_range;
use warpjoin_plan::plan::{Fold, State, Term};

use super::front::{LONE_BLOCK_THREADS, SKEWED_BLOCK_THREADS, TABLE_BLOCK_THREADS, choose_front, key_type};
use super::slots::{Addend, Slots, ValueKey};
use crate::bind::{Binder, Environment, Value};
use crate::constants::PIPELINE_BLOCK_THREADS;
use crate::expr::{evaluate, moment_term};
use crate::lookup;
use crate::program::{
    Accumulate, Binding, Field, Function, GroupFrame, GroupLoop, GroupPart, GroupTarget, GroupTiles, GroupWalk, Item,
    Op, Prefetch, Statement, Type, Variable, queue_bytes,
};
use crate::shapes::{
    Accumulator, AccumulatorKind, AccumulatorResult, GroupLimits, GroupMode, GroupShape, Packing, PreAggregation,
};
use crate::value::{CType, Kind, Range, RangeType, ValueType, range_of_type};

/// Rows that one thread sees at most: the launch uses enough threads, and the executor checks it.
pub const ROWS_PER_THREAD_BITS_MAX: u32 = 20;
/// Rows that a thread sees, or that a block sees before it flushes its table, have no more bits.
const PARTIAL_ROWS_BITS_MAX: u32 = 22;
/// Largest table that is indexed by the packed key.
const DENSE_BITS_MAX: u32 = 22;
/// The same where rows come in the order of the keys: then the table is gone through once, whatever its size.
const SORTED_BITS_MAX: u32 = 32;

/// Most bits of a row for which memory is asked ahead of time.
const PREFETCH_BITS_MAX: u32 = 128;

/// What stands around the loop over rows, and what the sink found out.
pub(crate) struct AggregateOutput {
    pub shape: GroupShape,
    pub target: Arc<GroupTarget>,
    pub frame: GroupFrame,
    pub shared_bytes: u32,
    pub block_threads: u32,
}

/// Binds [`crate::Sink::Aggregate`].
pub(crate) fn aggregate(
    b: &mut Binder,
    environment: &Environment,
    keys: &[Expr],
    accumulators: &[Accumulator],
    limits: GroupLimits,
) -> Result<AggregateOutput> {
    let key_values = keys.iter().map(|key| evaluate(b, key, environment)).collect::<Result<Vec<_>>>()?;
    let packing = Packing::of(key_values.iter().map(Value::value_type));
    // Behind a probe of duplicate keys a thread sees any number of rows.
    let mut slots = Slots::new(b.alive == Variable::Alive);
    let mut results = vec![];
    for accumulator in accumulators {
        results.push(plan_accumulator(b, environment, accumulator, keys.is_empty(), limits.rows_bits, &mut slots)?);
    }
    // A block's list of rows takes its share.
    let list_bytes = if b.is_queued { 2 * queue_bytes(TABLE_BLOCK_THREADS) } else { 0 };
    let limits = GroupLimits { shared_bytes_max: limits.shared_bytes_max.saturating_sub(list_bytes), ..limits };
    let mode = choose_mode(keys.is_empty(), &packing, limits);
    let by_parts = b.is_partitioned || limits.is_cut && mode == GroupMode::Narrow;
    // Other loops than that over tiles have no place for a table in front.
    let front =
        if b.is_tiles { choose_front(mode, &packing, &slots.slots, limits, by_parts) } else { PreAggregation::None };
    let header_words = mode.header_words(&packing);
    for result in &mut results {
        result.word += header_words;
        if let Some(word) = &mut result.count_word {
            *word += header_words;
        }
    }
    let accumulators = slots.slots.iter().map(|slot| (slot.kind, header_words + slot.word)).collect();
    let has_finished = by_parts && mode == GroupMode::Narrow && matches!(front, PreAggregation::Hashed { .. });
    let is_cut = limits.is_cut && has_finished;
    let stride_words = header_words + slots.words;
    let target = Arc::new(GroupTarget {
        mode,
        front,
        key: key_type(&packing),
        stride_words,
        header_words,
        has_finished,
        shares: limits.is_skewed,
        slots: slots.slots,
    });
    let by_range = limits.by_range && mode == GroupMode::Dense;
    let shape =
        GroupShape { mode, by_range, is_cut, front, has_finished, stride_words, results, accumulators, packing };
    let frame = match mode {
        GroupMode::Global => global(b, &target),
        _ => table(b, &key_values, &shape, &target),
    };
    let (block_threads, shared_bytes) = match &frame {
        GroupFrame::Table { rows: GroupLoop::Tiles(_), .. } => tiles_block(&target),
        GroupFrame::Table { rows: GroupLoop::Walk(_), .. } => walk_block(&target, limits),
        GroupFrame::Global { .. } | GroupFrame::Table { rows: GroupLoop::Other, .. } => (PIPELINE_BLOCK_THREADS, 0),
    };
    Ok(AggregateOutput { shape, target, frame, shared_bytes, block_threads })
}

fn choose_mode(no_keys: bool, packing: &Packing, limits: GroupLimits) -> GroupMode {
    match packing.single_word_bits() {
        _ if no_keys => GroupMode::Global,
        None => GroupMode::Wide,
        Some(_) if limits.is_scarce => GroupMode::Narrow,
        Some(bits) if bits <= DENSE_BITS_MAX && bits <= limits.rows_bits => GroupMode::Dense,
        Some(_) if limits.is_cut => GroupMode::Narrow,
        Some(bits) if limits.is_sorted && bits <= SORTED_BITS_MAX => GroupMode::Dense,
        Some(_) => GroupMode::Narrow,
    }
}

fn plan_accumulator(
    b: &mut Binder,
    environment: &Environment,
    accumulator: &Accumulator,
    is_global: bool,
    rows_bits: u32,
    slots: &mut Slots,
) -> Result<AccumulatorResult> {
    let state = &accumulator.state;
    let argument = state.argument.as_ref().map(|e| evaluate(b, e, environment)).transpose()?;
    let second = state.second.as_ref().map(|e| evaluate(b, e, environment)).transpose()?;
    let Some(argument) = argument else {
        let word = slots.count(b, ValueKey::Rows, None);
        return Ok(result(word, AccumulatorKind::Count, count_kind(rows_bits), state, None));
    };
    let count_key = match argument.valid {
        Some(_) => ValueKey::ValuesOf(Arc::new(Identity::in_query(&state.argument))),
        None => ValueKey::Rows,
    };
    if state.fold == Fold::Count {
        let word = slots.count(b, count_key, argument.valid);
        return Ok(result(word, AccumulatorKind::Count, count_kind(rows_bits), state, None));
    }
    let is_extreme = matches!(state.fold, Fold::Min | Fold::Max);
    let argument = if is_extreme { lookup::with_ordered_codes(b, argument)? } else { argument };
    let argument = moment_term(b, state.term, &argument, second.as_ref())?;
    let (addend, result_kind) = encode(b, accumulator, &argument, rows_bits, slots.is_bounded())?;
    // What the result is called and its type don't count: a mean and a sum share a word.
    let Accumulator { state: State { fold: _, argument: of, second, term, data_type: _ }, is_merge } = accumulator;
    let key = Identity::new(Scope::Query).with(of).with(second).with(term).with(is_merge);
    let word = slots.slot(ValueKey::Term(Arc::new(key)), &addend, argument.valid);
    let count_word = (argument.valid.is_some() || is_global).then(|| slots.count(b, count_key, argument.valid));
    let mut result = result(word, addend.kind, result_kind, state, count_word);
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

/// How a sum, minimum or maximum is accumulated, and the kind of the result.
fn encode(
    b: &mut Binder,
    accumulator: &Accumulator,
    argument: &Value,
    rows_bits: u32,
    is_bounded: bool,
) -> Result<(Addend, Kind)> {
    let fold = accumulator.state.fold;
    let addend = |kind, code| Addend { kind, code, narrow_partial: false };
    if let Some(kind) = bit_kind(fold) {
        let range = argument.range().ok_or_else(|| Error::internal("bits of no integer"))?;
        let code = b.cast(CType::U64, b.parens(argument.code));
        let code = if kind == AccumulatorKind::BitAnd { b.complement(code) } else { code };
        return Ok((addend(kind, code), Kind::Int(bits_range(range))));
    }
    match argument.kind {
        Kind::F32 | Kind::F64 if fold == Fold::Sum => {
            Ok((addend(AccumulatorKind::SumFloat, b.cast(CType::F64, argument.code)), Kind::F64))
        }
        Kind::Bool | Kind::Int(_) if fold == Fold::Sum => encode_sum(b, accumulator, argument, rows_bits, is_bounded),
        kind => Ok((encode_extreme(b, fold, argument)?, kind)),
    }
}

/// The greatest code of the value's order, or for a minimum the greatest of the codes' complements.
fn encode_extreme(b: &mut Binder, fold: Fold, argument: &Value) -> Result<Addend> {
    let is_max = fold == Fold::Max;
    let (max_kind, min_kind, code) = match (argument.c_type(), argument.range()) {
        (CType::I128, Some(range)) => {
            if range.span_bits() > 64 {
                // Known from the bounds of the plan: `plan/rewrite/wide.rs`.
                let what = format!("{} of values that span more than 64 bits", fold.function());
                return Err(Error::internal(what));
            }
            let least = b.wide_number(range.min);
            let [code, least] = [argument.code, least].map(|code| b.cast(CType::U128, code));
            let distance = b.cast(CType::U64, b.in_parens(code, Op::Subtract, least));
            (AccumulatorKind::MaxUnsigned, AccumulatorKind::MinUnsigned, distance)
        }
        (_, Some(_)) => {
            let code = b.call(Function::OrderCodeInt, &[b.cast(CType::I64, argument.code)]);
            (AccumulatorKind::MaxInt, AccumulatorKind::MinInt, code)
        }
        (_, None) => {
            let code = b.call(Function::OrderCodeDouble, &[b.cast(CType::F64, argument.code)]);
            (AccumulatorKind::MaxFloat, AccumulatorKind::MinFloat, code)
        }
    };
    let (kind, code) = if is_max { (max_kind, code) } else { (min_kind, b.complement(code)) };
    Ok(Addend { kind, code, narrow_partial: false })
}

/// A sum in 64 bits, where its bounds prove that it fits, or in two words.
fn encode_sum(
    b: &mut Binder,
    accumulator: &Accumulator,
    argument: &Value,
    rows_bits: u32,
    is_bounded: bool,
) -> Result<(Addend, Kind)> {
    let state = &accumulator.state;
    let range = argument.range().ok_or_else(|| Error::internal("sum of no number"))?;
    let total = if accumulator.is_merge { Some(range) } else { summed_range(range, rows_bits) };
    if total.is_none() && state.term != Term::Value {
        return Err(Reason::Aggregate("second moment whose sums leave 128 bits".into()).into());
    }
    let type_range = range_of_type(&state.data_type).unwrap_or(Range::new(i128::MIN, i128::MAX));
    let total = total.unwrap_or(Range::new(i128::MIN, i128::MAX));
    let total = if total.min < type_range.min || total.max > type_range.max { type_range } else { total };
    let is_wide = total.c_type() == CType::I128 && state.data_type != DataType::UInt64;
    let addend = if is_wide {
        let narrow_partial =
            is_bounded && summed_range(range, PARTIAL_ROWS_BITS_MAX).is_some_and(|r| r.c_type() != CType::I128);
        let c_type = if narrow_partial { CType::I64 } else { CType::I128 };
        Addend { kind: AccumulatorKind::Sum128, code: b.code_as(argument, c_type), narrow_partial }
    } else {
        let code = b.cast(CType::U64, argument.code);
        Addend { kind: AccumulatorKind::Sum64, code, narrow_partial: false }
    };
    Ok((addend, Kind::Int(total)))
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
fn global(b: &mut Binder, target: &Arc<GroupTarget>) -> GroupFrame {
    let rows = b.params.once(Type::Output(CType::U64), Binding::Group(GroupPart::Rows));
    if !target.slots.is_empty() {
        let packed = b.word(0);
        b.push(Statement::Accumulate(Accumulate { target: Arc::clone(target), packed, key_words: vec![] }));
        b.flush();
    }
    GroupFrame::Global { rows }
}

/// A table in global memory, with one in each block's shared memory in front of it.
fn table(b: &mut Binder, keys: &[Value], shape: &GroupShape, target: &Arc<GroupTarget>) -> GroupFrame {
    let (number, words) = (Type::Value(CType::U64), Type::Output(CType::U64));
    let mut part = |of_type, part| b.params.once(of_type, Binding::Group(part));
    let fields = [
        part(words, GroupPart::Rows),
        part(number, GroupPart::Capacity),
        part(words, GroupPart::Index),
        part(number, GroupPart::IndexSlots),
        part(number, GroupPart::StepsMax),
        part(number, GroupPart::GrowSteps),
        part(number, GroupPart::SpillRows),
        part(words, GroupPart::Counters),
        b.params.control(),
    ];
    if target.shares && matches!(target.front, PreAggregation::Hashed { .. }) {
        // Behind the columns, which are in variables, and in front of what only rows that are alive do.
        b.item(Item::Ballot);
    }
    let key_words = shape.packing.pack(b, keys);
    let mut packed = key_words.first().copied().unwrap_or_else(|| b.word(0));
    if shape.by_range {
        let first = b.params.once(number, Binding::Group(GroupPart::FirstKey));
        packed = b.in_parens(packed, Op::Subtract, b.field(first));
    }
    b.push(Statement::Accumulate(Accumulate { target: Arc::clone(target), packed, key_words }));
    b.flush();
    let rows = if b.is_partitioned || shape.is_cut {
        GroupLoop::Walk(walk(b, target))
    } else if b.is_tiles {
        GroupLoop::Tiles(tiles(b))
    } else {
        GroupLoop::Other
    };
    GroupFrame::Table { fields, rows }
}

/// The loop over tiles of rows.
fn tiles(b: &mut Binder) -> GroupTiles {
    let (control, cancel) = (b.params.control(), b.params.cancel());
    let rows = b.rows();
    let cursors = b.params.once(Type::Output(CType::U64), Binding::Group(GroupPart::Cursors));
    let columns: Vec<(Field, CType)> = b.params.source_values().collect();
    // With thin rows, loads in flight are too few.
    let is_thin = columns.iter().map(|(_, element)| element.bits()).sum::<u32>() <= PREFETCH_BITS_MAX;
    let is_queued = b.is_queued;
    let prefetch = (b.reads_all && is_thin).then(|| Prefetch {
        steps: b.params.once(Type::Value(CType::U64), Binding::Group(GroupPart::PrefetchSteps)),
        columns: columns.into_iter().map(|(column, _)| column).collect(),
    });
    GroupTiles { control, cancel, rows, row: b.row, cursors, prefetch, is_queued }
}

/// The loop over rows that lie by partition, or are cut into pieces.
fn walk(b: &mut Binder, target: &GroupTarget) -> GroupWalk {
    let (number, words) = (Type::Value(CType::U64), Type::Output(CType::U64));
    let (control, cancel) = (b.params.control(), b.params.cancel());
    let parts = [
        b.params.once(Type::Input(CType::U32), Binding::Group(GroupPart::Offsets)),
        b.params.once(number, Binding::Group(GroupPart::Partitions)),
        b.params.once(number, Binding::Group(GroupPart::ChunkRows)),
        b.params.once(words, Binding::Group(GroupPart::Cursors)),
        b.params.once(number, Binding::Group(GroupPart::OpenEnds)),
    ];
    let mut part = |of_type, part| b.params.once(of_type, Binding::Group(part));
    let finished =
        target.has_finished.then(|| [part(words, GroupPart::Finished), part(number, GroupPart::FinishedRows)]);
    GroupWalk { control, cancel, parts, finished }
}

/// Threads and shared memory of a block that goes over tiles.
fn tiles_block(target: &GroupTarget) -> (u32, u32) {
    if target.front.slots() == 0 { (PIPELINE_BLOCK_THREADS, 0) } else { (TABLE_BLOCK_THREADS, target.table_bytes()) }
}

/// The same of a block that goes over partitions.
fn walk_block(target: &GroupTarget, limits: GroupLimits) -> (u32, u32) {
    let walk_bytes = 8 * WALK_WORDS;
    let table_slots = target.front.slots();
    if table_slots == 0 {
        return (PIPELINE_BLOCK_THREADS, walk_bytes);
    }
    let threads = match limits.table_blocks {
        1 => LONE_BLOCK_THREADS,
        _ if limits.is_skewed => SKEWED_BLOCK_THREADS,
        _ => TABLE_BLOCK_THREADS,
    };
    // The slots of finished groups make a list.
    let list_bytes = if target.has_finished { 2 * table_slots } else { 0 };
    (threads, walk_bytes + target.table_bytes() + list_bytes)
}
