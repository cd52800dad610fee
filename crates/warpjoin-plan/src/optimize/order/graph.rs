//! A tree of inner joins as a graph: relations, equalities between them, and other conditions.
//!
//! Semi and anti joins on the way are in it too: as filters of rows that the other relations make up. What is no such
//! join is a relation, whatever it is.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use warpjoin_columns::Table;
use warpjoin_columns::expr::{CompareOp, Expr, ExprKind};

use super::tree::{Set, Tree};
use crate::optimize::estimate::{Estimate, estimate};
use crate::optimize::safety::{is_plain, is_plain_expr, never_fails};
use crate::plan::{JoinKind, JoinPlan, Plan, PlanKind};

/// Most relations of a graph.
pub(in crate::optimize) const RELATIONS_MAX: usize = 20;

/// A graph of joins. Its columns are numbered through all relations.
#[derive(Debug, Default)]
pub(in crate::optimize) struct Graph {
    pub relations: Vec<Node>,
    /// Columns that are equal in every row of the result.
    pub classes: Vec<Vec<usize>>,
    /// Equalities of something else than two columns: each side is over relations of its own.
    pub equalities: Vec<(Expr, Expr)>,
    /// Conditions over several relations.
    pub residuals: Vec<Expr>,
    /// Conditions over one relation.
    filters: Vec<Expr>,
}

/// A relation of a graph.
#[derive(Debug)]
pub(in crate::optimize) struct Node {
    pub plan: Plan,
    pub estimate: Estimate,
    /// Number of its first column.
    pub first: usize,
    /// `None`: it is joined. Otherwise only whether it has matches counts.
    pub existence: Option<Existence>,
}

/// A semi or anti join.
#[derive(Debug)]
pub(in crate::optimize) struct Existence {
    pub kind: JoinKind,
    /// Keys over the relation's own columns, and over the graph's.
    pub on: Vec<(Expr, Expr)>,
    /// Over the graph's columns, its own among them.
    pub residual: Option<Expr>,
}

impl Graph {
    /// The graph of the joins at the top of `plan`, the columns that it puts out, and the order in which it was given.
    /// `None`: there is none, or nothing to choose. `optimize` is called for the relations.
    pub(in crate::optimize) fn of(
        plan: &Plan,
        inputs: &[Arc<Table>],
        optimize: &mut dyn FnMut(&Plan) -> Plan,
    ) -> Option<(Self, Vec<usize>, Tree)> {
        if !is_top(plan) || !is_known(plan, inputs) {
            return None;
        }
        let mut flattening = Flattening { graph: Self::default(), inputs, optimize };
        let (output, tree) = flattening.flatten(plan);
        let mut graph = flattening.graph;
        if graph.relations.len() < 2 || graph.relations.len() > RELATIONS_MAX {
            return None;
        }
        graph.put_filters_down(inputs)?;
        graph.bound_distinct();
        Some((graph, output, tree))
    }

    /// The relation of a column.
    pub(in crate::optimize) fn relation_of(&self, column: usize) -> usize {
        self.relations.partition_point(|node| node.first <= column) - 1
    }

    /// The relations that an expression reads.
    pub(in crate::optimize) fn relations_of(&self, expr: &Expr) -> Set {
        let mut relations = 0;
        expr.visit_columns(&mut |column| relations |= 1 << self.relation_of(column));
        relations
    }

    /// Type and name of a column.
    pub(in crate::optimize) fn field(&self, column: usize) -> &FieldRef {
        let node = &self.relations[self.relation_of(column)];
        &node.plan.schema.fields()[column - node.first]
    }

    /// A column of the graph as an expression.
    pub(in crate::optimize) fn column(&self, column: usize) -> Expr {
        let field = self.field(column);
        Expr::column(column, field.data_type().clone(), field.is_nullable())
    }

    /// The class of a column.
    pub(in crate::optimize) fn class_of(&self, column: usize) -> Option<&[usize]> {
        self.classes.iter().find(|class| class.contains(&column)).map(Vec::as_slice)
    }

    /// Whether a key may be read from another column of its class: the same bits are in both.
    pub(in crate::optimize) fn is_exchangeable(data_type: &DataType) -> bool {
        data_type.is_integer() || data_type.is_decimal() || matches!(data_type, DataType::Date32 | DataType::Date64)
    }

