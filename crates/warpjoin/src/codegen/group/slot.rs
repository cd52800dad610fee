//! What a group-by accumulates, and how: in registers, in a block's shared memory, in global memory.

use std::collections::HashMap;
use std::sync::Arc;

use crate::codegen::shapes::{AccumulatorKind, Merge};
use crate::identity::Identity;

/// One word run to accumulate into, and the code of what is added.
#[derive(Clone)]
pub(super) struct Slot {
    pub kind: AccumulatorKind,
    /// Word within the accumulators.
    pub word: usize,
    /// Part of a 128-bit sum fits 64 bits, in a thread's register and in a block's table.
    pub narrow_partial: bool,
    /// A block sees less than 2^32 rows before it flushes its table.
    pub is_bounded: bool,
    /// Condition and value to accumulate.
    pub condition: Option<String>,
    pub code: String,
}

/// What an accumulator adds up: two of equal keys and kinds are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ValueKey {
    /// Rows.
    Rows,
    /// Rows whose argument is not null.
    ValuesOf(Arc<Identity>),
    /// A term of the argument, and of a second one.
    Term(Arc<Identity>),
}

/// Accumulators of a sink, each value once however many results use it.
#[derive(Default)]
pub(super) struct Slots {
    pub slots: Vec<Slot>,
    pub words: usize,
    /// Whether a thread sees a row a tile at most.
    pub is_bounded: bool,
    pub known: HashMap<(AccumulatorKind, ValueKey), usize>,
}

impl Slots {
    pub(super) fn slot(
        &mut self,
        kind: AccumulatorKind,
        key: ValueKey,
        make: impl FnOnce() -> (Option<String>, String, bool),
    ) -> usize {
        if let Some(&word) = self.known.get(&(kind, key.clone())) {
            return word;
        }
        let (condition, code, narrow_partial) = make();
        let is_bounded = self.is_bounded;
        let word = self.words;
        self.words += kind.words();
        self.slots.push(Slot { kind, word, narrow_partial, is_bounded, condition, code });
        self.known.insert((kind, key), word);
        word
    }

    pub(super) fn count(&mut self, key: ValueKey, valid: Option<String>) -> usize {
        self.slot(AccumulatorKind::Count, key, || (valid, "1ULL".into(), false))
    }
}

impl Slot {
    /// Words of an accumulator in a block's table.
    pub(super) fn block_words(&self) -> usize {
        if self.narrow_partial { 1 } else { self.kind.words() }
    }

