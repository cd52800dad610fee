//! Grouping sets whose partial results can't be merged: each set reads the input.

use arrow::datatypes::DataType;
use warpjoin_columns::Result;
use warpjoin_columns::expr::{Expr, ExprKind, Scalar};

use crate::plan::build::{project, union};
use crate::plan::{AggregateCall, AggregateFunction, GroupingSet, Plan};

/// A group-by for each distinct set of keys, made by `of_keys`, and the rows of all sets, appended.
pub(super) fn union_of(
    input: Plan,
    keys: &[Expr],
    (sets, id_type): (&[GroupingSet], &DataType),
    calls: &[AggregateCall],
    of_keys: &dyn Fn(Plan, Vec<Expr>) -> Result<Plan>,
) -> Result<Plan> {
    let unique = unique_keys(sets);
    let input = if unique.len() < 2 { input } else { input.into_shared() };
    let groups = unique
        .iter()
        .map(|own| {
            let times = sets.iter().filter(|set| set.keys == **own).count();
            let group_by = own.iter().map(|&key| keys[key].clone()).collect();
            let groups = of_keys(input.clone(), group_by)?;
            Ok(if times < 2 { groups } else { groups.into_shared() })
        })
        .collect::<Result<Vec<Plan>>>()?;
    let of_set = |set: &GroupingSet| {
        let position = unique.iter().position(|keys| *keys == set.keys).unwrap_or(0);
        project(groups[position].clone(), outputs(set, keys, calls, id_type))
    };
    Ok(union(sets.iter().map(of_set).collect()))
}

/// The distinct sets of keys, largest first: smaller ones can be aggregated from them.
pub fn unique_keys(sets: &[GroupingSet]) -> Vec<&[usize]> {
    let mut unique: Vec<&[usize]> = vec![];
    for set in sets {
        if !unique.contains(&set.keys.as_slice()) {
            unique.push(&set.keys);
        }
    }
    unique.sort_by_key(|keys| std::cmp::Reverse(keys.len()));
    unique
}

/// The columns of grouping sets, over those of a group-by of one of them.
pub fn outputs(set: &GroupingSet, keys: &[Expr], calls: &[AggregateCall], id_type: &DataType) -> Vec<Expr> {
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
