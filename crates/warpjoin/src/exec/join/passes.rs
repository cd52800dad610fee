//! Joins whose table does not fit a device: both sides are spilled by partitions of their keys, and tables are built
//! and probed for some partitions at a time.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use warpjoin_codegen::{RowSpec, Sink, Step};
use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;
use warpjoin_columns::expr::build::{is_null, not};
use warpjoin_device::{Cause, Stream};
use warpjoin_plan::plan::JoinKind;
use warpjoin_plan::plan::join::JoinNode;

use super::build_probe::{keys_of_table, payload_of, probe_here};
use crate::exec::decision::RuntimeDecision;
use crate::exec::partition::{Inbound, PartitionRanges, SPILL_BITS, SpilledRows};
use crate::exec::query::Query;
use crate::exec::relation::{Intermediate, JoinTable, Relation, RowSlice, Source};
use crate::exec::rows::AppendedRows;

/// Maximum bytes of a table for each row, including its inputs: two words in twice the slots, row lists, and the key
/// word.
const TABLE_ROW_BYTES: u64 = 64;
/// A table may lack room if fewer bytes than this are free for each row.
const RISK_ROW_BYTES: u64 = 128;

/// Probe rows take at most this fraction of a device's free memory at a time (1 / divisor): the rows of the next step
/// and the output need room too.
const PROBE_DIVISOR: u64 = 8;

/// A spilled side of a join: its keys, then the columns that are needed.
struct Side {
    rows: Arc<SpilledRows>,
    /// Positions of those columns in the side.
    columns: Vec<usize>,
    schema: Arc<Schema>,
}

