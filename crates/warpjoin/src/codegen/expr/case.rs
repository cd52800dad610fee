//! CASE: branches that only some rows run.

use arrow::datatypes::DataType;

use super::evaluate::evaluate;
use crate::codegen::emit::{Emitter, Environment};
use crate::codegen::lookup;
use crate::codegen::value::{Kind, Value};
use crate::column::holds_strings;
use crate::expr::{Expr, Scalar};
use crate::{Error, Result};

/// Emits [`crate::expr::ExprKind::Case`].
pub(super) fn case(
    emitter: &mut Emitter,
    branches: &[(Expr, Expr)],
    otherwise: Option<&Expr>,
    data_type: &DataType,
    environment: &Environment,
) -> Result<Value> {
    // Branches run for some rows only: load before them what they use.
    let mut columns = vec![];
    for expr in branches.iter().flat_map(|(when, then)| [when, then]).chain(otherwise) {
        expr.visit_columns(&mut |column| columns.push(column));
    }
    for column in columns {
        emitter.column(environment, column)?;
    }
    let null = Expr::literal(Scalar::Null, data_type.clone());
    let mut conditions = vec![];
    let mut results = vec![];
    let capture = |emitter: &mut Emitter, expr: &Expr| -> Result<(String, Value)> {
        let outer = emitter.begin_capture();
        let value = evaluate(emitter, expr, environment);
        let text = emitter.end_capture(outer);
        Ok((text, value?))
    };
    for (when, then) in branches {
        conditions.push(capture(emitter, when)?);
        results.push(capture(emitter, then)?);
    }
    results.push(capture(emitter, otherwise.unwrap_or(&null))?);
    if holds_strings(data_type) {
        recode_results(emitter, &mut results)?;
    }
    write_case(emitter, &conditions, &results, data_type)
}

/// Brings strings of several dictionaries to codes of one, each within its branch.
fn recode_results(emitter: &mut Emitter, results: &mut [(String, Value)]) -> Result<()> {
    let values: Vec<Value> = results.iter().map(|(_, value)| value.clone()).collect();
    let common = lookup::dictionary_of_all(&values)?;
    for (text, value) in results {
        let outer = emitter.begin_capture();
        let recoded = lookup::recode(emitter, value, &common);
        text.push_str(&emitter.end_capture(outer));
        *value = recoded?;
    }
    Ok(())
}

/// Writes captured branches as nested ifs that assign one variable.
fn write_case(
    emitter: &mut Emitter,
    conditions: &[(String, Value)],
    results: &[(String, Value)],
    data_type: &DataType,
) -> Result<Value> {
    let kind = common_kind(results.iter().map(|(_, value)| value))?;
    let nullable = results.iter().any(|(_, value)| value.valid.is_some());
    let name = emitter.fresh("t");
    emitter.statement(&format!("{} {name} = 0;", kind.c_type().name()));
    let valid = nullable.then(|| format!("{name}_valid"));
    if let Some(valid) = &valid {
        emitter.statement(&format!("bool {valid} = false;"));
    }
    let assign = |emitter: &mut Emitter, (text, value): &(String, Value)| {
        emitter.append(text);
        emitter.statement(&format!("{name} = {};", value.code_as(kind.c_type())));
        if let Some(valid) = &valid {
            emitter.statement(&format!("{valid} = {};", value.valid.as_deref().unwrap_or("true")));
        }
    };
    for ((text, condition), result) in conditions.iter().zip(results) {
        emitter.append(text);
        emitter.statement(&format!("if ({}) {{", condition.is_true()));
        assign(emitter, result);
        emitter.statement("} else {");
    }
    assign(emitter, &results[conditions.len()]);
    emitter.statement(&"}".repeat(conditions.len()));
    let dictionary = results.iter().find_map(|(_, value)| value.dictionary.clone());
    Ok(Value { dictionary, ..Value::new(name, kind, data_type.clone()).with_valid(valid) })
}

/// A kind that holds all of these values.
fn common_kind<'a>(values: impl Iterator<Item = &'a Value>) -> Result<Kind> {
    let mut common: Option<Kind> = None;
    for value in values {
        common = Some(match (common, value.kind) {
            (None, kind) => kind,
            (Some(Kind::Int(a)), Kind::Int(b)) => Kind::Int(a.union(b)),
            (Some(a), b) if a == b => a,
            (Some(a), b) => return Err(Error::internal(format!("CASE of {a:?} and {b:?}"))),
        });
    }
    common.ok_or_else(|| Error::internal("CASE without a result"))
}
