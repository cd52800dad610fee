//! What is known of tables that may be shared, and what a runtime filter by one of them saves.
//!
//! Must not know where filters go (`filters.rs`), but for those in front of a join's own probe.

use super::costs::{BuildSide, PARTITIONED_PROBE_PS};
use super::estimate::{ColumnEstimate, Estimate, estimate, match_share, stored_bytes};
use super::filters::{FilterCandidate, Placing, column_expr, column_keys, marked};
use crate::plan::{FilterForm, JoinPlan, Mark, Plan, PlanKind, ReductionTest};

/// Minimum saving of a filter, as a multiple of its cost.
const GAIN_MIN: f64 = 1.25;
/// Minimum probe rows for each row of a table for a probe of it to pay off.
const TABLE_RATIO_MIN: f64 = 4.0;
/// Share of rows without a match that a Bloom filter lets pass at most.
const FALSE_SHARE: f64 = 0.035;
/// Maximum share of the known key range that the remaining keys span for bounds to be tested: before a filter, and
/// before a table.
const BOUNDS_SHARE_MAX: (f64, f64) = (0.9, 0.5);

/// A table that may be shared.
pub(super) struct TableFacts {
    pub rows: f64,
    keys: Vec<ColumnEstimate>,
    /// Share of probe rows that go on.
    pub kept: f64,
    /// Whether no key has two rows in it.
    unique: bool,
    /// Whether that is known of a column: else how many values there are, and so what matches, is a rough guess.
    is_key: bool,
    payload_bytes: f64,
    /// Share of what the only key can span that the rows in it have, if that is known.
    span_left: Option<f64>,
    pub name: String,
}

impl TableFacts {
    /// Of a join's build side, by these pairs of columns; `matches` are the rows of the join for each of the probe side.
    pub(super) fn of(join: &JoinPlan, keys: &[(usize, usize)], build: &Estimate, matches: f64) -> Self {
        let width = join.build.schema.fields().len();
        let payload = join.needed_columns().into_iter().filter(|&column| column < width);
        let is_set = join.kind.is_existence() && join.residual.is_none();
        let is_key = keys.iter().any(|&(column, _)| build.columns[column].unique);
        Self {
            rows: build.rows,
            keys: keys.iter().map(|&(column, _)| build.columns[column]).collect(),
            kept: matches.min(1.0),
            unique: is_set || is_key || keys.len() > 1,
            is_key,
            payload_bytes: payload.map(|column| stored_bytes(join.build.schema.field(column).data_type())).sum(),
            span_left: if let [(column, _)] = keys { build.span_left(*column) } else { None },
            name: join.build.first_column(),
        }
    }

    pub(super) fn side(&self) -> BuildSide {
        let span = if let [key] = self.keys.as_slice() { key.span } else { None };
        let (unique, payload_bytes) = (self.unique, self.payload_bytes);
        BuildSide { rows: self.rows, unique, span, sorted: false, payload_bytes }
    }

    /// Whether rows may be missing beyond the lowest and the highest key that is left.
    fn may_be_narrow(&self, form: FilterForm, saved_ps: f64, launch_ps: f64) -> bool {
        let [key] = self.keys.as_slice() else { return false };
        let is_filtered = key.span.is_some() && self.rows < key.base_rows;
        let share = self.span_left;
        is_filtered
            && match form {
                FilterForm::Table => {
                    share.is_some_and(|share| share < BOUNDS_SHARE_MAX.1 && saved_ps * (1.0 - share) > 2.0 * launch_ps)
                }
                FilterForm::Bitmap | FilterForm::Bloom => share.is_none_or(|share| share < BOUNDS_SHARE_MAX.0),
            }
    }
}

/// What a candidate is worth at a place.
pub(super) struct Gain {
    /// Share of rows that is left.
    pub share: f64,
    pub gain_ps: f64,
    pub test: ReductionTest,
}

