//! Bounds of the rows and values of a plan before it runs, derived from the tables that it reads: the maximum number of
//! rows, and the range of integer values.
//!
//! Generated code derives bounds of the same values, and never wider ones. Without information they are those of the
//! type.
//!
//! Architecture invariant: bounds hold for all rows. They are facts of the tables, not estimates.

mod ranges;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_columns::column::{ColumnType, Domain, Range, bounds_of, holds_strings, range_of_type};
use warpjoin_columns::expr::{Expr, ExprKind};

use super::aggregate::Fold;
use super::{AggregateCall, InputTables, JoinKind, JoinPlan, Plan, PlanKind};
use crate::window::WindowFunction;

use ranges::{CODES, type_range};
pub use ranges::{combined_range, summed_range};

const WIDEST: Range = Range { min: i128::MIN, max: i128::MAX };
/// Places of groups in their table: no device has memory for more.
const GROUP_PLACES_MAX: u64 = 1 << 40;
/// Granularity in bits of row ids, and of row bounds that kernels depend on.
const NUMBER_BITS: (u32, u32) = (8, 56);
const ROWS_BITS: (u32, u32) = (16, 62);

/// Bounds of a plan's output.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Maximum number of rows.
    pub rows: u64,
    /// Number of positions from which the rows are read: it includes rows that a filter dropped, and empty slots of a
    /// group table.
    pub places: u64,
    pub columns: Vec<ColumnBounds>,
}

/// Bounds of a column.
#[derive(Debug, Clone, Copy)]
pub struct ColumnBounds {
    /// Range of integers, of values stored as integers, and of string codes in sorted order.
    pub range: Option<Range>,
    pub has_nulls: bool,
    /// No value occurs twice; nulls may.
    is_unique: bool,
}

impl ColumnBounds {
    fn of_type(data_type: &DataType) -> Self {
        Self { range: type_range(data_type), has_nulls: true, is_unique: false }
    }

    fn of_range(range: Range) -> Self {
        Self { range: Some(range), has_nulls: false, is_unique: false }
    }

    fn of_column(column: &ColumnType, is_unique: bool) -> Self {
        let ColumnType { data_type, has_nulls, domain, dictionary } = column;
        let range = match (dictionary, domain) {
            (Some(dictionary), _) => Some(Range::new(0, i128::from(dictionary.len().max(1) as u64) - 1)),
            (None, Domain::Int { .. }) if *data_type == DataType::Boolean => range_of_type(data_type),
            (None, Domain::Int { min, max }) => Some(Range::new(*min, *max)),
            (None, Domain::Float32 | Domain::Float64 | Domain::Bytes) => None,
        };
        Self { range, has_nulls: *has_nulls, is_unique }
    }
}

/// Bits of a row id for `rows` rows, rounded up to whole bytes, so that slightly different row counts share code.
pub fn number_bits(rows: u64) -> u32 {
    (64 - rows.leading_zeros()).next_multiple_of(8).clamp(NUMBER_BITS.0, NUMBER_BITS.1)
}

/// Bits of a bound of `rows` rows, rounded up to whole bytes.
pub fn rows_bits(rows: u64) -> u32 {
    (64 - rows.leading_zeros()).next_multiple_of(8).clamp(ROWS_BITS.0, ROWS_BITS.1)
}

impl Plan {
    /// Bounds of the plan's rows; `inputs` are the known tables of its inputs.
    #[doc(hidden)]
    pub fn bounds(&self, inputs: InputTables<'_>) -> Bounds {
        Bounding { inputs, known: HashMap::new() }.of(self)
    }
}

impl Bounds {
    /// Bounds of an expression over the columns.
    pub fn of(&self, expr: &Expr) -> ColumnBounds {
        match expr.kind {
            ExprKind::Column(column) => match self.columns.get(column) {
                Some(known) => ColumnBounds { has_nulls: known.has_nulls && expr.nullable, ..*known },
                None => ColumnBounds::of_type(&expr.data_type),
            },
            _ => ColumnBounds { range: self.range_of(expr), has_nulls: expr.nullable, is_unique: false },
        }
    }

    /// Bounds of the result of an aggregate of the rows.
    fn of_call(&self, call: &AggregateCall) -> ColumnBounds {
        let data_type = &call.data_type;
        let rows_bits = rows_bits(self.rows);
        let count = Range::new(0, (1i128 << rows_bits) - 1);
        let argument = call.argument.as_ref().and_then(|argument| self.of(argument).range);
        let sum = |bounds: Range| {
            let total = argument.and_then(|range| summed_range(range, rows_bits)).unwrap_or(WIDEST);
            if total.min < bounds.min || total.max > bounds.max { bounds } else { total }
        };
        let range = match call.function.fold() {
            Some(Fold::Count) => return ColumnBounds::of_range(count),
            Some(Fold::Sum) => range_of_type(data_type).map(sum),
            _ if call.function.spec().is_of_values => argument,
            None if data_type.is_decimal() => bounds_of(data_type),
            _ => type_range(data_type),
        };
        ColumnBounds { range, has_nulls: true, is_unique: false }
    }
}

