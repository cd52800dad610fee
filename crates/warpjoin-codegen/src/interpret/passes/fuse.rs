//! Pairs of instructions that are one.

use warpjoin_kernels::interpret::Operation as Do;

use super::values::Values;
use crate::interpret::builder::{Builder, Made};
use crate::interpret::operand::{Next, Operand, Step};

/// Makes one instruction of each such pair.
pub(super) fn fuse(builder: &mut Builder<'_>) -> Made<()> {
    loop {
        let (targets, values) = (builder.targets()?, Values::of(builder));
        let mut keep = vec![true; builder.steps.len()];
        let mut at = 1;
        while at < builder.steps.len() {
            let mut pair = [builder.steps[at - 1], builder.steps[at]];
            let is_next = !targets.contains(&(at as u32));
            // What is computed first is read by the second one alone.
            let passes_on = is_next
                && pair[1].from[..2].contains(&pair[0].to)
                && values.setter(builder, pair[0].to) == Some(at - 1)
                && values.is_read_once(pair[0].to);
            let ends_scope = builder.steps.get(at + 1).is_some_and(|step| step.operation == Do::Pop);
            if passes_on && ends_scope && pair[1].operation == Do::MoveIf {
                // The lanes of a scope that ends do not matter.
                let end = builder.label();
                builder.place_at(end, at as u32 + 1);
                pair[1] = Step { operation: Do::NarrowIf, next: Next::Label(end), ..pair[1] };
            }
            if let Some(fused) = fused(builder, pair, is_next, passes_on) {
                builder.steps[at - 1] = fused;
                keep[at] = false;
                at += 1;
            }
            at += 1;
        }
        if keep.iter().all(|&keeps| keeps) {
            return Ok(());
        }
        builder.retain(&keep);
    }
}

fn fused(builder: &Builder<'_>, [first, second]: [Step; 2], is_next: bool, passes_on: bool) -> Option<Step> {
    let [a, b, ..] = second.from;
    if is_next && first.operation == Do::MoveIf && second.operation == Do::Narrow && first.to == a {
        return Some(Step::new(Do::NarrowIf, first.to, &first.from[..1]).with(second.next));
    }
    if !passes_on {
        return None;
    }
    let shift = |step: &Step| builder.constant_of(step.from[1]).filter(|&bits| bits < 64).map(|bits| bits as u32);
    let number = |step: &Step| if let Next::Number(number) = step.next { number } else { 0 };
    // The operand beside the first one's result, where their order does not matter.
    let beside = if a == first.to { b } else { a };
    let [x, y, z, ..] = first.from;
    let made = |operation: Do, from: &[Operand], next: u32| {
        Some(Step::new(operation, second.to, from).with(Next::Number(next)))
    };
    match (first.operation, second.operation) {
        (_, Do::NarrowIf) => {
            let operation = match first.operation {
                Do::Equal => Do::NarrowEqual,
                Do::NotEqual => Do::NarrowNotEqual,
                Do::Less => Do::NarrowLess,
                Do::LessOrEqual => Do::NarrowLessOrEqual,
                _ => return None,
            };
            Some(Step::new(operation, second.to, &[x, y]).with(second.next))
        }
        (Do::ShiftRightUnsigned, Do::And) => made(Do::Extract, &[x, beside], shift(&first)?),
        (Do::And, Do::AddInt) => made(Do::ExtractInt, &[x, y, beside], 0),
        (Do::Extract, Do::AddInt) => made(Do::ExtractInt, &[x, y, beside], number(&first)),
        (Do::Load32, Do::AddInt) => made(Do::LoadAddInt32, &[x, y, beside], 0),
        (Do::ShiftLeft, Do::Or) => made(Do::OrShifted, &[beside, x], shift(&first)?),
        (Do::Subtract, Do::OrShifted) if b == first.to => made(Do::OrPacked, &[a, x, y], number(&second)),
        _ => None,
    }
    .filter(|_| z == Operand::NONE)
}
