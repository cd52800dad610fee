//! The sink that aggregates, and the columns of its result.

use std::collections::HashMap;

use arrow::datatypes::DataType;

use super::emitter::{Cell, Emitter, Environment};
use super::expr::evaluate;
use super::packing::Packing;
use super::params::{Binding, GroupPart};
use super::shapes::{Accumulator, AccumulatorKind, AccumulatorResult, GroupMode, GroupShape, ResultType};
use super::value::{CType, Kind, Range, Value, range_of_type};
use crate::expr::Expr;
use crate::plan::AggregateFunction;
use crate::{Error, Reason, Result};

/// Most bytes of shared memory for per-thread accumulators: two blocks then share a multiprocessor.
const PRIVATE_BYTES_MAX: u32 = 112 * 1024;
/// Threads of a block whose threads accumulate in shared memory.
const PRIVATE_BLOCK_THREADS: u32 = 128;
/// Rows that one thread sees at most: the launch uses enough threads, and the executor checks it.
pub(crate) const ROWS_PER_THREAD_BITS_MAX: u32 = 20;
/// Largest table that is indexed by the packed key.
const DENSE_BITS_MAX: u32 = 22;

/// Text around the tile loop, and what the sink found out.
pub(crate) struct AggregateOutput {
    pub shape: GroupShape,
    pub prologue: String,
    pub epilogue: String,
    pub shared_bytes: u32,
    pub block_threads: u32,
    /// Whether the loop should stop early when the table is full.
    pub can_be_full: bool,
}

/// One word run to accumulate into, and the code of what is added.
struct Slot {
    kind: AccumulatorKind,
    /// Word within the accumulators.
    word: usize,
    /// Part of a 128-bit sum that one thread sees fits 64 bits.
    narrow_partial: bool,
    /// Condition and value to accumulate.
    condition: Option<String>,
    code: String,
}

/// Accumulators of a sink, each value once however many results use it.
#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    words: usize,
    known: HashMap<(AccumulatorKind, String), usize>,
}

impl Slots {
    fn slot(
        &mut self,
        kind: AccumulatorKind,
        key: String,
        make: impl FnOnce() -> (Option<String>, String, bool),
    ) -> usize {
        if let Some(&word) = self.known.get(&(kind, key.clone())) {
            return word;
        }
        let (condition, code, narrow_partial) = make();
        let word = self.words;
        self.words += kind.words();
        self.slots.push(Slot { kind, word, narrow_partial, condition, code });
        self.known.insert((kind, key), word);
        word
    }

    fn count(&mut self, key: String, valid: Option<String>) -> usize {
        self.slot(AccumulatorKind::Count, key, || (valid, "1ULL".into(), false))
    }
}

/// Emits [`super::shapes::Sink::Aggregate`].
pub(crate) fn aggregate(
    emitter: &mut Emitter,
    environment: &Environment,
    keys: &[Expr],
    accumulators: &[Accumulator],
    limits: Limits,
) -> Result<AggregateOutput> {
    let key_values = keys.iter().map(|key| evaluate(emitter, key, environment)).collect::<Result<Vec<_>>>()?;
    let packing = Packing::of(&key_values);
    let mut slots = Slots::default();
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
    let private_words = 1 + slots.slots.iter().map(Slot::private_words).sum::<usize>();
    let mode = choose_mode(keys.is_empty(), &packing, private_words, limits);
    let header = mode.header_words(&packing);
    for result in &mut results {
        result.word += header;
        if let Some(word) = &mut result.count_word {
            *word += header;
        }
    }
    let mut output = AggregateOutput {
        shape: GroupShape { mode, stride_words: header + slots.words, results, packing },
        prologue: String::new(),
        epilogue: String::new(),
        shared_bytes: 0,
        block_threads: if mode == GroupMode::Private { PRIVATE_BLOCK_THREADS } else { super::pipeline::BLOCK_THREADS },
        can_be_full: matches!(mode, GroupMode::Narrow | GroupMode::Wide),
    };
    match mode {
        GroupMode::Global => global(emitter, &slots, &mut output),
        GroupMode::Private => private(emitter, &key_values, &slots, private_words, &mut output),
        _ => table(emitter, &key_values, &slots, &mut output),
    }
    Ok(output)
}

/// What bounds the choice of a mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub rows_bits: u32,
    pub shared_bytes_max: u32,
}

