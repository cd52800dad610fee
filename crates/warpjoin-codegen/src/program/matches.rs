//! Loops over matches of two relations that were partitioned alike, found in shared memory (see `join/matches.cuh`).

use super::params::Field;
use crate::shapes::MatchForm;

/// Opens the loop over work items, and brings the build rows of an item to shared memory.
#[derive(Debug)]
pub(crate) struct MatchUnits {
    pub form: MatchForm,
    /// Words of build rows that are in shared memory, as [`Variable::BuildWord`](super::Variable::BuildWord).
    pub shared: Vec<SharedWord>,
    /// Bits of the key in each word that has some.
    pub key_masks: Vec<u64>,
    /// Build rows of an item.
    pub capacity: Field,
    /// Bits of the hash that choose a chain.
    pub heads_bits: Field,
    pub bits: Field,
    pub build_offsets: Field,
    pub probe_offsets: Field,
    pub items: Field,
    pub chunk_rows: Field,
    pub control: Field,
    pub cancel: Field,
}

/// A word of build rows.
#[derive(Debug)]
pub(crate) struct SharedWord {
    pub word: u32,
    pub bytes: u32,
    pub field: Field,
}

/// Looks the probe rows of an item up, and opens the loops over probe rows and matches, in which
/// [`Variable::Matched`](super::Variable::Matched) says whether the lane has a match.
#[derive(Debug)]
pub(crate) struct MatchLookUp {
    pub form: MatchForm,
    pub key_masks: Vec<u64>,
    /// Probe rows that a thread looks up together.
    pub items: u32,
    /// Key words of probe rows.
    pub probe_keys: Vec<Field>,
    /// Where all matches are written: the control block, and the room of the output. They get their places here.
    pub output: Option<[Field; 2]>,
}
