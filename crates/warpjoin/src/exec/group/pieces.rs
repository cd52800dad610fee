//! Rows in the order of a key, cut into pieces with no key in two of them.
//!
//! A block that has a piece to itself finishes its groups, as it does with a partition; but nothing has to be moved before, and
//! no table has room for all groups.

use std::sync::Arc;

use warpjoin_device::{Buffer, Launch, ModuleSource, Ptr};
use warpjoin_kernels::group::CutParams;

use crate::codegen::{Constants, GroupShape};
use crate::exec::launch::{GroupPieces, Lane, Strides};
use crate::exec::query::Query;
use crate::exec::relation::{Part, Relation, Source, TableColumns};
use crate::expr::{Expr, ExprKind};
use crate::{Error, Result};

/// Rows from which on it pays.
const ROWS_MIN: u64 = 1 << 20;
/// Places of rows are numbers of 32 bits, those that a last turn looks for included.
const ROWS_MAX: u64 = u32::MAX as u64 - 0x10_0000;
/// Windows of rows that are looked at, to tell how many groups there are.
const WINDOWS: u64 = 2048;
/// Rows of a window.
const WINDOW_ROWS: u32 = 256;
/// Part of the slots of a block's table that the groups of a piece are to take.
const PIECE_LOAD: f64 = 0.5;

/// The rows of one device: how they are cut, and how many groups they are expected to have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub rows: u64,
    pub rows_each: u64,
    pub groups: f64,
}

impl Cut {
    /// Cuts rows with `groups` groups for tables of `slots` slots, one in each of `blocks` blocks.
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

/// A column whose order rows come in.
pub(super) struct OrderedColumn<'r> {
    relation: &'r Relation,
    /// Position in the projection of the table.
    column: usize,
    width_bytes: u64,
    devices: usize,
}

impl<'r> OrderedColumn<'r> {
    /// That of one of the keys; `None`: there is none.
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

    /// Whether it pays to cut the rows, and they are not too many; `rows_min`: for tests. Not where columns are in the host's
    /// memory.
    pub(super) fn pays(&self, rows_min: Option<u64>) -> bool {
        let rows = self.relation.source.shard_rows_max(self.devices);
        let is_on_host = matches!(&self.relation.source, Source::Table(table, _) if table.host_bytes() > 0);
        rows >= rows_min.unwrap_or(ROWS_MIN) && rows < ROWS_MAX && !is_on_host
    }

    /// Columns as they lie now: in the host's memory, if they have left their device meanwhile.
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
    /// How the rows of each device are cut, by the groups that a look at some of them promises. Waits.
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
