//! Calls of a type's methods that stand in another file than their caller: no import names that file.
//!
//! A call is seen where the receiver is `self`, a parameter whose type is written, or a variable that a function of the type has
//! made.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{FnArg, ImplItem, Item, ItemImpl, ItemMod, Pat, Signature, Type};

use super::{Module, Target, Tree, is_test};

/// A type, by its file and its name.
type Key = (usize, String);

/// Files of the methods of each type.
#[derive(Default)]
pub(super) struct Methods(BTreeMap<(Key, String), usize>);

impl Methods {
    /// Adds the methods that a file has.
    pub(super) fn add(&mut self, tree: &Tree, module: &Module, file: usize, items: &[Item]) {
        for item in items {
            let Item::Impl(item) = item else { continue };
            let Some(key) = type_of(tree, module, &item.self_ty).filter(|_| item.trait_.is_none()) else { continue };
            for method in &item.items {
                if let ImplItem::Fn(method) = method
                    && method.sig.receiver().is_some()
                {
                    self.0.insert((key.clone(), method.sig.ident.to_string()), file);
                }
            }
        }
    }
}

/// The type of the crate that is written, behind references and boxes.
fn type_of(tree: &Tree, module: &Module, written: &Type) -> Option<Key> {
    match written {
        Type::Reference(reference) => type_of(tree, module, &reference.elem),
        Type::Path(path) => {
            let names: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            match tree.resolve(module, &names, super::STEPS_MAX)? {
                Target::Item { file, name } => Some((file, name)),
                Target::Module(_) => None,
            }
        }
        _ => None,
    }
}

/// Finds the calls of a file.
pub(super) struct Calls<'a> {
    tree: &'a Tree,
    methods: &'a Methods,
    module: Module,
    file: usize,
    /// `self` and parameters, innermost function last.
    known: Vec<BTreeMap<String, Key>>,
    own: Option<Key>,
    /// Files and methods.
    pub(super) found: Vec<(usize, String)>,
}

impl<'a> Calls<'a> {
    pub(super) fn of(tree: &'a Tree, methods: &'a Methods, module: Module, file: usize) -> Self {
        Self { tree, methods, module, file, known: vec![], own: None, found: vec![] }
    }

    fn parameters(&self, signature: &Signature) -> BTreeMap<String, Key> {
        let mut known = BTreeMap::new();
        for argument in &signature.inputs {
            match argument {
                FnArg::Receiver(_) => {
                    known.extend(self.own.clone().map(|own| ("self".to_string(), own)));
                }
                FnArg::Typed(argument) => {
                    if let (Pat::Ident(name), Some(key)) =
                        (argument.pat.as_ref(), type_of(self.tree, &self.module, &argument.ty))
                    {
                        known.insert(name.ident.to_string(), key);
                    }
                }
            }
        }
        known
    }
}

impl Calls<'_> {
    /// The type of `Type::function(..)?`.
    fn made_by(&self, made: &syn::Expr) -> Option<Key> {
        match made {
            syn::Expr::Try(made) => self.made_by(&made.expr),
            syn::Expr::Call(call) => {
                let syn::Expr::Path(path) = call.func.as_ref() else { return None };
                let mut written = path.path.clone();
                written.segments.pop();
                // What is left ends without `::`.
                let segments = written.segments.into_iter().collect();
                let written = syn::Path { leading_colon: None, segments };
                let type_path = syn::TypePath { qself: None, path: written };
                (!type_path.path.segments.is_empty())
                    .then(|| type_of(self.tree, &self.module, &Type::Path(type_path)))
                    .flatten()
            }
            _ => None,
        }
    }
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let own = type_of(self.tree, &self.module, &item.self_ty);
        let before = std::mem::replace(&mut self.own, own);
        visit::visit_item_impl(self, item);
        self.own = before;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.known.push(self.parameters(&function.sig));
        visit::visit_impl_item_fn(self, function);
        self.known.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.known.push(self.parameters(&function.sig));
        visit::visit_item_fn(self, function);
        self.known.pop();
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let (Pat::Ident(name), Some(made)) = (&local.pat, &local.init)
            && let Some(key) = self.made_by(&made.expr)
            && let Some(known) = self.known.last_mut()
        {
            known.insert(name.ident.to_string(), key);
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let syn::Expr::Path(receiver) = call.receiver.as_ref()
            && let Some(name) = receiver.path.get_ident()
            && let Some(key) = self.known.last().and_then(|known| known.get(&name.to_string()))
        {
            let method = call.method.to_string();
            let file = self.methods.0.get(&(key.clone(), method.clone()));
            self.found.extend(file.filter(|&&file| file != self.file).map(|&file| (file, method)));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }
}
