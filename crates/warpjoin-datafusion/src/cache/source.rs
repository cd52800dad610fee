//! Scans of Parquet files whose columns can be cached: the identity of the rows, and how to read some of the columns.
//!
//! Must not know what is cached.

use std::sync::Arc;
use std::time::SystemTime;

use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::expressions::Column;

use super::row_groups::RowGroups;

/// Minimum bytes of a file that one task reads, as it also reads the footer.
const TASK_BYTES_MIN: u64 = 8 << 20;
/// Tasks for each core, so that cores which finish early find more work.
const TASKS_PER_CORE: usize = 4;
/// Rows of a batch: encoding has a fixed cost for each batch.
const BATCH_ROWS: usize = 1 << 16;
/// Bytes of a value without a fixed width, for estimates.
const STRING_BYTES_ESTIMATE: usize = 16;
/// Columns are narrowed on devices: in nearly all tables, to less than this fraction of their estimated bytes (1 /
/// divisor).
const NARROWED_DIVISOR: u64 = 4;

/// Identity of the rows of a scan: equal keys mean equal rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScanKey {
    /// The row groups of the scan; `None`: all.
    row_groups: Option<Arc<RowGroups>>,
    store: ObjectStoreUrl,
    /// The files, ordered by path.
    files: Vec<FileKey>,
    /// All columns of the table, even if only some are read.
    schema: SchemaRef,
}

impl ScanKey {
    /// A file that need not exist.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn of_file(path: &str, schema: SchemaRef) -> Self {
        let meta = ObjectMeta {
            location: path.into(),
            last_modified: SystemTime::UNIX_EPOCH.into(),
            size: 1,
            e_tag: None,
            version: None,
        };
        Self {
            row_groups: None,
            store: ObjectStoreUrl::local_filesystem(),
            files: vec![FileKey { meta, partition_values: vec![] }],
            schema,
        }
    }

    /// All columns of the table.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The number of files.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Whether a scan has a row group of a file.
    pub(super) fn has(&self, file: usize, group: usize) -> bool {
        self.row_groups.as_ref().is_none_or(|groups| groups.has(file, group))
    }

    /// Whether it has only some row groups of the files.
    pub(crate) fn is_part(&self) -> bool {
        self.row_groups.is_some()
    }

    /// Whether it has only some row groups of the files of `whole`.
    pub(super) fn is_part_of(&self, whole: &Self) -> bool {
        self.is_part()
            && !whole.is_part()
            && self.store == whole.store
            && self.files == whole.files
            && self.schema == whole.schema
    }

    /// Location of the file, or of the innermost folder of several.
    pub(crate) fn location(&self) -> String {
        let paths: Vec<&str> = self.files.iter().map(|file| file.meta.location.as_ref()).collect();
        let path = match &paths[..] {
            [path] => path,
            [first, .., last] => {
                // The paths are sorted: what the first and the last share, all do.
                let same = first.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
                &first[..first.as_bytes()[..same].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)]
            }
            [] => "",
        };
        format!("{}{path}", self.store.as_str())
    }

    /// Whether `other` has other versions of the same files.
    pub(crate) fn is_replaced_by(&self, other: &Self) -> bool {
        let same_path = |(own, other): (&FileKey, &FileKey)| own.meta.location == other.meta.location;
        self.store == other.store
            && self.files.len() == other.files.len()
            && self.files.iter().zip(&other.files).all(same_path)
            && self.files != other.files
    }
}

#[derive(Debug, Clone, PartialEq)]
struct FileKey {
    meta: ObjectMeta,
    /// Values of the partition columns, which the file's folders encode.
    partition_values: Vec<ScalarValue>,
}

/// A scan of all rows of Parquet files, or of some row groups.
#[derive(Debug, Clone)]
pub(crate) struct ParquetScan {
    pub(crate) key: ScanKey,
    /// Columns of the table, by position, in output order.
    pub(crate) columns: Vec<usize>,
    config: FileScanConfig,
}

