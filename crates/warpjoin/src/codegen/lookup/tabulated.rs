//! Functions that the host evaluates beforehand, and tests of many strings, which the devices make themselves: code looks the
//! results up.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::read::read;
use crate::codegen::emit::{Binding, Emitter};
use crate::codegen::precomputed::{Axis, AxisValues, DictionaryTest, Lookup, Made, encoded, remembered};
use crate::codegen::value::{CType, Kind, Value};
use crate::column::Dictionary;
use crate::expr::{COMBINATIONS_MAX, HostFunction, StringTest};
use crate::string_test::TestProgram;
use crate::{Error, Reason, Result};

/// Tests of one function that devices run one after the other; of more, the host is the faster one.
const TESTS_MAX: usize = 8;

/// Emits `function` of `operands`.
pub(in crate::codegen) fn tabulated(
    emitter: &mut Emitter,
    operands: &[Value],
    function: &Arc<dyn HostFunction>,
) -> Result<Value> {
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
            remembered(dictionary, made, || encoded(function.as_ref(), axes))
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

impl Axis {
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
