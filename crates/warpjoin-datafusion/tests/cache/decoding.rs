//! Parquet that devices decode.

use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use warpjoin_datafusion::{Distribute, MemoryShare, ParquetDecode};

use crate::common::{rows, run, stock};
use crate::harness::*;

/// Devices decode what they can, and the CPU the rest of the same table.
#[tokio::test(flavor = "multi_thread")]
async fn devices_decode_columns_of_files() {
    let folder = folder();
    for file in 0..3 {
        write(&folder.path().join(format!("{file}.parquet")), file * 10_000, 10_000).await;
    }
    let (warp, oracle) = (warp_decoding(1), stock());
    register(&[&warp.context, &oracle], "t", folder.path()).await;
    let all = "SELECT k, count(*), sum(id), sum(price), min(day), max(day), max(name), min(share) FROM t GROUP BY k";
    let by_name = "SELECT name, count(*), min(id) FROM t WHERE name LIKE '%1%' GROUP BY name";
    for sql in [BY_KEY, all, by_name, "SELECT count(*), max(id) FROM t WHERE k = 3"] {
        warp.query(&oracle, sql).await;
        assert!(warp.is_resident(sql).await, "{sql}");
    }
    let expected = ["day|device", "id|device", "k|device", "name|device", "price|device", "share|device"];
    assert_eq!(warp.decoded_on().await, expected);
    warp.runtime.clear_cache();
    assert_eq!(warp.used_bytes(), 0, "all memory is given back");
}

/// The value in a folder's name counts, not that of a column in its files with the same name and type.
#[tokio::test(flavor = "multi_thread")]
async fn columns_of_folders_are_not_decoded_from_files() {
    let folder = folder();
    let of_share = folder.path().join("share=2.5");
    std::fs::create_dir(&of_share).unwrap();
    write(&of_share.join("t.parquet"), 0, 3000).await;
    let (warp, oracle) = (warp_decoding(1), stock());
    for context in [&warp.context, &oracle] {
        let sql = format!(
            "CREATE EXTERNAL TABLE t (id BIGINT, share DOUBLE) STORED AS PARQUET PARTITIONED BY (share) LOCATION '{}/'",
            folder.path().display()
        );
        context.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    warp.query(&oracle, "SELECT share, count(*), sum(id) FROM t GROUP BY share").await;
    assert_eq!(warp.decoded_on().await, ["id|device", "share|cpu"]);
}

/// A damaged page, and compression that devices do not know: DataFusion reads the column, or says what is wrong.
#[tokio::test(flavor = "multi_thread")]
async fn what_devices_cannot_decode_is_read_by_datafusion() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    write(&path, 0, 5000).await;
    let (warp, oracle) = (warp_decoding(1), stock());
    let sound = std::fs::read(&path).unwrap();
    // The footer and its length are at the end.
    let footer_bytes = u32::from_le_bytes(sound[sound.len() - 8..][..4].try_into().unwrap()) as usize;
    for at in (4..sound.len() - 8 - footer_bytes).step_by(sound.len() / 40) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&path, &damaged).unwrap();
        // A damaged page index: there is no such table.
        let of_file = SessionContext::new().read_parquet(path.to_str().unwrap(), ParquetReadOptions::default()).await;
        if of_file.is_err() {
            continue;
        }
        register(&[&warp.context, &oracle], "t", &path).await;
        let sql = "SELECT sum(id), sum(k), sum(price), min(day), max(day), min(share), max(share), \
                   min(name), count(DISTINCT name) FROM t";
        let answer = async |context: &SessionContext| {
            let batches = context.sql(sql).await.unwrap().collect().await;
            batches.map(|batches| rows(&batches, true)).ok()
        };
        let (answer, expected) = (answer(&warp.context).await, answer(&oracle).await);
        // Both fail, or both read the same numbers.
        assert_eq!(answer, expected, "byte {at}");
        warp.runtime.clear_cache();
    }
    write_with(&path, 0, 3000, &["compression = 'brotli(3)'"]).await;
    register(&[&warp.context, &oracle], "t", &path).await;
    warp.query(&oracle, "SELECT sum(id) FROM t").await;
    assert_eq!(warp.decoded_on().await, ["id|cpu"], "brotli");
}

