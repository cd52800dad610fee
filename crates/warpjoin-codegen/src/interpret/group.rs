//! Group tables as instructions, and the list that describes them.

use std::sync::Arc;

use warpjoin_kernels::group::{BLOCK_HEAD_WORDS, WALK_WORDS, merge_kind};
use warpjoin_kernels::interpret::{
    INTERPRET_KEY_WORDS, Operation as Do, group_front, group_list, group_mode, merge_form,
};

use super::builder::{Builder, Made, Unknown};
use super::operand::{ListEntry, Next, Operand, ProgramKind, Shared, Step};
use super::value::is_wide;
use crate::program::{
    Accumulate, Around, Field, GroupFrame, GroupLoop, GroupTarget, Kernel, Slot, TableFields, Variable,
};
use crate::shapes::{AccumulatorKind, GroupMode, PreAggregation};
use crate::value::CType;

/// How an accumulator merges values, and the type of these.
fn merge_of(slot: &Slot) -> (u32, CType) {
    let c_type = match slot.kind {
        AccumulatorKind::Sum128 if slot.narrow_partial => CType::I64,
        AccumulatorKind::Sum128 => CType::I128,
        AccumulatorKind::SumFloat => CType::F64,
        _ => CType::U64,
    };
    (slot.kind.merge_kind(), c_type)
}

