//! Files as tables: `--table name=path`.
//!
//! Must not know the statements that read them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionContext};

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
    /// Registers the table. The format is the extension of the file, or of the first Parquet or CSV file in the folder.
    ///
    /// # Errors
    /// When there is no such file, or it is neither Parquet nor CSV.
    pub(super) async fn register(&self, context: &SessionContext) -> Result<()> {
        let path = self.path.to_str().ok_or_else(|| self.error("its path is not UTF-8"))?;
        let extension = format_of(&self.path).map_err(CliError::file(&self.path))?;
        match extension.as_deref() {
            Some("parquet") => {
                context.register_parquet(self.name.as_str(), path, ParquetReadOptions::default()).await?
            }
            Some("csv") => context.register_csv(self.name.as_str(), path, CsvReadOptions::default()).await?,
            _ => {
                return Err(
                    self.error("only .parquet and .csv files are supported; use CREATE EXTERNAL TABLE for others")
                );
            }
        }
        Ok(())
    }

    fn error(&self, reason: &str) -> CliError {
        CliError::Usage(format!("--table {}={}: {reason}", self.name, self.path.display()))
    }
}

fn format_of(path: &Path) -> std::io::Result<Option<String>> {
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(extension_of(path));
    }
    let mut entries = std::fs::read_dir(path)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::path);
    let known = |extension: &String| extension == "parquet" || extension == "csv";
    Ok(entries.iter().filter_map(|entry| extension_of(&entry.path())).find(known))
}

fn extension_of(path: &Path) -> Option<String> {
    path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase)
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
