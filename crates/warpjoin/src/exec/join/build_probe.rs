//! Joins: the build side becomes a hash table on every device, the probe side gets a step.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::direct::Filled;
use super::table::{BuildKeys, TableGuess};
use crate::codegen::{JoinShape, ProbeKey, ProbeKind, ProbeStep, Sink, SinkShape, Slots, Step, StoredKey};
use crate::exec::query::{Fact, Query};
use crate::exec::relation::{Intermediate, JoinTable, Relation, Source};
use crate::expr::{Expr, ExprKind, Scalar};
use crate::optimize::device_cost::prefers_partition;
use crate::options::Distribution;
use crate::plan::join::JoinNode;
use crate::plan::{JoinKind, Plan};
use crate::{Error, Reason, Result};

/// A join of which less than this part of the probe rows are wanted is not partitioned.
const WANTED_SHARE: u64 = 16;

impl Query<'_> {
    /// Whether both sides should be partitioned, rather than one table be probed by the pipeline.
    /// `wanted` rows of the result, if not all are.
    pub(crate) fn prefers_partition(
        &self,
        plan: &JoinNode<'_>,
        build: &Relation,
        probe: &Relation,
        wanted: Option<u64>,
    ) -> bool {
        // A pipeline stops early, a partition goes over all rows first.
        if self.options.join_form.is_none() && wanted.is_some_and(|wanted| wanted < probe.rows_max / WANTED_SHARE) {
            return false;
        }
        let is_plain = |relation: &Relation| {
            matches!(relation.source, Source::Table(..) | Source::Intermediate(_))
                && relation.steps.iter().all(|step| matches!(step, Step::Project(_)))
        };
        let rows = (is_plain(build) && is_plain(probe)).then_some((build.rows_max, probe.rows_max));
        prefers_partition(plan, rows, self.session.devices(), &self.inputs.tables, self.options)
    }

    /// Joins two relations: runs the build side, builds the tables, and appends the probe to the probe side. `wanted` rows of the
    /// result, if not all are.
    pub(in crate::exec) fn join_sides(
        &mut self,
        plan: &JoinNode<'_>,
        build: Relation,
        probe: Relation,
        wanted: Option<u64>,
    ) -> Result<Relation> {
        match plan.kind {
            JoinKind::Full => self.full_join(plan, build, probe),
            _ => self.join_relations(plan, build, probe, wanted),
        }
    }

    /// Pairs and unmatched probe rows, then unmatched build rows, found by a join the other way round.
    fn full_join(&mut self, plan: &JoinNode<'_>, build: Relation, probe: Relation) -> Result<Relation> {
        let (build_width, probe_width) = (build.width, probe.width);
        let mut outer = plan.clone();
        outer.spec.kind = JoinKind::ProbeOuter;
        let pairs = self.join_relations(&outer, build.clone(), probe.clone(), None)?;
        let swapped = |column: usize| if column < build_width { probe_width + column } else { column - build_width };
        let mut columns: Vec<usize> = plan.output.iter().copied().filter(|&column| column < build_width).collect();
        columns.sort_unstable();
        columns.dedup();
        let residual = plan.residual.as_ref().map(|residual| residual.remap(&swapped));
        let output = columns.iter().map(|&column| swapped(column)).collect();
        let anti = plan.swapped(JoinKind::ProbeAnti, residual, output);
        let mut alone = self.join_relations(&anti, probe, build, None)?;
        let fields: Vec<_> = plan.build.schema.fields().iter().chain(plan.probe.schema.fields()).collect();
        let exprs = plan.output.iter().map(|column| {
            let data_type = fields[*column].data_type().clone();
            match columns.iter().position(|wanted| wanted == column) {
                Some(position) => Expr::column(position, data_type, fields[*column].is_nullable()),
                None => Expr::literal(Scalar::Null, data_type),
            }
        });
        alone.steps.push(Step::Project(exprs.collect()));
        alone.width = plan.output.len();
        self.union(vec![pairs, alone])
    }

    pub(super) fn join_relations(
        &mut self,
        plan: &JoinNode<'_>,
        build: Relation,
        probe: Relation,
        wanted: Option<u64>,
    ) -> Result<Relation> {
        // A semi join that reduces a build side is itself not worth that.
        let (build, mut probe) = if self.joins.is_reducing {
            (build, probe)
        } else {
            self.joins.is_reducing = true;
            let sides = self.reduce_build(plan, build, probe);
            self.joins.is_reducing = false;
            sides?
        };
        let build_width = plan.build.schema.fields().len();
        let mut payload = plan.needed_columns();
        payload.retain(|&column| column < build_width);
        let has_null = plan.kind == JoinKind::NotIn && self.has_null_key(plan, &build)?;
        if self.prefers_partition(plan, &build, &probe, wanted) {
            let facts = self.facts();
            match self.join_partitioned(plan, build.clone(), probe.clone()) {
                Ok(Some(matches)) => return Ok(matches),
                Ok(None) => {}
                Err(error) if error.leaves_other_forms() => {
                    log::debug!("a join without a partition: {error}");
                    self.kept.clear();
                    self.known_instead(facts, Fact::Matches(None));
                }
                Err(error) => return Err(error),
            }
        }
        let filled = self.filled_directly(plan, &build, &payload)?;
        if let Filled::Table(table) = filled {
            let table = (table, payload_of(&payload, build_width));
            return Ok(probe_here(plan, probe, table, self.options.counts_rows));
        }
        let (rows, shape) = self.build_rows(plan, &build, payload.clone())?;
        drop(build);
        if plan.kind == JoinKind::NotIn {
            let has_rows = self.known_flag(self.is_dry() || rows.rows() > 0);
            probe.steps.extend(not_in_filter(plan, has_null, has_rows));
        }
        let is_nested = is_nested(plan);
        let pairs = rows.rows().saturating_mul(probe.rows_max);
        if is_nested && pairs > NESTED_PAIRS_MAX {
            return Err(Reason::Limit(format!("{pairs} pairs of a join without a key")).into());
        }
        let build_rows = if self.is_dry() { self.expected_rows(plan.build.plan, rows.rows_max) } else { rows.rows() };
        let is_exchanged = !is_nested && self.exchanges(build_rows, probe.rows_max);
        let is_exchanged = self.known_flag(is_exchanged);
        let rows = if is_exchanged { self.exchange(rows)? } else { self.broadcast(rows)? };
        let owners = if is_exchanged { self.devices() as u64 } else { 1 };
        let table = self.table_of(plan, shape, rows, owners, matches!(filled, Filled::Repeats))?;
        let payload_of = payload_of(&payload, build_width);
        if is_exchanged {
            self.probe_exchanged(plan, probe, table, payload_of)
        } else {
            Ok(probe_here(plan, probe, (table, payload_of), self.options.counts_rows))
        }
    }

    /// A table of all build rows on every device, and the payload column of each build column. The rows themselves are there
    /// too if `needs_rows`.
    pub(super) fn broadcast_table(
        &mut self,
        plan: &JoinNode<'_>,
        build: &Relation,
        needs_rows: bool,
    ) -> Result<(Arc<JoinTable>, Vec<Option<usize>>)> {
        let build_width = plan.build.schema.fields().len();
        let mut payload = plan.needed_columns();
        payload.retain(|&column| column < build_width);
        let filled = if needs_rows { Filled::Not } else { self.filled_directly(plan, build, &payload)? };
        if let Filled::Table(table) = filled {
            return Ok((table, payload_of(&payload, build_width)));
        }
        let (rows, shape) = self.build_rows(plan, build, payload.clone())?;
        let rows = self.broadcast(rows)?;
        let table = self.table_of(plan, shape, rows, 1, matches!(filled, Filled::Repeats))?;
        Ok((table, payload_of(&payload, build_width)))
    }

    /// Runs the build side: key words and payload.
    fn build_rows(
        &mut self,
        plan: &JoinNode<'_>,
        build: &Relation,
        payload: Vec<usize>,
    ) -> Result<(Intermediate, JoinShape)> {
        let keys: Vec<Expr> = plan.on.iter().map(|(build, _)| build.clone()).collect();
        let sink = Sink::Build { keys, null_equals_null: plan.null_equals_null, payload };
        let (rows, generated) = self.run_rows(build, &sink, "BuildRows")?;
        let SinkShape::Build { packing, payload, .. } = &generated.sink else {
            return Err(Error::internal("a build sink without a build"));
        };
        let (packing, payload) = (packing.clone(), payload.clone());
        Ok((rows, JoinShape { packing, payload, unique: true, slots: Slots::Pairs { lanes: 1 } }))
    }

    /// Makes the tables of build rows that lie where they are probed. `owners` devices share them; it may be known that a key
    /// repeats.
    fn table_of(
        &mut self,
        plan: &JoinNode<'_>,
        shape: JoinShape,
        rows: Intermediate,
        owners: u64,
        repeats: bool,
    ) -> Result<Arc<JoinTable>> {
        // Where only the presence of a key counts, its first row stands for all.
        let is_set = plan.kind.is_existence() && plan.residual.is_none() && !shape.is_hashed();
        let guess = self.guesses().then(|| TableGuess {
            unique: is_set || self.guess_unique(plan),
            rows: self.expected_rows(plan.build.plan, rows.rows_max).div_ceil(owners),
        });
        let keys = if is_set {
            BuildKeys::Set
        } else if repeats {
            BuildKeys::Repeated
        } else {
            BuildKeys::Any
        };
        self.build_table(shape, rows, keys, guess)
    }

    /// Whether a build row has a null key, on any device.
    fn has_null_key(&mut self, plan: &JoinNode<'_>, build: &Relation) -> Result<bool> {
        let keys = plan.on.iter().map(|(key, _)| key).filter(|key| key.nullable);
        let mut has_null = false;
        for key in keys {
            let mut nulls = build.clone();
            nulls.steps.push(Step::Filter(is_null(key)));
            has_null |= self.run_rows(&nulls, &Sink::Materialise(vec![]), "NullKeys")?.0.rows() > 0;
        }
        Ok(self.known_flag(has_null))
    }

    /// A dry run's guess whether no build key occurs twice: one of the key columns comes from a column
    /// of a table whose values are known to be distinct, or there are several, which seldom are no key together.
    pub(super) fn guess_unique(&self, plan: &JoinNode<'_>) -> bool {
        plan.on.len() > 1
            || plan.on.iter().any(|(key, _)| match key.kind {
                ExprKind::Column(column) => plan.build.plan.is_some_and(|build| self.is_distinct(build, column)),
                _ => false,
            })
    }

    fn is_distinct(&self, plan: &Plan, column: usize) -> bool {
        plan.traces(&self.inputs.tables, column, true, &|table, column| table.statistics()[column].unique == Some(true))
    }

    /// Whether both sides are partitioned by key rather than the build side copied to all devices.
    fn exchanges(&self, build_rows: u64, probe_rows_max: u64) -> bool {
        let others = self.devices() as u64 - 1;
        others > 0
            && match self.options.distribution {
                Distribution::Broadcast => false,
                Distribution::Exchange => true,
                Distribution::Auto => probe_rows_max / build_rows.max(1) < others,
            }
    }

    /// Routes the probe rows to the owners of their keys, with the columns that are needed later.
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
            kind: probe_kind(plan.kind),
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

