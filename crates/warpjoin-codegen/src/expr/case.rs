//! CASE: branches that only some rows run.

use arrow::datatypes::DataType;
use warpjoin_columns::column::holds_strings;
use warpjoin_columns::expr::{Expr, Scalar};
use warpjoin_columns::{Error, Result};

use super::evaluate::evaluate;
use crate::bind::{Binder, Environment, Value};
use crate::lookup;
use crate::program::{Branch, Case, Declaration, Statement, Variable};
use crate::value::{CType, Kind};

/// Binds [`warpjoin_columns::expr::ExprKind::Case`].
pub(super) fn case(
    b: &mut Binder,
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
        b.column(environment, column)?;
    }
    let null = Expr::literal(Scalar::Null, data_type.clone());
    let mut conditions = vec![];
    let mut results = vec![];
    let capture = |b: &mut Binder, expr: &Expr| -> Result<Captured> {
        let outer = b.begin_capture();
        let value = evaluate(b, expr, environment);
        let statements = b.end_capture(outer);
        Ok(Captured { statements, value: value? })
    };
    for (when, then) in branches {
        conditions.push(capture(b, when)?);
        results.push(capture(b, then)?);
    }
    results.push(capture(b, otherwise.unwrap_or(&null))?);
    if holds_strings(data_type) {
        recode_results(b, &mut results)?;
    }
    bind_case(b, conditions, results, data_type)
}

/// A value that only some rows compute.
struct Captured {
    statements: Vec<Statement>,
    value: Value,
}

/// Brings strings of several dictionaries to codes of one, each within its branch.
fn recode_results(b: &mut Binder, results: &mut [Captured]) -> Result<()> {
    let values: Vec<Value> = results.iter().map(|result| result.value.clone()).collect();
    let common = lookup::dictionary_of_all(&values)?;
    for result in results {
        let outer = b.begin_capture();
        let recoded = lookup::recode(b, &result.value, &common);
        result.statements.extend(b.end_capture(outer));
        result.value = recoded?;
    }
    Ok(())
}

/// Binds captured branches that assign one variable.
fn bind_case(
    b: &mut Binder,
    conditions: Vec<Captured>,
    mut results: Vec<Captured>,
    data_type: &DataType,
) -> Result<Value> {
    let kind = common_kind(results.iter().map(|result| &result.value))?;
    let dictionary = results.iter().find_map(|result| result.value.dictionary.clone());
    let nullable = results.iter().any(|result| result.value.valid.is_some());
    let number = b.fresh();
    let variable = Variable::Temporary(number);
    b.push(Statement::Declare(Declaration { variable, c_type: kind.c_type(), initial: b.whole(0) }));
    let validity = nullable.then_some(Variable::Validity(number));
    if let Some(validity) = validity {
        let initial = b.truth(false);
        b.push(Statement::Declare(Declaration { variable: validity, c_type: CType::Bool, initial }));
    }
    let assigned = |b: &Binder, Captured { mut statements, value }: Captured| {
        statements.push(Statement::Assign(variable, b.code_as(&value, kind.c_type())));
        if let Some(validity) = validity {
            let valid = value.valid.unwrap_or_else(|| b.truth(true));
            statements.push(Statement::Assign(validity, valid));
        }
        statements
    };
    let otherwise = results.pop().ok_or_else(|| Error::internal("CASE without a result"))?;
    let branches = conditions.into_iter().zip(results).map(|(condition, result)| Branch {
        condition: b.is_true(&condition.value),
        before: condition.statements,
        then: assigned(b, result),
    });
    let branches = branches.collect();
    let otherwise = assigned(b, otherwise);
    b.push(Statement::Case(Case { branches, otherwise }));
    let code = b.variable(variable, kind.c_type());
    let valid = validity.map(|validity| b.variable(validity, CType::Bool));
    Ok(Value { dictionary, ..Value::new(code, kind, data_type.clone()).with_valid(valid) })
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
