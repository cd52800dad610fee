//! Constants: literals, expressions that planning evaluates, and results of scalar subqueries.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use warpjoin::Reason;
use warpjoin::expr::{DeferredScalar, Scalar};

use crate::kept::parameter::{identity, with_values};

/// The value of a deterministic expression without columns.
pub(super) fn evaluate(expr: &Arc<dyn PhysicalExpr>) -> Result<ScalarValue, Reason> {
    let no_columns = RecordBatch::try_new_with_options(
        Arc::new(Schema::empty()),
        vec![],
        &RecordBatchOptions::new().with_row_count(Some(1)),
    );
    let value = no_columns.map_err(Into::into).and_then(|batch| match expr.evaluate(&batch)? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0),
    });
    value.map_err(|error| Reason::Expression(format!("constant {expr}: {}", error.strip_backtrace())))
}

/// A constant expression over parameters and results of scalar subqueries, which are known when the plan runs.
#[derive(Debug)]
pub(super) struct Deferred {
    expr: Arc<dyn PhysicalExpr>,
    data_type: DataType,
}

impl Deferred {
    pub(super) fn new(expr: &Arc<dyn PhysicalExpr>, data_type: DataType) -> Self {
        Self { expr: Arc::clone(expr), data_type }
    }
}

impl DeferredScalar for Deferred {
    fn value(&self) -> Result<Scalar, ArrowError> {
        let failed = |reason: Reason| ArrowError::ComputeError(reason.to_string());
        let value = evaluate(&self.expr).map_err(failed)?;
        // DataFusion accepts a result of another type, but devices would misread it.
        let value = if value.data_type() == self.data_type { value } else { value.cast_to(&self.data_type)? };
        scalar(&value).map_err(failed)
    }

    fn bound(&self) -> Option<Scalar> {
        // Of results of subqueries, nothing is known before the query runs.
        let value = with_values(&self.expr, &Schema::empty()).and_then(|expr| literal_of(&expr));
        value.filter(|value| value.data_type() == self.data_type).and_then(|value| scalar(&value).ok())
    }

    fn parameter(&self) -> Option<[usize; 2]> {
        identity(&self.expr)
    }
}

fn literal_of(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    expr.downcast_ref::<Literal>().map(|literal| literal.value().clone())
}

impl fmt::Display for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expr)
    }
}

/// The value as a constant of device plans.
pub(super) fn scalar(value: &ScalarValue) -> Result<Scalar, Reason> {
    if value.is_null() {
        return Ok(Scalar::Null);
    }
    let int = |value: &Option<i64>| value.map_or(Scalar::Null, |value| Scalar::Int(value.into()));
    Ok(match value {
        ScalarValue::Boolean(Some(value)) => Scalar::Boolean(*value),
        ScalarValue::Int8(Some(value)) => Scalar::Int((*value).into()),
        ScalarValue::Int16(Some(value)) => Scalar::Int((*value).into()),
        ScalarValue::Int32(Some(value))
        | ScalarValue::Date32(Some(value))
        | ScalarValue::Time32Second(Some(value))
        | ScalarValue::Time32Millisecond(Some(value))
        | ScalarValue::Decimal32(Some(value), _, _) => Scalar::Int((*value).into()),
        ScalarValue::Int64(value)
        | ScalarValue::Date64(value)
        | ScalarValue::Time64Microsecond(value)
        | ScalarValue::Time64Nanosecond(value)
        | ScalarValue::TimestampSecond(value, _)
        | ScalarValue::TimestampMillisecond(value, _)
        | ScalarValue::TimestampMicrosecond(value, _)
        | ScalarValue::TimestampNanosecond(value, _)
        | ScalarValue::DurationSecond(value)
        | ScalarValue::DurationMillisecond(value)
        | ScalarValue::DurationMicrosecond(value)
        | ScalarValue::DurationNanosecond(value)
        | ScalarValue::Decimal64(value, _, _) => int(value),
        ScalarValue::UInt8(Some(value)) => Scalar::Int((*value).into()),
        ScalarValue::UInt16(Some(value)) => Scalar::Int((*value).into()),
        ScalarValue::UInt32(Some(value)) => Scalar::Int((*value).into()),
        ScalarValue::UInt64(Some(value)) => Scalar::Int((*value).into()),
        ScalarValue::Decimal128(Some(value), _, _) => Scalar::Int(*value),
        ScalarValue::Float32(Some(value)) => Scalar::Float((*value).into()),
        ScalarValue::Float64(Some(value)) => Scalar::Float(*value),
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            Scalar::Bytes(text.as_bytes().into())
        }
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => Scalar::Bytes(bytes.as_slice().into()),
        ScalarValue::Dictionary(_, value) => scalar(value)?,
        other => return Err(Reason::Type(other.data_type())),
    })
}
