//! Finds the parts of a physical plan that devices can run.
//!
//! Works bottom-up: every node becomes either a [`Candidate`] (it and all below it, down to CPU
//! inputs, runs on the devices) or stays on the host. A candidate grows while the node above it can
//! join it, and is closed where one can't: so the parts are maximal.
//!
//! Owns the choice and its reasons; must not know how a part is executed ([`crate::exec`]).

mod aggregate;
mod candidate;
mod join;
mod relation;
mod row_wise;
mod sort;
mod union;
mod window;
mod window_call;
mod window_frame;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary};
use warpjoin::column::check_type;
use warpjoin::{Reason, Session};

use crate::exec::WarpjoinExec;
use crate::rules::host_work::reads_tables;
use crate::table::scan::DeviceScanExec;
use candidate::Candidate;

pub(crate) use aggregate::function_of;
pub(crate) use candidate::Operators;
pub(crate) use sort::is_window;

/// A node that stays on the CPU although devices were there.
#[derive(Debug, Clone)]
pub(crate) struct Declined {
    /// The node, as it stood in the plan.
    pub node: Arc<dyn ExecutionPlan>,
    /// Why.
    pub reason: Reason,
}

/// What became of a node.
enum Outcome {
    /// It runs on the devices if the part that it belongs to does.
    Device(Box<Candidate>),
    /// It stays. Nodes below it may have been replaced.
    Host(Arc<dyn ExecutionPlan>),
}

/// One walk over one plan.
pub(crate) struct Matcher<'a> {
    session: &'a Arc<Session>,
    minimum_rows: u64,
    /// Filters, projections, sorts and unions of CPU rows are put on the devices, too, although that may not pay.
    takes_all: bool,
    make: &'a dyn Fn(candidate::Closed) -> Result<Arc<WarpjoinExec>>,
    next_input: usize,
    declined: Vec<Declined>,
}

impl<'a> Matcher<'a> {
    /// Parts of fewer than `minimum_rows` stay on the CPU; with `takes_all`, rows are uploaded for whatever devices can do.
    /// `make` turns a closed part into its plan node.
    pub(crate) fn new(
        session: &'a Arc<Session>,
        minimum_rows: u64,
        takes_all: bool,
        make: &'a dyn Fn(candidate::Closed) -> Result<Arc<WarpjoinExec>>,
    ) -> Self {
        Self { session, minimum_rows, takes_all, make, next_input: 0, declined: vec![] }
    }

    /// The plan with all parts that devices can run replaced, and what stays with its reasons.
    ///
    /// # Errors
    /// When DataFusion refuses to rebuild a node.
    pub(crate) fn rewrite(mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<(Arc<dyn ExecutionPlan>, Vec<Declined>)> {
        let outcome = self.visit(plan)?;
        let plan = self.close(outcome)?;
        Ok((plan, self.declined))
    }

    fn visit(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Outcome> {
        if let Some(input) = seen_through(node) {
            return Ok(match self.visit(&Arc::clone(input))? {
                Outcome::Device(candidate) => Outcome::Device(Box::new(candidate.at(node))),
                Outcome::Host(input) => Outcome::Host(replace_children_if_necessary(Arc::clone(node), vec![input])?),
            });
        }
        if let Some(required) = node.downcast_ref::<OutputRequirementExec>() {
            return self.output_requirement(node, required);
        }
        if node.is::<WarpjoinExec>() {
            // A finished plan is only asked for reasons: what stands above a part is judged as it
            // was when the part could have grown by it.
            let part = self.keep(node)?;
            return Ok(self.input(&part).map_or(part, |input| Outcome::Device(Box::new(input))));
        }
        if let Some(scan) = node.downcast_ref::<DeviceScanExec>() {
            return Ok(if Arc::ptr_eq(scan.table().session(), self.session) && scan.reads_values_only() {
                Outcome::Device(Box::new(Candidate::scan(node, scan)))
            } else {
                Outcome::Host(Arc::clone(node))
            });
        }
        if let Some(filter) = node.downcast_ref::<FilterExec>() {
            return self.row_wise(node, filter.input(), Operators::ROW_WISE, |input| input.filter_exec(filter, node));
        }
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let computes = projection.expr().iter().any(|projected| !projected.expr.is::<Column>());
            let added = if computes { Operators::ROW_WISE } else { Operators::default() };
            return self.row_wise(node, projection.input(), added, |input| input.projection_exec(projection));
        }
        if let Some(outcome) = self.sort(node)? {
            return Ok(outcome);
        }
        if let Some(outcome) = self.window(node)? {
            return Ok(outcome);
        }
        if let Some(outcome) = self.join(node)? {
            return Ok(outcome);
        }
        if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            return self.aggregate(node, aggregate);
        }
        if node.is::<UnionExec>() || node.is::<InterleaveExec>() {
            return self.union(node);
        }
        if node.name().ends_with("JoinExec") {
            self.decline(node, Reason::Node(node.name().to_string()));
        }
        self.keep(node)
    }

