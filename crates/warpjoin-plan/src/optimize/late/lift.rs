//! Rewrites a plan for a choice of late columns, from the scans up: what a node needs is fetched below it, everything else
//! stays a row number. Says on the way what moving columns costs; with nothing late, what it costs as the plan is.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use warpjoin_columns::expr::{Expr, ExprKind};

use super::slots::{Lifted, Read, RowNumber, Slot, Width};
use super::{Choice, Columns, Context, Node, Scanned};
use crate::plan::{FetchPlan, Mark, Plan, PlanKind, Share, SortKey};

/// What a choice comes to.
#[derive(Debug, Clone, Default)]
pub(super) struct Moved {
    /// Moving columns from where they are to where they are used.
    pub ps: f64,
    /// Of that, carrying row numbers and reading by them.
    pub fetch_ps: f64,
    /// Late columns of each scan that are used behind the pipeline of the scan.
    pub carried: Columns,
    /// Late columns of each scan that are used within it, and were not read there.
    pub used_at_scan: Columns,
    /// Rows for which columns of each scan are read late.
    pub fetched_rows: Vec<Option<f64>>,
}

/// What stands in several places and is made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Once {
    /// The build side of a shared build table.
    Table(usize),
    /// A shared part of the plan.
    Part(Share),
    /// A plan that stands in several places, by its address.
    Plan(*const Plan),
}

/// Rewrites one plan.
pub(super) struct Lift<'a> {
    pub(super) context: Context<'a>,
    pub(super) scans: &'a [Scanned],
    often: &'a HashSet<usize>,
    choice: &'a Choice,
    /// Makes the plan, too.
    pub(super) builds: bool,
    pub(super) moved: Moved,
    shared: HashMap<Once, Lifted>,
    /// Scans whose rows another place has: those numbers follow on the scans'.
    places: Vec<usize>,
}

impl<'a> Lift<'a> {
    pub(super) fn new(
        context: Context<'a>,
        scans: &'a [Scanned],
        often: &'a HashSet<usize>,
        choice: &'a Choice,
        builds: bool,
    ) -> Self {
        let none = vec![BTreeSet::new(); scans.len()];
        let fetched_rows = vec![None; scans.len()];
        let moved = Moved { carried: none.clone(), used_at_scan: none, fetched_rows, ..Moved::default() };
        Self { context, scans, often, choice, builds, moved, shared: HashMap::new(), places: vec![] }
    }

    /// The plan with the columns of the one that was given, and what it costs.
    pub(super) fn run(mut self, root: &Node<'_>) -> (Option<Plan>, Moved) {
        let lifted = self.settled(root);
        let plan = lifted.plan.map(|plan| Plan { schema: Arc::clone(&root.plan.schema), ..plan });
        (plan, self.moved)
    }

    /// A node with all its columns, in order.
    pub(super) fn settled(&mut self, node: &Node<'_>) -> Lifted {
        let mut lifted = self.lift(node);
        let rows = node.estimate.rows;
        let all: Vec<usize> = (0..lifted.slots.len()).collect();
        self.require(&mut lifted, &all);
        all.iter().for_each(|&column| self.read(&mut lifted, column, rows));
        lifted.rows.clear();
        self.tidy(&mut lifted, true);
        lifted.slots.iter_mut().for_each(|slot| slot.origin = None);
        lifted
    }

