//! Stock DataFusion's copy of a table: in memory, or in Parquet files if it does not fit in memory.
//!
//! Must not know how rows are generated.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::datasource::MemTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::SessionContext;
use tempfile::TempDir;

use crate::error::{CliError, Result};

/// Maximum number of parts in the queue of each writer.
const QUEUED_PARTS_MAX: usize = 2;

/// Where the oracle keeps its tables.
#[derive(Debug)]
pub(super) enum OracleStore {
    Memory,
    /// Parquet files, with a folder for each table in a temporary folder.
    Files(TempDir),
}

impl OracleStore {
    /// In memory, or in temporary files in `folder`.
    pub(super) fn new(folder: Option<&Path>) -> Result<Self> {
        let Some(folder) = folder else { return Ok(Self::Memory) };
        let files = tempfile::Builder::new().prefix("warpjoin-tpch-").tempdir_in(folder);
        Ok(Self::Files(files.map_err(CliError::file(folder))?))
    }
}

/// A table that is being filled, with one partition or file per requested partition.
pub(super) enum OracleTable {
    Memory(Vec<Vec<RecordBatch>>),
    Files { folder: PathBuf, writers: Vec<Writer> },
}

/// A thread that writes a file.
pub(super) struct Writer {
    parts: SyncSender<Vec<RecordBatch>>,
    thread: JoinHandle<Result<()>>,
}

impl OracleTable {
    pub(super) fn new(store: &OracleStore, table: &str, schema: &SchemaRef, partitions: usize) -> Result<Self> {
        let OracleStore::Files(folder) = store else { return Ok(Self::Memory(vec![vec![]; partitions])) };
        let folder = folder.path().join(table);
        std::fs::create_dir_all(&folder).map_err(CliError::file(&folder))?;
        let writers = (0..partitions).map(|number| {
            let (parts, waiting) = sync_channel::<Vec<RecordBatch>>(QUEUED_PARTS_MAX);
            let (path, schema) = (folder.join(format!("{number:04}.parquet")), Arc::clone(schema));
            let thread = std::thread::Builder::new().name("oracle-writer".into());
            let write = move || write_file(&path, schema, waiting.iter().flatten().map(Ok));
            Ok(Writer { parts, thread: thread.spawn(write).map_err(CliError::file(&folder))? })
        });
        Ok(Self::Files { writers: writers.collect::<Result<_>>()?, folder })
    }

    /// Adds a part of the table.
    pub(super) fn push(&mut self, number: usize, batches: Vec<RecordBatch>) {
        match self {
            Self::Memory(partitions) => {
                let count = partitions.len();
                partitions[number % count].extend(batches);
            }
            // If the writer has failed, `register` returns its error.
            Self::Files { writers, .. } => drop(writers[number % writers.len()].parts.send(batches)),
        }
    }

    /// Registers the complete table.
    pub(super) fn register(self, context: &SessionContext, table: &str, schema: SchemaRef) -> Result<()> {
        match self {
            Self::Memory(mut partitions) => {
                if partitions.iter().skip(1).all(Vec::is_empty) {
                    partitions = spread(partitions.swap_remove(0), partitions.len() + 1);
                }
                context.register_table(table, Arc::new(MemTable::try_new(schema, partitions)?))?;
            }
            Self::Files { folder, writers } => {
                for Writer { parts, thread } in writers {
                    drop(parts);
                    thread
                        .join()
                        .map_err(|_| CliError::Internal("a thread that writes Parquet files panicked".into()))??;
                }
                let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
                let url = ListingTableUrl::parse(format!("{}/", folder.display()))?;
                let config = ListingTableConfig::new(url).with_listing_options(options).with_schema(schema);
                context.register_table(table, Arc::new(ListingTable::try_new(config)?))?;
            }
        }
        Ok(())
    }
}

/// Writes a Parquet file.
pub(super) fn write_file(
    path: &Path,
    schema: SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> Result<()> {
    let failed = |error: ParquetError| CliError::Query(format!("{}: {error}", path.display()));
    let file = std::fs::File::create(path).map_err(CliError::file(path))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).map_err(failed)?;
    for batch in batches {
        writer.write(&batch?).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    Ok(())
}

/// Spreads the batches of a table with a single part over all partitions.
fn spread(batches: Vec<RecordBatch>, partitions: usize) -> Vec<Vec<RecordBatch>> {
    let mut spread = vec![vec![]; partitions];
    for (number, batch) in batches.into_iter().enumerate() {
        spread[number % partitions].push(batch);
    }
    spread
}
