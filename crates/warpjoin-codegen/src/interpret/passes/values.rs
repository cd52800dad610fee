//! Which instructions set and read each value, and which of them can go.

use warpjoin_kernels::interpret::Operation as Do;

use crate::interpret::builder::Builder;
use crate::interpret::operand::{ListEntry, Operand, Step};

/// How often each value is set and read, and the instruction that set it last.
pub(super) struct Values {
    pub sets: Vec<u32>,
    pub reads: Vec<u32>,
    setters: Vec<usize>,
}

impl Values {
    pub(super) fn of(builder: &Builder<'_>) -> Self {
        let count = builder.widths.len();
        let mut values = Self { sets: vec![0; count], reads: vec![0; count], setters: vec![0; count] };
        for (at, step) in builder.steps.iter().enumerate() {
            if let Some(value) = step.to.lane() {
                values.sets[value as usize] += 1;
                values.setters[value as usize] = at;
            }
            step.operands().skip(1).for_each(|operand| values.read(operand));
        }
        builder.arrays.iter().for_each(|&(array, _)| values.read(array));
        for entry in builder.list.iter().chain(&builder.match_list) {
            if let ListEntry::Operand(operand) = entry {
                values.read(*operand);
            }
        }
        values
    }

    fn read(&mut self, operand: Operand) {
        if let Some(value) = operand.lane() {
            self.reads[value as usize] += 1;
        }
    }

    pub(super) fn is_read_once(&self, operand: Operand) -> bool {
        operand.lane().is_some_and(|value| self.reads[value as usize] == 1)
    }

    /// The instruction that sets a value of one word, if it is the only one and does nothing else.
    pub(super) fn setter(&self, builder: &Builder<'_>, operand: Operand) -> Option<usize> {
        let Operand::Lane(value, 0) = operand else { return None };
        let (value, at) = (value as usize, self.setters[value as usize]);
        (builder.widths[value] == 1 && self.sets[value] == 1 && gives_word(builder.steps[at].operation)).then_some(at)
    }
}

/// Drops instructions that compute or load what nobody reads.
pub(super) fn drop_unread(builder: &mut Builder<'_>) {
    loop {
        let values = Values::of(builder);
        let is_unread = |step: &Step| {
            let read = |value: u32| values.reads[value as usize] > 0;
            gives_word(step.operation) && values.setter(builder, step.to).is_some() && !step.to.lane().is_some_and(read)
        };
        let keep: Vec<bool> = builder.steps.iter().map(|step| !is_unread(step)).collect();
        if keep.iter().all(|&keeps| keeps) {
            return;
        }
        builder.retain(&keep);
    }
}

/// Whether an instruction reads each of `a` to `d` as one word before it sets one word, of all lanes, and does nothing else.
pub(super) fn gives_word(operation: Do) -> bool {
    computes(operation) || loads(operation)
}

/// The same without reading memory: it may run for lanes that take no part.
pub(super) fn computes(operation: Do) -> bool {
    matches!(
        operation,
        Do::Move
            | Do::Select
            | Do::Truth
            | Do::SignExtend
            | Do::ZeroExtend
            | Do::Add
            | Do::AddInt
            | Do::Subtract
            | Do::SubtractInt
            | Do::Multiply
            | Do::MultiplyInt
            | Do::Divide
            | Do::DivideUnsigned
            | Do::Remainder
            | Do::RemainderUnsigned
            | Do::DivideOrZero
            | Do::ModuloOrZero
            | Do::FloorDivide
            | Do::FloorRemainder
            | Do::And
            | Do::Or
            | Do::OrShifted
            | Do::OrPacked
            | Do::Extract
            | Do::ExtractInt
            | Do::Xor
            | Do::Not
            | Do::Complement
            | Do::ShiftLeft
            | Do::ShiftRight
            | Do::ShiftRightUnsigned
            | Do::Equal
            | Do::NotEqual
            | Do::Less
            | Do::LessOrEqual
            | Do::LessUnsigned
            | Do::LessOrEqualUnsigned
            | Do::AddDouble
            | Do::SubtractDouble
            | Do::MultiplyDouble
            | Do::DivideDouble
            | Do::NegateDouble
            | Do::EqualDouble
            | Do::NotEqualDouble
            | Do::LessDouble
            | Do::LessOrEqualDouble
            | Do::DoubleOfInt
            | Do::DoubleOfUnsigned
            | Do::DoubleOfSingle
            | Do::SingleOfInt
            | Do::SingleOfUnsigned
            | Do::SingleOfDouble
            | Do::IntOfDouble
            | Do::UnsignedOfDouble
            | Do::OrderCodeSingle
            | Do::OrderCodeDouble
            | Do::OrderValueDouble
            | Do::ComparisonCode
            | Do::FloatKey
            | Do::DateYear
            | Do::DateIsoYear
            | Do::DateQuarter
            | Do::DateMonth
            | Do::DateDay
            | Do::DateAddMonths
            | Do::HashKey
            | Do::HashCombine
            | Do::Address
    )
}

fn loads(operation: Do) -> bool {
    matches!(
        operation,
        Do::LoadAdd8
            | Do::LoadAdd16
            | Do::LoadAdd32
            | Do::LoadAddInt32
            | Do::Load8
            | Do::LoadSigned8
            | Do::Load16
            | Do::LoadSigned16
            | Do::Load32
            | Do::LoadSigned32
            | Do::Load64
            | Do::BitAt
            | Do::IsInBitmap
            | Do::MayBeInBloom
    )
}
