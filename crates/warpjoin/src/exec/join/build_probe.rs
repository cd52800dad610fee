//! Joins: the build side becomes a hash table on every device, the probe side gets a step.

use std::sync::Arc;

use warpjoin_codegen::{
    GeneratedPipeline, JoinShape, ProbeKey, ProbeKind, ProbeStep, Sink, SinkShape, Slots, Step, StoredKey,
};
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_columns::{Error, Reason, Result};
use warpjoin_device::Cause;
use warpjoin_plan::optimize::COMPACTED_ROWS_MIN;
use warpjoin_plan::optimize::costs::{exchanges, prefers_partition, stops_early};
use warpjoin_plan::plan::JoinKind;
use warpjoin_plan::plan::join::JoinNode;
use warpjoin_plan::plan::physical::JoinMethod;

use super::direct::Filled;
use crate::exec::decision::RuntimeDecision;
use crate::exec::exchange::Owners;
use crate::exec::query::Query;
use crate::exec::relation::{BuildKeys, Intermediate, JoinTable, Relation, Source};

/// Minimum bytes of a build row with its slot, without payload.
const TABLE_ROW_BYTES_MIN: u64 = 16;

/// Minimum numbers in the range of a build side's keys, for each key, for compacting the rows with a match. Probe keys may be
/// denser than that range by a few times.
const COMPACTED_SPAN_MIN: u64 = 16;

