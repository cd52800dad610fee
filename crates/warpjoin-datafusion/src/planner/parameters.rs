//! Plans queries that differ only in literals once.
//!
//! A literal that is compared with a column, and a pattern of LIKE, become parameters. DataFusion plans the query with
//! parameters without knowing their values; that plan is kept if it equals the plan with the literals of the current
//! query.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, ExprSchemable, Like, LogicalPlan, Operator, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_plan::ExecutionPlan;

use super::{KeepingPlanner, bound, check};
use crate::kept::Instance;
use crate::kept::parameter::Parameters;

/// A query with placeholders in place of literals, and their values.
pub(super) struct Parameterized {
    pub(super) plan: LogicalPlan,
    pub(super) values: Vec<ScalarValue>,
}

/// Replaces the constants that filters and joins compare with by placeholders. Queries with equal constants in
/// different places get different plans. `None` if there are no such constants.
pub(super) fn parameterize(plan: &LogicalPlan, session: &SessionState) -> Result<Option<Parameterized>> {
    let mut values = vec![];
    let plan = plan.clone().transform_down_with_subqueries(|mut node| {
        let changed = match &mut node {
            LogicalPlan::Filter(filter) => {
                let schema = Arc::clone(filter.input.schema());
                replace(&mut filter.predicate, &mut Lifting::new(schema, &mut values, session))?
            }
            LogicalPlan::Join(join) => match &mut join.filter {
                Some(filter) => {
                    let schema = Arc::new(join.left.schema().join(join.right.schema())?);
                    replace(filter, &mut Lifting::new(schema, &mut values, session))?
                }
                None => false,
            },
            _ => false,
        };
        Ok(if changed { Transformed::yes(node) } else { Transformed::no(node) })
    });
    let plan = plan.data()?;
    Ok((!values.is_empty()).then_some(Parameterized { plan, values }))
}

fn replace(predicate: &mut Expr, lifting: &mut Lifting<'_>) -> Result<bool> {
    let before = lifting.replaced;
    let given = std::mem::take(predicate);
    *predicate = given.transform_down(|expr| lifting.of(expr)).data()?;
    Ok(lifting.replaced > before)
}

/// Finds the constants of one predicate.
struct Lifting<'a> {
    simplifier: ExprSimplifier,
    schema: Arc<DFSchema>,
    values: &'a mut Vec<ScalarValue>,
    replaced: usize,
}

impl<'a> Lifting<'a> {
    fn new(schema: Arc<DFSchema>, values: &'a mut Vec<ScalarValue>, session: &SessionState) -> Self {
        let context = SimplifyContext::builder()
            .with_schema(Arc::clone(&schema))
            .with_config_options(Arc::clone(session.config_options()))
            .build();
        Self { simplifier: ExprSimplifier::new(context), schema, values, replaced: 0 }
    }

    fn of(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
                // DataFusion, too, puts literals on the right.
                let (left, op, right) = match (is_constant(&left), is_constant(&right), op.swap()) {
                    (true, false, Some(swapped)) => (right, swapped, left),
                    _ => (left, op, right),
                };
                let is_comparison = is_constant(&right) && !is_constant(&left);
                let placeholder = if is_comparison { self.placeholder(&left, op, &right)? } else { None };
                let right = placeholder.map_or(right, Box::new);
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let mut bound = |bound: Box<Expr>, op| -> Result<Box<Expr>> {
                    let placeholder = if is_constant(&bound) { self.placeholder(&expr, op, &bound)? } else { None };
                    Ok(placeholder.map_or(bound, Box::new))
                };
                let (low, high) = (bound(low, Operator::GtEq)?, bound(high, Operator::LtEq)?);
                Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
            }
            Expr::Like(mut like) => {
                let given = |like: &Like| match &*like.pattern {
                    Expr::Literal(value, None) if value.try_as_str().flatten().is_some_and(has_wildcards) => {
                        Some(value.clone())
                    }
                    _ => None,
                };
                let value = given(&like).and_then(|value| value.cast_to(&like.expr.get_type(&self.schema).ok()?).ok());
                if let Some(value) = value {
                    *like.pattern = self.placeholder_of(value);
                }
                Transformed::new(Expr::Like(like), true, TreeNodeRecursion::Jump)
            }
            // DataFusion makes comparisons of a short list, and takes a long one as literals.
            Expr::InList(mut list) if list.list.len() <= COMPARED_MAX => {
                for item in list.list.iter_mut().filter(|item| is_constant(item)) {
                    if let Some(placeholder) = self.placeholder(&list.expr, Operator::Eq, item)? {
                        *item = placeholder;
                    }
                }
                Transformed::new(Expr::InList(list), true, TreeNodeRecursion::Jump)
            }
            expr => Transformed::no(expr),
        })
    }

    /// The placeholder for a constant that is compared with `operand`; `None` if the value could change more than the
    /// constant: the operand's type, or whether the comparison is needed.
    fn placeholder(&mut self, operand: &Expr, op: Operator, constant: &Expr) -> Result<Option<Expr>> {
        let comparison = BinaryExpr::new(Box::new(operand.clone()), op, Box::new(constant.clone()));
        let coerced = self.simplifier.coerce(Expr::BinaryExpr(comparison), &self.schema);
        let Ok(simple) = coerced.and_then(|coerced| self.simplifier.simplify(coerced)) else { return Ok(None) };
        let Expr::BinaryExpr(BinaryExpr { left, op: found, right }) = simple else { return Ok(None) };
        let (Expr::Literal(value, None), true) = (*right, *left == *operand && found == op) else { return Ok(None) };
        if value.is_null() || value.data_type() != operand.get_type(&self.schema)? {
            return Ok(None);
        }
        Ok(Some(self.placeholder_of(value)))
    }

    fn placeholder_of(&mut self, value: ScalarValue) -> Expr {
        let data_type = value.data_type();
        let at = self.values.len();
        let equal = self.values.iter().position(|known| *known == value).unwrap_or(at);
        self.values.push(value);
        self.replaced += 1;
        placeholder(at, equal, data_type)
    }
}

