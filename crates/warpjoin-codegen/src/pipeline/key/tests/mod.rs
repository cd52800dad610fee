//! Pipelines that differ in one part only have different keys: for every field of every struct, and every variant.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;
use warpjoin_columns::column::{ColumnType, Dictionary, Domain};
use warpjoin_columns::expr::Expr;
use warpjoin_columns::identity::with_each_field_changed;
use warpjoin_plan::options::GroupByForm;
use warpjoin_plan::plan::{Fold, SortKey, State, Term};

use super::{GenerateOptions, PipelineKey};
use crate::shapes::{
    Accumulator, AccumulatorKind, AccumulatorResult, DirectSlots, FetchStep, FilterTest, GroupLimits, GroupMode,
    GroupShape, JoinShape, MatchForm, PackedField, Packing, PartitionStage, PayloadForm, Place, PreAggregation,
    ProbeKey, ProbeKind, ProbeStep, RowShape, RowSpec, Sink, Slots, SourceShape, Step, StoredKey, ValidityForm,
    WindowKeys, WordSlots,
};
use crate::value::{Kind, Range, ValueType};

/// What a kernel is generated from.
#[derive(Debug, Clone)]
struct Parts {
    source: SourceShape,
    steps: Vec<Step>,
    sink: Sink,
    options: GenerateOptions,
}

impl Parts {
    fn usual() -> Self {
        Self {
            source: SourceShape::Columns(vec![column_type()], ValidityForm::Bits),
            steps: vec![],
            sink: Sink::Materialise(vec![0]),
            options: GenerateOptions { hash_bits: 64, tested_strings_min: 1000 },
        }
    }

    fn source(source: SourceShape) -> Self {
        Self { source, ..Self::usual() }
    }

    fn step(step: Step) -> Self {
        Self { steps: vec![step], ..Self::usual() }
    }

    fn sink(sink: Sink) -> Self {
        Self { sink, ..Self::usual() }
    }

    fn key(&self) -> PipelineKey {
        PipelineKey::of(&self.source, &self.steps, &self.sink, self.options).expect("constants that are known")
    }
}

/// The value, then copies with one field of the variant changed, for all of its fields: a new field does not compile until it
/// is named here.
macro_rules! with_each_field_of_variant_changed {
    ($value:expr, $part:ident::$variant:ident { $($field:ident: $other:expr),* $(,)? }) => {{
        let value: $part = $value;
        assert!(matches!(&value, $part::$variant { $($field: _),* }), "the variant that is named");
        let mut all = vec![value.clone()];
        $({
            let (mut changed, other) = (value.clone(), $other);
            if let $part::$variant { $field, .. } = &mut changed {
                *$field = other;
            }
            all.push(changed);
        })*
        all
    }};
}

// Behind the macro, which they use.
mod groups;
mod sinks;
mod sources;
mod steps;

/// All keys differ from each other, and each is the same as that of a copy.
fn assert_all_differ<T: Clone + Debug>(parts: &[T], pipeline: impl Fn(T) -> Parts) {
    let keyed: Vec<(&T, Parts)> = parts.iter().map(|part| (part, pipeline(part.clone()))).collect();
    for (at, (part, pipeline)) in keyed.iter().enumerate() {
        assert_eq!(pipeline.key(), pipeline.clone().key(), "{part:?} is not its copy");
        for (other, other_pipeline) in &keyed[at + 1..] {
            assert_ne!(pipeline.key(), other_pipeline.key(), "{part:?} is taken for {other:?}");
            assert_ne!(pipeline.key().bytes(), other_pipeline.key().bytes(), "{part:?} is of the shape of {other:?}");
        }
    }
}

fn column(index: usize) -> Expr {
    Expr::column(index, DataType::Int64, true)
}

fn dictionary() -> Arc<Dictionary> {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    Arc::new(Dictionary::of_array(&values).expect("a dictionary").0)
}

fn column_type() -> ColumnType {
    ColumnType {
        data_type: DataType::Int64,
        has_nulls: true,
        domain: Domain::Int { min: 0, max: 100 },
        dictionary: None,
    }
}

fn other_column_type() -> ColumnType {
    ColumnType { has_nulls: false, ..column_type() }
}

