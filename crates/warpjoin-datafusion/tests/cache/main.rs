//! The column cache: queries over Parquet files find columns on the devices, and never those of other rows.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod decoding;
mod harness;
mod host_memory;
mod kept_plans;
mod row_groups;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::queries::QUERIES;
use common::{TABLES, physical, register_tpch, rows, run, shown, stock};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::physical_plan::{collect, execute_stream};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use harness::{ALL, BY_KEY, LOOKUP_BYTES, MEMORY, Warp, folder, register, warp, warp_decoding, warp_with, write};
use warpjoin_datafusion::{MemoryShare, cache_table, register_cache_table, uncache_table};

#[tokio::test(flavor = "multi_thread")]
async fn second_queries_find_their_columns() {
    let folder = folder();
    for file in 0..3 {
        write(&folder.path().join(format!("{file}.parquet")), file * 10_000, 10_000).await;
    }
    let (warp, oracle) = (warp(MEMORY, ALL), stock());
    register(&[&warp.context, &oracle], "t", folder.path()).await;
    assert!(!warp.is_resident(BY_KEY).await);
    assert_eq!(warp.used_bytes(), 0, "planning reads nothing");
    warp.query(&oracle, BY_KEY).await;
    let cached_bytes = warp.used_bytes();
    assert!(cached_bytes > 30_000 * 5, "{cached_bytes}");
    assert!(warp.is_resident(BY_KEY).await);
    assert!(warp.query(&oracle, BY_KEY).await < LOOKUP_BYTES, "nothing is uploaded again");
    // Some of its columns are there, in another order; `id` is read and joins them.
    let other = "SELECT name, sum(id), count(k) FROM t WHERE day < DATE '2020-03-01' GROUP BY name";
    assert!(!warp.is_resident(other).await);
    warp.query(&oracle, other).await;
    assert!(warp.is_resident(other).await && warp.is_resident(BY_KEY).await);
    let with_id = warp.used_bytes();
    assert!(with_id > cached_bytes && with_id < cached_bytes + 30_000 * 9, "only one column more: {with_id}");
    // A table joined with itself.
    warp.query(&oracle, "SELECT count(*), sum(a.id) FROM t a JOIN t b ON a.id = b.k").await;
    warp.runtime.clear_cache();
    assert_eq!(warp.used_bytes(), 0, "all memory is given back");
    assert!(!warp.is_resident(BY_KEY).await);
    warp.query(&oracle, BY_KEY).await;
}