    /// C type of a thread's own accumulator in a register.
    pub(super) fn partial_type(&self) -> &'static str {
        match self.kind {
            AccumulatorKind::Sum128 if self.narrow_partial => "i64",
            AccumulatorKind::Sum128 => "i128",
            AccumulatorKind::SumFloat => "f64",
            _ => "u64",
        }
    }

    /// C type of a sum over the threads of a warp or block: many narrow parts need not be narrow.
    pub(super) fn total_type(&self) -> &'static str {
        if self.kind == AccumulatorKind::Sum128 { "i128" } else { self.partial_type() }
    }

    /// The function that merges the parts of a warp's lanes.
    pub(super) fn warp_merge(&self) -> &'static str {
        match self.kind.merge() {
            Merge::Add => "warp_sum",
            Merge::Max => "warp_max",
            Merge::Or => "warp_or",
            Merge::Xor => "warp_xor",
        }
    }

    /// Statement that merges `code` into a local of the partial type.
    pub(super) fn merge_local(&self, target: &str, code: &str) -> String {
        match self.kind.merge() {
            Merge::Max => format!("{{ const u64 code = {code}; if (code > {target}) {target} = code; }}"),
            Merge::Or => format!("{target} |= {code};"),
            Merge::Xor => format!("{target} ^= {code};"),
            // Signed numbers must not overflow in C++; sums of decimals wrap.
            Merge::Add if self.partial_type() == "i128" => {
                format!("{target} = (i128)((u128){target} + (u128){code});")
            }
            Merge::Add => format!("{target} += {code};"),
        }
    }

    /// Statement that merges `code` into the words at `target` in global memory.
    pub(super) fn merge_global(kind: AccumulatorKind, target: &str, code: &str) -> String {
        match kind {
            AccumulatorKind::Count | AccumulatorKind::Sum64 => format!("accumulate_add({target}, (u64){code});"),
            AccumulatorKind::Sum128 => format!("accumulate_add_wide({target}, (i128){code});"),
            AccumulatorKind::SumFloat => format!("accumulate_add((f64*)({target}), {code});"),
            _ => match kind.merge() {
                Merge::Or => format!("accumulate_or({target}, {code});"),
                Merge::Xor => format!("accumulate_xor({target}, {code});"),
                _ => format!("accumulate_max({target}, {code});"),
            },
        }
    }

    /// The same without the condition on a row.
    pub(super) fn unguarded(&self) -> Self {
        Self { condition: None, ..self.clone() }
    }

    pub(super) fn guarded(&self, statement: &str) -> String {
        match &self.condition {
            Some(condition) => format!("if ({condition}) {{ {statement} }}"),
            None => statement.into(),
        }
    }

    /// C type of what a few rows add.
    pub(super) fn few_type(&self) -> &'static str {
        match self.kind {
            AccumulatorKind::Sum128 if !self.narrow_partial => "i128",
            AccumulatorKind::SumFloat => "f64",
            _ => "u64",
        }
    }

    /// Whether a block's table keeps it in halves of 32 bits.
    pub(super) fn is_halved(&self) -> bool {
        use AccumulatorKind::{Count, Sum64, Sum128};
        matches!(self.kind, Count | Sum64 | Sum128)
    }

    /// Statement that merges a row into the slot of a block's table; `array` gives that of its n-th word.
    pub(super) fn merge_block(&self, array: impl Fn(usize) -> String, slots: u32) -> String {
        let (first, code) = (array(0), &self.code);
        match self.kind {
            AccumulatorKind::Count if self.is_bounded => format!("block_count({first}, slot, (u32){code});"),
            AccumulatorKind::Sum128 if !self.narrow_partial => {
                format!("block_add_wide({first}, {}, {slots}, slot, (i128){code});", array(1))
            }
            AccumulatorKind::Count | AccumulatorKind::Sum64 | AccumulatorKind::Sum128 => {
                format!("block_add({first}, {slots}, slot, (u64){code});")
            }
            AccumulatorKind::SumFloat => format!("block_add_float({first}, slot, {code});"),
            _ => match self.kind.merge() {
                Merge::Or => format!("block_or({first}, slot, {code});"),
                Merge::Xor => format!("block_xor({first}, slot, {code});"),
                _ => format!("block_max({first}, slot, {code});"),
            },
        }
    }

    /// Code that reads word `word` of what a slot of a block's table has gathered.
    pub(super) fn read_block_word(&self, array: impl Fn(usize) -> String, slots: u32, word: usize) -> String {
        match word {
            1 if self.narrow_partial => format!("(u64)((i64)block_sum({}, {slots}, slot) >> 63)", array(0)),
            _ if self.is_halved() => format!("block_sum({}, {slots}, slot)", array(word)),
            _ => format!("{}[slot]", array(word)),
        }
    }

    /// Code that reads what a slot of a block's table has gathered.
    pub(super) fn read_block(&self, array: impl Fn(usize) -> String, slots: u32) -> String {
        let word = |word| self.read_block_word(&array, slots, word);
        match self.kind {
            AccumulatorKind::Sum128 => format!("(i128)((u128){} << 64 | {})", word(1), word(0)),
            AccumulatorKind::SumFloat => format!("__longlong_as_double((i64){})", word(0)),
            _ => word(0),
        }
    }

    /// Statement that clears a word of a slot of a block's table.
    pub(super) fn clear_block(&self, array: &str, slots: u32) -> String {
        if self.is_halved() {
            format!("block_clear_sum({array}, {slots}, slot);")
        } else {
            format!("{array}[slot] = 0;")
        }
    }

    /// Code that reads a word run of a group table's row.
    pub(super) fn read_global(kind: AccumulatorKind, first: &str) -> String {
        match kind {
            AccumulatorKind::Sum128 => format!("wide_of_words({first})"),
            AccumulatorKind::SumFloat => format!("__longlong_as_double((i64)*({first}))"),
            _ => format!("*({first})"),
        }
    }
}
