//! Results that the next instruction reads stay out of shared memory, where registers are.
//!
//! Must run before registers are allocated: what only the next instruction reads takes none.

use super::values::{Values, gives_word, takes_words};
use crate::interpret::builder::{Builder, Made};
use crate::interpret::operand::Operand;

/// Has instructions read the result of the one before them directly.
pub(super) fn chain(builder: &mut Builder<'_>) -> Made<()> {
    let targets = builder.targets()?;
    let mut values = Values::of(builder);
    for at in 1..builder.steps.len() {
        let (result, operation) = (builder.steps[at - 1].to, builder.steps[at].operation);
        let Operand::Lane(value, 0) = result else { continue };
        let value = value as usize;
        let is_next = !targets.contains(&(at as u32)) && gives_word(builder.steps[at - 1].operation);
        if builder.widths[value] != 1 || !is_next || !takes_words(operation) {
            continue;
        }
        for operand in builder.steps[at].from.iter_mut().filter(|operand| **operand == result) {
            *operand = Operand::Last;
            values.reads[value] -= 1;
        }
        if values.reads[value] == 0 && values.sets[value] == 1 {
            builder.steps[at - 1].to = Operand::Last;
        }
    }
    Ok(())
}
