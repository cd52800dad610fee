//! `warpjoin sql`: its output and exit codes.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/mod.rs"]
mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{assert_error, scratch, stderr, stdout, warpjoin};

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
    assert_error(&["sql", "--device", "sim", "-c", slow], &["the query was cancelled", "warpjoin.query_timeout, 1ms"]);
}

#[test]
fn paths_are_taken_as_they_are() {
    let folder = scratch("paths_are_taken_as_they_are");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    };
    write("a*[1]?.csv", "k\n7\n");
    write("ab1x.csv", "k\n8\n");
    write("upper/A.CSV", "k\n9\n");
    write("hive/y=2025/a.csv", "k\n1\n");
    write("hive/y=2026/b.csv", "k\n2\n");
    let select = |path: &str| {
        let table = format!("t={}", folder.join(path).display());
        let output = warpjoin(&[
            "sql",
            "--device",
            "sim",
            "--format",
            "csv",
            "--table",
            &table,
            "-c",
            "select * from t order by k",
        ]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(select("a*[1]?.csv"), "k\n7\n");
    assert_eq!(select("upper"), "k\n9\n");
    assert_eq!(select("hive"), "k,y\n1,2025\n2,2026\n");
    let empty = folder.join("empty.parquet");
    std::fs::write(&empty, "").unwrap();
    assert_error(&["sql", "--table", &format!("t={}", empty.display()), "-c", "select 1"], &["--table t=", "0 bytes"]);
}

#[test]
fn a_failed_copy_leaves_the_file_of_before() {
    let folder = scratch("a_failed_copy_leaves_the_file_of_before");
    for format in ["parquet", "csv", "json"] {
        let file = folder.join(format!("x.{format}"));
        let copy = |query: &str| {
            warpjoin(&["sql", "--device", "sim", "-c", &format!("copy ({query}) to '{}'", file.display())])
        };
        let good = copy("select 1 as a");
        assert!(good.status.success(), "{}", stderr(&good));
        let before = std::fs::read(&file).unwrap();
        let bad = copy(
            "select cast(case when v > 90000 then 'x' else '1' end as int) as a from generate_series(1, 100000) t(v)",
        );
        assert!(!bad.status.success() && stderr(&bad).contains("Cast"), "{}", stderr(&bad));
        assert_eq!(std::fs::read(&file).unwrap(), before, "{format}");
        let other = copy("select 2 as a");
        assert!(other.status.success() && std::fs::read(&file).unwrap() != before, "{}", stderr(&other));
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "something is left behind");
}

#[test]
fn errors_of_scripts_say_where() {
    let folder = scratch("errors_of_scripts_say_where");
    let script = folder.join("s.sql");
    std::fs::write(&script, "\u{feff}select 1;\n\nselect nothing;\n").unwrap();
    assert_error(&["sql", "--device", "sim", "-f", script.to_str().unwrap()], &["s.sql:3: ", "nothing"]);
    assert_error(
        &["sql", "--device", "sim", "-c", "select 1;\nselect nothing"],
        &["statement 2 (line 2): ", "nothing"],
    );
}

#[test]
fn answers_have_formats() {
    let sql = "select 1 as a, 'x,y' as b; select 1 as c where false";
    let print = |format: &str| stdout(&warpjoin(&["sql", "--device", "sim", "--format", format, "-c", sql]));
    assert_eq!(print("csv"), "a,b\n1,\"x,y\"\nc\n");
    assert_eq!(print("json"), "{\"a\":1,\"b\":\"x,y\"}\n");
    assert!(print("table").contains("| 1 | x,y |"));
    let long = "select v from generate_series(1, 50000) t(v)";
    let output = warpjoin(&["sql", "--device", "sim", "-c", long]);
    assert_eq!(
        stdout(&output).lines().filter(|line| line.contains(|digit: char| digit.is_ascii_digit())).count(),
        50_000
    );
}

#[test]
fn settings_are_reset() {
    let sql = "set warpjoin.strict = true; reset warpjoin.strict; show warpjoin.strict";
    let output = warpjoin(&["sql", "--device", "sim", "--format", "csv", "-c", sql]);
    assert_eq!(stdout(&output), "name,value\nwarpjoin.strict,false\n", "{}", stderr(&output));
    assert_error(&["sql", "-c", "reset warpjoin.colour"], &["unknown setting warpjoin.colour"]);
}

// Operators of DataFusion keep all threads of the runtime busy for hours.
#[cfg(unix)]
#[test]
fn interrupts_are_heard_while_all_threads_work() {
    let sql =
        "select count(*) from generate_series(1, 5000000) a, generate_series(1, 5000000) b where a.value + b.value > 5";
    let mut child = Command::new(env!("CARGO_BIN_EXE_warpjoin"));
    let child = child.args(["sql", "--device", "sim", "-c", sql]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(child.try_wait().unwrap().is_none(), "the query ended too soon");
    let interrupt = || Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt().success());
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "Ctrl-C was not heard");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(130), "error: cancelled\n"));
}
