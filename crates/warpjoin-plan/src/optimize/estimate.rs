//! How many rows a plan puts out, and how many different values its columns have.
//!
//! Estimates choose; a plan is right whatever they say.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_columns::Table;
use warpjoin_columns::column::Domain;
use warpjoin_columns::expr::{CompareOp, Expr, ExprKind};

use super::measure::SampleView;
use crate::plan::{JoinKind, JoinPlan, Plan, PlanKind};

/// Share of rows that a condition keeps of which nothing is known.
const UNKNOWN_SHARE: f64 = 0.33;
/// The same of an equality.
const EQUALITY_SHARE: f64 = 0.1;
/// Rows of an input that is not there yet.
const UNKNOWN_ROWS: f64 = 1e6;

/// What is supposed of the rows of a plan.
#[derive(Debug, Clone)]
pub(super) struct Estimate {
    pub rows: f64,
    /// Rows that a pipeline goes over for them.
    pub source_rows: f64,
    pub columns: Vec<ColumnEstimate>,
    /// The sample behind a chain of filters and projections of a table.
    view: Option<SampleView>,
    /// Share that conditions keep which the sample can't tell.
    guessed: f64,
}

/// What is supposed of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnEstimate {
    /// Different values before filters.
    pub distinct: f64,
    /// There may be fewer: nothing tells.
    pub unsure: bool,
    /// Rows before filters.
    pub base_rows: f64,
    /// No value occurs twice.
    pub unique: bool,
    /// Rows come in its order.
    pub sorted: bool,
    /// How far its values can be apart; `None`: unknown.
    pub span: Option<f64>,
}

/// Different values of a sample that are so much of what there can be may as well be fewer.
const SURE_SHARE: f64 = 0.9;

impl ColumnEstimate {
    fn unknown(rows: f64) -> Self {
        Self { distinct: rows.max(1.0), unsure: true, base_rows: rows, unique: false, sorted: false, span: None }
    }

    /// Different values that are left of it among `rows` rows.
    pub(super) fn distinct_among(&self, rows: f64) -> f64 {
        distinct_left(self.distinct, self.base_rows, rows)
    }
}

/// Different values of `distinct` that are left of `base_rows` rows when `rows` of them are kept.
pub(super) fn distinct_left(distinct: f64, base_rows: f64, rows: f64) -> f64 {
    if base_rows <= 0.0 || rows >= base_rows {
        return distinct.min(rows).max(1.0);
    }
    let per_value = (base_rows / distinct.max(1.0)).max(1.0);
    let kept = 1.0 - (1.0 - rows / base_rows).powf(per_value);
    (distinct * kept).min(rows).max(1.0)
}

/// Estimates a plan; `inputs` are those that are there.
pub(super) fn estimate(plan: &Plan, inputs: &[Arc<Table>]) -> Estimate {
    estimate_once(plan, inputs, &mut HashMap::new())
}

/// The same, with what is known of plans in several places: each is gone through once.
fn estimate_once(plan: &Plan, inputs: &[Arc<Table>], known: &mut HashMap<*const Plan, Estimate>) -> Estimate {
    if let PlanKind::Shared(shared) = &plan.kind {
        let address = Arc::as_ptr(shared);
        if let Some(known) = known.get(&address) {
            return known.clone();
        }
        let estimate = estimate_once(shared, inputs, known);
        known.insert(address, estimate.clone());
        return estimate;
    }
    let below = plan.inputs().into_iter().map(|input| estimate_once(input, inputs, known)).collect();
    estimate_node(plan, below, inputs)
}

