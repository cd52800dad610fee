//! The optimizer's marks in a plan: shared build sides, and the runtime filters made from them.

use std::collections::HashSet;
use std::sync::Arc;

use super::{FilterForm, Mark, Plan, PlanKind};

impl Plan {
    /// The number under which a build side is shared.
    #[doc(hidden)]
    pub fn shared_build(&self) -> Option<usize> {
        match self.kind {
            PlanKind::Marked { mark: Mark::SharedBuild(number), .. } => Some(number),
            _ => None,
        }
    }

    /// Whether filters are made of the keys of a shared build table.
    pub(crate) fn has_filters_of(&self, number: usize) -> bool {
        let mut has_filters = false;
        self.visit_marks(&mut |mark| {
            if let Mark::Reduced { table, test, .. } = mark {
                has_filters |= *table == number && (test.form != FilterForm::Table || test.has_bounds);
            }
            true
        });
        has_filters
    }

    /// Whether this plan reads a shared table that is built in `other` but not in this plan. Shared parts, which run
    /// once, count in both plans.
    pub(crate) fn reads_tables_of(&self, other: &Plan) -> bool {
        let (mut read, mut own) = (vec![], vec![]);
        self.visit_marks(&mut |mark| {
            match mark {
                Mark::Reduced { table, .. } => read.push(*table),
                Mark::SharedBuild(number) => own.push(*number),
                Mark::Shared(_) | Mark::Written | Mark::Compact => {}
            }
            true
        });
        read.retain(|table| !own.contains(table));
        let mut is_made = false;
        if !read.is_empty() {
            other.visit_marks(&mut |mark| {
                is_made |= matches!(mark, Mark::SharedBuild(number) if read.contains(number));
                true
            });
        }
        is_made
    }

    /// Visits all marks, those of shared plans once. Returning false from `see` skips the marks below.
    pub(crate) fn visit_marks(&self, see: &mut dyn FnMut(&Mark) -> bool) {
        self.visit_marks_but(&mut HashSet::new(), see);
    }

    fn visit_marks_but(&self, seen: &mut HashSet<*const Self>, see: &mut dyn FnMut(&Mark) -> bool) {
        let goes_on = match &self.kind {
            PlanKind::Marked { mark, .. } => see(mark),
            PlanKind::Shared(plan) => seen.insert(Arc::as_ptr(plan)),
            _ => true,
        };
        if goes_on {
            self.inputs().into_iter().for_each(|input| input.visit_marks_but(seen, see));
        }
    }
}
