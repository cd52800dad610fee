//! Imports point down: each part of a crate uses parts of its own layer and of those below, as ARCHITECTURE.md lists them.
//! And circles of files that import each other are small, as are files and folders.
//!
//! An arrow leads from a file to the file that defines what it names, through `super`, `use` and what facades re-export. What a
//! facade re-exports is an arrow of its own. Methods of a type that stand in several files are called without naming these: such
//! calls point down too. The order of crates is cargo's to check: it knows no circles.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod layers_common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use layers_common::circles::circles;
use layers_common::{Arrows, Imports, source_files};

/// Layers of a crate, lowest first: files and folders. The longest one that a path begins with counts.
type Layers = &'static [&'static [&'static str]];

const WARPJOIN_COLUMNS: Layers =
    &[&["error"], &["column"], &["devices"], &["expr", "function", "identity", "string_test"], &["table"]];

const WARPJOIN_PLAN: Layers = &[
    &["plan/aggregate", "window"],
    &["plan", "options"],
    &["plan/physical", "plan/rewrite"],
    &["optimize/costs", "optimize/estimate", "optimize/measure", "optimize/safety"],
    &["optimize/order"],
    &["optimize"],
    &["optimize/late"],
    &["optimize/mod"],
];

const WARPJOIN_CODEGEN: Layers = &[
    &["constants", "value"],
    &["shapes", "fixed"],
    &["precomputed"],
    &["program"],
    &["print", "interpret", "bind"],
    &["lookup"],
    &["expr"],
    &["output"],
    &["join", "group"],
    &["pipeline"],
];

const WARPJOIN: Layers = &[
    &["runtime"],
    &["exec/relation", "exec/metrics"],
    &["exec/decision"],
    &["exec/query"],
    &["exec/string_tests", "exec/entry_kernels"],
    &["exec/launch"],
    &["exec/rows"],
    &["exec/exchange"],
    &["exec/partition"],
    &["exec/group", "exec/sort"],
    &["exec/join", "exec/window"],
    &["exec/check", "exec/execution", "exec/explain", "exec/place"],
    &["exec/mod"],
    &["hash_table", "operators", "parquet"],
];

const WARPJOIN_DEVICE: Layers = &[
    &["error", "race", "sync", "trace", "lib"],
    &["cancellation"],
    &["backend", "device", "event", "kernel", "memory", "modules", "stream"],
    &["cache", "faults"],
    &["cuda", "sim"],
];

const WARPJOIN_DATAFUSION: Layers = &[
    &["config", "error"],
    &["pass_through"],
    &["cache", "kept"],
    &["runtime"],
    &["fallback", "template", "translate"],
    &["table"],
    &["exec", "matcher"],
    &["rules"],
    &["planner"],
    &["extension"],
];

const WARPJOIN_CLI: Layers =
    &[&["error"], &["answers", "devices", "output", "target"], &["compare", "shell", "tpch", "warm"]];

/// The crates whose imports are read.
const CRATES: [(&str, Layers); 7] = [
    ("warpjoin-device", WARPJOIN_DEVICE),
    ("warpjoin-columns", WARPJOIN_COLUMNS),
    ("warpjoin-plan", WARPJOIN_PLAN),
    ("warpjoin-codegen", WARPJOIN_CODEGEN),
    ("warpjoin", WARPJOIN),
    ("warpjoin-datafusion", WARPJOIN_DATAFUSION),
    ("warpjoin-cli", WARPJOIN_CLI),
];

/// The crates whose calls of methods are read, too.
const CRATES_OF_CALLS: [(&str, Layers); 4] = [
    ("warpjoin-columns", WARPJOIN_COLUMNS),
    ("warpjoin-plan", WARPJOIN_PLAN),
    ("warpjoin-codegen", WARPJOIN_CODEGEN),
    ("warpjoin", WARPJOIN),
];

/// Most files in a circle of imports and calls of methods.
const CIRCLE_FILES_MAX: usize = 8;

/// Most source files that stand in a folder, and most lines of one; without tests.
const FOLDER_FILES_MAX: usize = 14;
const FILE_LINES_MAX: usize = 500;

/// Extensions of source files: of Rust, of kernels and of what simulates devices.
const EXTENSIONS: [&str; 5] = ["rs", "cu", "cuh", "h", "cpp"];

/// Folder of the sources of a crate of the workspace.
fn source_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

fn layer_of(layers: Layers, file: &Path) -> usize {
    let part = file.with_extension("").to_string_lossy().into_owned();
    let holds = |name: &str| part.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let found = layers.iter().enumerate().flat_map(|(layer, names)| names.iter().map(move |name| (layer, *name)));
    let found = found.filter(|(_, name)| holds(name)).max_by_key(|(_, name)| name.len());
    found.unwrap_or_else(|| panic!("`{part}` belongs to no layer: add it to the layers of its crate")).0
}

/// Past the capture of the test harness, so that it is seen.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "layers: {line}");
}

/// Arrows that lead to a higher layer, and how many there are in all. The root of a crate only declares.
fn up(layers: Layers, imports: &Imports, arrows: &[Arrows]) -> (Vec<(usize, usize)>, usize) {
    let all = arrows.iter().enumerate().flat_map(|(from, targets)| targets.keys().map(move |&to| (from, to)));
    let is_root = |file: &Path| file == Path::new("lib.rs") || file == Path::new("main.rs");
    let all: Vec<_> = all.filter(|&(from, _)| !is_root(&imports.files[from])).collect();
    let layer = |file: usize| layer_of(layers, &imports.files[file]);
    (all.iter().copied().filter(|&(from, to)| layer(to) > layer(from)).collect(), all.len())
}

