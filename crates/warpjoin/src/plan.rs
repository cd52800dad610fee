//! The device plan: a small relational algebra.
//!
//! Built by the Arrow-native API and by the DataFusion rule, cut into pipelines and run by
//! [`crate::exec`]. Columns are positions; names only label the output schema.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};

use crate::Table;
use crate::expr::Expr;
use crate::window::WindowCall;

/// A node of the device plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it does.
    pub kind: PlanKind,
    /// Columns that it puts out.
    pub schema: SchemaRef,
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
    /// All columns of a table that is handed over at execution.
    Input {
        /// Position in the list handed over.
        index: usize,
    },
    /// Rows whose predicate is true.
    Filter {
        /// Input.
        input: Box<Plan>,
        /// A boolean expression over the input.
        predicate: Expr,
    },
    /// One output column an expression.
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
        /// Rows left out at the beginning.
        skip: u64,
        /// Most rows put out; `None`: all.
        fetch: Option<u64>,
    },
    /// All but `skip` rows, `fetch` at most: the next ones of a sort, else any.
    Limit {
        /// Input.
        input: Box<Plan>,
        /// Rows left out.
        skip: u64,
        /// Most rows put out; `None`: all others.
        fetch: Option<u64>,
    },
    /// Group-bys of one input by several sets of keys, one behind the other (GROUPING SETS, ROLLUP, CUBE). Puts out the
    /// group expressions, null where they are not of the set, the number of the set, then the aggregates. A set without
    /// keys has one row, also on empty input.
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
    /// The input's columns, then one a call. Rows come out partition after partition in ascending order, nulls last, and in
    /// the order of the keys within; rows that are equal in both come in any order, which is the same for all calls.
    Window {
        /// Input.
        input: Box<Plan>,
        /// Rows of equal values are a partition; nulls equal each other, floats are told apart as their total order does.
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
    /// The input's columns, and a UInt64 that is another one for each row: ascending on each device.
    Numbered {
        /// Input.
        input: Box<Plan>,
    },
    /// The columns of a scan, and a UInt64 that is the row's number in its table. Not part of plans that are handed in.
    RowNumbers {
        /// A scan.
        input: Box<Plan>,
    },
    /// Late materialisation: the input's columns, then columns of a table by the number of its row. Not part of plans that
    /// are handed in.
    Fetch(Box<FetchPlan>),
    /// A plan that stands in several places, and runs once. It is the same where its address is.
    Shared(Arc<Plan>),
    /// The input's rows, with something that the optimiser has found out. Not part of plans that are handed in.
    Marked {
        /// Input.
        input: Box<Plan>,
        /// What.
        mark: Mark,
    },
}

/// Columns of a table that are read where they are needed, rather than carried there.
#[derive(Debug, Clone)]
pub struct FetchPlan {
    /// Has the row's number, from [`PlanKind::RowNumbers`] over the same table.
    pub input: Plan,
    /// The table.
    pub table: Arc<Table>,
    /// Column of the input that holds the row's number; where it is null, the table's columns are.
    pub row: usize,
    /// Columns of the table, in output order.
    pub columns: Vec<usize>,
}

/// One key of an order. Floats are in IEEE total order, strings in the order of their bytes.
#[derive(Debug, Clone)]
pub struct SortKey {
    /// Over the sort's input.
    pub expr: Expr,
    /// Largest values first.
    pub descending: bool,
    /// Nulls before all values, rather than behind them, in either direction.
    pub nulls_first: bool,
}

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.descending { "DESC" } else { "ASC" };
        let nulls = if self.nulls_first { "FIRST" } else { "LAST" };
        write!(f, "{} {direction} NULLS {nulls}", self.expr)
    }
}

/// A set of group keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupingSet {
    /// Positions among the group expressions, in ascending order.
    pub keys: Vec<usize>,
    /// The number by which its rows are told apart.
    pub id: u64,
}

/// What the optimiser has found out about a node.
#[derive(Debug, Clone)]
pub enum Mark {
    /// A build side whose table others probe as well: it is made before what reads it.
    Published(usize),
    /// Rows without a match in the published table of that number are dropped: nobody needs them.
    Reduced {
        /// Number of the table.
        table: usize,
        /// The keys, in the order of the table's.
        keys: Vec<Expr>,
        /// How a row is tested.
        test: ReductionTest,
    },
    /// Occurs several times in the plan; run once.
    Shared(usize),
}

/// How rows are tested for a match in a published table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReductionTest {
    /// What is looked into. A table that turns out larger than was estimated may be replaced by a smaller filter.
    pub form: FilterForm,
    /// Keys are compared with the lowest and the highest one of the table first.
    pub has_bounds: bool,
    /// Rows that are expected to be tested.
    pub rows: u64,
}

