//! The plan node that reads a resident table.
//!
//! Inside a device part it only names resident columns. Executed as a DataFusion node it downloads them, as far as rows
//! are requested.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, EvaluationType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, coop};
use futures::{StreamExt, TryStreamExt, stream};
use warpjoin::Table;
use warpjoin::column::Domain;

use crate::error::to_datafusion;
use crate::runtime::thread::{from_thread, with_schema};
use crate::table::statistics::table_statistics;

/// Scans columns of a resident table. Downloads them if a CPU node reads them, piece by piece.
#[derive(Debug, Clone)]
pub struct DeviceScanExec {
    table: Arc<Table>,
    projection: Vec<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// Cached, because each join above asks for them several times.
    statistics: OnceLock<Arc<Statistics>>,
}

impl DeviceScanExec {
    /// Scans the columns `projection` of `table`, in that order.
    ///
    /// # Errors
    /// Returns an error if a position is not a column of the table.
    pub fn try_new(table: Arc<Table>, projection: Vec<usize>) -> Result<Self> {
        let schema: SchemaRef = Arc::new(table.schema().project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative)
        .with_evaluation_type(EvaluationType::Lazy);
        Ok(Self {
            table,
            projection,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            statistics: OnceLock::new(),
        })
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether kernels can read all its columns, as values or dictionary codes. Strings stored as bytes are only downloaded.
    pub(crate) fn reads_values_only(&self) -> bool {
        let types = self.table.column_types();
        self.projection.iter().all(|&column| types.get(column).is_some_and(|it| it.domain != Domain::Bytes))
    }

    /// Positions of its columns in the table, in output order.
    pub fn projection(&self) -> &[usize] {
        &self.projection
    }
}

impl DisplayAs for DeviceScanExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let devices = self.table.devices().devices().len();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(
                f,
                "DeviceScanExec: rows={}, devices={devices}, projection=[{}]",
                self.table.rows(),
                names.join(", ")
            ),
            DisplayFormatType::TreeRender => {
                writeln!(f, "rows={}", self.table.rows())?;
                writeln!(f, "devices={devices}")
            }
        }
    }
}

impl ExecutionPlan for DeviceScanExec {
    fn name(&self) -> &str {
        "DeviceScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            Err(DataFusionError::Internal("DeviceScanExec has no children".to_string()))
        }
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { metrics: ExecutionPlanMetricsSet::new(), ..(*self).clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!("DeviceScanExec has one partition, not {partition}")));
        }
        let (table, projection) = (Arc::clone(&self.table), self.projection.clone());
        let (schema, batch_rows) = (self.schema(), context.session_config().batch_size());
        let output = BaselineMetrics::new(&self.metrics, partition);
        let pieces = table.pieces(&projection, batch_rows).map_err(to_datafusion)?;
        let fixed = Arc::clone(&schema);
        let batches = stream::once(async move { from_thread("warpjoin-download", move || pieces) })
            .try_flatten()
            .map_ok(|piece: Vec<RecordBatch>| stream::iter(piece).map(Ok::<_, DataFusionError>))
            .try_flatten()
            .map(move |batch: Result<RecordBatch>| Ok(with_schema(batch?, &fixed)?.record_output(&output)));
        Ok(coop::make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let statistics = self.statistics.get_or_init(|| Arc::new(table_statistics(&self.table, &self.projection)));
        Ok(Arc::clone(statistics))
    }
}
