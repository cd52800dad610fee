//! The imports of a crate, file by file.
//!
//! Owns how paths are resolved: through `super`, through `use`, and through what facades re-export, to the file that defines
//! what is named. Must not know which imports are allowed.

mod calls;
pub(crate) mod circles;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, Item, UseTree};

use calls::{Calls, Methods};
use paths::Paths;

/// Most steps of one resolution: names may refer to each other.
const STEPS_MAX: usize = 32;

/// Path of a module from the root of its crate, such as `["exec", "query"]`.
pub(crate) type Module = Vec<String>;

/// What a module declares.
#[derive(Default)]
struct Names {
    file: usize,
    /// Defined here, modules left out.
    items: BTreeSet<String>,
    /// Imported or re-exported: the name here, and the path as written.
    uses: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// Files of a crate, and which of them name what another defines.
pub(crate) struct Imports {
    /// Relative to `src`.
    pub(crate) files: Vec<PathBuf>,
    /// By file, in the order of `files`: the files whose items it names, and which items.
    pub(crate) arrows: Vec<Arrows>,
    /// By file: the files with methods that it calls of a type that is defined elsewhere, and which methods.
    pub(crate) calls: Vec<Arrows>,
}

/// Files that an arrow leads to, and what is named or called there.
pub(crate) type Arrows = BTreeMap<usize, BTreeSet<String>>;

/// Where a path leads.
enum Target {
    Module(Module),
    Item { file: usize, name: String },
}

struct Tree(BTreeMap<Module, Names>);

impl Imports {
    /// Those of the crate whose sources are in `source`. Tests are left out.
    pub(crate) fn of(source: &Path) -> Self {
        let mut files = vec![];
        source_files(source, &["rs"], &mut files);
        files.sort();
        let parsed: Vec<syn::File> = files.iter().map(|path| parsed(path)).collect();
        let files: Vec<PathBuf> = files.iter().map(|path| path.strip_prefix(source).unwrap().to_path_buf()).collect();
        let mut tree = Tree(BTreeMap::new());
        for (file, content) in parsed.iter().enumerate() {
            tree.declare(&module_of(&files[file]), file, &content.items);
        }
        let mut methods = Methods::default();
        for (file, content) in parsed.iter().enumerate() {
            methods.add(&tree, &module_of(&files[file]), file, &content.items);
        }
        let (mut arrows, mut calls) = (vec![], vec![]);
        for (file, content) in parsed.iter().enumerate() {
            let module = module_of(&files[file]);
            let mut paths = Paths::of(module.clone());
            paths.visit_file(content);
            let mut named = Arrows::new();
            for (module, path) in paths.found {
                if let Some(Target::Item { file: to, name }) = tree.resolve(&module, &path, STEPS_MAX)
                    && to != file
                {
                    named.entry(to).or_default().insert(name);
                }
            }
            arrows.push(named);
            let mut found = Calls::of(&tree, &methods, module, file);
            found.visit_file(content);
            let mut called = Arrows::new();
            for (to, method) in found.found {
                called.entry(to).or_default().insert(method);
            }
            calls.push(called);
        }
        Self { files, arrows, calls }
    }

    /// Arrows between some of the files, in words.
    pub(crate) fn arrows_within<'a>(&'a self, files: &'a [usize]) -> impl Iterator<Item = String> + 'a {
        files.iter().flat_map(move |&from| {
            let targets = self.arrows[from].keys().filter(|to| files.contains(to));
            targets.map(move |&to| self.arrow(from, to))
        })
    }

    /// An arrow in words.
    pub(crate) fn arrow(&self, from: usize, to: usize) -> String {
        let names = self.arrows[from].get(&to).cloned().unwrap_or_default();
        format!("{} -> {}: {names:?}", self.files[from].display(), self.files[to].display())
    }
}

impl Tree {
    fn declare(&mut self, module: &Module, file: usize, items: &[Item]) {
        let mut names = Names { file, ..Names::default() };
        for item in items {
            match item {
                Item::Use(item) => add_uses(&item.tree, &mut vec![], &mut names),
                Item::Mod(item) if is_test(&item.attrs) => {}
                Item::Mod(item) => {
                    if let Some((_, items)) = &item.content {
                        let inner = [module.as_slice(), &[item.ident.to_string()]].concat();
                        self.declare(&inner, file, items);
                    }
                }
                _ => names.items.extend(name_of(item)),
            }
        }
        self.0.insert(module.clone(), names);
    }

    /// Where a path leads that is written in `module`; `None` for what other crates define.
    fn resolve(&self, module: &Module, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(vec![]),
            "self" => Target::Module(module.clone()),
            "super" => Target::Module(module.split_last()?.1.to_vec()),
            name => self.lookup(module, name, steps)?,
        };
        for name in rest {
            target = match target {
                Target::Module(module) if name == "super" => Target::Module(module.split_last()?.1.to_vec()),
                Target::Module(module) if name == "self" => Target::Module(module),
                Target::Module(module) => self.lookup(&module, name, steps)?,
                // A variant or a function of a type.
                item @ Target::Item { .. } => return Some(item),
            };
        }
        Some(target)
    }

    /// What a name means in a module.
    fn lookup(&self, module: &Module, name: &str, steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let names = self.0.get(module)?;
        let child = [module.as_slice(), &[name.to_string()]].concat();
        if self.0.contains_key(&child) {
            return Some(Target::Module(child));
        }
        if names.items.contains(name) {
            return Some(Target::Item { file: names.file, name: name.to_string() });
        }
        if let Some(path) = names.uses.get(name) {
            return self.resolve(module, path, steps);
        }
        names.globs.iter().find_map(|path| match self.resolve(module, path, steps)? {
            Target::Module(other) if other != *module => self.lookup(&other, name, steps),
            _ => None,
        })
    }
}

/// A `use` of `["a", "b"]` makes `b` a name.
fn add_uses(tree: &UseTree, before: &mut Vec<String>, names: &mut Names) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            add_uses(&path.tree, before, names);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_uses(tree, before, names)),
        UseTree::Name(name) if name.ident == "self" => {
            if let Some(last) = before.last() {
                names.uses.insert(last.clone(), before.clone());
            }
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            names.uses.insert(name.clone(), [before.as_slice(), &[name]].concat());
        }
        UseTree::Rename(name) => {
            let path = [before.as_slice(), &[name.ident.to_string()]].concat();
            names.uses.insert(name.rename.to_string(), path);
        }
        UseTree::Glob(_) => names.globs.push(before.clone()),
    }
}

fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::TraitAlias(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// Whether `#[cfg(test)]`, alone or with others, stands before an item.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        paths::idents(list.tokens.clone()).iter().any(|ident| ident == "test")
    })
}

fn parsed(path: &Path) -> syn::File {
    syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// All source files of a folder, by the extensions of their names, but those of tests.
pub(crate) fn source_files(folder: &Path, extensions: &[&str], files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if matches!(stem.as_str(), "tests" | "schedules") {
            continue;
        }
        if path.is_dir() {
            source_files(&path, extensions, files);
        } else if path.extension().is_some_and(|own| extensions.iter().any(|known| own == *known)) {
            files.push(path);
        }
    }
}

/// Of a file below `src`: its module, such as `["exec", "query"]` for `exec/query.rs`.
pub(crate) fn module_of(file: &Path) -> Module {
    let mut names: Vec<String> =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.pop_if(|name| name == "mod" || name == "lib" || name == "main");
    names
}
