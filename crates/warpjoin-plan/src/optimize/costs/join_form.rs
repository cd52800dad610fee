//! Which form of a join is cheaper: one table, or both sides partitioned. Rows that a filter drops are not known here, so a
//! join behind a filter keeps its place in the pipeline.

use std::sync::Arc;

use warpjoin_columns::Table;
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_device::Device;

use super::rates::{
    LINK_PS_PER_BYTE, MATCH_PS_PER_BYTE, MATCHED_PS_PER_BYTE, ORDERED_PROBE_PS, PASS_BITS_MAX, PASS_PS_PER_BYTE,
    REPEATED_MATCH_PS, ROUTED_PS_PER_BYTE, SHARED_MATCH_PS, WRITTEN_PS_PER_BYTE,
};
use super::tables::{insert_ps, is_direct_small, probe_ps};
use crate::optimize::estimate::estimate;
use crate::options::{Distribution, ExecOptions, JoinForm, MemoryUse};
use crate::plan::join::{JoinNode, JoinSide};
use crate::plan::physical::JoinMethod;
use crate::plan::{InputTables, JoinPlan, Mark, Plan, PlanKind};

/// A join is not partitioned if less than this fraction of the probe rows is needed (1 / divisor).
const WANTED_SHARE: u64 = 16;

/// Joins of fewer rows are over before a partition has started.
const PARTITIONED_ROWS_MIN: u64 = 1 << 22;

/// How a join finds its matches, as far as tables and options tell. `wanted`: rows of the result that are needed, if not all.
pub fn join_method(
    join: &JoinPlan,
    wanted: Option<u64>,
    devices: &[Device],
    inputs: &[Arc<Table>],
    options: &ExecOptions,
) -> JoinMethod {
    let table = match options.join_form {
        Some(JoinForm::Direct) => JoinMethod::DirectTable,
        _ => JoinMethod::HashTable,
    };
    let is_chosen = options.join_form.is_some();
    let rows = match [&join.build, &join.probe].map(|plan| side(plan, inputs)) {
        // Sides are materialized.
        _ if !is_chosen && options.memory_use == MemoryUse::Least => return JoinMethod::BySize,
        [Side::Columns(Some(build)), Side::Columns(Some(probe))] => Some((build, probe)),
        [Side::Columns(_), Side::Columns(_)] if !is_chosen => return JoinMethod::BySize,
        _ => None,
    };
    if rows.is_some_and(|(_, probe_rows)| stops_early(wanted, probe_rows, options)) {
        return table;
    }
    match prefers_partition(&JoinNode::of(join), rows, devices, inputs, options) {
        true => JoinMethod::Partitioned,
        false => table,
    }
}

/// Whether so few rows of a join are needed that it is not partitioned: a pipeline stops early, a partition goes over all rows
/// first.
pub fn stops_early(wanted: Option<u64>, probe_rows: u64, options: &ExecOptions) -> bool {
    options.join_form.is_none() && wanted.is_some_and(|wanted| wanted < probe_rows / WANTED_SHARE)
}

/// The source of a join's side.
enum Side {
    /// All rows of stored columns, with their number if it is known before the plan runs.
    Columns(Option<u64>),
    /// Rows behind filters, joins or aggregates. They are counted only if memory is short; a table then does as well.
    Rows,
}

fn side(plan: &Plan, inputs: &[Arc<Table>]) -> Side {
    match &plan.kind {
        PlanKind::Scan { table, .. } => Side::Columns(Some(table.rows())),
        PlanKind::Input { index } => Side::Columns(inputs.get(*index).map(|table| table.rows())),
        PlanKind::Project { input, .. }
        | PlanKind::Numbered { input }
        | PlanKind::RowNumbers { input }
        | PlanKind::HasRows { input, .. }
        | PlanKind::Marked { input, mark: Mark::SharedBuild(_) | Mark::Compact }
        | PlanKind::Sort { input, skip: 0, fetch: None, .. } => side(input, inputs),
        PlanKind::Fetch(fetch) => side(&fetch.input, inputs),
        PlanKind::Shared(shared) => written(shared, inputs),
        PlanKind::Marked { input, mark: Mark::Shared(_) } => written(input, inputs),
        PlanKind::Union { .. }
        | PlanKind::GroupingSets { .. }
        | PlanKind::Window { .. }
        | PlanKind::Sort { .. }
        | PlanKind::Limit { .. }
        | PlanKind::Marked { mark: Mark::Written, .. } => Side::Columns(None),
        PlanKind::Filter { .. }
        | PlanKind::Join(_)
        | PlanKind::Aggregate { .. }
        | PlanKind::Marked { mark: Mark::Reduced { .. }, .. } => Side::Rows,
    }
}

/// The side that is made of rows that are kept.
fn written(plan: &Plan, inputs: &[Arc<Table>]) -> Side {
    match side(plan, inputs) {
        Side::Rows => Side::Columns(None),
        columns => columns,
    }
}

