//! The binary: its output and exit codes.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/mod.rs"]
mod common;

use common::{assert_error, scratch, stderr, stdout, warpjoin};

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
