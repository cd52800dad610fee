//! Sinks that count or move rows by partition, and the rows of words that they make.
//!
//! A block takes a tile of rows, several a thread. Keys come first, then word after word of the rows
//! goes through shared memory (see `partition/partition.cuh`), so code for a word loads only the columns
//! that are in it.

use std::sync::Arc;

use warpjoin_columns::expr::ExprKind;
use warpjoin_columns::{Error, Result};

use super::source::open_source;
use super::steps::bind_step;
use crate::bind::{Binder, Environment, Value, hoist_word, partition_hash};
use crate::expr::evaluate;
use crate::join::probe_values;
use crate::program::{Binding, Code, Field, Item, Op, PartitionItem, PartitionPart, Statement, Type, Variable};
use crate::shapes::{Packing, PartitionStage, RowShape, RowSpec, SourceShape, Step};
use crate::value::{CType, Kind, ValueType};

/// Binds the kernel's body; returns what the rows are.
pub(super) fn partition(
    b: &mut Binder,
    source: &SourceShape,
    steps: &[Step],
    spec: &RowSpec,
    stage: PartitionStage,
) -> Result<Arc<RowShape>> {
    if steps.iter().any(|step| matches!(step, Step::Probe(_))) {
        return Err(Error::internal("a probe in front of a partition"));
    }
    let mut scratch = Binder::of_source(source);
    scratch.tested_strings_min = b.tested_strings_min;
    let writer = Writer { source, steps, spec, shape: Arc::new(row_shape(&mut scratch, source, steps, spec)?) };
    match stage {
        PartitionStage::Count => writer.count(b)?,
        PartitionStage::Scatter { .. } => writer.scatter(b)?,
    }
    Ok(writer.shape)
}

/// What the rows will be: bound once for the types alone.
fn row_shape(scratch: &mut Binder, source: &SourceShape, steps: &[Step], spec: &RowSpec) -> Result<RowShape> {
    let environment = environment(scratch, source, steps)?;
    let mut keys = vec![];
    for key in &spec.keys {
        let value = evaluate(scratch, key, &environment)?;
        let key = value.value_type();
        keys.push(ValueType { nullable: key.nullable && spec.keeps_null_keys, ..key });
    }
    let key_packing = match &spec.like {
        Some(other) => Packing::of(other.key_types()),
        None => Packing::of(keys.iter().cloned()),
    };
    let mut field_of = vec![None; environment.len()];
    let mut payload = vec![];
    for &column in &spec.payload {
        // A key that is an integer column is that column too.
        let is_key =
            |key: &warpjoin_columns::expr::Expr| matches!(key.kind, ExprKind::Column(index) if index == column);
        // Strings of two Arrow types are the same codes, and still two types.
        let is_same = |key: usize| match &spec.like {
            Some(other) => other.packing.fields[key].value.data_type == keys[key].data_type,
            None => true,
        };
        let is_exact = |key: usize| !matches!(keys[key].kind, Kind::F32 | Kind::F64);
        let key = spec.keys.iter().position(is_key).filter(|&key| is_exact(key) && is_same(key));
        field_of[column] = Some(key.unwrap_or(spec.keys.len() + payload.len()));
        if key.is_none() {
            payload.push(scratch.column(&environment, column)?.value_type());
        }
    }
    Ok(RowShape { packing: key_packing.with_payload(payload), keys: spec.keys.len(), field_of })
}

/// The columns after the steps; filters drop rows.
fn environment(b: &mut Binder, source: &SourceShape, steps: &[Step]) -> Result<Environment> {
    let mut environment = open_source(b, source);
    for step in steps {
        environment = bind_step(b, &environment, step, &mut 0)?;
    }
    Ok(environment)
}

struct Writer<'a> {
    source: &'a SourceShape,
    steps: &'a [Step],
    spec: &'a RowSpec,
    shape: Arc<RowShape>,
}

