//! Expressions that DataFusion evaluates on the host, for each string of a dictionary or each combination of few values.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Operator, Volatility};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NegativeExpr,
    NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use warpjoin::expr::{CompareOp, HostFunction, StringTest};

use super::expr::compare_op;
use super::functions::is_datafusions;
use crate::kept::parameter::{is_parameter, with_values};

/// A DataFusion expression. Its column `i` is operand `i`.
#[derive(Debug)]
pub(super) struct HostExpr {
    expr: Arc<dyn PhysicalExpr>,
    input: SchemaRef,
    data_type: DataType,
    /// Whether it is the same in every query, unlike the result of a subquery.
    is_fixed: bool,
}

impl HostExpr {
    /// `expr` with result type `data_type` over operands with these fields. Functions may read the fields.
    pub(super) fn new(expr: Arc<dyn PhysicalExpr>, operands: Vec<FieldRef>, data_type: DataType) -> Self {
        Self { is_fixed: is_fixed(&expr), expr, input: Arc::new(Schema::new(operands)), data_type }
    }

    /// The operands' schema. Fields are nullable if operands have nulls: the host also evaluates nulls that no row has.
    fn input_of(&self, operands: &[ArrayRef]) -> SchemaRef {
        let fits = |(field, values): (&FieldRef, &ArrayRef)| field.is_nullable() || values.null_count() == 0;
        if self.input.fields().iter().zip(operands).all(fits) {
            return Arc::clone(&self.input);
        }
        let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
        Arc::new(Schema::new(self.input.fields().iter().map(nullable).collect::<Vec<_>>()))
    }
}

impl HostFunction for HostExpr {
    fn evaluate(&self, operands: &[ArrayRef]) -> Result<ArrayRef, ArrowError> {
        let columns = operands.iter().zip(self.input.fields()).map(|(values, field)| {
            let is_same = values.data_type() == field.data_type();
            if is_same { Ok(Arc::clone(values)) } else { cast(values, field.data_type()) }
        });
        let batch = RecordBatch::try_new(self.input_of(operands), columns.collect::<Result<_, _>>()?)?;
        let rows = batch.num_rows();
        let result = self.expr.evaluate(&batch).and_then(|result| result.into_array(rows)).map_err(ArrowError::from)?;
        if result.data_type() == &self.data_type { Ok(result) } else { cast(&result, &self.data_type) }
    }

    fn is_same(&self, other: &dyn HostFunction) -> bool {
        let other = (other as &dyn Any).downcast_ref::<Self>();
        self.is_fixed
            && other.is_some_and(|other| {
                self.expr.as_ref() == other.expr.as_ref()
                    && self.input == other.input
                    && self.data_type == other.data_type
            })
    }

    fn test(&self) -> Option<StringTest> {
        // Casting bytes that are not UTF-8 to text is an error, which devices do not detect.
        let is_of_text = matches!(&self.input.fields()[..], [only] if is_text(only.data_type()));
        if is_of_text && self.data_type == DataType::Boolean { test_of(&self.expr) } else { None }
    }

    fn prefix_chars(&self) -> Option<usize> {
        let is_of_text = matches!(&self.input.fields()[..], [only] if is_text(only.data_type()));
        if is_of_text && self.is_fixed { prefix_chars_read(&self.expr) } else { None }
    }

    fn bound(&self) -> Option<Arc<dyn HostFunction>> {
        let expr = with_values(&self.expr, &self.input)?;
        let (input, data_type) = (Arc::clone(&self.input), self.data_type.clone());
        Some(Arc::new(Self { is_fixed: is_fixed(&expr), expr, input, data_type }))
    }

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }
}

/// Whether the expression has only parts that are the same in every query.
fn is_fixed(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let is_known = expr.is::<Column>()
        || expr.is::<Literal>()
        || expr.is::<BinaryExpr>()
        || expr.is::<CaseExpr>()
        || expr.is::<CastExpr>()
        || expr.is::<TryCastExpr>()
        || expr.is::<InListExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<LikeExpr>()
        || expr.is::<NegativeExpr>()
        || expr.is::<NotExpr>()
        || expr.downcast_ref::<ScalarFunctionExpr>().is_some_and(is_immutable)
        // Its value is bound before a query runs.
        || is_parameter(expr);
    is_known && expr.children().into_iter().all(is_fixed)
}

fn is_immutable(call: &ScalarFunctionExpr) -> bool {
    call.fun().signature().volatility == Volatility::Immutable
}