impl Query<'_> {
    /// Whether both sides are partitioned, instead of the pipeline probing one table: as planned, or by the number of rows that the
    /// sides turn out to have. `wanted`: rows of the result that are needed, if not all.
    fn partitions_sides(
        &self,
        plan: &JoinNode<'_>,
        (build, probe): (&Relation, &Relation),
        (method, wanted): (JoinMethod, Option<u64>),
    ) -> bool {
        match method {
            JoinMethod::HashTable | JoinMethod::DirectTable => return false,
            JoinMethod::Partitioned => return true,
            JoinMethod::BySize => {}
        }
        if stops_early(wanted, probe.rows_max, self.options) {
            return false;
        }
        let rows = build.known_rows(self.devices()).zip(probe.known_rows(self.devices()));
        prefers_partition(plan, rows, self.session.devices(), &self.inputs.tables, self.options)
    }

    /// Joins two relations: runs the build side, builds the tables, and appends the probe to the probe side. `planned`: the
    /// method, and the rows of the result that are needed, if not all.
    pub(in crate::exec) fn join_relations(
        &mut self,
        plan: &JoinNode<'_>,
        build: Relation,
        probe: Relation,
        planned: (JoinMethod, Option<u64>),
    ) -> Result<Relation> {
        let build_width = plan.build.schema.fields().len();
        let mut payload = plan.needed_columns();
        payload.retain(|&column| column < build_width);
        if self.partitions_sides(plan, (&build, &probe), planned)
            && let Some(matches) = self.join_partitioned_on_all(plan, build.clone(), probe.clone())?
        {
            return Ok(matches);
        }
        if self.options.pass_rows.is_some() && self.may_lack_room(plan, &build) {
            let (build, probe) = (build.clone(), probe.clone());
            if let Some(joined) = self.join_in_passes(plan, build, probe)? {
                return Ok(joined);
            }
        }
        let again = self.may_lack_room(plan, &build).then(|| (build.clone(), probe.clone()));
        match (self.join_by_table(plan, build, probe, payload), again) {
            (Err(error), Some((build, probe))) if error.cause() == Cause::OutOfMemory => {
                self.join_in_passes(plan, build, probe)?.ok_or(error)
            }
            (joined, _) => joined,
        }
    }

    /// Joins two relations by a table of the build side.
    fn join_by_table(
        &mut self,
        plan: &JoinNode<'_>,
        build: Relation,
        probe: Relation,
        payload: Vec<usize>,
    ) -> Result<Relation> {
        let build_width = plan.build.schema.fields().len();
        let probing = self.devices_with_rows(&probe);
        let filled = self.filled_directly(plan, &build, &payload, &probing)?;
        if let Filled::Table(table) = filled {
            let table = (table, payload_of(&payload, build_width));
            return probe_here(plan, probe, table, self.options.counts_rows);
        }
        if self.may_lack_room(plan, &build)
            && let Some(rows) = build.known_rows(self.devices())
        {
            // Rather than when all rows are written. A device has its share at least.
            let bytes = (rows / self.devices() as u64).saturating_mul(TABLE_ROW_BYTES_MIN + payload.len() as u64);
            self.streams.iter().try_for_each(|stream| stream.check_budget(bytes))?;
        }
        let (rows, shape) = self.build_rows(plan, &build, payload.clone())?;
        drop(build);
        let is_nested = plan.is_nested();
        let probe_rows = probe.known_rows(self.devices()).unwrap_or(probe.rows_max);
        let pairs = rows.rows().saturating_mul(probe_rows);
        if is_nested && pairs > NESTED_PAIRS_MAX {
            return Err(Reason::Limit(format!("{pairs} pairs of a join without a key")).into());
        }
        let build_rows = rows.rows();
        let are_few = self.are_few(&rows.columns, build_rows);
        let probe_keys: Vec<Expr> = plan.on.iter().map(|(_, probe)| probe.clone()).collect();
        let ranges = if is_nested { None } else { self.ranges_of_keys(&probe_keys, &probe, &shape) };
        let can_stay = is_nested || are_few || ranges.is_some();
        let is_exchanged = !can_stay && exchanges(build_rows, probe_rows, self.devices(), self.options);
        self.note_decision(RuntimeDecision::Exchange(is_exchanged));
        let rows = match ranges {
            _ if is_exchanged => self.exchange(rows)?,
            Some(ranges) if !are_few => self.exchange_by(rows, Owners::Ranges(&ranges))?,
            _ => self.broadcast_to(rows, &probing)?,
        };
        let keys = keys_of_table(plan, &shape, matches!(filled, Filled::Repeats));
        let table = self.build_table(shape, rows, keys)?;
        let payload_of = payload_of(&payload, build_width);
        if is_exchanged {
            self.probe_exchanged(plan, probe, table, payload_of)
        } else {
            probe_here(plan, probe, (table, payload_of), self.options.counts_rows)
        }
    }

    /// Runs the build side: key words and payload.
    pub(super) fn build_rows(
        &mut self,
        plan: &JoinNode<'_>,
        build: &Relation,
        payload: Vec<usize>,
    ) -> Result<(Intermediate, JoinShape)> {
        let keys: Vec<Expr> = plan.on.iter().map(|(build, _)| build.clone()).collect();
        let sink = Sink::Build { keys, null_equals_null: plan.null_equals_null, payload };
        let (rows, generated) = self.run_rows(build, &sink, "BuildRows")?;
        Ok((rows, build_shape(&generated)?))
    }

    /// A guess whether build keys are unique: one of the key columns comes from a table's column with distinct values,
    /// or there are several key columns, which usually form a key.
    pub(super) fn guess_unique(&self, plan: &JoinNode<'_>) -> bool {
        plan.on.len() > 1
            || plan.on.iter().any(|(key, _)| match key.kind {
                ExprKind::Column(column) => {
                    plan.build.plan.is_some_and(|build| build.is_distinct(column, &self.inputs.tables))
                }
                _ => false,
            })
    }

    /// Compacts a table's rows behind the probe that was added last if it keeps few of them, as the finished build table tells.
    pub(in crate::exec) fn compacted(&self, mut relation: Relation) -> Relation {
        let (Source::Table(table, _), Some(Step::Probe(probe)), Some(joined)) =
            (&relation.source, relation.steps.last(), relation.joins.last())
        else {
            return relation;
        };
        let keys = joined.build.shards.iter().map(|shard| shard.rows).max().unwrap_or(0);
        let few = |span: u64| keys <= span / COMPACTED_SPAN_MIN;
        let is_of_many =
            table.rows() / self.devices() as u64 >= self.options.compact_rows_min.unwrap_or(COMPACTED_ROWS_MIN);
        let is_kind = matches!(probe.kind, ProbeKind::Matches | ProbeKind::Semi) && probe.shape.unique;
        let is_first = !relation.steps.iter().any(|step| matches!(step, Step::Compact));
        if is_first && is_of_many && is_kind && joined.shape.packing.integer_span().is_some_and(few) {
            relation.steps.push(Step::Compact);
        }
        relation
    }

    /// Exchanges the probe rows by key, with the columns that are needed later.
    fn probe_exchanged(
        &mut self,
        plan: &JoinNode<'_>,
        probe: Relation,
        table: Arc<JoinTable>,
        payload_of: Vec<Option<usize>>,
    ) -> Result<Relation> {
        let build_width = payload_of.len();
        let mut columns = plan.needed_columns();
        columns.retain(|&column| column >= build_width);
        let columns: Vec<usize> = columns.into_iter().map(|column| column - build_width).collect();
        let sink = Sink::Route {
            shape: table.shape.clone(),
            keys: plan.on.iter().map(|(_, probe)| probe.clone()).collect(),
            null_equals_null: plan.null_equals_null,
            keeps_unmatched: plan.kind.keeps_unmatched(),
            keeps_words: true,
            columns: columns.clone(),
        };
        let (rows, _) = self.run_rows(&probe, &sink, "Partition")?;
        drop(probe);
        let rows = self.exchange(rows)?;
        let packed_words = if table.shape.is_hashed() { table.shape.packing.words() } else { 0 };
        let first_column = 1 + packed_words;
        let moved = |column: usize| match column.checked_sub(build_width) {
            None => column,
            // Only columns in `columns` are asked for, and the mark behind all.
            Some(probe) => {
                build_width + first_column + columns.iter().position(|&c| c == probe).unwrap_or(columns.len())
            }
        };
        let step = ProbeStep {
            shape: table.shape.clone(),
            key: ProbeKey::Stored(StoredKey { word: 0, packed: (1..first_column).collect() }),
            kind: probe_kind(plan.kind)?,
            null_equals_null: plan.null_equals_null,
            residual: plan.residual.as_ref().map(|residual| residual.remap(&moved)),
            output: plan.output.iter().map(|&column| moved(column)).collect(),
            payload_of,
            filter: None,
            is_counted: self.options.counts_rows,
        };
        Ok(append_probe(Relation::new(Source::Intermediate(Arc::new(rows))), step, table))
    }
}

