//! Plans over cached columns of files are found again, as long as their files and columns are there.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use datafusion::physical_plan::collect;
use datafusion::prelude::SessionContext;
use warpjoin::Session;
use warpjoin_datafusion::{OnFault, WarpjoinRuntime, WarpjoinSessionContext, cache_table, uncache_table};
use warpjoin_device::{Fault, FaultPlan, SimOptions, open_simulated, with_faults};

use super::common::{rows, run, stock, warp_on};
use super::harness::{ALL, BY_KEY, LOOKUP_BYTES, MEMORY, Warp, folder, forget_listings, register, warp_with, write};

const QUERIES: [&str; 7] = [
    BY_KEY,
    "SELECT count(*), sum(a.id) FROM t a JOIN t b ON a.id = b.k WHERE b.price > 10",
    "SELECT id, price FROM t WHERE name LIKE 'name 1%' ORDER BY price DESC, id LIMIT 7",
    "SELECT name, count(*) FROM t WHERE share > (SELECT avg(share) FROM t) GROUP BY name ORDER BY name",
    "SELECT k, max(day) FROM t WHERE id IN (SELECT k FROM t) GROUP BY k",
    "SELECT name FROM t WHERE day = DATE '2020-03-01' UNION SELECT name FROM t WHERE id < 20",
    "SELECT id, row_number() OVER (PARTITION BY name ORDER BY id DESC) AS n FROM t WHERE k = 3",
];

fn checking(devices: usize) -> Warp {
    warp_with(devices, MEMORY, |options| {
        options.cache = ALL;
        options.check_plans = true;
    })
}

