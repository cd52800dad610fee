//! Late materialization: a scan outputs row ids, and columns are read by row id where they are needed.
//!
//! A fetch is a step of the pipeline that needs the columns. It loads only used columns, for the remaining rows. With
//! several devices a row may be read from another device's memory, through peer access. Tables do not change, so this
//! needs no synchronization.

use std::sync::Arc;

use warpjoin_codegen::{FetchStep, Step};
use warpjoin_columns::{Error, Result, Table};

use crate::exec::query::Query;
use crate::exec::relation::Relation;

impl Query<'_> {
    /// Adds columns that are read by row id.
    pub(in crate::exec) fn append_fetch(
        &self,
        relation: &mut Relation,
        table: &Arc<Table>,
        row: usize,
        columns: &[usize],
    ) -> Result<()> {
        self.check_table(table)?;
        let types = columns.iter().map(|&column| {
            let known = table.column_types().get(column).cloned();
            known.ok_or_else(|| Error::internal(format!("no column {column} of a table")))
        });
        let step = FetchStep {
            number: relation.fetched.len(),
            row,
            columns: columns.to_vec(),
            types: types.collect::<Result<_>>()?,
            shards: self.devices(),
        };
        relation.fetched.push(Arc::clone(table));
        relation.width += columns.len();
        relation.steps.push(Step::Fetch(Arc::new(step)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use warpjoin_codegen::{GenerateOptions, Sink, SourceShape, ValidityForm, bind_pipeline};
    use warpjoin_columns::column::{ColumnType, Domain};
    use warpjoin_columns::expr::{Expr, ExprKind};
    use warpjoin_device::{compile_for_architecture, cuda_status};

    use super::*;

    fn column(max: i128, has_nulls: bool) -> ColumnType {
        ColumnType { data_type: DataType::Int64, has_nulls, domain: Domain::Int { min: 0, max }, dictionary: None }
    }

    /// A kernel that adds row ids to a table of `rows` rows, and fetches two columns from `shards` devices.
    fn kernel(rows: u64, shards: usize) -> warpjoin_device::ModuleSource {
        let number = Expr { kind: ExprKind::RowNumber { max: rows - 1 }, data_type: DataType::UInt64, nullable: false };
        let (columns, types) = (vec![3, 5], vec![column(1000, true), column(1 << 40, false)]);
        let step = FetchStep { number: 0, row: 1, columns, types, shards };
        let steps = [Step::Project(vec![Expr::column(0, DataType::Int64, false), number]), Step::Fetch(Arc::new(step))];
        let source = SourceShape::Columns(vec![column(9, false)], ValidityForm::Bits);
        let options = GenerateOptions { hash_bits: 64, tested_strings_min: 4096 };
        bind_pipeline(&source, &steps, &Sink::Materialise(vec![0, 2, 3]), options).expect("a kernel").module().clone()
    }

    #[test]
    fn numbers_of_many_rows_are_wide() {
        for (rows, wanted) in [(1 << 31, "i32 h"), ((1 << 31) + 1, "i64 h"), (1 << 40, "i64 h")] {
            let module = kernel(rows, 1);
            let number = module.text.lines().find(|line| line.contains("+ row)")).expect("a number");
            let name = number.trim().split(' ').next().expect("a variable");
            let declared = format!("{}{} = 0;", wanted.trim_end_matches('h'), name);
            assert!(module.text.contains(&declared), "{rows}: {declared}\n{}", module.text);
        }
    }

    #[test]
    fn devices_are_told_apart_by_their_first_rows() {
        for shards in [1, 2, 8] {
            let module = kernel(1 << 33, shards);
            let choices = module.text.matches(" >= p.a").count();
            // For values and validity of the first column and values of the second: address and first row.
            assert_eq!(choices, 3 * 2 * (shards - 1), "{}", module.text);
            if cuda_status().nvrtc.is_some() {
                compile_for_architecture(&module, "sm_90").expect("a cubin");
            }
        }
    }
}