/// Lookups, first rows and computed columns read cached columns on the devices. They don't read files for the cache.
#[tokio::test(flavor = "multi_thread")]
async fn lookups_run_where_the_columns_are() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 20_000).await;
    let (warp, oracle) = (warp(MEMORY, ALL), stock());
    register(&[&warp.context, &oracle], "t", &path).await;
    let lookups = [
        "SELECT id, name, price FROM t WHERE id = 1234",
        "SELECT * FROM t WHERE name = 'name 7' AND k > 3",
        "SELECT id, price FROM t ORDER BY price DESC, id LIMIT 7",
        "SELECT id + 1, k FROM t WHERE k IS NULL",
    ];
    for sql in lookups {
        let plan = shown(&physical(&warp.context, sql).await);
        assert!(!plan.contains("WarpjoinExec"), "{plan}");
        warp.query(&oracle, sql).await;
    }
    assert_eq!(warp.used_bytes(), 0, "nothing was read for the cache");
    // Of other columns, and with one that is missing.
    warp.query(&oracle, BY_KEY).await;
    assert!(!shown(&physical(&warp.context, lookups[1]).await).contains("WarpjoinExec"));
    cache_table(&warp.context, "t").await.unwrap();
    for sql in lookups {
        assert!(warp.is_resident(sql).await, "{sql}");
        assert!(warp.query(&oracle, sql).await < LOOKUP_BYTES);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_files_are_read_again() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    let (warp, oracle) = (warp(MEMORY, ALL), stock());
    let set_time = |seconds: u64| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    };
    write(&path, 0, 5000).await;
    set_time(1_000_000);
    register(&[&warp.context, &oracle], "t", &path).await;
    warp.query(&oracle, BY_KEY).await;
    assert!(warp.is_resident(BY_KEY).await);
    // The same size and other rows: only the time tells.
    let size = std::fs::metadata(&path).unwrap().len();
    set_time(2_000_000);
    assert!(!warp.is_resident(BY_KEY).await, "a file that was touched is not trusted, listed again or not");
    set_time(1_000_000);
    write(&path, 2000, 7000).await;
    assert_ne!(std::fs::metadata(&path).unwrap().len(), size);
    register(&[&warp.context, &oracle], "t", &path).await;
    assert!(!warp.is_resident(BY_KEY).await);
    warp.query(&oracle, BY_KEY).await;
    let bytes = warp.used_bytes();
    assert!(warp.query(&oracle, BY_KEY).await < LOOKUP_BYTES);
    assert_eq!(warp.used_bytes(), bytes, "the columns of the old file are gone");
    std::fs::remove_file(&path).unwrap();
    // DataFusion reads a file that it still lists, and fails, or none.
    let answer = warp.context.sql(BY_KEY).await.unwrap().collect().await;
    assert!(answer.is_err() || rows(&answer.unwrap(), false).is_empty(), "a file that is gone has no rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_keeps_the_rows_it_was_made_for() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 5000).await;
    let (warp, oracle) = (warp(MEMORY, ALL), stock());
    register(&[&warp.context, &oracle], "t", &path).await;
    let (expected, _) = run(&oracle, BY_KEY).await;
    warp.query(&oracle, BY_KEY).await;
    let plan = physical(&warp.context, BY_KEY).await;
    warp.runtime.clear_cache();
    assert!(warp.used_bytes() > 0, "the plan uses its columns");
    write(&path, 90_000, 100).await;
    let batches = collect(plan, warp.context.task_ctx()).await.unwrap();
    assert_eq!(rows(&batches, false), rows(&expected, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_used_long_ago_leave() {
    let folder = folder();
    for table in ["a", "b", "c"] {
        write(&folder.path().join(format!("{table}.parquet")), 0, 20_000).await;
    }
    let oracle = stock();
    let sum = |table: &str| format!("SELECT k, sum(id), sum(price) FROM {table} GROUP BY k");
    let probe = warp(MEMORY, ALL);
    register(&[&probe.context], "a", &folder.path().join("a.parquet")).await;
    register(&[&oracle], "a", &folder.path().join("a.parquet")).await;
    probe.query(&oracle, &sum("a")).await;
    let table_bytes = probe.used_bytes();
    // Each device has a limit, so two and a half tables.
    let warp = warp_with(2, MEMORY, |options| {
        options.cache = MemoryShare::Bytes(table_bytes * 5 / 4);
        options.host_cache = MemoryShare::Bytes(0);
    });
    for table in ["a", "b", "c"] {
        register(&[&warp.context, &oracle], table, &folder.path().join(format!("{table}.parquet"))).await;
    }
    for table in ["a", "b", "a", "c"] {
        warp.query(&oracle, &sum(table)).await;
        assert!(warp.used_bytes() <= table_bytes * 5 / 2, "{}", warp.used_bytes());
    }
    assert!(
        warp.is_resident(&sum("c")).await && warp.is_resident(&sum("a")).await && !warp.is_resident(&sum("b")).await
    );
    // A setting of the session, at any time.
    warp.context.sql("SET warpjoin.cache = 'off'").await.unwrap().collect().await.unwrap();
    assert!(!shown(&physical(&warp.context, &sum("b")).await).contains("CachedScanExec"));
    warp.query(&oracle, &sum("b")).await;
}

/// What an allocation needs leaves the cache; what has no room at all is computed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn the_cache_makes_room_for_queries() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 60_000).await;
    let oracle = stock();
    let sorted = "SELECT id, name, share FROM t ORDER BY share DESC, id LIMIT 20";
    let by_id = "SELECT id, min(name), sum(price) FROM t GROUP BY id ORDER BY id LIMIT 5";
    for memory_bytes in [64 << 10, 512 << 10, 2 << 20, 4 << 20, 8 << 20, 16 << 20] {
        let warp = warp(memory_bytes, MemoryShare::Percent(100));
        register(&[&warp.context, &oracle], "t", &path).await;
        for sql in [BY_KEY, sorted, by_id, BY_KEY] {
            warp.query(&oracle, sql).await;
        }
        warp.runtime.clear_cache();
        assert_eq!(warp.used_bytes(), 0, "{memory_bytes}");
    }
}

/// Columns that cannot fit, or did not, are not read in vain: their scan is an input like any other.
#[tokio::test(flavor = "multi_thread")]
async fn columns_that_do_not_fit_are_not_read_again() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 60_000).await;
    let oracle = stock();
    // No statistics tell which rows pass.
    let sql = "SELECT id, sum(price) FROM t WHERE id % 60 = 0 GROUP BY id";
    let reads = |plan: String| plan.contains("CachedScanExec");
    let of = |memory_bytes, cache| {
        warp_with(2, memory_bytes, |options| (options.cache, options.host_memory) = (cache, MemoryShare::Bytes(0)))
    };
    let (large, small) = (of(MEMORY, ALL), of(512 << 10, MemoryShare::Percent(10)));
    for warp in [&large, &small] {
        register(&[&warp.context, &oracle], "t", &path).await;
    }
    // By its estimate.
    assert!(!reads(shown(&physical(&small.context, sql).await)));
    small.query(&oracle, sql).await;
    // The filter runs on the CPU then, so this budget is enough for the query.
    // Somebody else has most of the memory that the limit counts on.
    let devices = large.session.devices().iter();
    let held: Vec<_> = devices.map(|device| device.create_stream().unwrap().alloc(1 << 20).unwrap()).collect();
    large.context.sql("SET warpjoin.memory_budget = '1150KB'").await.unwrap().collect().await.unwrap();
    assert!(reads(shown(&physical(&large.context, sql).await)));
    large.query(&oracle, sql).await;
    assert!(!reads(shown(&physical(&large.context, sql).await)), "tried once");
    large.query(&oracle, sql).await;
    large.runtime.clear_cache();
    assert!(reads(shown(&physical(&large.context, sql).await)));
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_queries_read_columns_once() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 30_000).await;
    let (warp, oracle) = (Arc::new(warp(MEMORY, ALL)), stock());
    register(&[&warp.context, &oracle], "t", &path).await;
    let (expected, _) = run(&oracle, BY_KEY).await;
    let expected = rows(&expected, false);
    let tasks: Vec<_> = (0..12)
        .map(|number| {
            let (warp, expected) = (Arc::clone(&warp), expected.clone());
            tokio::spawn(async move {
                if number % 3 == 0 {
                    // Dropped at some point of reading.
                    let plan = physical(&warp.context, BY_KEY).await;
                    let mut stream = execute_stream(plan, warp.context.task_ctx()).unwrap();
                    let _ = tokio::time::timeout(Duration::from_millis(number * 4), stream.next()).await;
                    return;
                }
                let (batches, _) = run(&warp.context, BY_KEY).await;
                assert_eq!(rows(&batches, false), expected);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let bytes = warp.used_bytes();
    warp.query(&oracle, BY_KEY).await;
    // Threads of queries that were dropped may still free memory.
    assert!(warp.used_bytes() <= bytes, "each column is there once");
    warp.runtime.clear_cache();
    for _ in 0..100 {
        if warp.used_bytes() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} bytes are not given back", warp.used_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_that_leave_rows_out_are_not_cached() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 9000).await;
    let (warp, oracle) = (warp(MEMORY, ALL), stock());
    for context in [&warp.context, &oracle] {
        context.sql("SET datafusion.execution.parquet.pushdown_filters = true").await.unwrap().collect().await.unwrap();
    }
    register(&[&warp.context, &oracle], "t", &path).await;
    for limit in [1000, 50] {
        let sql = format!("SELECT k, count(*) FROM (SELECT * FROM t WHERE id < {limit}) GROUP BY k");
        assert!(!shown(&physical(&warp.context, &sql).await).contains("CachedScanExec"));
        warp.query(&oracle, &sql).await;
    }
    // A limit of the scan itself.
    let sql = "SELECT count(*), count(k) FROM (SELECT k FROM t LIMIT 10)";
    warp.query(&oracle, sql).await;
    warp.query(&oracle, sql).await;
    // Without a filter, all rows are read.
    warp.query(&oracle, "SELECT k, count(*) FROM t GROUP BY k").await;
    assert!(warp.is_resident("SELECT k, count(*) FROM t GROUP BY k").await);
}

/// Folders that stand for columns, and files that lack one.
#[tokio::test(flavor = "multi_thread")]
async fn folders_and_other_schemas_are_right() {
    let folder = folder();
    for (year, first) in [(2023, 0), (2024, 4000)] {
        let of_year = folder.path().join(format!("year={year}"));
        std::fs::create_dir(&of_year).unwrap();
        write(&of_year.join("t.parquet"), first, 4000).await;
    }
    let (warp, decoding, oracle) = (warp(MEMORY, ALL), warp_decoding(1), stock());
    for context in [&warp.context, &decoding.context, &oracle] {
        let sql = format!(
            "CREATE EXTERNAL TABLE t (id BIGINT, k BIGINT, later INT, year INT) STORED AS PARQUET \
             PARTITIONED BY (year) LOCATION '{}/'",
            folder.path().display()
        );
        context.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    for sql in [
        "SELECT year, count(*), sum(id), count(later) FROM t GROUP BY year",
        "SELECT k, count(*) FROM t WHERE year = 2024 GROUP BY k",
        "SELECT k, count(*) FROM t WHERE year = 2023 GROUP BY k",
        "SELECT year, k, max(id) FROM t WHERE id > 3000 GROUP BY year, k",
    ] {
        for warp in [&warp, &decoding] {
            for _ in 0..2 {
                warp.query(&oracle, sql).await;
            }
            assert!(warp.is_resident(sql).await, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_over_files_is_right_cold_and_warm() {
    let folder = folder();
    let memory = SessionContext::new();
    register_tpch(&memory, 0.01);
    let compression = "SET datafusion.execution.parquet.compression = 'snappy'";
    memory.sql(compression).await.unwrap().collect().await.unwrap();
    let (warp, decoding, oracle) = (warp(MEMORY, ALL), warp_decoding(2), stock());
    for table in TABLES {
        let path = folder.path().join(format!("{table}.parquet"));
        let options = DataFrameWriteOptions::new().with_single_file_output(true);
        memory.table(table).await.unwrap().write_parquet(path.to_str().unwrap(), options, None).await.unwrap();
        register(&[&warp.context, &decoding.context, &oracle], table, &path).await;
    }
    for sql in QUERIES {
        let sql = sql.1;
        for warp in [&warp, &decoding] {
            warp.query(&oracle, sql).await;
            assert!(warp.query(&oracle, sql).await < LOOKUP_BYTES, "{sql}");
        }
    }
    let decoded = decoding.decoded_on().await;
    assert!(decoded.iter().filter(|column| column.ends_with("device")).count() > 20, "{decoded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_cached_shown_and_freed() {
    let folder = folder();
    for part in 0..3 {
        write(&folder.path().join(format!("{part}.parquet")), part * 10_000, 10_000).await;
    }
    let (warp, oracle) = (warp(MEMORY, ALL), stock());
    register(&[&warp.context, &oracle], "t", folder.path()).await;
    register_cache_table(&warp.context).unwrap();
    let shown = async |sql: &str| rows(&run(&warp.context, sql).await.0, false);
    assert!(shown("SELECT * FROM warpjoin.cache").await.is_empty());

    let cached = cache_table(&warp.context, "t").await.unwrap();
    assert_eq!((cached.columns, cached.rows, &cached.skipped[..]), (6, 30_000, &[][..]));
    assert_eq!(cached.bytes, warp.used_bytes());
    assert!(warp.is_resident(BY_KEY).await);
    assert!(warp.query(&oracle, BY_KEY).await < LOOKUP_BYTES, "queries find what was cached");
    let location = format!("file://{}/", folder.path().display());
    let columns =
        "SELECT column_name, data_type, files, rows, location, devices FROM warpjoin.cache WHERE bytes > 0 ORDER BY 1";
    let of = |name: &str, data_type: &str| [name, data_type, "3", "30000", &location, "sim:0, sim:1"].join("|");
    let wanted = [
        of("day", "Date32"),
        of("id", "Int64"),
        of("k", "Int64"),
        of("name", "Utf8View"),
        of("price", "Decimal128(19, 6)"),
        of("share", "Float64"),
    ];
    assert_eq!(shown(columns).await, wanted);
    let bytes = shown("SELECT sum(bytes) FROM warpjoin.cache").await;
    assert_eq!(bytes, [cached.bytes.to_string()]);
    // The columns of a query are used later than the others.
    warp.query(&oracle, "SELECT k, max(share) FROM t GROUP BY k").await;
    let latest =
        "SELECT column_name FROM warpjoin.cache WHERE last_use = (SELECT max(last_use) FROM warpjoin.cache) ORDER BY 1";
    assert_eq!(shown(latest).await, ["k", "share"]);

    assert_eq!(cache_table(&warp.context, "t").await.unwrap(), cached, "nothing is read again");
    assert_eq!(uncache_table(&warp.context, "t").await.unwrap(), 6);
    assert_eq!(warp.used_bytes(), 0);
    assert!(shown("SELECT * FROM warpjoin.cache").await.is_empty());
    assert_eq!(uncache_table(&warp.context, "t").await.unwrap(), 0);
    warp.query(&oracle, BY_KEY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_cached_is_an_error_or_named() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 5000).await;
    let message = async |warp: &Warp, name: &str| cache_table(&warp.context, name).await.unwrap_err().to_string();
    let warp_off = warp(MEMORY, MemoryShare::Bytes(0));
    register(&[&warp_off.context], "t", &path).await;
    assert!(message(&warp_off, "t").await.contains("SET warpjoin.cache"));

    let small = warp_with(2, MEMORY, |options| {
        (options.cache, options.host_cache) = (MemoryShare::Bytes(40_000), MemoryShare::Bytes(1000));
    });
    register(&[&small.context], "t", &path).await;
    assert!(
        message(&small, "t").await.contains("do not fit warpjoin.cache (40000) and warpjoin.host_cache (1000)"),
        "{}",
        message(&small, "t").await
    );
    assert_eq!(small.used_bytes(), 0);

    let warp = warp(MEMORY, ALL);
    warp.context.sql("CREATE TABLE m AS SELECT 1 AS x").await.unwrap().collect().await.unwrap();
    assert!(message(&warp, "m").await.contains("load_table"));
    assert!(message(&warp, "gone").await.contains("gone"));
    warpjoin_datafusion::load_table(&warp.context, "m").await.unwrap();
    assert!(message(&warp, "m").await.contains("loaded onto the devices"));
    // Lists are not supported by devices.
    let lists = folder.path().join("lists.parquet");
    let frame = stock().sql("SELECT v AS id, [v, v] AS list FROM generate_series(1, 100) AS t(v)").await.unwrap();
    let options = DataFrameWriteOptions::new().with_single_file_output(true);
    frame.write_parquet(lists.to_str().unwrap(), options, None).await.unwrap();
    register(&[&warp.context], "lists", &lists).await;
    let cached = cache_table(&warp.context, "lists").await.unwrap();
    assert_eq!((cached.columns, cached.rows, cached.skipped), (1, 100, vec!["list".to_string()]));
}