    pub(super) fn lift(&mut self, node: &Node<'_>) -> Lifted {
        if let Some(scan) = node.scan {
            return self.scan(node, scan);
        }
        let plan = node.plan;
        match &plan.kind {
            PlanKind::Filter { predicate, .. } => {
                let mut below = self.with_columns(node, [predicate]);
                over(&mut below, |below, input| PlanKind::Filter { input, predicate: remapped(predicate, below) });
                below
            }
            PlanKind::Project { exprs, .. } => self.project(node, exprs),
            PlanKind::Join(join) => self.join(node, join),
            PlanKind::Aggregate { group_by, aggregates, .. } => self.aggregate(node, group_by, aggregates),
            PlanKind::Sort { keys, skip, fetch, .. } => self.sort(node, keys, (*skip, *fetch)),
            PlanKind::Limit { skip, fetch, .. } => {
                let mut below = self.lift(&node.below[0]);
                self.write(&mut below, node.estimate.rows);
                let (skip, fetch) = (*skip, *fetch);
                over(&mut below, |_, input| PlanKind::Limit { input, skip, fetch });
                below
            }
            PlanKind::Window { partition_by, order_by, calls, .. } => {
                let keys = order_by.iter().map(|key| &key.expr);
                let read = calls.iter().flat_map(|call| call.argument.iter().chain(&call.default));
                let mut below = self.with_columns(node, partition_by.iter().chain(keys).chain(read));
                self.write(&mut below, node.estimate.rows);
                let first = below.slots.len();
                let own = &plan.schema.fields()[first..];
                self.extend(&mut below, own);
                over(&mut below, |below, input| PlanKind::Window {
                    input,
                    partition_by: partition_by.iter().map(|expr| remapped(expr, below)).collect(),
                    order_by: order_by.iter().map(|key| remapped_key(key, below)).collect(),
                    calls: calls.iter().map(|call| call.map(&mut |expr| remapped(expr, below))).collect(),
                });
                below
            }
            PlanKind::Numbered { .. } => {
                let mut below = self.kept(&node.below[0]);
                let first = below.slots.len();
                self.extend(&mut below, &plan.schema.fields()[first..]);
                over(&mut below, |_, input| PlanKind::Numbered { input });
                below
            }
            PlanKind::Marked { mark: Mark::Reduced { table, keys, test }, .. } => {
                let mut below = self.with_columns(node, keys);
                over(&mut below, |below, input| {
                    let keys = keys.iter().map(|key| remapped(key, below)).collect();
                    PlanKind::Marked { input, mark: Mark::Reduced { table: *table, keys, test: *test } }
                });
                below
            }
            PlanKind::Marked { mark: Mark::Shared(share), .. } => self.once(Once::Part(*share), node),
            PlanKind::Shared(shared) => self.shared(node, Once::Plan(Arc::as_ptr(shared))),
            PlanKind::Marked { mark: Mark::SharedBuild(_), .. } => self.opaque(node),
            _ => self.opaque(node),
        }
    }

    /// A node over inputs that have all their columns.
    fn opaque(&mut self, node: &Node<'_>) -> Lifted {
        let below: Vec<Lifted> = node.below.iter().map(|input| self.settled(input)).collect();
        let plan = self.builds.then(|| {
            let mut inputs = below.into_iter().filter_map(|lifted| lifted.plan);
            node.plan.clone().map_inputs(&mut |input| match inputs.next() {
                Some(lifted) => Plan { schema: input.schema, ..lifted },
                None => input,
            })
        });
        plain(node, plan)
    }

    /// What stands in several places is the same in all.
    pub(super) fn once(&mut self, key: Once, node: &Node<'_>) -> Lifted {
        if let Some(known) = self.shared.get(&key) {
            return known.clone();
        }
        let lifted = self.opaque(node);
        self.shared.insert(key, lifted.clone());
        lifted
    }

    /// The scan of a table, of which another place may have its rows.
    pub(super) fn scanned(&self, scan: usize) -> &Scanned {
        &self.scans[self.own_scan(scan)]
    }

    fn own_scan(&self, scan: usize) -> usize {
        scan.checked_sub(self.scans.len()).map_or(scan, |place| self.places[place])
    }

    /// The same columns as rows of another place: a join of two places has two rows of a scan.
    fn at_another_place(&mut self, mut lifted: Lifted) -> Lifted {
        let mut known = HashMap::new();
        let origins = lifted.slots.iter_mut().filter_map(|slot| slot.origin.as_mut().map(|(scan, _)| scan));
        for scan in origins.chain(lifted.rows.iter_mut().map(|row| &mut row.scan)) {
            let own = scan.checked_sub(self.scans.len()).map_or(*scan, |place| self.places[place]);
            *scan = *known.entry(*scan).or_insert_with(|| {
                self.places.push(own);
                self.scans.len() + self.places.len() - 1
            });
        }
        lifted
    }

    /// A plan that stands in several places, with row numbers for what its readers fetch.
    fn shared(&mut self, node: &Node<'_>, key: Once) -> Lifted {
        if let Some(known) = self.shared.get(&key) {
            let known = known.clone();
            return self.at_another_place(known);
        }
        // The first place has what is below.
        let Some(below) = node.below.first() else { return self.opaque(node) };
        let mut lifted = self.kept(below);
        lifted.plan = lifted.plan.map(Plan::into_shared);
        self.shared.insert(key, lifted.clone());
        lifted
    }

