//! Loads generated tables onto the devices and into the oracle.
//!
//! Must not know which queries read them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use datafusion::prelude::SessionContext;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use warpjoin::{Session, TableBuilder};
use warpjoin_datafusion::{DeviceTableProvider, WarpjoinOptions};

use super::generate::Generation;
use super::tables::TpchTable;
use crate::error::{CliError, Result};
use crate::tpch::oracle::{OracleStore, OracleTable};

/// What to load, and where.
pub(in crate::tpch) struct Loading {
    /// Scale factor.
    pub(in crate::tpch) scale: f64,
    /// Number of generator threads.
    pub(in crate::tpch) threads: usize,
    /// Number of partitions of the oracle's tables.
    pub(in crate::tpch) partitions: usize,
    /// The devices.
    pub(in crate::tpch) session: Arc<Session>,
    /// Session of warpjoin, for tables on the devices.
    pub(in crate::tpch) device_context: SessionContext,
    /// Session of the oracle, for tables with the same rows.
    pub(in crate::tpch) oracle_context: Option<SessionContext>,
    /// Where the oracle keeps its tables.
    pub(in crate::tpch) oracle_store: OracleStore,
}

/// Size of a loaded table, and the time to load it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadReport {
    /// Name of the table.
    pub table: String,
    /// Number of rows.
    pub rows: u64,
    /// Names of the loaded columns.
    pub columns: Vec<String>,
    /// Memory of the table on all devices.
    pub device_bytes: u64,
    /// Wall clock time of generating, encoding and uploading.
    pub seconds: f64,
}

impl Loading {
    /// Loads `tables`, given with their columns, one after another.
    ///
    /// # Errors
    /// When a device has too little memory.
    pub(in crate::tpch) fn run(&self, tables: &BTreeMap<TpchTable, Vec<usize>>) -> Result<Vec<LoadReport>> {
        tables.iter().map(|(&table, projection)| self.load(table, projection)).collect()
    }

    fn load(&self, table: TpchTable, projection: &[usize]) -> Result<LoadReport> {
        let start = Instant::now();
        let schema = Arc::new(table.schema().project(projection)?);
        let config = self.device_context.copied_config();
        let options = config.options().extensions.get::<WarpjoinOptions>().cloned().unwrap_or_default();
        let builder = TableBuilder::new(self.session.device_set(), Arc::clone(&schema));
        let budget = options.memory_budget();
        let home_bytes_max = options.distribute.home_bytes_max(&self.session, budget);
        let mut builder = builder.with_memory_budget(budget).on_first_up_to(home_bytes_max);
        let partitions = self.partitions.max(1);
        let oracle_table = || OracleTable::new(&self.oracle_store, table.name(), &schema, partitions);
        let mut oracle_table = self.oracle_context.as_ref().map(|_| oracle_table()).transpose()?;
        let generation =
            Generation { table, scale: self.scale, projection: projection.to_vec(), threads: self.threads };
        let bar = progress_bar(table, self.scale);
        generation.run(|number, batches| {
            for batch in &batches {
                builder.push(batch)?;
                bar.inc(batch.num_rows() as u64);
            }
            if let Some(oracle_table) = &mut oracle_table {
                oracle_table.push(number as usize, batches);
            }
            Ok(())
        })?;
        bar.set_message("to the devices");
        let loaded = Arc::new(builder.finish().map_err(|error| explain(table, error))?);
        bar.finish_and_clear();
        let report = LoadReport {
            table: table.name().to_string(),
            rows: loaded.rows(),
            columns: schema.fields().iter().map(|field| field.name().clone()).collect(),
            device_bytes: loaded.resident_bytes(),
            seconds: start.elapsed().as_secs_f64(),
        };
        self.device_context.register_table(table.name(), Arc::new(DeviceTableProvider::new(loaded)))?;
        if let Some((oracle, oracle_table)) = self.oracle_context.as_ref().zip(oracle_table) {
            oracle_table.register(oracle, table.name(), schema)?;
        }
        Ok(report)
    }
}

fn explain(table: TpchTable, error: warpjoin::Error) -> CliError {
    CliError::Query(format!("loading {}: {error}", table.name()))
}

/// A progress bar, which is hidden if standard error is not a terminal.
fn progress_bar(table: TpchTable, scale: f64) -> ProgressBar {
    let bar = ProgressBar::new(table.rows(scale));
    let template = "{prefix:>10} {wide_bar} {human_pos} rows {per_sec} {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(table.name());
    bar
}
