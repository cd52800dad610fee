//! Late materialization: columns that a plan only carries to where they are put out or first used are left in their
//! table. The row's number travels instead, and the columns are read by it there.
//!
//! `lift.rs` rewrites a plan for a choice of late columns and says what moving columns costs in it, with `join.rs` and
//! `breakers.rs`; `slots.rs` is what it knows of columns on their way. Here the choice is made: table by table, each with the columns for which it pays.
//!
//! Architecture invariant: a row's number stands for all columns of its row, so a group-by takes it for group keys only where
//! one of them is known for certain to be another one for each row of the table.

mod breakers;
mod join;
mod lift;
mod slots;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use warpjoin_columns::column::Domain;
use warpjoin_columns::{DeviceSet, Table};

use super::costs::Costs;
use super::estimate::{ColumnEstimate, Estimate, estimate_node};
use crate::options::{ExecOptions, Materialization};
use crate::plan::{Mark, Plan, PlanKind};
use lift::{Lift, Moved};

/// What late columns save must be so much of what reading them late costs, at least.
const GAIN_MIN: f64 = 0.25;
/// Plans that are looked at.
const TRIALS_MAX: usize = 64;

/// What a choice rests on.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub inputs: &'a [Arc<Table>],
    pub devices: &'a DeviceSet,
    pub options: &'a ExecOptions,
    pub costs: Costs,
}

impl Context<'_> {
    fn is_forced(&self) -> bool {
        self.options.materialization == Materialization::Late
    }

    /// Reading a value of a column of a table at a random row. Most rows are on other devices where there are several.
    fn fetch_ps(&self, table: &Table, column: usize) -> f64 {
        const REMOTE: f64 = 4.0;
        let width_bytes = f64::from(table.column_types()[column].layout().width_bytes);
        let ps = self.costs.random_read_ps(table.rows() as f64 * width_bytes);
        if self.devices.devices().len() > 1 { ps * REMOTE } else { ps }
    }
}

/// A scan in a plan.
struct Scanned {
    table: Arc<Table>,
    /// Rows that are left of it behind filters that stand on it are fewer.
    rows: f64,
}

impl Scanned {
    /// Whether each row has another value, and none is null: known for certain.
    fn is_key(&self, column: usize) -> bool {
        let is_unique = self.table.statistics().get(column).is_some_and(|known| known.unique == Some(true));
        is_unique && !self.table.column_types()[column].has_nulls
    }

    fn can_fetch(&self, column: usize) -> bool {
        self.table.column_types()[column].domain != Domain::Bytes
    }
}

/// What is estimated of a node.
struct Rows {
    rows: f64,
    source_rows: f64,
    columns: Vec<ColumnEstimate>,
}

/// A plan with what is estimated of it.
struct Node<'a> {
    plan: &'a Plan,
    estimate: Rows,
    below: Vec<Node<'a>>,
    /// Number of the scan that it is.
    scan: Option<usize>,
}

impl Node<'_> {
    /// Whether its pipeline looks rows up in a table.
    fn looks_up(&self) -> bool {
        match &self.plan.kind {
            PlanKind::Join(_) | PlanKind::Marked { mark: Mark::Reduced { .. }, .. } => true,
            PlanKind::Filter { .. } | PlanKind::Project { .. } | PlanKind::Fetch(_) | PlanKind::RowNumbers { .. } => {
                self.below.first().is_some_and(Node::looks_up)
            }
            _ => false,
        }
    }
}

/// Goes through a plan and its scans.
struct Nodes<'a> {
    inputs: &'a [Arc<Table>],
    scans: Vec<Scanned>,
    /// Of plans in several places. What is below them belongs to the first place.
    known: HashMap<*const Plan, Estimate>,
}