    /// Rows that are read more than once: what is looked up is written down, all else is found again.
    fn kept(&mut self, node: &Node<'_>) -> Lifted {
        let mut lifted = self.lift(node);
        if node.looks_up() {
            self.write(&mut lifted, node.estimate.rows);
        }
        lifted
    }

    fn scan(&mut self, node: &Node<'_>, scan: usize) -> Lifted {
        let Scanned { table, .. } = &self.scans[scan];
        let projection = match &node.plan.kind {
            PlanKind::Scan { projection, .. } => projection.clone(),
            _ => (0..table.column_types().len()).collect(),
        };
        let (late, used) = (&self.choice.columns[scan], &self.choice.used_at_scan[scan]);
        let fields = node.plan.schema.fields();
        let is_kept = |column: &usize| !late.contains(column) || used.contains(column);
        let kept: Vec<usize> = (0..projection.len()).filter(|&at| is_kept(&projection[at])).collect();
        let is_numbered = projection.iter().any(|column| late.contains(column));
        let mut slots: Vec<Slot> = projection
            .iter()
            .map(|&column| {
                let width = Width::of_column(table, column);
                let all_ps = self.context.costs.stream_ps(node.estimate.rows * width.bytes);
                let ps_per_row = self.context.costs.random_read_ps(f64::INFINITY).min(all_ps);
                let read = Read { ps_per_row, all_ps, fetched: None };
                Slot { at: None, origin: Some((scan, column)), width, read }
            })
            .collect();
        kept.iter().enumerate().for_each(|(at, &slot)| slots[slot].at = Some(at));
        let mut lifted = Lifted { plan: None, fields: vec![], slots, rows: vec![] };
        lifted.fields.extend(kept.iter().map(|&slot| Arc::clone(&fields[slot])));
        if self.builds {
            let kept = kept.iter().map(|&slot| projection[slot]).collect();
            let kind = match is_numbered {
                true => PlanKind::Scan { table: Arc::clone(table), projection: kept },
                false => node.plan.kind.clone(),
            };
            lifted.plan = Some(Plan { kind, schema: schema_of(&lifted.fields) });
        }
        if is_numbered {
            let width = Width::of_row_number(table.rows());
            lifted.rows.push(RowNumber { scan, at: lifted.fields.len(), written: 0, width, read: Read::DONE });
            lifted.fields.push(row_field(false));
            over(&mut lifted, |_, input| PlanKind::RowNumbers { input });
        }
        lifted
    }

    fn project(&mut self, node: &Node<'_>, exprs: &[Expr]) -> Lifted {
        let computed = exprs.iter().filter(|expr| !matches!(expr.kind, ExprKind::Column(_)));
        let below = self.with_columns(node, computed);
        let mut slots = vec![];
        let mut made = vec![];
        let mut fields = vec![];
        for (expr, field) in exprs.iter().zip(node.plan.schema.fields()) {
            let slot = match expr.kind {
                ExprKind::Column(column) => below.slots[column].clone(),
                _ => Slot { at: Some(0), origin: None, width: Width::of_type(&expr.data_type), read: Read::DONE },
            };
            let at = slot.at.map(|_| {
                made.extend(self.builds.then(|| remapped(expr, &below)));
                fields.push(Arc::clone(field));
                fields.len() - 1
            });
            slots.push(Slot { at, ..slot });
        }
        let mut lifted = Lifted { plan: below.plan, fields, slots, rows: below.rows };
        self.retain_rows(&mut lifted);
        for row in &mut lifted.rows {
            let field = &below.fields[row.at];
            made.push(Expr::column(row.at, DataType::UInt64, field.is_nullable()));
            lifted.fields.push(Arc::clone(field));
            row.at = lifted.fields.len() - 1;
        }
        over(&mut lifted, |_, input| PlanKind::Project { input, exprs: made });
        lifted
    }

