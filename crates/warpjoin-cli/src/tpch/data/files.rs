//! The TPC-H tables as Parquet files: written if they are not there, and registered as tables.
//!
//! Must not know which queries read them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use datafusion::prelude::{ParquetReadOptions, SessionContext};

use super::load::LoadReport;
use super::tables::TpchTable;
use crate::error::{CliError, Result};
use crate::tpch::oracle::write_file;

/// Parts of a table in a file: some four million rows.
const FILE_PARTS: u32 = 32;
/// Rows of a batch that is written.
const BATCH_ROWS: usize = 8192;
/// The file that says at which scale factor the tables of a folder were written.
const SCALE_FILE: &str = "tpch_scale";

/// A folder with a Parquet file, or a folder of such files, for each table.
pub(in crate::tpch) struct ParquetFiles<'a> {
    /// The folder.
    pub(in crate::tpch) folder: &'a Path,
    /// Scale factor.
    pub(in crate::tpch) scale: f64,
    /// Number of threads that write.
    pub(in crate::tpch) threads: usize,
}

impl ParquetFiles<'_> {
    /// Registers `tables` with every session of `contexts`. Writes those that are not there, with all columns.
    ///
    /// # Errors
    /// When a file cannot be written or read, or the folder has tables of another scale factor.
    pub(in crate::tpch) async fn register(
        &self,
        tables: &BTreeMap<TpchTable, Vec<usize>>,
        contexts: &[&SessionContext],
    ) -> Result<Vec<LoadReport>> {
        self.check_scale()?;
        let mut reports = vec![];
        for &table in tables.keys() {
            let start = Instant::now();
            let path = self.find_or_write(table)?;
            for context in contexts {
                let path = path.to_string_lossy();
                context.register_parquet(table.name(), path, ParquetReadOptions::default()).await?;
            }
            reports.push(LoadReport {
                table: table.name().to_string(),
                rows: table.rows(self.scale),
                columns: table.schema().fields().iter().map(|field| field.name().clone()).collect(),
                device_bytes: 0,
                seconds: start.elapsed().as_secs_f64(),
            });
        }
        Ok(reports)
    }

    /// Files written by other tools do not say their scale factor, and are taken as they are.
    fn check_scale(&self) -> Result<()> {
        fs::create_dir_all(self.folder).map_err(CliError::file(self.folder))?;
        match fs::read_to_string(self.folder.join(SCALE_FILE)) {
            Ok(text) if text.trim() != self.scale.to_string() => Err(CliError::Usage(format!(
                "{} has tables of scale {}: choose --scale {1} or another folder",
                self.folder.display(),
                text.trim()
            ))),
            _ => Ok(()),
        }
    }

    /// `TABLE.parquet`, or the folder `TABLE`, where a table that is not there is written.
    fn find_or_write(&self, table: TpchTable) -> Result<PathBuf> {
        let (file, folder) = (self.folder.join(format!("{}.parquet", table.name())), self.folder.join(table.name()));
        if file.exists() {
            return Ok(file);
        }
        if !folder.exists() {
            let scale_file = self.folder.join(SCALE_FILE);
            fs::write(&scale_file, self.scale.to_string()).map_err(CliError::file(&scale_file))?;
            // Complete when it has its name.
            let unfinished = tempfile::Builder::new().prefix(table.name()).tempdir_in(self.folder);
            let unfinished = unfinished.map_err(CliError::file(self.folder))?;
            self.write(table, unfinished.path())?;
            fs::rename(unfinished.path(), &folder).map_err(CliError::file(&folder))?;
        }
        // DataFusion lists a folder by a path with a slash at its end.
        Ok(folder.join(""))
    }

    fn write(&self, table: TpchTable, folder: &Path) -> Result<()> {
        let parts = table.parts(self.scale);
        let (files, next) = (parts.div_ceil(FILE_PARTS), AtomicU32::new(0));
        let write_some = || -> Result<()> {
            loop {
                let file = next.fetch_add(1, Ordering::Relaxed);
                if file >= files {
                    return Ok(());
                }
                let parts_of_file = file * FILE_PARTS..((file + 1) * FILE_PARTS).min(parts);
                let path = folder.join(format!("{file:05}.parquet"));
                let batches = parts_of_file.flat_map(|part| table.generate(self.scale, part, parts, BATCH_ROWS));
                write_file(&path, table.schema(), batches)?;
            }
        };
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..self.threads.max(1)).map(|_| scope.spawn(write_some)).collect();
            let results = writers.into_iter().map(|writer| {
                writer.join().unwrap_or_else(|_| Err(CliError::Internal("a writer thread panicked".to_string())))
            });
            results.collect::<Result<Vec<()>>>().map(drop)
        })
    }
}