impl ParquetScan {
    /// The scan of a node, if it reads all rows, or only drops rows that a filter above it drops anyway.
    ///
    /// `None` for other nodes, and for scans with a limit, with filters or expressions that only they evaluate, of encrypted
    /// files, and of parts of files (as deletion vectors ask for).
    pub(crate) fn of(node: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let (config, source) = node.downcast_ref::<DataSourceExec>()?.downcast_to_file_source::<ParquetSource>()?;
        let options = source.table_parquet_options();
        let evaluates_filter = options.global.pushdown_filters && source.filter().is_some();
        let is_encrypted = options.crypto.file_decryption.is_some() || options.crypto.factory_id.is_some();
        let table_schema = source.table_schema();
        if config.limit.is_some()
            || evaluates_filter
            || is_encrypted
            || config.expr_adapter_factory.is_some()
            || !table_schema.virtual_columns().is_empty()
        {
            return None;
        }
        let columns = match source.projection() {
            Some(projection) => projection
                .iter()
                .map(|projected| Some(projected.expr.downcast_ref::<Column>()?.index()))
                .collect::<Option<Vec<_>>>()?,
            None => (0..table_schema.table_schema().fields().len()).collect(),
        };
        if columns.is_empty() {
            return None;
        }
        let mut files = config
            .file_groups
            .iter()
            .flat_map(FileGroup::iter)
            .map(|file| {
                let is_whole = file.range.is_none() && file.extensions.is_empty();
                let (meta, partition_values) = (file.object_meta.clone(), file.partition_values.clone());
                is_whole.then_some(FileKey { meta, partition_values })
            })
            .collect::<Option<Vec<_>>>()?;
        files.sort_by(|a, b| a.meta.location.cmp(&b.meta.location));
        let (store, schema) = (config.object_store_url.clone(), Arc::clone(table_schema.table_schema()));
        let key = ScanKey { row_groups: None, store, files, schema };
        Some(Self { key, columns, config: config.clone() })
    }

    /// The same scan of other columns.
    pub(crate) fn with_columns(self, columns: Vec<usize>) -> Self {
        Self { columns, ..self }
    }

    /// The same scan of some row groups.
    pub(crate) fn only(&self, row_groups: Arc<RowGroups>) -> Self {
        let key = ScanKey { row_groups: Some(row_groups), ..self.key.clone() };
        Self { key, ..self.clone() }
    }

    /// DataFusion's description of the files.
    pub(super) fn source(&self) -> Option<&ParquetSource> {
        self.config.file_source().downcast_ref::<ParquetSource>()
    }

    /// The schema of columns of the table.
    pub(crate) fn schema_of(&self, columns: &[usize]) -> Result<SchemaRef> {
        Ok(Arc::new(self.key.schema.project(columns)?))
    }

    /// Whether the files have not changed since they were listed. Files in stores other than the local file system
    /// count as unchanged: checking takes as long as reading.
    pub(crate) fn is_current(&self) -> bool {
        let is_local = self.key.store.as_str().starts_with("file:");
        !is_local || are_current(self.key.files.iter().map(|file| &file.meta))
    }

    /// Bytes of the files.
    fn file_bytes(&self) -> u64 {
        self.key.files.iter().map(|file| file.meta.size).sum()
    }

    /// Estimated uncompressed bytes of columns.
    pub(crate) fn estimated_bytes(&self, columns: &[usize]) -> u64 {
        let width = |column: &usize| {
            let data_type = self.key.schema.field(*column).data_type();
            data_type.primitive_width().unwrap_or(STRING_BYTES_ESTIMATE) as u64
        };
        let rows = match (&self.key.row_groups, self.config.statistics().num_rows) {
            (Some(row_groups), _) => row_groups.rows,
            (None, Precision::Exact(rows) | Precision::Inexact(rows)) => rows as u64,
            (None, Precision::Absent) => return self.file_bytes().saturating_mul(3),
        };
        rows * columns.iter().map(width).sum::<u64>()
    }

    /// Estimated device memory of all columns of the files.
    pub(crate) fn table_bytes(&self) -> u64 {
        let all: Vec<usize> = (0..self.key.schema.fields().len()).collect();
        self.estimated_bytes(&all) / NARROWED_DIVISOR
    }