    /// The node's input with what these expressions read, which is read there.
    pub(super) fn with_columns<'e>(&mut self, node: &Node<'_>, exprs: impl IntoIterator<Item = &'e Expr>) -> Lifted {
        let mut lifted = self.lift(&node.below[0]);
        self.need(&mut lifted, exprs, node.below[0].estimate.rows);
        lifted
    }

    /// Has what these expressions read, which is read for so many rows.
    pub(super) fn need<'e>(&mut self, lifted: &mut Lifted, exprs: impl IntoIterator<Item = &'e Expr>, rows: f64) {
        let mut columns = BTreeSet::new();
        exprs.into_iter().for_each(|expr| expr.visit_columns(&mut |column| columns.extend([column])));
        let columns: Vec<usize> = columns.into_iter().collect();
        self.require(lifted, &columns);
        columns.iter().for_each(|&column| self.read(lifted, column, rows));
    }

    /// Pays for reading a column that is there.
    pub(super) fn read(&mut self, lifted: &mut Lifted, column: usize, rows: f64) {
        let slot = &mut lifted.slots[column];
        let Some(at) = slot.at else { return };
        let (read, ps) = (slot.read, slot.read.ps(rows));
        self.moved.ps += ps;
        if let Some(scan) = read.fetched {
            self.moved.fetch_ps += ps;
            self.moved.fetched_rows[scan] = Some(rows);
        }
        // Others may be the same column.
        for slot in lifted.slots.iter_mut().filter(|slot| slot.at == Some(at)) {
            slot.read = Read::DONE;
        }
    }

    /// Fetches those of the columns that are late.
    pub(super) fn require(&mut self, lifted: &mut Lifted, columns: &[usize]) {
        let mut wanted: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for slot in columns.iter().map(|&column| &lifted.slots[column]).filter(|slot| slot.at.is_none()) {
            if let Some((scan, column)) = slot.origin {
                wanted.entry(scan).or_default().insert(column);
            }
        }
        for (scan, columns) in wanted {
            self.fetch(lifted, scan, columns.into_iter().collect());
        }
        self.retain_rows(lifted);
    }

    fn fetch(&mut self, lifted: &mut Lifted, scan: usize, columns: Vec<usize>) {
        let Some(row) = lifted.rows.iter().find(|row| row.scan == scan).copied() else { return };
        let own = self.own_scan(scan);
        let table = &self.scans[own].table;
        let schema = table.schema();
        let is_nullable = lifted.fields[row.at].is_nullable();
        for (index, &column) in columns.iter().enumerate() {
            // The row's number is read once.
            let number_ps = if index == 0 { row.read.ps_per_row } else { 0.0 };
            let ps_per_row = number_ps + self.context.fetch_ps(table, column);
            let read = Read { fetched: Some(own), ..Read::by_row(ps_per_row) };
            let at = Some(lifted.fields.len());
            for slot in lifted.slots.iter_mut().filter(|slot| slot.at.is_none() && slot.origin == Some((scan, column)))
            {
                (slot.at, slot.read) = (at, read);
            }
            let field = schema.field(column);
            let is_nullable = is_nullable || field.is_nullable();
            lifted.fields.push(Arc::new(field.clone().with_nullable(is_nullable)));
            let moved = &mut self.moved;
            let seen = if row.written == 0 { &mut moved.used_at_scan } else { &mut moved.carried };
            seen[own].insert(column);
        }
        let table = Arc::clone(table);
        if let Some(input) = lifted.plan.take() {
            let kind = PlanKind::Fetch(Box::new(FetchPlan { input, table, row: row.at, columns }));
            lifted.plan = Some(Plan { kind, schema: schema_of(&lifted.fields) });
        }
    }

    /// Lets go numbers of rows of which no column is late, nor will be.
    pub(super) fn retain_rows(&self, lifted: &mut Lifted) {
        let (slots, columns) = (&lifted.slots, &self.choice.columns);
        let is_late = |scan: usize, slot: &Slot| {
            slot.origin.is_some_and(|(of, column)| {
                of == scan && (slot.at.is_none() || columns[self.own_scan(of)].contains(&column))
            })
        };
        lifted.rows.retain(|row| slots.iter().any(|slot| is_late(row.scan, slot)));
    }

    /// Leaves what goes on where all columns are written down.
    pub(super) fn let_go(&mut self, lifted: &mut Lifted) {
        let slots = &lifted.slots;
        let is_late = |scan: usize| {
            slots.iter().any(|slot| slot.at.is_none() && slot.origin.is_some_and(|origin| origin.0 == scan))
        };
        lifted.rows.retain(|row| is_late(row.scan));
        self.tidy(lifted, false);
    }

    /// Lets go late columns that were read for their own pipeline, which ends here; but those that `keeps` says.
    pub(super) fn forget(&self, lifted: &mut Lifted, keeps: impl Fn(usize) -> bool) {
        for (index, slot) in lifted.slots.iter_mut().enumerate() {
            let Some((scan, column)) = slot.origin else { continue };
            let is_numbered = lifted.rows.iter().any(|row| row.scan == scan);
            if is_numbered && self.choice.columns[self.own_scan(scan)].contains(&column) && !keeps(index) {
                slot.at = None;
            }
        }
    }

    /// Leaves only the columns that were asked for, in order where `is_exact`, and the row numbers of late ones.
    pub(super) fn tidy(&mut self, lifted: &mut Lifted, is_exact: bool) {
        let mut wanted: Vec<usize> = lifted.slots.iter().filter_map(|slot| slot.at).collect();
        if !is_exact {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let columns = wanted.len();
        wanted.extend(lifted.rows.iter().map(|row| row.at));
        if wanted.iter().copied().eq(0..lifted.fields.len()) {
            return;
        }
        let exprs = wanted.iter().map(|&at| {
            let field = &lifted.fields[at];
            Expr::column(at, field.data_type().clone(), field.is_nullable())
        });
        let exprs: Vec<Expr> = exprs.collect();
        let fields = wanted.iter().map(|&at| Arc::clone(&lifted.fields[at])).collect();
        for (index, slot) in lifted.slots.iter_mut().enumerate() {
            slot.at = slot.at.and_then(|at| match is_exact {
                true => Some(index),
                false => wanted[..columns].iter().position(|&wanted| wanted == at),
            });
        }
        for (index, row) in lifted.rows.iter_mut().enumerate() {
            row.at = columns + index;
        }
        lifted.fields = fields;
        over(lifted, |_, input| PlanKind::Project { input, exprs });
    }

    /// Columns that a node adds behind those of its input.
    pub(super) fn extend(&mut self, lifted: &mut Lifted, fields: &[FieldRef]) {
        for field in fields {
            let width = Width::of_type(field.data_type());
            let read = Read::by_row(self.context.costs.stream_ps(width.bytes));
            lifted.slots.push(Slot { at: Some(lifted.fields.len()), origin: None, width, read });
            lifted.fields.push(Arc::clone(field));
        }
    }

    /// Whether several joins probe a table, so that all of them make the same one.
    pub(super) fn is_shared_table(&self, number: usize) -> bool {
        self.often.contains(&number)
    }
}

