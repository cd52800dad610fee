//! Selects the row groups of Parquet files that may have rows for a scan's filter, by the statistics in the files.
//!
//! Must not know what is cached.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use arrow::datatypes::{Field, Schema};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::datasource::physical_plan::FileSource;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::execution::TaskContext;
use datafusion::parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use datafusion::parquet::file::metadata::RowGroupMetaData;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};

use super::source::ParquetScan;
use super::stored::{Footer, Footers, are_alike};

/// A selection of row groups of files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowGroups {
    /// The selection in each file, in the order of the scan.
    files: Vec<FileGroups>,
    /// Number of rows of the chosen row groups.
    pub(crate) rows: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct FileGroups {
    /// Number of row groups in the file.
    all: usize,
    /// Positions of the chosen row groups, ascending.
    chosen: Vec<usize>,
}

impl FileGroups {
    fn has(&self, group: usize) -> bool {
        self.chosen.binary_search(&group).is_ok()
    }
}

impl RowGroups {
    /// Whether a row group of a file was chosen.
    pub(super) fn has(&self, file: usize, group: usize) -> bool {
        self.files.get(file).is_some_and(|file| file.has(group))
    }

    /// The row groups of a file for DataFusion to read; `None`: none.
    pub(super) fn access(&self, file: usize) -> Option<ParquetAccessPlan> {
        let file = self.files.get(file).filter(|file| !file.chosen.is_empty())?;
        let mut access = ParquetAccessPlan::new_none(file.all);
        file.chosen.iter().for_each(|&group| access.scan(group));
        Some(access)
    }

    /// Number of chosen row groups, and of all.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.files.iter().map(|file| file.chosen.len()).sum(), self.files.iter().map(|file| file.all).sum())
    }
}

/// The row groups that a filter leaves.
#[derive(Debug, Clone)]
pub(crate) struct Pruned {
    pub(crate) row_groups: Arc<RowGroups>,
    /// Stored bytes of the scan's columns in these row groups.
    pub(crate) bytes: u64,
    /// Stored bytes of the columns that would be read in whole, in all row groups.
    pub(crate) whole_bytes: u64,
}

impl ParquetScan {
    /// The row groups that may have rows which pass the filter, at least one; `None` if these are all. Also returns the
    /// stored bytes of the scan's columns in them, and of the columns `whole` in all row groups.
    ///
    /// # Errors
    /// When a footer can't be read.
    pub(crate) async fn pruned(
        &self,
        predicate: &PruningPredicate,
        whole: &[usize],
        context: &TaskContext,
    ) -> Result<Option<Pruned>> {
        let Some(source) = self.source() else { return Ok(None) };
        let in_files = source.table_schema().file_schema();
        let footers = Footers::of(self, context).await?;
        let mut files: Vec<FileGroups> =
            footers.all.iter().map(|footer| groups_of(footer, in_files, predicate)).collect();
        if files.iter().all(|file| file.chosen.len() == file.all) {
            return Ok(None);
        }
        if files.iter().all(|file| file.chosen.is_empty())
            && let Some(file) = files.iter_mut().find(|file| file.all > 0)
        {
            // A column of no rows has no facts.
            file.chosen.push(0);
        }
        let names = |columns: &[usize]| -> Vec<&str> {
            columns.iter().map(|&column| self.key.schema().field(column).name().as_str()).collect()
        };
        let (names, whole_names) = (names(&self.columns), names(whole));
        let (mut rows, mut bytes, mut whole_bytes) = (0, 0, 0);
        for (footer, file) in footers.all.iter().zip(&files) {
            for (number, group) in footer.metadata.row_groups().iter().enumerate() {
                whole_bytes += stored_bytes(group, &whole_names);
                if file.has(number) {
                    rows += u64::try_from(group.num_rows()).unwrap_or(0);
                    bytes += stored_bytes(group, &names);
                }
            }
        }
        Ok(Some(Pruned { row_groups: Arc::new(RowGroups { files, rows }), bytes, whole_bytes }))
    }

    /// The filter as a predicate over statistics; `None` if statistics do not help.
    pub(crate) fn predicate(&self) -> Option<Arc<PruningPredicate>> {
        let source = self.source()?;
        let options = &source.table_parquet_options().global;
        let filter = options.pruning.then(|| source.filter()).flatten()?;
        let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(self.key.schema()));
        builder.with_max_in_list_size(options.max_in_list_size).build(filter)
    }
}

/// The row groups of a file that may have rows which pass; `in_files` has the columns of the table that are in files.
fn groups_of(footer: &Footer, in_files: &Schema, predicate: &PruningPredicate) -> FileGroups {
    // Statistics of values of another type can't be compared with the filter's: they are not found.
    let field = |of_file: &Arc<Field>| match in_files.field_with_name(of_file.name()) {
        Ok(of_table) if are_alike(of_file.data_type(), of_table.data_type()) => Arc::new(of_table.clone()),
        _ => Arc::new(of_file.as_ref().clone().with_name("\0")),
    };
    let schema = Schema::new(footer.schema.fields().iter().map(field).collect::<Vec<_>>());
    let all = footer.metadata.row_groups().len();
    let may_pass = predicate.prune(&StatisticsOfFile { footer, schema });
    let may_pass = may_pass.inspect_err(|error| log::debug!("row groups are not pruned: {error}"));
    let chosen = may_pass.map_or_else(
        |_| (0..all).collect(),
        |may_pass| may_pass.into_iter().enumerate().filter(|(_, may)| *may).map(|(group, _)| group).collect(),
    );
    FileGroups { all, chosen }
}

/// The statistics of all row groups of a file.
struct StatisticsOfFile<'a> {
    footer: &'a Footer,
    /// The columns of the file, with the table's types.
    schema: Schema,
}

impl StatisticsOfFile<'_> {
    fn of<T>(
        &self,
        column: &Column,
        find: impl FnOnce(StatisticsConverter<'_>, &[RowGroupMetaData]) -> datafusion::parquet::errors::Result<T>,
    ) -> Option<T> {
        let metadata = &self.footer.metadata;
        let stored = metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(column.name(), &self.schema, stored).ok()?;
        find(converter, metadata.row_groups()).ok()
    }
}

impl PruningStatistics for StatisticsOfFile<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.of(column, |converter, groups| converter.row_group_mins(groups))
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.of(column, |converter, groups| converter.row_group_maxes(groups))
    }

    fn num_containers(&self) -> usize {
        self.footer.metadata.num_row_groups()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        // A missing count says nothing.
        let counts = self.of(column, |converter, groups| {
            converter.with_missing_null_counts_as_zero(false).row_group_null_counts(groups)
        });
        counts.map(|counts| Arc::new(counts) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let groups = self.footer.metadata.row_groups();
        let rows: UInt64Array = groups.iter().map(|group| u64::try_from(group.num_rows()).ok()).collect();
        Some(Arc::new(rows))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// Stored bytes of some columns of a row group.
fn stored_bytes(group: &RowGroupMetaData, names: &[&str]) -> u64 {
    let is_named = |part: Option<&String>| part.is_some_and(|name| names.contains(&name.as_str()));
    let columns = group.columns().iter().filter(|column| is_named(column.column_path().parts().first()));
    columns.map(|column| column.byte_range().1).sum()
}
