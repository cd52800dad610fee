//! The table `warpjoin.cache`: the columns of Parquet files that are on the devices.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::prelude::SessionContext;

use crate::cache::{CachedColumnInfo, DecodedOn};
use crate::runtime::WarpjoinRuntime;
use crate::table::system::{self, SystemRows};

/// Registers the table `warpjoin.cache` in the default catalog of `context`: a row for each column of Parquet files that is
/// cached on devices of the session's runtime.
///
/// | column | type | meaning |
/// | --- | --- | --- |
/// | `location` | string | URL of the file, or of the innermost folder of several |
/// | `files` | unsigned 64-bit integer | number of files |
/// | `column_name` | string | |
/// | `data_type` | string | Arrow type |
/// | `rows` | unsigned 64-bit integer | |
/// | `bytes` | unsigned 64-bit integer | device memory, on all devices together |
/// | `host_bytes` | unsigned 64-bit integer | host memory of a column that was evicted and is read over the bus |
/// | `last_use` | unsigned 64-bit integer | larger for later uses; the smallest number is evicted first |
/// | `devices` | string | such as `cuda:0, cuda:1` |
/// | `decoded_on` | string | where pages were decoded: `device` or `cpu` (setting `warpjoin.parquet_decode`) |
///
/// No column is null.
///
/// # Errors
/// Returns an error if the session was built without
/// [`with_warpjoin`](crate::WarpjoinSessionStateBuilder::with_warpjoin), or has no default catalog.
pub fn register_cache_table(context: &SessionContext) -> Result<()> {
    system::register::<CachedColumns>(context)
}

#[derive(Debug)]
struct CachedColumns;

impl SystemRows for CachedColumns {
    const NAME: &'static str = "cache";

    fn schema() -> Schema {
        let text = |name: &str| Field::new(name, DataType::Utf8, false);
        let number = |name: &str| Field::new(name, DataType::UInt64, false);
        Schema::new(vec![
            text("location"),
            number("files"),
            text("column_name"),
            text("data_type"),
            number("rows"),
            number("bytes"),
            number("host_bytes"),
            number("last_use"),
            text("devices"),
            text("decoded_on"),
        ])
    }

    fn columns(runtime: &WarpjoinRuntime) -> Vec<ArrayRef> {
        let mut rows: Vec<(CachedColumnInfo, String)> = vec![];
        for (session, cache) in runtime.caches() {
            let labels: Vec<String> = session.devices().iter().map(warpjoin_device::Device::label).collect();
            rows.extend(cache.columns().into_iter().map(|column| (column, labels.join(", "))));
        }
        let text = |of: &dyn Fn(&(CachedColumnInfo, String)) -> String| {
            Arc::new(rows.iter().map(of).map(Some).collect::<StringArray>()) as ArrayRef
        };
        let number = |of: &dyn Fn(&CachedColumnInfo) -> u64| {
            Arc::new(rows.iter().map(|(column, _)| of(column)).collect::<UInt64Array>()) as ArrayRef
        };
        vec![
            text(&|(column, _)| column.location.clone()),
            number(&|column| column.files as u64),
            text(&|(column, _)| column.name.clone()),
            text(&|(column, _)| column.data_type.to_string()),
            number(&|column| column.rows),
            number(&|column| column.bytes),
            number(&|column| column.host_bytes),
            number(&|column| column.last_use),
            text(&|(_, devices)| devices.clone()),
            text(&|(column, _)| match column.decoded_on {
                DecodedOn::Device => "device".into(),
                DecodedOn::Cpu => "cpu".into(),
            }),
        ]
    }
}
