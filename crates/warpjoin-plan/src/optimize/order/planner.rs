//! Chooses the order of a graph's joins, and which side of each a table is made of.
//!
//! All orders of up to nine relations are looked at, bushy ones too; of more, the joins are chosen one after the other.

use std::cell::RefCell;
use std::collections::HashMap;

use warpjoin_columns::expr::{Expr, ExprKind};

use super::graph::{Existence, Graph, Node};
use super::tree::{Set, Tree};
use crate::optimize::costs::{BuildSide, Costs, ProbeSide};
use crate::optimize::estimate::{ColumnEstimate, guessed_share, match_share, stored_bytes};
use crate::plan::JoinKind;

/// Most relations of which all orders are looked at: 3^9 pairs of sets.
const EXHAUSTIVE_MAX: usize = 9;

/// Chooses orders for a graph.
pub(in crate::optimize) struct Planner<'a> {
    graph: &'a Graph,
    costs: Costs,
    seed: Option<u64>,
    /// Bytes of each relation's columns that are needed behind its joins.
    payload_bytes: Vec<f64>,
    rows: RefCell<HashMap<Set, f64>>,
}

/// The best order of a set of relations.
#[derive(Debug, Clone)]
struct Best {
    ps: f64,
    driver: usize,
    /// `None`: a relation.
    sides: Option<(Set, Set)>,
}

impl<'a> Planner<'a> {
    /// `output` are the columns that the graph must put out; `seed` draws orders rather than choosing the best.
    pub(in crate::optimize) fn new(graph: &'a Graph, output: &[usize], costs: Costs, seed: Option<u64>) -> Self {
        let mut needed = output.to_vec();
        let residuals = graph.relations.iter().filter_map(|node| node.existence.as_ref()?.residual.as_ref());
        for residual in graph.residuals.iter().chain(residuals) {
            residual.visit_columns(&mut |column| needed.push(column));
        }
        needed.sort_unstable();
        needed.dedup();
        let mut payload_bytes = vec![0.0; graph.relations.len()];
        for column in needed {
            payload_bytes[graph.relation_of(column)] += stored_bytes(graph.field(column).data_type());
        }
        Self { graph, costs, seed, payload_bytes, rows: RefCell::default() }
    }

    /// The cheapest order that was found; `None`: none without a pair of relations that nothing joins.
    pub(in crate::optimize) fn best(&self) -> Option<(Tree, f64)> {
        let relations = self.graph.relations.len();
        if relations <= EXHAUSTIVE_MAX { self.exhaustive(relations) } else { self.greedy(relations) }
    }

    /// What an order costs; `None`: it is none of this graph.
    pub(in crate::optimize) fn cost(&self, tree: &Tree) -> Option<f64> {
        match tree {
            Tree::Relation(_) => Some(0.0),
            Tree::Join(sides) => {
                let (build, probe) = &**sides;
                let below = self.cost(build)? + self.cost(probe)?;
                let drivers = (build.driver(), probe.driver());
                Some(below + self.join_ps(build.set(), probe.set(), drivers)?)
            }
        }
    }

    fn exhaustive(&self, relations: usize) -> Option<(Tree, f64)> {
        let all: Set = (1 << relations) - 1;
        let mut best: Vec<Option<Best>> = vec![None; 1 << relations];
        for set in 1..=all {
            if set.is_power_of_two() {
                best[set as usize] = Some(Best { ps: 0.0, driver: set.trailing_zeros() as usize, sides: None });
                continue;
            }
            let mut build = (set - 1) & set;
            while build > 0 {
                let probe = set ^ build;
                if let Some(found) = self.join_best(&best, build, probe)
                    && best[set as usize].as_ref().is_none_or(|known| found.ps < known.ps)
                {
                    best[set as usize] = Some(found);
                }
                build = (build - 1) & set;
            }
        }
        let ps = best[all as usize].as_ref()?.ps;
        Some((tree_of(&best, all)?, ps))
    }

    fn join_best(&self, best: &[Option<Best>], build: Set, probe: Set) -> Option<Best> {
        let (build_best, probe_best) = (best[build as usize].as_ref()?, best[probe as usize].as_ref()?);
        let ps = self.join_ps(build, probe, (build_best.driver, probe_best.driver))?;
        Some(Best { ps: build_best.ps + probe_best.ps + ps, driver: probe_best.driver, sides: Some((build, probe)) })
    }

