//! Functions of dictionaries: evaluated once a distinct value, and read by code in the pipeline. On the host, or,
//! where they are tests of many strings, on the devices.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema};
use rayon::prelude::*;

use super::emitter::Emitter;
use super::params::Binding;
use super::remembered::{self, Made};
use super::value::{CType, Kind, Range, Value};
use crate::column::{ColumnStatistics, ColumnType, Dictionary, Domain, EncodedColumn, StringEncoding, TableEncoder};
use crate::expr::{DictionaryFunction, StringTest};
use crate::string_test::TestProgram;
use crate::{Error, Reason, Result};

/// What a pipeline reads by code.
#[derive(Debug, Clone)]
pub(crate) enum Lookup {
    /// Made on the host.
    Column(Arc<EncodedColumn>),
    /// One byte a value, made on the devices.
    Test(DictionaryTest),
}

/// A test of all values of a dictionary.
#[derive(Debug, Clone)]
pub(crate) struct DictionaryTest {
    pub dictionary: Arc<Dictionary>,
    pub program: Arc<TestProgram>,
}

/// Tests of one function that devices run one after the other; of more, the host is the faster one.
const TESTS_MAX: usize = 8;
/// Values that a core evaluates at a time.
const HOST_CHUNK: usize = 1 << 15;

/// Emits `function` of a string column.
pub(crate) fn over_dictionary(
    emitter: &mut Emitter,
    column: &Value,
    function: &Arc<dyn DictionaryFunction>,
) -> Result<Value> {
    let dictionary = column
        .dictionary
        .as_ref()
        .ok_or_else(|| Reason::Expression(format!("{function} over a column without a dictionary")))?;
    if dictionary.len() >= emitter.tested_strings_min.max(1)
        && let Some(test) = function.test()
        && test.leaves().len() <= TESTS_MAX
        && test.fits(&|| dictionary.is_ascii())
    {
        return tested(emitter, column, dictionary, &test);
    }
    let encoded = evaluated(function, dictionary, column.valid.is_some())?;
    let nulls_at = dictionary.len();
    let index = match &column.valid {
        Some(valid) => {
            let null_code = emitter.params.number(nulls_at as i64);
            emitter.temporary(CType::I64, &format!("{valid} ? (i64){} : {null_code}", column.code))
        }
        None => column.code.clone(),
    };
    read(emitter, encoded, &index)
}

/// The results of `function` for every value, and for null with `has_null`.
fn evaluated(
    function: &Arc<dyn DictionaryFunction>,
    dictionary: &Dictionary,
    has_null: bool,
) -> Result<Arc<EncodedColumn>> {
    remembered::with(dictionary, Made::ByFunction { function: Arc::clone(function), has_null }, || {
        let results = on_host(function.as_ref(), dictionary)?;
        // Without nulls in the column, what the function makes of null is never read.
        let used = if has_null { results } else { results.slice(0, dictionary.len()) };
        if *used.data_type() == DataType::Boolean { encode_booleans(&used) } else { encode(&used) }
    })
}

/// What `function` makes of every value, and of null.
fn on_host(function: &dyn DictionaryFunction, dictionary: &Dictionary) -> Result<ArrayRef> {
    let null = new_null_array(dictionary.values().data_type(), 1);
    let values: ArrayRef = concat(&[dictionary.values(), &null])?;
    let starts: Vec<usize> = (0..values.len()).step_by(HOST_CHUNK).collect();
    let chunks = starts.into_par_iter().map(|start| {
        let chunk = values.slice(start, HOST_CHUNK.min(values.len() - start));
        let results = function.evaluate(&chunk)?;
        if results.len() != chunk.len() {
            let (got, wanted) = (results.len(), chunk.len());
            return Err(Error::internal(format!("{function} gave {got} results for {wanted} values")));
        }
        Ok(results)
    });
    let mut chunks = chunks.collect::<Result<Vec<ArrayRef>>>()?;
    if chunks.len() == 1 {
        return Ok(chunks.remove(0));
    }
    Ok(concat(&chunks.iter().map(AsRef::as_ref).collect::<Vec<_>>())?)
}

