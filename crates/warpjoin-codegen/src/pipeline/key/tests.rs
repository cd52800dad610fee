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

/// A variant that is not named here does not compile.
#[test]
fn sources_differ() {
    let all = [
        with_each_field_changed_of_columns(),
        vec![SourceShape::Groups(Arc::new(group_shape()))],
        with_each_field_of_variant_changed!(
            SourceShape::Matches {
                build: Arc::new(row_shape()),
                probe: Arc::new(row_shape()),
                form: MatchForm::Chains
            },
            SourceShape::Matches { build: other_row_shape(), probe: other_row_shape(), form: MatchForm::Semi }
        ),
        with_each_field_of_variant_changed!(
            SourceShape::Words { rows: Arc::new(row_shape()), by_partition: true },
            SourceShape::Words { rows: other_row_shape(), by_partition: false }
        ),
    ]
    .concat();
    let variant = |source: &SourceShape| match source {
        SourceShape::Columns(_, _) => 0,
        SourceShape::Groups(_) => 1,
        SourceShape::Matches { build: _, probe: _, form: _ } => 2,
        SourceShape::Words { rows: _, by_partition: _ } => 3,
    };
    assert_has_all(4, all.iter().map(variant));
    assert_all_differ(&all, Parts::source);
    let forms = [MatchForm::Chains, MatchForm::Semi, MatchForm::Lists];
    assert_has_all(
        3,
        forms.iter().map(|form| match form {
            MatchForm::Chains => 0,
            MatchForm::Semi => 1,
            MatchForm::Lists => 2,
        }),
    );
    let of_form = |form| SourceShape::Matches { build: Arc::new(row_shape()), probe: Arc::new(row_shape()), form };
    assert_all_differ(&forms, |form| Parts::source(of_form(form)));
}

fn with_each_field_changed_of_columns() -> Vec<SourceShape> {
    vec![
        SourceShape::Columns(vec![column_type()], ValidityForm::Bits),
        SourceShape::Columns(vec![other_column_type()], ValidityForm::Bits),
        SourceShape::Columns(vec![column_type(), column_type()], ValidityForm::Bits),
        SourceShape::Columns(vec![], ValidityForm::Bits),
        SourceShape::Columns(vec![column_type()], ValidityForm::Bytes),
    ]
}

/// Whether each number below `variants` comes.
fn assert_has_all(variants: usize, numbers: impl Iterator<Item = usize>) {
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..variants).collect::<Vec<_>>(), "a variant without a case");
}

#[test]
fn column_types_differ_by_each_field() {
    let types = with_each_field_changed!(
        column_type(),
        ColumnType {
            data_type: DataType::Int32,
            has_nulls: false,
            domain: Domain::Int { min: 0, max: 101 },
            dictionary: Some(dictionary()),
        }
    );
    let of = |column: ColumnType| Parts::source(SourceShape::Columns(vec![column], ValidityForm::Bits));
    assert_all_differ(&types, of);
    // Equal values in another object: what is made of one is not made of the other.
    let dictionaries = [dictionary(), dictionary()];
    assert_all_differ(&dictionaries, |dictionary| of(ColumnType { dictionary: Some(dictionary), ..column_type() }));
    let domains = [
        Domain::Int { min: 0, max: 100 },
        Domain::Int { min: 1, max: 100 },
        Domain::Int { min: 0, max: 101 },
        Domain::Float32,
        Domain::Float64,
        Domain::Bytes,
    ];
    assert_has_all(
        4,
        domains.iter().map(|domain| match domain {
            Domain::Int { min: _, max: _ } => 0,
            Domain::Float32 => 1,
            Domain::Float64 => 2,
            Domain::Bytes => 3,
        }),
    );
    assert_all_differ(&domains, |domain| of(ColumnType { domain, ..column_type() }));
}

