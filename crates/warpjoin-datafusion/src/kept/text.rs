//! The meaning of the names in a query text when it was planned.

use std::sync::{Arc, Weak};

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};

/// The tables and functions that a text names. Equal if the tables are.
#[derive(Debug)]
pub(crate) struct Names {
    /// Held weakly: a table that is dropped frees its memory.
    pub(crate) tables: Vec<(TableReference, Weak<dyn TableProvider>)>,
    pub(crate) functions: Vec<Functions>,
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        let tables = self.tables.iter().zip(&other.tables);
        self.tables.len() == other.tables.len() && tables.into_iter().all(|(one, other)| one.1.ptr_eq(&other.1))
    }
}

/// The functions of one name.
#[derive(Debug)]
pub(crate) struct Functions {
    name: String,
    scalar: Option<Arc<ScalarUDF>>,
    aggregate: Option<Arc<AggregateUDF>>,
    window: Option<Arc<WindowUDF>>,
}

impl Functions {
    /// The functions that `session` has of this name.
    pub(crate) fn named(name: &str, session: &SessionState) -> Self {
        Self {
            name: name.to_string(),
            scalar: session.scalar_functions().get(name).cloned(),
            aggregate: session.aggregate_functions().get(name).cloned(),
            window: session.window_functions().get(name).cloned(),
        }
    }

    /// Whether the name means the same in `session`.
    pub(crate) fn are_of(&self, session: &SessionState) -> bool {
        is_same(self.scalar.as_ref(), session.scalar_functions().get(&self.name))
            && is_same(self.aggregate.as_ref(), session.aggregate_functions().get(&self.name))
            && is_same(self.window.as_ref(), session.window_functions().get(&self.name))
    }
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
