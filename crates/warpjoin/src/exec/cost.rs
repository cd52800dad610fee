//! Which form of a join is cheaper on a device: a rule over rows, bytes and table footprint.
//!
//! The rates are picoseconds a row measured on an H100 with 2^20 to 2^28 rows of random keys; what
//! decides is their ratio, which other GPUs share. Rows that a filter drops are not known here, so a
//! join behind a filter keeps its place in the pipeline.

use std::sync::Arc;

use super::join::is_ordered;
use super::options::{ExecOptions, JoinForm};
use super::partition::PASS_BITS_MAX;
use super::query::Query;
use super::relation::{Relation, Source};
use crate::codegen::Step;
use crate::expr::ExprKind;
use crate::plan::JoinPlan;
use crate::{Session, Table};

/// Joins of fewer rows are over before a partition has started.
const PARTITIONED_ROWS_MIN: u64 = 1 << 22;
/// One pass of a partition, a byte of a row: read, written, its key read once more.
pub(crate) const PASS_PS_PER_BYTE: f64 = 1.1;
/// Matching in shared memory, a byte of both rows: read, looked up, written.
pub(crate) const MATCH_PS_PER_BYTE: f64 = 0.75;
/// An insert into a table in L2, and into one in device memory.
pub(crate) const INSERT_PS: (f64, f64) = (30.0, 140.0);
/// A probe by the table's share of L2: up to so much of it, so long.
const PROBE_PS: [(f64, f64); 5] = [(0.1, 5.0), (0.35, 8.0), (0.7, 10.5), (1.5, 20.0), (f64::INFINITY, 32.0)];
/// Reading probe rows and writing matches, a byte.
const STREAM_PS_PER_BYTE: f64 = 0.36;
/// An insert into a direct table in the order of its keys.
pub(crate) const ORDERED_INSERT_PS: f64 = 5.0;
/// Writing key and payload for the build, and reading them again, a byte.
pub(crate) const BUILD_ROWS_PS_PER_BYTE: f64 = 0.7;

impl Query<'_> {
    /// Whether both sides should be partitioned, rather than one table be probed by the pipeline.
    pub(crate) fn prefers_partition(&self, plan: &JoinPlan, build: &Relation, probe: &Relation) -> bool {
        let is_plain = |relation: &Relation| {
            matches!(relation.source, Source::Table(..) | Source::Intermediate(_))
                && relation.steps.iter().all(|step| matches!(step, Step::Project(_)))
        };
        let rows = (is_plain(build) && is_plain(probe)).then_some((build.rows_max, probe.rows_max));
        prefers_partition(plan, rows, self.session, self.inputs, self.options)
    }
}

/// Whether both sides should be partitioned; `rows` are those of build and probe side, if both are columns that
/// lie there and are read whole.
pub(crate) fn prefers_partition(
    plan: &JoinPlan,
    rows: Option<(u64, u64)>,
    session: &Session,
    inputs: &[Arc<Table>],
    options: &ExecOptions,
) -> bool {
    if plan.kind.keeps_unmatched() {
        return false;
    }
    let [device] = session.devices() else { return false };
    if let Some(form) = options.join_form {
        return form == JoinForm::Partitioned;
    }
    let Some((build_rows, probe_rows)) =
        rows.filter(|(build, probe)| build.saturating_add(*probe) >= PARTITIONED_ROWS_MIN)
    else {
        return false;
    };
    let (build_bytes, probe_bytes) = row_bytes(plan);
    if build_bytes.max(probe_bytes) > 64.0 {
        return false;
    }
    let passes = if build_rows >> PASS_BITS_MAX > 4096 { 2.0 } else { 1.0 };
    let (build_rows, probe_rows) = (build_rows as f64, probe_rows as f64);
    let partitioned = (build_rows * build_bytes + probe_rows * probe_bytes) * passes * PASS_PS_PER_BYTE
        + probe_rows * (build_bytes + probe_bytes) * MATCH_PS_PER_BYTE;
    let is_ordered = match plan.on.as_slice() {
        [(key, _)] => matches!(key.kind, ExprKind::Column(column) if is_ordered(inputs, &plan.build, column)),
        _ => false,
    };
    partitioned < table_ps(plan, (build_rows, probe_rows), device.info().l2_bytes as f64, is_ordered)
}

/// Building one table and probing it.
fn table_ps(plan: &JoinPlan, (build_rows, probe_rows): (f64, f64), l2_bytes: f64, is_ordered: bool) -> f64 {
    let (build_bytes, probe_bytes) = row_bytes(plan);
    // Key and payload in a word where they fit.
    let slot_bytes = if build_bytes <= 8.0 { (build_bytes / 4.0).ceil() * 4.0 } else { 16.0 };
    let share = 2.0 * build_rows * slot_bytes / l2_bytes;
    let insert = match (is_ordered, share <= 1.0) {
        (true, _) => ORDERED_INSERT_PS,
        (false, true) => INSERT_PS.0,
        (false, false) => INSERT_PS.1,
    };
    let probe = probe_ps(share);
    let width = |index: &usize| field_bytes(plan, *index);
    let stream = (probe_bytes + plan.output.iter().map(width).sum::<f64>()) * STREAM_PS_PER_BYTE;
    build_rows * (insert + build_bytes * BUILD_ROWS_PS_PER_BYTE) + probe_rows * (probe + stream)
}

/// A probe of a table of this share of L2.
pub(crate) fn probe_ps(share: f64) -> f64 {
    PROBE_PS.iter().find(|(up_to, _)| share <= *up_to).map_or(0.0, |(_, ps)| *ps)
}

/// Bytes of a row of each side that the join needs.
fn row_bytes(plan: &JoinPlan) -> (f64, f64) {
    let build_width = plan.build.schema.fields().len();
    let keys: f64 = plan.on.iter().map(|(key, _)| bytes(&key.data_type)).sum();
    let mut sides = (keys, keys);
    for column in super::join::needed(plan) {
        let is_key = |key: &crate::expr::Expr, column: usize| matches!(key.kind, ExprKind::Column(c) if c == column);
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
fn field_bytes(plan: &JoinPlan, index: usize) -> f64 {
    let mut fields = plan.build.schema.fields().iter().chain(plan.probe.schema.fields());
    fields.nth(index).map_or(0.0, |field| bytes(field.data_type()))
}
