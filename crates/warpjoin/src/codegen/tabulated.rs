//! Functions that the host evaluates: of a dictionary's values, or of all combinations of a few operands' values. Code in the
//! pipeline looks the results up. Tests of many strings the devices make themselves.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Field, Schema};
use rayon::prelude::*;

use super::emitter::Emitter;
use super::lookup::{DictionaryTest, Lookup, plain_statistics, read};
use super::params::Binding;
use super::remembered::{self, Made};
use super::value::{CType, Kind, Range, Value};
use crate::column::{ColumnType, Dictionary, Domain, EncodedColumn, StringEncoding, TableEncoder, integers, with_null};
use crate::expr::{COMBINATIONS_MAX, HostFunction, StringTest};
use crate::string_test::TestProgram;
use crate::{Error, Reason, Result};

/// Tests of one function that devices run one after the other; of more, the host is the faster one.
const TESTS_MAX: usize = 8;
/// Rows that a core evaluates at a time.
const HOST_CHUNK: usize = 1 << 15;

/// Results for all combinations of values, each made once a pipeline.
#[derive(Default)]
pub(crate) struct Tabulations(Vec<Tabulation>);

struct Tabulation {
    function: Arc<dyn HostFunction>,
    axes: Vec<Axis>,
    results: Arc<EncodedColumn>,
}

impl Tabulations {
    /// The results, as `make` makes them where they are not there.
    fn get_or_make(
        &mut self,
        function: &Arc<dyn HostFunction>,
        axes: Vec<Axis>,
        make: impl FnOnce(&[Axis]) -> Result<Arc<EncodedColumn>>,
    ) -> Result<Arc<EncodedColumn>> {
        let is_it = |known: &&Tabulation| {
            let is_function = Arc::ptr_eq(&known.function, function) || known.function.is_same(function.as_ref());
            let is_same = |(own, other): (&Axis, &Axis)| own.is_same(other);
            is_function && known.axes.len() == axes.len() && known.axes.iter().zip(&axes).all(is_same)
        };
        if let Some(known) = self.0.iter().find(is_it) {
            return Ok(Arc::clone(&known.results));
        }
        let results = make(&axes)?;
        self.0.push(Tabulation { function: Arc::clone(function), axes, results: Arc::clone(&results) });
        Ok(results)
    }
}

/// The values that an operand may have.
struct Axis {
    values: AxisValues,
    data_type: DataType,
    /// Null is one more, behind the others.
    has_null: bool,
}

enum AxisValues {
    Strings(Arc<Dictionary>),
    Numbers(Range),
}

impl Axis {
    fn of(value: &Value, function: &Arc<dyn HostFunction>) -> Result<Self> {
        let values = match (&value.dictionary, value.kind) {
            (Some(dictionary), _) => AxisValues::Strings(Arc::clone(dictionary)),
            (None, Kind::Bool) => AxisValues::Numbers(Range::new(0, 1)),
            (None, Kind::Int(range)) => AxisValues::Numbers(range),
            (None, Kind::F32 | Kind::F64) => return Err(Reason::Expression(format!("{function} of a float")).into()),
        };
        Ok(Self { values, data_type: value.data_type.clone(), has_null: value.valid.is_some() })
    }

    fn is_same(&self, other: &Self) -> bool {
        let has_same_values = match (&self.values, &other.values) {
            (AxisValues::Strings(own), AxisValues::Strings(other)) => Arc::ptr_eq(own, other),
            (AxisValues::Numbers(own), AxisValues::Numbers(other)) => own == other,
            _ => false,
        };
        has_same_values && self.data_type == other.data_type && self.has_null == other.has_null
    }

    /// Different values, without null.
    fn values(&self) -> u64 {
        match &self.values {
            AxisValues::Strings(dictionary) => dictionary.len() as u64,
            AxisValues::Numbers(range) => {
                let span = range.max.checked_sub(range.min).and_then(|span| u64::try_from(span).ok());
                span.unwrap_or(u64::MAX).saturating_add(1)
            }
        }
    }

    /// Places that it takes in a table of all combinations.
    fn places(&self) -> u64 {
        self.values().saturating_add(self.has_null.into())
    }

    /// All values, then null if that is one.
    fn array(&self) -> Result<ArrayRef> {
        let values = match &self.values {
            AxisValues::Strings(dictionary) => Arc::clone(dictionary.values()),
            AxisValues::Numbers(range) => integers(&self.data_type, &(range.min..=range.max).collect::<Vec<_>>())?,
        };
        if self.has_null { with_null(&values) } else { Ok(values) }
    }

