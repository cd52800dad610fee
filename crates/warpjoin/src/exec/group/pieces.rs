//! Rows sorted by a key, cut into pieces so that no key is in two pieces.
//!
//! A block that processes a piece alone finishes its groups, as it does for a partition. But no rows have to be moved,
//! and no table needs room for all groups.

use std::sync::Arc;

use warpjoin_codegen::{Constants, GroupShape};
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Launch, ModuleSource, Ptr};
use warpjoin_kernels::group::CutParams;

use crate::exec::launch::{GroupPieces, Lane, Strides};
use crate::exec::query::Query;
use crate::exec::relation::{Part, Relation, Source, TableColumns};

/// Minimum rows for which cutting pays.
const ROWS_MIN: u64 = 1 << 20;
/// Maximum rows: positions have 32 bits, including those past the end that a last iteration computes.
const ROWS_MAX: u64 = u32::MAX as u64 - 0x10_0000;
/// Number of windows of rows that are sampled to estimate the number of groups.
const WINDOWS: u64 = 2048;
/// Rows of a window.
const WINDOW_ROWS: u32 = 256;
/// Target share of a block table's slots that the groups of a piece fill.
const PIECE_LOAD: f64 = 0.5;

/// How the rows of one device are cut, and their expected number of groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub rows: u64,
    pub rows_each: u64,
    pub groups: f64,
}

impl Cut {
    /// Cuts rows with `groups` groups for `blocks` blocks with tables of `slots` slots.
    fn new(rows: u64, groups: f64, slots: u32, blocks: u64) -> Self {
        let rows_a_group = rows as f64 / groups.max(1.0);
        let fitting = (f64::from(slots) * PIECE_LOAD * rows_a_group) as u64;
        // Each block has several.
        let even = rows / (4 * blocks.max(1));
        Self { rows, rows_each: fitting.min(even).max(64), groups }
    }

    pub(super) fn pieces(self) -> u64 {
        self.rows.div_ceil(self.rows_each)
    }
}

/// A column by which rows are sorted.
pub(super) struct OrderedColumn<'r> {
    relation: &'r Relation,
    /// Position in the projection of the table.
    column: usize,
    width_bytes: u64,
    devices: usize,
}

impl<'r> OrderedColumn<'r> {
    /// The ordered column among the keys; `None`: there is none.
    pub(super) fn of(relation: &'r Relation, keys: &[Expr], devices: usize) -> Option<Self> {
        let Source::Table(table, projection) = &relation.source else { return None };
        let is_stored = |column: usize| {
            let column = *projection.get(column)?;
            let statistics = &table.statistics()[column];
            let width_bytes = u64::from(table.column_types()[column].layout().width_bytes);
            let is_ordered = statistics.sorted && statistics.null_count == 0;
            (is_ordered && matches!(width_bytes, 1 | 2 | 4 | 8)).then_some(width_bytes)
        };
        let of_key = |key: &Expr| {
            let ExprKind::Column(column) = relation.at_source(key)?.kind else { return None };
            Some((column, is_stored(column)?))
        };
        let (column, width_bytes) = keys.iter().find_map(of_key)?;
        Some(Self { relation, column, width_bytes, devices })
    }

    /// Whether it pays to cut the rows, and there are not too many. Not if columns are in host memory. `rows_min`: for
    /// tests.
    pub(super) fn pays(&self, rows_min: Option<u64>) -> bool {
        let rows = self.relation.source.shard_rows_max(self.devices);
        let is_on_host = matches!(&self.relation.source, Source::Table(table, _) if table.host_bytes() > 0);
        rows >= rows_min.unwrap_or(ROWS_MIN) && rows < ROWS_MAX && !is_on_host
    }

    /// The columns where they lie now: in host memory, if they have been evicted meanwhile.
    fn columns(&self) -> Arc<TableColumns> {
        Arc::new(TableColumns::of(self.relation, self.devices))
    }

    fn params<'b>(&'b self, columns: &'b TableColumns, device: usize) -> Result<CutParams<'b, Buffer>> {
        let keys = columns.buffer(&self.relation.source, device, Part::Values(self.column));
        let keys = keys.ok_or_else(|| Error::internal("an ordered column that is not stored"))?;
        let rows = self.relation.source.shard_rows(device);
        Ok(CutParams {
            keys: Ptr::of(keys),
            width: self.width_bytes,
            rows,
            changes: None,
            rows_each: 0,
            pieces: 0,
            offsets: None,
        })
    }

    /// Cuts the rows of a device.
    pub(super) fn cut_rows(&self, lane: &mut Lane<'_>, cut: Cut) -> Result<GroupPieces> {
        let (columns, count) = (self.columns(), cut.pieces());
        let offsets = lane.stream.alloc((count + 1) * 4)?;
        let kernel = lane.kernel(&cut_module(lane.options.hash_bits), "cut_rows")?;
        let params = CutParams {
            rows_each: cut.rows_each,
            pieces: count,
            offsets: Some(Ptr::of(&offsets)),
            ..self.params(&columns, lane.device)?
        };
        lane.launch(&kernel, Strides::ROWS.over(count + 1, &lane.stream), &params)?;
        Ok(GroupPieces { offsets, count, _columns: columns })
    }
}

impl Query<'_> {
    /// How to cut the rows of each device, from a sampled estimate of the groups. Waits.
    pub(super) fn cuts(&mut self, ordered: &OrderedColumn<'_>, shape: &GroupShape, blocks: u64) -> Result<Vec<Cut>> {
        let kernels = self.compile(&cut_module(self.options.hash_bits), "count_changes")?;
        self.on_each(|lane| {
            let rows = ordered.relation.source.shard_rows(lane.device);
            if rows == 0 {
                return Ok(Cut { rows, rows_each: 64, groups: 0.0 });
            }
            let windows = (rows / u64::from(WINDOW_ROWS)).clamp(1, WINDOWS);
            let changes = lane.stream.alloc_filled(8, 0)?;
            let columns = ordered.columns();
            let params = CutParams { changes: Some(Ptr::of(&changes)), ..ordered.params(&columns, lane.device)? };
            let block_threads = lane.stream.device().info().block_threads(WINDOW_ROWS);
            let launch = Launch { blocks: windows as u32, block_threads, shared_bytes: 0 };
            lane.launch(&kernels[lane.device], launch, &params)?;
            let mut count = [0u64; 1];
            lane.stream.read(&changes, 0, bytemuck::cast_slice_mut(&mut count))?;
            let seen = (windows * u64::from(block_threads)).min(rows) as f64;
            let groups = (count[0] as f64 / seen * rows as f64).clamp(1.0, rows as f64);
            Ok(Cut::new(rows, groups, shape.front.slots(), blocks))
        })
    }
}

fn cut_module(hash_bits: u32) -> ModuleSource {
    let file = warpjoin_kernels::CUT;
    Constants { hash_bits, ..Constants::USUAL }.module(file, file.entries())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fit_tables_and_go_round() {
        // Four rows a group: twice as many groups as half of the slots hold rows of.
        assert_eq!(Cut::new(600_000_000, 150_000_000.0, 8000, 264).rows_each, 16_000);
        // A block has four at least.
        assert_eq!(Cut::new(1_000_000, 1000.0, 8000, 100).rows_each, 2500);
        assert_eq!(Cut::new(100, 100.0, 64, 1).rows_each, 64);
        assert_eq!(Cut::new(100, 100.0, 64, 1).pieces(), 2);
    }
}
