//! What a group-by accumulates, each value once.

use std::collections::HashMap;
use std::sync::Arc;

use warpjoin_columns::identity::Identity;

use crate::bind::Binder;
use crate::program::{Code, Slot};
use crate::shapes::AccumulatorKind;

/// What an accumulator adds up: two of equal keys and kinds are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ValueKey {
    /// Rows.
    Rows,
    /// Rows whose argument is not null.
    ValuesOf(Arc<Identity>),
    /// A term of the argument, and of a second one.
    Term(Arc<Identity>),
}

/// Accumulators of a sink, each value once however many results use it.
#[derive(Default)]
pub(super) struct Slots {
    pub slots: Vec<Slot>,
    pub words: usize,
    /// Whether a thread sees a row a tile at most.
    is_bounded: bool,
    known: HashMap<(AccumulatorKind, ValueKey), usize>,
}

/// What a row adds.
pub(super) struct Addend {
    pub kind: AccumulatorKind,
    pub code: Code,
    /// A thread's part of a 128-bit sum fits 64 bits.
    pub narrow_partial: bool,
}

impl Slots {
    pub(super) fn new(is_bounded: bool) -> Self {
        Self { is_bounded, ..Self::default() }
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// The word of an accumulator, which is made if it is not there.
    pub(super) fn slot(&mut self, key: ValueKey, addend: &Addend, condition: Option<Code>) -> usize {
        let Addend { kind, code, narrow_partial } = *addend;
        let next = self.words;
        let word = *self.known.entry((kind, key)).or_insert(next);
        if word == next {
            self.words += kind.words();
            self.slots.push(Slot { kind, word, narrow_partial, is_bounded: self.is_bounded, condition, code });
        }
        word
    }

    /// The word that counts rows for which `valid` holds.
    pub(super) fn count(&mut self, b: &Binder, key: ValueKey, valid: Option<Code>) -> usize {
        let addend = Addend { kind: AccumulatorKind::Count, code: b.word(1), narrow_partial: false };
        self.slot(key, &addend, valid)
    }
}
