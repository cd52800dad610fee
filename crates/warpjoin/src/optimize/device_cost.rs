//! Which form of a join is cheaper on a device: a rule over rows, bytes and table footprint.
//!
//! The rates are picoseconds a row measured on an H100 with 2^20 to 2^28 rows of random keys; what
//! decides is their ratio, which other GPUs share. Rows that a filter drops are not known here, so a
//! join behind a filter keeps its place in the pipeline.

use std::sync::Arc;

use warpjoin_device::{Device, DeviceKind};

use crate::Table;
use crate::expr::ExprKind;
use crate::options::{ExecOptions, JoinForm};
use crate::plan::FilterForm;
use crate::plan::join::JoinNode;

/// Joins of fewer rows are over before a partition has started.
const PARTITIONED_ROWS_MIN: u64 = 1 << 22;
/// Most bits of one pass of a partition: with more, runs get shorter than the memory's sectors.
pub(crate) const PASS_BITS_MAX: u32 = 11;
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

/// Setting a bit of a filter in L2, and of one in device memory.
const FILL_PS: (f64, f64) = (10.0, 60.0);
/// Reading a key of the build for that.
const FILL_READ_PS: f64 = 3.0;
/// Clearing a table or a filter, a byte.
pub(crate) const CLEAR_PS_PER_BYTE: f64 = 0.4;
/// A launch on a GPU.
pub(crate) const LAUNCH_PS: f64 = 5e6;
/// Lookups in tables that L2 holds: no filter is plainly faster.
pub(crate) const NEAR_PS: f64 = 10.5;
/// A filter of its own must cost so many times less than looking into the table, as that is estimated.
const FILTER_GAIN_MIN: f64 = 1.25;
/// Bits of a Bloom filter for a key: one of 30 keys passes by chance at the fewest, one of 200 at the most.
const BLOOM_BITS: (f64, f64) = (8.0, 16.0);
/// Share of L2 that a Bloom filter may take for more bits than the fewest.
const BLOOM_L2_SHARE: f64 = 0.35;

/// Build rows from which on it is worth a launch or two to drop those that match nothing before a table is made of them.
pub(crate) const REDUCED_ROWS_MIN: u64 = 1 << 22;
/// Build rows for each probe row from which on that pays: an insert costs about as much as this number of probes of a small set.
pub(crate) const REDUCED_RATIO_MIN: u64 = 4;

/// A table, as far as it matters how a filter looks for its keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilteredTable {
    pub keys: f64,
    /// Numbers that a key word can be; `None`: too many to tell.
    pub span: Option<f64>,
    /// Picoseconds of a lookup in it.
    pub lookup_ps: f64,
}

/// The cheapest way to test `rows` rows, and picoseconds that all of them take.
pub(crate) fn filter_form(table: &FilteredTable, rows: f64, l2_bytes: f64, launch_ps: f64) -> (FilterForm, f64) {
    let by_table = rows * table.lookup_ps;
    if table.lookup_ps <= NEAR_PS {
        return (FilterForm::Table, by_table);
    }
    let by_words = |bytes: f64| {
        let fill = if bytes <= l2_bytes { FILL_PS.0 } else { FILL_PS.1 };
        let made = table.keys * (FILL_READ_PS + fill) + bytes * CLEAR_PS_PER_BYTE + 2.0 * launch_ps;
        made + rows * probe_ps(bytes / l2_bytes)
    };
    let bloom = by_words(table.keys * bloom_bits(table.keys, l2_bytes) / 8.0);
    // The bitmap is exact, and a search of it takes no hash.
    let (form, by_filter) = match table.span.map(|span| by_words(span / 8.0)) {
        Some(bitmap) if bitmap <= bloom => (FilterForm::Bitmap, bitmap),
        _ => (FilterForm::Bloom, bloom),
    };
    if by_table > by_filter * FILTER_GAIN_MIN { (form, by_filter) } else { (FilterForm::Table, by_table) }
}

/// Bits that a Bloom filter of so many keys has for each.
pub(crate) fn bloom_bits(keys: f64, l2_bytes: f64) -> f64 {
    (l2_bytes * BLOOM_L2_SHARE * 8.0 / keys.max(1.0)).clamp(BLOOM_BITS.0, BLOOM_BITS.1)
}

