//! Sources: columns, their types and how keys of them are packed.

use super::*;

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
