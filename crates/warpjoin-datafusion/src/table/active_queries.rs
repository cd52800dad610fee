//! The table `warpjoin.queries`: the active queries.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::prelude::SessionContext;

use crate::runtime::WarpjoinRuntime;
use crate::table::system::{self, SystemRows};

/// Registers the table `warpjoin.queries` in the default catalog of `context`: a row for each query, of any session,
/// that uses the devices of the session's runtime or waits for them, oldest first. See [`WarpjoinRuntime::queries`].
///
/// | column | type | meaning |
/// | --- | --- | --- |
/// | `id` | unsigned 64-bit integer | for [`WarpjoinRuntime::kill`] |
/// | `state` | string | `waiting` (for admission), `running` (on the devices), `cpu` (after a fallback, or between two parts on the devices) or `cancelled` (its memory is not free yet, or its stream is still there) |
/// | `seconds` | 64-bit float | time since its first part began to run or to wait |
/// | `query` | string | its SQL, if it is a [`Query`](crate::Query); else the first node that the devices replace |
///
/// No column is null.
///
/// # Errors
/// Returns an error if the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), or has no default catalog.
pub fn register_queries_table(context: &SessionContext) -> Result<()> {
    system::register::<Queries>(context)
}

#[derive(Debug)]
struct Queries;

impl SystemRows for Queries {
    const NAME: &'static str = "queries";

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("id", DataType::UInt64, false),
            Field::new("state", DataType::Utf8, false),
            Field::new("seconds", DataType::Float64, false),
            Field::new("query", DataType::Utf8, false),
        ])
    }

    fn columns(runtime: &WarpjoinRuntime) -> Vec<ArrayRef> {
        let queries = runtime.queries();
        // To the millisecond.
        let seconds = |elapsed: std::time::Duration| elapsed.as_millis() as f64 / 1e3;
        vec![
            Arc::new(queries.iter().map(|query| query.id()).collect::<UInt64Array>()),
            Arc::new(queries.iter().map(|query| Some(query.state().to_string())).collect::<StringArray>()),
            Arc::new(queries.iter().map(|query| seconds(query.elapsed())).collect::<Float64Array>()),
            Arc::new(queries.iter().map(|query| Some(query.text())).collect::<StringArray>()),
        ]
    }
}