fn value() -> ValueType {
    let kind = Kind::Int(Range::new(0, 100));
    ValueType { kind, data_type: DataType::Int64, dictionary: None, nullable: false }
}

fn field() -> PackedField {
    let place = Place { word: 0, shift: 0, bits: 7 };
    PackedField { value: value(), place, null_place: None, is_exact: false }
}

fn packing() -> Packing {
    Packing { fields: vec![field()], word_bits: vec![7] }
}

fn other_packing() -> Packing {
    Packing { word_bits: vec![8], ..packing() }
}

fn join_shape() -> JoinShape {
    let payload = PayloadForm::Packed(packing());
    JoinShape { packing: packing(), payload, unique: true, slots: Slots::Pairs { lanes: 1 } }
}

fn other_join_shape() -> Arc<JoinShape> {
    Arc::new(JoinShape { unique: false, ..join_shape() })
}

fn probe() -> ProbeStep {
    ProbeStep {
        shape: Arc::new(join_shape()),
        key: ProbeKey::Exprs(vec![column(0)]),
        kind: ProbeKind::Matches,
        null_equals_null: false,
        residual: None,
        output: vec![0],
        payload_of: vec![Some(0)],
        filter: None,
        is_counted: false,
    }
}

fn probing(change: impl FnOnce(&mut ProbeStep)) -> Parts {
    let mut step = probe();
    change(&mut step);
    Parts::step(Step::Probe(step))
}

/// A pipeline that probes a table of this shape.
fn of_join_shape(shape: JoinShape) -> Parts {
    probing(|probe| probe.shape = Arc::new(shape))
}

fn row_shape() -> RowShape {
    RowShape { packing: packing(), keys: 1, field_of: vec![Some(0)] }
}

fn other_row_shape() -> Arc<RowShape> {
    Arc::new(RowShape { keys: 2, ..row_shape() })
}

fn result_type() -> ValueType {
    ValueType { kind: Kind::F64, data_type: DataType::Float64, dictionary: None, nullable: false }
}

fn accumulator_result() -> AccumulatorResult {
    AccumulatorResult { word: 1, encoding: AccumulatorKind::Sum64, value: result_type(), count_word: None }
}

fn group_shape() -> GroupShape {
    GroupShape {
        mode: GroupMode::Dense,
        front: PreAggregation::None,
        by_range: false,
        is_cut: false,
        has_finished: false,
        packing: packing(),
        stride_words: 3,
        accumulators: vec![(AccumulatorKind::Count, 1)],
        results: vec![accumulator_result()],
    }
}

/// A pipeline that reads groups of this shape.
fn of_groups(groups: GroupShape) -> Parts {
    Parts::source(SourceShape::Groups(Arc::new(groups)))
}

fn limits() -> GroupLimits {
    GroupLimits {
        rows_bits: 20,
        shared_bytes_max: 1000,
        form: None,
        block_slots: None,
        table_blocks: 1,
        is_skewed: false,
        is_sorted: false,
        by_range: false,
        is_scarce: false,
        is_cut: false,
    }
}

fn accumulator() -> Accumulator {
    let state = State {
        fold: Fold::Sum,
        argument: Some(column(0)),
        second: None,
        term: Term::Value,
        data_type: DataType::Int64,
    };
    Accumulator { state, is_merge: false }
}

/// A pipeline that aggregates.
fn of_accumulator(accumulator: Accumulator) -> Parts {
    Parts::sink(Sink::Aggregate { keys: vec![column(0)], accumulators: vec![accumulator], limits: limits() })
}

fn of_state(state: State) -> Parts {
    of_accumulator(Accumulator { state, ..accumulator() })
}

fn row_spec() -> RowSpec {
    RowSpec { keys: vec![column(0)], like: None, keeps_null_keys: false, payload: vec![0] }
}

#[test]
fn options_count() {
    let options =
        with_each_field_changed!(Parts::usual().options, GenerateOptions { hash_bits: 4, tested_strings_min: 1 });
    assert_all_differ(&options, |options| Parts { options, ..Parts::usual() });
}

/// Whether each number below `variants` comes.
fn assert_has_all(variants: usize, numbers: impl Iterator<Item = usize>) {
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..variants).collect::<Vec<_>>(), "a variant without a case");
}