/// Columns that have no room beside each other are decoded one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn columns_are_decoded_alone_where_memory_is_scarce() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    let context = SessionContext::new();
    let columns: Vec<String> = (1..=8).map(|n| format!("v * {}9 % 1000003 AS c{n}", n * 7)).collect();
    let sql = format!("SELECT {} FROM generate_series(1, 200000) AS t(v)", columns.join(", "));
    let options = DataFrameWriteOptions::new().with_single_file_output(true);
    context.sql(&sql).await.unwrap().write_parquet(path.to_str().unwrap(), options, None).await.unwrap();
    // The columns take 6.4 MB; a column alone takes as much again while it is decoded.
    let warp = warp_with(1, 14 << 20, |options| {
        options.parquet_decode = ParquetDecode::Device;
        options.cache = MemoryShare::Percent(90);
    });
    let oracle = stock();
    register(&[&warp.context, &oracle], "t", &path).await;
    warp.query(&oracle, "SELECT sum(c1), sum(c2), sum(c3), sum(c4), sum(c5), sum(c6), sum(c7), sum(c8) FROM t").await;
    let decoded = warp.decoded_on().await;
    assert!(decoded.len() == 8 && decoded.iter().all(|column| column.ends_with("|device")), "{decoded:?}");
}

/// More strings than have codes in their order stay on the device, where LIKE and comparisons test them.
#[tokio::test(flavor = "multi_thread")]
async fn many_strings_are_tested_where_they_are_decoded() {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    let context = SessionContext::new();
    let sql = "SELECT v AS id, CASE WHEN v % 50 = 0 THEN NULL ELSE 'number ' || (v * 7919 % 100003) END AS name \
               FROM generate_series(1, 120000) AS t(v)";
    let options = DataFrameWriteOptions::new().with_single_file_output(true);
    context.sql(sql).await.unwrap().write_parquet(path.to_str().unwrap(), options, None).await.unwrap();
    for devices in [1, 2] {
        let (warp, oracle) = (warp_decoding(devices), stock());
        register(&[&warp.context, &oracle], "t", &path).await;
        for condition in ["name LIKE '%77%'", "name > 'number 5'", "name LIKE 'number _2%' OR name = 'number 9'"] {
            warp.query(&oracle, &format!("SELECT count(*), sum(id), min(name) FROM t WHERE {condition}")).await;
        }
        assert_eq!(warp.decoded_on().await, ["id|device", "name|device"]);
        warp.query(&oracle, "SELECT name, count(*) AS n FROM t GROUP BY name ORDER BY n DESC, name LIMIT 10").await;
    }
}

/// Compression that the host takes off, files without statistics, without dictionaries.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_other_writers_are_decoded_on_devices() {
    let compressions = ["uncompressed", "snappy", "zstd(3)", "lz4_raw", "gzip(6)"];
    let statistics = ["none", "chunk", "page"];
    for (number, compression) in compressions.iter().enumerate() {
        let compression = format!("compression = '{compression}'");
        let statistics = format!("statistics_enabled = '{}'", statistics[number % 3]);
        for dictionaries in ["dictionary_enabled = true", "dictionary_enabled = false"] {
            let folder = folder();
            for file in 0..2 {
                let path = folder.path().join(format!("{file}.parquet"));
                write_with(&path, file * 4000, 4000, &[&compression, &statistics, dictionaries]).await;
            }
            let (warp, oracle) = (warp_decoding(1 + number % 3), stock());
            register(&[&warp.context, &oracle], "t", folder.path()).await;
            let sql = "SELECT name, k, count(*), sum(id), sum(price), min(day), max(share) FROM t GROUP BY name, k";
            warp.query(&oracle, sql).await;
            let decoded = warp.decoded_on().await;
            let is_decoded = decoded.iter().all(|column| column.ends_with("|device"));
            assert!(is_decoded && decoded.len() == 6, "{compression}, {statistics}, {dictionaries}: {decoded:?}");
        }
    }
}

/// Columns of one table lie on the same devices, whichever query reads them.
#[tokio::test(flavor = "multi_thread")]
async fn all_columns_of_a_table_lie_on_one_device() {
    let (folder, oracle) = (folder(), stock());
    let path = folder.path().join("t.parquet");
    write(&path, 0, 5000).await;
    for decode in [ParquetDecode::Device, ParquetDecode::Cpu] {
        let warp = warp_with(3, MEMORY, |options| {
            (options.parquet_decode, options.distribute) = (decode, Distribute::One);
        });
        register(&[&oracle, &warp.context], "t", &path).await;
        warp.query(&oracle, "SELECT k, count(*) FROM t GROUP BY k").await;
        // The columns that are there decide, not what is set now.
        warp.context.sql("SET warpjoin.distribute = 'all'").await.unwrap().collect().await.unwrap();
        for _ in 0..2 {
            warp.query(&oracle, BY_KEY).await;
            assert!(warp.is_resident(BY_KEY).await);
        }
        let used: Vec<u64> = warp.session.devices().iter().map(|device| device.memory().used_bytes()).collect();
        assert!(used[0] > 0 && used[1..] == [0, 0], "{used:?}");
        let (_, placement) = run(&warp.context, BY_KEY).await;
        assert_eq!(placement.device[0].metrics.as_ref().unwrap().devices, ["sim:0"]);
    }
}