/// What a launch costs. Those of simulated devices take no time, so that tests meet on few rows what GPUs meet on many.
pub(crate) fn launch_ps(kind: DeviceKind) -> f64 {
    if kind == DeviceKind::Simulated { 0.0 } else { LAUNCH_PS }
}

/// Whether both sides should be partitioned; `rows` are those of build and probe side, if both are columns that
/// lie there and are read whole.
pub(crate) fn prefers_partition(
    plan: &JoinNode<'_>,
    rows: Option<(u64, u64)>,
    devices: &[Device],
    inputs: &[Arc<Table>],
    options: &ExecOptions,
) -> bool {
    if plan.kind.keeps_unmatched() {
        return false;
    }
    let [device] = devices else { return false };
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
        [(key, _)] => match (&key.kind, plan.build.plan) {
            (ExprKind::Column(column), Some(build)) => build.is_in_order_of(*column, inputs),
            _ => false,
        },
        _ => false,
    };
    partitioned < table_ps(plan, (build_rows, probe_rows), device.info().l2_bytes as f64, is_ordered)
}

/// Building one table and probing it.
fn table_ps(plan: &JoinNode<'_>, (build_rows, probe_rows): (f64, f64), l2_bytes: f64, is_ordered: bool) -> f64 {
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
fn row_bytes(plan: &JoinNode<'_>) -> (f64, f64) {
    let build_width = plan.build.schema.fields().len();
    let keys: f64 = plan.on.iter().map(|(key, _)| bytes(&key.data_type)).sum();
    let mut sides = (keys, keys);
    for column in plan.needed_columns() {
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
fn field_bytes(plan: &JoinNode<'_>, index: usize) -> f64 {
    let mut fields = plan.build.schema.fields().iter().chain(plan.probe.schema.fields());
    fields.nth(index).map_or(0.0, |field| bytes(field.data_type()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L2 of an H100.
    const L2_BYTES: f64 = 5e7;

    /// A hash table of slots of 16 bytes.
    fn table(keys: f64, span: Option<f64>) -> FilteredTable {
        FilteredTable { keys, span, lookup_ps: probe_ps(32.0 * keys / L2_BYTES) }
    }

    fn form(table: &FilteredTable, rows: f64) -> FilterForm {
        filter_form(table, rows, L2_BYTES, LAUNCH_PS).0
    }

    #[test]
    fn a_filter_replaces_tables_that_l2_does_not_hold() {
        for (keys, span, rows, wanted) in [
            (1e5, Some(1e5), 1e9, FilterForm::Table),
            (5e5, None, 1e9, FilterForm::Table),
            (1e7, None, 6e8, FilterForm::Bloom),
            (1e7, Some(1e15), 6e8, FilterForm::Bloom),
            (1e7, Some(6e7), 6e8, FilterForm::Bitmap),
            // As many bits as a bitmap would have, and more.
            (2e6, Some(1e10), 6e8, FilterForm::Bloom),
            // Too few lookups for making it.
            (1e7, None, 5e6, FilterForm::Table),
            (2e6, None, 1e5, FilterForm::Table),
            // The filter is not in L2 either.
            (1e9, None, 1e9, FilterForm::Table),
        ] {
            assert_eq!(form(&table(keys, span), rows), wanted, "{keys} {span:?} {rows}");
        }
        // Neighbours of an ordered table are near.
        assert_eq!(form(&FilteredTable { lookup_ps: 3.0, ..table(1e8, Some(1e8)) }, 1e9), FilterForm::Table);
    }

    #[test]
    fn a_bloom_filter_takes_what_l2_has_room_for() {
        assert_eq!(bloom_bits(1e6, L2_BYTES), BLOOM_BITS.1);
        assert_eq!(bloom_bits(1e8, L2_BYTES), BLOOM_BITS.0);
        let between = bloom_bits(1.2e7, L2_BYTES);
        assert!(between > BLOOM_BITS.0 && between < BLOOM_BITS.1, "{between}");
        assert_eq!(bloom_bits(0.0, L2_BYTES), BLOOM_BITS.1);
    }
}
