//! Joins and group-bys on Arrow data, on one or several devices.
//!
//! Owns columns on devices, expressions, device plans, generated pipelines, hash tables, exchange,
//! joins and group-bys, the decoding of Parquet, and the Arrow-native API over them. Must not know DataFusion, nor a driver.

mod codegen;
pub mod exec;
pub mod hash_table;
mod operators;
mod optimize;
mod options;
pub mod parquet;
pub mod plan;
mod runtime;
pub mod window;

pub use codegen::prebuilt_modules;
pub use exec::{QueryMetrics, QueryOutput};
pub use hash_table::HashTable;
pub use operators::{GroupBy, HashJoin, PartitionedTable, PartitionedTableShard, kernel_definitions, partition_table};
pub use optimize::share_between;
pub use options::{CodeTier, DeviceThreads, ExecOptions, JoinForm};
pub use runtime::session::Session;
#[doc(inline)]
pub use warpjoin_columns::{
    DeviceSet, Error, MemoryBudget, MovedBytes, Pieces, Reason, ResidentColumn, Result, Shard, ShardColumn, Table,
    TableBuilder, cause_of_arrow,
};
pub use warpjoin_device::{Cancellation, Cause};

/// Columns: how Arrow arrays become narrow runs of bytes, and back.
pub mod column {
    #[doc(inline)]
    pub use warpjoin_columns::column::{
        ColumnStatistics, ColumnType, Dictionary, Domain, EncodedColumn, Layout, StringEncoding, TableEncoder,
        Validity, check_type, decode,
    };
}

/// Expressions of the device plan.
pub mod expr {
    #[doc(inline)]
    pub use warpjoin_columns::expr::{
        ArithmeticOp, COMBINATIONS_MAX, CompareOp, DeferredScalar, Expr, ExprKind, HostFunction, KeyPiece, Moment,
        OrderPart, Scalar, SortKey, StringTest,
    };
}

/// Scalar functions of the device plan.
pub mod function {
    #[doc(inline)]
    pub use warpjoin_columns::function::{
        Arguments, Constant, DateFunction, DatePart, DateUnit, Function, FunctionSpec, Interval, Nulls, Written, date,
    };
}