fn choose_mode(no_keys: bool, packing: &Packing, private_words: usize, limits: Limits) -> GroupMode {
    if no_keys {
        return GroupMode::Global;
    }
    let Some(bits) = packing.single_word_bits().filter(|&bits| bits <= 63) else {
        return GroupMode::Wide;
    };
    let shared_bytes =
        (private_words as u64 * u64::from(PRIVATE_BLOCK_THREADS) * 8).checked_shl(bits).unwrap_or(u64::MAX);
    if bits <= 6 && shared_bytes <= PRIVATE_BYTES_MAX.min(limits.shared_bytes_max).into() {
        GroupMode::Private
    } else if bits <= DENSE_BITS_MAX && bits <= limits.rows_bits {
        GroupMode::Dense
    } else {
        GroupMode::Narrow
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
    let rows_key = || "rows".to_string();
    let argument = accumulator.argument.as_ref().map(|e| evaluate(emitter, e, environment)).transpose()?;
    let key = accumulator.argument.as_ref().map(|e| format!("{e:?}")).unwrap_or_default();
    let Some(argument) = argument else {
        let word = slots.count(rows_key(), None);
        return Ok(result(word, AccumulatorKind::Count, count_kind(rows_bits), accumulator, None));
    };
    let count_key = if argument.valid.is_some() { format!("count {key}") } else { rows_key() };
    if accumulator.function == AggregateFunction::Count {
        let word = slots.count(count_key, argument.valid.clone());
        return Ok(result(word, AccumulatorKind::Count, count_kind(rows_bits), accumulator, None));
    }
    // Behind a probe of duplicate keys a thread sees any number of rows.
    let is_bounded = emitter.alive == "alive";
    let (kind, code, narrow_partial, result_kind) = encode(accumulator, &argument, rows_bits, is_bounded)?;
    let key = format!("{key} {}", accumulator.is_merge);
    let word = slots.slot(kind, key, || (argument.valid.clone(), code, narrow_partial));
    let count_word = (argument.valid.is_some() || is_global).then(|| slots.count(count_key, argument.valid.clone()));
    let mut result = result(word, kind, result_kind, accumulator, count_word);
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
    accumulator: &Accumulator,
    count_word: Option<usize>,
) -> AccumulatorResult {
    let value = ResultType { kind, data_type: accumulator.data_type.clone(), dictionary: None };
    AccumulatorResult { word, encoding, value, count_word }
}

/// How a sum, minimum or maximum is accumulated: kind, code of the addend, whether a thread's part of
/// a 128-bit sum fits 64 bits (if a thread's rows are bounded), and kind of the result.
fn encode(
    accumulator: &Accumulator,
    argument: &Value,
    rows_bits: u32,
    is_bounded: bool,
) -> Result<(AccumulatorKind, String, bool, Kind)> {
    let is_sum = accumulator.function == AggregateFunction::Sum;
    let is_max = accumulator.function == AggregateFunction::Max;
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
            if argument.c_type() == CType::I128 {
                return Err(Reason::Aggregate(format!("{} of values beyond 64 bits", accumulator.function)).into());
            }
            if argument.dictionary.as_ref().is_some_and(|d| !d.is_sorted()) {
                return Err(Reason::Aggregate(format!("{} of unsorted strings", accumulator.function)).into());
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
            let type_range = range_of_type(&accumulator.data_type).unwrap_or(Range::new(i128::MIN, i128::MAX));
            let total = total.unwrap_or(Range::new(i128::MIN, i128::MAX));
            let total = if total.min < type_range.min || total.max > type_range.max { type_range } else { total };
            let is_wide = total.c_type() == CType::I128 && accumulator.data_type != DataType::UInt64;
            if is_wide {
                let narrow = is_bounded && scaled(ROWS_PER_THREAD_BITS_MAX).is_some_and(|r| r.c_type() != CType::I128);
                let c_type = if narrow { CType::I64 } else { CType::I128 };
                Ok((AccumulatorKind::Sum128, argument.code_as(c_type), narrow, Kind::Int(total)))
            } else {
                Ok((AccumulatorKind::Sum64, format!("(u64){}", argument.code), false, Kind::Int(total)))
            }
        }
    }
}

impl Slot {
    /// Words of a thread's own accumulator in shared memory.
    fn private_words(&self) -> usize {
        if self.narrow_partial { 1 } else { self.kind.words() }
    }