/// Whether several devices exchange the rows of both sides by key, instead of copying the build rows to all of them.
pub fn exchanges(build_rows: u64, probe_rows: u64, devices: usize, options: &ExecOptions) -> bool {
    let others = devices as u64 - 1;
    others > 0
        && match options.distribution {
            Distribution::Broadcast => false,
            Distribution::Exchange => true,
            Distribution::Auto => probe_rows / build_rows.max(1) < others,
        }
}

/// As [`exchanges`], for sides that are partitioned afterwards: each device also partitions the build rows that it gets.
pub fn exchanges_to_partition(build_rows: u64, probe_rows: u64, devices: usize, options: &ExecOptions) -> bool {
    if options.distribution != Distribution::Auto {
        return exchanges(build_rows, probe_rows, devices, options);
    }
    let (build, probe, devices) = (build_rows as f64, probe_rows as f64, devices as f64);
    let link = LINK_PS_PER_BYTE * (devices - 1.0) / devices;
    let exchanged = (build + probe) / devices * (ROUTED_PS_PER_BYTE + link + 2.0 * PASS_PS_PER_BYTE);
    let copied =
        build / devices * ROUTED_PS_PER_BYTE + build * link + (build + probe / devices) * 2.0 * PASS_PS_PER_BYTE;
    devices > 1.0 && exchanged < copied
}

/// Rows of each side that each device joins by partition.
fn rows_of_device(build_rows: u64, probe_rows: u64, devices: usize, options: &ExecOptions) -> (u64, u64) {
    let share = devices as u64;
    let build_share = if exchanges_to_partition(build_rows, probe_rows, devices, options) { share } else { 1 };
    (build_rows / build_share, probe_rows / share)
}

/// Whether both sides should be partitioned; `rows` are those of build and probe side, if both are columns that
/// lie there and are read whole.
pub fn prefers_partition(
    plan: &JoinNode<'_>,
    rows: Option<(u64, u64)>,
    devices: &[Device],
    inputs: &[Arc<Table>],
    options: &ExecOptions,
) -> bool {
    if plan.kind.keeps_unmatched() {
        return false;
    }
    let Some(device) = devices.first() else { return false };
    if let Some(form) = options.join_form {
        return form == JoinForm::Partitioned;
    }
    let of_device = |(build, probe)| rows_of_device(build, probe, devices.len(), options);
    let Some((build_rows, probe_rows)) =
        rows.map(of_device).filter(|(build, probe)| build.saturating_add(*probe) >= PARTITIONED_ROWS_MIN)
    else {
        return false;
    };
    let (build_bytes, probe_bytes) = row_bytes(plan);
    if build_bytes.max(probe_bytes) > 64.0 {
        return false;
    }
    let passes = if build_rows >> PASS_BITS_MAX > 4096 { 2.0 } else { 1.0 };
    let (build_rows, probe_rows) = (build_rows as f64, probe_rows as f64);
    let repeated = probe_rows * (matches_of_row(plan, build_rows, inputs) - 1.0);
    let partitioned = (build_rows * build_bytes + probe_rows * probe_bytes) * passes * PASS_PS_PER_BYTE
        + probe_rows * (build_bytes + probe_bytes) * MATCH_PS_PER_BYTE
        + repeated * SHARED_MATCH_PS;
    let l2_bytes = device.info().l2_bytes as f64;
    let indexed_bytes = indexed_bytes(plan, inputs).filter(|&bytes| is_direct_small(bytes, l2_bytes, || build_rows));
    let table = Lookup { l2_bytes, indexed_bytes, in_order: sides_in_order(plan, inputs) };
    partitioned < table_ps(plan, (build_rows, probe_rows), &table) + repeated * REPEATED_MATCH_PS
}

/// Expected matches of a probe row that has any: the build rows of a key. 1 if a table needs no lists, or nothing is known.
fn matches_of_row(plan: &JoinNode<'_>, build_rows: f64, inputs: &[Arc<Table>]) -> f64 {
    let (false, [(key, _)], Some(build)) = (plan.kind.is_existence(), plan.on.as_slice(), plan.build.plan) else {
        return 1.0;
    };
    let ExprKind::Column(column) = key.kind else { return 1.0 };
    if build.is_distinct(column, inputs) {
        return 1.0;
    }
    let key = estimate(build, inputs).columns[column];
    if key.unique || key.unsure { 1.0 } else { (build_rows / key.distinct_among(build_rows)).max(1.0) }
}

/// What a table in memory is like.
struct Lookup {
    l2_bytes: f64,
    /// Of a table that is indexed by the key, if it would be one.
    indexed_bytes: Option<f64>,
    /// Whether build and probe rows come in the order of the key.
    in_order: (bool, bool),
}

