//! Hand-written modules: their entries and definitions. What there is of each is finite, so that a module is known by a value
//! rather than by its text.
//!
//! Must not know who launches them.

mod partition;
mod prebuilt;
mod table;

use warpjoin_device::ModuleSource;

pub use partition::{COUNT_WITHIN, PASS_MULTIPLE, RESTORE, partition_module, pass_entry};
pub use prebuilt::prebuilt_modules;
pub use prebuilt::{USUAL_HASH_BITS, interpreters, prebuilt, regroup};
pub use table::{BucketShape, SlotForm};

/// A hand-written module of hash tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FixedModule {
    /// Tables with such slots and buckets; bits of a hash that are kept.
    Table(SlotForm, BucketShape, u32),
    /// Between columns and words.
    Words,
    /// Lists of multimaps.
    Lists,
    /// Radix partitions; bits of a hash that are kept.
    Partition(u32),
}

impl FixedModule {
    /// What is compiled.
    pub fn source(self) -> ModuleSource {
        match self {
            Self::Table(form, shape, hash_bits) => table::table_module(form, shape, hash_bits),
            Self::Words => table::words_module(),
            Self::Lists => table::lists_module(),
            Self::Partition(hash_bits) => partition_module(hash_bits),
        }
    }
}
