//! What a generated kernel follows from: equal keys generate the same.
//!
//! Everything that [`crate::bind_pipeline`] is given is part of it, literals and bounds too, since they are what parameters are
//! bound to.

#[cfg(test)]
mod tests;

use warpjoin_columns::identity::{Identify, Identity, Scope, identify_by_hash, identify_fields, one_of};

use super::kernel::GenerateOptions;
use crate::shapes::{
    Accumulator, AccumulatorKind, AccumulatorResult, DirectSlots, FetchStep, FilterTest, GroupLimits, GroupMode,
    GroupShape, JoinShape, MatchForm, PartitionStage, PayloadForm, PreAggregation, ProbeKey, ProbeKind, ProbeStep,
    RowShape, RowSpec, Sink, Slots, SourceShape, Step, StoredKey, ValidityForm, WindowKeys, WordSlots,
};
use crate::value::{Kind, ValueType};

/// The key of a pipeline.
#[derive(Debug, PartialEq)]
pub struct PipelineKey(Identity);

impl PipelineKey {
    /// The key of what these generate; `None` where they may generate something else later.
    pub fn of(source: &SourceShape, steps: &[Step], sink: &Sink, options: GenerateOptions) -> Option<Self> {
        let identity = Identity::new(Scope::Session).with(source).with(steps).with(sink).with(&options);
        identity.closed().map(Self)
    }

    /// Equal bytes are of the same shape, but for functions of the host.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Addresses of the dictionaries: they tell dictionaries apart as long as those live.
    pub fn dictionaries(&self) -> &[usize] {
        self.0.dictionaries()
    }
}

identify_by_hash!(AccumulatorKind, MatchForm, PartitionStage, ProbeKind, Slots, WordSlots, DirectSlots);
identify_by_hash!(GroupMode, PreAggregation, ValidityForm, Kind, FilterTest);

identify_fields! {
    GenerateOptions { hash_bits, tested_strings_min }
    RowShape { packing, keys, field_of }
    RowSpec { keys, like, keeps_null_keys, payload }
    WindowKeys { partition_keys, compared }
    ProbeStep { shape, key, kind, null_equals_null, residual, output, payload_of, filter, is_counted }
    FetchStep { number, row, columns, types, shards }
    StoredKey { word, packed }
    JoinShape { packing, payload, unique, slots }
    GroupLimits { rows_bits, shared_bytes_max, form, block_slots, table_blocks, is_skewed, is_sorted, by_range, is_scarce, is_cut }
    Accumulator { state, is_merge }
    GroupShape { mode, by_range, is_cut, front, has_finished, packing, stride_words, accumulators, results }
    AccumulatorResult { word, encoding, value, count_word }
    ValueType { kind, data_type, dictionary, nullable }
}

impl Identify for SourceShape {
    fn identify(&self, identity: &mut Identity) {
        match self {
            Self::Columns(columns, validity) => one_of(identity, 0, &[columns, validity]),
            Self::Groups(groups) => one_of(identity, 1, &[groups]),
            Self::Matches { build, probe, form } => one_of(identity, 2, &[build, probe, form]),
            Self::Words { rows, by_partition } => one_of(identity, 3, &[rows, by_partition]),
        }
    }
}

impl Identify for Step {
    fn identify(&self, identity: &mut Identity) {
        match self {
            Self::Filter(predicate) => one_of(identity, 0, &[predicate]),
            Self::Project(exprs) => one_of(identity, 1, &[exprs]),
            Self::Probe(probe) => one_of(identity, 2, &[probe]),
            Self::Fetch(fetch) => one_of(identity, 3, &[fetch]),
            Self::Compact => one_of(identity, 4, &[]),
        }
    }
}

impl Identify for ProbeKey {
    fn identify(&self, identity: &mut Identity) {
        match self {
            Self::Exprs(exprs) => one_of(identity, 0, &[exprs]),
            Self::Stored(stored) => one_of(identity, 1, &[stored]),
        }
    }
}

impl Identify for PayloadForm {
    fn identify(&self, identity: &mut Identity) {
        match self {
            Self::Packed(packing) => one_of(identity, 0, &[packing]),
            Self::Columns(columns) => one_of(identity, 1, &[columns]),
        }
    }
}

impl Identify for Sink {
    fn identify(&self, identity: &mut Identity) {
        match self {
            Self::Materialise(columns) => one_of(identity, 0, &[columns]),
            Self::Conform(columns) => one_of(identity, 1, &[columns]),
            Self::Build { keys, null_equals_null, payload } => one_of(identity, 2, &[keys, null_equals_null, payload]),
            Self::Limit { columns, wanted } => one_of(identity, 11, &[columns, wanted]),
            Self::Route { shape, keys, null_equals_null, keeps_unmatched, keeps_words, columns } => {
                one_of(identity, 3, &[shape, keys, null_equals_null, keeps_unmatched, keeps_words, columns]);
            }
            Self::RouteGroups { keys, columns } => one_of(identity, 4, &[keys, columns]),
            Self::Sort { keys, columns, window } => one_of(identity, 5, &[keys, columns, window]),
            Self::InPlace(columns) => one_of(identity, 6, &[columns]),
            Self::Direct { keys, null_equals_null, payload, is_set } => {
                one_of(identity, 10, &[keys, null_equals_null, payload, is_set]);
            }
            Self::Partition { stage, rows } => one_of(identity, 7, &[stage, rows]),
            Self::Sketch { keys } => one_of(identity, 8, &[keys]),
            Self::Aggregate { keys, accumulators, limits } => one_of(identity, 9, &[keys, accumulators, limits]),
        }
    }
}
