//! COPY to a file: the file of before stays unless COPY succeeds. DataFusion's writers end a file even after an error.
//!
//! Must not know how rows are written.

use std::path::PathBuf;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::logical_expr::LogicalPlan;
use tempfile::TempDir;
use url::Url;

use crate::error::{CliError, Result};

/// A file that is written beside its place, and takes it in the end.
pub(super) struct Replacement {
    /// Removed with all it holds, whatever happens.
    _folder: TempDir,
    written: PathBuf,
    target: PathBuf,
}

impl Replacement {
    /// Lets a COPY to one local file write beside it; `None` for other plans, for folders and for object stores.
    ///
    /// # Errors
    /// When the folder of the file cannot be written.
    pub(super) fn prepare(plan: &mut LogicalPlan) -> Result<Option<Self>> {
        let LogicalPlan::Copy(copy) = plan else { return Ok(None) };
        let is_folder = copy.options.get("single_file_output").is_some_and(|value| value.trim() == "false");
        let Some(target) = local_file(&copy.output_url).filter(|_| !is_folder && copy.partition_by.is_empty()) else {
            return Ok(None);
        };
        let Some((parent, name)) = target.parent().zip(target.file_name()) else { return Ok(None) };
        // DataFusion makes folders that are missing. A link or a pipe must not be replaced by a file.
        let is_replaceable = std::fs::symlink_metadata(&target).map_or(true, |found| found.is_file());
        if !parent.is_dir() || !is_replaceable {
            return Ok(None);
        }
        let folder = tempfile::Builder::new().prefix(".warpjoin-copy-").tempdir_in(parent);
        let folder = folder.map_err(CliError::file(parent))?;
        let written = folder.path().join(name);
        let Ok(url) = Url::from_file_path(&written) else { return Ok(None) };
        copy.output_url = url.into();
        Ok(Some(Self { _folder: folder, written, target }))
    }

    /// Puts the file in its place, once COPY has succeeded.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn finish(self) -> Result<()> {
        // A format may write no file for no rows; then there is none afterwards either.
        let moved = if self.written.exists() {
            std::fs::rename(&self.written, &self.target)
        } else if self.target.exists() {
            std::fs::remove_file(&self.target)
        } else {
            Ok(())
        };
        moved.map_err(CliError::file(self.target))
    }

    /// An error of COPY that names the file as the user did.
    pub(super) fn error(&self, error: CliError) -> CliError {
        match error {
            CliError::Query(text) => {
                let (written, target) = (self.written.display().to_string(), self.target.display().to_string());
                CliError::Query(text.replace(&written, &target))
            }
            error => error,
        }
    }
}

/// The path of a location that DataFusion writes as a single file of this machine.
fn local_file(location: &str) -> Option<PathBuf> {
    let url = ListingTableUrl::parse(location).ok()?;
    let is_file = url.scheme() == "file" && !url.is_collection() && url.file_extension().is_some();
    is_file.then(|| Url::parse(url.as_str()).ok()?.to_file_path().ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn single_local_files_are_told_from_others() {
        for file in ["/a/b.csv", "file:///a/b.parquet", "c.json"] {
            assert!(local_file(file).is_some_and(|path| path.is_absolute()), "{file}");
        }
        for other in ["/a/b", "/a/b/", "s3://bucket/a.csv", "/"] {
            assert!(local_file(other).is_none(), "{other}");
        }
    }
}
