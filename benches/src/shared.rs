//! What kernels and host share: constants, numbers of enums, checksums, and the modules that define them.
//!
//! Must not know what the kernels do.

use warpjoin_device::ModuleSource;

/// Threads per block of the benches' own kernels.
pub(crate) const THREADS: u32 = 256;
/// Maximum number of columns of a checked result.
pub(crate) const COLUMNS_MAX: usize = 12;
/// Maximum number of aggregates of a checked group-by.
pub(crate) const AGGREGATES_MAX: usize = 4;
/// Vectors of 16 bytes that a thread has in flight.
pub(crate) const VECTORS_IN_FLIGHT: u64 = 4;
/// Random accesses that a thread has in flight.
pub(crate) const ACCESSES_IN_FLIGHT: u64 = 8;
/// Names and values of [`crate::GroupAggregate`] in kernels.
pub(crate) const FUNCTIONS: [(&str, u64); 5] =
    [("COUNT", 0), ("SUM", 1), ("SUM_FLOAT", 2), ("MAX_FLOAT", 3), ("SUM_DECIMAL", 4)];

/// Distribution of key numbers. A key is a function of its key number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// The row number modulo the number of distinct keys.
    Cyclic,
    /// Cyclic, in random order.
    Permuted,
    /// Random, uniformly distributed.
    Uniform,
    /// Random, by the continuous form of Zipf's law.
    Zipf,
}

/// The values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A bijection of the key number over the whole range of 32 bits.
    Key32,
    /// A bijection of the key number over the whole range of 64 bits.
    Key64,
    /// A permutation of the key numbers below `distinct`.
    KeyDense,
    /// Another 64-bit bijection of the key number: the second column of a key of 16 bytes.
    KeySecond,
    /// The row number.
    Row,
    /// Random bits.
    Random,
    /// Random multiples of 1/16 below 2^20, so that sums of 2^29 of them are exact.
    Float,
    /// Random integers from -2^92 to 2^92 - 1, in 16 bytes.
    Decimal,
}

/// A checksum of rows, independent of their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// Number of rows.
    pub rows: u64,
    /// Sum of the row hashes, modulo 2^64.
    pub sum: u64,
    /// Exclusive or of the row hashes.
    pub exclusive: u64,
}

/// The module of one of the benches' own sources (name, text).
pub(crate) fn module((name, text): (&str, &str), entries: &[&str]) -> ModuleSource {
    ModuleSource {
        name: name.into(),
        text: text.into(),
        entries: entries.iter().map(|&entry| entry.into()).collect(),
        defines: definitions(),
    }
}

/// Constants of the kernels, passed to the compiler as definitions.
fn definitions() -> Vec<String> {
    let numberings = [
        ("CYCLIC", Numbering::Cyclic),
        ("PERMUTED", Numbering::Permuted),
        ("UNIFORM", Numbering::Uniform),
        ("ZIPF", Numbering::Zipf),
    ];
    let values = [
        ("KEY32", Value::Key32),
        ("KEY64", Value::Key64),
        ("KEY_DENSE", Value::KeyDense),
        ("KEY_SECOND", Value::KeySecond),
        ("ROW", Value::Row),
        ("RANDOM", Value::Random),
        ("FLOAT", Value::Float),
        ("DECIMAL", Value::Decimal),
    ];
    let mut definitions: Vec<String> = vec![
        format!("THREADS={THREADS}"),
        format!("COLUMNS_MAX={COLUMNS_MAX}"),
        format!("AGGREGATES_MAX={AGGREGATES_MAX}"),
        format!("VECTORS_IN_FLIGHT={VECTORS_IN_FLIGHT}"),
        format!("ACCESSES_IN_FLIGHT={ACCESSES_IN_FLIGHT}"),
    ];
    definitions.extend(numberings.map(|(name, numbering)| format!("NUMBERS_{name}={}", numbering as u64)));
    definitions.extend(values.map(|(name, value)| format!("VALUE_{name}={}", value as u64)));
    definitions.extend(FUNCTIONS.map(|(name, function)| format!("AGGREGATE_{name}={function}")));
    definitions
}