/// What a runtime filter looks into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterForm {
    /// The join's table itself.
    Table,
    /// A bit for each key that is possible by the bounds of the build side's columns.
    Bitmap,
    /// A Bloom filter: a few rows without a match pass, and are dropped by the join.
    Bloom,
}

impl fmt::Display for FilterForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Bitmap => "bitmap",
            Self::Bloom => "Bloom filter",
        })
    }
}

impl fmt::Display for ReductionTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.has_bounds { "bounds, " } else { "" }, self.form)
    }
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
    /// Columns put out, by position among all build columns, then all probe columns, then the mark.
    pub output: Vec<usize>,
}

/// Kinds of join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JoinKind {
    /// Pairs that match.
    Inner,
    /// Probe rows that match at least once, each once; puts out columns of the probe side only.
    ProbeSemi,
    /// Probe rows that match nothing; puts out columns of the probe side only.
    ProbeAnti,
    /// SQL's NOT IN: probe rows whose key certainly is no build key. A null build key leaves none, a null probe key is
    /// kept only if there are no build rows; a residual has a say in matches alone, as in DataFusion. One key; puts out
    /// columns of the probe side only.
    NotIn,
    /// Every probe row once; puts out columns of the probe side and, behind all columns of both sides, a Boolean column
    /// that says whether it matches. Never null.
    ProbeMark,
    /// Pairs that match, and probe rows that match nothing with nulls for build columns.
    ProbeOuter,
    /// The same, and build rows that match nothing with nulls for probe columns.
    Full,
}

impl JoinKind {
    /// Puts out no columns of the build side: only whether there is a match counts.
    pub fn is_existence(self) -> bool {
        matches!(self, Self::ProbeSemi | Self::ProbeAnti | Self::NotIn | Self::ProbeMark)
    }

    /// Puts out probe rows that match nothing.
    pub fn keeps_unmatched(self) -> bool {
        matches!(self, Self::ProbeAnti | Self::NotIn | Self::ProbeMark | Self::ProbeOuter | Self::Full)
    }
}

/// One aggregate of a group-by.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// The function.
    pub function: AggregateFunction,
    /// Its argument; `None` only for `Count`, which then counts rows.
    pub argument: Option<Expr>,
    /// The second argument of a function of pairs. A pair with a null is skipped.
    pub second: Option<Expr>,
    /// Equal arguments count once.
    pub is_distinct: bool,
    /// Of `First` and `Last`: the order of rows. Of rows that are equal in it, and without an order, any one, the same for
    /// all calls of one order and one filter.
    pub order_by: Vec<SortKey>,
    /// Of `First` and `Last`: rows that count; a Boolean.
    pub filter: Option<Expr>,
    /// Type of the result.
    pub data_type: DataType,
}

impl AggregateCall {
    /// A function of all arguments.
    pub fn new(function: AggregateFunction, argument: Option<Expr>, data_type: DataType) -> Self {
        Self { function, argument, second: None, is_distinct: false, order_by: vec![], filter: None, data_type }
    }

    /// Expressions over the input that it reads.
    pub(crate) fn read(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order_by.iter().map(|key| &key.expr);
        self.argument.iter().chain(&self.second).chain(&self.filter).chain(order)
    }

    /// The call over what `with` makes of the expressions that it reads.
    #[must_use]
    pub(crate) fn map(&self, with: &mut dyn FnMut(&Expr) -> Expr) -> Self {
        let order_by = self.order_by.iter().map(|key| SortKey { expr: with(&key.expr), ..*key }).collect();
        Self {
            argument: self.argument.as_ref().map(&mut *with),
            second: self.second.as_ref().map(&mut *with),
            filter: self.filter.as_ref().map(&mut *with),
            order_by,
            ..self.clone()
        }
    }

    /// The function of distinct arguments.
    #[must_use]
    pub fn distinct(self) -> Self {
        Self { is_distinct: true, ..self }
    }
}

impl fmt::Display for AggregateCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}", self.function, if self.is_distinct { "DISTINCT " } else { "" })?;
        match &self.argument {
            Some(argument) => write!(f, "{argument}")?,
            None => f.write_str("*")?,
        }
        self.second.iter().try_for_each(|second| write!(f, ", {second}"))?;
        for (index, key) in self.order_by.iter().enumerate() {
            write!(f, "{} {key}", if index == 0 { " ORDER BY" } else { "," })?;
        }
        f.write_str(")")?;
        self.filter.iter().try_for_each(|filter| write!(f, " WHERE {filter}"))
    }
}

