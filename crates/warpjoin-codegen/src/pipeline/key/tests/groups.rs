//! Group tables, accumulators and rows.

use super::*;

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