    /// The files, in the order of their rows.
    pub(super) fn files(&self) -> Vec<PartitionedFile> {
        self.key.files.iter().map(|file| PartitionedFile::new_from_meta(file.meta.clone())).collect()
    }

    /// Number of columns in the files. Partition columns come after them.
    pub(super) fn columns_in_files(&self) -> usize {
        self.source().map_or(0, |source| source.table_schema().file_schema().fields().len())
    }

    /// The object store of the files.
    pub(super) fn store(&self, context: &TaskContext) -> Result<Arc<dyn ObjectStore>> {
        context.runtime_env().object_store(&self.key.store)
    }

    /// The reader factory of the scan, if it has its own.
    pub(super) fn reader_factory(&self) -> Option<Arc<dyn ParquetFileReaderFactory>> {
        self.source()?.parquet_file_reader_factory().map(Arc::clone)
    }

    /// A plan that reads all rows of some columns. Its partitions, in sequence, always have the same rows in the same
    /// order.
    pub(crate) fn read(&self, columns: &[usize], cores: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(source) = self.source() else {
            return datafusion::common::internal_err!("a scan of no Parquet files");
        };
        let mut plain = ParquetSource::new(source.table_schema().clone())
            .with_table_parquet_options(source.table_parquet_options().clone());
        if let Some(factory) = source.parquet_file_reader_factory() {
            plain = plain.with_parquet_file_reader_factory(Arc::clone(factory));
        }
        let tasks = (cores * TASKS_PER_CORE) as u64;
        let task_bytes = (self.file_bytes() / tasks.max(1)).max(TASK_BYTES_MIN);
        let groups = match &self.key.row_groups {
            None => self.key.files.iter().flat_map(|file| parts_of(file, None, task_bytes)).collect(),
            Some(row_groups) => {
                let files = self.key.files.iter().enumerate();
                let chosen = files.filter_map(|(number, file)| Some((file, row_groups.access(number)?)));
                chosen.flat_map(|(file, access)| parts_of(file, Some(&access), task_bytes)).collect()
            }
        };
        let config = FileScanConfigBuilder::new(self.key.store.clone(), Arc::new(plain))
            .with_file_groups(groups)
            .with_projection_indices(Some(columns.to_vec()))?
            .with_batch_size(Some(BATCH_ROWS))
            // Else a task may read what another one was to read, and rows would change places.
            .with_preserve_order(true)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// Splits a file, or its row groups in `access`, into parts: a row group belongs to the part in which it begins.
fn parts_of(file: &FileKey, access: Option<&ParquetAccessPlan>, task_bytes: u64) -> Vec<FileGroup> {
    let bytes = file.meta.size;
    let parts = bytes.div_ceil(task_bytes).max(1);
    let bound = |part: u64| i64::try_from(bytes / parts * part + bytes % parts * part / parts).unwrap_or(i64::MAX);
    let part = |part: u64| {
        let mut whole = PartitionedFile::new_from_meta(file.meta.clone());
        whole.partition_values.clone_from(&file.partition_values);
        if let Some(access) = access {
            whole = whole.with_extension(access.clone());
        }
        FileGroup::new(vec![whole.with_range(bound(part), bound(part + 1))])
    };
    (0..parts).map(part).collect()
}

/// Whether files of the local file system still have the sizes and times of modification of their listing.
pub(crate) fn are_current<'a>(files: impl IntoIterator<Item = &'a ObjectMeta>) -> bool {
    let local = LocalFileSystem::new();
    files.into_iter().all(|meta| is_current(&local, meta))
}

fn is_current(files: &LocalFileSystem, meta: &ObjectMeta) -> bool {
    let Ok(path) = files.path_to_filesystem(&meta.location) else { return false };
    let Ok(now) = std::fs::metadata(path) else { return false };
    now.len() == meta.size && now.modified().is_ok_and(|modified| SystemTime::from(meta.last_modified) == modified)
}