impl Nodes<'_> {
    fn of<'p>(&mut self, plan: &'p Plan) -> (Node<'p>, Estimate) {
        let address = if let PlanKind::Shared(shared) = &plan.kind { Some(Arc::as_ptr(shared)) } else { None };
        let known = address.and_then(|address| self.known.get(&address)).cloned();
        let (below, of_plan) = match known {
            Some(known) => (vec![], known),
            None => {
                let (below, estimates) = plan.inputs().into_iter().map(|input| self.of(input)).unzip();
                (below, estimate_node(plan, estimates, self.inputs))
            }
        };
        self.known.extend(address.map(|address| (address, of_plan.clone())));
        let (rows, source_rows, columns) = (of_plan.rows, of_plan.source_rows, of_plan.columns.clone());
        let estimate = Rows { rows, source_rows, columns };
        let table = match &plan.kind {
            PlanKind::Scan { table, .. } => Some(table),
            PlanKind::Input { index } => self.inputs.get(*index),
            _ => None,
        };
        let scan = table.map(|table| {
            self.scans.push(Scanned { table: Arc::clone(table), rows: estimate.rows });
            self.scans.len() - 1
        });
        (Node { plan, estimate, below, scan }, of_plan)
    }
}

/// The plan with columns read late where that pays.
pub(super) fn place(plan: Plan, context: Context<'_>, notes: &mut Vec<String>) -> Plan {
    if context.options.materialization == Materialization::Early || !has_breaker(&plan) {
        return plan;
    }
    // Kernels read rows where they are.
    if !context.devices.has_peer_access() {
        return plan;
    }
    let mut nodes = Nodes { inputs: context.inputs, scans: vec![], known: HashMap::new() };
    let (root, _) = nodes.of(&plan);
    let scans = nodes.scans;
    let often = shared_often(&root);
    let choosing = Choosing { context, root: &root, scans: &scans, often: &often };
    let Some(choice) = choosing.choose(notes) else { return plan };
    let (lifted, _) = choosing.lift(&choice, true);
    debug_assert!(lifted.is_some(), "a plan that was to be made");
    lifted.unwrap_or(plan)
}

/// Whether anything is carried: rows are written down before the result.
fn has_breaker(plan: &Plan) -> bool {
    plan.holds(&|plan| {
        matches!(
            plan.kind,
            PlanKind::Join(_) | PlanKind::Aggregate { .. } | PlanKind::Sort { .. } | PlanKind::Window { .. }
        )
    })
}

/// Numbers of tables that several joins probe: their build sides stay equal.
fn shared_often(root: &Node<'_>) -> HashSet<usize> {
    fn visit(node: &Node<'_>, seen: &mut HashSet<usize>, often: &mut HashSet<usize>) {
        if let PlanKind::Join(join) = &node.plan.kind
            && let Some(number) = join.build.shared_build()
            && !seen.insert(number)
        {
            often.insert(number);
        }
        node.below.iter().for_each(|input| visit(input, seen, often));
    }
    let mut often = HashSet::new();
    visit(root, &mut HashSet::new(), &mut often);
    often
}

/// Columns of each scan's table.
type Columns = Vec<BTreeSet<usize>>;

/// Which columns are late: they do not leave the pipeline of their scan.
#[derive(Debug, Clone)]
struct Choice {
    columns: Columns,
    /// Of those, columns that are used in that pipeline, so that the scan reads them. They are forgotten behind it.
    used_at_scan: Columns,
}

struct Choosing<'a> {
    context: Context<'a>,
    root: &'a Node<'a>,
    scans: &'a [Scanned],
    often: &'a HashSet<usize>,
}

