//! The device plan: a small relational algebra.
//!
//! Built by the Arrow-native API and by the DataFusion rule, cut into pipelines and run by
//! `warpjoin::exec`. Columns are positions; names only label the output schema.

mod aggregate;
mod bound;
#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod bounds;
pub mod build;
pub mod identity;
#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod join;
mod marks;
#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod ordered;
#[allow(missing_docs, reason = "internal to warpjoin")]
pub mod physical;
pub mod rewrite;
mod trace;
mod values;
mod walk;
mod words;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use warpjoin_columns::Table;
use warpjoin_columns::expr::Expr;

use crate::window::WindowCall;

pub use aggregate::{AggregateCall, AggregateFunction, AggregateSpec, Way};
pub use aggregate::{Fold, State, Term};
pub use warpjoin_columns::expr::{Moment, SortKey};

/// A node of the device plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it does.
    pub kind: PlanKind,
    /// Its output columns.
    pub schema: SchemaRef,
}

/// Tables of a plan's inputs, by index, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub struct InputTables<'a>(pub(crate) &'a [Arc<Table>]);

impl<'a> InputTables<'a> {
    /// The table of an input, if it is known.
    pub fn get(self, index: usize) -> Option<&'a Arc<Table>> {
        self.0.get(index)
    }
}

/// What a node does.
#[derive(Debug, Clone)]
pub enum PlanKind {
    /// Columns of a resident table, by position.
    Scan {
        /// The table.
        table: Arc<Table>,
        /// Its columns, in output order; a column may occur twice.
        projection: Vec<usize>,
    },
    /// All columns of a table that is passed at execution.
    Input {
        /// Position in the list of tables passed.
        index: usize,
    },
    /// Rows whose predicate is true.
    Filter {
        /// Input.
        input: Box<Plan>,
        /// A boolean expression over the input.
        predicate: Expr,
    },
    /// One output column for each expression.
    Project {
        /// Input.
        input: Box<Plan>,
        /// Expressions over the input.
        exprs: Vec<Expr>,
    },
    /// A hash join. Without `output`, puts out all build columns, then all probe columns.
    Join(Box<JoinPlan>),
    /// A group-by. Puts out the group expressions, then the aggregates. Without group expressions
    /// it puts out one row, also on empty input.
    Aggregate {
        /// Input.
        input: Box<Plan>,
        /// GROUP BY. Nulls are a group; so are NaNs; -0.0 equals 0.0.
        group_by: Vec<Expr>,
        /// The aggregates.
        aggregates: Vec<AggregateCall>,
    },
    /// Rows `skip` to `skip + fetch` in the order of the keys; rows of equal keys come in any order. A plan that is a sort, or
    /// a projection or limit of one, puts its rows out in that order.
    Sort {
        /// Input.
        input: Box<Plan>,
        /// The first one counts most.
        keys: Vec<SortKey>,
        /// Rows skipped at the beginning.
        skip: u64,
        /// Maximum output rows; `None`: all.
        fetch: Option<u64>,
    },
    /// Skips `skip` rows, then takes up to `fetch`: in order over a sort, else any rows.
    Limit {
        /// Input.
        input: Box<Plan>,
        /// Rows skipped.
        skip: u64,
        /// Maximum output rows; `None`: all others.
        fetch: Option<u64>,
    },
    /// Group-bys of one input by several sets of keys (GROUPING SETS, ROLLUP, CUBE), appended. Outputs the group
    /// expressions, null where they are not in the set, the set's id, then the aggregates. A set without keys has one
    /// row, also on empty input.
    GroupingSets {
        /// Input.
        input: Box<Plan>,
        /// All expressions that occur in a set.
        group_by: Vec<Expr>,
        /// The sets; several may have the same keys.
        sets: Vec<GroupingSet>,
        /// The aggregates, of each set.
        aggregates: Vec<AggregateCall>,
    },
    /// The input's columns, then one for each call. Output rows are sorted by the partition keys, ascending with nulls
    /// last, then by the order keys; rows that are equal in both come in any order, which is the same for all calls.
    Window {
        /// Input.
        input: Box<Plan>,
        /// Rows of equal values form a partition; nulls are equal, floats are compared by their total order.
        partition_by: Vec<Expr>,
        /// The order within a partition.
        order_by: Vec<SortKey>,
        /// The functions.
        calls: Vec<WindowCall>,
    },
    /// The rows of all inputs (UNION ALL), whose columns have this node's types.
    Union {
        /// Inputs.
        inputs: Vec<Plan>,
    },
    /// The input's columns, and a UInt64 that is unique for each row and ascending on each device.
    Numbered {
        /// Input.
        input: Box<Plan>,
    },
    /// The columns of a scan, and a UInt64 row id: the row's position in its table. Only the optimizer adds it.
    RowNumbers {
        /// A scan.
        input: Box<Plan>,
    },
    /// Late materialization: the input's columns, then columns of a table, fetched by row id. Only the optimizer adds
    /// it.
    Fetch(Box<FetchPlan>),
    /// The input's columns, and an Int64 that is 1 if the rows of `of` exist, else 0. Only the optimizer adds it.
    HasRows {
        /// Input.
        input: Box<Plan>,
        /// The rows whose existence is tested.
        of: RowsOf,
    },
    /// A plan that occurs in several places and runs once. Occurrences are recognized by their address.
    Shared(Arc<Plan>),
    /// The input's rows, with a mark that the optimizer adds. Input plans have only the marks of
    /// [`crate::optimize::share_between`].
    Marked {
        /// Input.
        input: Box<Plan>,
        /// The mark.
        mark: Mark,
    },
}

