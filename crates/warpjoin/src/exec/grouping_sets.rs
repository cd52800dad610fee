//! Group-bys by several sets of keys: ROLLUP, CUBE, GROUPING SETS.
//!
//! A set whose keys are some of another set's is aggregated from the partial results of that one; only sets within no
//! other read the input. Where partial results can't be brought together each set reads the input, which runs once.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use super::group::{Aggregation, merging};
use super::query::Query;
use super::relation::{GroupTable, Relation, Source};
use crate::codegen::Step;
use crate::expr::{Expr, ExprKind, Scalar};
use crate::plan::build::or_zero;
use crate::plan::{AggregateCall, AggregateFunction, GroupingSet, Plan, PlanKind};
use crate::{Error, Reason, Result};

/// The groups of a set of keys.
struct SetGroups<'a> {
    keys: &'a [usize],
    groups: Arc<GroupTable>,
}

impl Query<'_> {
    /// Runs the group-bys of all sets; `sets` with the type of their numbers.
    pub(super) fn grouping_sets(
        &mut self,
        input: &Plan,
        keys: &[Expr],
        (sets, id_type): (&[GroupingSet], &DataType),
        calls: &[AggregateCall],
    ) -> Result<Relation> {
        // Those with the most keys first: others are made of them.
        let mut unique: Vec<&[usize]> = vec![];
        for set in sets {
            if !unique.contains(&set.keys.as_slice()) {
                unique.push(&set.keys);
            }
        }
        unique.sort_by_key(|keys| std::cmp::Reverse(keys.len()));
        let needs_parts = calls.iter().any(AggregateCall::needs_parts);
        let merged = if needs_parts { None } else { Some(self.sets_of_groups(input, keys, &unique, calls)) };
        let relations = match merged {
            Some(Err(Error::Unsupported(Reason::Aggregate(_)))) | None => {
                self.sets_of_rows(input, keys, &unique, calls)?
            }
            Some(relations) => relations?,
        };
        let mut parts = vec![];
        for set in sets {
            let position = unique.iter().position(|keys| *keys == set.keys).unwrap_or(0);
            let mut relation = relations[position].clone();
            relation.steps.push(Step::Project(outputs(set, keys, calls, id_type)));
            relation.width = keys.len() + 1 + calls.len();
            parts.push(relation);
        }
        self.union(parts)
    }

    /// Each set from the smallest one that holds its keys.
    fn sets_of_groups(
        &mut self,
        input: &Plan,
        keys: &[Expr],
        sets: &[&[usize]],
        calls: &[AggregateCall],
    ) -> Result<Vec<Relation>> {
        let mut relation = self.relation(input)?;
        let is_within = |set: &[usize], other: &[usize]| set != other && set.iter().all(|key| other.contains(key));
        if sets.iter().filter(|set| !sets.iter().any(|other| is_within(set, other))).count() > 1 {
            relation = self.settled(relation)?;
        }
        let mut made: Vec<SetGroups<'_>> = vec![];
        let mut relations = vec![];
        for &set in sets {
            let set_keys: Vec<Expr> = set.iter().map(|&key| keys[key].clone()).collect();
            let Aggregation { accumulators, mut outputs } = Aggregation::of(&set_keys, calls);
            let finer = made.iter().filter(|other| is_within(set, other.keys)).min_by_key(|other| other.keys.len());
            let groups = match finer {
                None => self.group(&relation, &set_keys, &accumulators)?,
                Some(finer) => {
                    let of_finer = |key: &usize| {
                        let position = finer.keys.iter().position(|finer| finer == key).unwrap_or(0);
                        Expr::column(position, keys[*key].data_type.clone(), keys[*key].nullable)
                    };
                    let finer_keys: Vec<Expr> = set.iter().map(of_finer).collect();
                    let merged = merging(&accumulators, finer.keys.len());
                    let source = Relation::new(Source::Groups(finer.groups.clone()));
                    self.group(&source, &finer_keys, &merged)?
                }
            };
            if finer.is_some() && set.is_empty() {
                // Without a row, counts were added up to null.
                for (output, call) in outputs[set.len()..].iter_mut().zip(calls) {
                    if call.function == AggregateFunction::Count {
                        *output = or_zero(output.clone());
                    }
                }
            }
            let groups = Arc::new(groups);
            let mut result = Relation::new(Source::Groups(groups.clone()));
            result.width = outputs.len();
            result.steps.push(Step::Project(outputs));
            relations.push(result);
            made.push(SetGroups { keys: set, groups });
        }
        Ok(relations)
    }

    /// Each set from the input's rows.
    fn sets_of_rows(
        &mut self,
        input: &Plan,
        keys: &[Expr],
        sets: &[&[usize]],
        calls: &[AggregateCall],
    ) -> Result<Vec<Relation>> {
        let input = if sets.len() < 2 { input.clone() } else { input.clone().into_shared() };
        let mut relations = vec![];
        for set in sets {
            let group_by: Vec<Expr> = set.iter().map(|&key| keys[key].clone()).collect();
            let fields = group_by
                .iter()
                .map(|key| (&key.data_type, key.nullable))
                .chain(calls.iter().map(|call| (&call.data_type, call.function != AggregateFunction::Count)))
                .map(|(data_type, nullable)| Field::new("c", data_type.clone(), nullable));
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let kind = PlanKind::Aggregate { input: Box::new(input.clone()), group_by, aggregates: calls.to_vec() };
            relations.push(self.relation(&Plan { kind, schema })?);
        }
        self.release(&input);
        Ok(relations)
    }
}

/// The columns of the node, over those of a group-by of `set`.
fn outputs(set: &GroupingSet, keys: &[Expr], calls: &[AggregateCall], id_type: &DataType) -> Vec<Expr> {
    let key = |(index, key): (usize, &Expr)| match set.keys.iter().position(|&own| own == index) {
        Some(position) => Expr::column(position, key.data_type.clone(), key.nullable),
        None => Expr { kind: ExprKind::Literal(Scalar::Null), data_type: key.data_type.clone(), nullable: true },
    };
    let mut outputs: Vec<Expr> = keys.iter().enumerate().map(key).collect();
    outputs.push(Expr::literal(Scalar::Int(set.id.into()), id_type.clone()));
    outputs.extend(calls.iter().enumerate().map(|(index, call)| {
        let nullable = call.function != AggregateFunction::Count;
        Expr::column(set.keys.len() + index, call.data_type.clone(), nullable)
    }));
    outputs
}