    /// Joins, one after the other, what together leaves the fewest rows.
    fn greedy(&self, relations: usize) -> Option<(Tree, f64)> {
        let mut parts: Vec<Tree> = (0..relations).map(Tree::Relation).collect();
        let mut total_ps = 0.0;
        while parts.len() > 1 {
            let mut chosen: Option<(f64, f64, usize, usize)> = None;
            for (b, build) in parts.iter().enumerate() {
                for (p, probe) in parts.iter().enumerate().filter(|&(p, _)| p != b) {
                    let drivers = (build.driver(), probe.driver());
                    let Some(ps) = self.join_ps(build.set(), probe.set(), drivers) else { continue };
                    let weight = self.rows(build.set() | probe.set()) + ps;
                    if chosen.is_none_or(|(least, ..)| weight < least) {
                        chosen = Some((weight, ps, b, p));
                    }
                }
            }
            let (_, ps, build, probe) = chosen?;
            total_ps += ps;
            let joined = Tree::Join(Box::new((parts[build].clone(), parts[probe].clone())));
            parts.swap_remove(build.max(probe));
            parts.swap_remove(build.min(probe));
            parts.push(joined);
        }
        Some((parts.pop()?, total_ps))
    }

    /// Making a table of one set and probing it with the other; `None`: the two can't be joined.
    fn join_ps(&self, build: Set, probe: Set, (build_driver, probe_driver): (usize, usize)) -> Option<f64> {
        let keys = self.graph.key_parts(build, probe)?;
        if let Some(seed) = self.seed {
            return Some(drawn(seed, build, probe));
        }
        let (build_rows, probe_rows) = (self.rows(build), self.rows(probe));
        let existence = self.graph.existence_of(build);
        let pairs: Vec<(Option<usize>, Option<usize>)> = keys.iter().map(|(b, p)| (b.column(), p.column())).collect();
        let is_sorted = |column: Option<usize>, driver: usize| {
            column.is_some_and(|column| self.graph.relation_of(column) == driver && self.column(column).sorted)
        };
        let single = match pairs.as_slice() {
            [pair] => Some(*pair),
            _ => None,
        };
        let payload = |set: Set| bits(set).map(|relation| self.payload_bytes[relation]).sum::<f64>();
        let side = BuildSide {
            rows: build_rows,
            unique: self.is_unique(build, build_rows, &pairs) || existence.is_some_and(|it| it.residual.is_none()),
            span: single.and_then(|(column, _)| self.column(column?).span),
            sorted: single.is_some_and(|(column, _)| is_sorted(column, build_driver)),
            payload_bytes: if existence.is_some_and(|it| it.residual.is_none()) { 0.0 } else { payload(build) },
        };
        let probe = ProbeSide {
            rows: probe_rows,
            matches: self.rows(build | probe),
            source_rows: self.graph.relations[probe_driver].estimate.source_rows,
            run_rows: single
                .and_then(|(_, column)| column)
                .filter(|&column| is_sorted(Some(column), probe_driver))
                .map(|column| {
                    let column = self.column(column);
                    column.base_rows / column.distinct.max(1.0)
                }),
        };
        Some(self.costs.join_ps(&side, &probe))
    }

    /// Whether a key occurs once among the build rows: one of its columns is unique in its table, or together they have as
    /// many values as that has rows; and no join repeats those rows.
    fn is_unique(&self, build: Set, build_rows: f64, keys: &[(Option<usize>, Option<usize>)]) -> bool {
        bits(build).any(|relation| {
            let node = &self.graph.relations[relation];
            let columns = keys.iter().filter_map(|(key, _)| *key);
            let own = columns.filter(|&column| self.graph.relation_of(column) == relation).map(|c| self.column(c));
            let mut together: Option<(f64, f64, usize)> = None;
            let mut is_unique = false;
            for column in own {
                is_unique |= column.unique;
                let (rows, distinct, count) = together.unwrap_or((column.base_rows, 1.0, 0));
                together = Some((rows, distinct * column.distinct, count + 1));
            }
            let is_key = is_unique || together.is_some_and(|(rows, all, count)| count > 1 && all >= rows * 0.9);
            is_key && build_rows <= node.estimate.rows * 1.01
        })
    }

    /// Estimated rows of a set of relations, joined.
    pub(in crate::optimize) fn rows(&self, set: Set) -> f64 {
        if let Some(&rows) = self.rows.borrow().get(&set) {
            return rows;
        }
        let rows = self.estimate_rows(set);
        self.rows.borrow_mut().insert(set, rows);
        rows
    }

