//! Statements of a section, which the lanes execute whose rows are alive.

use super::code::Code;
use super::group::Accumulate;
use super::params::Field;
use super::variable::Variable;
use crate::value::CType;

/// What ends a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Overflow,
    Division,
    Cast,
}

/// One statement.
#[derive(Debug)]
pub(crate) enum Statement {
    /// A variable that keeps this value.
    Constant(Variable, CType, Code),
    /// A variable that is set later.
    Declare(Declaration),
    Assign(Variable, Code),
    /// Raises a status bit where the condition holds.
    Raise {
        condition: Code,
        status: Status,
        control: Field,
    },
    Case(Case),
    /// Writes an element of an output at the row's place.
    Store {
        field: Field,
        code: Code,
        is_once: bool,
    },
    /// Writes a value into the slot of a key, and counts it.
    FillSlot {
        table: Field,
        key: Code,
        value: Code,
        control: Field,
    },
    /// Ends a loop over matches that lanes of a warp have shared: `found` if any of them has, and only the first one goes on.
    EndSearch {
        found: Variable,
        alive: Variable,
    },
    /// Sets the bit of a key word, and counts it.
    SetBit {
        table: Field,
        key: Code,
    },
    /// Adds to a counter of the control block.
    Count {
        control: Field,
        counter: Counter,
        number: i64,
    },
    /// Writes the element of the thread's row in an array of the thread.
    Keep {
        array: Variable,
        code: Code,
    },
    /// The partition of a row of the tile, by its hash.
    PlaceInPartition {
        hash: Code,
        bits: Field,
        skipped_bits: Field,
    },
    Accumulate(Accumulate),
}

/// What a control block counts besides rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    Probes,
    Pruned,
}

/// A variable with its first value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declaration {
    pub variable: Variable,
    pub c_type: CType,
    pub initial: Code,
}

/// Branches that only some rows run: the first one whose condition holds.
#[derive(Debug)]
pub(crate) struct Case {
    pub branches: Vec<Branch>,
    pub otherwise: Vec<Statement>,
}

/// A branch of a CASE.
#[derive(Debug)]
pub(crate) struct Branch {
    /// What the condition needs.
    pub before: Vec<Statement>,
    pub condition: Code,
    pub then: Vec<Statement>,
}
