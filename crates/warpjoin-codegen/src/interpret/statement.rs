//! Statements as instructions.

use warpjoin_kernels::common::{control, status};
use warpjoin_kernels::interpret::Operation as Do;

use super::builder::{Builder, Made, Unknown};
use super::operand::{Next, Operand, Step, Typed};
use super::value::is_wide;
use crate::program::{Branch, Case, Code, Counter, Declaration, Field, Statement, Status, Variable};
use crate::value::CType;

impl Builder<'_> {
    /// A statement; lanes that take no part compute, but change nothing.
    pub(super) fn statement(&mut self, statement: &Statement) -> Made<()> {
        match statement {
            Statement::Constant(variable, c_type, code) => self.constant_variable(*variable, *c_type, *code)?,
            Statement::Declare(declaration) => self.declaration(declaration)?,
            Statement::Assign(variable, code) => self.assign(*variable, *code)?,
            Statement::Raise { condition, status, control } => {
                let condition = self.code_as(*condition, CType::Bool)?;
                let control = self.field(*control);
                let bit = Next::Number(status_bit(*status) as u32);
                self.push(Step::new(Do::Raise, Operand::NONE, &[condition, control]).with(bit));
            }
            Statement::Case(case) => self.case(case)?,
            Statement::Store { field, code, is_once: _ } => self.store(*field, *code)?,
            Statement::FillSlot { table, key, value, control } => {
                let element = self.element_of(*table)?;
                let key = self.code_as(*key, CType::U64)?;
                let value = self.code_as(*value, element)?;
                let operation = match element.bits() {
                    32 => Do::FillSlot4,
                    64 => Do::FillSlot8,
                    _ => return Err(Unknown("a slot of another size")),
                };
                let (table, control, written) = (self.field(*table), self.field(*control), self.written()?);
                self.emit(operation, written, &[table, key, value, control]);
            }
            Statement::EndSearch { found, alive } => {
                let [found, alive, lanes, lane] = [*found, *alive, Variable::Slices, Variable::Slice]
                    .map(|variable| self.variable(variable).map(|known| known.operand));
                let (found, alive, lanes, lane, zero) = (found?, alive?, lanes?, lane?, self.constant(0));
                self.emit(Do::AnyOfLanes, found, &[found, lanes]);
                let is_first = self.word(Do::Equal, &[lane, zero]);
                self.emit(Do::And, alive, &[alive, is_first]);
            }
            Statement::SetBit { table, key } => {
                let key = self.code_as(*key, CType::U64)?;
                let (table, written, none) = (self.field(*table), self.written()?, self.constant(0));
                self.emit(Do::SetBit, written, &[table, key, none, none]);
            }
            Statement::Count { control, counter, number } => {
                let word = match counter {
                    Counter::Probes => control::PROBES,
                    Counter::Pruned => control::PRUNED,
                };
                let (control, number) = (self.field(*control), self.constant(*number as u64));
                self.push(Step::new(Do::Count, Operand::NONE, &[control, number]).with(Next::Number(word as u32)));
            }
            Statement::Keep { array, code } => {
                let value = self.code_as(*code, CType::U64)?;
                match array {
                    Variable::Keys => {
                        let keys = self.variable(Variable::Keys)?.operand;
                        self.emit(Do::KeepKey, keys, &[value]);
                    }
                    _ => self.emit(Do::KeepValue, Operand::NONE, &[value]),
                }
            }
            Statement::PlaceInPartition { hash, bits, skipped_bits } => {
                let hash = self.code_as(*hash, CType::U64)?;
                let (bits, skipped) = (self.field(*bits), self.field(*skipped_bits));
                self.emit(Do::PlaceInPartition, Operand::NONE, &[hash, bits, skipped]);
            }
            Statement::Accumulate(accumulate) => self.accumulate(accumulate)?,
        }
        Ok(())
    }

    /// A value under a name, which does not change.
    fn constant_variable(&mut self, variable: Variable, c_type: CType, code: Code) -> Made<()> {
        let operand = self.code_as(code, c_type)?;
        // What another variable holds may change.
        let is_own = !self.is_variable(operand);
        let operand = if is_own { operand } else { self.copy(operand, c_type) };
        self.set_variable(variable, operand, c_type);
        Ok(())
    }

    fn copy(&mut self, operand: Operand, c_type: CType) -> Operand {
        let to = self.lanes(if is_wide(c_type) { 2 } else { 1 });
        self.put(Do::Move, to, Typed { operand, c_type });
        to
    }

    /// Moves a value.
    fn put(&mut self, operation: Do, to: Operand, value: Typed) {
        self.emit(operation, to, &[value.operand]);
        if is_wide(value.c_type) {
            self.emit(operation, to.high(), &[value.operand.high()]);
        }
    }

    pub(super) fn declaration(&mut self, declaration: &Declaration) -> Made<()> {
        let Declaration { variable, c_type, initial } = *declaration;
        let initial = self.code_as(initial, c_type)?;
        let to = self.declare(variable, c_type);
        self.put(Do::Move, to, Typed { operand: initial, c_type });
        Ok(())
    }

    pub(super) fn assign(&mut self, variable: Variable, code: Code) -> Made<()> {
        if let Some(place) = self.expected.iter().position(|(expected, _)| *expected == variable) {
            let (_, c_type) = self.expected.swap_remove(place);
            return self.constant_variable(variable, c_type, code);
        }
        let Typed { operand: to, c_type } = self.variable(variable)?;
        let operand = self.code_as(code, c_type)?;
        self.put(Do::MoveIf, to, Typed { operand, c_type });
        self.forget();
        Ok(())
    }

    fn case(&mut self, case: &Case) -> Made<()> {
        let Case { branches, otherwise } = case;
        let mut ends = vec![];
        for Branch { before, condition, then } in branches {
            for statement in before {
                self.statement(statement)?;
            }
            let condition = self.code_as(*condition, CType::Bool)?;
            // What the branch changes must not change the condition.
            let condition = if self.is_variable(condition) { self.copy(condition, CType::Bool) } else { condition };
            let end = self.push_scope(Do::Push, condition)?;
            for statement in then {
                self.statement(statement)?;
            }
            self.pop_scope(end);
            ends.push(self.push_scope(Do::PushNot, condition)?);
        }
        for statement in otherwise {
            self.statement(statement)?;
        }
        for end in ends.into_iter().rev() {
            self.pop_scope(end);
        }
        Ok(())
    }

    fn store(&mut self, field: Field, code: Code) -> Made<()> {
        let element = self.element_of(field)?;
        let value = self.code_as(code, element)?;
        let place = self.variable(Variable::Place)?.operand;
        // Bits that are not stored matter to nobody.
        let value = self.low_bits(value, element.bits());
        let operation = match element.bits() {
            8 => Do::Store8,
            16 => Do::Store16,
            32 => Do::Store32,
            64 => Do::Store64,
            _ => Do::StoreWide,
        };
        let field = self.field(field);
        self.emit(operation, Operand::NONE, &[field, place, value]);
        Ok(())
    }

    /// Type of the elements of an output.
    fn element_of(&self, field: Field) -> Made<CType> {
        self.field_type(field).element().ok_or(Unknown("an output of slots"))
    }
}

fn status_bit(status: Status) -> u64 {
    match status {
        Status::Overflow => status::OVERFLOW,
        Status::Division => status::DIVISION,
        Status::Cast => status::CAST,
    }
}
