//! What is decided of a pipeline when the plan is made, and what is left to the host.

use std::fmt;

use super::{Sink, Step};
use crate::plan::JoinPlan;

/// How a join finds its matches, as far as that is known when the plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinMethod {
    /// By a table of the build side.
    HashTable,
    /// By a table that is indexed by the key.
    DirectTable,
    /// By partitions of both sides.
    Partitioned,
    /// By one of these: the host decides once it knows how many rows both sides have.
    BySize,
}

/// What a plan of pipelines depends on besides the optimized plan.
pub struct Choices<'c> {
    /// Number of devices.
    pub devices: usize,
    /// How a join finds its matches, given the rows of its result that are needed, if not all.
    pub join_method: &'c dyn Fn(&JoinPlan, Option<u64>) -> JoinMethod,
}

impl Choices<'_> {
    /// One device, and nothing is chosen ahead.
    pub const OPEN: Self = Self { devices: 1, join_method: &|_, _| JoinMethod::BySize };
}

/// A decision that the host takes while the plan runs, from data that it reads from the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecisionKind {
    /// Whether build rows go to the owner of their key.
    BuildSide,
    /// Whether a join is partitioned.
    Join,
    /// The slots of a join's table.
    Table,
    /// Whether a group-by is partitioned.
    GroupBy,
    /// How a runtime filter tests keys.
    RuntimeFilter,
    /// The type of row numbers.
    RowNumbers,
}

impl DecisionKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuildSide => "build side",
            Self::Join => "join",
            Self::Table => "join table",
            Self::GroupBy => "group-by",
            Self::RuntimeFilter => "runtime filter",
            Self::RowNumbers => "row numbers",
        }
    }

    /// Whether the host takes it on this number of devices.
    pub fn is_open(self, devices: usize) -> bool {
        // The only device has the build side anyway.
        self != Self::BuildSide || devices > 1
    }

    fn alternatives(self) -> &'static str {
        match self {
            Self::BuildSide => "exchanged by key, or copied to every device",
            Self::Join => "by one table, or by partition",
            Self::Table => "of unique keys, or lists of the rows of each key",
            Self::GroupBy => "in one table, or by partition",
            Self::RuntimeFilter => "by table, bounds, bitmap or Bloom filter",
            Self::RowNumbers => "narrowest type that holds the row count",
        }
    }
}

/// The name and the alternatives.
impl fmt::Display for DecisionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.alternatives())
    }
}

impl Step {
    /// The decision that the host takes for it, if any.
    pub(super) fn decision(&self) -> Option<DecisionKind> {
        match self {
            Self::Number { .. } => Some(DecisionKind::RowNumbers),
            Self::Reduce { .. } => Some(DecisionKind::RuntimeFilter),
            _ => None,
        }
    }
}

impl Sink {
    /// Decisions that the host takes for it on some devices.
    pub(super) fn decisions(&self, devices: usize) -> Vec<DecisionKind> {
        use DecisionKind::{BuildSide, GroupBy, Join, Table};
        let all: &[DecisionKind] = match self {
            Self::Build(JoinMethod::HashTable | JoinMethod::DirectTable) => &[BuildSide, Table],
            Self::Build(JoinMethod::Partitioned | JoinMethod::BySize) => &[Join, BuildSide, Table],
            Self::ShareBuild { .. } => &[Table],
            Self::Aggregate { group_by, .. } if !group_by.is_empty() => &[GroupBy],
            Self::GroupingSets { .. } => &[GroupBy],
            _ => &[],
        };
        all.iter().copied().filter(|kind| kind.is_open(devices)).collect()
    }
}