#[test]
fn packings_differ_by_each_field() {
    let of = |packing: Packing| of_join_shape(JoinShape { packing, ..join_shape() });
    let of_field = |field: PackedField| of(Packing { fields: vec![field], ..packing() });
    let packings =
        with_each_field_changed!(packing(), Packing { fields: vec![field(), field()], word_bits: vec![7, 0] });
    assert_all_differ(&packings, of);
    let fields = with_each_field_changed!(
        field(),
        PackedField {
            value: ValueType { nullable: true, ..value() },
            place: Place { word: 1, ..field().place },
            null_place: Some(field().place),
            is_exact: true,
        }
    );
    assert_all_differ(&fields, of_field);
    let places = with_each_field_changed!(field().place, Place { word: 1, shift: 1, bits: 8 });
    assert_all_differ(&places, |place| of_field(PackedField { place, ..field() }));
    let values = with_each_field_changed!(
        value(),
        ValueType { kind: Kind::F64, data_type: DataType::Int32, dictionary: Some(dictionary()), nullable: true }
    );
    assert_all_differ(&values, |value| of_field(PackedField { value, ..field() }));
    let range = with_each_field_changed!(Range::new(0, 100), Range { min: 1, max: 101 });
    let kinds: Vec<Kind> = range.into_iter().map(Kind::Int).chain([Kind::Bool, Kind::F32, Kind::F64]).collect();
    assert_has_all(
        4,
        kinds.iter().map(|kind| match kind {
            Kind::Bool => 0,
            Kind::Int(_) => 1,
            Kind::F32 => 2,
            Kind::F64 => 3,
        }),
    );
    assert_all_differ(&kinds, |kind| of_field(PackedField { value: ValueType { kind, ..value() }, ..field() }));
}

#[test]
fn group_shapes_differ_by_each_field() {
    let shapes = with_each_field_changed!(
        group_shape(),
        GroupShape {
            mode: GroupMode::Wide,
            front: PreAggregation::Hashed { slots: 64 },
            by_range: true,
            is_cut: true,
            has_finished: true,
            packing: other_packing(),
            stride_words: 4,
            accumulators: vec![(AccumulatorKind::Count, 2)],
            results: vec![],
        }
    );
    assert_all_differ(&shapes, of_groups);
    let modes = [GroupMode::Global, GroupMode::Dense, GroupMode::Narrow, GroupMode::Wide];
    assert_has_all(
        4,
        modes.iter().map(|mode| match mode {
            GroupMode::Global => 0,
            GroupMode::Dense => 1,
            GroupMode::Narrow => 2,
            GroupMode::Wide => 3,
        }),
    );
    assert_all_differ(&modes, |mode| of_groups(GroupShape { mode, ..group_shape() }));
    let keyed = with_each_field_of_variant_changed!(
        PreAggregation::Keyed { slots: 64, replica_bits: 1 },
        PreAggregation::Keyed { slots: 65, replica_bits: 2 }
    );
    let hashed =
        with_each_field_of_variant_changed!(PreAggregation::Hashed { slots: 64 }, PreAggregation::Hashed { slots: 65 });
    let fronts = [vec![PreAggregation::None], keyed, hashed].concat();
    assert_has_all(
        3,
        fronts.iter().map(|front| match front {
            PreAggregation::None => 0,
            PreAggregation::Keyed { slots: _, replica_bits: _ } => 1,
            PreAggregation::Hashed { slots: _ } => 2,
        }),
    );
    assert_all_differ(&fronts, |front| of_groups(GroupShape { front, ..group_shape() }));
    let of_result = |result: AccumulatorResult| of_groups(GroupShape { results: vec![result], ..group_shape() });
    let results = with_each_field_changed!(
        accumulator_result(),
        AccumulatorResult {
            word: 2,
            encoding: AccumulatorKind::Sum128,
            value: ValueType { kind: Kind::F32, ..result_type() },
            count_word: Some(2),
        }
    );
    assert_all_differ(&results, of_result);
    let types = with_each_field_changed!(
        result_type(),
        ValueType { kind: Kind::Bool, data_type: DataType::Boolean, dictionary: Some(dictionary()), nullable: true }
    );
    assert_all_differ(&types, |value| of_result(AccumulatorResult { value, ..accumulator_result() }));
}

