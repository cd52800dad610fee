//! Functions that the host evaluates beforehand, and tests of many strings, which the devices make themselves: code looks the
//! results up.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_columns::column::Dictionary;
use warpjoin_columns::expr::{COMBINATIONS_MAX, HostFunction, StringTest};
use warpjoin_columns::string_test::TestProgram;
use warpjoin_columns::{Error, Reason, Result};

use super::read::{place_of_code, read};
use crate::bind::{Binder, Value};
use crate::precomputed::{Axis, AxisValues, DictionaryTest, Lookup, LookupColumn, Made, Prefixes, encoded, remembered};
use crate::program::{Binding, Code, Op, Type};
use crate::value::{CType, Kind};

/// Tests of one function that devices run one after the other; of more, the host is the faster one.
const TESTS_MAX: usize = 8;

/// Binds `function` of `operands`.
pub(crate) fn tabulated(b: &mut Binder, operands: &[Value], function: &Arc<dyn HostFunction>) -> Result<Value> {
    let only_dictionary = match operands {
        [only] => only.dictionary.as_ref(),
        _ => None,
    };
    if let (Some(dictionary), Some(chars)) = (only_dictionary, function.prefix_chars())
        && let Some(prefixes) = Prefixes::of(dictionary, chars)?
    {
        let first = first_like(b, &operands[0], &prefixes)?;
        return tabulated(b, &[first], function);
    }
    if let Some(dictionary) = only_dictionary
        && dictionary.len() >= b.tested_strings_min.max(1)
        && let Some(test) = function.test()
        && test.leaves().len() <= TESTS_MAX
        && test.fits(&|| dictionary.is_ascii())
    {
        return tested(b, &operands[0], dictionary, &test);
    }
    let axes = operands.iter().map(|operand| Axis::of(&operand.value_type(), function)).collect::<Result<Vec<_>>>()?;
    let mut index: Option<Code> = None;
    for (axis, operand) in axes.iter().zip(operands) {
        let place = axis.place(b, operand);
        index = Some(match index {
            None => place,
            Some(before) => {
                let places = b.number(axis.places() as i64);
                let sum = b.binary(b.binary(before, Op::Multiply, places), Op::Add, place);
                b.temporary(CType::I64, sum)
            }
        });
    }
    let results = b.tabulated.get_or_make(function, axes, |axes| match only_dictionary {
        Some(dictionary) => {
            let made = Made::ByFunction { function: Arc::clone(function), has_null: axes[0].has_null };
            remembered(dictionary, made, || encoded(function.as_ref(), axes))
        }
        None => {
            let combinations = axes.iter().fold(1, |product: u64, axis| product.saturating_mul(axis.places()));
            if axes.is_empty() || combinations > COMBINATIONS_MAX {
                return Err(Reason::Expression(format!("{function} of {combinations} combinations of values")).into());
            }
            Ok(Arc::new(LookupColumn::new(encoded(function.as_ref(), axes)?)))
        }
    })?;
    let index = index.ok_or_else(|| Error::internal("a function of nothing"))?;
    read(b, results, index)
}

/// Binds the string that stands for all that begin like the operand's.
fn first_like(b: &mut Binder, operand: &Value, prefixes: &Prefixes) -> Result<Value> {
    let index = place_of_code(b, operand);
    let code = read(b, Arc::clone(&prefixes.codes), index)?;
    let (data_type, dictionary) = (operand.data_type.clone(), Some(Arc::clone(&prefixes.strings)));
    Ok(Value { valid: operand.valid, data_type, dictionary, ..code })
}

/// Binds a test that devices make of every value before the pipeline runs.
fn tested(b: &mut Binder, column: &Value, dictionary: &Arc<Dictionary>, test: &StringTest) -> Result<Value> {
    let index = place_of_code(b, column);
    let condition = tested_condition(b, dictionary, test, index)?;
    let code = b.temporary(CType::Bool, condition);
    Ok(Value::new(code, Kind::Bool, DataType::Boolean).with_valid(column.valid))
}

fn tested_condition(b: &mut Binder, dictionary: &Arc<Dictionary>, test: &StringTest, index: Code) -> Result<Code> {
    let (tests, op, of_none) = match test {
        StringTest::And(tests) => (tests, Op::And, true),
        StringTest::Or(tests) => (tests, Op::Or, false),
        StringTest::Not(test) => {
            let condition = tested_condition(b, dictionary, test, index)?;
            return Ok(b.not(condition));
        }
        StringTest::Like { .. } | StringTest::Compare(..) => {
            let program = TestProgram::of(test).ok_or_else(|| Error::internal("a test without a program"))?;
            let test = DictionaryTest { dictionary: Arc::clone(dictionary), program: Arc::new(program) };
            let number = b.params.lookup(Lookup::Test(test));
            let results = b.params.once(Type::Input(CType::U8), Binding::LookupValues(number));
            let result = b.load(b.field(results), index);
            return Ok(b.in_parens(result, Op::NotEqual, b.whole(0)));
        }
    };
    let conditions: Vec<Code> =
        tests.iter().map(|test| tested_condition(b, dictionary, test, index)).collect::<Result<_>>()?;
    Ok(b.chain(op, conditions).map_or_else(|| b.truth(of_none), |all| b.parens(all)))
}

impl Axis {
    /// Binds the place of a row's value.
    fn place(&self, b: &mut Binder, value: &Value) -> Code {
        let place = match self.values {
            // Small enough for 64 bits, wherever it begins.
            AxisValues::Numbers(range) if value.c_type() == CType::I128 => {
                let least = b.wide_number(range.min);
                b.cast(CType::I64, b.in_parens(value.code, Op::Subtract, least))
            }
            AxisValues::Numbers(range) if value.c_type() != CType::Bool => {
                let least = b.number(range.min as i64);
                b.in_parens(b.cast(CType::I64, value.code), Op::Subtract, least)
            }
            _ => b.cast(CType::I64, value.code),
        };
        match value.valid {
            Some(valid) => {
                let null_place = b.number(self.values() as i64);
                let place = b.select(valid, place, null_place);
                b.temporary(CType::I64, place)
            }
            None => place,
        }
    }
}
