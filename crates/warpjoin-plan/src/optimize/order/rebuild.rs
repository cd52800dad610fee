//! Makes a plan of a graph and an order.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use warpjoin_columns::expr::{Expr, ExprKind};

use super::graph::Graph;
use super::tree::{Set, Tree};
use crate::plan::{JoinKind, JoinPlan, Plan, PlanKind};

/// The joins of `graph` in the order `tree`, with the columns `output` in the schema of `like`; `None`: not an order of
/// this graph.
pub(in crate::optimize) fn rebuild(graph: &Graph, tree: &Tree, output: &[usize], like: &Plan) -> Option<Plan> {
    let mut needed = output.to_vec();
    needed.sort_unstable();
    needed.dedup();
    let (plan, columns) = Builder { graph }.plan(tree, &needed)?;
    let exprs = output
        .iter()
        .zip(like.schema.fields())
        .map(|(column, field)| {
            let position = columns.iter().position(|known| known == column)?;
            Some(Expr::column(position, field.data_type().clone(), field.is_nullable()))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Plan { kind: PlanKind::Project { input: Box::new(plan), exprs }, schema: Arc::clone(&like.schema) })
}

struct Builder<'a> {
    graph: &'a Graph,
}

impl Builder<'_> {
    /// The plan of a part of the order, and the graph's columns that it puts out: at least those `needed` that it has.
    fn plan(&self, tree: &Tree, needed: &[usize]) -> Option<(Plan, Vec<usize>)> {
        match tree {
            Tree::Relation(relation) => {
                let node = &self.graph.relations[*relation];
                let columns = (node.first..node.first + node.plan.schema.fields().len()).collect();
                Some((node.plan.clone(), columns))
            }
            Tree::Join(sides) => self.join(&sides.0, &sides.1, needed),
        }
    }

    fn join(&self, build: &Tree, probe: &Tree, needed: &[usize]) -> Option<(Plan, Vec<usize>)> {
        let (build_set, probe_set) = (build.set(), probe.set());
        let keys = self.graph.keys(build_set, probe_set)?;
        let existence = self.graph.existence_of(build_set);
        let residual = match existence {
            Some(existence) => existence.residual.clone(),
            None => self.residual(build_set, probe_set),
        };
        let mut below = needed.to_vec();
        let mut read = |expr: &Expr| expr.visit_columns(&mut |column| below.push(column));
        keys.iter().for_each(|(build, probe)| {
            read(build);
            read(probe);
        });
        residual.iter().for_each(&mut read);
        below.sort_unstable();
        below.dedup();
        let (build, build_columns) = self.plan(build, &below)?;
        let (probe, probe_columns) = self.plan(probe, &below)?;
        let both: Vec<usize> = build_columns.iter().chain(&probe_columns).copied().collect();
        let build_width = build_columns.len();
        // A column that is missing would be one that nobody noted as needed.
        let at = |columns: &[usize], expr: &Expr| {
            let mut is_there = true;
            expr.visit_columns(&mut |column| is_there = is_there && columns.contains(&column));
            is_there.then(|| expr.remap(&|column| columns.iter().position(|&known| known == column).unwrap_or(0)))
        };
        let on = keys
            .iter()
            .map(|(build, probe)| Some((at(&build_columns, build)?, at(&probe_columns, probe)?)))
            .collect::<Option<Vec<_>>>()?;
        let residual = match &residual {
            Some(residual) => Some(at(&both, residual)?),
            None => None,
        };
        let is_put_out =
            |position: &usize| needed.contains(&both[*position]) && (existence.is_none() || *position >= build_width);
        let output: Vec<usize> = (0..both.len()).filter(is_put_out).collect();
        let fields = output.iter().map(|&position| Arc::clone(self.graph.field(both[position])));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = output.iter().map(|&position| both[position]).collect();
        let kind = existence.map_or(JoinKind::Inner, |existence| existence.kind);
        let join = JoinPlan { build, probe, on, kind, null_equals_null: false, residual, output };
        Some((Plan { kind: PlanKind::Join(Box::new(join)), schema }, columns))
    }

    /// Conditions that can be told here for the first time.
    fn residual(&self, build: Set, probe: Set) -> Option<Expr> {
        let is_here = |condition: &&Expr| {
            let read = self.graph.relations_of(condition);
            read & !(build | probe) == 0 && read & !build != 0 && read & !probe != 0
        };
        self.graph.residuals.iter().filter(is_here).cloned().reduce(|a, b| {
            let nullable = a.nullable || b.nullable;
            Expr { kind: ExprKind::And(Box::new(a), Box::new(b)), data_type: DataType::Boolean, nullable }
        })
    }
}