    fn equate(&mut self, a: usize, b: usize) {
        let class = |column: usize, classes: &[Vec<usize>]| classes.iter().position(|class| class.contains(&column));
        match (class(a, &self.classes), class(b, &self.classes)) {
            (Some(one), Some(other)) if one != other => {
                let merged = self.classes.swap_remove(one.max(other));
                self.classes[one.min(other)].extend(merged);
            }
            (Some(_), Some(_)) => {}
            (Some(class), None) => self.classes[class].push(b),
            (None, Some(class)) => self.classes[class].push(a),
            (None, None) => self.classes.push(vec![a, b]),
        }
    }

    /// Columns that equal a key have no values that the key has not: what a sample could not tell.
    fn bound_distinct(&mut self) {
        for class in std::mem::take(&mut self.classes) {
            let place = |graph: &Self, column: usize| {
                let relation = graph.relation_of(column);
                (relation, column - graph.relations[relation].first)
            };
            let estimates = class.iter().map(|&column| {
                let (relation, column) = place(self, column);
                self.relations[relation].estimate.columns[column]
            });
            let keys = estimates.filter(|column| column.unique).map(|column| column.distinct).reduce(f64::max);
            let places: Vec<(usize, usize)> = class.iter().map(|&column| place(self, column)).collect();
            for (relation, column) in places {
                let column = &mut self.relations[relation].estimate.columns[column];
                column.distinct = column.distinct.min(keys.unwrap_or(f64::INFINITY));
            }
            self.classes.push(class);
        }
    }

    /// Conditions over one relation become filters of it; so do equalities of two of its columns that follow from
    /// others. `None`: one that can't be told by a comparison.
    fn put_filters_down(&mut self, inputs: &[Arc<Table>]) -> Option<()> {
        let mut filters = std::mem::take(&mut self.filters);
        for class in &self.classes {
            let mut sorted = class.clone();
            sorted.sort_unstable();
            for pair in sorted.windows(2) {
                if self.relation_of(pair[0]) != self.relation_of(pair[1]) {
                    continue;
                }
                let (left, right) = (self.column(pair[0]), self.column(pair[1]));
                if !Self::is_exchangeable(&left.data_type) || left.data_type != right.data_type {
                    return None;
                }
                let nullable = left.nullable || right.nullable;
                let kind = ExprKind::Compare(CompareOp::Equal, Box::new(left), Box::new(right));
                filters.push(Expr { kind, data_type: DataType::Boolean, nullable });
            }
        }
        // One column of a relation stands for all of them.
        for class in 0..self.classes.len() {
            let mut columns = std::mem::take(&mut self.classes[class]);
            columns.sort_unstable();
            columns.dedup_by_key(|column| self.relation_of(*column));
            self.classes[class] = columns;
        }
        for filter in filters {
            let relation = self.relations_of(&filter).trailing_zeros() as usize;
            let node = self.relations.get_mut(relation)?;
            let first = node.first;
            let predicate = filter.remap(&|column| column - first);
            let schema = Arc::clone(&node.plan.schema);
            let input = Box::new(node.plan.clone());
            node.plan = Plan { kind: PlanKind::Filter { input, predicate }, schema };
            node.estimate = estimate(&node.plan, inputs);
        }
        Some(())
    }
}

/// Whether the rows of all inputs are there, so that there is something to estimate by.
fn is_known(plan: &Plan, inputs: &[Arc<Table>]) -> bool {
    match &plan.kind {
        PlanKind::Input { index } => *index < inputs.len(),
        _ => plan.inputs().into_iter().all(|input| is_known(input, inputs)),
    }
}

/// Whether a node is a join of the graph, or something over one that it takes in.
fn is_top(plan: &Plan) -> bool {
    match &plan.kind {
        PlanKind::Join(join) => is_flat(join),
        PlanKind::Project { input, exprs } => {
            exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_))) && is_top(input)
        }
        PlanKind::Filter { input, predicate } => is_plain_expr(input, predicate) && is_top(input),
        _ => false,
    }
}

/// Whether a join can be taken apart: its conditions may be evaluated anywhere.
fn is_flat(join: &JoinPlan) -> bool {
    let is_kind = matches!(join.kind, JoinKind::Inner | JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::NotIn);
    let is_key = |input: &Plan, key: &Expr| {
        let mut reads = 0;
        key.visit_columns(&mut |_| reads += 1);
        reads > 0 && is_plain_expr(input, key)
    };
    is_kind
        && !join.null_equals_null
        && join.on.iter().all(|(build, probe)| is_key(&join.build, build) && is_key(&join.probe, probe))
        && is_plain_residual(join)
}

