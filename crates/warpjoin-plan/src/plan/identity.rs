//! Identities of plan nodes and calls.
//!
//! A node is identified without its inputs: plans are compared by numbering nodes from the leaves up, so that a subtree
//! is not written again for each node above it.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::Schema;
use warpjoin_columns::identity::{Identify, Identity, address, identify_by_hash, identify_fields, one_of};

use super::{
    AggregateCall, AggregateFunction, FetchPlan, FilterForm, Fold, GroupingSet, JoinKind, JoinPlan, Mark, Plan,
    PlanKind, ReductionTest, RowsOf, Share, SharedRowsId, State, Term,
};
use crate::options::GroupByForm;
use crate::window::{Frame, WindowCall, WindowFunction};

identify_by_hash!(AggregateFunction, WindowFunction, Frame, JoinKind, FilterForm, SharedRowsId);
identify_by_hash!(Fold, Term, GroupByForm);

identify_fields! {
    AggregateCall { function, argument, second, is_distinct, order_by, filter, data_type }
    WindowCall { function, argument, default, ignores_nulls, frame, data_type }
    GroupingSet { keys, id }
    ReductionTest { form, has_bounds, rows, is_ordered, left }
    State { fold, argument, second, term, data_type }
}

/// A plan node without its inputs. Names of columns don't count.
pub struct Node<'a>(pub &'a Plan);

impl Identify for Node<'_> {
    fn identify(&self, identity: &mut Identity) {
        let Plan { kind, schema } = self.0;
        Types(schema).identify(identity);
        kind.identify(identity);
    }
}

/// Types and nullability of columns, without their names.
struct Types<'a>(&'a Schema);

impl Identify for Types<'_> {
    fn identify(&self, identity: &mut Identity) {
        self.0.fields().len().identify(identity);
        for field in self.0.fields() {
            field.data_type().identify(identity);
            field.is_nullable().identify(identity);
        }
    }
}

/// A table is one object, which the plan keeps alive.
struct Object<'a, T>(&'a Arc<T>);

impl<T> Identify for Object<'_, T> {
    fn identify(&self, identity: &mut Identity) {
        address(self.0).identify(identity);
    }
}

impl Identify for PlanKind {
    fn identify(&self, identity: &mut Identity) {
        match self {
            Self::Scan { table, projection } => one_of(identity, 0, &[&Object(table), projection]),
            Self::Input { index } => one_of(identity, 1, &[index]),
            Self::Filter { input: _, predicate } => one_of(identity, 2, &[predicate]),
            Self::Project { input: _, exprs } => one_of(identity, 3, &[exprs]),
            Self::Join(join) => {
                let JoinPlan { build: _, probe: _, on, kind, null_equals_null, residual, output } = join.as_ref();
                one_of(identity, 4, &[on, kind, null_equals_null, residual, output]);
            }
            Self::Aggregate { input: _, group_by, aggregates } => one_of(identity, 5, &[group_by, aggregates]),
            Self::Sort { input: _, keys, skip, fetch } => one_of(identity, 6, &[keys, skip, fetch]),
            Self::Limit { input: _, skip, fetch } => one_of(identity, 7, &[skip, fetch]),
            Self::GroupingSets { input: _, group_by, sets, aggregates } => {
                one_of(identity, 8, &[group_by, sets, aggregates]);
            }
            Self::Window { input: _, partition_by, order_by, calls } => {
                one_of(identity, 9, &[partition_by, order_by, calls]);
            }
            Self::Union { inputs } => one_of(identity, 10, &[&inputs.len()]),
            Self::Numbered { input: _ } => one_of(identity, 11, &[]),
            Self::RowNumbers { input: _ } => one_of(identity, 12, &[]),
            Self::Fetch(fetch) => {
                let FetchPlan { input: _, table, row, columns } = fetch.as_ref();
                one_of(identity, 13, &[&Object(table), row, columns]);
            }
            Self::Shared(plan) => one_of(identity, 14, &[&Object(plan)]),
            Self::Marked { input: _, mark } => one_of(identity, 15, &[mark]),
            Self::HasRows { input: _, of } => one_of(identity, 16, &[&matches!(of, RowsOf::Build)]),
        }
    }
}

impl Identify for Mark {
    fn identify(&self, identity: &mut Identity) {
        match self {
            Self::SharedBuild(number) => one_of(identity, 0, &[number]),
            Self::Reduced { table, keys, test } => one_of(identity, 1, &[table, keys, test]),
            Self::Shared(share) => one_of(identity, 2, &[share]),
            Self::Written => one_of(identity, 3, &[]),
            Self::Compact => one_of(identity, 4, &[]),
        }
    }
}

impl Identify for Share {
    fn identify(&self, identity: &mut Identity) {
        match self {
            Self::Within(number) => one_of(identity, 0, &[number]),
            Self::Left(shared_rows_id) => one_of(identity, 1, &[shared_rows_id]),
            Self::Found(shared_rows_id) => one_of(identity, 2, &[shared_rows_id]),
        }
    }
}