/// Estimates a node whose inputs were estimated.
pub(super) fn estimate_node(plan: &Plan, below: Vec<Estimate>, inputs: &[Arc<Table>]) -> Estimate {
    let mut below = below.into_iter();
    match (&plan.kind, below.next(), below.next()) {
        (PlanKind::Scan { table, projection }, ..) => of_table(table, projection),
        (PlanKind::Input { index }, ..) => match inputs.get(*index) {
            Some(table) => of_table(table, &(0..table.column_types().len()).collect::<Vec<_>>()),
            None => of_unknown(plan, UNKNOWN_ROWS),
        },
        (PlanKind::Filter { predicate, .. }, Some(input), _) => input.filter(predicate),
        (PlanKind::Project { exprs, .. }, Some(input), _) => input.project(exprs),
        (PlanKind::Join(join), Some(build), Some(probe)) => of_join(join, &build, &probe),
        (PlanKind::Aggregate { group_by, aggregates, .. }, Some(input), _) => {
            of_groups(&input, group_by, aggregates.len())
        }
        (PlanKind::Sort { fetch, .. } | PlanKind::Limit { fetch, .. }, Some(input), _) => match fetch {
            Some(fetch) => of_unknown(plan, input.rows.min(*fetch as f64)),
            None => input,
        },
        (PlanKind::Union { .. }, first, second) => {
            of_unknown(plan, first.into_iter().chain(second).chain(below).map(|input| input.rows).sum())
        }
        (PlanKind::GroupingSets { .. } | PlanKind::Window { .. }, Some(input), _) => of_unknown(plan, input.rows),
        (PlanKind::Marked { .. } | PlanKind::Shared(_), Some(input), _) => input,
        (PlanKind::RowNumbers { .. } | PlanKind::Numbered { .. }, Some(mut input), _) => {
            let rows = input.rows;
            let number =
                ColumnEstimate { unique: true, sorted: true, span: Some(rows), ..ColumnEstimate::unknown(rows) };
            input.columns.push(number);
            // The sample does not have it.
            input.view = input.view.map(|mut view| {
                view.columns.push(None);
                view
            });
            input
        }
        (PlanKind::Fetch(fetch), Some(mut input), _) => {
            input.columns.extend(
                of_table(&fetch.table, &fetch.columns).columns.into_iter().map(|column| ColumnEstimate {
                    unique: false,
                    sorted: false,
                    ..column
                }),
            );
            input.view = None;
            input
        }
        (PlanKind::HasRows { .. }, Some(input), _) => Estimate {
            columns: input.columns.iter().copied().chain([ColumnEstimate::unknown(1.0)]).collect(),
            view: None,
            ..input
        },
        _ => of_unknown(plan, UNKNOWN_ROWS),
    }
}

fn of_unknown(plan: &Plan, rows: f64) -> Estimate {
    let columns = vec![ColumnEstimate::unknown(rows); plan.schema.fields().len()];
    Estimate { rows, source_rows: rows, columns, view: None, guessed: 1.0 }
}

fn of_table(table: &Arc<Table>, projection: &[usize]) -> Estimate {
    let rows = table.rows() as f64;
    let column = |&index: &usize| {
        let statistics = &table.statistics()[index];
        let span = match table.column_types()[index].domain {
            Domain::Int { min, max } => Some(max.wrapping_sub(min) as u128 as f64 + 1.0),
            _ => None,
        };
        let unique = statistics.unique == Some(true);
        let sampled = || table.sample().and_then(|sample| sample.distinct(index, table.rows()));
        let distinct = match statistics.distinct {
            _ if unique => rows,
            Some(distinct) => distinct as f64,
            None => sampled().unwrap_or(rows).min(span.unwrap_or(rows)),
        };
        let distinct = distinct.min(rows).max(1.0);
        // A sample without a value that occurs twice says little of a large table.
        let unsure =
            !unique && statistics.distinct.is_none() && distinct >= span.unwrap_or(rows).min(rows) * SURE_SHARE;
        ColumnEstimate { distinct, unsure, base_rows: rows, unique, sorted: statistics.sorted, span }
    };
    let columns = projection.iter().map(column).collect();
    Estimate { rows, source_rows: rows, columns, view: SampleView::new(table, projection), guessed: 1.0 }
}

impl Estimate {
    /// After a filter.
    fn filter(mut self, predicate: &Expr) -> Self {
        let mut conditions = vec![];
        predicate.add_conjuncts(&mut conditions);
        for condition in conditions {
            if self.view.as_mut().is_none_or(|view| view.filter(condition).is_none()) {
                self.guessed *= guessed_share(condition);
                self.rows *= guessed_share(condition);
            }
        }
        if let Some(view) = &self.view {
            let (left, all) = view.counts();
            // Of a sample of all rows the share is exact; of others a row not seen may be there.
            let is_whole = all >= view.table.rows() as f64;
            let share = if is_whole || left == all { left / all.max(1.0) } else { (left + 0.5) / (all + 1.0) };
            self.rows = view.table.rows() as f64 * share * self.guessed;
        }
        self
    }

    /// After a projection.
    fn project(self, exprs: &[Expr]) -> Self {
        let of = |expr: &Expr| match expr.kind {
            ExprKind::Column(column) => self.columns[column],
            ExprKind::Literal(_) => {
                ColumnEstimate { distinct: 1.0, unsure: false, ..ColumnEstimate::unknown(self.rows) }
            }
            _ => ColumnEstimate::unknown(self.rows),
        };
        let columns = exprs.iter().map(of).collect();
        let view = self.view.clone().map(|view| SampleView {
            columns: exprs
                .iter()
                .map(|expr| match expr.kind {
                    ExprKind::Column(column) => view.columns[column],
                    _ => None,
                })
                .collect(),
            ..view
        });
        Self { columns, view, ..self }
    }

