//! When two expressions, calls, plan nodes or pipelines are the same.
//!
//! Owns the one definition of equality that sharing, remembering and deduplicating use: a part writes everything that it
//! consists of into an [`Identity`], and two parts are the same if their identities are equal. Structs are destructured
//! exhaustively, so that a new field does not compile until it is written. Must not know what the parts are used for.

mod expr;
#[cfg(test)]
mod tests;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::DataType;

use crate::column::{ColumnType, Dictionary, Domain};
use crate::expr::{DeferredScalar, HostFunction};

/// How long two parts must stay the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Within one run of one query: an object that several places refer to is the same for all of them, even if it may
    /// have another value in the next run (the result of a scalar subquery).
    Query,
    /// Across queries: deferred constants count by value, and host functions only where they say that they are the same.
    Session,
}

/// Everything that a part consists of. Equal identities belong to parts with the same rows, values or code.
///
/// Enum variants begin with their number, and lists begin with their length, so that no two different parts write the
/// same bytes.
#[derive(Debug)]
pub struct Identity {
    scope: Scope,
    bytes: Vec<u8>,
    /// In the order in which they were met: only they can tell whether they are the same.
    functions: Vec<Arc<dyn HostFunction>>,
    /// Kept alive, because `bytes` has their addresses.
    deferred: Vec<Arc<dyn DeferredScalar>>,
    /// Addresses that are part of `bytes`.
    dictionaries: Vec<usize>,
    /// A deferred constant has no value yet.
    is_open: bool,
}

/// A part that can tell what it consists of.
pub trait Identify {
    /// Writes all of it.
    fn identify(&self, identity: &mut Identity);
}

impl Identity {
    /// Nothing yet.
    pub fn new(scope: Scope) -> Self {
        Self { scope, bytes: vec![], functions: vec![], deferred: vec![], dictionaries: vec![], is_open: false }
    }

    /// The identity of a part within a query.
    pub fn in_query(part: &(impl Identify + ?Sized)) -> Self {
        let mut identity = Self::new(Scope::Query);
        part.identify(&mut identity);
        identity
    }

    /// The identity of a part across queries; `None` where the part depends on a value that is not known yet.
    pub fn in_session(part: &(impl Identify + ?Sized)) -> Option<Self> {
        let mut identity = Self::new(Scope::Session);
        part.identify(&mut identity);
        identity.closed()
    }

    /// The identity, unless it depends on a value that is not known yet.
    pub fn closed(self) -> Option<Self> {
        (!self.is_open).then_some(self)
    }

    /// Adds a part.
    #[must_use]
    pub fn with(mut self, part: &(impl Identify + ?Sized)) -> Self {
        part.identify(&mut self);
        self
    }

    /// Parts of equal bytes differ in host functions only.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Addresses of the dictionaries, each once. They tell dictionaries apart as long as those live.
    pub fn dictionaries(&self) -> &[usize] {
        &self.dictionaries
    }

    fn add_function(&mut self, function: &Arc<dyn HostFunction>) {
        self.functions.len().identify(self);
        self.functions.push(Arc::clone(function));
    }

    fn add_deferred(&mut self, deferred: &Arc<dyn DeferredScalar>) {
        match self.scope {
            Scope::Query => {
                let parameter = deferred.parameter();
                parameter.is_some().identify(self);
                parameter.unwrap_or([address(deferred), 0]).iter().for_each(|part| part.identify(self));
                self.deferred.push(Arc::clone(deferred));
            }
            Scope::Session => match deferred.value() {
                Ok(value) => value.identify(self),
                Err(_) => self.is_open = true,
            },
        }
    }
}

