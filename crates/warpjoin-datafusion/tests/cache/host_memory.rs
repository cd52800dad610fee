//! Columns and rows for which the devices have no room lie in the host's memory.

use warpjoin_datafusion::{MemoryShare, ParquetDecode, cache_table, register_cache_table};

use crate::common::{physical, rows, run, shown, stock};
use crate::harness::*;

const BY_NAME: &str = "SELECT name, count(*), sum(price), min(share) FROM t GROUP BY name";

/// The number of cached columns on the devices, and of those in the host's memory.
async fn places(warp: &Warp) -> Vec<String> {
    register_cache_table(&warp.context).unwrap();
    let sql = "SELECT count(*) FILTER (WHERE bytes > 0 AND host_bytes = 0), count(*) FILTER (WHERE host_bytes > 0) \
               FROM warpjoin.cache";
    rows(&warp.context.sql(sql).await.unwrap().collect().await.unwrap(), true)
}

/// What a limit leaves no room for on the devices is read there all the same, and is not read from files again; with room, it
/// comes back.
#[tokio::test(flavor = "multi_thread")]
async fn columns_that_leave_the_devices_are_read_in_the_hosts_memory() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 40_000).await;
    let oracle = stock();
    for decode in [ParquetDecode::Device, ParquetDecode::Cpu] {
        // Room for some columns of one query.
        let warp = warp_with(2, MEMORY, |options| {
            (options.cache, options.parquet_decode) = (MemoryShare::Bytes(200_000), decode);
        });
        register(&[&warp.context, &oracle], "t", &path).await;
        let reads = cache_table(&warp.context, "t").await.unwrap();
        assert_eq!(reads.columns, 6);
        let found = places(&warp).await;
        assert!(!found[0].starts_with('0') && !found[0].ends_with('0'), "{found:?}");
        for sql in [BY_KEY, BY_NAME, BY_KEY, BY_NAME] {
            let plan = shown(&physical(&warp.context, sql).await);
            assert!(plan.contains("in host memory]"), "{plan}");
            assert!(plan.contains("WarpjoinExec") && !plan.contains("DataSourceExec"), "{plan}");
            warp.query(&oracle, sql).await;
        }
        assert_eq!(places(&warp).await, found, "nothing was read again");
        warp.context.sql("SET warpjoin.cache = '60%'").await.unwrap().collect().await.unwrap();
        for sql in [BY_KEY, BY_NAME] {
            warp.query(&oracle, sql).await;
            assert!(warp.is_resident(sql).await);
        }
        // No query has read the other one.
        assert_eq!(places(&warp).await, ["5|1"]);
        warp.runtime.clear_cache();
        let host_bytes = warp.session.devices()[0].host_memory().used_bytes();
        assert_eq!((warp.used_bytes(), host_bytes), (0, 0));
    }
}

/// Pages that no device has room to decode are decoded on the CPU, and kept as others are.
#[tokio::test(flavor = "multi_thread")]
async fn columns_too_large_to_be_decoded_are_cached() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 200_000).await;
    let oracle = stock();
    let warp = warp_with(1, 700_000, |options| options.parquet_decode = ParquetDecode::Device);
    register(&[&warp.context, &oracle], "t", &path).await;
    let sql = "SELECT k, count(*), min(price), max(id) FROM t GROUP BY k";
    warp.query(&oracle, sql).await;
    let found = places(&warp).await;
    let counts: Vec<u32> = found[0].split('|').map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u32>(), 3, "{found:?}");
    warp.query(&oracle, sql).await;
    assert_eq!(places(&warp).await, found, "nothing was read again");
    let decoded = warp.decoded_on().await;
    assert!(decoded.iter().any(|column| column.ends_with("|cpu")), "{decoded:?}");
}

/// Devices with far less memory than the columns: all operators run there, and the plan says what crossed the bus.
#[tokio::test(flavor = "multi_thread")]
async fn queries_larger_than_the_devices_run_there() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 200_000).await;
    let oracle = stock();
    let joined = "SELECT a.k, count(*), sum(b.price) FROM t a JOIN t b ON a.id = b.id + 7 GROUP BY a.k";
    let sorted = "SELECT id, price, k FROM t ORDER BY price DESC, id";
    let ranked = "SELECT id, k, sum(price) OVER (PARTITION BY k ORDER BY id) FROM t";
    for (devices, memory_bytes) in [(1, 4 << 20), (2, 5 << 19)] {
        let warp = warp_with(devices, memory_bytes, |options| options.strict = true);
        register(&[&warp.context, &oracle], "t", &path).await;
        for sql in [BY_KEY, BY_NAME, joined, sorted, ranked, BY_KEY] {
            warp.query(&oracle, sql).await;
        }
        let (batches, _) = run(&warp.context, &format!("EXPLAIN ANALYZE {BY_NAME}")).await;
        let shown = rows(&batches, true).join(" ");
        let staged = shown.split("host_read_bytes=").nth(1).unwrap_or_else(|| panic!("{shown}"));
        assert!(!staged.starts_with("0"), "{shown}");
        // Without that memory, they don't.
        warp.runtime.clear_cache();
        warp.context.sql("SET warpjoin.host_memory = 'off'").await.unwrap().collect().await.unwrap();
        let refused = warp.context.sql(joined).await.unwrap().collect().await;
        assert!(refused.is_err_and(|error| error.to_string().contains("memory")), "strict forbids the CPU");
    }
}
