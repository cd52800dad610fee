//! Functions of one string column, evaluated by DataFusion once for each distinct value.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::physical_expr::PhysicalExpr;
use warpjoin::expr::DictionaryFunction;

/// A DataFusion expression whose only column is the dictionary's, at position 0.
#[derive(Debug)]
pub(super) struct StringFunction {
    expr: Arc<dyn PhysicalExpr>,
    input: SchemaRef,
    data_type: DataType,
}

impl StringFunction {
    /// `expr` over column 0 of type `column_type`, giving `data_type`.
    pub(super) fn new(expr: Arc<dyn PhysicalExpr>, column_type: DataType, data_type: DataType) -> Self {
        let input = Arc::new(Schema::new(vec![Field::new("value", column_type, true)]));
        Self { expr, input, data_type }
    }
}

impl DictionaryFunction for StringFunction {
    fn evaluate(&self, values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let column_type = self.input.field(0).data_type();
        let values = if values.data_type() == column_type { Arc::clone(values) } else { cast(values, column_type)? };
        let rows = values.len();
        let batch = RecordBatch::try_new(Arc::clone(&self.input), vec![values])?;
        let result = self.expr.evaluate(&batch).and_then(|result| result.into_array(rows)).map_err(ArrowError::from)?;
        if result.data_type() == &self.data_type { Ok(result) } else { cast(&result, &self.data_type) }
    }

    fn data_type(&self) -> DataType {
        self.data_type.clone()
    }
}

impl fmt::Display for StringFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expr)
    }
}