/// The address of an object, without the vtable, of which one type may have several.
pub fn address<T: ?Sized>(object: &Arc<T>) -> usize {
    Arc::as_ptr(object).cast::<()>().addr()
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(own, other): (&Arc<dyn HostFunction>, &Arc<dyn HostFunction>)| {
            (self.scope == Scope::Query && address(own) == address(other)) || own.is_same(other.as_ref())
        };
        self.scope == other.scope
            && !self.is_open
            && !other.is_open
            && self.bytes == other.bytes
            && self.functions.len() == other.functions.len()
            && self.functions.iter().zip(&other.functions).all(is_same)
    }
}

/// An identity within a query equals itself. One across queries with a function that is never the same does not, and is
/// then not found again in a map.
impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

/// Collects what is hashed in place of mixing it.
impl Hasher for Identity {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Parts that hash all that they are.
#[macro_export]
#[doc(hidden)]
macro_rules! identify_by_hash {
    ($($part:ty),* $(,)?) => { $(impl $crate::identity::Identify for $part {
        fn identify(&self, identity: &mut $crate::identity::Identity) {
            std::hash::Hash::hash(self, identity);
        }
    })* };
}
pub use identify_by_hash;

/// Structs, by all of their fields. Fields after `except` are left out, with the reason beside them.
#[macro_export]
#[doc(hidden)]
macro_rules! identify_fields {
    ($($part:ty { $($field:ident),* $(; except $($left_out:ident),*)? })*) => { $(impl $crate::identity::Identify for $part {
        fn identify(&self, identity: &mut $crate::identity::Identity) {
            let Self { $($field,)* $($($left_out: _,)*)? } = self;
            $($crate::identity::Identify::identify($field, identity);)*
        }
    })* };
}
pub use identify_fields;

/// For tests: the value, then copies of it with one field changed, for all of its fields. A new field does not compile until it is
/// named here.
#[macro_export]
#[doc(hidden)]
macro_rules! with_each_field_changed {
    ($value:expr, $part:ident { $($field:ident: $other:expr),* $(,)? }) => {{
        let value: $part = $value;
        let $part { $($field: _),* } = &value;
        vec![value.clone(), $($part { $field: $other, ..value.clone() }),*]
    }};
}
pub use with_each_field_changed;

/// Which one of several it is, and its parts.
pub fn one_of(identity: &mut Identity, number: u32, parts: &[&dyn Identify]) {
    number.identify(identity);
    parts.iter().for_each(|part| part.identify(identity));
}

identify_by_hash!(bool, u32, i128, i32, u64, usize, str, String, DataType, Domain);

identify_fields! {
    ColumnType { data_type, has_nulls, domain, dictionary }
}

impl<T: Identify> Identify for [T] {
    fn identify(&self, identity: &mut Identity) {
        self.len().identify(identity);
        self.iter().for_each(|part| part.identify(identity));
    }
}

impl<T: Identify> Identify for Vec<T> {
    fn identify(&self, identity: &mut Identity) {
        self.as_slice().identify(identity);
    }
}

impl<T: Identify> Identify for Option<T> {
    fn identify(&self, identity: &mut Identity) {
        self.is_some().identify(identity);
        self.iter().for_each(|part| part.identify(identity));
    }
}

impl<T: Identify + ?Sized> Identify for &T {
    fn identify(&self, identity: &mut Identity) {
        T::identify(self, identity);
    }
}

impl<T: Identify> Identify for Arc<T> {
    fn identify(&self, identity: &mut Identity) {
        T::identify(self, identity);
    }
}

impl<T: Identify> Identify for Box<T> {
    fn identify(&self, identity: &mut Identity) {
        T::identify(self, identity);
    }
}

impl<A: Identify, B: Identify> Identify for (A, B) {
    fn identify(&self, identity: &mut Identity) {
        let (a, b) = self;
        a.identify(identity);
        b.identify(identity);
    }
}

/// A dictionary is one object.
impl Identify for Dictionary {
    fn identify(&self, identity: &mut Identity) {
        let address = std::ptr::from_ref(self).addr();
        address.identify(identity);
        if !identity.dictionaries.contains(&address) {
            identity.dictionaries.push(address);
        }
    }
}
