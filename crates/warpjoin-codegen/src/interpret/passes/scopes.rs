//! Scopes that are not needed, and what ends or narrows them together with something else.

use warpjoin_kernels::interpret::Operation as Do;

use super::values::computes;
use crate::interpret::builder::{Builder, Made};
use crate::interpret::operand::{Next, Operand, Step};

/// Most instructions of a scope that all lanes may compute just as well.
const OPEN_MAX: usize = 4;

/// Takes short computations out of their scopes; scopes that have no lane end where those behind them with the same condition do.
pub(super) fn open_up(builder: &mut Builder<'_>) -> Made<()> {
    let mut keep = vec![true; builder.steps.len()];
    for at in 0..builder.steps.len() {
        let operation = builder.steps[at].operation;
        if !matches!(operation, Do::Push | Do::PushNot | Do::Narrow) {
            continue;
        }
        let inside = builder.steps[at + 1..].iter().take_while(|step| computes(step.operation)).count();
        let end = at + 1 + inside;
        let is_whole = inside <= OPEN_MAX && builder.steps.get(end).is_some_and(|step| step.operation == Do::Pop);
        if !is_whole {
            continue;
        }
        keep[end] = false;
        match operation {
            // The scope before ends here.
            Do::Narrow => builder.steps[at] = Step::new(Do::Pop, Operand::NONE, &[]),
            _ => keep[at] = false,
        }
    }
    builder.retain(&keep);
    go_on(builder)?;
    for at in (0..builder.steps.len()).rev() {
        let step = builder.steps[at];
        let (Do::Push | Do::Narrow, Next::Label(label)) = (step.operation, step.next) else { continue };
        let end = builder.steps[builder.placed(label)? as usize];
        if end.operation == Do::Narrow && end.from[0] == step.from[0] {
            builder.steps[at].next = end.next;
        }
    }
    Ok(())
}

/// Lets scopes go on where a key is looked up between them, if they have the same condition.
fn go_on(builder: &mut Builder<'_>) -> Made<()> {
    let targets = builder.targets()?;
    let mut keep = vec![true; builder.steps.len()];
    // Conditions of the scopes that are open.
    let mut open: Vec<Option<Operand>> = vec![];
    for (at, keeps) in keep.iter_mut().enumerate() {
        let step = builder.steps[at];
        match step.operation {
            Do::Push => open.push(Some(step.from[0])),
            Do::PushNot => open.push(None),
            Do::Narrow => open.last_mut().into_iter().for_each(|last| *last = Some(step.from[0])),
            Do::Pop => {
                let Some(Some(condition)) = open.pop() else { continue };
                let inside = builder.steps[at + 1..].iter().take_while(|step| computes(step.operation)).count();
                let [find, begin] = [at + 1 + inside, at + 2 + inside];
                let is_inside = |step: &Step, operation: Do| step.operation == operation && step.from[0] == condition;
                let finds = |step: &Step| is_find(step.operation) && step.from[0] == condition;
                let is_led_to = |at: usize| targets.contains(&(at as u32));
                if !builder.steps.get(find).is_some_and(finds)
                    || !builder.steps.get(begin).is_some_and(|step| is_inside(step, Do::Push))
                    || (at + 1..=begin).any(is_led_to)
                {
                    continue;
                }
                *keeps = false;
                let next = builder.steps[begin].next;
                builder.steps[begin].operation = Do::Narrow;
                for step in 0..at {
                    if let Next::Label(label) = builder.steps[step].next
                        && builder.placed(label)? == at as u32
                    {
                        builder.steps[step].next = next;
                    }
                }
                open.push(Some(condition));
            }
            _ => {}
        }
    }
    builder.retain(&keep);
    Ok(())
}

/// Whether it looks a key up for the lanes for which `a` holds.
fn is_find(operation: Do) -> bool {
    matches!(operation, Do::Find4 | Do::Find8 | Do::FindWord4 | Do::FindWord8 | Do::FindPair)
}

/// Has jumps end the scopes in front of them.
pub(super) fn join(builder: &mut Builder<'_>) -> Made<()> {
    let targets = builder.targets()?;
    let mut keep = vec![true; builder.steps.len()];
    for at in (1..builder.steps.len()).rev() {
        let (before, step) = (builder.steps[at - 1], builder.steps[at]);
        if before.operation == Do::Pop && step.operation == Do::Jump && !targets.contains(&(at as u32)) {
            let Operand::Plain(scopes) = step.from[0] else { continue };
            builder.steps[at - 1] = Step::new(Do::Jump, Operand::NONE, &[Operand::Plain(scopes + 1)]).with(step.next);
            keep[at] = false;
        }
    }
    builder.retain(&keep);
    Ok(())
}