/// The payload column of each build column; `None` where nobody needs it.
fn payload_of(payload: &[usize], build_width: usize) -> Vec<Option<usize>> {
    (0..build_width).map(|column| payload.iter().position(|&needed| needed == column)).collect()
}

/// Most pairs that a join without a key may look at on a device.
const NESTED_PAIRS_MAX: u64 = 1 << 40;

/// Whether all keys are constants: every build row is a candidate for every probe row, and moving rows to the owners
/// of their keys would bring all of them to one device.
pub(super) fn is_nested(plan: &JoinNode<'_>) -> bool {
    let is_constant = |key: &Expr| matches!(key.kind, ExprKind::Literal(_));
    plan.on.iter().all(|(build, probe)| is_constant(build) && is_constant(probe))
}

fn probe_kind(kind: JoinKind) -> ProbeKind {
    match kind {
        JoinKind::Inner => ProbeKind::Matches,
        JoinKind::ProbeSemi => ProbeKind::Semi,
        // What is special about nulls has been dealt with.
        JoinKind::ProbeAnti | JoinKind::NotIn => ProbeKind::Anti,
        JoinKind::ProbeMark => ProbeKind::Mark,
        JoinKind::ProbeOuter | JoinKind::Full => ProbeKind::Outer,
    }
}

