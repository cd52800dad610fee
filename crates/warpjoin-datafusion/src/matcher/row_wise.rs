//! Filters and projections: they join a part below them, and start a part over resident tables.
//!
//! Over a CPU input they stay on the CPU, so that fewer and narrower rows are uploaded.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use warpjoin::Reason;

use super::candidate::{Candidate, Operators};
use super::relation::{PhysicalExprs, Relation};
use super::{Matcher, Outcome};

impl Matcher<'_> {
    pub(super) fn row_wise(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        input: &Arc<dyn ExecutionPlan>,
        added: Operators,
        translate: impl FnOnce(&Relation) -> Result<Relation, Reason>,
    ) -> Result<Outcome> {
        self.row_wise_with(node, input, |_, _| added, translate)
    }

    /// As [`Self::row_wise`], where the added operators depend on the part below.
    pub(super) fn row_wise_with(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        input: &Arc<dyn ExecutionPlan>,
        added: impl FnOnce(&Relation, Operators) -> Operators,
        translate: impl FnOnce(&Relation) -> Result<Relation, Reason>,
    ) -> Result<Outcome> {
        let input = self.visit(input)?;
        let candidate = match self.input_if_offloading_all(input) {
            Outcome::Device(candidate) => candidate,
            host @ Outcome::Host(_) => return self.keep_over(node, vec![host]),
        };
        match translate(&candidate.relation) {
            Ok(relation) => {
                let added = added(&candidate.relation, candidate.operators());
                let grown = Candidate::grown(node, relation, vec![*candidate], added)?;
                Ok(Outcome::Device(Box::new(grown)))
            }
            Err(reason) => {
                self.decline(node, reason);
                self.keep_over(node, vec![Outcome::Device(candidate)])
            }
        }
    }
}

impl Relation {
    /// The relation filtered as by a [`FilterExec`].
    pub(super) fn filter_exec(&self, filter: &FilterExec, output: &Arc<dyn ExecutionPlan>) -> Result<Relation, Reason> {
        let mut filtered = self.filter(filter.predicate())?;
        if let Some(projection) = filter.projection() {
            filtered = filtered.columns(projection, &output.schema())?;
        }
        match filter.fetch() {
            Some(fetch) => filtered.limit(0, Some(fetch)),
            None => Ok(filtered),
        }
    }

    /// The relation projected as by a [`ProjectionExec`].
    pub(super) fn projection_exec(&self, projection: &ProjectionExec) -> Result<Relation, Reason> {
        let exprs: PhysicalExprs = projection.expr().iter().map(|projected| Arc::clone(&projected.expr)).collect();
        self.project(&exprs, &projection.schema())
    }
}
