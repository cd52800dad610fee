//! Finds the parts of a physical plan that devices can run.
//!
//! The matcher works bottom-up. Each node either extends a [`Candidate`], a part that runs on the devices down to its CPU
//! inputs, or stays on the host. A candidate grows until the node above cannot join it, so parts are maximal.
//!
//! Owns the choice of parts and the reasons for declined nodes. Must not know how a part runs ([`crate::exec`]).

mod aggregate;
mod candidate;
mod join;
mod reads;
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

use crate::cache::{CachedScanExec, ColumnCache, ParquetScan};
use crate::config::CacheSettings;
use crate::exec::WarpjoinExec;
use crate::table::scan::DeviceScanExec;
use candidate::Candidate;

pub(crate) use aggregate::function_of;
pub(crate) use candidate::Operators;
pub(crate) use reads::reads_tables;
pub(crate) use sort::is_window;

/// A node that the matcher declined.
#[derive(Debug, Clone)]
pub(crate) struct Declined {
    /// The node in the original plan.
    pub node: Arc<dyn ExecutionPlan>,
    /// Why it stays on the CPU.
    pub reason: Reason,
}

/// The result of visiting a node.
enum Outcome {
    /// The node is part of a candidate.
    Device(Box<Candidate>),
    /// The node stays on the host. Nodes below it may have been replaced.
    Host(Arc<dyn ExecutionPlan>),
}

/// One traversal of one plan.
pub(crate) struct Matcher<'a> {
    session: &'a Arc<Session>,
    minimum_rows: u64,
    /// Whether CPU rows are also uploaded for filters, projections, sorts and unions, although that may not pay off.
    offloads_all: bool,
    /// Where columns of files are cached, if they are.
    cache: Option<(Arc<ColumnCache>, CacheSettings)>,
    /// Whether columns that are not cached are read for parts.
    fills_cache: bool,
    make: &'a dyn Fn(candidate::Closed) -> Result<Arc<WarpjoinExec>>,
    next_input: usize,
    declined: Vec<Declined>,
}

impl<'a> Matcher<'a> {
    /// Parts whose inputs all have fewer than `minimum_rows` stay on the CPU. With `offloads_all`, rows are uploaded for any
    /// supported node. `make` turns a finished part into its plan node.
    pub(crate) fn new(
        session: &'a Arc<Session>,
        minimum_rows: u64,
        offloads_all: bool,
        make: &'a dyn Fn(candidate::Closed) -> Result<Arc<WarpjoinExec>>,
    ) -> Self {
        Self {
            session,
            minimum_rows,
            offloads_all,
            cache: None,
            fills_cache: true,
            make,
            next_input: 0,
            declined: vec![],
        }
    }

    /// Columns of files that parts read are cached; unless it `fills_cache`, only cached columns are read by parts.
    pub(crate) fn with_cache(mut self, cache: Arc<ColumnCache>, settings: CacheSettings, fills_cache: bool) -> Self {
        self.cache = (!settings.is_off()).then_some((cache, settings));
        self.fills_cache = fills_cache;
        self
    }