impl Placing<'_> {
    /// Puts a filter in front of the join's own probe, where most rows match nothing, and the filter is faster than the table.
    pub(super) fn screen(&mut self, join: &mut JoinPlan, number: usize) {
        let Some(keys) = column_keys(join) else { return };
        let table = &self.tables[number];
        let side = table.side();
        let form = match self.filters.form() {
            Some(FilterForm::Table) => return,
            Some(form) => Some(form),
            None if !table.is_key => return,
            None => None,
        };
        let probe = estimate(&join.probe, self.inputs);
        let is_ordered = matches!(keys.as_slice(), [(_, column)] if probe.columns[*column].sorted);
        let (chosen, filter_ps) = self.costs.filter(&side, probe.rows, is_ordered);
        if form.is_none() {
            let mut lookup_ps = self.costs.filtered_ps(&side, is_ordered);
            if is_whole(&join.build) && is_whole(&join.probe) {
                lookup_ps = lookup_ps.min(PARTITIONED_PROBE_PS);
            }
            let before_ps = probe.rows * lookup_ps;
            let left = (table.kept + FALSE_SHARE).min(1.0);
            let after_ps = filter_ps + before_ps * left;
            let is_copied = table.rows * TABLE_RATIO_MIN.max(self.costs.copies()) <= probe.rows;
            let is_better = before_ps > after_ps * GAIN_MIN && before_ps - after_ps > self.costs.gain_ps_min();
            if chosen == FilterForm::Table || !is_copied || !is_better {
                return;
            }
        }
        let form = form.unwrap_or(chosen);
        let has_bounds = self.filters.is_always() || table.may_be_narrow(form, 0.0, 0.0);
        let test = ReductionTest {
            form,
            has_bounds,
            rows: probe.rows as u64,
            is_ordered,
            left: (probe.rows * table.kept) as u64,
        };
        self.notes.push(format!(
            "runtime filter: table {number} of {}:{} drops rows of {}:{} before they probe it, about {} are left, by {test}",
            table.name,
            table.rows.round(),
            join.probe.first_column(),
            probe.rows.round(),
            (probe.rows * table.kept).round(),
        ));
        self.used.insert(number);
        let keys = keys.iter().map(|&(_, column)| column_expr(&join.probe, column)).collect();
        join.probe.replace(|probe| marked(probe, Mark::Reduced { table: number, keys, test }));
    }

    /// What is saved where a table drops `rows` rows by these columns.
    pub(super) fn gain(&self, candidate: &FilterCandidate, rows: f64, columns: &[ColumnEstimate]) -> Gain {
        let table = &self.tables[candidate.table];
        let pairs: Vec<_> = table.keys.iter().copied().zip(columns.iter().copied()).collect();
        // As if each key was in the table once.
        let distinct = match table.keys.as_slice() {
            [key] => key.distinct_among(table.rows),
            _ => table.rows,
        };
        let share = (distinct * match_share(&pairs)).min(1.0);
        let is_ordered = matches!(columns, [column] if column.sorted);
        let side = table.side();
        let (chosen, cost_ps) = self.costs.filter(&side, rows, is_ordered);
        let form = self.filters.form().unwrap_or(chosen);
        let lookups_ps = rows * self.costs.lookup_ps(&side, is_ordered);
        let has_bounds = self.filters.is_always() || table.may_be_narrow(form, lookups_ps, self.costs.launch_ps());
        let test = ReductionTest { form, has_bounds, rows: rows as u64, is_ordered, left: (rows * share) as u64 };
        let saved_ps = rows * (1.0 - share) * candidate.row_ps.unwrap_or(0.0);
        let is_worth = table.rows * TABLE_RATIO_MIN <= rows && saved_ps > cost_ps * GAIN_MIN;
        Gain { share, gain_ps: if is_worth { saved_ps - cost_ps } else { 0.0 }, test }
    }
}

/// Whether all rows of a table are read.
fn is_whole(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Scan { .. } | PlanKind::Input { .. } => true,
        PlanKind::Project { input, .. } | PlanKind::Marked { input, mark: Mark::SharedBuild(_) } => is_whole(input),
        _ => false,
    }
}