    /// Emits the place of a row's value.
    fn place(&self, emitter: &mut Emitter, value: &Value) -> String {
        let place = match self.values {
            // Small enough for 64 bits, wherever it begins.
            AxisValues::Numbers(range) if value.c_type() == CType::I128 => {
                format!("(i64)({} - {})", value.code, emitter.params.wide_number(range.min))
            }
            AxisValues::Numbers(range) if value.c_type() != CType::Bool => {
                format!("((i64){} - {})", value.code, emitter.params.number(range.min as i64))
            }
            _ => format!("(i64){}", value.code),
        };
        match &value.valid {
            Some(valid) => {
                let null_place = emitter.params.number(self.values() as i64);
                emitter.temporary(CType::I64, &format!("{valid} ? {place} : {null_place}"))
            }
            None => place,
        }
    }
}

/// Emits `function` of `operands`.
pub(super) fn tabulated(emitter: &mut Emitter, operands: &[Value], function: &Arc<dyn HostFunction>) -> Result<Value> {
    let only_dictionary = match operands {
        [only] => only.dictionary.as_ref(),
        _ => None,
    };
    if let Some(dictionary) = only_dictionary
        && dictionary.len() >= emitter.tested_strings_min.max(1)
        && let Some(test) = function.test()
        && test.leaves().len() <= TESTS_MAX
        && test.fits(&|| dictionary.is_ascii())
    {
        return tested(emitter, &operands[0], dictionary, &test);
    }
    let axes = operands.iter().map(|operand| Axis::of(operand, function)).collect::<Result<Vec<_>>>()?;
    let mut index: Option<String> = None;
    for (axis, operand) in axes.iter().zip(operands) {
        let place = axis.place(emitter, operand);
        index = Some(match index {
            None => place,
            Some(before) => {
                let places = emitter.params.number(axis.places() as i64);
                emitter.temporary(CType::I64, &format!("{before} * {places} + {place}"))
            }
        });
    }
    let results = emitter.tabulated.get_or_make(function, axes, |axes| match only_dictionary {
        Some(dictionary) => {
            let made = Made::ByFunction { function: Arc::clone(function), has_null: axes[0].has_null };
            remembered::with(dictionary, made, || encoded(function.as_ref(), axes))
        }
        None => {
            let combinations = axes.iter().fold(1, |product: u64, axis| product.saturating_mul(axis.places()));
            if axes.is_empty() || combinations > COMBINATIONS_MAX {
                return Err(Reason::Expression(format!("{function} of {combinations} combinations of values")).into());
            }
            encoded(function.as_ref(), axes).map(Arc::new)
        }
    })?;
    read(emitter, results, &index.unwrap_or_default())
}

/// The results for all combinations of values; those of the last operand change first.
fn encoded(function: &dyn HostFunction, axes: &[Axis]) -> Result<EncodedColumn> {
    let results = on_host(function, &axes.iter().map(Axis::array).collect::<Result<Vec<_>>>()?)?;
    if *results.data_type() == DataType::Boolean { encode_booleans(&results) } else { encode(&results) }
}

/// What `function` makes of every combination of the arrays' values.
fn on_host(function: &dyn HostFunction, arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let rows = arrays.iter().map(|array| array.len()).product();
    let starts: Vec<usize> = (0..rows).step_by(HOST_CHUNK).chain((rows == 0).then_some(0)).collect();
    let chunks = starts.into_par_iter().map(|start| {
        let chunk = start..rows.min(start + HOST_CHUNK);
        let wanted = chunk.len();
        let results = function.evaluate(&combinations(arrays, chunk)?)?;
        if results.len() != wanted {
            return Err(Error::internal(format!("{function} gave {} results for {wanted} values", results.len())));
        }
        Ok(results)
    });
    let mut chunks = chunks.collect::<Result<Vec<ArrayRef>>>()?;
    if chunks.len() == 1 {
        return Ok(chunks.remove(0));
    }
    Ok(concat(&chunks.iter().map(AsRef::as_ref).collect::<Vec<_>>())?)
}

/// Some of all combinations of the arrays' values, those of the last one changing first.
fn combinations(arrays: &[ArrayRef], rows: std::ops::Range<usize>) -> Result<Vec<ArrayRef>> {
    if let [only] = arrays {
        return Ok(vec![only.slice(rows.start, rows.len())]);
    }
    let mut stride = arrays.iter().map(|array| array.len()).product::<usize>();
    let columns = arrays.iter().map(|array| {
        stride /= array.len().max(1);
        let places = rows.clone().map(|row| (row / stride % array.len()) as u32);
        Ok(take(array, &places.collect::<UInt32Array>(), None)?)
    });
    columns.collect()
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
