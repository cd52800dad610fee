//! The plan of pipelines.
//!
//! A pipeline is a source, steps that run fused with it, and a sink that takes the rows. Pipelines are listed in
//! execution order, and read the output of earlier ones. [`lower()`] makes them from an optimized plan.
//!
//! Architecture invariant: a physical plan does not change, and holds no table, no buffer and no constant of a query. Each
//! execution binds its own ([`Bindings`]).

mod constants;
mod decision;
mod lower;
mod words;

use arrow::datatypes::{DataType, SchemaRef};
use warpjoin_columns::expr::{Expr, ExprKind};

use super::join::JoinSpec;
use super::ordered::OutputRange;
use super::{AggregateCall, FetchPlan, GroupingSet, Plan, ReductionTest, Share, SharedRowsId, SortKey};
use crate::window::WindowCall;

pub use constants::bind;
pub use decision::{Choices, DecisionKind, JoinMethod};
pub use lower::lower;
pub use words::{PipelineWords, in_words};

/// Position of a pipeline in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelineId(pub usize);

/// Position of a table among those that an execution binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSlot(pub usize);

/// Position of a node of the optimized plan among those that an execution binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSlot(pub usize);

/// Pipelines that compute one result; the last one outputs it.
#[derive(Debug)]
pub struct PhysicalPlan {
    /// Number of devices that it is made for.
    pub devices: usize,
    pub pipelines: Vec<Pipeline>,
    /// Number of pipelines that read the output of each.
    pub readers: Vec<usize>,
    /// Regions that are skipped if an earlier plan has left their output.
    pub found: Vec<Found>,
}

/// Pipelines `first` to `last`, which make rows that an earlier plan may have left.
#[derive(Debug)]
pub struct Found {
    pub name: SharedRowsId,
    pub first: PipelineId,
    pub last: PipelineId,
}

/// One pipeline.
#[derive(Debug)]
pub struct Pipeline {
    pub source: Source,
    pub steps: Vec<Step>,
    pub sink: Sink,
    /// How rows come out of the sink.
    pub output: Edge,
}

/// Partitioning and order of the rows between two pipelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub partitioning: Partitioning,
    /// Whether rows are in an order that the plan asks for, device after device.
    pub is_ordered: bool,
}

impl Edge {
    /// Rows anywhere, in no order.
    pub(crate) const ANY: Self = Self { partitioning: Partitioning::Any, is_ordered: false };
}

/// On which device a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioning {
    /// On any.
    Any,
    /// Rows of one group are on one.
    ByGroup,
}

/// Where the rows of a pipeline come from.
#[derive(Debug)]
pub enum Source {
    /// Columns of a table.
    Table { table: TableSlot, columns: Vec<usize> },
    /// The output of an earlier pipeline's sink.
    Pipeline(PipelineId),
    /// The rows of several pipelines, appended.
    Union(Vec<PipelineId>),
}

/// A step for each row, fused into the pipeline's kernel.
#[derive(Debug)]
pub enum Step {
    /// Keeps rows for which the expression is true.
    Filter(Expr),
    /// Outputs one column for each expression.
    Project(Vec<Expr>),
    /// Adds the row id: the row's position in its table.
    RowNumber,
    /// Adds a number to each row, ascending on each device; `schema`: the columns before it.
    Number { schema: SchemaRef },
    /// Adds columns of a table, by row id.
    Fetch { table: TableSlot, row: usize, columns: Vec<usize> },
    /// Joins with the rows of another pipeline: by probing a table, or by partition, where the matches are the source
    /// of the steps that follow.
    Join {
        build: PipelineId,
        join: Join,
        method: JoinMethod,
        /// Rows of the result that are needed, if not all.
        wanted: Option<u64>,
    },
    /// Adds 1 if the pipeline output rows (for a build side: rows whose key is not null), else 0. `schema`: the columns
    /// before it.
    HasRows { of: PipelineId, schema: SchemaRef },
    /// Probes the shared build table of that number.
    Probe { table: usize, join: Join },
    /// Drops rows without a match in the shared build table of that number.
    Reduce { table: usize, keys: Vec<Expr>, test: ReductionTest },
    /// Changes nothing: few rows are left, and what follows is worth full warps.
    Compact,
}

