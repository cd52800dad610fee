//! Where pages of Parquet files are decoded.

/// Where pages of Parquet files are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ParquetDecode {
    /// On the CPU, until decoding on GPUs has been measured for more files.
    #[default]
    Auto,
    /// On the devices where kernels can decode a column, else on the CPU.
    Device,
    /// On the CPU.
    Cpu,
}

impl ParquetDecode {
    pub(super) const NAMES: [(&str, Self); 3] = [("auto", Self::Auto), ("gpu", Self::Device), ("cpu", Self::Cpu)];
}