#[test]
fn kinds_of_accumulators_differ() {
    use AccumulatorKind::{
        BitAnd, BitOr, BitXor, Count, MaxFloat, MaxInt, MaxUnsigned, MinFloat, MinInt, MinUnsigned, Sum64, Sum128,
        SumFloat,
    };
    let kinds = [
        Count,
        Sum64,
        Sum128,
        SumFloat,
        MaxInt,
        MinInt,
        MaxFloat,
        MinFloat,
        MaxUnsigned,
        MinUnsigned,
        BitAnd,
        BitOr,
        BitXor,
    ];
    assert_has_all(
        13,
        kinds.iter().map(|kind| match kind {
            Count => 0,
            Sum64 => 1,
            Sum128 => 2,
            SumFloat => 3,
            MaxInt => 4,
            MinInt => 5,
            MaxFloat => 6,
            MinFloat => 7,
            MaxUnsigned => 8,
            MinUnsigned => 9,
            BitAnd => 10,
            BitOr => 11,
            BitXor => 12,
        }),
    );
    assert_all_differ(&kinds, |kind| of_groups(GroupShape { accumulators: vec![(kind, 1)], ..group_shape() }));
}

#[test]
fn row_shapes_differ_by_each_field() {
    let shapes =
        with_each_field_changed!(row_shape(), RowShape { packing: other_packing(), keys: 0, field_of: vec![None] });
    assert_all_differ(&shapes, |shape| Parts::source(SourceShape::Words { rows: Arc::new(shape), by_partition: true }));
}

#[test]
fn steps_differ() {
    let fetch = || FetchStep { number: 0, row: 0, columns: vec![0], types: vec![column_type()], shards: 1 };
    let fetches = with_each_field_changed!(
        fetch(),
        FetchStep { number: 1, row: 1, columns: vec![1], types: vec![other_column_type()], shards: 2 }
    );
    let steps = [
        vec![Step::Filter(column(0)), Step::Filter(column(1))],
        vec![Step::Project(vec![column(0)]), Step::Project(vec![column(1)]), Step::Project(vec![])],
        vec![Step::Probe(probe())],
        fetches.into_iter().map(|fetch| Step::Fetch(Arc::new(fetch))).collect(),
        vec![Step::Compact],
    ]
    .concat();
    assert_has_all(
        5,
        steps.iter().map(|step| match step {
            Step::Filter(_) => 0,
            Step::Project(_) => 1,
            Step::Probe(_) => 2,
            Step::Fetch(_) => 3,
            Step::Compact => 4,
        }),
    );
    assert_all_differ(&steps, Parts::step);
    let (filter, project) = (Step::Filter(column(0)), Step::Project(vec![column(0)]));
    let lists = [
        vec![],
        vec![filter.clone()],
        vec![filter.clone(), filter.clone()],
        vec![filter.clone(), project.clone()],
        vec![project, filter],
    ];
    assert_all_differ(&lists, |steps| Parts { steps, ..Parts::usual() });
}

