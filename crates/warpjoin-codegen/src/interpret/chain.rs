//! Results that the next instruction reads stay out of shared memory, where registers are.
//!
//! Must run before registers are allocated: what only the next instruction reads takes none.

use std::collections::HashSet;

use warpjoin_kernels::interpret::Operation;

use super::builder::{Builder, Made};
use super::operand::{ListEntry, Next, Operand};

/// Has instructions read the result of the one before them directly.
pub(super) fn chain(builder: &mut Builder<'_>) -> Made<()> {
    let targets = targets(builder)?;
    let mut uses = uses(builder);
    for at in 1..builder.steps.len() {
        let (result, operation) = (builder.steps[at - 1].to, builder.steps[at].operation);
        let Operand::Lane(value, 0) = result else { continue };
        let is_word = builder.widths[value as usize] == 1;
        let is_next = !targets.contains(&(at as u32)) && gives_word(builder.steps[at - 1].operation);
        if !is_word || !is_next || !takes_words(operation) {
            continue;
        }
        for operand in builder.steps[at].from.iter_mut().filter(|operand| **operand == result) {
            *operand = Operand::Last;
            uses[value as usize] -= 1;
        }
        if uses[value as usize] == 1 {
            builder.steps[at - 1].to = Operand::Last;
        }
    }
    Ok(())
}

/// Instructions that others lead to.
fn targets(builder: &Builder<'_>) -> Made<HashSet<u32>> {
    let mut targets = HashSet::new();
    for step in &builder.steps {
        match step.next {
            Next::Label(label) => {
                targets.insert(builder.placed(label)?);
            }
            // Constants, too: a result more is stored.
            Next::Number(number) => {
                targets.insert(number);
            }
            Next::Operand(_) => {}
        }
    }
    Ok(targets)
}

/// How often each value is read or written.
fn uses(builder: &Builder<'_>) -> Vec<usize> {
    let mut uses = vec![0; builder.widths.len()];
    let listed = builder.list.iter().chain(&builder.match_list).filter_map(|entry| match entry {
        ListEntry::Operand(operand) => Some(*operand),
        ListEntry::Number(_) => None,
    });
    let of_steps = builder.steps.iter().flat_map(|step| step.operands());
    let arrays = builder.arrays.iter().map(|(array, _)| *array);
    for value in of_steps.chain(listed).chain(arrays).filter_map(Operand::lane) {
        uses[value as usize] += 1;
    }
    uses
}

/// Whether an instruction sets one word, of all lanes.
fn gives_word(operation: Operation) -> bool {
    use Operation::{
        AddDoubleIf, AddIf, Enqueue, MaxIf, MoveIf, Narrow, OrIf, Push, PushNot, Store8, Store16, Store32, Store64,
        XorIf,
    };
    let sets_none = matches!(
        operation,
        MoveIf
            | Store8
            | Store16
            | Store32
            | Store64
            | AddIf
            | AddDoubleIf
            | MaxIf
            | OrIf
            | XorIf
            | Push
            | PushNot
            | Narrow
            | Enqueue
    );
    takes_words(operation) && !sets_none
}

/// Whether an instruction reads each of `a` to `d` as one word before it sets anything.
fn takes_words(operation: Operation) -> bool {
    use Operation as Do;
    matches!(
        operation,
        Do::Push
            | Do::PushNot
            | Do::Narrow
            | Do::Enqueue
            | Do::Move
            | Do::MoveIf
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
            | Do::LoadAdd8
            | Do::LoadAdd16
            | Do::LoadAdd32
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
            | Do::Store8
            | Do::Store16
            | Do::Store32
            | Do::Store64
            | Do::AddIf
            | Do::AddDoubleIf
            | Do::MaxIf
            | Do::OrIf
            | Do::XorIf
    )
}
