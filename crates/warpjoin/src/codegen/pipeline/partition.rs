//! Sinks that count or move rows by partition, and the rows of words that they make.
//!
//! A block takes a tile of rows, several a thread. Keys come first, then word after word of the rows
//! goes through shared memory (see `partition/partition.cuh`), so code for a word loads only the columns
//! that are in it.

use std::sync::Arc;

use super::source::open_source;
use super::steps::emit_step;
use crate::codegen::emit::{Binding, Emitter, Environment, PartitionPart, hoist_word, partition_hash};
use crate::codegen::expr::evaluate;
use crate::codegen::join::probe_values;
use crate::codegen::shapes::{Packing, PartitionStage, RowShape, RowSpec, SourceShape, Step};
use crate::codegen::value::{Kind, Value, ValueType};
use crate::expr::ExprKind;
use crate::{Error, Result};

/// The text of the kernel's body and what the rows are.
pub(super) fn partition(
    emitter: &mut Emitter,
    source: &SourceShape,
    steps: &[Step],
    spec: &RowSpec,
    stage: PartitionStage,
) -> Result<Arc<RowShape>> {
    if steps.iter().any(|step| matches!(step, Step::Probe(_))) {
        return Err(Error::internal("a probe in front of a partition"));
    }
    let mut scratch = Emitter::of_source(source);
    scratch.tested_strings_min = emitter.tested_strings_min;
    let writer = Writer { source, steps, spec, shape: Arc::new(row_shape(&mut scratch, source, steps, spec)?) };
    match stage {
        PartitionStage::Count => writer.count(emitter)?,
        PartitionStage::Scatter { .. } => writer.scatter(emitter)?,
    }
    Ok(writer.shape)
}

