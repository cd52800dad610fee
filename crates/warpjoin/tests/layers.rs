//! Imports point down: each part of a crate uses parts of its own layer and of those below, as ARCHITECTURE.md lists them.
//! And circles of files that import each other are small.
//!
//! An arrow leads from a file to the file that defines what it names, through `super`, `use` and what facades re-export. What a
//! facade re-exports is an arrow of its own. Calls of methods are no arrows: they name no path.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod layers_common;

use std::io::Write;
use std::path::{Path, PathBuf};

use layers_common::Imports;
use layers_common::circles::circles;

/// Layers of a crate, lowest first: files and folders. The longest one that a path begins with counts.
type Layers = &'static [&'static [&'static str]];

const WARPJOIN: Layers = &[
    &["error", "hash"],
    &["column"],
    &["devices"],
    &["expr", "function", "identity", "string_test"],
    &["table"],
    &["plan", "window", "options"],
    &["optimize"],
    &["codegen"],
    &["runtime"],
    &["exec"],
    &["hash_table", "operators"],
];

/// Most files that import each other in a circle.
const CIRCLE_FILES_MAX: usize = 27;

/// Folder of the sources of a crate of the workspace.
fn source_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

/// A path without `.rs`, and without `/mod` of a folder's own file.
fn part(file: &Path) -> String {
    let path = file.with_extension("").to_string_lossy().into_owned();
    path.strip_suffix("/mod").map(String::from).unwrap_or(path)
}

fn layer_of(layers: Layers, file: &Path) -> usize {
    let part = part(file);
    let holds = |name: &str| part.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let found = layers.iter().enumerate().flat_map(|(layer, names)| names.iter().map(move |name| (layer, *name)));
    let found = found.filter(|(_, name)| holds(name)).max_by_key(|(_, name)| name.len());
    found.unwrap_or_else(|| panic!("`{part}` belongs to no layer: add it to the layers of its crate")).0
}

/// Past the capture of the test harness, so that it is seen.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "layers: {line}");
}

#[test]
fn imports_point_down() {
    for (name, layers) in [("warpjoin", WARPJOIN)] {
        let imports = Imports::of(&source_of(name));
        let (mut up, mut arrows) = (vec![], 0);
        for (from, targets) in imports.arrows.iter().enumerate() {
            let from = &imports.files[from];
            // The root only declares.
            if part(from) == "lib" {
                continue;
            }
            for (&to, names) in targets {
                arrows += 1;
                let to = &imports.files[to];
                if layer_of(layers, to) > layer_of(layers, from) {
                    up.push(format!("{} -> {}: {names:?}", from.display(), to.display()));
                }
            }
        }
        say(&format!("{name}: {} of {arrows} arrows point up", up.len()));
        assert!(up.is_empty(), "these point up: {up:#?}");
    }
}

#[test]
fn circles_of_files_are_small() {
    for name in ["warpjoin", "warpjoin-device", "warpjoin-datafusion", "warpjoin-cli"] {
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
fn paths_are_resolved() {
    let imports = Imports::of(&source_of("warpjoin"));
    let file = |path: &str| imports.files.iter().position(|file| file == Path::new(path)).unwrap();
    let names = |from: &str, to: &str| imports.arrows[file(from)].get(&file(to)).cloned().unwrap_or_default();
    let arrows: usize = imports.arrows.iter().map(|targets| targets.len()).sum();
    assert!(arrows > 1000, "only {arrows} arrows were found");
    // Through the root, through a facade, through `super`, and in a macro that another file defines.
    assert!(names("exec/query.rs", "table/resident.rs").contains("Table"));
    assert!(names("exec/query.rs", "plan.rs").contains("Plan"));
    assert!(names("codegen/fixed/table.rs", "codegen/constants.rs").contains("Constants"));
    assert!(names("plan/identity.rs", "plan/aggregate/mod.rs").contains("AggregateCall"));
    assert!(names("plan/identity.rs", "identity/mod.rs").contains("identify_fields"));
    // What a facade re-exports.
    assert!(names("table/mod.rs", "table/resident.rs").contains("Table"));
}
