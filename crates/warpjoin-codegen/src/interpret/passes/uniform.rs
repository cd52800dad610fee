//! What is the same for all lanes is computed once a block, in front of all loops.

use std::collections::HashMap;

use warpjoin_kernels::interpret::Operation as Do;

use super::values::{Values, computes};
use crate::interpret::builder::{Builder, Made};
use crate::interpret::operand::{ListEntry, Next, Operand, Step};

/// Moves computations of parameters and constants out of loops, and gathers those that are added to one value.
pub(super) fn hoist(builder: &mut Builder<'_>) -> Made<()> {
    let loops = builder.loops_placed()?;
    let is_in_loop = |at: usize| loops.iter().any(|&(begin, end)| (begin..end).contains(&(at as u32)));
    let mut pass =
        Hoist { values: Values::of(builder), first: vec![], known: HashMap::new(), stands_for: HashMap::new() };
    let mut keep = vec![true; builder.steps.len()];
    for (at, keeps) in keep.iter_mut().enumerate() {
        let step = pass.renamed_step(builder.steps[at]);
        builder.steps[at] = step;
        if !computes(step.operation) || pass.values.setter(builder, step.to) != Some(at) {
            continue;
        }
        let Some(value) = step.to.lane() else { continue };
        let is_uniform = step.from.iter().all(|&operand| operand.is_uniform() || operand == Operand::NONE);
        let other = if is_uniform && (is_in_loop(at) || step.operation == Do::Move) {
            Some(pass.uniform(builder, step))
        } else {
            pass.gathered(builder, step)
        };
        if let Some(other) = other {
            pass.stands_for.insert(value, other);
            *keeps = false;
        }
    }
    let Hoist { first, stands_for, .. } = pass;
    for entry in builder.list.iter_mut().chain(&mut builder.match_list) {
        if let ListEntry::Operand(operand) = entry {
            *operand = renamed(&stands_for, *operand);
        }
    }
    builder.retain(&keep);
    builder.put_first(first);
    Ok(())
}

fn renamed(stands_for: &HashMap<u32, Operand>, operand: Operand) -> Operand {
    operand.lane().and_then(|value| stands_for.get(&value)).copied().unwrap_or(operand)
}

struct Hoist {
    values: Values,
    /// Instructions in front of all others.
    first: Vec<Step>,
    /// What they compute.
    known: HashMap<Step, Operand>,
    /// Operands in place of values.
    stands_for: HashMap<u32, Operand>,
}

impl Hoist {
    fn renamed_step(&self, mut step: Step) -> Step {
        for operand in &mut step.from {
            *operand = renamed(&self.stands_for, *operand);
        }
        if let Next::Operand(operand) = &mut step.next {
            *operand = renamed(&self.stands_for, *operand);
        }
        step
    }

    /// The result of an instruction whose operands are the same for all lanes.
    fn uniform(&mut self, builder: &mut Builder<'_>, step: Step) -> Operand {
        if step.operation == Do::Move {
            return step.from[0];
        }
        if let Some(value) = builder.folded(&step) {
            return builder.constant(value);
        }
        let step = Step { to: Operand::NONE, ..step };
        if let Some(&known) = self.known.get(&step) {
            return known;
        }
        let (computed, kept) = (builder.lanes(1), builder.uniform());
        self.first.extend([Step { to: computed, ..step }, Step::new(Do::KeepUniform, kept, &[computed])]);
        self.known.insert(step, kept);
        kept
    }

    /// Where an instruction adds what is the same for all lanes to a sum of such, the sum has it from the beginning.
    fn gathered(&mut self, builder: &mut Builder<'_>, step: Step) -> Option<Operand> {
        let [a, b, ..] = step.from;
        let (value, added) = match step.operation {
            Do::Add if a.is_uniform() => (b, a),
            Do::Add | Do::Subtract if b.is_uniform() => (a, b),
            _ => return None,
        };
        let at = self.values.setter(builder, value).filter(|_| self.values.is_read_once(value))?;
        let sum = builder.steps[at];
        let [left, right, ..] = sum.from;
        // Which operand of the sum is the same for all lanes, and whether it is subtracted.
        let (place, is_less) = match sum.operation {
            Do::LoadAdd8 | Do::LoadAdd16 | Do::LoadAdd32 => (2, false),
            Do::Add if left.is_uniform() => (0, false),
            Do::Add if right.is_uniform() => (1, false),
            Do::Subtract if right.is_uniform() => (1, true),
            _ => return None,
        };
        let operation = if is_less == (step.operation == Do::Subtract) { Do::Add } else { Do::Subtract };
        if !sum.from[place].is_uniform() {
            return None;
        }
        let all = self.uniform(builder, Step::new(operation, Operand::NONE, &[sum.from[place], added]));
        builder.steps[at].from[place] = all;
        if let (Some(value), Some(result)) = (value.lane(), step.to.lane()) {
            self.values.reads[value as usize] = self.values.reads[result as usize];
        }
        Some(value)
    }
}