/// `expr` as a test of the string at position 0; `None` if devices do not support it.
fn test_of(expr: &Arc<dyn PhysicalExpr>) -> Option<StringTest> {
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        let pattern = constant(like.pattern()).filter(|_| is_string_itself(like.expr()))?;
        let test = StringTest::Like { pattern: pattern.into(), ignores_case: like.case_insensitive() };
        return Some(if like.negated() { negation(test) } else { test });
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return test_of_binary(binary);
    }
    if let Some(not) = expr.downcast_ref::<NotExpr>() {
        return test_of(not.arg()).map(negation);
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        let values = list.list().iter().map(constant).collect::<Option<Vec<_>>>()?;
        let equals = |value: &String| equality(list.expr(), value);
        let any = StringTest::Or(values.iter().map(equals).collect::<Option<_>>()?);
        return Some(if list.negated() { negation(any) } else { any });
    }
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let [string, part] = call.args() else { return None };
    let part = escaped(&constant(part).filter(|_| is_string_itself(string))?);
    let pattern = match call.name() {
        "starts_with" => format!("{part}%"),
        "ends_with" => format!("%{part}"),
        "contains" => format!("%{part}%"),
        _ => return None,
    };
    Some(StringTest::Like { pattern: pattern.into(), ignores_case: false })
}

fn test_of_binary(binary: &BinaryExpr) -> Option<StringTest> {
    let (left, right) = (binary.left(), binary.right());
    let op = match binary.op() {
        Operator::And => return Some(StringTest::And(vec![test_of(left)?, test_of(right)?])),
        Operator::Or => return Some(StringTest::Or(vec![test_of(left)?, test_of(right)?])),
        op => op,
    };
    if let (Operator::Eq | Operator::NotEq, Some(constant)) = (op, constant(right))
        && !is_string_itself(left)
        && let Some(equal) = equality(left, &constant)
    {
        return Some(if *op == Operator::Eq { equal } else { negation(equal) });
    }
    let (op, constant) = if is_string_itself(left) {
        (*op, constant(right)?)
    } else {
        (op.swap()?, constant(left).filter(|_| is_string_itself(right))?)
    };
    Some(StringTest::Compare(compare_op(&op)?, constant.as_bytes().into()))
}

/// Whether `expr`, which is the string or its first characters, equals `value`.
fn equality(expr: &Arc<dyn PhysicalExpr>, value: &str) -> Option<StringTest> {
    let is_equal = StringTest::Compare(CompareOp::Equal, value.as_bytes().into());
    if is_string_itself(expr) {
        return Some(is_equal);
    }
    Some(match value.chars().count().cmp(&prefix_chars(expr)?) {
        // The string is no longer than the value.
        Ordering::Less => is_equal,
        Ordering::Equal => StringTest::Like { pattern: format!("{}%", escaped(value)).into(), ignores_case: false },
        // False for every string, and null for null.
        Ordering::Greater => StringTest::And(vec![is_equal.clone(), negation(is_equal)]),
    })
}

/// The number of leading characters that `substr(string, 1, n)` or `left(string, n)` takes.
fn prefix_chars(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>().filter(|call| is_datafusions(call.fun()))?;
    let chars = match (call.name(), call.args()) {
        ("substr", [string, from, chars]) if is_string_itself(string) && integer(from)? == 1 => chars,
        ("left", [string, chars]) if is_string_itself(string) => chars,
        _ => return None,
    };
    // A negative number counts from the end, or is an error.
    usize::try_from(integer(chars)?).ok()
}

/// The number of leading characters of the string that `expr` depends on; `None`: all of them, or unknown.
fn prefix_chars_read(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    if expr.is::<Column>() {
        return None;
    }
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>().filter(|call| is_datafusions(call.fun()))
        && let ("substr", [string, from, chars]) = (call.name(), call.args())
        && is_string_itself(string)
    {
        // Places before the first character are counted, too.
        let (from, chars) = (integer(from)?, usize::try_from(integer(chars)?).ok()?);
        return usize::try_from(from.checked_sub(1)?).ok()?.checked_add(chars);
    }
    if let Some(chars) = prefix_chars(expr) {
        return Some(chars);
    }
    let parts = expr.children().into_iter().map(prefix_chars_read);
    parts.collect::<Option<Vec<_>>>().map(|parts| parts.into_iter().max().unwrap_or(0))
}

fn integer(expr: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    match expr.downcast_ref::<Literal>()?.value() {
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}

fn negation(test: StringTest) -> StringTest {
    StringTest::Not(Box::new(test))
}

/// Whether the expression is the string column, or a cast of it to another text type.
fn is_string_itself(expr: &Arc<dyn PhysicalExpr>) -> bool {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => is_text(cast.cast_type()) && is_string_itself(cast.expr()),
        None => expr.is::<Column>(),
    }
}

/// Whether the type is text, dictionary-encoded or not.
pub(super) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// The text of a non-null literal.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
    expr.downcast_ref::<Literal>()?.value().try_as_str().flatten().map(str::to_string)
}

/// A LIKE pattern that matches only `text`.
fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| ['%', '_', '\\'].contains(&c).then_some('\\').into_iter().chain([c])).collect()
}

