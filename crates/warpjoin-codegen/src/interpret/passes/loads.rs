//! Loads that lie near each other are on their way at the same time.
//!
//! Must run last: `Loads2` and `Loads4` stand for the instructions behind them.

use std::collections::HashSet;

use warpjoin_kernels::interpret::{Operation as Do, load_form};

use super::values::computes;
use crate::interpret::builder::{Builder, Made};
use crate::interpret::operand::{Next, Operand, Step};

/// Most loads that are made together.
const LOADS_MAX: usize = 4;
/// Instructions that a load may overtake: each keeps the values of loads that come before it longer.
const OVERTAKEN_MAX: usize = 12;

/// Puts loads of one scope together, up to four of them, if nothing between them matters to them.
pub(super) fn gather(builder: &mut Builder<'_>) -> Made<()> {
    let targets = builder.targets()?;
    let zero = builder.constant(0);
    let old = std::mem::take(&mut builder.steps);
    let mut is_moved = vec![false; old.len()];
    let mut steps: Vec<Step> = Vec::with_capacity(old.len());
    // Where each of the old instructions, and their end, is now.
    let mut places = Vec::with_capacity(old.len() + 1);
    for at in 0..old.len() {
        places.push(steps.len() as u32);
        if is_moved[at] {
            continue;
        }
        let group = group_from(&old, at, &is_moved, &targets);
        if group.len() < 2 {
            steps.push(old[at]);
            continue;
        }
        let operation = if group.len() == 2 { Do::Loads2 } else { Do::Loads4 };
        steps.push(Step::new(operation, Operand::NONE, &[]));
        group.iter().for_each(|&member| is_moved[member] = true);
        // Of three, one is made twice.
        let again = if group.len() == 3 { group.last() } else { None };
        for &member in group.iter().chain(again) {
            let mut load = old[member];
            if load.from[2] == Operand::NONE {
                load.from[2] = zero;
            }
            steps.push(load.with(Next::Number(form_of(load.operation).unwrap_or_default())));
        }
    }
    places.push(steps.len() as u32);
    builder.replace_all(steps, &places);
    Ok(())
}

/// The loads that can be made together with the one at a place, which is the first of them.
fn group_from(steps: &[Step], first: usize, is_moved: &[bool], targets: &HashSet<u32>) -> Vec<usize> {
    let mut group = vec![];
    // What stays between the loads that are moved.
    let mut between: Vec<&Step> = vec![];
    for (at, step) in steps.iter().enumerate().skip(first) {
        let is_first = at == first;
        if is_moved[at] {
            continue;
        }
        if group.len() == LOADS_MAX || between.len() > OVERTAKEN_MAX {
            break;
        }
        let comes_from_elsewhere = !is_first && targets.contains(&(at as u32));
        if comes_from_elsewhere || !may_be_overtaken(step.operation) {
            break;
        }
        let is_free = |other: &Step| is_independent(step, other);
        if form_of(step.operation).is_some()
            && between.iter().all(|other| is_free(other))
            && group.iter().all(|&member: &usize| is_free(&steps[member]))
        {
            group.push(at);
        } else if is_first {
            break;
        } else {
            between.push(step);
        }
    }
    group
}

/// Whether a load gives the same before another instruction as behind it.
fn is_independent(load: &Step, other: &Step) -> bool {
    let reads = |step: &Step, operand: Operand| {
        step.operands().skip(1).any(|read| read.lane().is_some() && read.lane() == operand.lane())
    };
    let same_result = load.to.lane().is_some() && load.to.lane() == other.to.lane();
    !reads(load, other.to) && !reads(other, load.to) && !same_result
}

/// The form of a load that the kernel can make together with others.
fn form_of(operation: Do) -> Option<u32> {
    let (width, is_int) = match operation {
        Do::Load8 | Do::LoadAdd8 => (0, 0),
        Do::Load16 | Do::LoadAdd16 => (1, 0),
        Do::Load32 | Do::LoadAdd32 => (2, 0),
        Do::LoadSigned32 | Do::LoadAddInt32 => (2, load_form::INT),
        // Loads of 64 bits are made alone.
        _ => return None,
    };
    let lacking = 32 - (8 << width);
    Some(width | is_int | lacking << load_form::LACKING)
}

/// Whether an instruction leaves what loads read, and the rows that take part. What is stored is never loaded by the same kernel.
fn may_be_overtaken(operation: Do) -> bool {
    let stores = matches!(operation, Do::Load64 | Do::Store8 | Do::Store16 | Do::Store32 | Do::Store64 | Do::StoreWide);
    computes(operation) || form_of(operation).is_some() || stores
}
