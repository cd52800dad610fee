//! Paths that a file names, as they are written.

use syn::visit::{self, Visit};
use syn::{ItemMod, UseTree};

use super::{Module, is_test};

/// The paths of a file outside tests, those in macros among them.
pub(crate) struct Paths {
    module: Module,
    /// Each with the module in which it stands.
    pub(crate) found: Vec<(Module, Vec<String>)>,
}

impl Paths {
    /// Of a file of `module`: none yet.
    pub(crate) fn of(module: Module) -> Self {
        Self { module, found: vec![] }
    }

    fn add(&mut self, path: Vec<String>) {
        self.found.push((self.module.clone(), path));
    }

    fn add_tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, before)),
            UseTree::Name(name) => self.add([before.as_slice(), &[name.ident.to_string()]].concat()),
            UseTree::Rename(name) => self.add([before.as_slice(), &[name.ident.to_string()]].concat()),
            // What is taken by it is named where it is used.
            UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, &mut vec![]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        for path in paths_of(called.tokens.clone()) {
            self.add(path);
        }
        visit::visit_macro(self, called);
    }

    /// Tests may use what they like. A module in a file is one deeper.
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }
}

/// Names with `::` between them, in what a macro is given.
fn paths_of(tokens: proc_macro2::TokenStream) -> Vec<Vec<String>> {
    let (mut paths, mut path, mut colons) = (vec![], vec![], 0);
    for token in tokens {
        match token {
            proc_macro2::TokenTree::Ident(ident) => {
                if colons != 2 {
                    paths.push(std::mem::take(&mut path));
                }
                path.push(ident.to_string());
                colons = 0;
            }
            proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            proc_macro2::TokenTree::Group(group) => {
                paths.push(std::mem::take(&mut path));
                paths.extend(paths_of(group.stream()));
                colons = 0;
            }
            _ => {
                paths.push(std::mem::take(&mut path));
                colons = 0;
            }
        }
    }
    paths.push(path);
    paths.retain(|path| !path.is_empty());
    paths
}

/// All names in what an attribute is given.
pub(crate) fn idents(tokens: proc_macro2::TokenStream) -> Vec<String> {
    paths_of(tokens).concat()
}