#[test]
fn imports_point_down() {
    for (name, layers) in CRATES {
        let imports = Imports::of(&source_of(name));
        let (up, arrows) = up(layers, &imports, &imports.arrows);
        say(&format!("{name}: {} of {arrows} arrows point up", up.len()));
        let up: Vec<String> = up.into_iter().map(|(from, to)| imports.arrow(from, to)).collect();
        assert!(up.is_empty(), "these point up: {up:#?}");
    }
}

#[test]
fn calls_of_methods_point_down() {
    let mut all_calls = 0;
    for (name, layers) in CRATES_OF_CALLS {
        let imports = Imports::of(&source_of(name));
        let (up, calls) = up(layers, &imports, &imports.calls);
        all_calls += calls;
        say(&format!("{name}: {} of {calls} calls of methods point up", up.len()));
        let up: Vec<String> = up.into_iter().map(|(from, to)| imports.arrow(from, to)).collect();
        assert!(up.is_empty(), "methods that stand higher are called: {up:#?}");

        let mut both = imports;
        for (arrows, calls) in both.arrows.iter_mut().zip(std::mem::take(&mut both.calls)) {
            for (to, methods) in calls {
                arrows.entry(to).or_default().extend(methods);
            }
        }
        let circles = circles(&both);
        let sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
        say(&format!("{name}: circles with calls of methods of {sizes:?} files"));
        let large = circles.iter().filter(|circle| circle.len() > CIRCLE_FILES_MAX);
        let arrows: Vec<String> = large.flat_map(|circle| both.arrows_within(circle)).collect();
        assert!(
            arrows.is_empty(),
            "circles of {name} with more than {CIRCLE_FILES_MAX} files, with calls of methods: {arrows:#?}"
        );
    }
    assert!(all_calls > 100, "only {all_calls} calls were found");
}

#[test]
fn circles_of_files_are_small() {
    for (name, _) in CRATES {
        let imports = Imports::of(&source_of(name));
        let circles = circles(&imports);
        let sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
        say(&format!("{name}: {} files, circles of {sizes:?} files", imports.files.len()));
        let large = circles.iter().filter(|circle| circle.len() > CIRCLE_FILES_MAX);
        let arrows: Vec<String> = large.flat_map(|circle| imports.arrows_within(circle)).collect();
        assert!(arrows.is_empty(), "circles of {name} with more than {CIRCLE_FILES_MAX} files: {arrows:#?}");
    }
}

#[test]
fn files_and_folders_are_small() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = std::fs::read_dir(workspace.join("crates")).unwrap();
    let mut files = vec![];
    for folder in crates.map(|entry| entry.unwrap().path().join("src")).chain([workspace.join("kernels")]) {
        source_files(&folder, &EXTENSIONS, &mut files);
    }
    assert!(files.len() > 400, "only {} files were found", files.len());
    let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
    for file in &files {
        *folders.entry(file.parent().unwrap()).or_default() += 1;
    }
    let full: Vec<_> = folders.into_iter().filter(|&(_, files)| files > FOLDER_FILES_MAX).collect();
    assert!(full.is_empty(), "folders of more than {FOLDER_FILES_MAX} source files: {full:#?}");
    let lines = |file: &Path| std::fs::read_to_string(file).unwrap().lines().count();
    let sizes = files.iter().map(|file| (file, lines(file)));
    let long: Vec<_> = sizes.filter(|&(_, lines)| lines > FILE_LINES_MAX).collect();
    assert!(long.is_empty(), "source files of more than {FILE_LINES_MAX} lines: {long:#?}");
}

#[test]
fn paths_are_resolved() {
    let crates: BTreeMap<&str, Imports> =
        CRATES_OF_CALLS.iter().map(|&(name, _)| (name, Imports::of(&source_of(name)))).collect();
    let arrows: usize = crates.values().flat_map(|imports| &imports.arrows).map(|targets| targets.len()).sum();
    assert!(arrows > 1000, "only {arrows} arrows were found");
    let found = |of: &str, from: &str, to: &str, is_call: bool| {
        let imports = &crates[of];
        let file = |path: &str| imports.files.iter().position(|file| file == Path::new(path)).unwrap();
        let arrows = if is_call { &imports.calls } else { &imports.arrows };
        arrows[file(from)].get(&file(to)).cloned().unwrap_or_default()
    };
    let names = |of: &str, from: &str, to: &str| found(of, from, to, false);
    // Through the root, through a facade, through `super`, and in a macro that another file defines.
    assert!(names("warpjoin", "exec/query.rs", "runtime/session.rs").contains("Session"));
    assert!(names("warpjoin-plan", "optimize/share.rs", "plan.rs").contains("Plan"));
    assert!(names("warpjoin-codegen", "fixed/table.rs", "constants.rs").contains("Constants"));
    assert!(names("warpjoin-plan", "plan/identity.rs", "plan/aggregate/mod.rs").contains("AggregateCall"));
    assert!(names("warpjoin-columns", "identity/expr.rs", "identity/mod.rs").contains("identify_fields"));
    let calls = |of: &str, from: &str, to: &str| found(of, from, to, true);
    assert!(calls("warpjoin", "exec/execution.rs", "exec/sort/order.rs").contains("sort"), "by `self`");
    let by_parameter = calls("warpjoin", "exec/entry_kernels.rs", "exec/query/compile.rs");
    assert!(by_parameter.contains("compile_some"), "by a parameter");
    // What a facade re-exports.
    assert!(names("warpjoin-columns", "table/mod.rs", "table/resident.rs").contains("Table"));
}
