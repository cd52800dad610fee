//! Group-bys of tables.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use warpjoin_columns::expr::Expr;
use warpjoin_columns::{Error, Reason, Result, Table};
use warpjoin_plan::plan::{AggregateCall, AggregateFunction, Plan, PlanKind};

use super::hash_join::scan;
use crate::Session;
use crate::exec::{self, ExecOptions, QueryMetrics, QueryOutput};

/// A group-by of a table: one row a distinct combination of the key columns, with aggregates.
///
/// Nulls form a group; so do NaNs; -0.0 and 0.0 are one group. Without keys the result is one row.
/// Sums of integers are 64 bits wide and wrap; sums of decimals gain ten digits; averages of
/// integers and floats are Float64, of decimals have four more digits of scale.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow::array::{Int64Array, RecordBatch};
/// # use arrow::datatypes::{DataType, Field, Schema};
/// # use warpjoin::{GroupBy, Session, TableBuilder, plan::AggregateFunction};
/// # use warpjoin_device::{SimOptions, open_simulated};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let session = Session::new(open_simulated(&SimOptions::default())?)?;
/// # let schema = Arc::new(Schema::new(vec![
/// #     Field::new("key", DataType::Int64, false), Field::new("value", DataType::Int64, false)]));
/// # let mut builder = TableBuilder::new(session.device_set(), schema.clone());
/// # builder.push(&RecordBatch::try_new(schema, vec![
/// #     Arc::new(Int64Array::from(vec![1, 2, 1])), Arc::new(Int64Array::from(vec![10, 20, 30]))])?)?;
/// # let table = Arc::new(builder.finish()?);
/// let output = GroupBy::new(table)
///     .key("key")?
///     .aggregate(AggregateFunction::Sum, Some("value"))?
///     .run(&session)?;
/// assert_eq!(output.batches[0].num_rows(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct GroupBy {
    table: Arc<Table>,
    keys: Vec<usize>,
    aggregates: Vec<(AggregateFunction, Option<usize>)>,
    options: ExecOptions,
}

impl GroupBy {
    /// A group-by without keys and aggregates yet.
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, keys: vec![], aggregates: vec![], options: ExecOptions::default() }
    }

    /// Adds a key column, by name.
    ///
    /// # Errors
    /// When the table has no such column.
    pub fn key(mut self, column: &str) -> Result<Self> {
        self.keys.push(self.table.schema().index_of(column)?);
        Ok(self)
    }

    /// Adds an aggregate of a column, by name; `None` counts rows.
    ///
    /// # Errors
    /// When the table has no such column, or the function needs one.
    pub fn aggregate(mut self, function: AggregateFunction, column: Option<&str>) -> Result<Self> {
        if function.spec().arguments != 1 {
            return Err(Error::InvalidArgument(format!("{function} needs two columns: use a plan")));
        }
        if column.is_none() && function != AggregateFunction::Count {
            return Err(Error::InvalidArgument(format!("{function} needs a column")));
        }
        let column = column.map(|name| self.table.schema().index_of(name)).transpose()?;
        self.aggregates.push((function, column));
        Ok(self)
    }

    /// Uses these settings.
    #[must_use]
    pub fn options(mut self, options: ExecOptions) -> Self {
        self.options = options;
        self
    }

    /// The group-by as a device plan, to be run by itself or to be part of a larger one.
    ///
    /// # Errors
    /// When a function does not take a column of its type.
    pub fn plan(&self) -> Result<Plan> {
        let input = scan(&self.table);
        let mut fields: Vec<Field> = self.keys.iter().map(|&key| input.schema.field(key).clone()).collect();
        let column = |index: usize| {
            let field = input.schema.field(index);
            Expr::column(index, field.data_type().clone(), field.is_nullable())
        };
        let group_by = self.keys.iter().map(|&key| column(key)).collect();
        let mut aggregates = vec![];
        for &(function, index) in &self.aggregates {
            let argument = index.map(column);
            let data_type = result_type(function, argument.as_ref().map(|a| &a.data_type))?;
            let name = index.map_or("*", |index| input.schema.field(index).name().as_str());
            fields.push(Field::new(
                format!("{function}({name})"),
                data_type.clone(),
                function != AggregateFunction::Count,
            ));
            aggregates.push(AggregateCall::new(function, argument.map(|a| coerce(function, a)), data_type));
        }
        let kind = PlanKind::Aggregate { input: Box::new(input), group_by, aggregates };
        Ok(Plan { kind, schema: Arc::new(Schema::new(fields)) })
    }

    /// Runs the group-by and fetches the result.
    ///
    /// # Errors
    /// As [`exec::run`], and when a table does not lie on the devices of `session`.
    pub fn run(&self, session: &Arc<Session>) -> Result<QueryOutput> {
        exec::run(session, &self.plan()?, &[], &self.options)
    }

    /// Runs the group-by and leaves the result on the devices, as a table to be used again.
    ///
    /// # Errors
    /// As [`exec::run`].
    pub fn run_to_table(&self, session: &Arc<Session>) -> Result<Table> {
        Ok(exec::run_to_table(session, &self.plan()?, &[], &self.options)?.0)
    }

    /// Runs as [`Self::run_to_table`] does, drops the result, and says what it cost.
    ///
    /// # Errors
    /// As [`exec::run`].
    pub fn measure(&self, session: &Arc<Session>) -> Result<QueryMetrics> {
        Ok(exec::run_to_table(session, &self.plan()?, &[], &self.options)?.1)
    }
}

/// Type of an aggregate's result, by DataFusion's rules.
fn result_type(function: AggregateFunction, argument: Option<&DataType>) -> Result<DataType> {
    let Some(argument) = argument else { return Ok(DataType::Int64) };
    let found = (function.spec().result)(argument);
    found.ok_or_else(|| Reason::Aggregate(format!("{function}({argument})")).into())
}

/// The argument in the type in which the function takes it.
fn coerce(function: AggregateFunction, argument: Expr) -> Expr {
    let is_number = argument.data_type.is_integer() || argument.data_type.is_floating();
    if function == AggregateFunction::Avg && is_number && argument.data_type != DataType::Float64 {
        let nullable = argument.nullable;
        return Expr {
            kind: warpjoin_columns::expr::ExprKind::Cast(Box::new(argument)),
            data_type: DataType::Float64,
            nullable,
        };
    }
    argument
}
