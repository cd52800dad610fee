//! Imports point down: each part of the crate uses parts of its own layer and of those below, as ARCHITECTURE.md lists them.
//!
//! Paths are resolved, those through `super` and through what `lib.rs` re-exports among them. Arrows that still point up stand in
//! `layers_up.txt`, and no others may: a line that is no longer true has to go. `WARPJOIN_LAYERS=write` writes the file anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Item, ItemMod, UseTree};

/// Lowest first: what a part of the crate may use stands on its own line or on one before.
const LAYERS: [&[&str]; 7] = [
    &["error", "hash"],
    &["column"],
    &["expr", "function", "identity", "optimize", "options", "plan", "string_test", "window"],
    &["codegen"],
    &["runtime"],
    &["exec", "hash_table"],
    &["operators"],
];

fn layer_of(part: &str) -> usize {
    let found = LAYERS.iter().position(|parts| parts.contains(&part));
    found.unwrap_or_else(|| panic!("`{part}` belongs to no layer: add it to LAYERS"))
}

/// Paths of a file from the root of the crate, such as `["exec", "query"]`.
struct Paths<'a> {
    /// Of the file's own module.
    module: Vec<String>,
    re_exports: &'a BTreeMap<String, String>,
    parts: BTreeSet<String>,
}

impl Paths<'_> {
    fn add(&mut self, names: &[String]) {
        let [first, rest @ ..] = names else { return };
        let supers = names.iter().take_while(|name| *name == "super").count();
        let from_root: Vec<String> = match first.as_str() {
            "crate" => rest.to_vec(),
            "super" if supers <= self.module.len() => {
                [&self.module[..self.module.len() - supers], &names[supers..]].concat()
            }
            _ => return,
        };
        let Some(part) = from_root.first() else { return };
        self.parts.insert(self.re_exports.get(part).unwrap_or(part).clone());
    }

    fn add_tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, before)),
            UseTree::Name(name) => self.add(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => self.add(&[before.as_slice(), &[name.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.add(before),
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, &mut vec![]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&names);
        visit::visit_path(self, path);
    }

    /// Tests may use what they like. A module in a file is one deeper.
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let is_test = item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg"));
        if !is_test {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }
}

/// Names that the root of the crate re-exports, and the part that each is of.
fn re_exports(root: &syn::File) -> BTreeMap<String, String> {
    fn collect(tree: &UseTree, part: Option<&str>, names: &mut BTreeMap<String, String>) {
        match tree {
            UseTree::Path(path) => collect(&path.tree, Some(part.unwrap_or(&path.ident.to_string())), names),
            UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, part, names)),
            UseTree::Name(name) => drop(names.insert(name.ident.to_string(), part.unwrap_or_default().to_string())),
            UseTree::Rename(name) => drop(names.insert(name.rename.to_string(), part.unwrap_or_default().to_string())),
            UseTree::Glob(_) => {}
        }
    }
    let mut names = BTreeMap::new();
    for item in &root.items {
        if let Item::Use(item) = item {
            collect(&item.tree, None, &mut names);
        }
    }
    // What comes from other crates is of no part.
    names.retain(|_, part| LAYERS.iter().any(|parts| parts.contains(&part.as_str())));
    names
}

fn parsed(path: &Path) -> syn::File {
    syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Of a file below `src`: its module, such as `["exec", "query"]` for `exec/query.rs`.
fn module_of(file: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.pop_if(|name| name == "mod");
    names
}

#[test]
fn imports_point_down() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = crate_folder.join("src");
    let re_exports = re_exports(&parsed(&source.join("lib.rs")));
    assert_eq!(re_exports.get("Table").map(String::as_str), Some("runtime"), "re-exports are read");
    let mut files = vec![];
    rust_files(&source, &mut files);
    let (mut up, mut arrows) = (BTreeSet::new(), 0);
    for path in files {
        let file = path.strip_prefix(&source).unwrap();
        let module = module_of(file);
        // The root only declares, and tests may use what they like.
        if matches!(module.last().map(String::as_str), Some("lib" | "tests" | "schedules")) {
            continue;
        }
        let own = module[0].clone();
        let mut paths = Paths { module, re_exports: &re_exports, parts: BTreeSet::new() };
        paths.visit_file(&parsed(&path));
        for part in paths.parts.into_iter().filter(|part| *part != own && part != "Cause") {
            arrows += 1;
            if layer_of(&part) > layer_of(&own) {
                up.insert(format!("{} -> {part}", file.display()));
            }
        }
    }
    assert!(arrows > 100, "only {arrows} arrows were found");
    let list = crate_folder.join("tests/layers_up.txt");
    if std::env::var("WARPJOIN_LAYERS").is_ok_and(|value| value == "write") {
        std::fs::write(&list, up.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }
    let known: BTreeSet<String> = std::fs::read_to_string(&list).unwrap().lines().map(String::from).collect();
    // Past the capture of the test harness, so that it is seen.
    let _ = writeln!(std::io::stderr(), "layers: {} of {arrows} arrows point up", up.len());
    let new: Vec<_> = up.difference(&known).collect();
    let gone: Vec<_> = known.difference(&up).collect();
    assert!(new.is_empty(), "these point up: {new:#?}");
    assert!(gone.is_empty(), "these no longer point up, take them off layers_up.txt: {gone:#?}");
}