impl Choosing<'_> {
    fn lift(&self, choice: &Choice, builds: bool) -> (Option<Plan>, Moved) {
        Lift::new(self.context, self.scans, self.often, choice, builds).run(self.root)
    }

    /// `None`: nothing is late.
    fn choose(&self, notes: &mut Vec<String>) -> Option<Choice> {
        let none: Columns = vec![BTreeSet::new(); self.scans.len()];
        // With everything late it is seen which columns leave the pipeline of their scan.
        let all = |scan: &Scanned| {
            (0..scan.table.column_types().len()).filter(|&column| scan.can_fetch(column)).collect::<BTreeSet<_>>()
        };
        let seen =
            self.lift(&Choice { columns: self.scans.iter().map(all).collect(), used_at_scan: none.clone() }, false).1;
        let candidates = Choice { columns: seen.carried, used_at_scan: seen.used_at_scan };
        if candidates.columns.iter().all(BTreeSet::is_empty) {
            return None;
        }
        if self.context.is_forced() {
            let moved = self.lift(&candidates, false).1;
            notes.extend((0..self.scans.len()).filter_map(|scan| self.note(&candidates, scan, &moved, None)));
            return Some(candidates);
        }
        let mut chosen = Choice { columns: none.clone(), ..candidates.clone() };
        let mut moved = self.lift(&chosen, false).1;
        // No more can be saved than late columns would cost if they were read for nothing.
        let least_gain = self.context.costs.gain_ps_min();
        let bound = |moved: &Moved, found: &Moved| moved.ps - (found.ps - found.fetch_ps + moved.fetch_ps);
        if bound(&moved, &self.lift(&candidates, false).1) < least_gain {
            return None;
        }
        let mut trials = TRIALS_MAX;
        for (scan, carried) in candidates.columns.iter().enumerate() {
            // What is small is soon carried.
            let least = self.scans[scan].rows * self.context.costs.carried_ps_per_row();
            if carried.is_empty() || least < least_gain {
                continue;
            }
            let mut tried = chosen.clone();
            tried.columns[scan].clone_from(carried);
            let found = self.lift(&tried, false).1;
            if bound(&moved, &found) < least_gain {
                continue;
            }
            let (tried, found) = self.without_some(scan, (tried, found), &mut trials);
            let gain = moved.ps - found.ps;
            let price = (found.fetch_ps - moved.fetch_ps).max(0.0);
            if gain > least_gain && gain > price * GAIN_MIN {
                notes.extend(self.note(&tried, scan, &found, Some((moved.ps, found.ps))));
                (chosen, moved) = (tried, found);
            }
        }
        (chosen.columns != none).then_some(chosen)
    }

    /// The columns of a scan for which it pays: without each for which it does not.
    fn without_some(&self, scan: usize, (mut best, mut moved): (Choice, Moved), trials: &mut usize) -> (Choice, Moved) {
        for column in best.columns[scan].clone() {
            if best.columns[scan].len() == 1 || *trials == 0 {
                break;
            }
            *trials -= 1;
            let mut without = best.clone();
            without.columns[scan].remove(&column);
            let found = self.lift(&without, false).1;
            if found.ps < moved.ps {
                (best, moved) = (without, found);
            }
        }
        (best, moved)
    }

    fn note(&self, choice: &Choice, scan: usize, moved: &Moved, costs: Option<(f64, f64)>) -> Option<String> {
        if choice.columns[scan].is_empty() {
            return None;
        }
        let scanned = &self.scans[scan];
        let schema = scanned.table.schema();
        let names: Vec<&str> =
            choice.columns[scan].iter().map(|&column| schema.field(column).name().as_str()).collect();
        let place = match moved.fetched_rows[scan] {
            Some(rows) => format!("by row number where about {rows:.0} rows are left"),
            None => "by row number".to_string(),
        };
        let why = match costs {
            Some((early_ps, late_ps)) => {
                format!("estimated {:.1} us for moving columns, was {:.1} us", late_ps / 1e6, early_ps / 1e6)
            }
            None => "as set".to_string(),
        };
        let remote = if self.context.devices.devices().len() > 1 { ", from the device that has the row" } else { "" };
        let names = names.join(", ");
        Some(format!("late: {names} of {} rows, read {place}{remote} ({why})", scanned.table.rows()))
    }
}
