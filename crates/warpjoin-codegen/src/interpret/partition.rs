//! Kernels that count or move rows by partition as instructions.

use warpjoin_kernels::interpret::Operation as Do;

use super::body::Open;
use super::builder::{Builder, Made, Unknown};
use super::operand::{Next, Operand, ProgramKind, Step};
use crate::program::{PartitionItem, Variable};
use crate::value::CType;

impl Builder<'_> {
    pub(super) fn partition(&mut self, item: &PartitionItem, open: &mut Vec<Open>) -> Made<()> {
        match item {
            PartitionItem::OpenCount { rows, bits } => {
                self.kind = ProgramKind::Count;
                let [rows, bits] = [rows, bits].map(|&field| self.field(field));
                self.emit(Do::OpenCount, Operand::NONE, &[bits]);
                let begin = self.open_loop();
                let end = self.label();
                self.push(Step::new(Do::CountTile, Operand::NONE, &[rows]).with(Next::Label(end)));
                open.push(Open::Loop { begin, end });
            }
            PartitionItem::CloseCount { counts } => {
                self.emit(Do::CountPlaces, Operand::NONE, &[]);
                let Some(Open::Loop { begin, end }) = open.pop() else {
                    return Err(Unknown("a count that is not open"));
                };
                self.close_loop(begin, end);
                let counts = self.field(*counts);
                self.emit(Do::CloseCount, Operand::NONE, &[counts]);
            }
            PartitionItem::OpenTile { rows, bits } => {
                self.kind = ProgramKind::Scatter;
                let [rows, bits] = [rows, bits].map(|&field| self.field(field));
                let end = self.label();
                self.push(Step::new(Do::OpenTile, Operand::NONE, &[rows, bits]).with(Next::Label(end)));
                self.end = Some(end);
            }
            PartitionItem::OpenRows { of_placed } => {
                self.emit(Do::OpenTileItems, Operand::NONE, &[]);
                let begin = self.open_loop();
                let end = self.label();
                let row = self.declare(Variable::Row, CType::U64);
                let alive = self.declare(Variable::Alive, CType::Bool);
                let of_placed = Operand::Plain((*of_placed).into());
                let step = Step::new(Do::TileItem, row, &[Operand::NONE, of_placed, Operand::NONE, alive]);
                self.push(step.with(Next::Label(end)));
                open.push(Open::Loop { begin, end });
            }
            PartitionItem::Unplace => self.emit(Do::Unplace, Operand::NONE, &[]),
            PartitionItem::Place { cursors } => {
                let cursors = self.field(*cursors);
                self.emit(Do::PlaceTile, Operand::NONE, &[cursors]);
            }
            PartitionItem::MoveWord { output, bytes } => {
                let output = self.field(*output);
                let operation = if *bytes == 4 { Do::MoveWord4 } else { Do::MoveWord8 };
                self.emit(operation, Operand::NONE, &[output]);
            }
        }
        Ok(())
    }
}
