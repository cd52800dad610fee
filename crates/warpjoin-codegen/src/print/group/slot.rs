//! How accumulated values are merged: in registers, in a block's shared memory, in global memory.

use crate::print::code::text_of;
use crate::program::{Nodes, Slot};
use crate::shapes::{AccumulatorKind, Merge};
use crate::value::CType;

/// A slot with the text of what a row adds to it.
#[derive(Clone)]
pub(super) struct SlotText<'a> {
    pub slot: &'a Slot,
    pub condition: Option<String>,
    pub code: String,
}

impl<'a> SlotText<'a> {
    pub(super) fn of(nodes: &Nodes, slot: &'a Slot) -> Self {
        let condition = slot.condition.map(|condition| text_of(nodes, condition));
        Self { slot, condition, code: text_of(nodes, slot.code) }
    }

    /// The same with what is added in a variable, by all rows.
    pub(super) fn with_code(&self, code: String) -> Self {
        Self { slot: self.slot, condition: None, code }
    }

    /// Statement that merges `code` into a local of the partial type.
    pub(super) fn merge_local(&self, target: &str, code: &str) -> String {
        match self.slot.kind.merge() {
            Merge::Max => format!("{{ const u64 code = {code}; if (code > {target}) {target} = code; }}"),
            Merge::Or => format!("{target} |= {code};"),
            Merge::Xor => format!("{target} ^= {code};"),
            // Signed numbers must not overflow in C++; sums of decimals wrap.
            Merge::Add if partial_type(self.slot) == CType::I128 => {
                format!("{target} = (i128)((u128){target} + (u128){code});")
            }
            Merge::Add => format!("{target} += {code};"),
        }
    }

    pub(super) fn guarded(&self, statement: &str) -> String {
        match &self.condition {
            Some(condition) => format!("if ({condition}) {{ {statement} }}"),
            None => statement.into(),
        }
    }

    /// Statement that merges a row into the slot of a block's table; `array` gives that of its n-th word.
    pub(super) fn merge_block(&self, array: impl Fn(usize) -> String, slots: u32) -> String {
        let (first, code) = (array(0), &self.code);
        match self.slot.kind {
            AccumulatorKind::Count if self.slot.is_bounded => format!("block_count({first}, slot, (u32){code});"),
            AccumulatorKind::Sum128 if !self.slot.narrow_partial => {
                format!("block_add_wide({first}, {}, {slots}, slot, (i128){code});", array(1))
            }
            AccumulatorKind::Count | AccumulatorKind::Sum64 | AccumulatorKind::Sum128 => {
                format!("block_add({first}, {slots}, slot, (u64){code});")
            }
            AccumulatorKind::SumFloat => format!("block_add_float({first}, slot, {code});"),
            _ => match self.slot.kind.merge() {
                Merge::Or => format!("block_or({first}, slot, {code});"),
                Merge::Xor => format!("block_xor({first}, slot, {code});"),
                _ => format!("block_max({first}, slot, {code});"),
            },
        }
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

/// Whether a block's table keeps it in halves of 32 bits.
pub(super) fn is_halved(slot: &Slot) -> bool {
    use AccumulatorKind::{Count, Sum64, Sum128};
    matches!(slot.kind, Count | Sum64 | Sum128)
}

/// Code that reads word `word` of what a slot of a block's table has gathered.
pub(super) fn read_block_word(slot: &Slot, array: impl Fn(usize) -> String, slots: u32, word: usize) -> String {
    match word {
        1 if slot.narrow_partial => format!("(u64)((i64)block_sum({}, {slots}, slot) >> 63)", array(0)),
        _ if is_halved(slot) => format!("block_sum({}, {slots}, slot)", array(word)),
        _ => format!("{}[slot]", array(word)),
    }
}

/// Code that reads what a slot of a block's table has gathered.
pub(super) fn read_block(slot: &Slot, array: impl Fn(usize) -> String, slots: u32) -> String {
    let word = |word| read_block_word(slot, &array, slots, word);
    match slot.kind {
        AccumulatorKind::Sum128 => format!("(i128)((u128){} << 64 | {})", word(1), word(0)),
        AccumulatorKind::SumFloat => format!("__longlong_as_double((i64){})", word(0)),
        _ => word(0),
    }
}

/// Statement that clears a word of a slot of a block's table.
pub(super) fn clear_block(slot: &Slot, array: &str, slots: u32) -> String {
    if is_halved(slot) { format!("block_clear_sum({array}, {slots}, slot);") } else { format!("{array}[slot] = 0;") }
}

/// C type of a thread's own accumulator in a register.
pub(super) fn partial_type(slot: &Slot) -> CType {
    match slot.kind {
        AccumulatorKind::Sum128 if slot.narrow_partial => CType::I64,
        AccumulatorKind::Sum128 => CType::I128,
        AccumulatorKind::SumFloat => CType::F64,
        _ => CType::U64,
    }
}

/// C type of a sum over the threads of a warp or block: many narrow parts need not be narrow.
pub(super) fn total_type(slot: &Slot) -> CType {
    if slot.kind == AccumulatorKind::Sum128 { CType::I128 } else { partial_type(slot) }
}

/// The function that merges the parts of a warp's lanes.
pub(super) fn warp_merge(slot: &Slot) -> &'static str {
    match slot.kind.merge() {
        Merge::Add => "warp_sum",
        Merge::Max => "warp_max",
        Merge::Or => "warp_or",
        Merge::Xor => "warp_xor",
    }
}

/// C type of what a few rows add.
pub(super) fn few_type(slot: &Slot) -> CType {
    match slot.kind {
        AccumulatorKind::Sum128 if !slot.narrow_partial => CType::I128,
        AccumulatorKind::SumFloat => CType::F64,
        _ => CType::U64,
    }
}