/// Aggregate functions. Nulls are skipped; without a value left the result is null, a count 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AggregateFunction {
    /// Rows, or values that are not null. Int64.
    Count,
    /// Sum. Integers and decimals wrap in the result type.
    Sum,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Mean: of floats in Float64, of decimals in the result's scale, truncated. A mean beyond the result's
    /// precision is an overflow.
    Avg,
    /// Bits that are set in all integers.
    BitAnd,
    /// Bits that are set in one of the integers.
    BitOr,
    /// Bits that are set in an odd number of the integers.
    BitXor,
    /// A statistic of numbers, or of pairs, in Float64.
    Moment(Moment),
    /// The argument, null or not, of the row that comes first in the call's order.
    First,
    /// Of the row that comes last.
    Last,
    /// The value in the middle of the others in their order, or half of the sum of the two there. Of floats and decimals,
    /// which are truncated.
    Median,
    /// The value so far behind the first one in their order, or between the two there by their distances, in
    /// millionths. Of Float64.
    Percentile {
        /// Bits of the share, a Float64 from 0 to 1.
        share_bits: u64,
    },
}

/// Statistics of second moments. Of integers and decimals within 53 bits sums of distances from the middle of the
/// column's bounds are exact, so that only the last steps round; of doubles, distances from each group's mean are added
/// up in doubles. Null without enough values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Mean square of the distances from the mean.
    VariancePopulation,
    /// Their sum over one less than their number.
    VarianceSample,
    /// Square root of `VariancePopulation`.
    DeviationPopulation,
    /// Square root of `VarianceSample`.
    DeviationSample,
    /// Mean product of the distances of pairs from their means.
    CovariancePopulation,
    /// The sum of those products over one less than their number.
    CovarianceSample,
    /// Covariance over both deviations; null where one of them is 0.
    Correlation,
}

impl Moment {
    /// Whether it takes two arguments.
    pub fn is_of_pairs(self) -> bool {
        matches!(self, Self::CovariancePopulation | Self::CovarianceSample | Self::Correlation)
    }

    /// Whether the sum is divided by one less than the number of values.
    pub(crate) fn is_of_sample(self) -> bool {
        matches!(self, Self::VarianceSample | Self::DeviationSample | Self::CovarianceSample | Self::Correlation)
    }
}

impl fmt::Display for AggregateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::BitAnd => "bit_and",
            Self::BitOr => "bit_or",
            Self::BitXor => "bit_xor",
            Self::First => "first_value",
            Self::Last => "last_value",
            Self::Median => "median",
            Self::Percentile { .. } => "percentile_cont",
            Self::Moment(Moment::VariancePopulation) => "var_pop",
            Self::Moment(Moment::VarianceSample) => "var",
            Self::Moment(Moment::DeviationPopulation) => "stddev_pop",
            Self::Moment(Moment::DeviationSample) => "stddev",
            Self::Moment(Moment::CovariancePopulation) => "covar_pop",
            Self::Moment(Moment::CovarianceSample) => "covar_samp",
            Self::Moment(Moment::Correlation) => "corr",
        })
    }
}

/// Which rows go on, in words.
fn window(skip: u64, fetch: Option<u64>) -> String {
    let skip = if skip > 0 { format!(", skip={skip}") } else { String::new() };
    skip + &fetch.map(|fetch| format!(", fetch={fetch}")).unwrap_or_default()
}

impl FetchPlan {
    /// Names of the columns that are read.
    pub fn names(&self) -> Vec<String> {
        let schema = self.table.schema();
        self.columns.iter().map(|&column| schema.field(column).name().clone()).collect()
    }
}

impl Plan {
    /// Whether it puts its rows out in an order.
    pub fn is_ordered(&self) -> bool {
        match &self.kind {
            PlanKind::Sort { .. } => true,
            PlanKind::Project { input, .. } | PlanKind::Limit { input, .. } => input.is_ordered(),
            PlanKind::Fetch(fetch) => fetch.input.is_ordered(),
            _ => false,
        }
    }

