//! First and last values: the number of each group's first row in an order, then the values of that row.
//!
//! The keys of an order, and the number of the row behind them, are packed into words of 64 bits. A group-by finds each
//! group's least word; where there are several, the rows that have it are looked at again for the next word.

use arrow::datatypes::{DataType, Schema};

use crate::codegen::{Sink, SinkShape, Step};
use crate::exec::query::Query;
use crate::exec::relation::{Relation, Source};
use crate::expr::{ArithmeticOp, Expr, ExprKind, Scalar};
use crate::identity::{Identity, Scope};
use crate::plan::build::{
    ExprList, aggregate, column, columns, columns_of, filter, is_null, join, not, numbered, project,
};
use crate::plan::rewrite::Part;
use crate::plan::{AggregateCall, AggregateFunction, JoinKind, Plan, SortKey};
use crate::{Error, Result};

/// Calls that take their values from the same row of a group.
struct Spec {
    order_by: Vec<SortKey>,
    filter: Option<Expr>,
    is_last: bool,
    /// Position of each call, and the column of its argument.
    calls: Vec<(usize, Expr)>,
}

impl Query<'_> {
    /// Adds the number of each row, to rows that may be read more than once.
    pub(in crate::exec) fn append_number(&mut self, relation: &mut Relation, schema: &Schema) {
        let rows = match &relation.source {
            Source::Table(..) => (0..self.devices()).map(|device| relation.source.shard_rows(device)).sum(),
            _ if self.is_dry() => relation.rows_max,
            source => (0..self.devices()).map(|device| source.shard_rows(device)).sum::<u64>(),
        };
        let rows = self.known_rows(rows);
        let bits = (64 - rows.leading_zeros()).next_multiple_of(8).clamp(8, 56);
        let kind = ExprKind::RowNumber { max: (1 << bits) - 1 };
        let number = Expr { kind, data_type: DataType::UInt64, nullable: false };
        let mut exprs = columns_of(schema, relation.width);
        exprs.push(number);
        relation.width = exprs.len();
        relation.steps.push(Step::Project(exprs));
    }

    /// A part for each order among the calls `own`.
    pub(super) fn ordered_parts(
        &mut self,
        input: &Plan,
        keys: &[Expr],
        calls: &[AggregateCall],
        own: &[usize],
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
        // How many words an order has depends on how many rows there are.
        let rows = self.given(&numbered(project(input.clone(), list.exprs)))?;
        let mut parts = vec![];
        for (_, spec) in specs {
            parts.push(self.ordered_part(&rows, keys.len(), spec)?);
        }
        Ok(parts)
    }

    fn ordered_part(&mut self, rows: &Plan, keys: usize, spec: Spec) -> Result<Part> {
        let (width, number) = (rows.schema.fields().len(), rows.schema.fields().len() - 1);
        let mut order = spec.order_by;
        // A row's number is the last key, and so the lowest bits of the last word.
        order.push(SortKey { expr: column(rows, number), descending: false, nulls_first: false });
        let (words, number_bits) = self.order_words(rows, &order)?;
        let function = if spec.is_last { AggregateFunction::Max } else { AggregateFunction::Min };
        let is_complete = spec.filter.is_none() && keys > 0;
        let mut left = match spec.filter {
            Some(condition) => filter(rows.clone(), condition),
            None => rows.clone(),
        };
        let mut before: Option<(Plan, Expr)> = None;
        for word in 0..words {
            if let Some((groups, word)) = before.take() {
                // Rows that have the word before, which is their group's.
                let on_keys = columns(&groups, keys).into_iter().zip(columns(&left, keys));
                let on = on_keys.chain([(column(&groups, keys), word)]).collect();
                let joined = join(groups, left, on, JoinKind::Inner);
                let exprs = (0..width).map(|index| column(&joined, keys + 1 + index)).collect();
                left = project(joined, exprs);
            }
            let kind = ExprKind::OrderWord { keys: order.clone(), word };
            let word = Expr { kind, data_type: DataType::UInt64, nullable: false };
            let call = AggregateCall::new(function, Some(word.clone()), DataType::UInt64);
            before = Some((aggregate(left.clone(), columns(&left, keys), vec![call]), word));
        }
        let (groups, _) = before.ok_or_else(|| Error::internal("an order without words"))?;
        Ok(values_of(rows, groups, (keys, number, number_bits), spec.calls, is_complete))
    }

    /// Words of an order, and bits of its last key.
    fn order_words(&mut self, rows: &Plan, order: &[SortKey]) -> Result<(usize, u32)> {
        let relation = self.run_plan(rows)?;
        let mut bits_of = |keys: &[SortKey]| {
            let sink = Sink::Sort { keys: keys.to_vec(), columns: vec![], window: None };
            match &self.bind(&relation, &sink)?.sink {
                SinkShape::Sort(shape) => Ok(shape.word_bits.clone()),
                _ => Err(Error::internal("an order without words")),
            }
        };
        let last = bits_of(&order[order.len() - 1..])?;
        Ok((bits_of(order)?.len(), last.first().copied().unwrap_or(0)))
    }
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
