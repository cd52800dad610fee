//! Decisions of the host while a query runs, on which later kernels depend.
//!
//! A decision is made in one of three ways: at planning ([`Optimized::notes`]); by a kernel, without the host; or by
//! the host after a pipeline, from data that it reads from the devices. This module has what was chosen in the last way, with
//! the text that EXPLAIN ANALYZE shows.
//!
//! [`Optimized::notes`]: warpjoin_plan::optimize::Optimized

use std::fmt;

use warpjoin_codegen::{FilterTest, MatchForm, Slots};
use warpjoin_plan::plan::physical::DecisionKind;

use super::relation::PartitionChoice;

/// A decision and its outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RuntimeDecision {
    /// Whether build rows go to the owner of their key, or to every device.
    Exchange(bool),
    /// Whether a table indexed by the key could be used; `false`: a key occurs twice.
    Direct(bool),
    /// The slots of a join's table; `unique`: no key occurs twice.
    Table { unique: bool, slots: Slots },
    /// How the rows of a group-by are partitioned; `None`: they are not.
    Groups(Option<PartitionChoice>),
    /// How matches of a partitioned join are found; `None`: the join needs a table.
    Matches(Option<MatchForm>),
    /// How a runtime filter tests keys.
    Filter(FilterTest),
    /// The number of rows, which get row ids.
    Rows(u64),
}

impl RuntimeDecision {
    pub(crate) fn kind(self) -> DecisionKind {
        match self {
            Self::Exchange(_) => DecisionKind::BuildSide,
            Self::Direct(_) | Self::Table { .. } => DecisionKind::Table,
            Self::Groups(_) => DecisionKind::GroupBy,
            Self::Matches(_) => DecisionKind::Join,
            Self::Filter(_) => DecisionKind::RuntimeFilter,
            Self::Rows(_) => DecisionKind::RowNumbers,
        }
    }
}

/// The kind and the choice.
impl fmt::Display for RuntimeDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind().name())?;
        match self {
            Self::Exchange(true) => f.write_str("exchanged by key"),
            Self::Exchange(false) => f.write_str("copied to every device"),
            Self::Direct(true) => f.write_str("indexed by the key"),
            Self::Direct(false) => f.write_str("a key occurs twice, so that it can't be indexed by it"),
            Self::Table { unique: true, slots } => write!(f, "of unique keys, {}", slots_in_words(slots)),
            Self::Table { unique: false, .. } => f.write_str("lists of the rows of each key"),
            Self::Groups(None) => f.write_str("in one table"),
            Self::Groups(Some(choice)) => write!(f, "by partition, {}", choice.bits.describe()),
            Self::Matches(None) => f.write_str("by one table"),
            Self::Matches(Some(MatchForm::Chains)) => f.write_str("by partition, chains of build rows"),
            Self::Matches(Some(MatchForm::Semi)) => f.write_str("by partition, rows that match"),
            Self::Matches(Some(MatchForm::Lists)) => f.write_str("by partition, lists of the rows of each key"),
            Self::Filter(test) => write!(f, "by {}", test.describe()),
            Self::Rows(rows) => write!(f, "of {rows} rows"),
        }
    }
}

fn slots_in_words(slots: &Slots) -> &'static str {
    match slots {
        Slots::Direct(_) => "indexed by the key",
        Slots::Bits => "a bit for each",
        Slots::Words(_) => "in slots of one word",
        Slots::Pairs { .. } => "in slots of two words",
    }
}