/// Goes through a plan from the leaves up.
struct Bounding<'a> {
    inputs: InputTables<'a>,
    /// Results for plans that occur in several places.
    known: HashMap<*const Plan, Bounds>,
}

impl Bounding<'_> {
    fn of(&mut self, plan: &Plan) -> Bounds {
        let of_types = || plan.schema.fields().iter().map(|field| ColumnBounds::of_type(field.data_type())).collect();
        match &plan.kind {
            PlanKind::Scan { table, projection } => {
                let is_unique = |column: usize| table.statistics()[column].unique == Some(true);
                let columns = projection.iter().map(|&column| (&table.column_types()[column], is_unique(column)));
                Bounds::of_table(table.rows(), columns)
            }
            PlanKind::Input { index } => match self.inputs.get(*index) {
                Some(table) => {
                    let is_unique = table.statistics().iter().map(|known| known.unique == Some(true));
                    Bounds::of_table(table.rows(), table.column_types().iter().zip(is_unique))
                }
                None => Bounds { rows: u64::MAX, places: u64::MAX, columns: of_types() },
            },
            PlanKind::Filter { input, .. } | PlanKind::Marked { input, .. } => self.of(input),
            PlanKind::Sort { input, skip: _, fetch, .. } | PlanKind::Limit { input, skip: _, fetch } => {
                let input = self.of(input);
                input.written(|rows| fetch.map_or(rows, |fetch| rows.min(fetch)))
            }
            PlanKind::Project { input, exprs } => {
                let input = self.of(input);
                Bounds { columns: exprs.iter().map(|expr| input.of(expr)).collect(), ..input }
            }
            PlanKind::Shared(shared) => {
                let address = Arc::as_ptr(shared);
                if let Some(known) = self.known.get(&address) {
                    return known.clone();
                }
                let bounds = self.of(shared);
                self.known.insert(address, bounds.clone());
                bounds
            }
            PlanKind::Join(join) => self.of_join(join),
            PlanKind::Aggregate { input, group_by, aggregates } => {
                let input = self.of(input);
                let mut columns: Vec<ColumnBounds> = group_by.iter().map(|key| input.of(key)).collect();
                if let [key] = columns.as_mut_slice() {
                    key.is_unique = true;
                } else {
                    columns.iter_mut().for_each(|key| key.is_unique = false);
                }
                columns.extend(aggregates.iter().map(|call| input.of_call(call)));
                Bounds { rows: input.rows.max(1), places: GROUP_PLACES_MAX, columns }
            }
            PlanKind::GroupingSets { input, group_by, sets, aggregates } => {
                let input = self.of(input);
                let key = |key: &Expr| {
                    let of_key = input.of(key);
                    // Null where it is not of the set.
                    let range = of_key.range.map(|range| range.union(Range::new(0, 0)));
                    ColumnBounds { range, has_nulls: true, is_unique: false }
                };
                let mut columns: Vec<ColumnBounds> = group_by.iter().map(key).collect();
                columns.push(ColumnBounds::of_type(plan.schema.field(group_by.len()).data_type()));
                columns.extend(aggregates.iter().map(|call| input.of_call(call)));
                let rows = input.rows.max(1).saturating_mul(sets.len() as u64);
                Bounds { rows, places: rows, columns }
            }
            PlanKind::Window { input, calls, .. } => {
                let mut bounds = self.of(input).written(|rows| rows);
                let results = calls.iter().map(|call| {
                    let is_of_values = match call.function {
                        WindowFunction::Aggregate(function) => function.spec().is_of_values,
                        _ => call.argument.as_ref().is_some_and(|argument| argument.data_type == call.data_type),
                    };
                    let values: Vec<&Expr> = call.argument.iter().chain(&call.default).collect();
                    if !is_of_values || values.is_empty() {
                        return ColumnBounds::of_type(&call.data_type);
                    }
                    let ranges = values.iter().map(|value| bounds.of(value).range);
                    let range = ranges.reduce(|a, b| Some(a?.union(b?))).flatten();
                    ColumnBounds { range, has_nulls: true, is_unique: false }
                });
                let results: Vec<ColumnBounds> = results.collect();
                bounds.columns.extend(results);
                bounds
            }
            PlanKind::Union { inputs } => self.of_union(inputs),
            PlanKind::RowNumbers { input } => {
                let mut bounds = self.of(input);
                let number = Range::new(0, i128::from(bounds.places.saturating_sub(1)));
                bounds.columns.push(ColumnBounds { is_unique: true, ..ColumnBounds::of_range(number) });
                bounds
            }
            PlanKind::Numbered { input } => {
                let mut bounds = self.of(input);
                let number = Range::new(0, (1i128 << number_bits(bounds.places)) - 1);
                bounds.columns.push(ColumnBounds { is_unique: true, ..ColumnBounds::of_range(number) });
                bounds
            }
            PlanKind::HasRows { input, .. } => {
                let mut bounds = self.of(input);
                bounds.columns.push(ColumnBounds::of_range(Range::new(0, 1)));
                bounds
            }
            PlanKind::Fetch(fetch) => {
                let mut bounds = self.of(&fetch.input);
                let has_nulls = bounds.columns.get(fetch.row).is_none_or(|row| row.has_nulls);
                bounds.columns.extend(fetch.columns.iter().map(|&column| {
                    let known = ColumnBounds::of_column(&fetch.table.column_types()[column], false);
                    ColumnBounds { has_nulls: known.has_nulls || has_nulls, ..known }
                }));
                bounds
            }
        }
    }

    fn of_union(&mut self, inputs: &[Plan]) -> Bounds {
        let parts: Vec<Bounds> = inputs.iter().map(|input| self.of(input)).collect();
        let rows = parts.iter().fold(0u64, |rows, part| rows.saturating_add(part.rows));
        let width = parts.iter().map(|part| part.columns.len()).min().unwrap_or(0);
        let column = |index: usize| {
            let of_parts = || parts.iter().map(move |part| part.columns[index]);
            let ranges = of_parts().map(|column| column.range);
            let is_string = holds_strings(inputs[0].schema.field(index).data_type());
            // Strings of several dictionaries get other codes.
            let range = if is_string { Some(CODES) } else { ranges.reduce(|a, b| Some(a?.union(b?))).flatten() };
            ColumnBounds { range, has_nulls: of_parts().any(|column| column.has_nulls), is_unique: false }
        };
        Bounds { rows, places: rows, columns: (0..width).map(column).collect() }
    }

    fn of_join(&mut self, join: &JoinPlan) -> Bounds {
        let (build, probe) = (self.of(&join.build), self.of(&join.probe));
        let is_key = |key: &Expr| {
            let known = build.of(key);
            let is_short = known.range.is_some_and(|range| range.span_bits() < u64::BITS - 1);
            known.is_unique && is_short && !(join.null_equals_null && known.has_nulls)
        };
        let is_unique = join.on.iter().any(|(key, _)| is_key(key));
        let pairs = if is_unique { probe.rows } else { probe.rows.saturating_mul(build.rows.max(1)) };
        let rows = match join.kind {
            JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::NotIn | JoinKind::ProbeMark => probe.rows,
            JoinKind::Inner | JoinKind::ProbeOuter => pairs,
            JoinKind::Full => pairs.saturating_add(build.rows),
        };
        let is_outer = [matches!(join.kind, JoinKind::ProbeOuter | JoinKind::Full), join.kind == JoinKind::Full];
        let padded = |column: &ColumnBounds, is_outer: bool| {
            let nulls = (join.kind == JoinKind::Full).then(|| Range::new(0, 0));
            let range = column.range.map(|range| nulls.map_or(range, |nulls| range.union(nulls)));
            ColumnBounds { range, has_nulls: column.has_nulls || is_outer, is_unique: false }
        };
        let mut both: Vec<ColumnBounds> = build.columns.iter().map(|column| padded(column, is_outer[0])).collect();
        both.extend(probe.columns.iter().map(|column| ColumnBounds {
            is_unique: column.is_unique && (join.kind.is_existence() || is_unique && join.kind != JoinKind::Full),
            ..padded(column, is_outer[1])
        }));
        both.push(ColumnBounds::of_range(Range::new(0, 1)));
        Bounds { rows, places: rows, columns: join.output.iter().map(|&column| both[column]).collect() }
    }
}

impl Bounds {
    fn of_table<'c>(rows: u64, columns: impl Iterator<Item = (&'c ColumnType, bool)>) -> Self {
        let columns = columns.map(|(column, is_unique)| ColumnBounds::of_column(column, is_unique)).collect();
        Self { rows, places: rows, columns }
    }

    /// Bounds of materialized rows: they have new positions, and a new bound of their number.
    fn written(self, rows: impl FnOnce(u64) -> u64) -> Self {
        let rows = rows(self.rows);
        Self { rows, places: rows, ..self }
    }
}