    /// Share of a column's span that the values have which filters leave; `None`: too few sampled rows are left to tell.
    pub(super) fn span_left(&self, column: usize) -> Option<f64> {
        let left = self.view.as_ref()?.span_left(column)?;
        self.columns[column].span.map(|span| (left / span).min(1.0))
    }

    /// Different values of an expression.
    pub(super) fn distinct_of(&self, expr: &Expr) -> f64 {
        match &expr.kind {
            ExprKind::Column(column) => self.columns[*column].distinct,
            ExprKind::Literal(_) => 1.0,
            ExprKind::Function(..) | ExprKind::Tabulated { .. } | ExprKind::Cast(_) => {
                // No more than its arguments have.
                expr.children().into_iter().map(|child| self.distinct_of(child)).product::<f64>().min(self.rows)
            }
            _ => self.rows.max(1.0),
        }
    }
}

/// Share that a condition keeps of which nothing is known but its form.
pub(super) fn guessed_share(condition: &Expr) -> f64 {
    match &condition.kind {
        ExprKind::Compare(CompareOp::Equal | CompareOp::Identical, ..) => EQUALITY_SHARE,
        ExprKind::Compare(CompareOp::NotEqual, ..) | ExprKind::Not(_) => 1.0 - EQUALITY_SHARE,
        ExprKind::InList { list, negated, .. } => {
            let share = (EQUALITY_SHARE * list.len() as f64).min(0.5);
            if *negated { 1.0 - share } else { share }
        }
        ExprKind::IsNull(_) => EQUALITY_SHARE,
        ExprKind::Or(left, right) => (guessed_share(left) + guessed_share(right)).min(1.0),
        ExprKind::And(left, right) => guessed_share(left) * guessed_share(right),
        _ => UNKNOWN_SHARE,
    }
}

/// Different values of two columns that are compared: most often one has those of the other.
fn common_distinct(left: &ColumnEstimate, right: &ColumnEstimate) -> f64 {
    match (left.unsure, right.unsure) {
        (false, true) => left.distinct,
        (true, false) => right.distinct,
        (true, true) => left.distinct.min(right.distinct),
        (false, false) => left.distinct.max(right.distinct),
    }
}

/// Share of all pairs of rows that match, by the keys' different values on both sides.
pub(super) fn match_share(pairs: &[(ColumnEstimate, ColumnEstimate)]) -> f64 {
    let one = |(build, probe): &(ColumnEstimate, ColumnEstimate)| {
        let distinct = match (build.unique, probe.unique) {
            // The other side has no values that the key has not.
            (true, false) => build.distinct,
            (false, true) => probe.distinct,
            _ => common_distinct(build, probe),
        };
        1.0 / distinct.max(1.0)
    };
    if pairs.len() < 2 {
        return pairs.iter().map(one).product();
    }
    // Several columns of a table that are one key elsewhere are not independent of each other.
    let product = |side: fn(&(ColumnEstimate, ColumnEstimate)) -> &ColumnEstimate| {
        let rows = pairs.iter().map(|pair| side(pair).base_rows).fold(f64::INFINITY, f64::min);
        pairs.iter().map(|pair| side(pair).distinct).product::<f64>().min(rows).max(1.0)
    };
    1.0 / product(|pair| &pair.0).min(product(|pair| &pair.1))
}

fn of_join(join: &JoinPlan, build: &Estimate, probe: &Estimate) -> Estimate {
    let key = |side: &Estimate, expr: &Expr| match expr.kind {
        ExprKind::Column(column) => side.columns[column],
        _ => ColumnEstimate { distinct: side.distinct_of(expr), ..ColumnEstimate::unknown(side.rows) },
    };
    let pairs: Vec<_> = join.on.iter().map(|(b, p)| (key(build, b), key(probe, p))).collect();
    let residual = join.residual.as_ref().map_or(1.0, guessed_share);
    let matches = build.rows * probe.rows * match_share(&pairs) * residual;
    // Probe rows that match something.
    let of_probe =
        |b: &ColumnEstimate, p: &ColumnEstimate| if p.unsure { p.distinct.min(b.distinct) } else { p.distinct };
    let found = pairs.iter().map(|(b, p)| (b.distinct_among(build.rows) / of_probe(b, p).max(1.0)).min(1.0));
    let matched = probe.rows * found.fold(1.0, f64::min) * residual.max(0.5);
    let rows = match join.kind {
        JoinKind::Inner => matches,
        JoinKind::ProbeSemi => matched,
        JoinKind::ProbeAnti | JoinKind::NotIn => (probe.rows - matched).max(probe.rows * 0.05),
        JoinKind::ProbeMark => probe.rows,
        JoinKind::ProbeOuter => matches.max(probe.rows),
        JoinKind::Full => matches.max(probe.rows) + build.rows,
    };
    let keeps_probe_rows = join.kind.is_existence();
    // A key of one side is none of the pairs if the other side has several rows for it.
    let is_key =
        |pair: fn(&(ColumnEstimate, ColumnEstimate)) -> &ColumnEstimate| pairs.iter().any(|it| pair(it).unique);
    let (build_unique, probe_unique) = (is_key(|pair| &pair.0), is_key(|pair| &pair.1));
    let both: Vec<ColumnEstimate> =
        build
            .columns
            .iter()
            .map(|column| ColumnEstimate { unique: column.unique && probe_unique, sorted: false, ..*column })
            .chain(probe.columns.iter().map(|column| ColumnEstimate {
                unique: column.unique && (keeps_probe_rows || build_unique),
                ..*column
            }))
            .collect();
    let mark = ColumnEstimate { distinct: 2.0, unsure: false, ..ColumnEstimate::unknown(rows) };
    let columns = join.output.iter().map(|&column| both.get(column).copied().unwrap_or(mark)).collect();
    Estimate { rows, source_rows: probe.source_rows, columns, view: None, guessed: 1.0 }
}

