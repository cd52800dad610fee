//! `warpjoin warm`: compiles the kernels that any query may want, so that no first query waits for them.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use warpjoin::{Session, prebuilt_modules};
use warpjoin_device::{CudaOptions, binaries_name, open_usable_cuda, prebuilt_binaries};

use crate::error::{CliError, Result};
use crate::output::print_line;

/// Arguments of `warpjoin warm`.
#[derive(Debug, Args)]
pub struct WarmArgs {
    /// Architectures to write files of kernels for, such as sm_90; may be repeated, and needs no GPU. Without it, kernels are
    /// compiled for the first GPU of this machine, into its kernel cache
    #[arg(long, value_name = "ARCHITECTURE")]
    architecture: Vec<String>,
    /// Folder of these files. A process finds them beside the executable, or in the folder WARPJOIN_KERNELS
    #[arg(long, value_name = "DIR", default_value = ".", requires = "architecture")]
    output: PathBuf,
}

/// Compiles them, and says how long that took.
///
/// # Errors
/// When no GPU can be used; with architectures, when NVRTC is missing or does not know one, or a file cannot be written.
pub fn warm(arguments: &WarmArgs) -> Result<()> {
    let started = Instant::now();
    if arguments.architecture.is_empty() {
        let opened = open_usable_cuda(&CudaOptions::default())?;
        let session = Session::new(opened.devices.into_iter().take(1).collect())?;
        session.finish_compiling();
        let seconds = started.elapsed().as_secs_f64();
        return print_line(&format!("kernels for {} are ready after {seconds:.1} s", session.devices()[0].label()));
    }
    let modules = prebuilt_modules();
    fs::create_dir_all(&arguments.output).map_err(CliError::file(&arguments.output))?;
    for architecture in &arguments.architecture {
        let started = Instant::now();
        let file = prebuilt_binaries(&modules, architecture)?;
        let path = arguments.output.join(binaries_name(architecture));
        fs::write(&path, &file).map_err(CliError::file(&path))?;
        let (count, bytes, seconds) = (modules.len(), file.len(), started.elapsed().as_secs_f64());
        print_line(&format!("{}: {count} kernels, {bytes} bytes, after {seconds:.1} s", path.display()))?;
    }
    Ok(())
}
