//! Parameters of kept plans: constants whose values each query sets.
//!
//! For DataFusion a parameter is a function without arguments. It has no value at planning, so no plan depends on its
//! value.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::{InListExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use warpjoin_device::sync::{self, Mutex};

/// The parameters of one instance of a plan. The query that runs it sets the values; before the first query they have
/// none.
#[derive(Default)]
pub(crate) struct Parameters {
    types: Vec<DataType>,
    values: Mutex<Vec<ScalarValue>>,
}

impl Parameters {
    /// Parameters of the types of these values.
    pub(crate) fn like(values: &[ScalarValue]) -> Arc<Self> {
        Arc::new(Self { types: values.iter().map(ScalarValue::data_type).collect(), values: Mutex::default() })
    }

    /// Sets the values for the next query. Returns whether they differ from the previous ones.
    pub(crate) fn set(&self, values: &[ScalarValue]) -> bool {
        let mut own = sync::locked(&self.values);
        let is_changed = *own != values;
        *own = values.to_vec();
        is_changed
    }

    fn get(&self, at: usize) -> Option<ScalarValue> {
        sync::locked(&self.values).get(at).cloned()
    }

    /// Parameter `at` as an expression with the name `name`. It always has the value of parameter `equal`, which may be
    /// itself.
    pub(crate) fn expr(self: &Arc<Self>, at: usize, equal: usize, name: &str) -> Result<Expr> {
        let data_type = self.types.get(at).cloned();
        let data_type = data_type.ok_or_else(|| DataFusionError::Internal(format!("there is no parameter {at}")))?;
        let function = Parameter {
            parameters: Arc::clone(self),
            at,
            equal,
            name: name.to_string(),
            data_type,
            signature: Signature::nullary(Volatility::Stable),
        };
        Ok(ScalarUDF::new_from_impl(function).call(vec![]))
    }
}

/// The function that gives the value of a parameter. Values are never null.
struct Parameter {
    parameters: Arc<Parameters>,
    at: usize,
    /// The first parameter that always has the same value.
    equal: usize,
    name: String,
    data_type: DataType,
    signature: Signature,
}

impl Parameter {
    fn identity(&self) -> [usize; 2] {
        [Arc::as_ptr(&self.parameters).addr(), self.equal]
    }
}

impl PartialEq for Parameter {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity() && self.data_type == other.data_type
    }
}

impl Eq for Parameter {}

impl Hash for Parameter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parameters({})", sync::locked(&self.values).len())
    }
}

impl ScalarUDFImpl for Parameter {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn return_field_from_args(&self, _args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(&self.name, self.data_type.clone(), false)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let value = self.parameters.get(self.at);
        let value = value.filter(|value| value.data_type() == self.data_type && !value.is_null());
        value.map(ColumnarValue::Scalar).ok_or_else(|| DataFusionError::Internal(format!("{} has no value", self.name)))
    }

    fn schema_name(&self, _args: &[Expr]) -> Result<String> {
        Ok(self.name.clone())
    }

    fn display_name(&self, _args: &[Expr]) -> Result<String> {
        Ok(self.name.clone())
    }
}

/// The parameter that an expression is.
fn parameter(expr: &Arc<dyn PhysicalExpr>) -> Option<&Parameter> {
    expr.downcast_ref::<ScalarFunctionExpr>()?.fun().inner().downcast_ref::<Parameter>()
}

/// Identity of a parameter expression, shared by all parameters that always have its value; `None` for other
/// expressions.
pub(crate) fn identity(expr: &Arc<dyn PhysicalExpr>) -> Option<[usize; 2]> {
    parameter(expr).map(Parameter::identity)
}

/// Whether an expression is a parameter.
pub(crate) fn is_parameter(expr: &Arc<dyn PhysicalExpr>) -> bool {
    parameter(expr).is_some()
}

/// The expression with the values that its parameters have now; `None` if it has no parameters, or a list of them is not
/// one of the operand's type. `input` has its columns.
pub(crate) fn with_values(expr: &Arc<dyn PhysicalExpr>, input: &Schema) -> Option<Arc<dyn PhysicalExpr>> {
    let value_of = |part: &Arc<dyn PhysicalExpr>| {
        let value = parameter(part).and_then(|parameter| parameter.parameters.get(parameter.at));
        value.map(|value| Arc::new(Literal::new(value)) as Arc<dyn PhysicalExpr>)
    };
    let replaced = Arc::clone(expr).transform_down(|part| {
        if let Some(value) = value_of(&part) {
            return Ok(Transformed::yes(value));
        }
        Ok(match part.downcast_ref::<InListExpr>() {
            // A list that is made anew gets the set in which values are looked up.
            Some(list) if list.list().iter().any(is_parameter) => {
                let items = list.list().iter().map(|item| value_of(item).unwrap_or_else(|| Arc::clone(item)));
                let list = InListExpr::try_new(Arc::clone(list.expr()), items.collect(), list.negated(), input)?;
                Transformed::yes(Arc::new(list))
            }
            _ => Transformed::no(part),
        })
    });
    replaced.ok().filter(|replaced| replaced.transformed).map(|replaced| replaced.data)
}
