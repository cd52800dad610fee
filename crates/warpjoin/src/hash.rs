//! Hashing of key words on the host: the same function as `kernels/common/hash.cuh`.

/// Odd multipliers with bits spread evenly (from the fractional parts of the golden ratio and of
/// the square roots of 2 and 3).
pub(crate) const MULTIPLIERS: [(&str, u64); 3] =
    [("A", 0x9e37_79b9_7f4a_7c15), ("B", 0x6a09_e667_f3bc_c909), ("C", 0xbb67_ae85_84ca_a73b)];