impl Query<'_> {
    /// Whether the table of a build side may not fit, so that passes over partitions may help.
    pub(super) fn may_lack_room(&self, plan: &JoinNode<'_>, build: &Relation) -> bool {
        let free_bytes = || self.streams.iter().map(Stream::free_bytes).min().unwrap_or(0);
        !plan.is_nested()
            && !plan.on.is_empty()
            && (self.options.pass_rows.is_some() || build.rows_max.saturating_mul(RISK_ROW_BYTES) > free_bytes())
    }

    /// Joins two relations, some partitions at a time; each device has its own partitions. `None` if their rows can't
    /// be partitioned.
    pub(super) fn join_in_passes(
        &mut self,
        plan: &JoinNode<'_>,
        build: Relation,
        probe: Relation,
    ) -> Result<Option<Relation>> {
        let decisions = self.decisions();
        let build_width = plan.build.schema.fields().len();
        let (of_build, of_probe): (Vec<usize>, Vec<usize>) =
            plan.needed_columns().into_iter().partition(|&column| column < build_width);
        let of_probe: Vec<usize> = of_probe.into_iter().map(|column| column - build_width).collect();
        let (build_keys, probe_keys): (Vec<Expr>, Vec<Expr>) = plan.on.iter().cloned().unzip();
        // Build rows with keys that no probe row can have are dropped; probe rows are all kept where some come out unmatched.
        let keeps_null_keys = plan.null_equals_null || plan.kind.keeps_unmatched();
        let (probe, probe_schema, spec) = keyed(probe, &plan.probe.schema, probe_keys, &of_probe);
        let probe = self.plan_partition(probe, RowSpec { keeps_null_keys, ..spec }, SPILL_BITS)?;
        let (build, build_schema, spec) = keyed(build, &plan.build.schema, build_keys, &of_build);
        let spec = RowSpec { like: Some(Arc::clone(&probe.shape)), keeps_null_keys: plan.null_equals_null, ..spec };
        let build = self.plan_partition(build, spec, SPILL_BITS)?;
        if let Some(obstacle) = self.spill_obstacle(&[&build, &probe]) {
            log::debug!("a join without passes: {obstacle:?}");
            return Ok(None);
        }
        // NOT IN asks for build rows, also those that no probe row can match.
        let all = (plan.kind == JoinKind::ProbeAnti).then(|| build.relation.clone());
        let build = Arc::new(self.spill(build)?);
        let has_build_rows = match all.filter(|_| build.rows() == 0) {
            Some(all) => self.has_keys(all, plan)?,
            None => build.rows() > 0,
        };
        let probe = Arc::new(self.spill(probe)?);
        let build = Side { rows: build, columns: of_build, schema: build_schema };
        let probe = Side { rows: probe, columns: of_probe, schema: probe_schema };
        let node = node_of(plan, build_width, &build, &probe);
        let (sides, devices) = (Sides { node: &node, build: &build, probe: &probe }, self.devices());
        let joined = self
            .on_members(|query, device| query.join_partitions(&sides, SpilledRows::partitions_of(device, devices)))?;
        let (parts, tables): (Vec<_>, Vec<_>) = joined.into_iter().unzip();
        if let Some(decision) = tables.into_iter().flatten().next() {
            self.note_decision_instead(decisions, decision);
        }
        self.joins.has_build_rows = Some(has_build_rows);
        Ok(Some(Relation::new(Source::Intermediate(Arc::new(Intermediate::of_members(parts)?)))))
    }

    /// Joins the rows of some partitions on the only device. Also returns the form of its tables, if it built any.
    fn join_partitions(
        &mut self,
        sides: &Sides<'_>,
        partitions: Range<usize>,
    ) -> Result<(Intermediate, Option<RuntimeDecision>)> {
        let Sides { build, probe, .. } = sides;
        let stream = self.streams[0].clone();
        let room = stream.free_bytes() / 2 / (TABLE_ROW_BYTES + 2 * build.rows.shape.row_bytes());
        let all_probe_rows = probe.rows.rows_of(&partitions);
        let mut ranges = PartitionRanges::of(&build.rows, partitions, self.options.pass_rows.unwrap_or(room));
        let room = stream.free_bytes() / PROBE_DIVISOR / probe.rows.shape.row_bytes();
        let probe_rows_max = self.options.pass_rows.unwrap_or(room);
        let mut inbound = Inbound::new(&stream)?;
        let mut joined = AppendedRows::new(&stream)?;
        let (mut probed_rows, mut table) = (0, None);
        while let Some(range) = ranges.advance() {
            self.options.check_cancelled()?;
            // A row comes out for rows of the probe side only.
            if probe.rows.rows_of(&range) == 0 && joined.has_parts() {
                inbound.forget_ahead()?;
                continue;
            }
            let before = joined.rows();
            let next = ranges.next();
            let pass = Pass { sides, probe_rows_max, all_probe_rows, probed_rows, next };
            match self.join_pass(&pass, &range, &mut inbound, &mut joined) {
                Ok(decision) => {
                    probed_rows += probe.rows.rows_of(&range);
                    table = Some(decision);
                }
                Err(error) if error.cause() == Cause::OutOfMemory => {
                    joined.truncate(before);
                    if !ranges.retry(&mut inbound)? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.metrics.host_read_bytes += inbound.bytes;
        self.metrics.spilled_bytes += joined.spilled_bytes();
        drop(inbound);
        Ok((joined.finish()?, table))
    }

    /// Whether a build side that begins with its keys has rows that could match.
    fn has_keys(&mut self, mut build: Relation, plan: &JoinNode<'_>) -> Result<bool> {
        let keys = plan.on.iter().enumerate().filter(|(_, (key, _))| key.nullable && !plan.null_equals_null);
        build.steps.extend(
            keys.map(|(index, (key, _))| Step::Filter(not(is_null(&Expr::column(index, key.data_type.clone(), true))))),
        );
        Ok(self.count(&build)? > 0)
    }

    /// Joins the rows of some partitions: a part of the result for each piece of the probe side.
    fn join_pass(
        &mut self,
        pass: &Pass<'_>,
        range: &Range<usize>,
        inbound: &mut Inbound,
        parts: &mut AppendedRows,
    ) -> Result<RuntimeDecision> {
        let Pass { sides: Sides { node, build, probe }, probe_rows_max, all_probe_rows, next, .. } = pass;
        let slice = inbound.take(&build.rows, &build.rows.piece(range))?;
        let pieces = probe.rows.pieces(range, *probe_rows_max);
        inbound.prefetch(&probe.rows, &pieces[0])?;
        let build_width = node.build.schema.fields().len();
        let payload: Vec<usize> = (build_width - build.columns.len()..build_width).collect();
        let table = self.table_of_slice(node, slice, payload.clone())?;
        let decision = RuntimeDecision::Table { unique: table.shape.unique, slots: table.shape.slots };
        let mut probed_rows = pass.probed_rows;
        for (number, piece) in pieces.iter().enumerate() {
            self.options.check_cancelled()?;
            let slice = inbound.take(&probe.rows, piece)?;
            match (pieces.get(number + 1), next) {
                (Some(piece), _) => inbound.prefetch(&probe.rows, piece)?,
                (None, Some(next)) => inbound.prefetch(&build.rows, &build.rows.piece(next))?,
                (None, None) => {}
            }
            probed_rows += slice.rows;
            let probe = Relation::new(Source::Slice(Arc::new(slice)));
            let table = (Arc::clone(&table), payload_of(&payload, build_width));
            let joined = probe_here(node, probe, table, self.options.counts_rows)?;
            let columns = (0..joined.width).collect();
            let part = self.run_rows(&joined, &Sink::Materialise(columns), "Join")?.0;
            parts.push(part, probed_rows as f64 / *all_probe_rows as f64)?;
        }
        Ok(decision)
    }

    fn table_of_slice(&mut self, node: &JoinNode<'_>, slice: RowSlice, payload: Vec<usize>) -> Result<Arc<JoinTable>> {
        let build = Relation::new(Source::Slice(Arc::new(slice)));
        let (rows, shape) = self.build_rows(node, &build, payload)?;
        drop(build);
        let keys = keys_of_table(node, &shape, false);
        self.build_table(shape, rows, keys)
    }
}

/// Properties that the passes of all devices share.
struct Sides<'p> {
    node: &'p JoinNode<'p>,
    build: &'p Side,
    probe: &'p Side,
}

/// State of the passes over a device's partitions, and the range after the current one.
struct Pass<'p> {
    sides: &'p Sides<'p>,
    /// Maximum rows of a piece of the probe side.
    probe_rows_max: u64,
    /// Rows of the probe side that the device processes in all passes.
    all_probe_rows: u64,
    /// Rows of the probe side processed in earlier passes.
    probed_rows: u64,
    next: Option<Range<usize>>,
}

