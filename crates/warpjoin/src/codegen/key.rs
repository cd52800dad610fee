//! What a generated kernel follows from, as bytes: equal keys generate the same.
//!
//! Everything that [`super::generate`] is given is written, literals and bounds too, since they are what parameters are
//! bound to. What is one of several things begins with which one it is, what is long with its length, so that no two
//! shapes have the same bytes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::DataType;

use super::emitter::ValidityForm;
use super::group_shapes::{
    Accumulator, AccumulatorKind, AccumulatorResult, Front, GroupByForm, GroupLimits, GroupMode, GroupShape,
    ResultType, Term,
};
use super::pipeline::GenerateOptions;
use super::shapes::{
    DirectSlots, FetchStep, FilterTest, JoinShape, MatchForm, PartitionStage, PayloadForm, ProbeKey, ProbeKind,
    ProbeStep, RowShape, RowSpec, Sink, Slots, SourceShape, Step, StoredKey, WindowKeys, WordSlots,
};
use super::value::{Kind, Value};
use crate::column::{ColumnType, Dictionary, Domain};
use crate::expr::{Expr, ExprKind, HostFunction, Scalar};
use crate::plan::{AggregateFunction, SortKey};

/// The key of a pipeline.
#[derive(Default)]
pub(crate) struct PipelineKey {
    bytes: Vec<u8>,
    /// In the order in which they were met: only they can tell whether they are the same.
    functions: Vec<Arc<dyn HostFunction>>,
    /// Addresses that are part of `bytes`.
    dictionaries: Vec<usize>,
    /// Something is not known yet.
    is_unique: bool,
}

impl PipelineKey {
    /// The key of what these generate; `None` where they may generate something else later.
    pub(crate) fn of(source: &SourceShape, steps: &[Step], sink: &Sink, options: GenerateOptions) -> Option<Self> {
        let mut key = Self::default();
        source.write(&mut key);
        steps.len().write(&mut key);
        steps.iter().for_each(|step| step.write(&mut key));
        sink.write(&mut key);
        options.write(&mut key);
        (!key.is_unique).then_some(key)
    }

    /// Equal bytes are of the same shape, but for functions of the host.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether both generate the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.bytes == other.bytes
            && self.functions.len() == other.functions.len()
            && self.functions.iter().zip(&other.functions).all(|(own, other)| own.is_same(other.as_ref()))
    }

    /// Addresses of the dictionaries: they tell dictionaries apart as long as those live.
    pub(crate) fn dictionaries(&self) -> &[usize] {
        &self.dictionaries
    }
}