    fn estimate_rows(&self, set: Set) -> f64 {
        if set.is_power_of_two() {
            return self.graph.relations[set.trailing_zeros() as usize].estimate.rows;
        }
        let nodes = || bits(set).map(|relation| &self.graph.relations[relation]);
        let mut rows: f64 = nodes().filter(|node| node.existence.is_none()).map(|node| node.estimate.rows).product();
        for class in &self.graph.classes {
            let mut distinct: Vec<f64> =
                class.iter().filter(|&&c| self.is_in(c, set)).map(|&c| self.column(c).distinct).collect();
            distinct.sort_unstable_by(f64::total_cmp);
            rows /= distinct.iter().skip(1).product::<f64>().max(1.0);
        }
        rows *= self.correlation(set);
        for (a, b) in self.graph.equalities.iter().filter(|(a, b)| self.covers(set, a) && self.covers(set, b)) {
            rows /= self.distinct_of(a).max(self.distinct_of(b)).max(1.0);
        }
        for residual in self.graph.residuals.iter().filter(|residual| self.covers(set, residual)) {
            rows *= guessed_share(residual);
        }
        rows * nodes().map(|node| self.kept_share(node)).product::<f64>()
    }

    /// By how much more rows match than independent columns would let: of two relations that share several classes.
    fn correlation(&self, set: Set) -> f64 {
        let mut factor = 1.0;
        for one in bits(set) {
            for other in bits(set).filter(|&other| other > one) {
                let column =
                    |class: &[usize], relation| class.iter().copied().find(|&c| self.graph.relation_of(c) == relation);
                let pairs: Vec<(ColumnEstimate, ColumnEstimate)> = (self.graph.classes.iter())
                    .filter_map(|class| Some((column(class, one)?, column(class, other)?)))
                    .map(|(a, b)| (self.column(a), self.column(b)))
                    .collect();
                if pairs.len() > 1 {
                    let independent: f64 = pairs.iter().map(|pair| match_share(std::slice::from_ref(pair))).product();
                    factor *= (match_share(&pairs) / independent).max(1.0);
                }
            }
        }
        factor
    }

    /// Share of rows that a semi or anti join keeps.
    fn kept_share(&self, node: &Node) -> f64 {
        let Some(existence) = &node.existence else { return 1.0 };
        let found = existence.on.iter().map(|(own, other)| {
            let distinct = match own.kind {
                ExprKind::Column(column) => node.estimate.columns[column].distinct_among(node.estimate.rows),
                _ => node.estimate.distinct_of(own),
            };
            (distinct / self.distinct_of(other).max(1.0)).min(1.0)
        });
        let matched = found.fold(1.0, f64::min) * existence.residual.as_ref().map_or(1.0, |_| 0.5);
        if existence.kind == JoinKind::ProbeSemi { matched } else { (1.0 - matched).max(0.05) }
    }

    fn column(&self, column: usize) -> ColumnEstimate {
        let node = &self.graph.relations[self.graph.relation_of(column)];
        node.estimate.columns[column - node.first]
    }

    /// Different values of an expression over the graph.
    fn distinct_of(&self, expr: &Expr) -> f64 {
        let mut distinct = 1.0;
        expr.visit_columns(&mut |column| distinct *= self.column(column).distinct);
        distinct
    }

    fn is_in(&self, column: usize, set: Set) -> bool {
        set >> self.graph.relation_of(column) & 1 == 1
    }

    fn covers(&self, set: Set, expr: &Expr) -> bool {
        self.graph.relations_of(expr) & !set == 0
    }
}

impl Graph {
    /// The semi or anti join that a set stands for.
    pub(in crate::optimize) fn existence_of(&self, set: Set) -> Option<&Existence> {
        if set.is_power_of_two() { self.relations[set.trailing_zeros() as usize].existence.as_ref() } else { None }
    }