/// Puts a node on what was rewritten, where the plan is made, with the fields there are.
pub(super) fn over(lifted: &mut Lifted, node: impl FnOnce(&Lifted, Box<Plan>) -> PlanKind) {
    if let Some(input) = lifted.plan.take() {
        let kind = node(lifted, Box::new(input));
        lifted.plan = Some(Plan { kind, schema: schema_of(&lifted.fields) });
    }
}

/// A node as it was, whose columns are there.
fn plain(node: &Node<'_>, plan: Option<Plan>) -> Lifted {
    let fields: Vec<FieldRef> = node.plan.schema.fields().iter().cloned().collect();
    let slots = fields.iter().enumerate().map(|(index, field)| {
        let width = Width::of_type(field.data_type());
        Slot { at: Some(index), origin: None, width, read: Read::DONE }
    });
    Lifted { plan, slots: slots.collect(), fields, rows: vec![] }
}

/// An expression over the columns that were asked for as one over those of the rewritten node.
pub(super) fn remapped(expr: &Expr, lifted: &Lifted) -> Expr {
    expr.remap(&|column| lifted.at(column))
}

pub(super) fn remapped_key(key: &SortKey, lifted: &Lifted) -> SortKey {
    SortKey { expr: remapped(&key.expr, lifted), ..*key }
}

pub(super) fn row_field(is_nullable: bool) -> FieldRef {
    Arc::new(Field::new("row", DataType::UInt64, is_nullable))
}

pub(super) fn schema_of(fields: &[FieldRef]) -> Arc<Schema> {
    Arc::new(Schema::new(fields.to_vec()))
}
