//! First and last values: the number of each group's first row in an order, then the values of that row.
//!
//! The keys of an order, followed by the row's number, are packed into words of 64 bits. The number of words follows
//! from the bounds of the keys. A group-by finds each group's least word; if there are several words, the rows that
//! have it are read again for the next word.

use arrow::datatypes::DataType;
use warpjoin_columns::expr::{ArithmeticOp, Expr, ExprKind, Scalar};
use warpjoin_columns::identity::{Identity, Scope};
use warpjoin_columns::{Error, Result};

use super::order_words::words_of;
use super::split::Part;
use crate::plan::bounds::Bounds;
use crate::plan::build::{ExprList, aggregate, column, columns, filter, is_null, join, not, numbered, project};
use crate::plan::{AggregateCall, AggregateFunction, InputTables, JoinKind, Plan, SortKey};

/// Calls that take their values from the same row of a group.
struct Spec {
    order_by: Vec<SortKey>,
    filter: Option<Expr>,
    is_last: bool,
    /// Position of each call, and the column of its argument.
    calls: Vec<(usize, Expr)>,
}

/// A part for each order among the calls `own`.
pub(super) fn ordered_parts(
    input: &Plan,
    keys: &[Expr],
    calls: &[AggregateCall],
    own: &[usize],
    inputs: InputTables<'_>,
) -> Result<Vec<Part>> {
    let mut list = ExprList { exprs: keys.to_vec() };
    let mut specs: Vec<(Identity, Spec)> = vec![];
    for &index in own {
        let call = &calls[index];
        let argument = call.argument.as_ref().ok_or_else(|| Error::internal("a first value of nothing"))?;
        let key = Identity::new(Scope::Query).with(&call.function).with(&call.order_by).with(&call.filter);
        let argument = (index, list.add(argument));
        if let Some((_, spec)) = specs.iter_mut().find(|(known, _)| *known == key) {
            spec.calls.push(argument);
            continue;
        }
        let order_by = call.order_by.iter().map(|key| SortKey { expr: list.add(&key.expr), ..*key }).collect();
        let filter = call.filter.as_ref().map(|filter| list.add(filter));
        let is_last = call.function == AggregateFunction::Last;
        specs.push((key, Spec { order_by, filter, is_last, calls: vec![argument] }));
    }
    let rows = numbered(project(input.clone(), list.exprs));
    let bounds = rows.bounds(inputs);
    let rows = rows.into_shared();
    specs.into_iter().map(|(_, spec)| ordered_part(&rows, &bounds, keys.len(), spec)).collect()
}

fn ordered_part(rows: &Plan, bounds: &Bounds, keys: usize, spec: Spec) -> Result<Part> {
    let (width, number) = (rows.schema.fields().len(), rows.schema.fields().len() - 1);
    let mut order = spec.order_by;
    // A row's number is the last key, and so the lowest bits of the last word.
    order.push(SortKey { expr: column(rows, number), descending: false, nulls_first: false });
    let words = words_of(&order, bounds);
    let number_bits = words.last().and_then(|word| word.last()).map_or(0, |part| part.bits);
    let function = if spec.is_last { AggregateFunction::Max } else { AggregateFunction::Min };
    let is_complete = spec.filter.is_none() && keys > 0;
    let mut left = match spec.filter {
        Some(condition) => filter(rows.clone(), condition),
        None => rows.clone(),
    };
    let mut before: Option<(Plan, Expr)> = None;
    for word in words {
        if let Some((groups, word)) = before.take() {
            // Rows that have the word before, which is their group's.
            let on_keys = columns(&groups, keys).into_iter().zip(columns(&left, keys));
            let on = on_keys.chain([(column(&groups, keys), word)]).collect();
            let joined = join(groups, left, on, JoinKind::Inner);
            let exprs = (0..width).map(|index| column(&joined, keys + 1 + index)).collect();
            left = project(joined, exprs);
        }
        let word = Expr { kind: ExprKind::OrderWord(word), data_type: DataType::UInt64, nullable: false };
        let call = AggregateCall::new(function, Some(word.clone()), DataType::UInt64);
        before = Some((aggregate(left.clone(), columns(&left, keys), vec![call]), word));
    }
    let (groups, _) = before.ok_or_else(|| Error::internal("an order without words"))?;
    Ok(values_of(rows, groups, (keys, number, number_bits), spec.calls, is_complete))
}

/// The values of the rows whose numbers the groups' words end with.
fn values_of(
    rows: &Plan,
    groups: Plan,
    (keys, number, bits): (usize, usize, u32),
    calls: Vec<(usize, Expr)>,
    is_complete: bool,
) -> Part {
    let word = column(&groups, keys);
    let mask = Expr::literal(Scalar::Int(1 << bits), DataType::UInt64);
    let found = ExprKind::Arithmetic(ArithmeticOp::Modulo, Box::new(word), Box::new(mask));
    let mut exprs = columns(&groups, keys);
    exprs.push(Expr { kind: found, data_type: DataType::UInt64, nullable: true });
    // Without rows a global group-by has a row all the same.
    let groups = project(groups, exprs);
    let groups = if keys == 0 { filter(groups.clone(), not(is_null(&column(&groups, 0)))) } else { groups };
    let on = vec![(column(&groups, keys), column(rows, number))];
    let joined = join(groups, rows.clone(), on, JoinKind::Inner);
    let mut exprs = columns(&joined, keys);
    let mut results = vec![];
    for (index, argument) in calls {
        results.push((index, Expr::column(exprs.len(), argument.data_type.clone(), argument.nullable)));
        exprs.push(argument.remap(&|column| keys + 1 + column));
    }
    Part { plan: project(joined, exprs), results, is_complete }
}