/// Different values of each key among the rows.
pub(super) fn values_of(input: &Estimate, group_by: &[Expr]) -> Vec<f64> {
    group_by
        .iter()
        .map(|key| match key.kind {
            ExprKind::Column(column) => input.columns[column].distinct_among(input.rows),
            _ => input.distinct_of(key),
        })
        .collect()
}

fn of_groups(input: &Estimate, group_by: &[Expr], calls: usize) -> Estimate {
    let keys = values_of(input, group_by);
    let rows = keys.iter().product::<f64>().min(input.rows).max(1.0);
    let key_columns = group_by.iter().zip(&keys).map(|(key, &distinct)| {
        let of_input = match key.kind {
            ExprKind::Column(column) => input.columns[column],
            _ => ColumnEstimate::unknown(rows),
        };
        // What was filtered below is filtered here, so that the values of the table count.
        let distinct = of_input.distinct.max(distinct);
        ColumnEstimate { distinct, base_rows: distinct.max(rows), unique: keys.len() == 1, sorted: false, ..of_input }
    });
    let columns = key_columns.chain((0..calls).map(|_| ColumnEstimate::unknown(rows))).collect();
    Estimate { rows, source_rows: rows, columns, view: None, guessed: 1.0 }
}

/// Bytes of a value of a type, as tables have it: most columns are narrower than declared.
pub(in crate::optimize) fn stored_bytes(data_type: &DataType) -> f64 {
    data_type.primitive_width().map_or(4.0, |width| width.min(8) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(distinct: f64, base_rows: f64, unique: bool) -> ColumnEstimate {
        ColumnEstimate { distinct, unsure: false, unique, ..ColumnEstimate::unknown(base_rows) }
    }

    #[test]
    fn what_may_be_fewer_values_are_those_of_the_other_side() {
        let unsure = |rows: f64| ColumnEstimate::unknown(rows);
        let share = |build, probe| match_share(&[(build, probe)]);
        assert_eq!(share(unsure(1e7), unsure(1e8)), 1e-7);
        assert_eq!(share(column(1e3, 1e7, false), unsure(1e8)), 1e-3);
        assert_eq!(share(unsure(1e7), column(1e3, 1e8, false)), 1e-3);
    }

    #[test]
    fn a_foreign_key_matches_once() {
        // A sample takes most of the foreign keys for different ones.
        let pair = (column(1.5e7, 1.5e7, true), column(6e7, 6e7, false));
        assert_eq!(1.5e7 * 6e7 * match_share(&[pair]), 6e7);
        let pair = (column(25.0, 25.0, false), column(25.0, 1e5, false));
        assert_eq!(25.0 * 1e5 * match_share(&[pair]), 1e5);
    }

    #[test]
    fn two_columns_that_are_one_key_are_not_independent() {
        // Partsupp and lineitem, by part and supplier.
        let pairs =
            [(column(2e6, 8e6, false), column(2e6, 6e7, false)), (column(1e5, 8e6, false), column(1e5, 6e7, false))];
        assert_eq!(8e6 * 6e7 * match_share(&pairs), 6e7);
    }

    #[test]
    fn values_survive_while_one_of_their_rows_does() {
        assert_eq!(distinct_left(100.0, 1000.0, 1000.0), 100.0);
        assert!((60.0..70.0).contains(&distinct_left(100.0, 1000.0, 100.0)));
        assert!((distinct_left(100.0, 100.0, 10.0) - 10.0).abs() < 1e-9);
        assert_eq!(distinct_left(100.0, 0.0, 0.0), 1.0);
    }
}
