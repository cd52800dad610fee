//! What the memory of a device allows, measured in the same run as everything that is compared with it.
//!
//! Owns the rates and how they are read off between measured points. Must not know operators.

pub(crate) mod kernels;
mod measure;

use serde::Serialize;

/// Measured rates of a device.
#[derive(Debug, Clone, Serialize)]
pub struct Limits {
    /// Bytes read and written in a copy, a second.
    pub copy_bytes_per_s: f64,
    /// Bytes read, a second.
    pub read_bytes_per_s: f64,
    /// Bytes written, a second.
    pub write_bytes_per_s: f64,
    /// Random reads of 8 bytes a second, over bytes of footprint.
    pub random_reads: Curve,
    /// Random writes of 8 bytes a second, over bytes of footprint.
    pub random_writes: Curve,
    /// Random 64-bit compare-and-swaps a second, over bytes of footprint.
    pub random_cas: Curve,
    /// Random 64-bit additions a second, over the number of addresses.
    pub random_adds: Curve,
    /// Values gathered a second (place read in order, value at random, written in order), by bytes of a value.
    pub gathers: Vec<(u64, f64)>,
}

/// Rates at measured points, in rising order of the first number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve(pub Vec<(u64, f64)>);

impl Curve {
    /// The rate at `x`: between two measured points, the time of an access goes with the logarithm of
    /// `x`; beyond the ends it is that of the end.
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
    fn rates_between_points_lie_between_their_rates() {
        let curve = Curve(vec![(1 << 20, 100.0), (1 << 22, 25.0)]);
        assert_eq!(curve.rate_at(1 << 10), 100.0);
        assert_eq!(curve.rate_at(1 << 20), 100.0);
        assert_eq!(curve.rate_at(1 << 22), 25.0);
        assert_eq!(curve.rate_at(1 << 40), 25.0);
        // The mean of 10 and 40 ms.
        assert!((curve.rate_at(1 << 21) - 40.0).abs() < 1e-9);
    }
}
