//! The limits of a device's memory, measured in the same run as the lines that are compared with them.
//!
//! Owns the rates and the interpolation between measured points. Must not know operators.

pub(crate) mod kernels;
mod measure;

use serde::Serialize;

/// Measured rates of the first device, and of the links between devices.
#[derive(Debug, Clone, Serialize)]
pub struct Limits {
    /// Devices, which are taken for equal.
    pub devices: u64,
    /// Bytes per second out of each device, while all send to all others with copy engines; `None` with one device, or
    /// where one can't reach another.
    pub link_bytes_per_s: Option<f64>,
    /// Streaming copy: bytes read plus bytes written per second.
    pub copy_bytes_per_s: f64,
    /// Streaming reads: bytes per second.
    pub read_bytes_per_s: f64,
    /// Streaming writes: bytes per second.
    pub write_bytes_per_s: f64,
    /// Random reads of 8 bytes per second, by footprint in bytes.
    pub random_reads: Curve,
    /// Random writes of 8 bytes per second, by footprint in bytes.
    pub random_writes: Curve,
    /// Random 64-bit compare-and-swaps per second, by footprint in bytes.
    pub random_cas: Curve,
    /// Random 64-bit additions per second, by number of addresses.
    pub random_adds: Curve,
    /// Values gathered per second (streaming read of the place, random read of the value, streaming write), by bytes of a
    /// value.
    pub gathers: Vec<(u64, f64)>,
}

/// Rates at measured points, in ascending order of x.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve(pub Vec<(u64, f64)>);

impl Curve {
    /// The rate at `x`. Between measured points, the time of an access is interpolated linearly in the
    /// logarithm of `x`. Outside of them, it is that of the nearest point.
    pub fn rate_at(&self, x: u64) -> f64 {
        let after = self.0.partition_point(|&(measured, _)| measured < x);
        match (after.checked_sub(1).and_then(|before| self.0.get(before)), self.0.get(after)) {
            (Some(&(low, low_rate)), Some(&(high, high_rate))) => {
                let share = (x as f64 / low as f64).ln() / (high as f64 / low as f64).ln();
                1.0 / ((1.0 - share) / low_rate + share / high_rate)
            }
            (Some(&(_, rate)), None) | (None, Some(&(_, rate))) => rate,
            (None, None) => f64::NAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_between_points_are_interpolated() {
        let curve = Curve(vec![(1 << 20, 100.0), (1 << 22, 25.0)]);
        assert_eq!(curve.rate_at(1 << 10), 100.0);
        assert_eq!(curve.rate_at(1 << 20), 100.0);
        assert_eq!(curve.rate_at(1 << 22), 25.0);
        assert_eq!(curve.rate_at(1 << 40), 25.0);
        // The mean of 1/100 and 1/25 is 1/40.
        assert!((curve.rate_at(1 << 21) - 40.0).abs() < 1e-9);
    }
}
