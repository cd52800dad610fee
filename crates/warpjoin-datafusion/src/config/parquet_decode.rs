//! Where pages of Parquet files are decoded.

use warpjoin_device::DeviceKind;

/// Where pages of Parquet files are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ParquetDecode {
    /// On GPUs, if the session has any; on the CPU with simulated devices.
    #[default]
    Auto,
    /// On the devices where kernels can decode a column, else on the CPU.
    Device,
    /// On the CPU.
    Cpu,
}

impl ParquetDecode {
    /// Whether devices of a kind decode.
    pub(crate) fn is_on(self, kind: DeviceKind) -> bool {
        match self {
            Self::Auto => kind == DeviceKind::Cuda,
            Self::Device => true,
            Self::Cpu => false,
        }
    }

    pub(super) const NAMES: [(&str, Self); 3] = [("auto", Self::Auto), ("gpu", Self::Device), ("cpu", Self::Cpu)];
}