/// Rows whose existence is tested.
#[derive(Debug, Clone)]
pub enum RowsOf {
    /// The rows of a plan.
    Plan(Box<Plan>),
    /// The build rows of the input, a join, whose keys are not null, so that they could match.
    Build,
}

/// Late materialization: columns of a table that are read by row id where they are needed.
#[derive(Debug, Clone)]
pub struct FetchPlan {
    /// Has the row id, from [`PlanKind::RowNumbers`] over the same table.
    pub input: Plan,
    /// The table.
    pub table: Arc<Table>,
    /// Column of the input that holds the row id; where it is null, the table's columns are null.
    pub row: usize,
    /// Columns of the table, in output order.
    pub columns: Vec<usize>,
}

/// A set of group keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupingSet {
    /// Positions among the group expressions, in ascending order.
    pub keys: Vec<usize>,
    /// The id in the output that identifies its rows.
    pub id: u64,
}

/// A mark that the optimizer adds to a node.
#[derive(Debug, Clone)]
pub enum Mark {
    /// A shared build side: other joins or filters probe its table too, so it is built before them.
    SharedBuild(usize),
    /// Rows without a match in a shared build table are dropped: the result does not need them.
    Reduced {
        /// Number of the table.
        table: usize,
        /// The keys, in the order of the table's.
        keys: Vec<Expr>,
        /// How a row is tested.
        test: ReductionTest,
    },
    /// Runs once for several places.
    Shared(Share),
    /// Rows are materialized, as they are smaller than their sources and read more than once.
    Written,
    /// Few of a table's rows are left here: blocks list them, and go on with full warps.
    Compact,
}

/// Where a shared part of a plan, which runs once, is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Share {
    /// In the same plan; equal parts have the same number.
    Within(usize),
    /// In a plan that runs later; the rows stay on the devices for it.
    Left(SharedRowsId),
    /// In a plan that ran before; if that left no rows, the part runs here.
    Found(SharedRowsId),
}

/// Names rows that one plan leaves on the devices for another one, which runs later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedRowsId(u64);

impl SharedRowsId {
    /// One that no other plan of this process has.
    #[doc(hidden)]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How rows are tested for a match in a shared build table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReductionTest {
    /// What is probed. A table that turns out larger than estimated may be replaced by a smaller filter.
    pub form: FilterForm,
    /// Keys are first compared with the table's minimum and maximum.
    pub has_bounds: bool,
    /// Rows that are expected to be tested.
    pub rows: u64,
    /// Whether these rows are sorted by the key.
    pub is_ordered: bool,
    /// Expected number of rows left.
    pub left: u64,
}

