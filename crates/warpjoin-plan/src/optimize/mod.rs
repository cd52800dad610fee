//! Plans again for devices: the order of joins and their build sides, tables that drop rows elsewhere, and plans that
//! occur several times.
//!
//! A plan comes in as DataFusion or a caller made it, and goes out with the same rows. What is chosen rests on estimates
//! (`estimate.rs`) from what tables know and from samples of them (`measure.rs`). Must not know DataFusion, nor how a
//! pipeline is run.
//!
//! Architecture invariant: an optimized plan has the rows and the errors of the one that was given, whatever was
//! estimated. What may fail is not moved (`safety.rs`).

mod compact;
pub mod costs;
mod eager;
mod estimate;
mod extremes;
mod filter_tables;
mod filters;
mod late;
mod measure;
mod order;
mod outer;
mod pipelines;
mod ranks;
mod reduce;
mod safety;
mod share;

use std::sync::Arc;
use std::time::Instant;

use warpjoin_columns::{DeviceSet, Result, Table};

use crate::options::{ExecOptions, JoinOrder, RuntimeFilters};
use crate::plan::rewrite::{rewrite_aggregates, rewrite_full_joins, rewrite_not_in};
use crate::plan::{InputTables, Plan};
pub use compact::COMPACTED_ROWS_MIN;
use costs::Costs;
pub use order::Orders;
use order::{Graph, Planner, Tree, rebuild, shape_of};
pub use pipelines::pipelines;
pub use share::share_between;

/// An order is changed where the other one costs less than this share of it.
const PLAIN_GAIN: f64 = 0.8;

/// An order that was chosen before stays up to so many times the best one's cost: its kernels are there.
const KNOWN_COST_MAX: f64 = 1.3;

/// A plan for devices.
#[derive(Debug)]
pub struct Optimized {
    pub plan: Plan,
    /// What was changed, a line each.
    pub notes: Vec<String>,
    pub elapsed_ns: u64,
}

/// Plans again for `devices`. `inputs` are those that are there, `orders` those that were chosen before.
///
/// # Errors
/// Internal ones, for aggregates that no check of a plan lets through.
pub fn optimize(
    plan: &Plan,
    inputs: &[Arc<Table>],
    devices: &DeviceSet,
    orders: &Orders,
    options: &ExecOptions,
) -> Result<Optimized> {
    let started = Instant::now();
    let mut optimizer = Optimizer { inputs, orders, options, costs: Costs::of(devices), notes: vec![] };
    let mut optimized = match options.join_order {
        JoinOrder::AsGiven => plan.clone(),
        JoinOrder::Auto | JoinOrder::Seeded(_) => {
            let always = matches!(options.join_order, JoinOrder::Seeded(_));
            eager::place(optimizer.reorder(plan), inputs, always, &mut optimizer.notes)
        }
    };
    if options.share_subplans {
        optimized = share::share(optimized, inputs, &mut optimizer.notes);
    }
    if options.runtime_filters != RuntimeFilters::Off {
        optimized = filters::place(optimized, inputs, optimizer.costs, options.runtime_filters, &mut optimizer.notes);
    }
    if options.share_subplans {
        optimized = share::share_tables(optimized, inputs, &mut optimizer.notes);
    }
    optimized = ranks::place(optimized, InputTables(inputs), options.ranked_rows_min, &mut optimizer.notes);
    optimized = rewrite_aggregates(optimized, InputTables(inputs))?;
    // Nothing behind this has to look through row numbers but what rewrites joins.
    let context = late::Context { inputs, devices, options, costs: optimizer.costs };
    optimized = late::place(optimized, context, &mut optimizer.notes);
    optimized = outer::place(optimized, inputs, options.swapped_matches_min, &mut optimizer.notes);
    optimized = rewrite_full_joins(optimized);
    optimized = reduce::place(optimized, InputTables(inputs), options.reduced_rows_min, &mut optimizer.notes);
    // Of build sides as they are by now.
    optimized = extremes::place(optimized, InputTables(inputs), options.extremes_rows_min, &mut optimizer.notes);
    // What it becomes asks whether the build side has rows, and a reduced one may have none.
    optimized = rewrite_not_in(optimized);
    optimized = compact::place(optimized, inputs, devices.devices().len(), options.compact_rows_min);
    let elapsed_ns = started.elapsed().as_nanos() as u64;
    Ok(Optimized { plan: optimized, notes: optimizer.notes, elapsed_ns })
}