/// Runs a query; whether its plan was kept.
async fn is_kept(context: &SessionContext, oracle: &SessionContext, sql: &str) -> bool {
    let query = context.query(sql).await.unwrap();
    let is_kept = query.is_kept();
    let batches = query.collect().await.unwrap();
    assert_eq!(rows(&batches, false), rows(&run(oracle, sql).await.0, false), "{sql}");
    is_kept
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_over_cached_columns_are_found_again() {
    let folder = folder();
    for file in 0..2 {
        write(&folder.path().join(format!("{file}.parquet")), file * 3000, 3000).await;
    }
    let (warp, oracle) = (checking(2), stock());
    register(&[&warp.context, &oracle], "t", folder.path()).await;
    for sql in QUERIES {
        assert!(!is_kept(&warp.context, &oracle, sql).await, "{sql}");
        // It was planned when its columns were not there. A lookup reads files.
        let mut found = [false; 3];
        for found in &mut found {
            *found = is_kept(&warp.context, &oracle, sql).await;
        }
        assert_eq!(found[1..], [true, true], "{sql}");
    }
    for sql in QUERIES {
        assert!(is_kept(&warp.context, &oracle, sql).await, "{sql}");
        assert!(warp.query(&oracle, sql).await < LOOKUP_BYTES, "{sql}");
    }
    // With other literals: from a shape's third query on.
    let with = |share: usize| format!("SELECT k, sum(price) FROM t WHERE share > {share}.5 GROUP BY k");
    for share in 0..3 {
        is_kept(&warp.context, &oracle, &with(share)).await;
    }
    assert!(is_kept(&warp.context, &oracle, &with(700)).await);
    // The memory of cached columns comes back, whatever plans hold.
    warp.runtime.clear_cache();
    assert_eq!(warp.used_bytes(), 0);
    for sql in QUERIES {
        is_kept(&warp.context, &oracle, sql).await;
    }
    uncache_table(&warp.context, "t").await.unwrap();
    assert_eq!(warp.used_bytes(), 0);
    // As before they were cached.
    assert!(is_kept(&warp.context, &oracle, QUERIES[0]).await);
    let runtime = Arc::downgrade(&warp.runtime);
    drop(warp);
    assert_eq!(runtime.strong_count(), 0, "plans keep no runtime");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_files_are_other_plans() {
    for are_listings_kept in [true, false] {
        let folder = folder();
        let file = |name: &str| folder.path().join(format!("{name}.parquet"));
        write(&file("a"), 0, 3000).await;
        write(&file("b"), 3000, 3000).await;
        let (warp, oracle) = (checking(1), stock());
        for context in [&warp.context, &oracle] {
            let limit = if are_listings_kept { "1M" } else { "0" };
            run(context, &format!("SET datafusion.runtime.list_files_cache_limit = '{limit}'")).await;
        }
        register(&[&warp.context, &oracle], "t", folder.path()).await;
        let see = || {
            [&warp.context, &oracle].into_iter().for_each(forget_listings);
        };
        let settle = async || {
            for sql in &QUERIES[..5] {
                for _ in 0..4 {
                    is_kept(&warp.context, &oracle, sql).await;
                }
                assert!(is_kept(&warp.context, &oracle, sql).await, "{sql}");
            }
        };
        settle().await;
        let bytes = warp.used_bytes();
        // A file appears, changes, and goes.
        write(&file("c"), 6000, 2000).await;
        if are_listings_kept {
            assert!(is_kept(&warp.context, &oracle, BY_KEY).await, "as long as DataFusion doesn't look");
        }
        see();
        assert!(!is_kept(&warp.context, &oracle, BY_KEY).await);
        settle().await;
        write(&file("c"), 500, 2500).await;
        see();
        assert!(!is_kept(&warp.context, &oracle, BY_KEY).await);
        settle().await;
        std::fs::remove_file(file("c")).unwrap();
        see();
        assert!(!is_kept(&warp.context, &oracle, BY_KEY).await);
        settle().await;
        // Of files that are gone nothing is left once others need the memory.
        warp.runtime.clear_cache();
        for sql in &QUERIES[..5] {
            is_kept(&warp.context, &oracle, sql).await;
        }
        assert!(warp.used_bytes() <= bytes + LOOKUP_BYTES, "{} {bytes}", warp.used_bytes());
        // Another table of the same name.
        write(&file("other/x"), 0, 100).await;
        register(&[&warp.context, &oracle], "t", &file("other/x")).await;
        assert!(!is_kept(&warp.context, &oracle, BY_KEY).await);
        settle().await;
    }
}

/// Folders that have not changed for a while are not listed again.
#[tokio::test(flavor = "multi_thread")]
async fn changed_folders_are_seen() {
    let folder = folder();
    let inner = folder.path().join("inner");
    write(&inner.join("a.parquet"), 0, 3000).await;
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let age = || {
        for name in ["", "inner", "empty"] {
            let time = SystemTime::now() - Duration::from_secs(60);
            std::fs::File::open(folder.path().join(name)).unwrap().set_modified(time).unwrap();
        }
    };
    age();
    let (warp, oracle) = (checking(1), stock());
    for context in [&warp.context, &oracle] {
        run(context, "SET datafusion.runtime.list_files_cache_limit = '0'").await;
        run(context, "SET datafusion.execution.listing_table_ignore_subdirectory = false").await;
    }
    register(&[&warp.context, &oracle], "t", folder.path()).await;
    let settle = async || {
        for _ in 0..3 {
            is_kept(&warp.context, &oracle, BY_KEY).await;
        }
        assert!(is_kept(&warp.context, &oracle, BY_KEY).await);
    };
    settle().await;
    for (number, name) in ["inner/b", "empty/c", "d"].into_iter().enumerate() {
        write(&folder.path().join(format!("{name}.parquet")), number as i64 * 1000, 500).await;
        assert!(!is_kept(&warp.context, &oracle, BY_KEY).await, "{name}");
        age();
        settle().await;
    }
    std::fs::remove_file(inner.join("b.parquet")).unwrap();
    assert!(!is_kept(&warp.context, &oracle, BY_KEY).await);
    age();
    settle().await;
    write(&inner.join("a.parquet"), 7000, 2500).await;
    assert!(!is_kept(&warp.context, &oracle, BY_KEY).await, "a file is written in place");
}

/// A table whose folder is not there yet.
#[tokio::test(flavor = "multi_thread")]
async fn folders_that_come_are_seen() {
    let folder = folder();
    let (warp, oracle) = (checking(1), stock());
    for context in [&warp.context, &oracle] {
        let sql = format!(
            "CREATE EXTERNAL TABLE t (id BIGINT) STORED AS PARQUET LOCATION '{}/later/'",
            folder.path().display()
        );
        run(context, &sql).await;
    }
    let sql = "SELECT count(*), sum(id) FROM t";
    for _ in 0..3 {
        is_kept(&warp.context, &oracle, sql).await;
    }
    run(&warp.context, "INSERT INTO t VALUES (1), (2)").await;
    [&warp.context, &oracle].into_iter().for_each(forget_listings);
    assert!(!is_kept(&warp.context, &oracle, sql).await);
    assert_eq!(rows(&run(&warp.context, sql).await.0, true), ["2|3"]);
}

/// Plans that read row groups when they run are kept until all of their columns are there.
#[tokio::test(flavor = "multi_thread")]
async fn plans_over_row_groups_are_kept() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 20_000).await;
    let (warp, oracle) = (checking(1), stock());
    register(&[&warp.context, &oracle], "t", &path).await;
    let few = |from: usize| {
        format!("SELECT k, sum(price), max(name) FROM t WHERE id BETWEEN {from} AND {} GROUP BY k", from + 70)
    };
    for round in 0..5 {
        for from in [3100, 9900] {
            assert_eq!(is_kept(&warp.context, &oracle, &few(from)).await, round > 0, "{round} {from}");
        }
    }
    // Other values of the same filter read other row groups.
    for from in [300, 5100, 12_000, 15_500] {
        assert!(!is_kept(&warp.context, &oracle, &few(from)).await, "{from}");
    }
    assert!(warp.used_bytes() < 16_000 * 20, "{}", warp.used_bytes());
    let all = "SELECT k, sum(price), max(name) FROM t WHERE id >= 0 GROUP BY k";
    is_kept(&warp.context, &oracle, all).await;
    assert!(!is_kept(&warp.context, &oracle, &few(3100)).await, "its columns are there now");
    assert!(is_kept(&warp.context, &oracle, &few(3100)).await);
    warp.runtime.clear_cache();
    assert!(!is_kept(&warp.context, &oracle, &few(3100)).await);
}