/// A join without its sides.
#[derive(Debug, Clone)]
pub struct Join {
    pub spec: JoinSpec,
    /// Columns of build and probe side.
    pub schemas: [SchemaRef; 2],
    /// The plan node, for estimates.
    pub node: NodeSlot,
}

/// The sink of a pipeline.
#[derive(Debug)]
pub enum Sink {
    /// The result of the plan.
    Result,
    /// One row for each row of the source, at the same position.
    InPlace,
    /// Skips any `skip` rows, then takes up to `fetch`.
    Limit { skip: u64, fetch: Option<u64> },
    /// Rows in the order of `keys`, which may read columns after the first `width`. Only the first `width` columns are
    /// output.
    Sort { keys: Vec<SortKey>, width: usize, range: OutputRange },
    /// The build side of a join, which runs with the pipeline that joins it.
    Build(JoinMethod),
    /// The number of rows, read by the host.
    Count,
    /// An input of a union, which runs with the others.
    UnionInput,
    /// A shared table of all rows on every device, which later pipelines probe by its number. It is built once, even if
    /// it occurs in several plans.
    ShareBuild {
        number: usize,
        join: Join,
        /// Whether runtime filters are made of the rows.
        has_filters: bool,
    },
    /// All rows, materialized.
    Write,
    /// Rows that several pipelines read.
    Keep,
    /// The same, marked by the optimizer; one of the pipelines may belong to another plan.
    Share(Share),
    /// Groups of several sets of keys, appended.
    GroupingSets { group_by: Vec<Expr>, sets: Vec<GroupingSet>, id_type: DataType, calls: Vec<AggregateCall> },
    /// Results of window functions, in the window's order on each device.
    Window { partition_by: Vec<Expr>, order_by: Vec<SortKey>, calls: Vec<WindowCall>, schema: SchemaRef },
    /// A range of rows in their present order.
    Slice(OutputRange),
    /// Groups: the keys, then the accumulators.
    Aggregate { group_by: Vec<Expr>, calls: Vec<AggregateCall> },
}

/// The values that one execution binds to a plan.
#[derive(Debug)]
pub struct Bindings<'p> {
    /// Literals, and constants that are known when the plan runs.
    pub constants: Vec<ExprKind>,
    pub tables: Vec<TableNode<'p>>,
    /// Nodes of the optimized plan: inputs of sinks, for estimates.
    pub nodes: Vec<&'p Plan>,
}

/// The node that reads a table.
#[derive(Debug, Clone, Copy)]
pub enum TableNode<'p> {
    /// A scan, or an input of the execution.
    Source(&'p Plan),
    /// A late read.
    Fetch(&'p FetchPlan),
}

impl Step {
    /// Whether it looks rows up in a table.
    pub fn looks_up(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::Probe { .. } | Self::Reduce { .. })
    }
}

impl Pipeline {
    /// Pipelines whose output it reads.
    pub fn reads(&self) -> Vec<PipelineId> {
        let mut read = match &self.source {
            Source::Pipeline(id) => vec![*id],
            Source::Union(ids) => ids.clone(),
            Source::Table { .. } => vec![],
        };
        read.extend(self.steps.iter().filter_map(|step| match step {
            Step::Join { build, .. } => Some(*build),
            _ => None,
        }));
        read
    }
}

impl PhysicalPlan {
    /// Partitioning and order of the result's rows.
    pub fn output(&self) -> Edge {
        self.pipelines.last().map_or(Edge::ANY, |pipeline| pipeline.output)
    }
}