/// Rows that a plan is expected to put out.
pub fn expected_rows(plan: &Plan, inputs: &[Arc<Table>]) -> f64 {
    estimate::estimate(plan, inputs).rows
}

struct Optimizer<'a> {
    inputs: &'a [Arc<Table>],
    orders: &'a Orders,
    options: &'a ExecOptions,
    costs: Costs,
    notes: Vec<String>,
}

impl Optimizer<'_> {
    /// The plan with its joins in another order where that is plainly better.
    fn reorder(&mut self, plan: &Plan) -> Plan {
        let notes = self.notes.len();
        let inputs = self.inputs;
        let flat = Graph::of(plan, inputs, &mut |relation| self.reorder(relation));
        let Some((graph, output, given)) = flat else {
            self.notes.truncate(notes);
            return self.reorder_inputs(plan);
        };
        let order = self.choose(&graph, &output, &given);
        rebuild(&graph, &order, &output, plan).unwrap_or_else(|| self.reorder_inputs(plan))
    }

    fn choose(&mut self, graph: &Graph, output: &[usize], given: &Tree) -> Tree {
        let seed = match self.options.join_order {
            JoinOrder::Seeded(seed) => Some(seed),
            _ => None,
        };
        let planner = Planner::new(graph, output, self.costs, seed);
        let (Some((best, best_ps)), Some(given_ps)) = (planner.best(), planner.cost(given)) else {
            return given.clone();
        };
        if log::log_enabled!(log::Level::Debug) {
            log::debug!("{}: {:.1} us", describe(graph, given, &planner), given_ps / 1e6);
            log::debug!("{}: {:.1} us", describe(graph, &best, &planner), best_ps / 1e6);
        }
        let (chosen, chosen_ps) = match seed {
            Some(_) => (best, best_ps),
            None => self.settle(graph, &planner, (best, best_ps), (given, given_ps)),
        };
        if chosen != *given {
            self.notes.push(format!(
                "join order: {} chosen on the device (estimated {:.1} us), was {} ({:.1} us)",
                describe(graph, &chosen, &planner),
                chosen_ps / 1e6,
                describe(graph, given, &planner),
                given_ps / 1e6,
            ));
        }
        chosen
    }

    /// The best order where it is plainly better than the one that was given; but the one of before if that is not much
    /// worse.
    fn settle(
        &self,
        graph: &Graph,
        planner: &Planner<'_>,
        (best, best_ps): (Tree, f64),
        (given, given_ps): (&Tree, f64),
    ) -> (Tree, f64) {
        let shape = shape_of(graph);
        if let Some(known) = self.orders.get(&shape)
            && known.set() == given.set()
            && let Some(known_ps) = planner.cost(&known)
            && known_ps <= best_ps * KNOWN_COST_MAX + self.costs.gain_ps_min()
        {
            return (known, known_ps);
        }
        let is_better = best_ps < given_ps * PLAIN_GAIN && given_ps - best_ps > self.costs.gain_ps_min();
        let (chosen, chosen_ps) = if is_better { (best, best_ps) } else { (given.clone(), given_ps) };
        self.orders.put(shape, chosen.clone());
        (chosen, chosen_ps)
    }

    fn reorder_inputs(&mut self, plan: &Plan) -> Plan {
        plan.clone().map_inputs(&mut |input| self.reorder(&input))
    }
}

/// An order in words: the relation that probes, then each table in brackets, in the order in which they are probed.
fn describe(graph: &Graph, tree: &Tree, planner: &Planner<'_>) -> String {
    match tree {
        Tree::Relation(relation) => {
            let node = &graph.relations[*relation];
            let name = node.plan.first_column();
            format!("{name}:{}", node.estimate.rows.round())
        }
        Tree::Join(sides) => {
            let rows = planner.rows(tree.set()).round();
            format!("{} x [{}] = {rows}", describe(graph, &sides.1, planner), describe(graph, &sides.0, planner))
        }
    }
}