/// Whether the rest of a join's condition never fails.
pub(in crate::optimize) fn is_plain_residual(join: &JoinPlan) -> bool {
    let Some(residual) = &join.residual else { return true };
    let build_width = join.build.schema.fields().len();
    let mut is_safe = never_fails(residual);
    residual.visit_columns(&mut |column| {
        is_safe = is_safe
            && match column.checked_sub(build_width) {
                None => is_plain(&join.build, column),
                Some(column) => is_plain(&join.probe, column),
            };
    });
    is_safe
}

struct Flattening<'a> {
    graph: Graph,
    inputs: &'a [Arc<Table>],
    optimize: &'a mut dyn FnMut(&Plan) -> Plan,
}

impl Flattening<'_> {
    /// The columns of `plan` as columns of the graph, and the order of its joins.
    fn flatten(&mut self, plan: &Plan) -> (Vec<usize>, Tree) {
        if !is_top(plan) || self.graph.relations.len() > RELATIONS_MAX {
            return self.relation(plan, None);
        }
        match &plan.kind {
            PlanKind::Project { input, exprs } => {
                let (columns, tree) = self.flatten(input);
                let column = |expr: &Expr| match expr.kind {
                    ExprKind::Column(column) => columns[column],
                    // Tops have no others.
                    _ => 0,
                };
                (exprs.iter().map(column).collect(), tree)
            }
            PlanKind::Filter { input, predicate } => {
                let (columns, tree) = self.flatten(input);
                self.add_conditions(&predicate.remap(&|column| columns[column]));
                (columns, tree)
            }
            PlanKind::Join(join) if join.kind == JoinKind::Inner => {
                let (mut both, build) = self.flatten(&join.build);
                let build_width = both.len();
                let (probe_columns, probe) = self.flatten(&join.probe);
                both.extend(probe_columns);
                for (build, probe) in &join.on {
                    let build = build.remap(&|column| both[column]);
                    let probe = probe.remap(&|column| both[build_width + column]);
                    match (&build.kind, &probe.kind) {
                        (ExprKind::Column(build), ExprKind::Column(probe)) => self.graph.equate(*build, *probe),
                        _ => self.graph.equalities.push((build, probe)),
                    }
                }
                if let Some(residual) = &join.residual {
                    self.add_conditions(&residual.remap(&|column| both[column]));
                }
                let output = join.output.iter().map(|&column| both[column]).collect();
                (output, Tree::Join(Box::new((build, probe))))
            }
            PlanKind::Join(join) => self.existence(join),
            _ => self.relation(plan, None),
        }
    }

    fn existence(&mut self, join: &JoinPlan) -> (Vec<usize>, Tree) {
        let (probe_columns, probe) = self.flatten(&join.probe);
        let on = join.on.iter().map(|(b, p)| (b.clone(), p.remap(&|column| probe_columns[column]))).collect();
        let existence = Existence { kind: join.kind, on, residual: None };
        let (mut both, build) = self.relation(&join.build, Some(existence));
        both.extend(probe_columns);
        let residual = join.residual.as_ref().map(|residual| residual.remap(&|column| both[column]));
        if let Some(Node { existence: Some(existence), .. }) = self.graph.relations.last_mut() {
            existence.residual = residual;
        }
        let output = join.output.iter().map(|&column| both[column]).collect();
        (output, Tree::Join(Box::new((build, probe))))
    }

    fn relation(&mut self, plan: &Plan, existence: Option<Existence>) -> (Vec<usize>, Tree) {
        let plan = (self.optimize)(plan);
        let first = self.graph.relations.last().map_or(0, |last| last.first + last.plan.schema.fields().len());
        let columns = (first..first + plan.schema.fields().len()).collect();
        let number = self.graph.relations.len();
        let estimate = estimate(&plan, self.inputs);
        self.graph.relations.push(Node { plan, estimate, first, existence });
        (columns, Tree::Relation(number))
    }

    fn add_conditions(&mut self, predicate: &Expr) {
        let mut conditions = vec![];
        predicate.add_conjuncts(&mut conditions);
        for condition in conditions {
            match self.graph.relations_of(condition).count_ones() {
                // A condition over nothing has no relation: the joins then stay as they are.
                0 | 1 => self.graph.filters.push(condition.clone()),
                _ => self.graph.residuals.push(condition.clone()),
            }
        }
    }
}