/// The shape of a table of build rows, before anything is known of their keys.
pub(super) fn build_shape(generated: &GeneratedPipeline) -> Result<JoinShape> {
    let SinkShape::Build { packing, payload, .. } = &generated.sink else {
        return Err(Error::internal("a build sink without a build"));
    };
    let (packing, payload) = (packing.clone(), payload.clone());
    Ok(JoinShape { packing, payload, unique: true, slots: Slots::Pairs { lanes: 1 } })
}

/// What is known about the keys of build rows; `repeats`: it is known that one repeats.
pub(super) fn keys_of_table(plan: &JoinNode<'_>, shape: &JoinShape, repeats: bool) -> BuildKeys {
    // Where only the presence of a key counts, its first row stands for all.
    if plan.kind.is_existence() && plan.residual.is_none() && !shape.is_hashed() {
        BuildKeys::Set
    } else if repeats {
        BuildKeys::Repeated
    } else {
        BuildKeys::Any
    }
}

/// The payload column of each build column; `None` if it is not needed.
pub(super) fn payload_of(payload: &[usize], build_width: usize) -> Vec<Option<usize>> {
    (0..build_width).map(|column| payload.iter().position(|&needed| needed == column)).collect()
}

/// Maximum pairs that a join without a key may test on a device.
const NESTED_PAIRS_MAX: u64 = 1 << 40;

fn probe_kind(kind: JoinKind) -> Result<ProbeKind> {
    Ok(match kind {
        JoinKind::Inner => ProbeKind::Matches,
        JoinKind::ProbeSemi => ProbeKind::Semi,
        JoinKind::ProbeAnti => ProbeKind::Anti,
        JoinKind::ProbeMark => ProbeKind::Mark,
        JoinKind::ProbeOuter => ProbeKind::Outer,
        JoinKind::NotIn | JoinKind::Full => return Err(Error::internal(format!("a {kind:?} that is made of others"))),
    })
}

/// Appends the probe to a relation whose rows stay where they are.
pub(super) fn probe_here(
    plan: &JoinNode<'_>,
    probe: Relation,
    (table, payload_of): (Arc<JoinTable>, Vec<Option<usize>>),
    is_counted: bool,
) -> Result<Relation> {
    let step = ProbeStep {
        shape: table.shape.clone(),
        key: ProbeKey::Exprs(plan.on.iter().map(|(_, probe)| probe.clone()).collect()),
        kind: probe_kind(plan.kind)?,
        null_equals_null: plan.null_equals_null,
        residual: plan.residual.clone(),
        output: plan.output.clone(),
        payload_of,
        filter: None,
        is_counted,
    };
    Ok(append_probe(probe, step, table))
}

pub(super) fn append_probe(mut relation: Relation, step: ProbeStep, table: Arc<JoinTable>) -> Relation {
    if !table.shape.unique && !step.kind.is_existence() {
        relation.rows_max = relation.rows_max.saturating_mul(table.build.rows_max.max(1));
    }
    relation.width = step.output.len();
    relation.steps.push(Step::Probe(step));
    relation.joins.push(table);
    relation
}
