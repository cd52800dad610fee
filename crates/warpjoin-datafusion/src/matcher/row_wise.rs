//! Filters and projections: they join a part that is on the devices already, and never start one.
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
        translate: impl FnOnce(&Relation) -> Result<Relation, Reason>,
    ) -> Result<Outcome> {
        let candidate = match self.visit(input)? {
            Outcome::Device(candidate) => candidate,
            host @ Outcome::Host(_) => return self.keep_over(node, vec![host]),
        };
        match translate(&candidate.relation) {
            Ok(relation) => {
                let grown = Candidate::grown(node, relation, vec![*candidate], Operators::default())?;
                Ok(Outcome::Device(Box::new(grown)))
            }
            Err(reason) => {
                self.decline(node, reason, false);
                self.keep_over(node, vec![Outcome::Device(candidate)])
            }
        }
    }
}

impl Relation {
    /// As [`FilterExec`] does.
    pub(super) fn filter_exec(&self, filter: &FilterExec, output: &Arc<dyn ExecutionPlan>) -> Result<Relation, Reason> {
        if filter.fetch().is_some() {
            return Err(Reason::Node("FilterExec with a row limit".to_string()));
        }
        let filtered = self.filter(filter.predicate())?;
        match filter.projection() {
            Some(projection) => filtered.columns(projection, &output.schema()),
            None => Ok(filtered),
        }
    }

    /// As [`ProjectionExec`] does.
    pub(super) fn projection_exec(&self, projection: &ProjectionExec) -> Result<Relation, Reason> {
        let exprs: PhysicalExprs = projection.expr().iter().map(|projected| Arc::clone(&projected.expr)).collect();
        self.project(&exprs, &projection.schema())
    }
}
