//! Late materialisation: a scan puts out the numbers of its rows, and columns are read by them where they are needed.
//!
//! A fetch is a step of the pipeline that needs the columns, and loads only what is used, for rows that are still there. On
//! several devices a row may be read on another device than the one that has it: through peer access, as exchanges are
//! written. Tables do not change, so nobody waits for anybody.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::query::Query;
use super::relation::{Relation, Source};
use crate::codegen::{FetchStep, Step};
use crate::expr::{Expr, ExprKind};
use crate::plan::{FetchPlan, Plan};
use crate::{Error, Result};

impl Query<'_> {
    /// The columns of a scan, and the number of each row in its table.
    pub(super) fn with_row_numbers(&mut self, input: &Plan) -> Result<Relation> {
        let mut relation = self.relation(input)?;
        let Source::Table(table, _) = &relation.source else {
            return Err(Error::internal("row numbers of what is no table"));
        };
        // As close as bounds of a column are, so that a number packs into as few bits.
        let kind = ExprKind::RowNumber { max: table.rows().saturating_sub(1) };
        let number = Expr { kind, data_type: DataType::UInt64, nullable: false };
        let mut exprs = super::plans::columns(input, relation.width);
        exprs.push(number);
        relation.width = exprs.len();
        relation.steps.push(Step::Project(exprs));
        Ok(relation)
    }

    /// Adds columns that are read by the number of their row.
    pub(super) fn append_fetch(&self, relation: &mut Relation, plan: &FetchPlan) -> Result<()> {
        let table = &plan.table;
        self.check_table(table)?;
        let types = plan.columns.iter().map(|&column| {
            let known = table.column_types().get(column).cloned();
            known.ok_or_else(|| Error::internal(format!("no column {column} of a table")))
        });
        let step = FetchStep {
            number: relation.fetched.len(),
            row: plan.row,
            columns: plan.columns.clone(),
            types: types.collect::<Result<_>>()?,
            shards: table.shards().len(),
        };
        relation.fetched.push(Arc::clone(table));
        relation.width += plan.columns.len();
        relation.steps.push(Step::Fetch(Arc::new(step)));
        Ok(())
    }
}
