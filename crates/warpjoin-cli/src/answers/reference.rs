//! A query's answer on stock DataFusion, and which other answers are also correct.
//!
//! Must not know which engine computed the other answer.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, make_comparator};
use arrow::compute::{SortOptions, concat_batches};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;

use super::compare::{exact_cells, multiset_difference, same_cell, same_row, show_row};
use super::order::{OrderedQuery, Unlimited};
use super::{Answer, Cell};

/// The answer of stock DataFusion, with the sort key of each row.
///
/// Rows with equal sort keys may come in any order; without ORDER BY, these are all rows. If a LIMIT or OFFSET keeps some of
/// these rows, it may keep any of them.
#[derive(Debug)]
pub struct Reference {
    rows: KeyedRows,
    unlimited: Option<Unlimited>,
    shape: Shape,
}

/// Columns and keys of a query's rows.
#[derive(Debug)]
struct Shape {
    /// Number of output columns. Sort keys follow.
    columns: usize,
    /// Sort options of each key.
    options: Vec<SortOptions>,
    /// Whether values close to zero may be rounding errors, and count as zero.
    has_moments: bool,
}

/// Rows in the order of their sort keys.
#[derive(Debug)]
struct KeyedRows {
    answer: Answer,
    /// Sort key of each row; empty without ORDER BY.
    keys: Vec<Vec<Cell>>,
}

impl Reference {
    /// Runs `sql` on `stock`, with its sort keys as additional columns.
    ///
    /// # Errors
    /// When `stock` cannot run the query.
    pub async fn of(stock: &SessionContext, sql: &str) -> Result<Self> {
        let plan = stock.state().create_logical_plan(sql).await?;
        let has_moments = has_moments(&plan)?;
        let OrderedQuery { plan, columns, options, unlimited } = OrderedQuery::of(&plan)?;
        let shape = Shape { columns, options, has_moments };
        Ok(Self { rows: KeyedRows::of(stock, plan, &shape).await?, unlimited, shape })
    }

    /// The answer without sort keys.
    pub fn answer(&self) -> &Answer {
        &self.rows.answer
    }

    /// How `actual` differs from every correct answer; `None` if it is correct. `stock` must be the session that made this
    /// reference.
    ///
    /// # Errors
    /// When `stock` cannot run the query without its LIMIT.
    pub async fn difference(&self, actual: &Answer, stock: &SessionContext) -> Result<Option<String>> {
        let expected = &self.rows.answer;
        let rounded;
        let actual = if self.shape.has_moments {
            rounded = actual.clone().with_rounded_zeros();
            &rounded
        } else {
            actual
        };
        if let Some(difference) = actual.schema_difference(expected) {
            return Ok(Some(difference));
        }
        if actual.rows() != expected.rows() {
            return Ok(Some(format!("{} rows instead of {}", actual.rows(), expected.rows())));
        }
        let mut needs_unlimited = false;
        for ties in self.rows.ties() {
            let Some(difference) = multiset_difference(&actual.rows[ties.clone()], &expected.rows[ties.clone()]) else {
                continue;
            };
            if self.unlimited.is_none() && self.rows.keys.iter().any(|key| has_nan(key)) {
                return Ok(self.rows.difference_beside_nans(actual));
            }
            if self.unlimited.is_none() {
                return Ok(Some(self.at(&ties, &difference)));
            }
            // Rows may tie with rows that the LIMIT or OFFSET dropped. DataFusion's first rows may also be wrong where all of
            // them show it, such as by keys of grouping sets that it takes for equal.
            needs_unlimited = true;
        }
        match &self.unlimited {
            Some(unlimited) if needs_unlimited => {
                let all = KeyedRows::of(stock, unlimited.plan.clone(), &self.shape).await?;
                Ok(all.limit_difference(actual, unlimited.skip))
            }
            _ => Ok(None),
        }
    }

    /// Adds the position to the description of a difference.
    fn at(&self, ties: &Range<usize>, difference: &str) -> String {
        match self.rows.keys.get(ties.start) {
            Some(key) => format!("from row {}, sort key ({}): {difference}", ties.start, show_row(key)),
            None => difference.to_string(),
        }
    }
}

impl KeyedRows {
    /// Runs `plan`.
    async fn of(stock: &SessionContext, plan: LogicalPlan, shape: &Shape) -> Result<Self> {
        let frame = stock.execute_logical_plan(plan).await?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let batches = collect(Arc::clone(&plan), task).await?;
        check_order(&plan.schema(), &batches, shape)?;
        let mut all = Answer::new(plan.schema(), &batches)?;
        if shape.has_moments {
            all = all.with_rounded_zeros();
        }
        let keys = all.rows.iter_mut().map(|row| row.split_off(shape.columns)).filter(|key| !key.is_empty()).collect();
        let fields: Vec<_> = all.schema.fields().iter().take(shape.columns).cloned().collect();
        all.schema = SchemaRef::new(Schema::new(fields));
        Ok(Self { answer: all, keys })
    }