    /// C type of a thread's own accumulator in a register.
    fn partial_type(&self) -> &'static str {
        match self.kind {
            AccumulatorKind::Sum128 if self.narrow_partial => "i64",
            AccumulatorKind::Sum128 => "i128",
            AccumulatorKind::SumFloat => "f64",
            _ => "u64",
        }
    }

    /// C type of a sum over the threads of a warp or block: many narrow parts need not be narrow.
    fn total_type(&self) -> &'static str {
        if self.kind == AccumulatorKind::Sum128 { "i128" } else { self.partial_type() }
    }

    fn is_maximum(&self) -> bool {
        use AccumulatorKind::{MaxFloat, MaxInt, MinFloat, MinInt};
        matches!(self.kind, MaxInt | MinInt | MaxFloat | MinFloat)
    }

    /// Statement that merges `code` into a local of the partial type.
    fn merge_local(&self, target: &str, code: &str) -> String {
        if self.is_maximum() {
            format!("{{ const u64 code = {code}; if (code > {target}) {target} = code; }}")
        } else if self.partial_type() == "i128" {
            // Signed numbers must not overflow in C++; sums of decimals wrap.
            format!("{target} = (i128)((u128){target} + (u128){code});")
        } else {
            format!("{target} += {code};")
        }
    }

    /// Statement that merges `code` into the words at `target` in global memory.
    fn merge_global(&self, target: &str, code: &str) -> String {
        match self.kind {
            AccumulatorKind::Count | AccumulatorKind::Sum64 => format!("accumulate_add({target}, (u64){code});"),
            AccumulatorKind::Sum128 => format!("accumulate_add_wide({target}, (i128){code});"),
            AccumulatorKind::SumFloat => format!("accumulate_add((f64*)({target}), {code});"),
            _ => format!("accumulate_max({target}, {code});"),
        }
    }

    fn guarded(&self, statement: &str) -> String {
        match &self.condition {
            Some(condition) => format!("if ({condition}) {{ {statement} }}"),
            None => statement.into(),
        }
    }
}

/// One row: registers, then one merge a warp.
fn global(emitter: &mut Emitter, slots: &Slots, output: &mut AggregateOutput) {
    let rows = emitter.params.once("u64*", Binding::Group(GroupPart::Rows));
    output.epilogue.push_str(&format!("    if (blockIdx.x == 0 && threadIdx.x == 0) {rows}[0] = 1;\n"));
    for (index, slot) in slots.slots.iter().enumerate() {
        output.prologue.push_str(&format!("    {} part{index} = 0;\n", slot.partial_type()));
        let statement = slot.guarded(&slot.merge_local(&format!("part{index}"), &slot.code));
        emitter.statement(&statement);
        let reduce = if slot.is_maximum() { "warp_max" } else { "warp_sum" };
        let target = format!("&{rows}[{}]", 1 + slot.word);
        output.epilogue.push_str(&format!(
            "    const {total} total{index} = {reduce}(({total})part{index});\n    if ((threadIdx.x & 31) == 0) {{ {} }}\n",
            slot.merge_global(&target, &format!("total{index}")),
            total = slot.total_type(),
        ));
    }
    emitter.flush();
}

