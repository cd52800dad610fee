//! The plan of pipelines.
//!
//! A pipeline is a source, steps that run fused with it, and a sink that takes what comes of them. Pipelines stand in the
//! order in which they run, and read what earlier ones have put out. [`lower()`] makes them of an optimized plan.
//!
//! Architecture invariant: a physical plan does not change, and holds no table, no buffer and no constant of a query. Each
//! execution binds its own ([`Bindings`]).

mod constants;
mod lower;

use arrow::datatypes::{DataType, SchemaRef};

use super::join::JoinSpec;
use super::ordered::OutputRange;
use super::{AggregateCall, FetchPlan, GroupingSet, Plan, ReductionTest, Share, SharedRowsId, SortKey};
use crate::expr::{Expr, ExprKind};
use crate::window::WindowCall;

pub(crate) use constants::bind;
pub(crate) use lower::lower;

/// Position of a pipeline in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PipelineId(pub(crate) usize);

/// Position of a table among those that an execution binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableSlot(pub(crate) usize);

/// Position of a node of the optimized plan among those that an execution binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeSlot(pub(crate) usize);

/// Pipelines that give one result, which the last one puts out.
#[derive(Debug)]
pub(crate) struct PhysicalPlan {
    pub pipelines: Vec<Pipeline>,
    /// How many pipelines read what each puts out.
    pub readers: Vec<usize>,
    /// Regions that are skipped if an earlier plan has left their output.
    pub found: Vec<Found>,
}

/// Pipelines `first` to `last`, which make rows that an earlier plan may have left.
#[derive(Debug)]
pub(crate) struct Found {
    pub name: SharedRowsId,
    pub first: PipelineId,
    pub last: PipelineId,
}

/// One pipeline.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub source: Source,
    pub steps: Vec<Step>,
    pub sink: Sink,
    /// How rows come out of the sink.
    pub output: Edge,
}

/// How rows lie between two pipelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    pub partitioning: Partitioning,
    /// Whether rows lie in an order that somebody asked for, device after device.
    pub is_ordered: bool,
}

impl Edge {
    /// Rows anywhere, in no order.
    pub(crate) const ANY: Self = Self { partitioning: Partitioning::Any, is_ordered: false };
}

/// On which device a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partitioning {
    /// On any.
    Any,
    /// Rows of one group are on one.
    ByGroup,
}

/// Where the rows of a pipeline come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Columns of a table.
    Table { table: TableSlot, columns: Vec<usize> },
    /// What the sink of an earlier pipeline puts out.
    Pipeline(PipelineId),
    /// The rows of several pipelines, one behind the other.
    Union(Vec<PipelineId>),
}

/// What is done with each row, without a kernel of its own.
#[derive(Debug)]
pub(crate) enum Step {
    /// Keeps rows of which it is true.
    Filter(Expr),
    /// Puts out one column an expression.
    Project(Vec<Expr>),
    /// Adds the number of the row in its table.
    RowNumber,
    /// Adds a number to each row, ascending on each device; `schema`: the columns before it.
    Number { schema: SchemaRef },
    /// Adds columns of a table, by the number of a row.
    Fetch { table: TableSlot, row: usize, columns: Vec<usize> },
    /// Joins with the rows of another pipeline: by a table that is probed, or by partition, which makes matches the source of
    /// what follows. A decision of the host, once both sides are known.
    Join {
        build: PipelineId,
        join: Join,
        /// Rows that are wanted of the result, if not all are.
        wanted: Option<u64>,
    },
    /// Adds 1 if the pipeline put out rows, else 0; of a build side rows with a key. `schema`: the columns before it.
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
pub(crate) struct Join {
    pub spec: JoinSpec,
    /// Columns of build and probe side.
    pub schemas: [SchemaRef; 2],
    /// For estimates.
    pub node: NodeSlot,
}

/// What takes the rows of a pipeline.
#[derive(Debug)]
pub(crate) enum Sink {
    /// The result of the plan.
    Result,
    /// Rows that stay where their source's are: there is one for each.
    InPlace,
    /// All but `skip` rows, `fetch` at most, of any.
    Limit { skip: u64, fetch: Option<u64> },
    /// Rows in the order of keys over the first `width` columns and those behind them, which are not put out.
    Sort { keys: Vec<SortKey>, width: usize, range: OutputRange },
    /// The build side of a join, which runs with the pipeline that joins it.
    Build,
    /// The number of rows, which the host reads.
    Count,
    /// An input of a union, which runs with the others.
    UnionInput,
    /// A table of all rows on every device, which pipelines behind it probe by its number; once, though it may stand in
    /// several plans.
    ShareBuild {
        number: usize,
        join: Join,
        /// Whether runtime filters are made of the rows.
        has_filters: bool,
    },
    /// All rows, written down.
    Write,
    /// Rows that several pipelines read.
    Keep,
    /// The same, marked by the optimizer; one of the pipelines may belong to another plan.
    Share(Share),
    /// Groups of several sets of keys, one behind the other.
    GroupingSets { group_by: Vec<Expr>, sets: Vec<GroupingSet>, id_type: DataType, calls: Vec<AggregateCall> },
    /// Results of window functions, on each device in their order.
    Window { partition_by: Vec<Expr>, order_by: Vec<SortKey>, calls: Vec<WindowCall>, schema: SchemaRef },
    /// A range of rows in the order in which they lie.
    Slice(OutputRange),
    /// Groups: the keys, then what accumulators hold.
    Aggregate { group_by: Vec<Expr>, calls: Vec<AggregateCall> },
}

/// What one execution brings to a plan.
#[derive(Debug)]
pub(crate) struct Bindings<'p> {
    /// Literals, and constants that are known when the plan runs.
    pub constants: Vec<ExprKind>,
    pub tables: Vec<TableNode<'p>>,
    /// Nodes of the optimized plan: inputs of sinks, for estimates.
    pub nodes: Vec<&'p Plan>,
}

/// The node that reads a table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TableNode<'p> {
    /// A scan, or an input of the execution.
    Source(&'p Plan),
    /// A late read.
    Fetch(&'p FetchPlan),
}

impl Step {
    /// Whether it looks rows up in a table.
    pub(crate) fn looks_up(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::Probe { .. } | Self::Reduce { .. })
    }
}

impl Pipeline {
    /// Pipelines whose output it reads.
    pub(crate) fn reads(&self) -> Vec<PipelineId> {
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
    /// How the rows of the result lie.
    pub(crate) fn output(&self) -> Edge {
        self.pipelines.last().map_or(Edge::ANY, |pipeline| pipeline.output)
    }
}
