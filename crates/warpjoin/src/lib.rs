//! Joins and group-bys on Arrow data, on one or several devices.
//!
//! Owns how queries run, hash tables, exchange, joins and group-bys, the decoding of Parquet, and the Arrow-native API over them.
//! Must not know DataFusion, nor a driver. Columns, plans and generated pipelines are in crates of their own, and what users need
//! of them is exported here.

pub mod exec;
pub mod hash_table;
mod operators;
pub mod parquet;
mod runtime;

pub use exec::{QueryMetrics, QueryOutput};
pub use hash_table::HashTable;
pub use operators::{GroupBy, HashJoin, PartitionedTable, PartitionedTableShard, kernel_definitions, partition_table};
pub use runtime::session::Session;
#[doc(inline)]
pub use warpjoin_codegen::prebuilt_modules;
#[doc(inline)]
pub use warpjoin_columns::{
    DeviceSet, Error, MemoryBudget, MovedBytes, Pieces, Reason, ResidentColumn, Result, Shard, ShardColumn, Table,
    TableBuilder, cause_of_arrow,
};
pub use warpjoin_device::{Cancellation, Cause};
#[doc(inline)]
pub use warpjoin_plan::optimize::share_between;
#[doc(inline)]
pub use warpjoin_plan::options::{CodeTier, DeviceThreads, ExecOptions, JoinForm};

/// Columns: how Arrow arrays become narrow runs of bytes, and back.
///
/// Type, domain, layout and dictionary are facts of the whole column, never of a shard or a chunk.
pub mod column {
    #[doc(inline)]
    pub use warpjoin_columns::column::{
        ColumnStatistics, ColumnType, Dictionary, Domain, EncodedColumn, Layout, StringEncoding, TableEncoder,
        Validity, check_type, decode,
    };
}

/// Expressions of the device plan.
///
/// Typed with Arrow types and DataFusion's rules: the planner has coerced both sides of every operator, so that nothing is
/// converted implicitly here.
pub mod expr {
    #[doc(inline)]
    pub use warpjoin_columns::expr::{
        ArithmeticOp, COMBINATIONS_MAX, CompareOp, DeferredScalar, Expr, ExprKind, HostFunction, KeyPiece, Moment,
        OrderPart, Scalar, SortKey, StringTest,
    };
}

/// Scalar functions of the device plan.
///
/// Only functions whose results are the same bits on every device and on the CPU are here: integer arithmetic, and the
/// operations that IEEE 754 rounds correctly.
pub mod function {
    #[doc(inline)]
    pub use warpjoin_columns::function::{
        Arguments, Constant, DateFunction, DatePart, DateUnit, Function, FunctionSpec, Interval, Nulls, Written, date,
    };
}

/// The device plan: a small relational algebra.
///
/// Built by the Arrow-native API and by the DataFusion rule, cut into pipelines and run by [`crate::exec`]. Columns are
/// positions; names only label the output schema.
pub mod plan {
    #[doc(inline)]
    pub use warpjoin_plan::plan::{
        AggregateCall, AggregateFunction, AggregateSpec, FetchPlan, FilterForm, GroupingSet, JoinKind, JoinPlan, Mark,
        Moment, Plan, PlanKind, ReductionTest, RowsOf, Share, SharedRowsId, SortKey, Way,
    };
}

/// Window functions: values computed for each row from the rows of its partition.
pub mod window {
    #[doc(inline)]
    pub use warpjoin_plan::window::{Distance, Frame, FrameBound, WindowCall, WindowFunction, WindowSpec, WindowWay};
}