/// Emits a test that devices make of every value before the pipeline runs.
fn tested(emitter: &mut Emitter, column: &Value, dictionary: &Arc<Dictionary>, test: &StringTest) -> Result<Value> {
    // A null row may hold any code.
    let index = match &column.valid {
        Some(valid) => emitter.temporary(CType::I64, &format!("{valid} ? (i64){} : 0", column.code)),
        None => column.code.clone(),
    };
    let condition = tested_condition(emitter, dictionary, test, &index)?;
    let code = emitter.temporary(CType::Bool, &condition);
    Ok(Value::new(code, Kind::Bool, DataType::Boolean).with_valid(column.valid.clone()))
}

fn tested_condition(
    emitter: &mut Emitter,
    dictionary: &Arc<Dictionary>,
    test: &StringTest,
    index: &str,
) -> Result<String> {
    let (tests, operator, of_none) = match test {
        StringTest::And(tests) => (tests, " && ", "true"),
        StringTest::Or(tests) => (tests, " || ", "false"),
        StringTest::Not(test) => return Ok(format!("!{}", tested_condition(emitter, dictionary, test, index)?)),
        StringTest::Like { .. } | StringTest::Compare(..) => {
            let program = TestProgram::of(test).ok_or_else(|| Error::internal("a test without a program"))?;
            let test = DictionaryTest { dictionary: Arc::clone(dictionary), program: Arc::new(program) };
            let number = emitter.params.lookup(Lookup::Test(test));
            let results = emitter.params.once("const u8*", Binding::LookupValues(number));
            return Ok(format!("({results}[{index}] != 0)"));
        }
    };
    let conditions: Vec<String> =
        tests.iter().map(|test| tested_condition(emitter, dictionary, test, index)).collect::<Result<_>>()?;
    Ok(if conditions.is_empty() { of_none.into() } else { format!("({})", conditions.join(operator)) })
}

/// Emits the code in `to` of each code in `from`; null where `to` lacks the value.
pub(crate) fn translate(emitter: &mut Emitter, column: &Value, to: &Arc<Dictionary>) -> Result<Value> {
    let from = column.dictionary.as_ref().ok_or_else(|| Error::internal("translation of no codes"))?;
    if Arc::ptr_eq(from, to) {
        return Ok(column.clone());
    }
    let absent = to.len() as u32;
    let encoded = remembered::with(from, Made::CodesOf(Arc::downgrade(to)), || {
        let codes = Dictionary::translate(from, to);
        Ok(EncodedColumn {
            column_type: ColumnType {
                data_type: DataType::UInt32,
                has_nulls: false,
                // The full domain of u32: the width must not depend on the data.
                domain: Domain::Int { min: 0, max: u32::MAX.into() },
                dictionary: None,
            },
            rows: codes.len(),
            values: codes.iter().flat_map(|code| code.unwrap_or(absent).to_le_bytes()).collect(),
            offsets: None,
            validity: None,
            statistics: plain_statistics(),
        })
    })?;
    // A null row may hold any code.
    let index = match &column.valid {
        Some(valid) => emitter.temporary(CType::I64, &format!("{valid} ? (i64){} : 0", column.code)),
        None => column.code.clone(),
    };
    if from.is_empty() {
        return Ok(Value {
            code: "0".into(),
            valid: Some("false".into()),
            dictionary: Some(to.clone()),
            ..column.clone()
        });
    }
    let value = read(emitter, encoded, &index)?;
    let code = emitter.temporary(value.c_type(), &value.code);
    let absent = emitter.params.number(absent.into());
    let present = format!("({code} != {absent})");
    let valid = Some(column.valid.as_ref().map_or(present.clone(), |valid| format!("({valid} && {present})")));
    Ok(Value { code, valid, dictionary: Some(to.clone()), data_type: column.data_type.clone(), ..value })
}

/// The strings of `values` as codes of one dictionary.
pub(crate) fn unify(emitter: &mut Emitter, values: &[Value]) -> Result<Vec<Value>> {
    let common = common_dictionary(values)?;
    values.iter().map(|value| recode(emitter, value, &common)).collect()
}

/// The dictionary of all strings of `values`.
pub(crate) fn common_dictionary(values: &[Value]) -> Result<Arc<Dictionary>> {
    let mut parts: Vec<&Arc<Dictionary>> = vec![];
    for value in values {
        let dictionary = value
            .dictionary
            .as_ref()
            .ok_or_else(|| Reason::Expression("a string without a dictionary beside others".into()))?;
        if !dictionary.is_empty() && !parts.iter().any(|known| Arc::ptr_eq(known, dictionary)) {
            parts.push(dictionary);
        }
    }
    match (parts.as_slice(), values) {
        ([only], _) => Ok(Arc::clone(only)),
        ([], [first, ..]) => dictionary_of(&first.data_type, None),
        ([], []) => Err(Error::internal("a dictionary of nothing")),
        (parts, _) => Ok(Arc::new(Dictionary::union(parts)?)),
    }
}