    /// What a query's answer must be, said above the query's last sort: a limit over it can join the part below, whose order
    /// nothing takes away.
    fn output_requirement(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        required: &OutputRequirementExec,
    ) -> Result<Outcome> {
        let has_order = required.required_input_ordering().iter().any(Option::is_some);
        match self.visit(&required.input())? {
            Outcome::Device(candidate) if !has_order || candidate.relation.plan.is_ordered() => {
                Ok(Outcome::Device(Box::new(candidate.at(node))))
            }
            outcome => self.keep_over(node, vec![outcome]),
        }
    }

    /// The node stays; whatever is below it is closed.
    fn keep(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Outcome> {
        let mut children = vec![];
        for child in node.children() {
            let outcome = self.visit(child)?;
            children.push(self.close(outcome)?);
        }
        Ok(Outcome::Host(replace_children_if_necessary(Arc::clone(node), children)?))
    }

    /// The node stays over `children`, which were visited already.
    fn keep_over(&mut self, node: &Arc<dyn ExecutionPlan>, children: Vec<Outcome>) -> Result<Outcome> {
        let children = children.into_iter().map(|child| self.close(child)).collect::<Result<_>>()?;
        Ok(Outcome::Host(replace_children_if_necessary(Arc::clone(node), children)?))
    }

    fn decline(&mut self, node: &Arc<dyn ExecutionPlan>, reason: Reason) {
        self.declined.push(Declined { node: Arc::clone(node), reason });
    }

    /// A candidate for an operator's input: what stays on the host is uploaded.
    fn input(&mut self, outcome: &Outcome) -> Result<Candidate, Reason> {
        match outcome {
            Outcome::Device(candidate) => Ok((**candidate).clone()),
            Outcome::Host(plan) => {
                if plan.boundedness().is_unbounded() {
                    return Err(Reason::Node(format!("{} without an end", plan.name())));
                }
                for field in plan.schema().fields() {
                    check_type(field.data_type())?;
                }
                self.next_input += 1;
                Ok(Candidate::upload(plan, self.next_input - 1))
            }
        }
    }

    /// The same for a node that rows are uploaded for only if devices take all.
    fn input_of_all(&mut self, outcome: Outcome) -> Outcome {
        if self.takes_all
            && let Outcome::Host(plan) = &outcome
            && !plan.is::<DeviceScanExec>()
            && reads_tables(plan)
            && let Ok(candidate) = self.input(&outcome)
        {
            return Outcome::Device(Box::new(candidate));
        }
        outcome
    }

    /// The final plan of a part: its device node, or what stood there before.
    fn close(&mut self, outcome: Outcome) -> Result<Arc<dyn ExecutionPlan>> {
        let candidate = match outcome {
            Outcome::Host(plan) => return Ok(plan),
            Outcome::Device(candidate) => candidate,
        };
        if !candidate.is_worth_a_node(self.takes_all) {
            return candidate.restore();
        }
        if let Some(rows) = candidate.estimated_rows_max()?
            && rows < self.minimum_rows
        {
            let reason = format!("{rows} rows estimated, warpjoin.minimum_rows is {}", self.minimum_rows);
            self.decline(candidate.original(), Reason::Limit(reason));
            return candidate.restore();
        }
        Ok((self.make)(candidate.close()?)? as Arc<dyn ExecutionPlan>)
    }
}

pub(crate) use candidate::Closed;

/// The input of a node that only moves rows between partitions and tasks: what is below means the
/// same without it.
fn seen_through(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
        return Some(repartition.input());
    }
    if let Some(coalesce) = node.downcast_ref::<CoalescePartitionsExec>() {
        return coalesce.fetch().is_none().then(|| coalesce.input());
    }
    node.downcast_ref::<CooperativeExec>().map(|cooperative| cooperative.input())
}

/// `node` without the nodes that are seen through.
fn beneath(node: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    let mut node = node;
    while let Some(input) = seen_through(node) {
        node = input;
    }
    node
}
