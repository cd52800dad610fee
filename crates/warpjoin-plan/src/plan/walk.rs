//! Visits a whole plan. A part that occurs in several places is visited once.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use warpjoin_columns::devices::DeviceSet;
use warpjoin_columns::{Result, Table};

use super::{Plan, PlanKind};

impl Plan {
    /// The tables that it scans, once for each scan.
    #[doc(hidden)]
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let mut tables = vec![];
        let mut plans = vec![self];
        while let Some(plan) = plans.pop() {
            if let PlanKind::Scan { table, .. } = &plan.kind {
                tables.push(Arc::clone(table));
            }
            plans.extend(plan.inputs());
        }
        tables
    }

    /// The indices of its inputs, once for each node that reads them.
    #[doc(hidden)]
    pub fn input_numbers(&self) -> Vec<usize> {
        let mut numbers = vec![];
        let mut plans = vec![self];
        while let Some(plan) = plans.pop() {
            if let PlanKind::Input { index } = plan.kind {
                numbers.push(index);
            }
            plans.extend(plan.inputs());
        }
        numbers
    }

    /// The plan with its tables replaced by [`Table::on`] for all of these devices.
    #[doc(hidden)]
    pub fn on(self, devices: &Arc<DeviceSet>) -> Result<Self> {
        self.try_rewritten(&mut |mut plan| {
            if let PlanKind::Scan { table, .. } = &mut plan.kind {
                *table = Table::on(table, devices)?;
            }
            Ok(plan)
        })
    }

    /// Whether `is_it` holds for a node.
    #[doc(hidden)]
    pub fn holds(&self, is_it: &dyn Fn(&Self) -> bool) -> bool {
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
        let Ok(rewritten) = self.try_rewritten::<Infallible>(&mut |plan| Ok(with(plan)));
        rewritten
    }

    /// The same up to the first error.
    pub(crate) fn try_rewritten<E>(self, with: &mut dyn FnMut(Self) -> Result<Self, E>) -> Result<Self, E> {
        self.rewritten_but(&mut HashMap::new(), with)
    }

    fn rewritten_but<E>(
        mut self,
        known: &mut HashMap<*const Self, Known>,
        with: &mut dyn FnMut(Self) -> Result<Self, E>,
    ) -> Result<Self, E> {
        if let PlanKind::Shared(plan) = &self.kind {
            let address = Arc::as_ptr(plan);
            if let Some(known) = known.get(&address) {
                return Ok(known.rewritten.clone());
            }
            let rewritten = Self::clone(plan).rewritten_but(known, with)?.into_shared();
            known.insert(address, Known { _given: Arc::clone(plan), rewritten: rewritten.clone() });
            return Ok(rewritten);
        }
        for input in self.inputs_mut() {
            input.try_replace(|input| input.rewritten_but(known, with))?;
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