/// What the rows will be: evaluated once for the types alone.
fn row_shape(scratch: &mut Emitter, source: &SourceShape, steps: &[Step], spec: &RowSpec) -> Result<RowShape> {
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
        let is_key = |key: &crate::expr::Expr| matches!(key.kind, ExprKind::Column(index) if index == column);
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
fn environment(emitter: &mut Emitter, source: &SourceShape, steps: &[Step]) -> Result<Environment> {
    let mut environment = open_source(emitter, source);
    for step in steps {
        environment = emit_step(emitter, &environment, step, &mut 0)?;
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
    fn count(&self, emitter: &mut Emitter) -> Result<()> {
        let counts = emitter.params.once("u32*", Binding::Partition(PartitionPart::Counts));
        let rows = emitter.params.once("u64", Binding::SourceRows);
        let bits = emitter.params.once("u64", Binding::Partition(PartitionPart::Bits));
        emitter.line("u32* const counts = &shared_as<u32>();");
        emitter.line(&format!("const u32 partitions = 1u << {bits};"));
        emitter.line(
            "for (u32 partition = threadIdx.x; partition < partitions; partition += blockDim.x) counts[partition] = 0;",
        );
        emitter.line("__syncthreads();");
        emitter.line("const u64 step = (u64)blockDim.x * WJ_PARTITION_ITEMS;");
        emitter.open(&format!("for (u64 first = blockIdx.x * step; first < {rows}; first += gridDim.x * step)"));
        emitter.line(&format!("const u32 tile_rows = rows_of_tile({rows} - first);"));
        emitter.line("u32 places[WJ_PARTITION_ITEMS];");
        self.digits(emitter, None)?;
        emitter.line("WJ_UNROLL");
        emitter.open("for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item)");
        emitter.line("if (places[item] != WJ_UNRANKED) atomicAdd(&counts[places[item]], 1u);");
        emitter.close();
        emitter.close();
        emitter.line("__syncthreads();");
        emitter.open("for (u32 partition = threadIdx.x; partition < partitions; partition += blockDim.x)");
        emitter.line(&format!("if (counts[partition] != 0) atomicAdd(&{counts}[partition], counts[partition]);"));
        emitter.close();
        Ok(())
    }

    fn scatter(&self, emitter: &mut Emitter) -> Result<()> {
        let cursors = emitter.params.once("u32*", Binding::Partition(PartitionPart::Cursors));
        let bits = emitter.params.once("u64", Binding::Partition(PartitionPart::Bits));
        emitter.line(&format!("const u32 partitions = 1u << {bits};"));
        emitter.line("const PartitionTile tile = open_tile(partitions);");
        emitter.line("const u64 first = (u64)blockIdx.x * (blockDim.x * WJ_PARTITION_ITEMS);");
        let rows = emitter.params.once("u64", Binding::SourceRows);
        emitter.line(&format!("if (first >= {rows}) return;"));
        emitter.line(&format!("const u32 tile_rows = rows_of_tile({rows} - first);"));
        emitter.line("u32 places[WJ_PARTITION_ITEMS];");
        emitter.line("u64 values[WJ_PARTITION_ITEMS];");
        // A word that holds the whole key is made on the way.
        let is_single = self.shape.key_masks().len() == 1;
        self.digits(emitter, is_single.then_some(0))?;
        emitter.line("WJ_UNROLL");
        emitter.open("for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item)");
        emitter.line("if (places[item] != WJ_UNRANKED) places[item] = rank_row(tile, places[item]);");
        emitter.close();
        emitter.line(&format!("reserve_runs(tile, partitions, {cursors});"));
        emitter.line("place_rows(tile, places);");
        for (word, bytes) in self.shape.word_bytes().into_iter().enumerate() {
            if word > 0 || !is_single {
                self.word_values(emitter, word)?;
            }
            let output = emitter.params.once("u8*", Binding::Partition(PartitionPart::Word(word)));
            emitter.line(&format!("move_staged<u{}>(tile, values, places, {output});", bytes * 8));
        }
        Ok(())
    }

    /// Opens the loop over a thread's rows of the tile. Beyond the last row it is the last once more, so
    /// that no load waits for a branch.
    fn open_items(emitter: &mut Emitter, alive: &str) {
        emitter.line("WJ_UNROLL");
        emitter.open("for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item)");
        emitter.line("const u32 asked = item * blockDim.x + threadIdx.x;");
        emitter.line("const u64 row = first + (asked < tile_rows ? asked : tile_rows - 1);");
        emitter.line(&format!("bool alive = {alive};"));
    }

    /// Emits `places`: the partition of each row of the thread, or none. And `values`, if a word is
    /// wanted: that word.
    fn digits(&self, emitter: &mut Emitter, wanted: Option<usize>) -> Result<()> {
        let bits = emitter.params.once("u64", Binding::Partition(PartitionPart::Bits));
        Self::open_items(emitter, "true");
        emitter.line("places[item] = WJ_UNRANKED;");
        let environment = environment(emitter, self.source, self.steps)?;
        let keys = self.keys(emitter, &environment, true)?;
        let key_words = self.key_words(emitter, &keys);
        let row_word = wanted.map(|word| self.word(emitter, &environment, &keys, word)).transpose()?;
        let hash = partition_hash(&key_words);
        emitter.statement(&format!("if (asked < tile_rows) places[item] = partition_of({hash}, (u32){bits});"));
        if let Some(word) = row_word {
            emitter.statement(&format!("values[item] = {word};"));
        }
        emitter.close();
        Ok(())
    }

    /// Emits `values`: a word of each row of the thread that has a place.
    fn word_values(&self, emitter: &mut Emitter, word: usize) -> Result<()> {
        let is_filtered = self.steps.iter().any(|step| matches!(step, Step::Filter(_)));
        Self::open_items(emitter, if is_filtered { "places[item] != WJ_UNRANKED" } else { "true" });
        let projections: Vec<Step> = self.steps.iter().filter(|step| !step.drops_rows()).cloned().collect();
        let environment = environment(emitter, self.source, &projections)?;
        let has_key = (0..self.shape.keys).any(|field| self.shape.packing.is_in(field, word));
        let keys = if has_key { self.keys(emitter, &environment, false)? } else { vec![] };
        let word = self.word(emitter, &environment, &keys, word)?;
        emitter.statement(&format!("values[item] = {word};"));
        emitter.close();
        Ok(())
    }

    /// Emits the key values in the terms of the packing; drops rows that can't match if `narrows`.
    fn keys(&self, emitter: &mut Emitter, environment: &Environment, narrows: bool) -> Result<Vec<Value>> {
        let spec = self.spec;
        let (mut values, mut conditions) = match &spec.like {
            Some(_) => probe_values(emitter, environment, &self.shape.packing, &spec.keys, spec.keeps_null_keys)?,
            None => {
                let values = spec.keys.iter().map(|key| evaluate(emitter, key, environment)).collect::<Result<_>>()?;
                (values, vec![])
            }
        };
        for value in &mut values {
            *value = emitter.hoist(value.clone());
            if !spec.keeps_null_keys {
                conditions.extend(value.valid.take().filter(|_| spec.like.is_none()));
            }
        }
        if narrows && !conditions.is_empty() {
            emitter.narrow(&conditions.join(" && "));
        }
        Ok(values)
    }

    /// Emits the words of the key, without payload.
    fn key_words(&self, emitter: &mut Emitter, keys: &[Value]) -> Vec<String> {
        let fields: Vec<(usize, Value)> = keys.iter().cloned().enumerate().collect();
        let words = 0..self.shape.key_masks().len();
        words
            .map(|word| {
                let code = self.shape.packing.pack_word(emitter, &fields, word);
                hoist_word(emitter, &code)
            })
            .collect()
    }

    /// Emits a word of the row.
    fn word(&self, emitter: &mut Emitter, environment: &Environment, keys: &[Value], word: usize) -> Result<String> {
        let shape = &self.shape;
        let mut fields: Vec<(usize, Value)> = keys.iter().cloned().enumerate().collect();
        for (column, field) in shape.field_of.iter().enumerate() {
            let field = field.filter(|&field| field >= shape.keys && shape.packing.is_in(field, word));
            if let Some(field) = field {
                fields.push((field, emitter.column(environment, column)?));
            }
        }
        Ok(shape.packing.pack_word(emitter, &fields, word))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use arrow::array::{ArrayRef, StringArray};
    use arrow::datatypes::DataType;
    use arrow::error::ArrowError;

    use super::*;
    use crate::codegen::{GenerateOptions, Lookup, Sink, ValidityForm, generate};
    use crate::column::{ColumnType, Dictionary, Domain};
    use crate::expr::{Expr, HostFunction};
    use crate::string_test::StringTest;

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
            generate(
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
