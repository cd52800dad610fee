//! Partitioned joins over several devices: the rows of a key are brought to one device, or all build rows to every device. Then
//! each device joins its own rows by partition.

use std::sync::Arc;

use arrow::datatypes::Schema;
use warpjoin_codegen::{JoinShape, Sink};
use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;
use warpjoin_device::Cause;
use warpjoin_plan::optimize::costs::exchanges_to_partition;
use warpjoin_plan::plan::join::JoinNode;

use super::build_probe::build_shape;
use crate::exec::decision::RuntimeDecision;
use crate::exec::query::Query;
use crate::exec::relation::{Relation, Source};

/// Bytes of a moved row for each byte that it has: at its source, at its owner, and twice in partitions.
const COPIES: u64 = 4;

/// Columns of one side that the join reads.
struct Columns {
    columns: Vec<usize>,
    schema: Arc<Schema>,
}

impl Columns {
    fn of<'e>(schema: &Schema, keys: impl Iterator<Item = &'e Expr>, needed: Vec<usize>) -> Self {
        let mut columns = needed;
        keys.for_each(|key| key.visit_columns(&mut |column| columns.push(column)));
        columns.sort_unstable();
        columns.dedup();
        let schema = Schema::new(columns.iter().map(|&column| schema.field(column).clone()).collect::<Vec<_>>());
        Self { columns, schema: Arc::new(schema) }
    }

    fn position(&self, column: usize) -> usize {
        self.columns.iter().position(|&known| known == column).unwrap_or(0)
    }

    fn row_bytes(&self) -> u64 {
        let bytes = |width: Option<usize>| width.unwrap_or(4) as u64;
        self.schema.fields().iter().map(|field| bytes(field.data_type().primitive_width())).sum()
    }
}

impl Query<'_> {
    /// As [`Self::join_partitioned`], on any number of devices. `None` also if the rows can stay where they are, or have no room.
    pub(super) fn join_partitioned_on_all(
        &mut self,
        plan: &JoinNode<'_>,
        build: Relation,
        probe: Relation,
    ) -> Result<Option<Relation>> {
        if self.devices() == 1 {
            return self.join_partitioned(plan, build, probe);
        }
        let decisions = self.decisions();
        match self.join_spread(plan, build, probe) {
            Err(error) if error.cause() == Cause::OutOfMemory => {
                self.synchronize()?;
                self.note_decision_instead(decisions, RuntimeDecision::Matches(None));
                Ok(None)
            }
            joined => joined,
        }
    }

    fn join_spread(&mut self, plan: &JoinNode<'_>, build: Relation, probe: Relation) -> Result<Option<Relation>> {
        let (build_keys, probe_keys): (Vec<Expr>, Vec<Expr>) = plan.on.iter().cloned().unzip();
        if plan.is_nested() {
            return Ok(None);
        }
        let shape = Arc::new(self.route_shape(plan, &build, &build_keys)?);
        if self.ranges_of_keys(&probe_keys, &probe, &shape).is_some() {
            return Ok(None);
        }
        let width = plan.build.schema.fields().len();
        let (of_build, of_probe): (Vec<usize>, Vec<usize>) =
            plan.needed_columns().into_iter().partition(|&column| column < width);
        let of_probe: Vec<usize> = of_probe.into_iter().map(|column| column - width).collect();
        let of_build = Columns::of(&plan.build.schema, build_keys.iter(), of_build);
        let of_probe = Columns::of(&plan.probe.schema, probe_keys.iter(), of_probe);
        let devices = self.devices();
        let rows = |relation: &Relation| relation.known_rows(devices).unwrap_or(relation.rows_max);
        let (build_rows, probe_rows) = (rows(&build), rows(&probe));
        let is_exchanged = exchanges_to_partition(build_rows, probe_rows, devices, self.options);
        let devices = devices as u64;
        let build_share = if is_exchanged { build_rows / devices } else { build_rows };
        let bytes = build_share
            .saturating_mul(of_build.row_bytes())
            .saturating_add((probe_rows / devices).saturating_mul(of_probe.row_bytes()));
        if !self.streams.iter().all(|stream| stream.make_room(bytes.saturating_mul(COPIES))) {
            return Ok(None);
        }
        self.note_decision(RuntimeDecision::Exchange(is_exchanged));
        let node = node_of(plan, &of_build, &of_probe);
        let (build, probe) = if is_exchanged {
            let build = self.routed(&build, (&shape, plan.null_equals_null), build_keys, &of_build)?;
            (build, self.routed(&probe, (&shape, plan.null_equals_null), probe_keys, &of_probe)?)
        } else {
            let probing = self.devices_with_rows(&probe);
            let sink = Sink::Materialise(of_build.columns.clone());
            let (rows, _) = self.run_rows(&build, &sink, "Materialise")?;
            let build = self.broadcast_to(rows, &probing)?;
            (Relation::new(Source::Intermediate(Arc::new(build))), narrowed(probe, &of_probe))
        };
        self.join_partitioned(&node, build, probe)
    }

    /// What determines the owner of a key: the layout of keys of build rows.
    fn route_shape(&mut self, plan: &JoinNode<'_>, build: &Relation, keys: &[Expr]) -> Result<JoinShape> {
        let sink = Sink::Build { keys: keys.to_vec(), null_equals_null: plan.null_equals_null, payload: vec![] };
        let generated = self.bind(build, &sink)?;
        build_shape(&generated)
    }

    /// Brings rows to the owners of their keys.
    fn routed(
        &mut self,
        relation: &Relation,
        (shape, null_equals_null): (&Arc<JoinShape>, bool),
        keys: Vec<Expr>,
        columns: &Columns,
    ) -> Result<Relation> {
        let columns = columns.columns.clone();
        let sink = Sink::Route {
            shape: Arc::clone(shape),
            keys,
            null_equals_null,
            keeps_unmatched: false,
            keeps_words: false,
            columns,
        };
        let (rows, _) = self.run_rows(relation, &sink, "Partition")?;
        let rows = self.exchange_without_word(rows)?;
        Ok(Relation::new(Source::Intermediate(Arc::new(rows))))
    }
}

/// A relation with only these columns.
fn narrowed(mut relation: Relation, columns: &Columns) -> Relation {
    let exprs = columns.columns.iter().zip(columns.schema.fields());
    let exprs: Vec<Expr> =
        exprs.map(|(&column, field)| Expr::column(column, field.data_type().clone(), field.is_nullable())).collect();
    relation.width = exprs.len();
    relation.steps.push(warpjoin_codegen::Step::Project(exprs));
    relation
}

/// The join of sides that have only these columns.
fn node_of(plan: &JoinNode<'_>, build: &Columns, probe: &Columns) -> JoinNode<'static> {
    let width = plan.build.schema.fields().len();
    let moved = |column: usize| match column.checked_sub(width) {
        None => build.position(column),
        Some(column) => build.columns.len() + probe.position(column),
    };
    let on = plan.on.iter().map(|(of_build, of_probe)| {
        (of_build.remap(&|column| build.position(column)), of_probe.remap(&|column| probe.position(column)))
    });
    plan.moved(on.collect(), &moved, [build, probe].map(|columns| Arc::clone(&columns.schema)))
}
