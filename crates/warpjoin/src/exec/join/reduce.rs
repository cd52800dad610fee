//! Drops build rows that match nothing before a table is made of them, where the side that probes is much smaller: its
//! keys become a set, which the build side probes.
//!
//! DataFusion's preserved side always probes here, so that without this a table is made of the other side however large
//! that is.

use std::sync::Arc;

use crate::Result;
use crate::codegen::{Sink, Step};
use crate::exec::query::Query;
use crate::exec::relation::{Relation, Source};
use crate::expr::{Expr, Scalar};
use crate::optimize::device_cost::{REDUCED_RATIO_MIN, REDUCED_ROWS_MIN};
use crate::plan::JoinKind;
use crate::plan::join::{JoinNode, JoinSide};

impl Query<'_> {
    /// The sides of a join that puts out whole probe rows, reduced where that pays.
    pub(super) fn reduce_build(
        &mut self,
        plan: &JoinNode<'_>,
        build: Relation,
        probe: Relation,
    ) -> Result<(Relation, Relation)> {
        let rows_min = self.options.reduced_rows_min.unwrap_or(REDUCED_ROWS_MIN);
        // A NOT IN must know of all build rows; the sides of an inner join can be chosen.
        let is_kind = !matches!(plan.kind, JoinKind::Inner | JoinKind::NotIn);
        if !is_kind || build.rows_max < rows_min || super::build_probe::is_nested(plan) {
            return Ok((build, probe));
        }
        let probe = self.counted(plan, probe)?;
        let is_forced = self.options.reduced_rows_min.is_some();
        if !is_forced && probe.rows_max.saturating_mul(REDUCED_RATIO_MIN) > build.rows_max {
            return Ok((build, probe));
        }
        let probe_width = plan.probe.schema.fields().len();
        let columns = read_columns(plan, true);
        let output = columns.iter().map(|column| probe_width + column).collect();
        let semi = plan.swapped(JoinKind::ProbeSemi, None, output);
        let reduced = self.join_relations(&semi, probe.clone(), build, None)?;
        Ok((spread(reduced, &columns, &plan.build), probe))
    }

    /// The probe side with its rows counted rather than bounded: it is read twice.
    fn counted(&mut self, plan: &JoinNode<'_>, probe: Relation) -> Result<Relation> {
        if !probe.steps.iter().any(Step::drops_rows) {
            return Ok(probe);
        }
        let columns = read_columns(plan, false);
        let (mut rows, _) = self.run_rows(&probe, &Sink::Materialise(columns.clone()), "Materialise")?;
        let counted = if self.is_dry() { self.expected_rows(plan.probe.plan, rows.rows_max) } else { rows.rows() };
        rows.rows_max = self.known_rows(counted);
        Ok(spread(Relation::new(Source::Intermediate(Arc::new(rows))), &columns, &plan.probe))
    }
}

/// Columns of a side that keys, residual or output read.
fn read_columns(plan: &JoinNode<'_>, of_build: bool) -> Vec<usize> {
    let build_width = plan.build.schema.fields().len();
    let mut columns: Vec<usize> = plan
        .needed_columns()
        .into_iter()
        .filter(|&column| (column < build_width) == of_build)
        .map(|column| if of_build { column } else { column - build_width })
        .collect();
    for (build, probe) in &plan.on {
        if of_build { build } else { probe }.visit_columns(&mut |column| columns.push(column));
    }
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Puts `columns` of a side back to their positions; nobody reads the others.
fn spread(mut relation: Relation, columns: &[usize], side: &JoinSide<'_>) -> Relation {
    let exprs = side.schema.fields().iter().enumerate().map(|(index, field)| {
        let data_type = field.data_type().clone();
        match columns.iter().position(|&column| column == index) {
            Some(position) => Expr::column(position, data_type, field.is_nullable()),
            None => Expr::literal(Scalar::Null, data_type),
        }
    });
    relation.steps.push(Step::Project(exprs.collect()));
    relation.width = side.schema.fields().len();
    relation
}
