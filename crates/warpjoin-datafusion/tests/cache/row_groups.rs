//! Of files, only row groups that have rows for a query's filter are read, as long as that is less work than reading all.

use datafusion::prelude::{ParquetReadOptions, SessionContext};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use warpjoin_datafusion::{ParquetDecode, register_cache_table, uncache_table};

use super::common::{rows, run, stock};
use super::harness::{ALL, LOOKUP_BYTES, MEMORY, Warp, folder, register, warp_decoding, warp_with, write, write_with};

/// Rows of all columns that `SUMS` reads, narrowed, on the devices.
const ROW_BYTES: u64 = 20;
const ROWS: i64 = 20_000;

fn sums(filter: &str) -> String {
    format!("SELECT k, count(*), sum(price), min(day), max(name), sum(id) FROM t WHERE {filter} GROUP BY k")
}

async fn with_file(warp: &Warp, oracle: &SessionContext) -> tempfile::TempDir {
    let folder = folder();
    write(&folder.path().join("t.parquet"), 0, ROWS).await;
    register(&[&warp.context, oracle], "t", &folder.path().join("t.parquet")).await;
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn few_row_groups_are_read_until_all_are() {
    for decode in [ParquetDecode::Device, ParquetDecode::Cpu] {
        let warp = warp_with(2, MEMORY, |options| {
            options.cache = ALL;
            options.parquet_decode = decode;
        });
        let oracle = stock();
        let _folder = with_file(&warp, &oracle).await;
        let sql = sums("id BETWEEN 5000 AND 5999");
        warp.query(&oracle, &sql).await;
        let part = warp.used_bytes();
        assert!(part > 1000 && part < 2000 * ROW_BYTES, "{part}");
        assert!(warp.query(&oracle, &sql).await < LOOKUP_BYTES, "the same row groups are there");
        let analyzed = rows(&run(&warp.context, &format!("EXPLAIN ANALYZE {sql}")).await.0, true).join("\n");
        assert!(analyzed.contains("row_groups_pruned=19, row_groups_read=1"), "{analyzed}");
        // Other rows of the same row groups, and a filter that leaves nothing.
        assert!(warp.query(&oracle, &sums("id > 5100 AND id < 5200")).await < LOOKUP_BYTES);
        warp.query(&oracle, &sums("id < -7")).await;
        assert!(warp.used_bytes() < 2 * part + LOOKUP_BYTES, "a row group stands for none");
        assert!(!warp.is_resident(&sql).await);
        // Each filter alone reads little. Together they would read more than there is.
        let mut bytes = vec![];
        for from in (0..ROWS).step_by(1000) {
            warp.query(&oracle, &sums(&format!("id >= {from} AND id < {}", from + 3000))).await;
            bytes.push(warp.used_bytes());
        }
        assert!(bytes[2] < 12_000 * ROW_BYTES, "{bytes:?}");
        assert!(warp.is_resident(&sql).await, "all rows are there: {bytes:?}");
        let whole = warp.used_bytes();
        assert!(whole < (ROWS as u64) * ROW_BYTES + LOOKUP_BYTES, "parts have left: {whole}");
        uncache_table(&warp.context, "t").await.unwrap();
        assert_eq!(warp.used_bytes(), 0);
        warp.query(&oracle, &sql).await;
        uncache_table(&warp.context, "t").await.unwrap();
        assert_eq!(warp.used_bytes(), 0, "parts are forgotten with the whole");
        // Most of the file is no part of it.
        warp.query(&oracle, &sums("id >= 3000")).await;
        assert!(warp.is_resident(&sql).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_is_read_if_settings_say_so() {
    let (warp, oracle) = (warp_decoding(1), stock());
    // A table has the settings of its registration.
    run(&warp.context, "SET datafusion.execution.parquet.pruning = false").await;
    let _folder = with_file(&warp, &oracle).await;
    let sql = sums("id BETWEEN 5000 AND 5999");
    warp.query(&oracle, &sql).await;
    assert!(warp.is_resident(&sql).await);
}

/// Filters of all kinds over several files, of which one stores a column as another type, and folders have values.
#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_all_row_groups() {
    let seed = std::env::var("WARPJOIN_RANDOM_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("WARPJOIN_RANDOM_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let folder = folder();
    for file in 0..4 {
        let path = folder.path().join(format!("part={}/{file}.parquet", file % 2));
        let settings: &[&str] = if file == 3 { &["statistics_enabled = 'none'"] } else { &[] };
        write_with(&path, file * 4000, 4000, settings).await;
    }
    // Numbers as other integers than in the other files, which are listed first.
    let other = "SELECT CAST(id AS INT) AS id, k, name, price, day, share FROM t WHERE id < 3000";
    let context = SessionContext::new();
    let first = folder.path().join("part=0/0.parquet");
    context.register_parquet("t", first.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
    let path = folder.path().join("part=1/x.parquet");
    let options = datafusion::dataframe::DataFrameWriteOptions::new().with_single_file_output(true);
    context.sql(other).await.unwrap().write_parquet(path.to_str().unwrap(), options, None).await.unwrap();
    let oracle = stock();
    let sessions = [(1, ParquetDecode::Device), (3, ParquetDecode::Cpu)].map(|(devices, decode)| {
        warp_with(devices, MEMORY, |options| {
            options.cache = ALL;
            options.parquet_decode = decode;
            options.check_plans = true;
        })
    });
    for context in [&oracle, &sessions[0].context, &sessions[1].context] {
        let sql = format!(
            "CREATE EXTERNAL TABLE t (id BIGINT, k BIGINT, name VARCHAR, price DECIMAL(20, 6), day DATE, share DOUBLE, part BIGINT) \
             STORED AS PARQUET PARTITIONED BY (part) LOCATION '{}/'",
            folder.path().display()
        );
        run(context, &sql).await;
    }
    let mut parts = 0;
    for number in 0..60 {
        let (from, length) = (random.random_range(-100..16_500), *[0, 1, 50, 900, 3000].choose(&mut random).unwrap());
        let to = from + length;
        let simple = [
            format!("id BETWEEN {from} AND {to}"),
            format!("id = {from}"),
            format!("id IN ({from}, {to}, NULL)"),
            format!("share >= {from}.5 / 3 AND share < {to} / 3.0"),
            format!("price < {from} / 4.0"),
            format!("NOT (price < {from} OR price >= {to} / 4)"),
            format!("day > DATE '2020-01-01' + {} AND id < {to}", from.max(0) % 365),
            format!("name = 'name {}' AND id > {from}", from.max(0) % 100),
            "k IS NULL".to_string(),
            format!("part = {} AND id >= {from}", number % 3),
            format!("id + 1 < {from} AND abs(id) > 3"),
            format!("CAST(id AS VARCHAR) < '{from}'"),
        ];
        let one = simple.choose(&mut random).unwrap();
        let two = simple.choose(&mut random).unwrap();
        let filter = match number % 3 {
            0 => one.clone(),
            1 => format!("({one}) AND ({two})"),
            _ => format!("({one}) OR ({two})"),
        };
        let sql = match number % 4 {
            3 => format!("SELECT a.name, count(*) FROM t a JOIN t b ON a.id = b.id WHERE a.{one} GROUP BY 1")
                .replace("a.NOT (price", "NOT (a.price")
                .replace("a.CAST(id", "CAST(a.id"),
            _ => sums(&filter),
        };
        let sql = if sql.contains("JOIN") && oracle.sql(&sql).await.is_err() { sums(&filter) } else { sql };
        for warp in &sessions {
            warp.query(&oracle, &sql).await;
            parts += usize::from(!warp.is_resident(&sql).await);
            if random.random_range(0..2) == 0 {
                warp.runtime.clear_cache();
            }
        }
    }
    assert!(parts > 2, "{parts}");
}

/// Each filter has its own row groups. Not all of them are kept.
#[tokio::test(flavor = "multi_thread")]
async fn parts_are_bounded() {
    let (warp, oracle) = (warp_decoding(1), stock());
    let folder = folder();
    write(&folder.path().join("t.parquet"), 0, 300_000).await;
    register(&[&warp.context, &oracle], "t", &folder.path().join("t.parquet")).await;
    for number in 0..90 {
        let from = number * 2000 + 500;
        let filter = format!("id BETWEEN {from} AND {}", from + 100);
        warp.query(&oracle, &format!("SELECT count(*), sum(k) FROM t WHERE {filter}")).await;
    }
    register_cache_table(&warp.context).unwrap();
    let batches = run(&warp.context, "SELECT count(*) FROM warpjoin.cache").await.0;
    let columns = super::common::rows(&batches, true);
    assert_eq!(columns, [(64 * 2).to_string()]);
}
