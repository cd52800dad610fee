//! What files a path holds: their format, the spelling of their extension, and the columns that their folders name.
//!
//! Must not know what is done with them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::csv::reader::Format as CsvFormat;
use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};

use crate::error::{CliError, Result};

/// A file format that a table can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    Parquet,
    Csv,
}

/// The files of a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableFiles {
    pub(super) format: Format,
    /// With its dot, as the files spell it.
    pub(super) extension: String,
    /// Columns whose values are in the names of folders, such as `year` of `year=2026`; from the outermost folder.
    pub(super) partition_columns: Vec<String>,
}

impl TableFiles {
    /// Looks at a file, or at the files of a folder and of its subfolders that are named `column=value`.
    ///
    /// # Errors
    /// [`CliError::File`] if the path cannot be read; [`CliError::Usage`] if it holds no table, or more than one.
    pub(super) fn find(path: &Path) -> Result<Self> {
        let is_folder = std::fs::metadata(path).map_err(CliError::file(path))?.is_dir();
        let found = if is_folder {
            let mut found = Found::default();
            found.search(path, &mut vec![])?;
            found
        } else {
            let kind = kind_of(path).ok_or_else(|| {
                CliError::Usage(
                    "only .parquet and .csv files are supported; use CREATE EXTERNAL TABLE for others".into(),
                )
            })?;
            Found {
                kinds: [kind].into(),
                partitions: [vec![]].into(),
                files: vec![path.to_path_buf()],
                is_nested: false,
            }
        };
        let files = found.table()?;
        for file in &found.files {
            let bytes = std::fs::metadata(file).map_err(CliError::file(file))?.len();
            if bytes == 0 && files.format == Format::Parquet {
                return Err(CliError::Usage(format!("{} has 0 bytes: it is not a Parquet file", file.display())));
            }
        }
        if let Some(name) = found.files.first().map(|file| repeated_column(file, files.format)).transpose()?.flatten() {
            let reason =
                format!("{} has two columns named {name}; columns need different names", found.files[0].display());
            return Err(CliError::Usage(reason));
        }
        Ok(files)
    }
}

/// What a search has found.
#[derive(Default)]
struct Found {
    kinds: BTreeSet<(Format, String)>,
    /// Names of the columns in the names of folders, one list for each that any file has.
    partitions: BTreeSet<Vec<String>>,
    files: Vec<PathBuf>,
    /// Whether there are subfolders whose files are not read.
    is_nested: bool,
}

impl Found {
    fn search(&mut self, folder: &Path, columns: &mut Vec<String>) -> Result<()> {
        let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut paths: Vec<_> = entries.map_err(CliError::file(folder))?.iter().map(std::fs::DirEntry::path).collect();
        paths.sort();
        for path in paths {
            if !path.is_dir() {
                if let Some(kind) = kind_of(&path) {
                    self.kinds.insert(kind);
                    self.partitions.insert(columns.clone());
                    self.files.push(path);
                }
                continue;
            }
            match path.file_name().and_then(OsStr::to_str).and_then(|name| name.split_once('=')) {
                Some((column, _)) => {
                    columns.push(column.to_string());
                    self.search(&path, columns)?;
                    columns.pop();
                }
                None => self.is_nested = true,
            }
        }
        Ok(())
    }

    fn table(&self) -> Result<TableFiles> {
        let formats: BTreeSet<_> = self.kinds.iter().map(|(format, _)| *format).collect();
        let reason = match (self.kinds.iter().next(), self.partitions.iter().next()) {
            (Some((format, extension)), Some(columns)) => {
                if self.kinds.len() == 1 && self.partitions.len() == 1 {
                    let (extension, partition_columns) = (extension.clone(), columns.clone());
                    return Ok(TableFiles { format: *format, extension, partition_columns });
                }
                if formats.len() > 1 {
                    "the folder has Parquet and CSV files, and a table has one kind; move them apart"
                } else if self.kinds.len() > 1 {
                    "the names of its files end in upper and lower case, such as .parquet and .PARQUET; rename them"
                } else {
                    "its files lie in folders that name different columns, such as year=2026 and month=1; every file \
                     needs the same"
                }
            }
            _ if self.is_nested => {
                "the folder has no .parquet or .csv files; of its subfolders only those named column=value are read"
            }
            _ => "the folder has no .parquet or .csv files",
        };
        Err(CliError::Usage(reason.into()))
    }
}

fn kind_of(path: &Path) -> Option<(Format, String)> {
    let extension = path.extension().and_then(OsStr::to_str)?;
    let format = match extension.to_ascii_lowercase().as_str() {
        "parquet" => Format::Parquet,
        "csv" => Format::Csv,
        _ => return None,
    };
    Some((format, format!(".{extension}")))
}

/// A name that more than one column of a file has. DataFusion would read one of them.
fn repeated_column(path: &Path, format: Format) -> Result<Option<String>> {
    let file = File::open(path).map_err(CliError::file(path))?;
    let names: Vec<String> = match format {
        Format::Parquet => {
            let reader = SerializedFileReader::new(file);
            let reader = reader.map_err(|error| CliError::Query(format!("{}: {error}", path.display())))?;
            let columns = reader.metadata().file_metadata().schema().get_fields();
            columns.iter().map(|column| column.name().to_string()).collect()
        }
        Format::Csv => {
            let header = CsvFormat::default().with_header(true).infer_schema(file, Some(0));
            let (schema, _) = header.map_err(|error| CliError::Query(format!("{}: {error}", path.display())))?;
            schema.fields().iter().map(|field| field.name().clone()).collect()
        }
    };
    let mut seen = BTreeSet::new();
    Ok(names.iter().find(|name| !seen.insert(*name)).cloned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn find(files: &[&str]) -> Result<TableFiles, String> {
        let folder = tempfile::tempdir().unwrap();
        for name in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "a,b\n1,2\n").unwrap();
        }
        TableFiles::find(folder.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn files_of_a_folder_are_found() {
        let csv = |extension: &str, columns: &[&str]| TableFiles {
            format: Format::Csv,
            extension: extension.to_string(),
            partition_columns: columns.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(find(&["a.csv", "b.csv", "README.md"]), Ok(csv(".csv", &[])));
        assert_eq!(find(&["a.CSV"]), Ok(csv(".CSV", &[])));
        assert_eq!(find(&["y=1/m=2/a.csv", "y=2/m=1/a.csv"]), Ok(csv(".csv", &["y", "m"])));
    }

    #[test]
    fn folders_without_one_table_are_explained() {
        for (files, word) in [
            (&["a.txt"][..], "no .parquet or .csv files"),
            (&["inner/a.csv"], "column=value"),
            (&["a.csv", "b.CSV"], "rename"),
            (&["a.csv", "b.parquet"], "move them apart"),
            (&["y=1/a.csv", "m=1/a.csv"], "different columns"),
            (&["y=1/a.csv", "a.csv"], "different columns"),
        ] {
            let error = find(files).unwrap_err();
            assert!(error.contains(word), "{files:?}: {error}");
        }
    }

    #[test]
    fn bad_files_are_explained() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        for (path, word) in [
            (write("empty.parquet", ""), "0 bytes"),
            (write("text.parquet", "not Parquet at all"), "text.parquet: "),
            (write("twice.csv", "a,b,a\n1,2,3\n"), "two columns named a"),
            (write("a.txt", "x"), "CREATE EXTERNAL TABLE"),
        ] {
            let error = TableFiles::find(&path).unwrap_err().to_string();
            assert!(error.contains(word), "{}: {error}", path.display());
        }
    }
}