/// Maximum length of a list that DataFusion turns into comparisons.
const COMPARED_MAX: usize = 3;

/// Whether a pattern of LIKE is more than a comparison.
fn has_wildcards(pattern: &str) -> bool {
    pattern.contains(['%', '_']) && !pattern.contains('\\') && pattern.chars().any(|c| c != '%')
}

/// The placeholder of value `at`, which equals the value `equal` and none before that. SQL texts have no such
/// placeholders.
fn placeholder(at: usize, equal: usize, data_type: DataType) -> Expr {
    let field = Arc::new(Field::new("", data_type, false));
    Expr::Placeholder(Placeholder::new_with_field(format!("{PREFIX}{at} {equal}"), Some(field)))
}

const PREFIX: &str = "$warpjoin ";

fn places_of(id: &str) -> Option<(usize, usize)> {
    let (at, equal) = id.strip_prefix(PREFIX)?.split_once(' ')?;
    Some((at.parse().ok()?, equal.parse().ok()?))
}

/// Whether an expression is a constant.
fn is_constant(expr: &Expr) -> bool {
    let mut is_constant = true;
    let visited = expr.apply(|part| {
        is_constant &= match part {
            Expr::Literal(..) | Expr::Cast(_) | Expr::TryCast(_) | Expr::BinaryExpr(_) | Expr::Negative(_) => true,
            Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
            _ => false,
        };
        Ok(if is_constant { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    visited.is_ok() && is_constant
}

/// A plan of a parameterized query; `None` if it differs from `expected`, which was planned with the values as literals.
///
/// DataFusion merges conditions that are equal, and computes an expression once that stands twice, but not a literal. So equal
/// constants are tried as different placeholders, and then as one.
pub(super) async fn instance(
    query: &Parameterized,
    expected: &Arc<dyn ExecutionPlan>,
    session: &SessionState,
) -> Result<Option<Instance>> {
    let merged = merged(&query.plan)?;
    for given in std::iter::once(&query.plan).chain(&merged) {
        let parameters = Parameters::like(&query.values);
        let optimized = with_functions(session.optimize(given)?, &parameters)?;
        let planner = KeepingPlanner::inner_of(session.query_planner());
        let plan = planner.create_physical_plan(&optimized, session).await?;
        parameters.set(&query.values);
        let bound = bound(&plan)?;
        if check::is_same(&bound, expected) {
            return Ok(Some(Instance::of_parameters(plan, parameters, bound)));
        }
    }
    Ok(None)
}

/// The plan with one placeholder for constants that are equal; `None` if all are different.
fn merged(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let of = |expr: Expr| match &expr {
        Expr::Placeholder(Placeholder { id, field }) => match places_of(id) {
            Some((at, equal)) if at != equal => {
                let id = format!("{PREFIX}{equal} {equal}");
                Ok(Transformed::yes(Expr::Placeholder(Placeholder::new_with_field(id, field.clone()))))
            }
            _ => Ok(Transformed::no(expr)),
        },
        _ => Ok(Transformed::no(expr)),
    };
    let merged =
        plan.clone().transform_up_with_subqueries(|node| node.map_expressions(|expr| expr.transform_up(of)))?;
    Ok(merged.transformed.then_some(merged.data))
}

/// Replaces placeholders by their parameters.
fn with_functions(plan: LogicalPlan, parameters: &Arc<Parameters>) -> Result<LogicalPlan> {
    let of = |expr: Expr| match &expr {
        Expr::Placeholder(Placeholder { id, .. }) => {
            let (at, equal) =
                places_of(id).ok_or_else(|| DataFusionError::Internal(format!("unknown placeholder {id}")))?;
            parameters.expr(at, equal, id).map(Transformed::yes)
        }
        _ => Ok(Transformed::no(expr)),
    };
    plan.transform_up_with_subqueries(|node| node.map_expressions(|expr| expr.transform_up(of))).data()
}
