//! Tables that several joins probe, by number.

use std::collections::{HashMap, HashSet};

use super::build_probe::probe_here;
use super::runtime_filter::{FilterFlights, Published};
use crate::exec::query::Query;
use crate::exec::relation::Relation;
use crate::plan::join::JoinNode;
use crate::{Error, Result};

/// What the joins of a query leave for each other.
#[derive(Default)]
pub(crate) struct Joins {
    /// Tables that several joins probe.
    published: HashMap<usize, Published>,
    /// Filters of them that nobody has looked at yet.
    pub(super) filters: Vec<FilterFlights>,
    /// A build side is being reduced.
    pub(super) is_reducing: bool,
}

impl Joins {
    /// Whether the table of that number is there.
    pub(in crate::exec) fn has_published(&self, number: usize) -> bool {
        self.published.contains_key(&number)
    }

    /// Numbers of the tables that are there.
    pub(in crate::exec) fn published_numbers(&self) -> HashSet<usize> {
        self.published.keys().copied().collect()
    }

    pub(super) fn published(&self, number: usize) -> Result<&Published> {
        self.published.get(&number).ok_or_else(|| Error::internal(format!("no table {number} yet")))
    }

    pub(super) fn published_mut(&mut self, number: usize) -> Option<&mut Published> {
        self.published.get_mut(&number)
    }
}

impl Query<'_> {
    /// Makes the table of that number; its rows stay beside it where filters are made of them.
    pub(in crate::exec) fn publish(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        build: &Relation,
        has_filters: bool,
    ) -> Result<()> {
        let made = self.broadcast_table(plan, build, has_filters)?;
        self.joins.published.insert(number, Published::new(made));
        Ok(())
    }

    /// Appends the probe of the table of that number.
    pub(in crate::exec) fn probe_published(
        &mut self,
        plan: &JoinNode<'_>,
        number: usize,
        probe: Relation,
    ) -> Result<Relation> {
        let published = self.joins.published(number)?;
        let made = (published.table.clone(), published.payload_of.clone());
        Ok(probe_here(plan, probe, made, self.options.counts_rows))
    }
}
