//! Walks through a whole plan. A part that stands in several places is visited once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Plan, PlanKind};

impl Plan {
    /// Whether `is_it` holds for a node.
    pub(crate) fn holds(&self, is_it: &dyn Fn(&Self) -> bool) -> bool {
        self.holds_but(&mut HashSet::new(), is_it)
    }

    fn holds_but(&self, seen: &mut HashSet<*const Self>, is_it: &dyn Fn(&Self) -> bool) -> bool {
        match &self.kind {
            PlanKind::Shared(plan) if !seen.insert(Arc::as_ptr(plan)) => false,
            _ => is_it(self) || self.inputs().into_iter().any(|input| input.holds_but(seen, is_it)),
        }
    }

    /// The plan with each node replaced by what `with` makes of it, from the leaves up.
    #[must_use]
    pub(crate) fn rewritten(self, with: &mut dyn FnMut(Self) -> Self) -> Self {
        self.rewritten_but(&mut HashMap::new(), with)
    }

    fn rewritten_but(mut self, known: &mut HashMap<*const Self, Known>, with: &mut dyn FnMut(Self) -> Self) -> Self {
        if let PlanKind::Shared(plan) = &self.kind {
            let address = Arc::as_ptr(plan);
            if let Some(known) = known.get(&address) {
                return known.rewritten.clone();
            }
            let rewritten = Self::clone(plan).rewritten_but(known, with).into_shared();
            known.insert(address, Known { _given: Arc::clone(plan), rewritten: rewritten.clone() });
            return rewritten;
        }
        for input in self.inputs_mut() {
            input.replace(|input| input.rewritten_but(known, with));
        }
        with(self)
    }
}

/// A part that was rewritten.
struct Known {
    /// Kept alive, so that no other plan gets its address.
    _given: Arc<Plan>,
    rewritten: Plan,
}