impl fmt::Display for HostExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expr)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn first_characters_have_string_tests() {
        let column = || Arc::new(Column::new("value", 0)) as Arc<dyn PhysicalExpr>;
        let literal = |value: ScalarValue| Arc::new(Literal::new(value)) as Arc<dyn PhysicalExpr>;
        let field: FieldRef = Arc::new(Field::new("value", DataType::Utf8, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let values: ArrayRef = Arc::new(arrow::array::StringArray::from(vec![
            Some("13-555"),
            Some("13"),
            Some("1"),
            Some(""),
            None,
            Some("é3x"),
            Some("1%"),
            Some("1%3"),
            Some("_3"),
        ]));
        for (function, from) in [("substr", Some(1)), ("left", None)] {
            let function = datafusion::functions::all_default_functions().into_iter().find(|it| it.name() == function);
            for value in ["13", "1", "", "135", "é3", "1%", "_3"] {
                let mut arguments = vec![column()];
                arguments.extend(from.map(|from| literal(ScalarValue::Int64(Some(from)))));
                arguments.push(literal(ScalarValue::Int64(Some(2))));
                let options = Arc::new(datafusion::config::ConfigOptions::new());
                let call = ScalarFunctionExpr::try_new(function.clone().unwrap(), arguments, &schema, options).unwrap();
                let equal: Arc<dyn PhysicalExpr> =
                    Arc::new(BinaryExpr::new(Arc::new(call), Operator::Eq, literal(value.into())));
                let host = HostExpr::new(equal, vec![Arc::clone(&field)], DataType::Boolean);
                let expected = host.evaluate(&[Arc::clone(&values)]).unwrap();
                let test = host.test().unwrap();
                let found: Vec<_> =
                    values.as_string::<i32>().iter().map(|text| text.map(|text| holds(&test, text))).collect();
                assert_eq!(found, expected.as_boolean().iter().collect::<Vec<_>>(), "{value}: {test:?}");
            }
        }
    }

    #[test]
    fn functions_of_the_first_characters_are_recognized() {
        let schema = Schema::new(vec![Field::new("value", DataType::Utf8, true)]);
        let column = || Arc::new(Column::new("value", 0)) as Arc<dyn PhysicalExpr>;
        let literal = |value: ScalarValue| Arc::new(Literal::new(value)) as Arc<dyn PhysicalExpr>;
        let number = |value: i64| literal(ScalarValue::Int64(Some(value)));
        let call = |name: &str, arguments: Vec<Arc<dyn PhysicalExpr>>| {
            let function = datafusion::functions::all_default_functions().into_iter().find(|it| it.name() == name);
            let options = Arc::new(datafusion::config::ConfigOptions::new());
            let call = ScalarFunctionExpr::try_new(function.unwrap(), arguments, &schema, options).unwrap();
            Arc::new(call) as Arc<dyn PhysicalExpr>
        };
        let substr = |from, chars| call("substr", vec![column(), number(from), number(chars)]);
        let both = |op, left, right| Arc::new(BinaryExpr::new(left, op, right)) as Arc<dyn PhysicalExpr>;
        let cast: Arc<dyn PhysicalExpr> = Arc::new(CastExpr::new(substr(1, 4), DataType::Int32, None));
        for (expr, expected) in [
            (substr(1, 2), Some(2)),
            (substr(3, 2), Some(4)),
            (substr(0, 3), None),
            (substr(1, -1), None),
            (call("left", vec![column(), number(3)]), Some(3)),
            (call("left", vec![column(), number(-3)]), None),
            (call("upper", vec![substr(2, 3)]), Some(4)),
            (both(Operator::StringConcat, substr(1, 2), call("left", vec![column(), number(5)])), Some(5)),
            (both(Operator::StringConcat, substr(1, 2), column()), None),
            (call("substr", vec![column(), number(2)]), None),
            (both(Operator::Eq, substr(1, 2), literal("13".into())), Some(2)),
            (cast, Some(4)),
        ] {
            assert_eq!(prefix_chars_read(&expr), expected, "{expr}");
        }
    }

    /// Whether a test holds, as the tests of this file define it.
    fn holds(test: &StringTest, text: &str) -> bool {
        match test {
            StringTest::Like { pattern, .. } => {
                let prefix = pattern.strip_suffix('%').unwrap().replace('\\', "");
                text.starts_with(&prefix)
            }
            StringTest::Compare(_, value) => text.as_bytes() == value.as_ref(),
            StringTest::Not(test) => !holds(test, text),
            StringTest::And(tests) => tests.iter().all(|test| holds(test, text)),
            StringTest::Or(tests) => tests.iter().any(|test| holds(test, text)),
        }
    }

    #[test]
    fn bytes_have_no_string_test() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("value", 0));
        let text: Arc<dyn PhysicalExpr> = Arc::new(CastExpr::new(column, DataType::Utf8, None));
        let pattern: Arc<dyn PhysicalExpr> = Arc::new(Literal::new("a%".into()));
        let like: Arc<dyn PhysicalExpr> = Arc::new(LikeExpr::new(false, false, text, pattern));
        let test = |column: DataType| {
            HostExpr::new(Arc::clone(&like), vec![Arc::new(Field::new("value", column, true))], DataType::Boolean)
                .test()
        };
        assert!(test(DataType::LargeUtf8).is_some());
        assert!(test(DataType::Binary).is_none());
    }
}