/// Files in folders that are named by values.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_folders_choose_files() {
    let folder = folder();
    for part in 0..3 {
        write(&folder.path().join(format!("part={part}/x.parquet")), part * 1000, 1000).await;
    }
    let (warp, oracle) = (checking(1), stock());
    for context in [&warp.context, &oracle] {
        let folder = folder.path().display();
        let sql = format!("CREATE EXTERNAL TABLE t STORED AS PARQUET PARTITIONED BY (part) LOCATION '{folder}/'");
        run(context, &sql).await;
    }
    for _ in 0..4 {
        for part in ["'0'", "'1'", "'2'", "'7'"] {
            for sql in [
                format!("SELECT k, sum(id) FROM t WHERE part = {part} GROUP BY k"),
                format!("SELECT part, count(*) FROM t WHERE part >= {part} OR id = 3 GROUP BY part"),
            ] {
                is_kept(&warp.context, &oracle, &sql).await;
            }
        }
    }
    let sql = "SELECT k, sum(id) FROM t WHERE part = '1' GROUP BY k";
    assert!(is_kept(&warp.context, &oracle, sql).await);
    write(&folder.path().join("part=1/y.parquet"), 7000, 10).await;
    [&warp.context, &oracle].into_iter().for_each(forget_listings);
    assert!(!is_kept(&warp.context, &oracle, sql).await);
}

/// Columns leave as others need their room, whatever plans hold, and plans are right before and after.
#[tokio::test(flavor = "multi_thread")]
async fn columns_of_kept_plans_leave() {
    let folder = folder();
    let paths = ["a", "b", "c"].map(|name| folder.path().join(format!("{name}.parquet")));
    let oracle = stock();
    // Room for two of the three.
    let warp = warp_with(1, 1_500_000, |options| {
        options.cache = "500kB".parse().unwrap();
        options.host_cache = "off".parse().unwrap();
        options.check_plans = true;
    });
    for (path, name) in paths.iter().zip(["a", "b", "c"]) {
        write(path, 0, 20_000).await;
        register(&[&warp.context, &oracle], name, path).await;
    }
    let mut found = 0;
    for round in 0..12 {
        let name = ["a", "b", "c"][if round < 6 { round / 3 } else { round % 3 }];
        let sql = format!("SELECT k, sum(price), max(day), min(id) FROM {name} WHERE share > 10 GROUP BY k");
        found += usize::from(is_kept(&warp.context, &oracle, &sql).await);
        assert!(warp.used_bytes() < 1_000_000, "{}", warp.used_bytes());
    }
    assert!(found >= 2, "{found}");
}

/// A kept plan whose part fails runs on the CPU, where scans have filters of joins and of first rows.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_kept_plans_fall_back() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 4000).await;
    let plan = FaultPlan::default();
    let devices = open_simulated(&SimOptions { devices: 1, ..SimOptions::default() }).unwrap();
    let runtime = WarpjoinRuntime::new(Session::new(with_faults(&devices, &plan)).unwrap());
    let context = warp_on(Arc::clone(&runtime), |options| {
        options.cache = ALL;
        options.on_fault = OnFault::Fallback;
    });
    let oracle = stock();
    register(&[&context, &oracle], "t", &path).await;
    cache_table(&context, "t").await.unwrap();
    for sql in QUERIES {
        let expected = rows(&run(&oracle, sql).await.0, false);
        for round in 0..6 {
            let query = context.query(sql).await.unwrap();
            assert_eq!(query.is_kept(), round > 0, "{sql} {round}");
            let fails = round % 2 == 1;
            if fails {
                plan.arm(None, 3, Fault::Driver);
            }
            let (physical, task) = query.into_parts();
            let answer = rows(&collect(physical, task).await.unwrap(), false);
            assert_eq!(answer, expected, "{sql} {round}");
            assert!(!plan.disarm(), "{sql}: nothing failed");
        }
    }
}

/// DataFusion reads a table of a file that is gone as one without rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_gone_is_told() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 1_000).await;
    let warp = warp_with(2, MEMORY, |options| options.cache = ALL);
    register(&[&warp.context], "t", &path).await;
    for run in 0..2 {
        warp.context.query(BY_KEY).await.unwrap().collect().await.unwrap();
        std::fs::rename(&path, folder.path().join("away")).unwrap();
        for sql in [BY_KEY, "SELECT count(*) FROM t", "SELECT 1 WHERE 5 IN (SELECT id FROM t)"] {
            let errors = [
                warp.context.query(sql).await.unwrap_err(),
                warp.context.sql(sql).await.unwrap().create_physical_plan().await.unwrap_err(),
            ];
            for error in errors {
                let text = error.to_string();
                assert!(text.contains("table t: ") && text.contains("t.parquet"), "{run}: {sql}: {text}");
            }
        }
        std::fs::rename(folder.path().join("away"), &path).unwrap();
    }
    warp.context.query(BY_KEY).await.unwrap().collect().await.unwrap();
}