/// What a runtime filter probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterForm {
    /// The join's table itself.
    Table,
    /// A bitmap with a bit for each key within the bounds of the build side's columns.
    Bitmap,
    /// A Bloom filter: a few rows without a match pass, and are dropped by the join.
    Bloom,
}

/// A hash join.
#[derive(Debug, Clone)]
pub struct JoinPlan {
    /// Side that the hash table is built from.
    pub build: Plan,
    /// Side that probes it.
    pub probe: Plan,
    /// Pairs of key expressions (over build, over probe) of equal type; at least one.
    pub on: Vec<(Expr, Expr)>,
    /// Kind of join.
    pub kind: JoinKind,
    /// Whether null keys equal each other (IS NOT DISTINCT FROM).
    pub null_equals_null: bool,
    /// Part of the match condition, over all build columns, then all probe columns.
    pub residual: Option<Expr>,
    /// Output columns, by position among all build columns, then all probe columns, then the mark.
    pub output: Vec<usize>,
}

/// Kinds of join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// Pairs that match.
    Inner,
    /// Each probe row with at least one match, once; outputs columns of the probe side only.
    ProbeSemi,
    /// Probe rows without a match; outputs columns of the probe side only.
    ProbeAnti,
    /// SQL's NOT IN: probe rows whose key is certainly not among the build keys. If any build key is null, no row is
    /// kept; a null probe key is kept only if there are no build rows. The residual only restricts matches, as in
    /// DataFusion. One key; outputs columns of the probe side only.
    NotIn,
    /// Every probe row once; outputs columns of the probe side and the mark: a Boolean column, never null, that says
    /// whether the row matches. Its position follows all columns of both sides.
    ProbeMark,
    /// Pairs that match, and probe rows without a match, with nulls for build columns.
    ProbeOuter,
    /// The same, and build rows without a match, with nulls for probe columns.
    Full,
}

impl JoinKind {
    /// Whether the join only tests for matches: it outputs no columns of the build side.
    pub fn is_existence(self) -> bool {
        matches!(self, Self::ProbeSemi | Self::ProbeAnti | Self::NotIn | Self::ProbeMark)
    }

    /// Whether it outputs probe rows without a match.
    pub fn keeps_unmatched(self) -> bool {
        matches!(self, Self::ProbeAnti | Self::NotIn | Self::ProbeMark | Self::ProbeOuter | Self::Full)
    }
}

impl FetchPlan {
    /// Names of the columns that are read.
    pub fn names(&self) -> Vec<String> {
        let schema = self.table.schema();
        self.columns.iter().map(|&column| schema.field(column).name().clone()).collect()
    }
}

impl Plan {
    /// Whether its output is sorted.
    pub fn is_ordered(&self) -> bool {
        match &self.kind {
            PlanKind::Sort { .. } => true,
            PlanKind::Project { input, .. } | PlanKind::Limit { input, .. } => input.is_ordered(),
            PlanKind::Fetch(fetch) => fetch.input.is_ordered(),
            _ => false,
        }
    }

    /// Whether its first rows are the first of an order: its own, or the incidental order of a window.
    pub fn has_first_rows(&self) -> bool {
        match &self.kind {
            PlanKind::Sort { .. } | PlanKind::Window { .. } => true,
            PlanKind::Project { input, .. } | PlanKind::Limit { input, .. } => input.has_first_rows(),
            PlanKind::Fetch(fetch) => fetch.input.has_first_rows(),
            _ => false,
        }
    }

