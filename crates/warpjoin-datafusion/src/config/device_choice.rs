//! The kind of device that queries run on.

use std::fmt;
use std::str::FromStr;

/// Kind of device that queries run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceChoice {
    /// GPUs if any are usable, else DataFusion on the CPU.
    #[default]
    Auto,
    /// GPUs. It is an error if none is usable.
    Cuda,
    /// Devices simulated on the CPU.
    Simulated,
}

impl FromStr for DeviceChoice {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "cuda" => Ok(Self::Cuda),
            "sim" => Ok(Self::Simulated),
            _ => Err(()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Cuda => "cuda",
            Self::Simulated => "sim",
        })
    }
}
