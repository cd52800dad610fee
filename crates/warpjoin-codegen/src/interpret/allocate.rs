//! Registers for the values of a program.
//!
//! A value lives from the first instruction that has it to the last; one that lives before a loop and is read in it, to the
//! loop's end. Values that never live together share a register.

use warpjoin_kernels::interpret::Operation;

use super::builder::{Builder, Made, Unknown};
use super::operand::{ListEntry, Operand};

const TOO_MANY: Unknown = Unknown("too many registers");

/// Where each value is, and how many registers there are.
#[derive(Debug)]
pub(super) struct Registers {
    pub first: Vec<u16>,
    pub count: u16,
}

/// Instructions of a value's life.
#[derive(Debug, Clone, Copy)]
struct Life {
    value: u32,
    first: u32,
    last: u32,
}

/// Whether an instruction reads its operands before it writes its result.
fn reads_first(operation: Operation) -> bool {
    let (first, last) = (Operation::Divide as u16, Operation::StoreWide as u16);
    (first..=last).contains(&(operation as u16))
}

/// Gives each value of a program its registers.
pub(super) fn allocate(builder: &Builder<'_>) -> Made<Registers> {
    let lives = lives(builder)?;
    let mut first = vec![0; builder.widths.len()];
    // Of each register, the instruction behind which it is free.
    let mut busy: Vec<u32> = vec![];
    for Life { value, first: begin, last } in lives {
        let shares = reads_first(builder.steps[begin as usize].operation);
        let is_free = |until: u32| until < begin || (shares && until == begin);
        let width = usize::from(builder.widths[value as usize]);
        let run = |at: &usize| (*at..at + width).all(|at| busy.get(at).is_none_or(|&until| is_free(until)));
        let at = (0..=busy.len()).find(run).ok_or(TOO_MANY)?;
        if busy.len() < at + width {
            busy.resize(at + width, 0);
        }
        // What is never read is not to be overwritten by what the same instruction writes.
        busy[at..at + width].fill(last.max(begin + 1));
        first[value as usize] = u16::try_from(at).map_err(|_| TOO_MANY)?;
    }
    let count = u16::try_from(busy.len()).map_err(|_| TOO_MANY)?;
    Ok(Registers { first, count })
}

/// The life of each value, in the order of their beginnings.
fn lives(builder: &Builder<'_>) -> Made<Vec<Life>> {
    let loops = builder.loops_placed()?;
    let mut lives: Vec<Option<Life>> = vec![None; builder.widths.len()];
    let mut see = |operand: Operand, at: u32| {
        let Some(value) = operand.lane() else { return };
        let life = lives[value as usize].get_or_insert(Life { value, first: at, last: at });
        life.last = life.last.max(end_of_loops(&loops, life.first, at));
    };
    for &(array, label) in &builder.arrays {
        see(array, builder.placed(label)?);
    }
    for (at, step) in builder.steps.iter().enumerate() {
        step.operands().for_each(|operand| see(operand, at as u32));
        if step.operation == Operation::Accumulate {
            for entry in &builder.list {
                if let ListEntry::Operand(operand) = entry {
                    see(*operand, at as u32);
                }
            }
        }
    }
    let mut lives: Vec<Life> = lives.into_iter().flatten().collect();
    lives.sort_by_key(|life| life.first);
    Ok(lives)
}

/// The end of the outermost loop that has an instruction but not the first one of the value.
fn end_of_loops(loops: &[(u32, u32)], first: u32, at: u32) -> u32 {
    let around = |&&(begin, end): &&(u32, u32)| (begin..end).contains(&at) && !(begin..end).contains(&first);
    loops.iter().filter(around).map(|&(_, end)| end).fold(at, u32::max)
}
