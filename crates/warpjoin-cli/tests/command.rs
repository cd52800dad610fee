//! The binary: its output and exit codes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output};

fn warpjoin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpjoin")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that a command fails with a clear message, without a panic or a debug dump.
#[track_caller]
fn assert_error(arguments: &[&str], words: &[&str]) {
    let output = warpjoin(arguments);
    let message = stderr(&output);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    for word in words {
        assert!(message.contains(word), "{arguments:?} does not print {word}: {message}");
    }
    for bad in ["panicked", "RUST_BACKTRACE", "Error {", "Some(", "Err("] {
        assert!(!message.contains(bad), "{arguments:?} prints {bad}: {message}");
    }
}

fn scratch(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn devices_are_listed() {
    let output = warpjoin(&["devices"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for word in ["CUDA:", "Simulated devices:", "Kernel cache:", "capability"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn kernels_are_prepared_for_gpus() {
    let output = warpjoin(&["warm"]);
    match warpjoin_device::cuda_status().problem {
        None => assert!(stdout(&output).contains("are ready after"), "{}", stderr(&output)),
        Some(_) => assert!(!output.status.success() && stderr(&output).contains("CUDA"), "{}", stderr(&output)),
    }
}

#[test]
fn wrong_flags_are_explained() {
    assert_error(&["tpch", "--scale", "0"], &["--scale", "above 0"]);
    assert_error(&["tpch", "--scale", "many"], &["--scale"]);
    assert_error(&["tpch", "--queries", "23"], &["'23' is not a query", "1 to 22"]);
    assert_error(&["tpch", "--device", "tpu"], &["auto, cuda or sim"]);
    assert_error(&["tpch", "--devices", "0"], &["--devices"]);
    assert_error(&["tpch", "--memory-budget", "plenty"], &["--memory-budget", "8GB"]);
    assert_error(&["tpch", "--json", "/nowhere/at/all.json"], &["there is no folder /nowhere/at"]);
    assert_error(&["sql", "--table", "t", "-c", "select 1"], &["NAME=PATH"]);
    assert_error(&["sql", "--table", "t=/nowhere.parquet", "-c", "select 1"], &["/nowhere.parquet", "No such file"]);
    assert_error(&["sql", "-f", "/nowhere.sql"], &["/nowhere.sql", "No such file"]);
    assert_error(&["dance"], &["dance"]);
}

#[test]
fn a_missing_driver_is_explained() {
    if warpjoin_device::cuda_problem().is_none() {
        return;
    }
    assert_error(&["tpch", "--scale", "0.001", "--device", "cuda"], &["CUDA"]);
    let query = "create table t as values (1); select column1, count(*) from t group by column1";
    assert_error(&["sql", "--device", "cuda", "--strict", "-c", query], &["CUDA"]);
}

#[test]
fn sql_errors_are_errors() {
    assert_error(&["sql", "-c", "select nothing"], &["nothing"]);
    assert_error(&["sql", "-c", "selec 1"], &["selec"]);
    assert_error(&["sql", "-c", "select * from no_table"], &["no_table"]);
    assert_error(&["sql", "-c", "set warpjoin.colour = 'red'"], &["warpjoin.minimum_rows"]);
    assert_error(&["sql", "-c", "select 1; select cast('x' as int)"], &["cast"]);
}

#[test]
fn sql_runs_over_files() {
    let folder = scratch("sql_runs_over_files");
    std::fs::write(folder.join("a.csv"), "k,x\n1,10\n2,20\n2,30\n").unwrap();
    std::fs::write(folder.join("script.sql"), "select k, sum(x) as s from a group by k order by k;").unwrap();
    let table = format!("a={}", folder.join("a.csv").display());
    let script = folder.join("script.sql");
    let output = warpjoin(&["sql", "--table", &table, "-f", script.to_str().unwrap(), "--timing"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("| 1 | 10 |") && text.contains("| 2 | 50 |") && text.contains("2 rows"), "{text}");

    let copy = folder.join("copy.parquet");
    let sql = format!(
        "create external table e stored as csv location '{}' options ('format.has_header' 'true'); \
         copy e to '{}' stored as parquet; show warpjoin.device",
        folder.join("a.csv").display(),
        copy.display()
    );
    let output = warpjoin(&["sql", "--device", "sim", "-c", &sql]);
    assert!(output.status.success() && stdout(&output).contains("sim"), "{}{}", stdout(&output), stderr(&output));

    let table = format!("p={}", folder.join("copy.parquet").display());
    let sql = "set warpjoin.minimum_rows = 0; select k, count(*) c, sum(x) s from p group by k order by k";
    let output = warpjoin(&["sql", "--device", "sim", "--strict", "--table", &table, "-c", sql]);
    assert!(
        output.status.success() && stdout(&output).contains("| 2 | 2 | 50 |"),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}

#[test]
fn tables_are_cached_and_freed() {
    let folder = scratch("tables_are_cached_and_freed");
    let file = folder.join("p.parquet");
    let copy =
        format!("copy (select v as k, v % 7 as x from generate_series(1, 5000) as t(v)) to '{}'", file.display());
    let output = warpjoin(&["sql", "-c", &copy]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = format!("p={}", file.display());
    let sql = "cache table p; select column_name, rows from warpjoin.cache order by 1; uncache table p; \
               select count(*) as left_over from warpjoin.cache; uncache table if exists nothing";
    let output = warpjoin(&["sql", "--device", "sim", "--table", &table, "-c", sql]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    for line in [
        "p: 2 columns of 5000 rows on the devices, 1 MB",
        "| k           | 5000 |",
        "p: 2 columns left the devices",
        "| 0         |",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    let with = |sql| ["sql", "--device", "sim", "--table", &table, "-c", sql].map(str::to_string);
    for (sql, word) in [
        ("cache table gone", "gone"),
        ("uncache table gone", "gone"),
        ("cache lazy table p", "name of a table"),
        ("set warpjoin.cache = 'off'; cache table p", "SET warpjoin.cache"),
    ] {
        let arguments = with(sql);
        assert_error(&arguments.each_ref().map(String::as_str), &[word]);
    }
}

#[test]
fn queries_are_listed_and_limited() {
    let sql = "show queries; select count(*) as listed from warpjoin.queries; \
               set warpjoin.query_timeout = '90s'; show warpjoin.query_timeout";
    let output = warpjoin(&["sql", "--device", "sim", "-c", sql]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    for line in ["| id | state | seconds | query |", "| 0      |", "| warpjoin.query_timeout | 90s   |"] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    assert_error(&["sql", "-c", "kill 7"], &["no query under way has the id 7", "SHOW QUERIES"]);
    assert_error(&["sql", "-c", "set warpjoin.query_timeout = 'soon'"], &["warpjoin.query_timeout takes", "30s"]);
    let slow = "set warpjoin.minimum_rows = 0; set warpjoin.query_timeout = 1; select v % 7 as k, count(*) from \
                generate_series(1, 10000000) as t(v) group by k";
    assert_error(
        &["sql", "--device", "sim", "-c", slow],
        &["error: the query was cancelled", "warpjoin.query_timeout, 1ms"],
    );
}

#[test]
fn tpch_answers_are_equal_on_simulated_devices() {
    let folder = scratch("tpch");
    let json = folder.join("report.json");
    let answers = folder.join("answers");
    let arguments = [
        "tpch",
        "--scale",
        "0.01",
        "--device",
        "sim",
        "--devices",
        "2",
        "--runs",
        "1",
        "--strict",
        "--variants",
        "1",
        "--clients",
        "1,5",
        "--client-seconds",
        "1",
        "--json",
        json.to_str().unwrap(),
        "--save-answers",
        answers.to_str().unwrap(),
    ];
    let output = warpjoin(&arguments);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("22 of 22 equal"), "{}", stdout(&output));
    assert!(stdout(&output).contains("queries/s"), "{}", stdout(&output));
    assert_eq!(std::fs::read_to_string(answers.join("q01.csv")).unwrap().lines().count(), 5);
    let plot = folder.join("plot.svg");
    let table = warpjoin(&["tpch-report", json.to_str().unwrap(), "--plot", plot.to_str().unwrap()]);
    assert!(table.status.success(), "{}", stderr(&table));
    assert_eq!(stdout(&table).lines().filter(|line| line.starts_with("| ")).count(), 1 + 22 + 1, "{}", stdout(&table));
    // Two bars per query, and two in the legend.
    let plot = std::fs::read_to_string(plot).unwrap();
    assert!(plot.matches("<rect").count() >= 46, "{plot}");
    let json = json.to_str().unwrap();
    let compared = warpjoin(&["bench-compare", json, &format!("{json},{json}")]);
    assert!(compared.status.success() && stdout(&compared).contains("No figure grew"), "{}", stderr(&compared));
    assert_error(&["bench-compare", json, "Cargo.toml"], &["Cargo.toml cannot be compared", "--json"]);
    assert_error(&["bench-compare", json, json, "--percent=-1"], &["--percent"]);
    assert_error(&["tpch-report", "Cargo.toml"], &["is not a report of this version", "--json"]);
    let report = std::fs::read_to_string(json).unwrap();
    for word in
        ["\"kernel_ms\"", "\"clients\": 5", "\"p99_ms\"", "\"sim:1\"", "\"compiled_modules\"", "\"outcome\": \"equal\""]
    {
        assert!(report.contains(word), "the report has no {word}");
    }
}

#[test]
fn tpch_runs_over_parquet_files() {
    let folder = scratch("tpch_files");
    let files = folder.to_str().unwrap();
    let run = |scale: &str| {
        warpjoin(&[
            "tpch",
            "--scale",
            scale,
            "--queries",
            "1,6,22",
            "--device",
            "sim",
            "--runs",
            "1",
            "--strict",
            "--cold",
            "--parquet",
            files,
        ])
    };
    // Writes the files, then finds them.
    for _ in 0..2 {
        let output = run("0.01");
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).contains("3 of 3 equal"), "{}", stdout(&output));
        assert!(stdout(&output).contains("3 of 3 wholly on devices"), "{}", stdout(&output));
    }
    assert!(folder.join("lineitem").join("00000.parquet").exists());
    let other = run("0.02");
    assert!(!other.status.success() && stderr(&other).contains("has tables of scale 0.01"), "{}", stderr(&other));
}