fn is_null(expr: &Expr) -> Expr {
    Expr { kind: ExprKind::IsNull(Box::new(expr.clone())), data_type: DataType::Boolean, nullable: false }
}

/// Probe rows of a NOT IN that are left whatever the other keys are.
fn not_in_filter(plan: &JoinNode<'_>, has_null: bool, has_rows: bool) -> Vec<Step> {
    if has_null {
        return vec![Step::Filter(Expr::literal(Scalar::Boolean(false), DataType::Boolean))];
    }
    let keys = plan.on.iter().map(|(_, key)| key).filter(|key| key.nullable && has_rows);
    let not = |expr: Expr| Expr { kind: ExprKind::Not(Box::new(expr)), data_type: DataType::Boolean, nullable: false };
    keys.map(|key| Step::Filter(not(is_null(key)))).collect()
}

/// Appends the probe to a relation whose rows stay where they are.
pub(super) fn probe_here(
    plan: &JoinNode<'_>,
    probe: Relation,
    (table, payload_of): (Arc<JoinTable>, Vec<Option<usize>>),
    is_counted: bool,
) -> Relation {
    let step = ProbeStep {
        shape: table.shape.clone(),
        key: ProbeKey::Exprs(plan.on.iter().map(|(_, probe)| probe.clone()).collect()),
        kind: probe_kind(plan.kind),
        null_equals_null: plan.null_equals_null,
        residual: plan.residual.clone(),
        output: plan.output.clone(),
        payload_of,
        filter: None,
        is_counted,
    };
    append_probe(probe, step, table)
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
