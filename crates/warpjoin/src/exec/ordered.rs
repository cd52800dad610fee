//! What of a plan is one sort: its keys, the rows that are wanted of it, and what stands on it.

use crate::expr::Expr;
use crate::plan::{FetchPlan, Plan, PlanKind, SortKey};

/// Rows of an order that are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub skip: u64,
    pub fetch: Option<u64>,
}

impl Window {
    const ALL: Self = Self { skip: 0, fetch: None };

    /// This window of what `inner` leaves.
    fn within(self, inner: Window) -> Window {
        let left = inner.fetch.map(|fetch| fetch.saturating_sub(self.skip));
        let fetch = match (left, self.fetch) {
            (Some(left), Some(fetch)) => Some(left.min(fetch)),
            (left, fetch) => left.or(fetch),
        };
        Window { skip: inner.skip.saturating_add(self.skip), fetch }
    }

    /// The end of the rows that it looks at.
    pub(super) fn end(self) -> u64 {
        self.fetch.map_or(u64::MAX, |fetch| fetch.saturating_add(self.skip))
    }
}

/// A sort or window, and the projections and limits that stand on it.
#[derive(Debug)]
pub(crate) struct Ordered<'a> {
    /// What is sorted, or the window.
    pub input: &'a Plan,
    /// `None`: the input is a window, whose rows lie in its order.
    pub keys: Option<&'a [SortKey]>,
    pub window: Window,
    /// Over the input, then over each other.
    pub projections: Vec<&'a [Expr]>,
    /// What is done with the rows once they are in order: from the first fetch on, of rows that are wanted only.
    pub behind: Vec<RowWise<'a>>,
}

/// What puts out a row for each that comes in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowWise<'a> {
    Project(&'a [Expr]),
    Fetch(&'a FetchPlan),
}

impl<'a> Ordered<'a> {
    /// `None`: the plan has no order.
    pub(crate) fn of(plan: &'a Plan) -> Option<Self> {
        match &plan.kind {
            PlanKind::Sort { input, keys, skip, fetch } => {
                let window = Window { skip: *skip, fetch: *fetch };
                let is_same = |inner: &Self| inner.behind.is_empty() && inner.has_order(keys);
                if let Some(mut inner) = Self::of(input).filter(is_same) {
                    inner.window = window.within(inner.window);
                    return Some(inner);
                }
                // An order of an order is the last one; a limit of one stays.
                Some(Self { input, keys: Some(keys), window, projections: vec![], behind: vec![] })
            }
            PlanKind::Window { .. } => {
                Some(Self { input: plan, keys: None, window: Window::ALL, projections: vec![], behind: vec![] })
            }
            PlanKind::Limit { input, skip, fetch } => {
                let mut inner = Self::of(input)?;
                inner.window = Window { skip: *skip, fetch: *fetch }.within(inner.window);
                Some(inner)
            }
            PlanKind::Project { input, exprs } => {
                let mut inner = Self::of(input)?;
                match inner.behind.is_empty() {
                    true => inner.projections.push(exprs),
                    false => inner.behind.push(RowWise::Project(exprs)),
                }
                Some(inner)
            }
            PlanKind::Fetch(fetch) => {
                let mut inner = Self::of(&fetch.input)?;
                inner.behind.push(RowWise::Fetch(fetch));
                Some(inner)
            }
            _ => None,
        }
    }
}