#[test]
fn probes_differ_by_each_field() {
    let probes = with_each_field_changed!(
        probe(),
        ProbeStep {
            shape: other_join_shape(),
            key: ProbeKey::Exprs(vec![column(1)]),
            kind: ProbeKind::Outer,
            null_equals_null: true,
            residual: Some(column(0)),
            output: vec![1],
            payload_of: vec![None],
            filter: Some(FilterTest::Table),
            is_counted: true,
        }
    );
    assert_all_differ(&probes, |probe| Parts::step(Step::Probe(probe)));
    let stored =
        with_each_field_changed!(StoredKey { word: 0, packed: vec![] }, StoredKey { word: 1, packed: vec![1] });
    let keys: Vec<ProbeKey> =
        std::iter::once(ProbeKey::Exprs(vec![column(0)])).chain(stored.into_iter().map(ProbeKey::Stored)).collect();
    assert_has_all(
        2,
        keys.iter().map(|key| match key {
            ProbeKey::Exprs(_) => 0,
            ProbeKey::Stored(_) => 1,
        }),
    );
    assert_all_differ(&keys, |key| probing(|probe| probe.key = key));
    let kinds = [ProbeKind::Matches, ProbeKind::Semi, ProbeKind::Anti, ProbeKind::Mark, ProbeKind::Outer];
    assert_has_all(
        5,
        kinds.iter().map(|kind| match kind {
            ProbeKind::Matches => 0,
            ProbeKind::Semi => 1,
            ProbeKind::Anti => 2,
            ProbeKind::Mark => 3,
            ProbeKind::Outer => 4,
        }),
    );
    assert_all_differ(&kinds, |kind| probing(|probe| probe.kind = kind));
    let bitmaps = with_each_field_of_variant_changed!(
        FilterTest::Bitmap { has_bounds: false },
        FilterTest::Bitmap { has_bounds: true }
    );
    let blooms = with_each_field_of_variant_changed!(
        FilterTest::Bloom { has_bounds: false },
        FilterTest::Bloom { has_bounds: true }
    );
    let filters = [vec![FilterTest::Table, FilterTest::Bounds], bitmaps, blooms].concat();
    assert_has_all(
        4,
        filters.iter().map(|filter| match filter {
            FilterTest::Table => 0,
            FilterTest::Bounds => 1,
            FilterTest::Bitmap { has_bounds: _ } => 2,
            FilterTest::Bloom { has_bounds: _ } => 3,
        }),
    );
    assert_all_differ(&filters, |filter| probing(|probe| probe.filter = Some(filter)));
}

#[test]
fn join_shapes_differ_by_each_field() {
    let shapes = with_each_field_changed!(
        join_shape(),
        JoinShape {
            packing: other_packing(),
            payload: PayloadForm::Packed(other_packing()),
            unique: false,
            slots: Slots::Pairs { lanes: 2 },
        }
    );
    assert_all_differ(&shapes, of_join_shape);
    let payloads = [
        PayloadForm::Packed(packing()),
        PayloadForm::Packed(other_packing()),
        PayloadForm::Columns(vec![column_type()]),
        PayloadForm::Columns(vec![other_column_type()]),
        PayloadForm::Columns(vec![]),
    ];
    assert_has_all(
        2,
        payloads.iter().map(|payload| match payload {
            PayloadForm::Packed(_) => 0,
            PayloadForm::Columns(_) => 1,
        }),
    );
    assert_all_differ(&payloads, |payload| of_join_shape(JoinShape { payload, ..join_shape() }));
    let pairs = with_each_field_of_variant_changed!(Slots::Pairs { lanes: 1 }, Slots::Pairs { lanes: 2 });
    let words = with_each_field_changed!(WordSlots { bytes: 4, key_bits: 10 }, WordSlots { bytes: 8, key_bits: 11 });
    let direct = with_each_field_changed!(
        DirectSlots { bytes: 4, holds_payload: false },
        DirectSlots { bytes: 8, holds_payload: true }
    );
    let slots: Vec<Slots> = pairs
        .into_iter()
        .chain(words.into_iter().map(Slots::Words))
        .chain(direct.into_iter().map(Slots::Direct))
        .chain([Slots::Bits])
        .collect();
    assert_has_all(
        4,
        slots.iter().map(|slots| match slots {
            Slots::Pairs { lanes: _ } => 0,
            Slots::Words(_) => 1,
            Slots::Direct(_) => 2,
            Slots::Bits => 3,
        }),
    );
    assert_all_differ(&slots, |slots| of_join_shape(JoinShape { slots, ..join_shape() }));
}