/// Few groups: each thread adds in its own column of shared memory; at the end each warp merges groups.
fn private(emitter: &mut Emitter, keys: &[Value], slots: &Slots, private_words: usize, output: &mut AggregateOutput) {
    let block_threads = PRIVATE_BLOCK_THREADS;
    let shape = &output.shape;
    let groups = 1u32 << shape.packing.single_word_bits().unwrap_or(0);
    let rows = emitter.params.once("u64*", Binding::Group(GroupPart::Rows));
    output.shared_bytes = groups * private_words as u32 * block_threads * 8;
    output.prologue = format!(
        "    u64* const mine = &shared_as<u64>() + threadIdx.x;\n\
         #pragma unroll 1\n    \
         for (u32 word = 0; word < {words}; ++word) mine[word * {block_threads}] = 0;\n",
        words = groups as usize * private_words
    );
    let packed = shape.packing.pack(emitter, keys);
    let group = packed.first().cloned().unwrap_or("0".into());
    let group_words = private_words * block_threads as usize;
    emitter.statement(&format!("u64* const part = mine + (u32){group} * {group_words};"));
    emitter.statement("part[0] += 1;");
    let mut merge = String::new();
    let mut word = 1;
    for (index, slot) in slots.slots.iter().enumerate() {
        let place = |base: &str| format!("{base}[{}]", word * block_threads as usize);
        let kind = slot.partial_type();
        let high = format!("part[{}]", (word + 1) * block_threads as usize);
        let statement = if kind == "i128" {
            format!(
                "{{ const u128 sum = ((u128){high} << 64 | {low}) + (u128){code}; {low} = (u64)sum; {high} = (u64)(sum >> 64); }}",
                low = place("part"),
                code = slot.code
            )
        } else {
            slot.merge_local(&format!("*({kind}*)&{}", place("part")), &slot.code)
        };
        emitter.statement(&slot.guarded(&statement));
        let read = if kind == "i128" {
            format!(
                "(i128)((u128)column[{}] << 64 | column[{}])",
                (word + 1) * block_threads as usize,
                word * block_threads as usize
            )
        } else {
            format!("*(const {kind}*)&{}", place("column"))
        };
        let reduce = if slot.is_maximum() { "warp_max" } else { "warp_sum" };
        let target = format!("&row[{}]", 1 + slot.word);
        merge.push_str(&format!(
            "        {total} total{index} = 0;\n\
             #pragma unroll 1\n        \
             for (u32 thread = lane; thread < {block_threads}; thread += 32) {{ const u64* column = first + thread; {} }}\n        \
             total{index} = {reduce}(total{index});\n        \
             if (lane == 0) {{ {} }}\n",
            slot.merge_local(&format!("total{index}"), &read),
            slot.merge_global(&target, &format!("total{index}")),
            total = slot.total_type(),
        ));
        word += slot.private_words();
    }
    emitter.flush();
    // Loops at the end are short and run once a block: unrolled, they are most of the compile time.
    output.epilogue = format!(
        "    __syncthreads();\n    const u32 lane = threadIdx.x & 31;\n\
         #pragma unroll 1\n    \
         for (u32 group = threadIdx.x / 32; group < {groups}; group += {warps}) {{\n        \
         const u64* first = &shared_as<u64>() + group * {group_words};\n        \
         u64 present = 0;\n\
         #pragma unroll 1\n        \
         for (u32 thread = lane; thread < {block_threads}; thread += 32) present += first[thread];\n        \
         if (warp_sum(present) == 0) continue;\n        \
         u64* const row = {rows} + group * {stride};\n        \
         if (lane == 0) atomicExch(row, 1ULL);\n{merge}    }}\n",
        warps = block_threads / 32,
        stride = shape.stride_words,
    );
}

/// A table in global memory.
fn table(emitter: &mut Emitter, keys: &[Value], slots: &Slots, output: &mut AggregateOutput) {
    let shape = &output.shape;
    let mut part = |c_type: &str, part: GroupPart| emitter.params.once(c_type, Binding::Group(part));
    let fields = [
        part("u64*", GroupPart::Rows),
        part("u64", GroupPart::Capacity),
        part("u64*", GroupPart::Index),
        part("u64", GroupPart::IndexSlots),
        part("u64", GroupPart::StepsMax),
        emitter.params.once("u64*", Binding::Control),
    ];
    let rows = fields[0].clone();
    output.prologue = format!("    const GroupTable table = {{{}}};\n", fields.join(", "));
    let words = shape.packing.pack(emitter, keys);
    let stride = shape.stride_words;
    let single = words.first().cloned().unwrap_or("0ULL".into());
    let found = match shape.mode {
        GroupMode::Wide => {
            output.prologue.push_str("    SpareRow spare = {0, false};\n");
            emitter.statement(&format!("const u64 key_words[{}] = {{{}}};", words.len(), words.join(", ")));
            format!("group_row_wide(table, {stride}, key_words, spare)")
        }
        GroupMode::Narrow => format!("group_row_narrow(table, {stride}, {single})"),
        _ => format!("group_row_dense(table, {stride}, {single})"),
    };
    emitter.statement(&format!("const u64 group_id = {found};"));
    emitter.statement("if (group_id != WJ_NO_ROW) {");
    let header = shape.mode.header_words(&shape.packing);
    emitter.statement(&format!("    u64* const part = {rows} + group_id * {stride} + {header};"));
    for slot in &slots.slots {
        let statement = slot.guarded(&slot.merge_global(&format!("part + {}", slot.word), &slot.code));
        emitter.statement(&format!("    {statement}"));
    }
    emitter.statement("}");
    emitter.flush();
}

/// The columns of a finished group table, read from the row pointer `group` of source row `row`:
/// keys, then accumulated values.
pub(crate) fn group_columns(emitter: &mut Emitter, shape: &GroupShape) -> Environment {
    let words: Vec<String> = match shape.mode {
        GroupMode::Global => vec![],
        GroupMode::Private | GroupMode::Dense => vec!["row".into()],
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