    /// Direct inputs.
    pub fn inputs(&self) -> Vec<&Plan> {
        match &self.kind {
            PlanKind::Scan { .. } | PlanKind::Input { .. } => vec![],
            PlanKind::Filter { input, .. }
            | PlanKind::Project { input, .. }
            | PlanKind::Aggregate { input, .. }
            | PlanKind::Marked { input, .. }
            | PlanKind::Sort { input, .. }
            | PlanKind::Limit { input, .. }
            | PlanKind::GroupingSets { input, .. }
            | PlanKind::Window { input, .. }
            | PlanKind::RowNumbers { input }
            | PlanKind::Numbered { input } => vec![input],
            PlanKind::HasRows { input, of: RowsOf::Build } => vec![input],
            PlanKind::HasRows { input, of: RowsOf::Plan(of) } => vec![input, of],
            PlanKind::Fetch(fetch) => vec![&fetch.input],
            PlanKind::Join(join) => vec![&join.build, &join.probe],
            PlanKind::Union { inputs } => inputs.iter().collect(),
            PlanKind::Shared(plan) => vec![plan],
        }
    }

    /// Bytes of the resident columns that it scans, each column once: a lower bound of what it reads.
    pub fn scanned_bytes(&self) -> u64 {
        fn scan(plan: &Plan, columns: &mut HashMap<(*const Table, usize), u64>) {
            if let PlanKind::Scan { table, projection } = &plan.kind {
                columns.extend(projection.iter().map(|&c| ((Arc::as_ptr(table), c), table.column_bytes(c))));
            }
            plan.inputs().into_iter().for_each(|input| scan(input, columns));
        }
        let mut columns = HashMap::new();
        scan(self, &mut columns);
        columns.into_values().sum()
    }

    /// Direct inputs, mutable. [`PlanKind::Shared`] has none here, as it occurs in several places.
    pub fn inputs_mut(&mut self) -> Vec<&mut Plan> {
        match &mut self.kind {
            PlanKind::Scan { .. } | PlanKind::Input { .. } | PlanKind::Shared(_) => vec![],
            PlanKind::Filter { input, .. }
            | PlanKind::Project { input, .. }
            | PlanKind::Aggregate { input, .. }
            | PlanKind::Sort { input, .. }
            | PlanKind::Limit { input, .. }
            | PlanKind::GroupingSets { input, .. }
            | PlanKind::Window { input, .. }
            | PlanKind::RowNumbers { input }
            | PlanKind::Numbered { input }
            | PlanKind::Marked { input, .. } => vec![input],
            PlanKind::HasRows { input, of: RowsOf::Build } => vec![input],
            PlanKind::HasRows { input, of: RowsOf::Plan(of) } => vec![input, of],
            PlanKind::Fetch(fetch) => vec![&mut fetch.input],
            PlanKind::Join(join) => vec![&mut join.build, &mut join.probe],
            PlanKind::Union { inputs } => inputs.iter_mut().collect(),
        }
    }

    /// Replaces each [`PlanKind::Input`] by what `with` returns for its index; `None` keeps it.
    pub fn replace_inputs(&mut self, with: &dyn Fn(usize) -> Option<PlanKind>) {
        if let PlanKind::Input { index } = self.kind
            && let Some(kind) = with(index)
        {
            self.kind = kind;
        }
        self.inputs_mut().into_iter().for_each(|input| input.replace_inputs(with));
    }

    /// Replaces the plan by what `with` makes of it.
    #[doc(hidden)]
    pub fn replace(&mut self, with: impl FnOnce(Plan) -> Plan) {
        let Ok(()) = self.try_replace::<Infallible>(|plan| Ok(with(plan)));
    }

    /// The same; after an error the plan reads an input that there is not.
    pub(crate) fn try_replace<E>(&mut self, with: impl FnOnce(Plan) -> Result<Plan, E>) -> Result<(), E> {
        let nothing = Plan { kind: PlanKind::Input { index: usize::MAX }, schema: Arc::clone(&self.schema) };
        *self = with(std::mem::replace(self, nothing))?;
        Ok(())
    }

    /// The node with its direct inputs replaced by `with`, which keeps their columns.
    #[must_use]
    pub(crate) fn map_inputs(mut self, with: &mut dyn FnMut(Plan) -> Plan) -> Self {
        self.inputs_mut().into_iter().for_each(|input| input.replace(&mut *with));
        self
    }
}