/// A side's keys, then columns of it; and how these rows are partitioned.
fn keyed(
    mut relation: Relation,
    schema: &Schema,
    keys: Vec<Expr>,
    columns: &[usize],
) -> (Relation, Arc<Schema>, RowSpec) {
    let count = keys.len();
    let mut exprs = keys;
    exprs.extend(columns.iter().map(|&column| {
        let field = schema.field(column);
        Expr::column(column, field.data_type().clone(), field.is_nullable())
    }));
    let field = |expr: &Expr| Field::new("", expr.data_type.clone(), expr.nullable);
    let schema = Schema::new(exprs.iter().map(field).collect::<Vec<_>>());
    let column = |(index, expr): (usize, &Expr)| Expr::column(index, expr.data_type.clone(), expr.nullable);
    let keys = exprs.iter().enumerate().take(count).map(column).collect();
    let spec = RowSpec { keys, like: None, keeps_null_keys: false, payload: (0..exprs.len()).collect() };
    relation.width = exprs.len();
    relation.steps.push(Step::Project(exprs));
    (relation, Arc::new(schema), spec)
}

/// The join of partitioned sides.
fn node_of(plan: &JoinNode<'_>, build_width: usize, build: &Side, probe: &Side) -> JoinNode<'static> {
    let keys = plan.on.len();
    let (own_width, probe_width) = (build.schema.fields().len(), plan.probe.schema.fields().len());
    let position = |columns: &[usize], column: usize| columns.iter().position(|&known| known == column);
    let moved = |column: usize| match column.checked_sub(build_width) {
        None => keys + position(&build.columns, column).unwrap_or(0),
        // The mark is behind all columns.
        Some(column) if column >= probe_width => own_width + probe.schema.fields().len(),
        Some(column) => own_width + keys + position(&probe.columns, column).unwrap_or(0),
    };
    let key = |side: &Side, index: usize| {
        let field = side.schema.field(index);
        Expr::column(index, field.data_type().clone(), field.is_nullable())
    };
    debug_assert!(plan.kind != JoinKind::Full && plan.kind != JoinKind::NotIn, "made of others");
    let on = (0..keys).map(|index| (key(build, index), key(probe, index))).collect();
    plan.moved(on, &moved, [build, probe].map(|side| Arc::clone(&side.schema)))
}