/// The value's strings as codes of `to`, which has them all.
pub(crate) fn recode(emitter: &mut Emitter, value: &Value, to: &Arc<Dictionary>) -> Result<Value> {
    let from = value.dictionary.as_ref().ok_or_else(|| Error::internal("codes without a dictionary"))?;
    if Arc::ptr_eq(from, to) {
        return Ok(value.clone());
    }
    let range = Range::new(0, i128::try_from(to.len()).unwrap_or(i128::MAX).max(1) - 1);
    let recoded = if from.is_empty() {
        Value { code: "0".into(), ..value.clone() }
    } else {
        let translated = translate(emitter, value, to)?;
        Value { valid: value.valid.clone(), ..translated }
    };
    let name = range.c_type().name();
    let code = emitter.temporary(range.c_type(), &format!("({name}){}", recoded.code));
    Ok(Value { code, kind: Kind::Int(range), dictionary: Some(Arc::clone(to)), ..recoded })
}

/// A dictionary of one value, or of none.
pub(crate) fn dictionary_of(data_type: &DataType, value: Option<&[u8]>) -> Result<Arc<Dictionary>> {
    let value_type = match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    Ok(Arc::new(Dictionary::of_values(value_type, value)?))
}

fn plain_statistics() -> ColumnStatistics {
    ColumnStatistics { null_count: 0, distinct: None, sorted: false, unique: None }
}

/// Loads a value of a host-made column.
fn read(emitter: &mut Emitter, column: Arc<EncodedColumn>, index: &str) -> Result<Value> {
    let column_type = column.column_type.clone();
    let number = emitter.params.lookup(Lookup::Column(column));
    let value = emitter.load(&column_type, index, Binding::LookupValues(number))?;
    let code = emitter.temporary(value.c_type(), &value.code);
    let valid = column_type.has_nulls.then(|| {
        let bits = emitter.params.once("const u8*", Binding::LookupValidity(number));
        emitter.temporary(CType::Bool, &format!("bit_at({bits}, {index})"))
    });
    Ok(Value { code, valid, ..value })
}

/// Booleans in a layout that does not depend on which of them occur.
fn encode_booleans(array: &ArrayRef) -> Result<EncodedColumn> {
    let booleans = array.as_boolean();
    let has_nulls = booleans.null_count() > 0;
    let values = (0..booleans.len()).map(|i| u8::from(booleans.is_valid(i) && booleans.value(i))).collect();
    let validity = has_nulls.then(|| {
        let mut bits = vec![0u8; booleans.len().div_ceil(8)];
        for i in (0..booleans.len()).filter(|&i| booleans.is_valid(i)) {
            bits[i / 8] |= 1 << (i % 8);
        }
        bits
    });
    Ok(EncodedColumn {
        column_type: ColumnType {
            data_type: DataType::Boolean,
            has_nulls,
            domain: Domain::Int { min: 0, max: 1 },
            dictionary: None,
        },
        rows: booleans.len(),
        values,
        offsets: None,
        validity,
        statistics: plain_statistics(),
    })
}

fn encode(array: &ArrayRef) -> Result<EncodedColumn> {
    let field = Field::new("value", array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(vec![field]));
    let mut encoder = TableEncoder::new(schema.clone(), StringEncoding::Dictionary);
    encoder.push(&RecordBatch::try_new(schema, vec![array.clone()])?)?;
    let column = encoder.finish()?.pop().ok_or_else(|| Error::internal("no column encoded"))?;
    Ok(column)
}

/// Strings whose codes do not compare like them, as codes that do.
pub(crate) fn with_ordered_codes(emitter: &mut Emitter, value: Value) -> Result<Value> {
    match &value.dictionary {
        Some(dictionary) if !dictionary.is_sorted() => {
            let sorted = dictionary.sorted()?;
            let ordered = translate(emitter, &value, &sorted)?;
            Ok(emitter.hoist(ordered))
        }
        _ => Ok(value),
    }
}
