//! Joins of tables.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use warpjoin_columns::expr::Expr;
use warpjoin_columns::{Error, Result, Table};
use warpjoin_plan::plan::{JoinKind, JoinPlan, Plan, PlanKind};

use crate::Session;
use crate::exec::{self, ExecOptions, JoinOrder, QueryMetrics, QueryOutput};

/// An equi-join of two tables, inner unless said otherwise: `build` becomes a hash table, `probe` probes it.
///
/// Put the smaller side, or the one with unique keys, on the build side. Null keys match nothing.
/// Keys of up to 63 bits after narrowing are compared as they are, longer ones by hash and then by
/// value.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow::array::{Int64Array, RecordBatch, StringArray};
/// # use arrow::datatypes::{DataType, Field, Schema};
/// # use warpjoin::{HashJoin, Session, TableBuilder};
/// # use warpjoin_device::{SimOptions, open_simulated};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let session = Session::new(open_simulated(&SimOptions { devices: 2, ..SimOptions::default() })?)?;
/// # let table = |name: &str, keys: Vec<i64>, values: Vec<&str>| -> Result<_, Box<dyn std::error::Error>> {
/// #     let schema = Arc::new(Schema::new(vec![
/// #         Field::new("key", DataType::Int64, false), Field::new(name, DataType::Utf8, false)]));
/// #     let mut builder = TableBuilder::new(session.device_set(), schema.clone());
/// #     builder.push(&RecordBatch::try_new(schema, vec![
/// #         Arc::new(Int64Array::from(keys)), Arc::new(StringArray::from(values))])?)?;
/// #     Ok(Arc::new(builder.finish()?))
/// # };
/// let colors = table("color", vec![1, 2, 3], vec!["red", "green", "blue"])?;
/// let things = table("thing", vec![3, 3, 7], vec!["sky", "sea", "void"])?;
/// let output = HashJoin::new(colors, things).on("key", "key")?.run(&session)?;
/// assert_eq!(output.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct HashJoin {
    build: Arc<Table>,
    probe: Arc<Table>,
    on: Vec<(usize, usize)>,
    output: Option<Vec<usize>>,
    kind: JoinKind,
    options: ExecOptions,
}

impl HashJoin {
    /// A join without keys yet.
    pub fn new(build: Arc<Table>, probe: Arc<Table>) -> Self {
        // Whoever names the sides has chosen.
        let options = ExecOptions { join_order: JoinOrder::AsGiven, ..ExecOptions::default() };
        Self { build, probe, on: vec![], output: None, kind: JoinKind::Inner, options }
    }

    /// Adds a pair of key columns of equal type, by name.
    ///
    /// # Errors
    /// When a table has no such column.
    pub fn on(mut self, build: &str, probe: &str) -> Result<Self> {
        self.on.push((self.build.schema().index_of(build)?, self.probe.schema().index_of(probe)?));
        Ok(self)
    }

    /// Another kind than [`JoinKind::Inner`].
    #[must_use]
    pub fn kind(mut self, kind: JoinKind) -> Self {
        self.kind = kind;
        self
    }

    /// Puts out only these columns, by position among all build columns, then all probe columns, then the mark.
    #[must_use]
    pub fn output(mut self, columns: Vec<usize>) -> Self {
        self.output = Some(columns);
        self
    }

    /// Uses these settings.
    #[must_use]
    pub fn options(mut self, options: ExecOptions) -> Self {
        self.options = options;
        self
    }

    /// The join as a device plan, to be run by itself or to be part of a larger one.
    ///
    /// # Errors
    /// When there is no key, or a position in the output does not exist.
    pub fn plan(&self) -> Result<Plan> {
        let (build, probe) = (scan(&self.build), scan(&self.probe));
        let mut fields: Vec<Field> =
            build.schema.fields().iter().chain(probe.schema.fields()).map(|field| field.as_ref().clone()).collect();
        let build_width = build.schema.fields().len();
        let first = if self.kind.is_existence() { build_width } else { 0 };
        let padded = match self.kind {
            JoinKind::ProbeOuter => build_width,
            JoinKind::Full => fields.len(),
            _ => 0,
        };
        fields.iter_mut().take(padded).for_each(|field| *field = field.clone().with_nullable(true));
        if self.kind == JoinKind::ProbeMark {
            fields.push(Field::new("mark", DataType::Boolean, false));
        }
        let output = self.output.clone().unwrap_or_else(|| (first..fields.len()).collect());
        let schema = Schema::new(fields).project(&output)?;
        if self.on.is_empty() {
            return Err(Error::InvalidArgument("a hash join needs at least one pair of key columns".into()));
        }
        let key = |schema: &SchemaRef, column: usize| {
            let field = schema.field(column);
            Expr::column(column, field.data_type().clone(), field.is_nullable())
        };
        let on = self.on.iter().map(|&(b, p)| (key(&build.schema, b), key(&probe.schema, p))).collect();
        let join = JoinPlan { build, probe, on, kind: self.kind, null_equals_null: false, residual: None, output };
        Ok(Plan { kind: PlanKind::Join(Box::new(join)), schema: Arc::new(schema) })
    }

    /// Runs the join and fetches the result.
    ///
    /// # Errors
    /// As [`exec::run`], and when a table does not lie on the devices of `session`.
    pub fn run(&self, session: &Arc<Session>) -> Result<QueryOutput> {
        exec::run(session, &self.plan()?, &[], &self.options)
    }

    /// Runs the join and leaves the result on the devices, as a table to be used again.
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

/// All columns of a table.
pub(crate) fn scan(table: &Arc<Table>) -> Plan {
    let schema = table.schema();
    Plan { kind: PlanKind::Scan { table: table.clone(), projection: (0..schema.fields().len()).collect() }, schema }
}