/// Sinks, each with one field changed after the other.
fn sinks() -> Vec<Sink> {
    let keys = || vec![column(0)];
    let sort_key = || SortKey { expr: column(0), descending: false, nulls_first: false };
    let falling = || SortKey { descending: true, ..sort_key() };
    let window = || WindowKeys { partition_keys: 1, compared: vec![] };
    [
        vec![Sink::Materialise(vec![0]), Sink::Materialise(vec![1]), Sink::Materialise(vec![])],
        with_each_field_of_variant_changed!(
            Sink::Limit { columns: vec![0], wanted: 1 },
            Sink::Limit { columns: vec![1], wanted: 2 }
        ),
        vec![Sink::Conform(vec![column_type()]), Sink::Conform(vec![other_column_type()])],
        with_each_field_of_variant_changed!(
            Sink::Build { keys: keys(), null_equals_null: false, payload: vec![0] },
            Sink::Build { keys: vec![column(1)], null_equals_null: true, payload: vec![1] }
        ),
        with_each_field_of_variant_changed!(
            Sink::Direct { keys: keys(), null_equals_null: false, payload: vec![0], is_set: false },
            Sink::Direct { keys: vec![column(1)], null_equals_null: true, payload: vec![1], is_set: true }
        ),
        with_each_field_of_variant_changed!(
            Sink::Route {
                shape: Arc::new(join_shape()),
                keys: keys(),
                null_equals_null: false,
                keeps_unmatched: false,
                columns: vec![0],
            },
            Sink::Route {
                shape: other_join_shape(),
                keys: vec![column(1)],
                null_equals_null: true,
                keeps_unmatched: true,
                columns: vec![1],
            }
        ),
        with_each_field_of_variant_changed!(
            Sink::RouteGroups { keys: vec![0], columns: vec![0] },
            Sink::RouteGroups { keys: vec![1], columns: vec![1] }
        ),
        with_each_field_of_variant_changed!(
            Sink::Sort { keys: vec![sort_key()], columns: vec![0], window: None },
            Sink::Sort { keys: vec![falling()], columns: vec![1], window: Some(window()) }
        ),
        vec![Sink::InPlace(vec![0]), Sink::InPlace(vec![1])],
        with_each_field_of_variant_changed!(
            Sink::Partition { stage: PartitionStage::Count, rows: row_spec() },
            Sink::Partition {
                stage: PartitionStage::Scatter { threads: 1, threads_of_one_word: 1 },
                rows: RowSpec { payload: vec![1], ..row_spec() },
            }
        ),
        with_each_field_of_variant_changed!(Sink::Sketch { keys: keys() }, Sink::Sketch { keys: vec![column(1)] }),
        with_each_field_of_variant_changed!(
            Sink::Aggregate { keys: keys(), accumulators: vec![accumulator()], limits: limits() },
            Sink::Aggregate { keys: vec![], accumulators: vec![], limits: GroupLimits { is_sorted: true, ..limits() } }
        ),
    ]
    .concat()
}

#[test]
fn sinks_differ_by_each_field() {
    let sinks = sinks();
    assert_has_all(
        12,
        sinks.iter().map(|sink| match sink {
            Sink::Materialise(_) => 0,
            Sink::Limit { columns: _, wanted: _ } => 1,
            Sink::Conform(_) => 2,
            Sink::Build { keys: _, null_equals_null: _, payload: _ } => 3,
            Sink::Direct { keys: _, null_equals_null: _, payload: _, is_set: _ } => 4,
            Sink::Route { shape: _, keys: _, null_equals_null: _, keeps_unmatched: _, columns: _ } => 5,
            Sink::RouteGroups { keys: _, columns: _ } => 6,
            Sink::Sort { keys: _, columns: _, window: _ } => 7,
            Sink::InPlace(_) => 8,
            Sink::Partition { stage: _, rows: _ } => 9,
            Sink::Sketch { keys: _ } => 10,
            Sink::Aggregate { keys: _, accumulators: _, limits: _ } => 11,
        }),
    );
    assert_all_differ(&sinks, Parts::sink);
}