impl Writer<'_> {
    fn count(&self, b: &mut Binder) -> Result<()> {
        let counts = b.params.once(Type::Output(CType::U32), Binding::Partition(PartitionPart::Counts));
        let rows = b.params.once(Type::Value(CType::U64), Binding::SourceRows);
        let bits = b.params.once(Type::Value(CType::U64), Binding::Partition(PartitionPart::Bits));
        b.item(Item::Partition(PartitionItem::OpenCount { rows, bits }));
        self.digits(b, bits, None)?;
        b.item(Item::Partition(PartitionItem::CloseCount { counts }));
        Ok(())
    }

    fn scatter(&self, b: &mut Binder) -> Result<()> {
        let cursors = b.params.once(Type::Output(CType::U32), Binding::Partition(PartitionPart::Cursors));
        let bits = b.params.once(Type::Value(CType::U64), Binding::Partition(PartitionPart::Bits));
        let rows = b.params.once(Type::Value(CType::U64), Binding::SourceRows);
        b.item(Item::Partition(PartitionItem::OpenTile { rows, bits }));
        // A word that holds the whole key is made on the way.
        let is_single = self.shape.key_masks().len() == 1;
        self.digits(b, bits, is_single.then_some(0))?;
        b.item(Item::Partition(PartitionItem::Place { cursors }));
        for (word, bytes) in self.shape.word_bytes().into_iter().enumerate() {
            if word > 0 || !is_single {
                self.word_values(b, word)?;
            }
            let output = b.params.once(Type::Output(CType::U8), Binding::Partition(PartitionPart::Word(word)));
            b.item(Item::Partition(PartitionItem::MoveWord { output, bytes }));
        }
        Ok(())
    }

    /// Binds `places`: the partition of each row of the thread, or none. And `values`, if a word is
    /// wanted: that word.
    fn digits(&self, b: &mut Binder, bits: Field, wanted: Option<usize>) -> Result<()> {
        b.item(Item::Partition(PartitionItem::OpenRows { of_placed: false }));
        b.item(Item::Partition(PartitionItem::Unplace));
        let environment = environment(b, self.source, self.steps)?;
        let keys = self.keys(b, &environment, true)?;
        let key_words = self.key_words(b, &keys);
        let row_word = wanted.map(|word| self.word(b, &environment, &keys, word)).transpose()?;
        let hash = partition_hash(b, &key_words);
        let skipped_bits = b.params.once(Type::Value(CType::U64), Binding::Partition(PartitionPart::SkippedBits));
        b.push(Statement::PlaceInPartition { hash, bits, skipped_bits });
        if let Some(code) = row_word {
            b.push(Statement::Keep { array: Variable::Values, code });
        }
        b.close();
        Ok(())
    }

    /// Binds `values`: a word of each row of the thread that has a place.
    fn word_values(&self, b: &mut Binder, word: usize) -> Result<()> {
        let of_placed = self.steps.iter().any(|step| matches!(step, Step::Filter(_)));
        b.item(Item::Partition(PartitionItem::OpenRows { of_placed }));
        let projections: Vec<Step> = self.steps.iter().filter(|step| !step.drops_rows()).cloned().collect();
        let environment = environment(b, self.source, &projections)?;
        let has_key = (0..self.shape.keys).any(|field| self.shape.packing.is_in(field, word));
        let keys = if has_key { self.keys(b, &environment, false)? } else { vec![] };
        let code = self.word(b, &environment, &keys, word)?;
        b.push(Statement::Keep { array: Variable::Values, code });
        b.close();
        Ok(())
    }

    /// Binds the key values in the terms of the packing; drops rows that can't match if `narrows`.
    fn keys(&self, b: &mut Binder, environment: &Environment, narrows: bool) -> Result<Vec<Value>> {
        let spec = self.spec;
        let (mut values, mut conditions) = match &spec.like {
            Some(_) => probe_values(b, environment, &self.shape.packing, &spec.keys, spec.keeps_null_keys)?,
            None => {
                let values = spec.keys.iter().map(|key| evaluate(b, key, environment)).collect::<Result<_>>()?;
                (values, vec![])
            }
        };
        for value in &mut values {
            *value = b.hoist(value.clone());
            if !spec.keeps_null_keys {
                conditions.extend(value.valid.take().filter(|_| spec.like.is_none()));
            }
        }
        if let (true, Some(all)) = (narrows, b.chain(Op::And, conditions)) {
            b.narrow(all);
        }
        Ok(values)
    }

    /// Binds the words of the key, without payload.
    fn key_words(&self, b: &mut Binder, keys: &[Value]) -> Vec<Code> {
        let fields: Vec<(usize, Value)> = keys.iter().cloned().enumerate().collect();
        let words = 0..self.shape.key_masks().len();
        words
            .map(|word| {
                let code = self.shape.packing.pack_word(b, &fields, word);
                hoist_word(b, code)
            })
            .collect()
    }

    /// Binds a word of the row.
    fn word(&self, b: &mut Binder, environment: &Environment, keys: &[Value], word: usize) -> Result<Code> {
        let shape = &self.shape;
        let mut fields: Vec<(usize, Value)> = keys.iter().cloned().enumerate().collect();
        for (column, field) in shape.field_of.iter().enumerate() {
            let field = field.filter(|&field| field >= shape.keys && shape.packing.is_in(field, word));
            if let Some(field) = field {
                fields.push((field, b.column(environment, column)?));
            }
        }
        Ok(shape.packing.pack_word(b, &fields, word))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use arrow::array::{ArrayRef, StringArray};
    use arrow::datatypes::DataType;
    use arrow::error::ArrowError;
    use warpjoin_columns::column::{ColumnType, Dictionary, Domain};
    use warpjoin_columns::expr::{Expr, HostFunction};
    use warpjoin_columns::string_test::StringTest;

    use super::*;
    use crate::{GenerateOptions, Lookup, Sink, ValidityForm, bind_pipeline};

    /// LIKE that the host must not evaluate.
    #[derive(Debug)]
    struct OfDevices;

    impl fmt::Display for OfDevices {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "LIKE")
        }
    }

    impl HostFunction for OfDevices {
        fn evaluate(&self, _: &[ArrayRef]) -> std::result::Result<ArrayRef, ArrowError> {
            Err(ArrowError::ComputeError("evaluated on the host".into()))
        }

        fn test(&self) -> Option<StringTest> {
            Some(StringTest::Like { pattern: "%a%".into(), ignores_case: false })
        }

        fn data_type(&self) -> DataType {
            DataType::Boolean
        }
    }

    #[test]
    fn strings_that_devices_test_are_not_tested_on_the_host() {
        let values: ArrayRef = Arc::new(StringArray::from_iter_values((0..100).map(|n| format!("value {n}"))));
        let (dictionary, _) = Dictionary::of_array(&values).expect("a dictionary");
        let domain = Domain::Int { min: 0, max: 99 };
        let dictionary = Some(Arc::new(dictionary));
        let column = ColumnType { data_type: DataType::Utf8, has_nulls: false, domain, dictionary };
        let source = SourceShape::Columns(vec![column], ValidityForm::Bits);
        let text = Expr::column(0, DataType::Utf8, false);
        let function: Arc<dyn HostFunction> = Arc::new(OfDevices);
        let kind = ExprKind::Tabulated { operands: vec![text.clone()], function };
        let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
        let rows = RowSpec { keys: vec![text], like: None, keeps_null_keys: false, payload: vec![] };
        let sink = Sink::Partition { stage: PartitionStage::Count, rows };
        let generated = |tested_strings_min: usize| {
            bind_pipeline(
                &source,
                &[Step::Filter(predicate.clone())],
                &sink,
                GenerateOptions { hash_bits: 64, tested_strings_min },
            )
        };
        let of_devices = generated(100).expect("a kernel");
        assert!(matches!(of_devices.lookups.as_slice(), [Lookup::Test(_)]));
        assert!(generated(101).is_err(), "fewer strings are tested on the host");
    }
}
