//! Finds DataFusion's .slt files.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runner::SltError;

const PACKAGE: &str = "datafusion-sqllogictest";

/// The folder of DataFusion's .slt files: `WARPJOIN_SLT_DIR` if set, else the folder in the package that cargo fetches.
///
/// # Errors
/// Returns an error if the variable does not name a folder, or cargo cannot find or download the package.
pub fn datafusion_files() -> Result<PathBuf, SltError> {
    if let Some(folder) = std::env::var_os("WARPJOIN_SLT_DIR") {
        let folder = PathBuf::from(folder);
        return match folder.is_dir() {
            true => Ok(folder),
            false => Err(SltError::File(format!("WARPJOIN_SLT_DIR={} is not a folder", folder.display()))),
        };
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--all-features", "--manifest-path"])
        .arg(manifest)
        .output()
        .map_err(|error| SltError::File(format!("cargo metadata: {error}")))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        SltError::File(format!("cargo metadata: {error}; {}", String::from_utf8_lossy(&output.stderr)))
    })?;
    metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == PACKAGE))
        .and_then(|package| Path::new(package["manifest_path"].as_str()?).parent())
        .map(|folder| folder.join("test_files"))
        .filter(|folder| folder.is_dir())
        .ok_or_else(|| SltError::File(format!("cargo finds no files of {PACKAGE}")))
}

/// All .slt files in and below `folder`, as sorted relative paths.
///
/// # Errors
/// Returns an error if a folder cannot be read.
pub fn list_files(folder: &Path) -> Result<Vec<String>, SltError> {
    let mut files = vec![];
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        let failed = |error: std::io::Error| SltError::File(format!("{}: {error}", next.display()));
        for entry in std::fs::read_dir(&next).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "slt")
                && let Ok(relative) = path.strip_prefix(folder)
            {
                files.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}
