//! Unions: they join the parts below them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;
use warpjoin::Reason;
use warpjoin::plan::{Plan, PlanKind};

use super::candidate::{Candidate, Operators};
use super::relation::{Relation, checked};
use super::{Matcher, Outcome};

impl Matcher<'_> {
    /// UNION ALL. CPU inputs are uploaded only if another input is a part with a join, aggregate or sort. A union of
    /// resident tables starts no part, but nodes above it may.
    pub(super) fn union(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Outcome> {
        let mut inputs = vec![];
        for child in node.children() {
            let input = self.visit(child)?;
            inputs.push(self.input_if_offloading_all(input));
        }
        let is_device = |input: &Outcome| matches!(input, Outcome::Device(_));
        let is_worth_it = |input: &Outcome| matches!(input, Outcome::Device(part) if part.operators().count() > 0);
        if !inputs.iter().all(is_device) && !inputs.iter().any(is_worth_it) {
            return self.keep_over(node, inputs);
        }
        match self.union_candidates(node, &inputs) {
            Ok((relation, parts)) => {
                // An interleaving union becomes a plain one, because templates have no partitions to interleave.
                let templates = parts.iter().map(|part| Arc::clone(part.template())).collect();
                let template = UnionExec::try_new(templates)?;
                let grown = Candidate::grown_to(node, template, relation, parts, Operators::ROW_WISE);
                Ok(Outcome::Device(Box::new(grown)))
            }
            Err(reason) => {
                self.decline(node, reason);
                self.keep_over(node, inputs)
            }
        }
    }

    fn union_candidates(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        inputs: &[Outcome],
    ) -> Result<(Relation, Vec<Candidate>), Reason> {
        let parts = inputs.iter().map(|input| self.input(input)).collect::<Result<Vec<_>, _>>()?;
        let inputs = parts.iter().map(|part| *part.relation.input()).collect();
        let relation = checked(Plan { kind: PlanKind::Union { inputs }, schema: node.schema() })?;
        Ok((relation, parts))
    }
}
