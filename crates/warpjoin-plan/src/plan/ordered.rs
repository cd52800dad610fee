//! The part of a plan that runs as one sort: its keys, the range of rows that is needed, and the nodes above it.

use arrow::datatypes::SchemaRef;
use warpjoin_columns::expr::{Expr, ExprKind};

use super::{FetchPlan, Plan, PlanKind, SortKey};
use crate::window::WindowCall;

/// The range of rows of an order that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputRange {
    pub skip: u64,
    pub fetch: Option<u64>,
}

impl OutputRange {
    pub const ALL: Self = Self { skip: 0, fetch: None };

    /// This range, applied to the rows of `inner`.
    fn within(self, inner: Self) -> Self {
        let left = inner.fetch.map(|fetch| fetch.saturating_sub(self.skip));
        let fetch = match (left, self.fetch) {
            (Some(left), Some(fetch)) => Some(left.min(fetch)),
            (left, fetch) => left.or(fetch),
        };
        Self { skip: inner.skip.saturating_add(self.skip), fetch }
    }

    /// The end of the range.
    pub fn end(self) -> u64 {
        self.fetch.map_or(u64::MAX, |fetch| fetch.saturating_add(self.skip))
    }
}

/// A sort or window, and the projections, fetches and limits above it.
#[derive(Debug)]
pub(crate) struct Ordered<'a> {
    /// The input of the sort, or the window itself.
    pub input: &'a Plan,
    /// `None`: the input is a window, whose rows lie in its order.
    pub keys: Option<&'a [SortKey]>,
    pub range: OutputRange,
    /// Projections before the sort: the first over the input, each other one over the one before.
    pub projections: Vec<&'a [Expr]>,
    /// Steps after the sort, from the first fetch on; they run only for rows in the range.
    pub behind: Vec<RowWise<'a>>,
}

/// A step that outputs one row for each input row.
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
                let range = OutputRange { skip: *skip, fetch: *fetch };
                let is_same = |inner: &Self| inner.behind.is_empty() && inner.has_order(keys);
                if let Some(mut inner) = Self::of(input).filter(is_same) {
                    inner.range = range.within(inner.range);
                    return Some(inner);
                }
                // An order of an order is the last one; a limit of one stays.
                Some(Self { input, keys: Some(keys), range, projections: vec![], behind: vec![] })
            }
            PlanKind::Window { .. } => {
                Some(Self { input: plan, keys: None, range: OutputRange::ALL, projections: vec![], behind: vec![] })
            }
            PlanKind::Limit { input, skip, fetch } => {
                let mut inner = Self::of(input)?;
                inner.range = OutputRange { skip: *skip, fetch: *fetch }.within(inner.range);
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

/// A window, as a plan has it.
#[derive(Debug, Clone, Copy)]
pub struct WindowNode<'a> {
    /// Columns of the input.
    pub schema: &'a SchemaRef,
    pub partition_by: &'a [Expr],
    pub order_by: &'a [SortKey],
    pub calls: &'a [WindowCall],
}

impl<'a> WindowNode<'a> {
    pub fn of(plan: &'a Plan) -> Option<Self> {
        match &plan.kind {
            PlanKind::Window { input, partition_by, order_by, calls } => {
                Some(Self { schema: &input.schema, partition_by, order_by, calls })
            }
            _ => None,
        }
    }

    /// The order of the rows put out.
    pub fn keys(&self) -> Vec<SortKey> {
        let of_partition = |expr: &Expr| SortKey { expr: expr.clone(), descending: false, nulls_first: false };
        self.partition_by.iter().map(of_partition).chain(self.order_by.iter().cloned()).collect()
    }
}

impl Ordered<'_> {
    /// Whether rows of a window, as they are put out, lie in the order of the keys.
    fn has_order(&self, keys: &[SortKey]) -> bool {
        let (Some(node), None) = (WindowNode::of(self.input), self.keys) else { return false };
        // The window's column that a column is.
        let source = |column: usize| {
            self.projections.iter().rev().try_fold(column, |column, exprs| match exprs.get(column)?.kind {
                ExprKind::Column(column) => Some(column),
                _ => None,
            })
        };
        let own = node.keys();
        keys.len() <= own.len()
            && keys.iter().zip(&own).all(|(key, own)| {
                let (ExprKind::Column(wanted), ExprKind::Column(is)) = (&key.expr.kind, &own.expr.kind) else {
                    return false;
                };
                let is_alike = key.nulls_first == own.nulls_first || !own.expr.nullable;
                source(*wanted) == Some(*is) && key.descending == own.descending && is_alike
            })
    }
}
