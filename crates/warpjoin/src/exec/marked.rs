//! What the optimiser has marked: tables that several joins probe, rows that nobody needs, plans that are run once.

use super::join::probe_here;
use super::query::Query;
use super::relation::Relation;
use super::runtime_filter::Published;
use crate::Result;
use crate::plan::{FilterForm, JoinPlan, Mark, Plan, PlanKind};

impl Query<'_> {
    pub(super) fn marked(&mut self, input: &Plan, mark: &Mark) -> Result<Relation> {
        match mark {
            // The join above has seen it.
            Mark::Published(_) => self.relation(input),
            Mark::Reduced { table, keys, test } => {
                let relation = self.relation(input)?;
                self.reduced(relation, *table, keys, *test)
            }
            Mark::Shared(share) => self.shared_subplan(input, share),
        }
    }

    /// Makes the table, on every device, before the probe side is read; unless it reads tables of that side.
    pub(super) fn published_join(&mut self, plan: &JoinPlan, number: usize) -> Result<Relation> {
        let first = if waits_for(&plan.build, &plan.probe) { Some(self.relation(&plan.probe)?) } else { None };
        // Joins with equal build sides have one number.
        let made = match self.published.get(&number) {
            Some(made) => (made.table.clone(), made.payload_of.clone()),
            None => {
                let build = self.relation(&plan.build)?;
                let made = self.broadcast_table(plan, &build, has_filters(self.plan, number))?;
                self.published.insert(number, Published::new(made.clone()));
                made
            }
        };
        let probe = match first {
            Some(probe) => probe,
            None => self.relation(&plan.probe)?,
        };
        Ok(probe_here(plan, probe, made, self.options.counts_rows))
    }
}

/// Whether filters are made of the keys of a published table.
fn has_filters(plan: &Plan, number: usize) -> bool {
    let mut has_filters = false;
    visit(plan, &mut |mark| {
        if let Mark::Reduced { table, test, .. } = mark {
            has_filters |= *table == number && (test.form != FilterForm::Table || test.has_bounds);
        }
    });
    has_filters
}

/// Whether a part of `plan` reads a table that a part of `other` publishes.
pub(super) fn waits_for(plan: &Plan, other: &Plan) -> bool {
    let mut read = vec![];
    visit(plan, &mut |mark| {
        if let Mark::Reduced { table, .. } = mark {
            read.push(*table);
        }
    });
    let mut is_made = false;
    if !read.is_empty() {
        visit(other, &mut |mark| is_made |= matches!(mark, Mark::Published(number) if read.contains(number)));
    }
    is_made
}

fn visit(plan: &Plan, see: &mut dyn FnMut(&Mark)) {
    if let PlanKind::Marked { mark, .. } = &plan.kind {
        see(mark);
    }
    plan.inputs().into_iter().for_each(|input| visit(input, see));
}

/// The number under which a build side's table is published.
pub(crate) fn published(build: &Plan) -> Option<usize> {
    match build.kind {
        PlanKind::Marked { mark: Mark::Published(number), .. } => Some(number),
        _ => None,
    }
}
