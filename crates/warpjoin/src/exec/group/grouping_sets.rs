//! Group-bys by several sets of keys: ROLLUP, CUBE, GROUPING SETS.
//!
//! A set whose keys are a subset of another set's is aggregated from the partial results of that one; only sets that
//! are no subset of another read the input. If partial results can't be merged, each set reads the input
//! (`plan/rewrite/sets.rs`).

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_codegen::Step;
use warpjoin_columns::Result;
use warpjoin_columns::expr::Expr;
use warpjoin_plan::plan::build::or_zero;
use warpjoin_plan::plan::rewrite::{outputs, unique_keys};
use warpjoin_plan::plan::{AggregateCall, AggregateFunction, GroupingSet};

use super::aggregate::{Aggregation, merging};
use crate::exec::query::Query;
use crate::exec::relation::{GroupTable, Relation, Source};

/// The groups of a set of keys.
struct SetGroups<'a> {
    keys: &'a [usize],
    groups: Arc<GroupTable>,
}

impl Query<'_> {
    /// Runs the group-bys of all sets; `sets` with the type of their numbers.
    pub(in crate::exec) fn grouping_sets(
        &mut self,
        relation: Relation,
        keys: &[Expr],
        (sets, id_type): (&[GroupingSet], &DataType),
        calls: &[AggregateCall],
    ) -> Result<Relation> {
        let unique = unique_keys(sets);
        let is_finest = |set: &[usize]| !unique.iter().any(|other| is_within(set, other));
        let is_read_twice = unique.iter().filter(|set| is_finest(set)).count() > 1;
        let relation = if is_read_twice { self.settled(relation)? } else { relation };
        let relations = self.sets_of_groups(&relation, keys, &unique, calls)?;
        drop(relation);
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

    /// Aggregates each set from the smallest set that contains its keys.
    fn sets_of_groups(
        &mut self,
        relation: &Relation,
        keys: &[Expr],
        sets: &[&[usize]],
        calls: &[AggregateCall],
    ) -> Result<Vec<Relation>> {
        let mut made: Vec<SetGroups<'_>> = vec![];
        let mut relations = vec![];
        for &set in sets {
            let set_keys: Vec<Expr> = set.iter().map(|&key| keys[key].clone()).collect();
            let Aggregation { accumulators, mut outputs } = Aggregation::of(&set_keys, calls)?;
            let finer = made.iter().filter(|other| is_within(set, other.keys)).min_by_key(|other| other.keys.len());
            let groups = match finer {
                None => self.group(relation, &set_keys, &accumulators)?,
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
}

/// Whether a set's keys are a proper subset of another set's.
fn is_within(set: &[usize], other: &[usize]) -> bool {
    set != other && set.iter().all(|key| other.contains(key))
}
