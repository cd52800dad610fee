//! Steps: probes and join tables.

use super::*;

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