    /// Keys by which a table of `build` is probed by `probe`, as expressions over the graph; `None`: the two can't be
    /// joined.
    pub(in crate::optimize) fn keys(&self, build: Set, probe: Set) -> Option<Vec<(Expr, Expr)>> {
        let expr = |part: &KeyPart<'_>| match *part {
            KeyPart::Column(column) => self.column(column),
            KeyPart::Expr(expr) => expr.clone(),
            KeyPart::Own(expr, first) => expr.remap(&|column| first + column),
        };
        Some(self.key_parts(build, probe)?.iter().map(|(build, probe)| (expr(build), expr(probe))).collect())
    }

    /// The same, by reference: a planner asks for thousands of pairs of sets.
    fn key_parts(&self, build: Set, probe: Set) -> Option<Vec<(KeyPart<'_>, KeyPart<'_>)>> {
        if self.existence_of(probe).is_some() {
            return None;
        }
        let is_in = |column: usize, set: Set| set >> self.relation_of(column) & 1 == 1;
        if let Some(existence) = self.existence_of(build) {
            return self.existence_keys(build.trailing_zeros() as usize, existence, probe);
        }
        let mut keys = vec![];
        for class in &self.classes {
            let in_set = |set: Set| class.iter().copied().find(|&column| is_in(column, set));
            if let (Some(build), Some(probe)) = (in_set(build), in_set(probe)) {
                keys.push((KeyPart::Column(build), KeyPart::Column(probe)));
            }
        }
        for (a, b) in &self.equalities {
            let (in_a, in_b) = (self.relations_of(a), self.relations_of(b));
            let is_within = |set: Set, side: Set| side & !set == 0;
            if is_within(build, in_a) && is_within(probe, in_b) {
                keys.push((KeyPart::Expr(a), KeyPart::Expr(b)));
            } else if is_within(build, in_b) && is_within(probe, in_a) {
                keys.push((KeyPart::Expr(b), KeyPart::Expr(a)));
            } else if is_within(build | probe, in_a | in_b)
                && !is_within(build, in_a | in_b)
                && !is_within(probe, in_a | in_b)
            {
                // Could only be told by a comparison, which is not the same for all types.
                return None;
            }
        }
        (!keys.is_empty()).then_some(keys)
    }

    /// Keys of a semi or anti join whose rows are made up by `probe`; `None`: something of them is missing.
    fn existence_keys<'a>(
        &'a self,
        relation: usize,
        existence: &'a Existence,
        probe: Set,
    ) -> Option<Vec<(KeyPart<'a>, KeyPart<'a>)>> {
        let own: Set = 1 << relation;
        if let Some(residual) = &existence.residual
            && self.relations_of(residual) & !(probe | own) != 0
        {
            return None;
        }
        let first = self.relations[relation].first;
        let key = |(own, other): &'a (Expr, Expr)| {
            let own = KeyPart::Own(own, first);
            if self.relations_of(other) & !probe == 0 {
                return Some((own, KeyPart::Expr(other)));
            }
            // Another column that is equal does as well.
            let column = column_of(other)?;
            let is_here = |candidate: &usize| {
                probe >> self.relation_of(*candidate) & 1 == 1
                    && Self::is_exchangeable(&other.data_type)
                    && *self.field(*candidate).data_type() == other.data_type
            };
            let equal = self.class_of(column)?.iter().copied().find(is_here)?;
            Some((own, KeyPart::Column(equal)))
        };
        existence.on.iter().map(key).collect()
    }
}

/// One side of a key.
#[derive(Debug, Clone, Copy)]
enum KeyPart<'a> {
    /// A column of the graph.
    Column(usize),
    /// An expression over the graph.
    Expr(&'a Expr),
    /// An expression over the columns of a relation, whose first one has this number.
    Own(&'a Expr, usize),
}

impl KeyPart<'_> {
    /// The column of the graph that it is.
    fn column(self) -> Option<usize> {
        match self {
            Self::Column(column) => Some(column),
            Self::Expr(expr) => column_of(expr),
            Self::Own(expr, first) => column_of(expr).map(|column| first + column),
        }
    }
}

fn tree_of(best: &[Option<Best>], set: Set) -> Option<Tree> {
    match best[set as usize].as_ref()?.sides {
        None => Some(Tree::Relation(set.trailing_zeros() as usize)),
        Some((build, probe)) => Some(Tree::Join(Box::new((tree_of(best, build)?, tree_of(best, probe)?)))),
    }
}

/// The relations of a set.
fn bits(set: Set) -> impl Iterator<Item = usize> + Clone {
    (0..Set::BITS as usize).filter(move |bit| set >> bit & 1 == 1)
}

fn column_of(expr: &Expr) -> Option<usize> {
    match expr.kind {
        ExprKind::Column(column) => Some(column),
        _ => None,
    }
}

/// A cost that says nothing.
fn drawn(seed: u64, build: Set, probe: Set) -> f64 {
    let mut word = seed ^ (u64::from(build) << 32 | u64::from(probe)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        word ^= word >> 29;
        word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    (word >> 40) as f64
}
