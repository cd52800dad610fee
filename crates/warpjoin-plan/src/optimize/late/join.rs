//! Joins on the way of late columns: a table's payload is what its build side carries.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use warpjoin_columns::expr::{Expr, ExprKind};

use super::Node;
use super::lift::{Lift, Once, remapped, row_field};
use super::slots::{Lifted, Read, RowNumber, Slot, Width};
use crate::optimize::costs::{BuildSide, ProbeSide, prefers_partition};
use crate::plan::join::JoinNode;
use crate::plan::{JoinKind, JoinPlan, Mark, Plan, PlanKind};

/// Bits of a word: more payload, and floats, have columns of their own.
const WORD_BITS: f64 = 64.0;

impl Lift<'_> {
    pub(super) fn join(&mut self, node: &Node<'_>, join: &JoinPlan) -> Lifted {
        let (build_node, probe_node) = (&node.below[0], &node.below[1]);
        let number = join.build.shared_build();
        let mut build = match number {
            Some(number) if self.is_shared_table(number) => self.once(Once::Table(number), build_node),
            // The mark goes on what is fetched for the keys.
            Some(_) => self.lift(&build_node.below[0]),
            None => self.lift(build_node),
        };
        let mut probe = self.lift(probe_node);
        self.need(&mut build, join.on.iter().map(|(key, _)| key), build_node.estimate.rows);
        self.need(&mut probe, join.on.iter().map(|(_, key)| key), probe_node.estimate.rows);
        let build_width = join.build.schema.fields().len();
        self.need_of_residual(join, (&mut build, &mut probe), (build_node, probe_node));
        if let Some(number) = number {
            build.plan = build.plan.take().map(|plan| match plan.shared_build() {
                Some(_) => plan,
                None => {
                    let schema = Arc::clone(&plan.schema);
                    let kind = PlanKind::Marked { input: Box::new(plan), mark: Mark::SharedBuild(number) };
                    Plan { kind, schema }
                }
            });
        }
        // What is needed to find matches, before what is carried on is left.
        let builds = build.plan.is_some();
        let pair = |(b, p): &(Expr, Expr)| (remapped(b, &build), remapped(p, &probe));
        let on = if builds { join.on.iter().map(pair).collect() } else { vec![] };
        let residual = join.residual.as_ref().filter(|_| builds).map(|residual| {
            residual.remap(&|column| match column.checked_sub(build_width) {
                None => build.at(column),
                Some(column) => build.fields.len().saturating_add(probe.at(column)),
            })
        });
        let is_partitioned = self.is_partitioned(join, (build_node, probe_node));
        let mut looked_at = BTreeSet::new();
        join.residual.iter().for_each(|residual| residual.visit_columns(&mut |column| looked_at.extend([column])));
        self.forget(&mut build, |column| looked_at.contains(&column));
        if is_partitioned {
            self.forget(&mut probe, |column| looked_at.contains(&(build_width + column)));
        }
        let columns = payload(join, &build);
        match is_partitioned {
            true => self.partition_sides(node, join, (&mut build, &mut probe)),
            false => self.make_table(node, join, &mut build, &columns),
        }
        self.joined(node, join, (on, residual), (build, probe))
    }

    /// Reads what the residual filter asks for: of the build side it is payload, read once there is a match.
    fn need_of_residual(
        &mut self,
        join: &JoinPlan,
        (build, probe): (&mut Lifted, &mut Lifted),
        (build_node, probe_node): (&Node<'_>, &Node<'_>),
    ) {
        let Some(residual) = &join.residual else { return };
        let build_width = join.build.schema.fields().len();
        let mut columns = BTreeSet::new();
        residual.visit_columns(&mut |column| columns.extend([column]));
        for column in columns {
            match column.checked_sub(build_width) {
                None => {
                    self.require(build, &[column]);
                    self.read(build, column, build_node.estimate.rows);
                }
                Some(column) => {
                    self.require(probe, &[column]);
                    self.read(probe, column, probe_node.estimate.rows);
                }
            }
        }
    }

    /// The build side's payload goes into a table.
    fn make_table(&mut self, node: &Node<'_>, join: &JoinPlan, build: &mut Lifted, columns: &BTreeSet<usize>) {
        let costs = self.context.costs;
        let (of_build, of_probe) = (&node.below[0].estimate, &node.below[1].estimate);
        let is_set = join.kind.is_existence() && join.residual.is_none();
        let mut widths: Vec<Width> = vec![];
        if !is_set {
            for &column in columns {
                self.read(build, column, of_build.rows);
                widths.push(build.slots[column].width);
            }
            for row in build.rows.iter().filter(|_| !join.kind.is_existence()) {
                let number_ps = row.read.ps(of_build.rows);
                self.moved.ps += number_ps;
                self.moved.fetch_ps += number_ps + costs.written_ps(of_build.rows * row.width.bits / 8.0);
                widths.push(row.width);
            }
        }
        let bits: f64 = widths.iter().map(|width| width.bits).sum();
        let has_columns = bits > WORD_BITS || widths.iter().any(|width| width.is_float);
        let bytes = if has_columns { widths.iter().map(|width| width.bytes).sum() } else { bits / 8.0 };
        let key = match join.on.as_slice() {
            [(build, probe)] => match (&build.kind, &probe.kind) {
                (&ExprKind::Column(build), &ExprKind::Column(probe)) => {
                    Some((of_build.columns[build], of_probe.columns[probe]))
                }
                _ => None,
            },
            _ => None,
        };
        let side = BuildSide {
            rows: of_build.rows,
            unique: is_set || join.on.len() > 1 || key.is_some_and(|(build, _)| build.unique),
            span: key.and_then(|(build, _)| build.span),
            sorted: key.is_some_and(|(build, _)| build.sorted),
            payload_bytes: bytes,
        };
        let probes = ProbeSide {
            rows: of_probe.rows,
            matches: node.estimate.rows,
            source_rows: of_probe.source_rows,
            run_rows: key.filter(|(_, probe)| probe.sorted).map(|(_, probe)| of_probe.rows / probe.distinct.max(1.0)),
        };
        self.moved.ps += costs.join_ps(&side, &probes);
        let read_of = |width: Width| match has_columns {
            true => Read::by_row(costs.random_read_ps(of_build.rows * width.bytes)),
            // It is in the word that was found.
            false => Read::DONE,
        };
        build.slots.iter_mut().for_each(|slot| slot.read = read_of(slot.width));
        for row in &mut build.rows {
            row.written += 1;
            row.read = read_of(row.width);
        }
    }

    /// Whether both sides are partitioned, so that both are written down.
    fn is_partitioned(&self, join: &JoinPlan, (build, probe): (&Node<'_>, &Node<'_>)) -> bool {
        let context = self.context;
        let rows = plain_rows(build).zip(plain_rows(probe));
        prefers_partition(&JoinNode::of(join), rows, context.devices.devices(), context.inputs, context.options)
    }

    fn partition_sides(&mut self, node: &Node<'_>, join: &JoinPlan, (build, probe): (&mut Lifted, &mut Lifted)) {
        let costs = self.context.costs;
        let build_width = join.build.schema.fields().len();
        let needed = join.needed_columns();
        for (side, first, of_side) in
            [(build, 0, &node.below[0].estimate), (probe, build_width, &node.below[1].estimate)]
        {
            let mut bytes = 0.0;
            for column in 0..side.slots.len() {
                if side.slots[column].at.is_some() && needed.contains(&(first + column)) {
                    self.read(side, column, of_side.rows);
                    bytes += side.slots[column].width.bits / 8.0;
                }
                side.slots[column].read = Read::DONE;
            }
            for row in &mut side.rows {
                bytes += row.width.bits / 8.0;
                row.written += 1;
                row.read = Read::DONE;
            }
            self.moved.ps += costs.partitioned_ps(of_side.rows, node.estimate.rows, bytes);
        }
    }

    /// The join over the rewritten sides.
    fn joined(
        &mut self,
        node: &Node<'_>,
        join: &JoinPlan,
        (on, residual): (Vec<(Expr, Expr)>, Option<Expr>),
        (build, probe): (Lifted, Lifted),
    ) -> Lifted {
        let build_width = join.build.schema.fields().len();
        let widths = (build.fields.len(), probe.fields.len());
        let probe_width = join.probe.schema.fields().len();
        // Where a column of both sides is, behind which the mark comes.
        let position = |column: usize| match column.checked_sub(build_width) {
            None => build.at(column),
            Some(column) if column < probe_width => widths.0.saturating_add(probe.at(column)),
            Some(column) => widths.0 + widths.1 + (column - probe_width),
        };
        let mut output = vec![];
        let mut lifted = Lifted { plan: None, fields: vec![], slots: vec![], rows: vec![] };
        for (&column, field) in join.output.iter().zip(node.plan.schema.fields()) {
            let slot = match column.checked_sub(build_width) {
                None => build.slots[column].clone(),
                Some(column) if column < probe_width => probe.slots[column].clone(),
                Some(_) => {
                    Slot { at: Some(0), origin: None, width: Width::of_type(field.data_type()), read: Read::DONE }
                }
            };
            let at = slot.at.map(|_| {
                output.push(position(column));
                lifted.fields.push(Arc::clone(field));
                output.len() - 1
            });
            lifted.slots.push(Slot { at, ..slot });
        }
        let has_unmatched = |kinds: &[JoinKind]| kinds.contains(&join.kind);
        let is_outer = (has_unmatched(&[JoinKind::ProbeOuter, JoinKind::Full]), has_unmatched(&[JoinKind::Full]));
        let of_side = |side: &Lifted, first: usize, is_outer: bool| -> Vec<(RowNumber, FieldRef)> {
            let moved = |row: &RowNumber| {
                let is_nullable = is_outer || side.fields[row.at].is_nullable();
                (RowNumber { at: first + row.at, ..*row }, row_field(is_nullable))
            };
            side.rows.iter().map(moved).collect()
        };
        let mut rows = of_side(&build, 0, is_outer.0);
        rows.extend(of_side(&probe, widths.0, is_outer.1));
        lifted.rows = rows.iter().map(|(row, _)| *row).collect();
        self.retain_rows(&mut lifted);
        for row in &mut lifted.rows {
            let field = rows.iter().find(|(known, _)| known.scan == row.scan).map(|(_, field)| Arc::clone(field));
            lifted.fields.extend(field);
            output.push(row.at);
            row.at = output.len() - 1;
        }
        let (kind, null_equals_null) = (join.kind, join.null_equals_null);
        if let (Some(build), Some(probe)) = (build.plan, probe.plan) {
            let plan = JoinPlan { build, probe, on, kind, null_equals_null, residual, output };
            let schema = super::lift::schema_of(&lifted.fields);
            lifted.plan = Some(Plan { kind: PlanKind::Join(Box::new(plan)), schema });
        }
        lifted
    }
}

/// Columns of the build side that a join puts out or looks at, and that are there.
fn payload(join: &JoinPlan, build: &Lifted) -> BTreeSet<usize> {
    let needed = join.needed_columns();
    let is_there = |column: &usize| build.slots.get(*column).is_some_and(|slot| slot.at.is_some());
    needed.into_iter().filter(is_there).collect()
}

/// Rows of a side that is columns which lie there, and is read whole.
fn plain_rows(node: &Node<'_>) -> Option<u64> {
    match &node.plan.kind {
        _ if node.scan.is_some() => Some(node.estimate.rows as u64),
        PlanKind::Project { .. } => plain_rows(&node.below[0]),
        _ => None,
    }
}
