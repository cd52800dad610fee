//! Appends the rows of several relations.

use std::sync::Arc;

use warpjoin_codegen::{Sink, SinkShape, common_columns};
use warpjoin_columns::{Error, Result};

use super::room::{allocate_in_order, copy_rows};
use crate::exec::query::Query;
use crate::exec::relation::{Intermediate, IntermediateShard, Relation, Source};

impl Query<'_> {
    /// Runs all relations into rows of the same columns. Their types are equal; bounds, nulls and dictionaries may
    /// differ.
    pub(crate) fn union(&mut self, relations: Vec<Relation>) -> Result<Relation> {
        let mut columns = vec![];
        for relation in &relations {
            let sink = Sink::Materialise((0..relation.width).collect());
            let SinkShape::Rows(of_relation) = &self.bind(relation, &sink)?.sink else {
                return Err(Error::internal("no rows where rows were asked for"));
            };
            columns.push(of_relation.clone());
        }
        let columns = common_columns(&columns)?;
        let mut parts = vec![];
        for relation in &relations {
            parts.push(self.run_rows(relation, &Sink::Conform(columns.clone()), "Union")?.0);
        }
        let rows_max = relations.iter().fold(0u64, |rows, relation| rows.saturating_add(relation.rows_max));
        let shards = match parts.iter().filter(|part| part.rows() > 0).count() {
            // Nothing to put together, or nothing that anybody looks at.
            0 | 1 => {
                let part = parts.iter().position(|part| part.rows() > 0).unwrap_or(0);
                parts.swap_remove(part).shards
            }
            _ => {
                let shards = (0..self.devices()).map(|device| self.concatenate(device, &parts));
                shards.collect::<Result<Vec<_>>>()?
            }
        };
        Ok(Relation::new(Source::Intermediate(Arc::new(Intermediate::new(columns, rows_max, shards)))))
    }

    /// The rows of all parts on one device.
    fn concatenate(&self, device: usize, parts: &[Intermediate]) -> Result<IntermediateShard> {
        let stream = &self.streams[device];
        let columns = &parts[0].columns;
        let rows = parts.iter().map(|part| part.shards[device].rows).sum();
        let mut all = allocate_in_order(stream, columns, rows)?;
        all.rows = 0;
        for part in parts {
            let shard = &part.shards[device];
            copy_rows(stream, columns, (shard, 0), (&all, all.rows), shard.rows)?;
            all.rows += shard.rows;
        }
        Ok(all)
    }
}
