//! Sinks.

use super::*;

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
                keeps_words: false,
                columns: vec![0],
            },
            Sink::Route {
                shape: other_join_shape(),
                keys: vec![column(1)],
                null_equals_null: true,
                keeps_unmatched: true,
                keeps_words: true,
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
            Sink::Route { shape: _, keys: _, null_equals_null: _, keeps_unmatched: _, keeps_words: _, columns: _ } => 5,
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
