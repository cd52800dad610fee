//! The cost model: what work on a device costs, in picoseconds, and which form is cheaper by that.
//!
//! All that chooses a form by its cost asks here. Must not know plans being run, nor generated code.

mod filters;
mod groups;
mod join_form;
mod rates;
mod tables;

use warpjoin_columns::DeviceSet;
use warpjoin_device::DeviceKind;

pub use groups::{GroupCosts, PartitionPasses};
pub use join_form::{exchanges, exchanges_to_partition, join_method, prefers_partition, stops_early};
pub use rates::PASS_BITS_MAX;
use rates::{LAUNCH_PS, MATCH_PS_PER_BYTE, PASS_PS_PER_BYTE, STREAM_PS_PER_BYTE, WRITTEN_PS_PER_BYTE};
pub(super) use rates::{PARTITIONED_PROBE_PS, SAVED_BUILD_PS, SAVED_GROUP_PS, SAVED_PROBE_PS};
use tables::probe_ps;
pub use tables::{LOAD_FACTOR, SLOT_BYTES, is_direct_small};

/// Less is not measured.
const GAIN_PS_MIN: f64 = 1e5;
/// What carrying all columns of a row hardly costs.
const CARRIED_PS_MAX: f64 = 1000.0;

/// What work on devices of one kind costs.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    l2_bytes: f64,
    /// A launch, and that the host looks at what it reports. Those of simulated devices take no time, so that tests meet on few
    /// rows what GPUs meet on many.
    launch_ps: f64,
    devices: usize,
}

/// The side that a table is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuildSide {
    pub rows: f64,
    pub unique: bool,
    /// How far its single key's values are apart.
    pub span: Option<f64>,
    /// Rows come in the order of the key.
    pub sorted: bool,
    pub payload_bytes: f64,
}

/// The side that probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeSide {
    pub rows: f64,
    /// Rows that go on.
    pub matches: f64,
    /// Rows of the pipeline's source.
    pub source_rows: f64,
    /// Rows that come one after the other with the same key; `None`: they come in any order.
    pub run_rows: Option<f64>,
}

/// Whether a table of so many bytes stays in L2 while it is used.
pub fn is_held(table_bytes: f64, l2_bytes: f64) -> bool {
    table_bytes <= l2_bytes * rates::HELD_L2_SHARE
}

impl Costs {
    /// Those of devices.
    pub fn of(devices: &DeviceSet) -> Self {
        let launch_ps = if devices.kind() == DeviceKind::Simulated { 0.0 } else { LAUNCH_PS };
        Self { l2_bytes: devices.l2_bytes(), launch_ps, devices: devices.devices().len() }
    }

    /// Gains below this are not worth another plan.
    pub(super) fn gain_ps_min(&self) -> f64 {
        GAIN_PS_MIN.max(self.launch_ps / 2.0)
    }

    /// Devices that have a copy of a table each.
    pub(super) fn copies(&self) -> f64 {
        self.devices as f64
    }

    /// A launch.
    pub(super) fn launch_ps(&self) -> f64 {
        self.launch_ps
    }

    /// Reading bytes that lie side by side.
    pub(super) fn stream_ps(&self, bytes: f64) -> f64 {
        bytes * STREAM_PS_PER_BYTE
    }

    /// Writing bytes down, and reading them again.
    pub(super) fn written_ps(&self, bytes: f64) -> f64 {
        bytes * WRITTEN_PS_PER_BYTE
    }

    /// Reading one of values anywhere in so many bytes.
    pub(super) fn random_read_ps(&self, bytes: f64) -> f64 {
        probe_ps(bytes / self.l2_bytes)
    }

    /// A side of a partitioned join that carries so many bytes a row, to so many matches.
    pub(super) fn partitioned_ps(&self, rows: f64, matches: f64, bytes: f64) -> f64 {
        rows * bytes * PASS_PS_PER_BYTE + matches * bytes * MATCH_PS_PER_BYTE
    }

    /// More than the columns of a row cost on their way.
    pub(super) fn carried_ps_per_row(&self) -> f64 {
        CARRIED_PS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An H100.
    pub(super) const COSTS: Costs = Costs { l2_bytes: 5e7, launch_ps: LAUNCH_PS, devices: 1 };
}