    /// Replaces all parts that devices support. Also returns the declined nodes with their reasons.
    ///
    /// # Errors
    /// Returns an error if DataFusion cannot rebuild a node.
    pub(crate) fn rewrite(mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<(Arc<dyn ExecutionPlan>, Vec<Declined>)> {
        let outcome = self.visit(plan)?;
        let plan = self.close(outcome)?;
        Ok((plan, self.declined))
    }

    fn visit(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Outcome> {
        if let Some(input) = input_of_transparent(node) {
            return Ok(match self.visit(&Arc::clone(input))? {
                Outcome::Device(candidate) => Outcome::Device(Box::new(candidate.at(node))),
                Outcome::Host(input) => Outcome::Host(replace_children_if_necessary(Arc::clone(node), vec![input])?),
            });
        }
        if let Some(required) = node.downcast_ref::<OutputRequirementExec>() {
            return self.output_requirement(node, required);
        }
        if node.is::<WarpjoinExec>() {
            // The plan is already rewritten, and only the reasons are needed. Treat the part as an input, so that the nodes
            // above it are declined for the same reasons as before.
            let part = self.keep(node)?;
            return Ok(self.input(&part).map_or(part, |input| Outcome::Device(Box::new(input))));
        }
        if let Some(scan) = node.downcast_ref::<DeviceScanExec>() {
            return Ok(if self.session.has(scan.table()) && scan.reads_values_only() {
                Outcome::Device(Box::new(Candidate::scan(node, scan)))
            } else {
                Outcome::Host(Arc::clone(node))
            });
        }
        if node.is::<CachedScanExec>() {
            return Ok(Outcome::Host(Arc::clone(node)));
        }
        if let Some(candidate) = self.cached_scan(node) {
            return Ok(Outcome::Device(Box::new(candidate)));
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

    /// The candidate of a scan whose columns can be cached: a table if they are cached, else an input that will become
    /// one.
    fn cached_scan(&mut self, node: &Arc<dyn ExecutionPlan>) -> Option<Candidate> {
        let (cache, settings) = self.cache.as_ref()?;
        let scan = ParquetScan::of(node)?;
        if node.schema().fields().iter().any(|field| check_type(field.data_type()).is_err()) {
            return None;
        }
        let limits = settings.limits(self.session);
        if !self.fills_cache {
            return cache.table(&scan, &node.schema()).map(|table| Candidate::resident(node, table));
        }
        if let Some(table) = cache.resident(&scan, &node.schema(), limits) {
            return Some(Candidate::resident(node, table));
        }
        // Else filters below a part stay on the CPU, and fewer rows are uploaded.
        if !cache.accepts(&scan, limits) {
            return None;
        }
        let scan: Arc<dyn ExecutionPlan> = Arc::new(CachedScanExec::of(node, scan, cache, *settings));
        self.next_input += 1;
        Some(Candidate::upload(&scan, self.next_input - 1).at(node))
    }

    /// The requirement of the query's output order, a node above its last sort. It joins the part below if that part
    /// keeps the order, so that a limit above can join, too.
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

    /// The node stays on the host. Parts below it are finished.
    fn keep(&mut self, node: &Arc<dyn ExecutionPlan>) -> Result<Outcome> {
        let mut children = vec![];
        for child in node.children() {
            let outcome = self.visit(child)?;
            children.push(self.close(outcome)?);
        }
        Ok(Outcome::Host(replace_children_if_necessary(Arc::clone(node), children)?))
    }

    /// The node stays on the host, above `children` that were already visited.
    fn keep_over(&mut self, node: &Arc<dyn ExecutionPlan>, children: Vec<Outcome>) -> Result<Outcome> {
        let children = children.into_iter().map(|child| self.close(child)).collect::<Result<_>>()?;
        Ok(Outcome::Host(replace_children_if_necessary(Arc::clone(node), children)?))
    }

    fn decline(&mut self, node: &Arc<dyn ExecutionPlan>, reason: Reason) {
        self.declined.push(Declined { node: Arc::clone(node), reason });
    }

    /// The candidate of an operator's input. Rows of the host are uploaded.
    fn input(&mut self, outcome: &Outcome) -> Result<Candidate, Reason> {
        match outcome {
            Outcome::Device(candidate) => Ok((**candidate).clone()),
            Outcome::Host(plan) => {
                if plan.boundedness().is_unbounded() {
                    return Err(Reason::Node(format!("unbounded {}", plan.name())));
                }
                for field in plan.schema().fields() {
                    check_type(field.data_type())?;
                }
                self.next_input += 1;
                Ok(Candidate::upload(plan, self.next_input - 1))
            }
        }
    }

    /// As [`Self::input`], for nodes that justify an upload only with `offloads_all`.
    fn input_if_offloading_all(&mut self, outcome: Outcome) -> Outcome {
        if self.offloads_all
            && let Outcome::Host(plan) = &outcome
            && !plan.is::<DeviceScanExec>()
            && reads_tables(plan)
            && let Ok(candidate) = self.input(&outcome)
        {
            return Outcome::Device(Box::new(candidate));
        }
        outcome
    }

    /// Finishes a part: returns its device node, or the original nodes if the part stays on the CPU.
    fn close(&mut self, outcome: Outcome) -> Result<Arc<dyn ExecutionPlan>> {
        let candidate = match outcome {
            Outcome::Host(plan) => return Ok(plan),
            Outcome::Device(candidate) => candidate,
        };
        if !candidate.is_worth_a_node(self.offloads_all) {
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

/// The input of a node that only moves rows between partitions or tasks. The matcher ignores such nodes.
fn input_of_transparent(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
        return Some(repartition.input());
    }
    if let Some(coalesce) = node.downcast_ref::<CoalescePartitionsExec>() {
        return coalesce.fetch().is_none().then(|| coalesce.input());
    }
    node.downcast_ref::<CooperativeExec>().map(|cooperative| cooperative.input())
}

/// Skips transparent nodes.
fn skip_transparent(node: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    let mut node = node;
    while let Some(input) = input_of_transparent(node) {
        node = input;
    }
    node
}
