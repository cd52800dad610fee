//! Row ids as columns.

use arrow::datatypes::{DataType, Schema};
use warpjoin_codegen::Step;
use warpjoin_columns::expr::{Expr, ExprKind};
use warpjoin_columns::{Error, Result};
use warpjoin_plan::plan::bounds::number_bits;

use crate::exec::decision::RuntimeDecision;
use crate::exec::query::Query;
use crate::exec::relation::{Relation, Source};

impl Relation {
    /// Adds the row id of each row: its position in its table.
    pub(in crate::exec) fn append_row_number(&mut self) -> Result<()> {
        let Source::Table(table, columns) = &self.source else {
            return Err(Error::internal("row ids of a source that is no table"));
        };
        // As close as bounds of a column are, so that a number packs into as few bits.
        let kind = ExprKind::RowNumber { max: table.rows().saturating_sub(1) };
        let number = Expr { kind, data_type: DataType::UInt64, nullable: false };
        let schema = table.schema();
        let own = |(index, &column): (usize, &usize)| {
            let field = schema.field(column);
            Expr::column(index, field.data_type().clone(), field.is_nullable())
        };
        let mut exprs: Vec<Expr> = columns.iter().enumerate().map(own).collect();
        exprs.push(number);
        self.width = exprs.len();
        self.steps.push(Step::Project(exprs));
        Ok(())
    }
}

impl Query<'_> {
    /// Adds a number to each row; the rows must be readable more than once.
    pub(in crate::exec) fn append_number(&mut self, relation: &mut Relation, schema: &Schema) {
        let rows = (0..self.devices()).map(|device| relation.source.shard_rows(device)).sum();
        self.note_decision(RuntimeDecision::Rows(rows));
        let kind = ExprKind::RowNumber { max: (1 << number_bits(rows)) - 1 };
        relation.append(schema, Expr { kind, data_type: DataType::UInt64, nullable: false });
    }
}
