//! Files as tables: `--table name=path`.
//!
//! Must not know the statements that read them.

use std::path::PathBuf;

use arrow::datatypes::DataType;
use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionContext};
use url::Url;

use super::files::{Format, TableFiles};
use crate::error::{CliError, Result};

/// A table name, and the file or folder with its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileTable {
    name: String,
    path: PathBuf,
}

/// Parses `name=path`.
pub(super) fn parse_file_table(text: &str) -> Result<FileTable, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok(FileTable { name: name.to_string(), path: PathBuf::from(path) })
        }
        _ => Err("expected NAME=PATH, such as orders=data/orders.parquet".to_string()),
    }
}

impl FileTable {
    /// Registers the table.
    ///
    /// # Errors
    /// When there is no such file, or no table can be read from it.
    pub(super) async fn register(&self, context: &SessionContext) -> Result<()> {
        let files = TableFiles::find(&self.path).map_err(|error| self.error(error))?;
        let path = std::path::absolute(&self.path).map_err(CliError::file(&self.path))?;
        // A URL, since characters such as * have a meaning in paths.
        let url = if path.is_dir() { Url::from_directory_path(&path) } else { Url::from_file_path(&path) };
        let url = url.map_err(|()| CliError::Usage(format!("{} cannot be written as a URL", path.display())))?;
        let name = self.name.as_str();
        let text = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
        let columns = files.partition_columns.iter().map(|column| (column.clone(), text.clone())).collect();
        let registered = match files.format {
            Format::Parquet => {
                let options = ParquetReadOptions { file_extension: &files.extension, ..ParquetReadOptions::default() };
                context.register_parquet(name, url.as_str(), options.table_partition_cols(columns)).await
            }
            Format::Csv => {
                let options = CsvReadOptions { file_extension: &files.extension, ..CsvReadOptions::default() };
                context.register_csv(name, url.as_str(), options.table_partition_cols(columns)).await
            }
        };
        registered.map_err(|error| self.error(error.into()))
    }

    /// An error that names the table.
    fn error(&self, error: CliError) -> CliError {
        let text = format!("--table {}={}: {error}", self.name, self.path.display());
        match error {
            // Its text names the path.
            CliError::File { .. } => error,
            CliError::Usage(_) => CliError::Usage(text),
            _ => CliError::Query(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_parsed() {
        let table = parse_file_table("t=a=b.csv").unwrap();
        assert_eq!((table.name.as_str(), table.path.to_str()), ("t", Some("a=b.csv")));
        for bad in ["", "t", "t=", "=x"] {
            assert!(parse_file_table(bad).is_err(), "{bad}");
        }
    }
}
