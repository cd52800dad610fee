//! Instructions that need not be: of constants, without effect, or of bits that nobody reads.

use warpjoin_kernels::interpret::Operation as Do;

use super::builder::Builder;
use super::operand::{Next, Operand, Step};

impl Builder<'_> {
    /// What has the value of an instruction of one word, if something simpler has.
    pub(super) fn simplified(&mut self, step: &Step) -> Option<Operand> {
        let [a, b, ..] = step.from;
        if let Some(value) = self.folded(step) {
            return Some(self.constant(value));
        }
        match step.operation {
            Do::Add | Do::Or | Do::Xor if self.is_constant(a, 0) => Some(b),
            Do::Add | Do::Or | Do::Xor | Do::Subtract if self.is_constant(b, 0) => Some(a),
            Do::ShiftLeft | Do::ShiftRight | Do::ShiftRightUnsigned if self.is_constant(b, 0) => Some(a),
            Do::Multiply if self.is_constant(a, 1) => Some(b),
            Do::Multiply if self.is_constant(b, 1) => Some(a),
            Do::SignExtend | Do::ZeroExtend => self.extension(step),
            Do::AddInt | Do::SubtractInt | Do::MultiplyInt => {
                let from = [a, b].map(|operand| self.low_bits(operand, 32));
                (from != [a, b]).then(|| self.value(Step::new(step.operation, Operand::NONE, &from), 1))
            }
            _ => None,
        }
    }

    /// An operand with the same low bits that takes fewer instructions.
    pub(super) fn low_bits(&self, operand: Operand, bits: u32) -> Operand {
        match self.known_step(operand) {
            Some(Step { operation: Do::SignExtend | Do::ZeroExtend, from, next: Next::Number(kept), .. })
                if kept >= bits =>
            {
                self.low_bits(from[0], bits)
            }
            _ => operand,
        }
    }

    fn extension(&mut self, step: &Step) -> Option<Operand> {
        let (operand, Next::Number(bits)) = (step.from[0], step.next) else { return None };
        let is_signed = step.operation == Do::SignExtend;
        let inner = self.low_bits(operand, bits);
        if let (true, Some(sum)) = (is_signed && bits == 32, self.known_step(inner).and_then(of_ints)) {
            return Some(self.value(sum, 1));
        }
        if inner != operand {
            return Some(self.value(Step { from: [inner, Operand::NONE, Operand::NONE, Operand::NONE], ..*step }, 1));
        }
        let known = self.known_step(operand)?;
        let fits = match (range_of(&known)?, is_signed) {
            (Range::Unsigned(known), false) => known <= bits,
            (Range::Unsigned(known), true) => known < bits,
            (Range::Signed(known), true) => known <= bits,
            (Range::Signed(_), false) => false,
        };
        fits.then_some(operand)
    }

    fn is_constant(&self, operand: Operand, value: u64) -> bool {
        self.constant_of(operand) == Some(value)
    }

    /// The value of a constant.
    pub(super) fn constant_of(&self, operand: Operand) -> Option<u64> {
        let Operand::Constant(place) = operand else { return None };
        Some(self.constants[place as usize])
    }

    /// The value of an instruction of constants.
    pub(super) fn folded(&self, step: &Step) -> Option<u64> {
        let a = self.constant_of(step.from[0])?;
        if let (Do::SignExtend | Do::ZeroExtend, Next::Number(bits)) = (step.operation, step.next) {
            let unused = 64 - bits;
            let shifted = a << unused;
            return Some(if step.operation == Do::ZeroExtend {
                shifted >> unused
            } else {
                ((shifted as i64) >> unused) as u64
            });
        }
        let b = self.constant_of(step.from[1])?;
        let int = |value: i32| i64::from(value) as u64;
        Some(match step.operation {
            Do::Add => a.wrapping_add(b),
            Do::Subtract => a.wrapping_sub(b),
            Do::Multiply => a.wrapping_mul(b),
            Do::AddInt => int((a as i32).wrapping_add(b as i32)),
            Do::SubtractInt => int((a as i32).wrapping_sub(b as i32)),
            Do::MultiplyInt => int((a as i32).wrapping_mul(b as i32)),
            Do::And => a & b,
            Do::Or => a | b,
            Do::Xor => a ^ b,
            Do::ShiftLeft => a << (b & 63),
            Do::ShiftRight => ((a as i64) >> (b & 63)) as u64,
            Do::ShiftRightUnsigned => a >> (b & 63),
            _ => return None,
        })
    }
}

/// The same arithmetic, of which only the low 32 bits are kept: with their sign.
fn of_ints(step: Step) -> Option<Step> {
    let operation = match step.operation {
        Do::Add => Do::AddInt,
        Do::Subtract => Do::SubtractInt,
        Do::Multiply => Do::MultiplyInt,
        _ => return None,
    };
    Some(Step::new(operation, Operand::NONE, &step.from[..2]))
}

/// Bits that a value needs.
enum Range {
    /// Besides zeros.
    Unsigned(u32),
    /// Besides its sign.
    Signed(u32),
}

fn range_of(step: &Step) -> Option<Range> {
    let number = || if let Next::Number(number) = step.next { number } else { 64 };
    Some(match step.operation {
        Do::Load8 => Range::Unsigned(8),
        Do::Load16 => Range::Unsigned(16),
        Do::Load32 => Range::Unsigned(32),
        Do::LoadSigned8 => Range::Signed(8),
        Do::LoadSigned16 => Range::Signed(16),
        Do::LoadSigned32 | Do::LoadAddInt32 | Do::ExtractInt | Do::AddInt | Do::SubtractInt | Do::MultiplyInt => {
            Range::Signed(32)
        }
        Do::ZeroExtend => Range::Unsigned(number()),
        Do::SignExtend => Range::Signed(number()),
        Do::Truth | Do::Not | Do::Equal | Do::NotEqual | Do::Less | Do::LessOrEqual => Range::Unsigned(1),
        _ => return None,
    })
}