impl Builder<'_> {
    /// What lanes gather of a single group.
    pub(super) fn open_gathered(&mut self, target: &GroupTarget) -> Made<()> {
        let zero = self.constant(0);
        for slot in &target.slots {
            let is_wide = slot.kind == AccumulatorKind::Sum128;
            let gathered = self.lanes(if is_wide { 2 } else { 1 });
            self.emit(Do::Move, gathered, &[zero]);
            if is_wide {
                self.emit(Do::Move, gathered.high(), &[zero]);
            }
            self.gathered.push(gathered);
        }
        Ok(())
    }

    /// Merges it into the only row.
    pub(super) fn close_gathered(&mut self, target: &GroupTarget, rows: Field) -> Made<()> {
        let rows = self.field(rows);
        self.emit(Do::MarkRow, Operand::NONE, &[rows]);
        for (index, slot) in target.slots.iter().enumerate() {
            let operation = match merge_of(slot).0 {
                merge_kind::ADD => Do::MergeAdd,
                merge_kind::ADD_WIDE => Do::MergeAddWide,
                merge_kind::ADD_DOUBLE => Do::MergeAddDouble,
                merge_kind::MAX => Do::MergeMax,
                merge_kind::OR => Do::MergeOr,
                _ => Do::MergeXor,
            };
            let step = Step::new(operation, Operand::NONE, &[self.gathered[index], rows]);
            self.push(step.with(Next::Number(1 + slot.word as u32)));
        }
        Ok(())
    }

    /// Merges a row.
    pub(super) fn accumulate(&mut self, accumulate: &Accumulate) -> Made<()> {
        let Accumulate { target, packed, key_words } = accumulate;
        let mut merges = vec![];
        for slot in &target.slots {
            let condition = self.truth(slot.condition)?;
            // What is null may not be there.
            let is_lazy = slot.condition.is_some() && self.reads_anywhere(slot.code);
            let end = if is_lazy { Some(self.push_scope(Do::Push, condition)?) } else { None };
            let c_type = if target.mode == GroupMode::Global && slot.kind == AccumulatorKind::Sum128 {
                CType::I128
            } else {
                merge_of(slot).1
            };
            let value = self.code_as(slot.code, c_type)?;
            if let Some(end) = end {
                self.pop_scope(end);
            }
            merges.push((condition, value));
        }
        if target.mode == GroupMode::Global {
            for (index, (slot, (condition, value))) in target.slots.iter().zip(merges).enumerate() {
                let operation = match merge_of(slot).0 {
                    merge_kind::ADD => Do::AddIf,
                    merge_kind::ADD_WIDE => Do::AddWideIf,
                    merge_kind::ADD_DOUBLE => Do::AddDoubleIf,
                    merge_kind::MAX => Do::MaxIf,
                    merge_kind::OR => Do::OrIf,
                    _ => Do::XorIf,
                };
                self.emit(operation, self.gathered[index], &[value, condition]);
            }
            return Ok(());
        }
        if self.list.len() != group_list::HEAD {
            return Err(Unknown("rows that are merged at several places"));
        }
        self.list[group_list::PACKED] = ListEntry::Operand(self.code_as(*packed, CType::U64)?);
        let mut block_word = 0;
        for (slot, (condition, value)) in target.slots.iter().zip(merges) {
            let (kind, c_type) = merge_of(slot);
            let is_narrow = slot.kind == AccumulatorKind::Sum128 && !is_wide(c_type);
            let is_count = slot.kind == AccumulatorKind::Count && slot.is_bounded;
            let is_of_all = condition == self.constant(1);
            let is_sum = (kind == merge_kind::ADD || is_narrow) && !is_count;
            let forms = [
                (is_narrow, merge_form::NARROW),
                (is_count, merge_form::COUNT),
                (is_of_all, merge_form::OF_ALL),
                (is_of_all && is_sum, merge_form::SUM_OF_ALL),
            ];
            let form = forms.into_iter().filter(|(has, _)| *has).fold(0, |all, (_, form)| all | form);
            let numbers = [kind as u16, slot.word as u16, block_word, form as u16];
            self.list.extend(numbers.map(ListEntry::Number));
            self.list.extend([condition, value].map(ListEntry::Operand));
            self.list.resize(self.list.len().next_multiple_of(group_list::EACH), ListEntry::Number(0));
            block_word += slot.block_words() as u16;
        }
        if target.mode == GroupMode::Wide {
            for &word in key_words {
                let word = self.code_as(word, CType::U64)?;
                self.list.push(ListEntry::Operand(word));
            }
        }
        self.emit(Do::Accumulate, Operand::NONE, &[]);
        Ok(())
    }

    /// Describes a table in global memory, and opens it.
    pub(super) fn open_table(&mut self, target: &Arc<GroupTarget>, fields: &TableFields, rows: &GroupLoop) -> Made<()> {
        self.kind = ProgramKind::Groups;
        self.list = vec![ListEntry::Number(0); group_list::HEAD];
        let (front, replica_bits) = match target.front {
            PreAggregation::None => (group_front::NONE, 0),
            PreAggregation::Keyed { replica_bits, .. } => (group_front::KEYED, replica_bits),
            PreAggregation::Hashed { .. } => (group_front::HASHED, 0),
        };
        let mode = match target.mode {
            GroupMode::Dense => group_mode::DENSE,
            GroupMode::Narrow => group_mode::NARROW,
            GroupMode::Wide => group_mode::WIDE,
            GroupMode::Global => return Err(Unknown("a table of one row")),
        };
        let is_halved = |slot: &Slot| merge_of(slot).0 <= merge_kind::ADD_WIDE;
        let key_words = if target.mode == GroupMode::Wide { target.header_words - 1 } else { 0 };
        if key_words > INTERPRET_KEY_WORDS {
            return Err(Unknown("a key of too many words"));
        }
        for (place, number) in [
            (group_list::MODE, mode as u16),
            (group_list::STRIDE, target.stride_words as u16),
            (group_list::HEADER, target.header_words as u16),
            (group_list::FRONT, front as u16),
            (group_list::REPLICA_BITS, replica_bits as u16),
            (group_list::BLOCK_WORDS, target.block_words() as u16),
            (group_list::ACCUMULATORS, target.slots.len() as u16),
            (group_list::KEY_WORDS, key_words as u16),
            (group_list::IS_HALVED, target.slots.iter().all(is_halved).into()),
        ] {
            self.list[place] = ListEntry::Number(number);
        }
        for (index, &field) in fields.iter().enumerate() {
            self.list[group_list::TABLE + index] = ListEntry::Operand(self.field(field));
        }
        let mut walk_words = 0;
        match rows {
            GroupLoop::Other => {}
            GroupLoop::Tiles(tiles) => {
                self.list[group_list::CANCEL] = ListEntry::Operand(self.field(tiles.cancel));
                self.list[group_list::PARTS] = ListEntry::Operand(self.field(tiles.cursors));
            }
            GroupLoop::Walk(walk) => {
                walk_words = WALK_WORDS;
                self.list[group_list::CANCEL] = ListEntry::Operand(self.field(walk.cancel));
                for (index, &field) in walk.parts.iter().enumerate() {
                    self.list[group_list::PARTS + index] = ListEntry::Operand(self.field(field));
                }
                if let Some(finished) = walk.finished {
                    self.list[group_list::HAS_FINISHED] = ListEntry::Number(1);
                    for (index, field) in finished.into_iter().enumerate() {
                        self.list[group_list::FINISHED + index] = ListEntry::Operand(self.field(field));
                    }
                }
            }
        }
        let slots = target.front.slots();
        // A slot has a key, accumulators, and a place in the list of groups.
        let slot_bytes = 8 + 8 * target.block_words() + 2;
        self.shared = Shared {
            head_words: walk_words + if slots > 0 { BLOCK_HEAD_WORDS } else { 0 },
            slots,
            slot_bytes,
            keeps_slots: target.front.is_keyed(),
        };
        self.push(Step::new(Do::OpenGroups, Operand::NONE, &[]).with(Next::Number(walk_words)));
        Ok(())
    }

    pub(super) fn close_table(&mut self, rows: &GroupLoop) -> Made<()> {
        match rows {
            GroupLoop::Other => {}
            GroupLoop::Tiles(_) => self.emit(Do::CloseTiles, Operand::NONE, &[]),
            GroupLoop::Walk(_) => self.emit(Do::CloseWalk, Operand::NONE, &[]),
        }
        Ok(())
    }

    /// The variable of the loop over the rows of a group-by.
    pub(super) fn row_of_groups(kernel: &Kernel) -> Variable {
        match &kernel.around {
            Around::Groups { frame: GroupFrame::Table { rows: GroupLoop::Tiles(tiles), .. }, .. } => tiles.row,
            _ => Variable::Row,
        }
    }

    /// The loop over the rows of a group-by.
    pub(super) fn group_head(&mut self, kernel: &Kernel, row: Operand, alive: Operand) -> Made<Step> {
        let Around::Groups { frame: GroupFrame::Table { rows, .. }, .. } = &kernel.around else {
            return Err(Unknown("a loop of no table"));
        };
        Ok(match rows {
            GroupLoop::Other => return Err(Unknown("a loop that knows no table")),
            GroupLoop::Tiles(tiles) => {
                let rows = self.field(tiles.rows);
                Step::new(Do::Tiles, row, &[rows, Operand::NONE, Operand::NONE, alive])
            }
            GroupLoop::Walk(_) => Step::new(Do::Walk, row, &[Operand::NONE, Operand::NONE, Operand::NONE, alive]),
        })
    }
}