/// Collects what is hashed in place of mixing it.
impl Hasher for PipelineKey {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// A part of what a pipeline is generated of.
pub(super) trait KeyPart {
    fn write(&self, key: &mut PipelineKey);
}

/// Parts that hash all that they are.
macro_rules! hashed {
    ($($part:ty),* $(,)?) => { $(impl KeyPart for $part {
        fn write(&self, key: &mut PipelineKey) {
            self.hash(key);
        }
    })* };
}

/// Structs, by all of their fields.
macro_rules! structs {
    ($($part:ty { $($field:ident),* $(,)? })*) => { $(impl KeyPart for $part {
        fn write(&self, key: &mut PipelineKey) {
            let Self { $($field),* } = self;
            $($field.write(key);)*
        }
    })* };
}
pub(super) use structs;

hashed!(bool, u32, u64, usize, i32, String, DataType, AggregateFunction, AccumulatorKind);
hashed!(MatchForm, PartitionStage, ProbeKind, Slots, WordSlots, DirectSlots, Term, GroupMode, Front, GroupByForm);
hashed!(ValidityForm, Domain, Kind, FilterTest);

structs! {
    GenerateOptions { hash_bits, tested_strings_min }
    RowShape { packing, keys, field_of }
    RowSpec { keys, like, keeps_null_keys, payload }
    WindowKeys { partition_keys, compared }
    ProbeStep { shape, key, kind, null_equals_null, residual, output, payload_of, filter, is_counted }
    FetchStep { number, row, columns, types, shards }
    StoredKey { word, packed }
    JoinShape { packing, payload, unique, slots }
    GroupLimits { rows_bits, shared_bytes_max, form, block_slots, table_blocks, is_skewed, is_sorted }
    Accumulator { function, argument, second, term, data_type, is_merge }
    GroupShape { mode, front, has_finished, packing, stride_words, accumulators, results }
    AccumulatorResult { word, encoding, value, count_word }
    ResultType { kind, data_type, dictionary }
    Value { code, valid, kind, data_type, dictionary }
    ColumnType { data_type, has_nulls, domain, dictionary }
    SortKey { expr, descending, nulls_first }
}

impl<T: KeyPart> KeyPart for Vec<T> {
    fn write(&self, key: &mut PipelineKey) {
        self.len().write(key);
        self.iter().for_each(|part| part.write(key));
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn write(&self, key: &mut PipelineKey) {
        self.is_some().write(key);
        self.iter().for_each(|part| part.write(key));
    }
}

impl<T: KeyPart> KeyPart for Arc<T> {
    fn write(&self, key: &mut PipelineKey) {
        T::write(self, key);
    }
}

impl<A: KeyPart, B: KeyPart> KeyPart for (A, B) {
    fn write(&self, key: &mut PipelineKey) {
        self.0.write(key);
        self.1.write(key);
    }
}

/// A dictionary is one object.
impl KeyPart for Dictionary {
    fn write(&self, key: &mut PipelineKey) {
        let address = std::ptr::from_ref(self).addr();
        address.write(key);
        if !key.dictionaries.contains(&address) {
            key.dictionaries.push(address);
        }
    }
}

/// Which one of several it is, and its parts.
fn one_of(key: &mut PipelineKey, number: u32, parts: &[&dyn KeyPart]) {
    number.write(key);
    parts.iter().for_each(|part| part.write(key));
}

impl KeyPart for SourceShape {
    fn write(&self, key: &mut PipelineKey) {
        match self {
            Self::Columns(columns, validity) => one_of(key, 0, &[columns, validity]),
            Self::Groups(groups) => one_of(key, 1, &[groups]),
            Self::Matches { build, probe, form } => one_of(key, 2, &[build, probe, form]),
            Self::Words(rows) => one_of(key, 3, &[rows]),
        }
    }
}

impl KeyPart for Step {
    fn write(&self, key: &mut PipelineKey) {
        match self {
            Self::Filter(predicate) => one_of(key, 0, &[predicate]),
            Self::Project(exprs) => one_of(key, 1, &[exprs]),
            Self::Probe(probe) => one_of(key, 2, &[probe]),
            Self::Fetch(fetch) => one_of(key, 3, &[fetch]),
        }
    }
}

impl KeyPart for ProbeKey {
    fn write(&self, key: &mut PipelineKey) {
        match self {
            Self::Exprs(exprs) => one_of(key, 0, &[exprs]),
            Self::Stored(stored) => one_of(key, 1, &[stored]),
        }
    }
}

impl KeyPart for PayloadForm {
    fn write(&self, key: &mut PipelineKey) {
        match self {
            Self::Packed(packing) => one_of(key, 0, &[packing]),
            Self::Columns(columns) => one_of(key, 1, &[columns]),
        }
    }
}

impl KeyPart for Sink {
    fn write(&self, key: &mut PipelineKey) {
        match self {
            Self::Materialise(columns) => one_of(key, 0, &[columns]),
            Self::Conform(columns) => one_of(key, 1, &[columns]),
            Self::Build { keys, null_equals_null, payload } => one_of(key, 2, &[keys, null_equals_null, payload]),
            Self::Limit { columns, wanted } => one_of(key, 11, &[columns, wanted]),
            Self::Route { shape, keys, null_equals_null, keeps_unmatched, columns } => {
                one_of(key, 3, &[shape, keys, null_equals_null, keeps_unmatched, columns]);
            }
            Self::RouteGroups { keys, columns } => one_of(key, 4, &[keys, columns]),
            Self::Sort { keys, columns, window } => one_of(key, 5, &[keys, columns, window]),
            Self::InPlace(columns) => one_of(key, 6, &[columns]),
            Self::Direct { keys, null_equals_null, payload, is_set } => {
                one_of(key, 10, &[keys, null_equals_null, payload, is_set]);
            }
            Self::Partition { stage, rows } => one_of(key, 7, &[stage, rows]),
            Self::Sketch { keys } => one_of(key, 8, &[keys]),
            Self::Aggregate { keys, accumulators, limits } => one_of(key, 9, &[keys, accumulators, limits]),
        }
    }
}

impl KeyPart for Expr {
    fn write(&self, key: &mut PipelineKey) {
        let Self { kind, data_type, nullable } = self;
        data_type.write(key);
        nullable.write(key);
        std::mem::discriminant(kind).hash(key);
        match kind {
            ExprKind::Column(column) => column.write(key),
            ExprKind::Literal(value) => value.write(key),
            // By then it is known; if it is not, there is nothing to remember.
            ExprKind::Deferred(value) => match value.value() {
                Ok(value) => value.write(key),
                Err(_) => key.is_unique = true,
            },
            ExprKind::Arithmetic(op, ..) => op.hash(key),
            ExprKind::Compare(op, ..) => op.hash(key),
            ExprKind::Function(function, _) => function.hash(key),
            ExprKind::RowNumber { max } => max.write(key),
            ExprKind::InList { list, negated, operand: _ } => {
                list.write(key);
                negated.write(key);
            }
            ExprKind::Tabulated { function, operands: _ } => key.functions.push(Arc::clone(function)),
            ExprKind::Case { branches, otherwise } => {
                branches.len().write(key);
                otherwise.is_some().write(key);
            }
            ExprKind::OrderWord { keys, word } => {
                word.write(key);
                for SortKey { expr: _, descending, nulls_first } in keys {
                    descending.write(key);
                    nulls_first.write(key);
                }
            }
            ExprKind::Moment { moment, scale, sums: _ } => {
                moment.hash(key);
                scale.write(key);
            }
            ExprKind::And(..)
            | ExprKind::Or(..)
            | ExprKind::Not(_)
            | ExprKind::IsNull(_)
            | ExprKind::Negative(_)
            | ExprKind::Cast(_)
            | ExprKind::TryCast(_)
            | ExprKind::Average(..) => {}
        }
        let children = self.children();
        children.len().write(key);
        children.into_iter().for_each(|child| child.write(key));
    }
}

impl KeyPart for Scalar {
    fn write(&self, key: &mut PipelineKey) {
        std::mem::discriminant(self).hash(key);
        match self {
            Self::Null => {}
            Self::Boolean(value) => value.write(key),
            Self::Int(value) => value.hash(key),
            Self::Float(value) => value.to_bits().write(key),
            Self::Bytes(value) => value.hash(key),
        }
    }
}