#[test]
fn parts_of_sinks_differ_by_each_field() {
    let windows = with_each_field_changed!(
        WindowKeys { partition_keys: 1, compared: vec![] },
        WindowKeys { partition_keys: 2, compared: vec![0] }
    );
    let sorted = |window| Sink::Sort { keys: vec![], columns: vec![], window: Some(window) };
    assert_all_differ(&windows, |window| Parts::sink(sorted(window)));
    let scatters = with_each_field_of_variant_changed!(
        PartitionStage::Scatter { threads: 1, threads_of_one_word: 1 },
        PartitionStage::Scatter { threads: 2, threads_of_one_word: 2 }
    );
    let stages = [vec![PartitionStage::Count], scatters].concat();
    assert_has_all(
        2,
        stages.iter().map(|stage| match stage {
            PartitionStage::Count => 0,
            PartitionStage::Scatter { threads: _, threads_of_one_word: _ } => 1,
        }),
    );
    assert_all_differ(&stages, |stage| Parts::sink(Sink::Partition { stage, rows: row_spec() }));
    let specs = with_each_field_changed!(
        row_spec(),
        RowSpec { keys: vec![], like: Some(other_row_shape()), keeps_null_keys: true, payload: vec![] }
    );
    assert_all_differ(&specs, |rows| Parts::sink(Sink::Partition { stage: PartitionStage::Count, rows }));
}

#[test]
fn parts_of_aggregates_differ_by_each_field() {
    let of_limits = |limits| Parts::sink(Sink::Aggregate { keys: vec![], accumulators: vec![], limits });
    let limited = with_each_field_changed!(
        limits(),
        GroupLimits {
            rows_bits: 21,
            shared_bytes_max: 1001,
            form: Some(GroupByForm::Global),
            block_slots: Some(0),
            table_blocks: 2,
            is_skewed: true,
            is_sorted: true,
            by_range: true,
            is_scarce: true,
            is_cut: true,
        }
    );
    assert_all_differ(&limited, of_limits);
    let forms = [GroupByForm::Global, GroupByForm::BlockTable, GroupByForm::Partitioned];
    assert_has_all(
        3,
        forms.iter().map(|form| match form {
            GroupByForm::Global => 0,
            GroupByForm::BlockTable => 1,
            GroupByForm::Partitioned => 2,
        }),
    );
    assert_all_differ(&forms, |form| of_limits(GroupLimits { form: Some(form), ..limits() }));
    let accumulators = with_each_field_changed!(
        accumulator(),
        Accumulator { state: State { fold: Fold::Min, ..accumulator().state }, is_merge: true }
    );
    assert_all_differ(&accumulators, of_accumulator);
    let states = with_each_field_changed!(
        accumulator().state,
        State {
            fold: Fold::Max,
            argument: None,
            second: Some(column(0)),
            term: Term::Product,
            data_type: DataType::Int32,
        }
    );
    assert_all_differ(&states, of_state);
    let folds = [Fold::Count, Fold::Sum, Fold::Min, Fold::Max, Fold::BitAnd, Fold::BitOr, Fold::BitXor];
    assert_has_all(
        7,
        folds.iter().map(|fold| match fold {
            Fold::Count => 0,
            Fold::Sum => 1,
            Fold::Min => 2,
            Fold::Max => 3,
            Fold::BitAnd => 4,
            Fold::BitOr => 5,
            Fold::BitXor => 6,
        }),
    );
    assert_all_differ(&folds, |fold| of_state(State { fold, ..accumulator().state }));
    let terms = [Term::Value, Term::Distance, Term::Product];
    assert_has_all(
        3,
        terms.iter().map(|term| match term {
            Term::Value => 0,
            Term::Distance => 1,
            Term::Product => 2,
        }),
    );
    assert_all_differ(&terms, |term| of_state(State { term, ..accumulator().state }));
}