/// Whether the rows of either side come in the order of the only key.
fn sides_in_order(plan: &JoinNode<'_>, inputs: &[Arc<Table>]) -> (bool, bool) {
    let [(build_key, probe_key)] = plan.on.as_slice() else { return (false, false) };
    let in_order = |side: &JoinSide<'_>, key: &Expr| match (&key.kind, side.plan) {
        (ExprKind::Column(column), Some(rows)) => rows.is_in_order_of(*column, inputs),
        _ => false,
    };
    (in_order(&plan.build, build_key), in_order(&plan.probe, probe_key))
}

/// Bytes of a table that is indexed by the only key, an integer: a bit for each key where only the presence of keys counts, else
/// a row number for each, which takes unique keys.
fn indexed_bytes(plan: &JoinNode<'_>, inputs: &[Arc<Table>]) -> Option<f64> {
    let ([(key, _)], Some(build)) = (plan.on.as_slice(), plan.build.plan) else { return None };
    let range = build.bounds(InputTables(inputs)).of(key).range?;
    let keys = 2f64.powi(range.span_bits().min(1000) as i32);
    if plan.kind.is_existence() && plan.residual.is_none() {
        return Some(keys / 8.0);
    }
    let ExprKind::Column(column) = key.kind else { return None };
    build.is_distinct(column, inputs).then_some(keys * 4.0)
}

/// Building one table and probing it.
fn table_ps(plan: &JoinNode<'_>, (build_rows, probe_rows): (f64, f64), table: &Lookup) -> f64 {
    let (build_bytes, probe_bytes) = row_bytes(plan);
    // Key and payload in a word where they fit.
    let slot_bytes = if build_bytes <= 8.0 { (build_bytes / 4.0).ceil() * 4.0 } else { 16.0 };
    let share = table.indexed_bytes.unwrap_or(2.0 * build_rows * slot_bytes) / table.l2_bytes;
    let (build_in_order, probe_in_order) = table.in_order;
    let is_indexed = table.indexed_bytes.is_some();
    let probe = if is_indexed && probe_in_order { ORDERED_PROBE_PS } else { probe_ps(share) };
    let insert = insert_ps(share, build_in_order);
    let width = |index: &usize| field_bytes(plan, *index);
    let stream = (probe_bytes + plan.output.iter().map(width).sum::<f64>()) * MATCHED_PS_PER_BYTE;
    build_rows * (insert + build_bytes * WRITTEN_PS_PER_BYTE) + probe_rows * (probe + stream)
}

/// Bytes of a row of each side that the join needs.
fn row_bytes(plan: &JoinNode<'_>) -> (f64, f64) {
    let build_width = plan.build.schema.fields().len();
    let keys: f64 = plan.on.iter().map(|(key, _)| bytes(&key.data_type)).sum();
    let mut sides = (keys, keys);
    for column in plan.needed_columns() {
        let is_key = |key: &Expr, column: usize| matches!(key.kind, ExprKind::Column(c) if c == column);
        match column.checked_sub(build_width) {
            None if !plan.on.iter().any(|(key, _)| is_key(key, column)) => {
                sides.0 += bytes(plan.build.schema.field(column).data_type());
            }
            Some(column) if !plan.on.iter().any(|(_, key)| is_key(key, column)) => {
                sides.1 += bytes(plan.probe.schema.field(column).data_type());
            }
            _ => {}
        }
    }
    sides
}

fn bytes(data_type: &arrow::datatypes::DataType) -> f64 {
    data_type.primitive_width().unwrap_or(4) as f64
}

/// Bytes of a column of either side.
fn field_bytes(plan: &JoinNode<'_>, index: usize) -> f64 {
    let mut fields = plan.build.schema.fields().iter().chain(plan.probe.schema.fields());
    fields.nth(index).map_or(0.0, |field| bytes(field.data_type()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_rows_are_copied_where_they_are_few() {
        let options = ExecOptions::default();
        let exchanged = |build, probe, devices| exchanges_to_partition(build, probe, devices, &options);
        // The only device has all rows.
        assert!(!exchanged(1 << 28, 1 << 28, 1));
        // Copies of all build rows would be partitioned on every device.
        assert!(exchanged(1 << 28, 1 << 28, 2) && exchanged(1 << 26, 1 << 28, 4));
        assert!(!exchanged(1 << 26, 1 << 28, 2) && !exchanged(1 << 20, 1 << 28, 8));
        for (distribution, wanted) in [(Distribution::Broadcast, false), (Distribution::Exchange, true)] {
            let options = ExecOptions { distribution, ..ExecOptions::default() };
            assert_eq!(exchanges_to_partition(1 << 20, 1 << 28, 2, &options), wanted);
        }
        assert_eq!(rows_of_device(1 << 28, 1 << 30, 4, &options), (1 << 26, 1 << 28));
        assert_eq!(rows_of_device(1 << 20, 1 << 30, 4, &options), (1 << 20, 1 << 28));
    }
}