    /// Whether the first rows of it are those of an order: its own, or that of a window that nobody asked for.
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
            PlanKind::Fetch(fetch) => vec![&fetch.input],
            PlanKind::Join(join) => vec![&join.build, &join.probe],
            PlanKind::Union { inputs } => inputs.iter().collect(),
            PlanKind::Shared(plan) => vec![plan],
        }
    }

    /// Bytes of the resident columns that it scans, each column once: what any way to run it has to read.
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

    /// Direct inputs, to be changed. A plan that is [`PlanKind::Shared`] stands in several places, and stays as it is.
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
            PlanKind::Fetch(fetch) => vec![&mut fetch.input],
            PlanKind::Join(join) => vec![&mut join.build, &mut join.probe],
            PlanKind::Union { inputs } => inputs.iter_mut().collect(),
        }
    }

    /// Puts what `with` makes of the plan in its place.
    pub(crate) fn replace(&mut self, with: impl FnOnce(Plan) -> Plan) {
        let nothing = Plan { kind: PlanKind::Input { index: usize::MAX }, schema: Arc::clone(&self.schema) };
        *self = with(std::mem::replace(self, nothing));
    }

    /// The node over what `with` makes of its direct inputs, which has the same columns.
    #[must_use]
    pub(crate) fn map_inputs(mut self, with: &mut dyn FnMut(Plan) -> Plan) -> Self {
        self.inputs_mut().into_iter().for_each(|input| input.replace(&mut *with));
        self
    }

    /// One line: what this node does.
    pub fn describe(&self) -> String {
        let list = |exprs: &[Expr]| exprs.iter().map(Expr::to_string).collect::<Vec<_>>().join(", ");
        match &self.kind {
            PlanKind::Scan { table, projection } => {
                let schema = table.schema();
                let names: Vec<&str> = projection.iter().map(|&i| schema.field(i).name().as_str()).collect();
                format!("Scan: {} rows [{}]", table.rows(), names.join(", "))
            }
            PlanKind::Input { index } => format!("Upload: input {index}"),
            PlanKind::Filter { predicate, .. } => format!("Filter: {predicate}"),
            PlanKind::Project { exprs, .. } => format!("Project: {}", list(exprs)),
            PlanKind::Join(join) => {
                let on: Vec<String> = join.on.iter().map(|(b, p)| format!("{b} = {p}")).collect();
                let residual = join.residual.as_ref().map(|r| format!(", residual {r}")).unwrap_or_default();
                format!("HashJoin: {:?}, build = probe: [{}]{residual}", join.kind, on.join(", "))
            }
            PlanKind::Aggregate { group_by, aggregates, .. } => {
                let calls: Vec<String> = aggregates.iter().map(AggregateCall::to_string).collect();
                format!("GroupBy: [{}], [{}]", list(group_by), calls.join(", "))
            }
            PlanKind::Sort { keys, skip, fetch, .. } => {
                let keys: Vec<String> = keys.iter().map(SortKey::to_string).collect();
                let name = if fetch.is_some() { "TopK" } else { "Sort" };
                format!("{name}: [{}]{}", keys.join(", "), window(*skip, *fetch))
            }
            PlanKind::Limit { skip, fetch, .. } => format!("Limit:{}", window(*skip, *fetch).trim_start_matches(',')),
            PlanKind::GroupingSets { group_by, sets, aggregates, .. } => {
                let calls: Vec<String> = aggregates.iter().map(AggregateCall::to_string).collect();
                let sets: Vec<String> = sets.iter().map(|set| format!("{:?}", set.keys)).collect();
                format!("GroupBy: [{}] by sets {}, [{}]", list(group_by), sets.join(" "), calls.join(", "))
            }
            PlanKind::Window { partition_by, order_by, calls, .. } => {
                let calls: Vec<String> = calls.iter().map(WindowCall::to_string).collect();
                let keys: Vec<String> = order_by.iter().map(SortKey::to_string).collect();
                format!("Window: [{}] by [{}], order [{}]", calls.join(", "), list(partition_by), keys.join(", "))
            }
            PlanKind::Union { inputs } => format!("Union: {} inputs", inputs.len()),
            PlanKind::Numbered { .. } => "Numbered".to_string(),
            PlanKind::RowNumbers { .. } => "RowNumbers".to_string(),
            PlanKind::Fetch(fetch) => format!("Fetch: [{}] by row #{}", fetch.names().join(", "), fetch.row),
            PlanKind::Shared(_) => "Shared".to_string(),
            PlanKind::Marked { mark: Mark::Published(number), .. } => format!("Table {number}"),
            PlanKind::Marked { mark: Mark::Reduced { table, keys, test }, .. } => {
                format!("RuntimeFilter: [{}] in table {table}, by {test}", list(keys))
            }
            PlanKind::Marked { mark: Mark::Shared(number), .. } => format!("Shared {number}"),
        }
    }
}

impl fmt::Display for Plan {
    /// The tree, a node a line, two spaces a level.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn node(plan: &Plan, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            writeln!(f, "{:indent$}{}", "", plan.describe(), indent = depth * 2)?;
            plan.inputs().into_iter().try_for_each(|input| node(input, depth + 1, f))
        }
        node(self, 0, f)
    }
}
