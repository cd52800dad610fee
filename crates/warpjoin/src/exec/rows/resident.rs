//! Leaves a result on the devices as a table.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use warpjoin_codegen::Constants;
use warpjoin_columns::column::{ColumnStatistics, ColumnType};
use warpjoin_columns::table::{Shard, ShardColumn, Table};
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Ptr};
use warpjoin_kernels::common::{PackValidityParams, control};

use crate::exec::launch::Strides;
use crate::exec::query::{Query, read_report};
use crate::exec::relation::{Intermediate, Relation};

impl Query<'_> {
    /// Runs the last pipeline and makes a table of its rows.
    pub(crate) fn keep(&mut self, relation: Relation, schema: &SchemaRef) -> Result<Table> {
        let rows = self.result_rows(relation)?;
        let rows = Arc::into_inner(rows).ok_or_else(|| Error::internal("a result that is shared"))?;
        let Intermediate { columns, shards, .. } = rows;
        let column_types: Vec<ColumnType> = columns
            .into_iter()
            .zip(schema.fields())
            .map(|(column, field)| ColumnType { data_type: field.data_type().clone(), ..column })
            .collect();
        let mut null_counts = vec![0; column_types.len()];
        let mut table_shards = vec![];
        let mut first_row = 0;
        for (device, shard) in shards.into_iter().enumerate() {
            let mut columns = vec![];
            for (index, column) in shard.columns.into_iter().enumerate() {
                let validity = match column.validity {
                    Some(bytes) if shard.rows > 0 => {
                        let (bits, nulls) = self.pack_validity(device, &bytes, shard.rows)?;
                        null_counts[index] += nulls;
                        Some(bits)
                    }
                    _ => None,
                };
                let (values, validity) = (column.values.map(Arc::new), validity.map(Arc::new));
                columns.push(ShardColumn { values, offsets: None, validity });
            }
            table_shards.push(Shard { rows: shard.rows, first_row, columns });
            first_row += shard.rows;
        }
        let statistics = null_counts
            .into_iter()
            .map(|null_count| ColumnStatistics { null_count, distinct: None, sorted: false, unique: None })
            .collect();
        Ok(Table::from_result(
            Arc::clone(self.session.device_set()),
            schema.clone(),
            column_types,
            statistics,
            table_shards,
        ))
    }

    fn pack_validity(&mut self, device: usize, bytes: &Buffer, rows: u64) -> Result<(Buffer, u64)> {
        let module = Constants::USUAL.module(warpjoin_kernels::VALIDITY, ["pack_validity"]);
        let kernel = self.compile(&module, "pack_validity")?.swap_remove(device);
        let stream = &self.streams[device];
        let bits = stream.alloc_filled(rows.div_ceil(128) * 16, 0)?;
        let control = stream.alloc_filled(control::BYTES, 0)?;
        let params =
            PackValidityParams { rows, bytes: Ptr::of(bytes), words: Ptr::of(&bits), control: Ptr::of(&control) };
        let launch = Strides::ROWS.over(rows, stream);
        self.launch(device, &kernel, launch, &params)?;
        let nulls = read_report(&self.streams[device], &control)?.rows;
        Ok((bits, nulls))
    }
}