    /// How `actual` differs from these rows, if those with a NaN in their sort key may come anywhere: the sign of a computed
    /// NaN depends on the processor, and decides at which end it sorts.
    fn difference_beside_nans(&self, actual: &Answer) -> Option<String> {
        let difference = multiset_difference(&actual.rows, &self.answer.rows);
        if difference.is_some() {
            return difference;
        }
        let (mut actual, mut expected) = (actual.rows.clone(), vec![]);
        let mut keys = vec![];
        for (row, key) in self.answer.rows.iter().zip(&self.keys) {
            if !has_nan(key) {
                expected.push(row.clone());
                keys.push(key.clone());
            } else if let Some(at) = actual.iter().position(|other| same_row(other, row)) {
                actual.remove(at);
            }
        }
        let rest = Self { answer: Answer { schema: Arc::clone(&self.answer.schema), rows: expected }, keys };
        rest.ties().into_iter().find_map(|ties| multiset_difference(&actual[ties.clone()], &rest.answer.rows[ties]))
    }

    /// Ranges of rows with equal sort keys.
    fn ties(&self) -> Vec<Range<usize>> {
        let rows = self.answer.rows();
        let has_new_key = |row: usize| {
            self.keys.get(row).is_some_and(|key| !key.iter().zip(&self.keys[row - 1]).all(|(a, b)| same_cell(a, b)))
        };
        let mut starts: Vec<usize> = (0..rows).filter(|&row| row == 0 || has_new_key(row)).collect();
        starts.push(rows);
        starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    /// How `actual` differs from every correct result of a LIMIT on these rows that skips `skip` of them.
    fn limit_difference(&self, actual: &Answer, skip: usize) -> Option<String> {
        let end = skip + actual.rows();
        for ties in self.ties() {
            let (first, last) = (ties.start.max(skip), ties.end.min(end));
            if first >= last {
                continue;
            }
            let mut open: HashMap<Vec<String>, Vec<&Vec<Cell>>> = HashMap::new();
            for row in &self.answer.rows[ties.clone()] {
                open.entry(exact_cells(row)).or_default().push(row);
            }
            for row in &actual.rows[first - skip..last - skip] {
                let candidates = open.entry(exact_cells(row)).or_default();
                match candidates.iter().position(|candidate| same_row(row, candidate)) {
                    Some(at) => drop(candidates.swap_remove(at)),
                    None => {
                        let (row, first) = (show_row(row), ties.start);
                        return Some(format!(
                            "row ({row}) is not in rows {first} to {} of the answer without LIMIT, or occurs too often",
                            ties.end - 1
                        ));
                    }
                }
            }
        }
        (end > self.answer.rows()).then(|| format!("{end} rows with the OFFSET, {} without LIMIT", self.answer.rows()))
    }
}

fn has_nan(key: &[Cell]) -> bool {
    key.iter().any(|cell| matches!(cell, Cell::Float(value) if value.is_nan()))
}

/// Checks that the rows are in the order of their keys. DataFusion removes some sorts that are needed, such as one by a key
/// that is constant except in rows of grouping sets.
///
/// # Errors
/// When they are not, since they then cannot be a reference.
fn check_order(schema: &SchemaRef, batches: &[RecordBatch], shape: &Shape) -> Result<()> {
    let all = concat_batches(schema, batches)?;
    let keys = all.columns().iter().skip(shape.columns).zip(&shape.options);
    let by_key = keys.map(|(key, options)| make_comparator(key, key, *options)).collect::<Result<Vec<_>, _>>()?;
    let order = |row: usize| by_key.iter().map(|compare| compare(row - 1, row)).find(|order| order.is_ne());
    match (1..all.num_rows()).find(|&row| order(row) == Some(Ordering::Greater)) {
        Some(row) => {
            internal_err!("stock DataFusion does not sort as the query specifies: see rows {} and {row}", row - 1)
        }
        None => Ok(()),
    }
}

/// Whether a query has aggregates that subtract large sums, whose results may be a rounding error instead of zero.
fn has_moments(plan: &LogicalPlan) -> Result<bool> {
    const NAMES: [&str; 5] = ["corr", "covar", "regr", "stddev", "var"];
    plan.exists(|node| {
        let text = node.display().to_string();
        Ok(NAMES.iter().any(|name| text.contains(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How the answer to `sql` differs from the correct answers to `expected`, over the same rows.
    async fn difference(sql: &str, expected: &str) -> Option<String> {
        let context = SessionContext::new();
        let rows = "(1, 10, 'a'), (2, 20, 'b'), (2, 20, 'c'), (2, 30, 'd'), (3, 5, 'e'), (null, 7, 'f')";
        context.sql(&format!("create table t as values {rows}")).await.unwrap().collect().await.unwrap();
        let frame = context.sql(sql).await.unwrap();
        let schema = Arc::clone(frame.schema().inner());
        let actual = Answer::new(schema, &frame.collect().await.unwrap()).unwrap();
        let reference = Reference::of(&context, expected).await.unwrap();
        reference.difference(&actual, &context).await.unwrap()
    }

    #[tokio::test]
    async fn order_matters_only_with_order_by() {
        let by = |order: &str| format!("select column3 from t {order}");
        assert_eq!(difference(&by("order by column3 desc"), &by("")).await, None);
        assert_eq!(
            difference(&by("order by column1, column2, column3 desc"), &by("order by column1, column2")).await,
            None
        );
        // Neither key is an output column.
        assert!(difference(&by("order by column1, column2 desc"), &by("order by column1, column2")).await.is_some());
        assert!(difference(&by("order by column1 nulls first"), &by("order by column1")).await.is_some());
        assert!(difference(&by("order by column1 desc nulls last"), &by("order by column1")).await.is_some());
    }

    #[tokio::test]
    async fn a_nan_may_sort_at_either_end() {
        let rows = |nan: &str, order: &str| {
            format!("select column2 from (values ({nan}, 1), (1.5, 2), (0.5, 3)) order by {order}")
        };
        let (positive, negative) = (rows("'NaN'::double", "column1"), rows("-('NaN'::double)", "column1"));
        assert_eq!(difference(&positive, &negative).await, None);
        assert_eq!(difference(&negative, &positive).await, None);
        assert!(difference(&rows("2.5", "column1 desc"), &rows("2.5", "column1")).await.is_some());
        // The others keep their order.
        assert!(difference(&rows("'NaN'::double", "column1 desc"), &positive).await.is_some());
        assert!(difference(&rows("'NaN'::double", "column1").replace(", 3)", ", 4)"), &positive).await.is_some());
    }

    #[tokio::test]
    async fn a_limit_may_keep_any_of_the_tied_rows() {
        let by = |order: &str| format!("select column3 from t {order}");
        let two = by("order by column1 limit 2");
        assert_eq!(difference(&by("order by column1, column3 desc limit 2"), &two).await, None);
        assert_eq!(
            difference(
                &by("order by column1, column3 desc limit 2 offset 2"),
                &by("order by column1 limit 2 offset 2")
            )
            .await,
            None
        );
        assert_eq!(difference(&by("limit 2 offset 3"), &by("limit 2")).await, None);
        assert!(difference(&by("order by column1 limit 2 offset 1"), &two).await.is_some());
        assert!(difference(&by("order by column1 desc limit 2"), &two).await.is_some());
        assert!(difference("select 'a' as column3 from t limit 2", &by("limit 2")).await.is_some());
        assert!(difference(&by("order by column1 limit 3"), &two).await.is_some());
        // Rows 3 and 4 have different keys.
        assert!(
            difference(&by("order by column1 limit 1 offset 4"), &by("order by column1 limit 1 offset 3"))
                .await
                .is_some()
        );
    }

    #[tokio::test]
    async fn only_floats_have_a_tolerance() {
        assert_eq!(difference("select 1e15 + 1 as x", "select 1e15 as x").await, None);
        assert_eq!(difference("select 'NaN'::double as x", "select 'NaN'::double as x").await, None);
        assert_eq!(difference("select 'inf'::double as x", "select 'inf'::double as x").await, None);
        for other in ["1.0", "1e308", "'-inf'", "'NaN'"] {
            let (inf, other) = ("select 'inf'::double as x", format!("select {other}::double as x"));
            assert!(difference(inf, &other).await.is_some() && difference(&other, inf).await.is_some(), "{other}");
        }
        assert!(difference("select 1e-20::double as x", "select 0.0::double as x").await.is_some());
        let moments = "covar_pop(column1, column2)";
        let tiny = format!("select {moments} * 0 + 1e-17 as x from t order by x");
        assert_eq!(difference(&tiny, &format!("select {moments} * 0.0 as x from t order by x")).await, None);
        assert!(difference("select 1e15 + 1e7 as x", "select 1e15 as x").await.is_some());
        assert!(difference("select 1000000000001 as x", "select 1000000000000 as x").await.is_some());
        assert!(difference("select null::double as x", "select 0.0::double as x").await.is_some());
        assert!(difference("select 1::int as x", "select 1::bigint as x").await.is_some());
    }
}
