//! What a pipeline reads by a row's place in it.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use warpjoin_columns::column::{ColumnStatistics, Dictionary, EncodedColumn};
use warpjoin_columns::string_test::TestProgram;

/// What a pipeline reads by code.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// Made on the host.
    Column(Arc<LookupColumn>),
    /// One byte a value, made on the devices.
    Test(DictionaryTest),
}

/// A column that was made on the host, and what others keep as long as it lives.
#[derive(Debug)]
pub struct LookupColumn {
    encoded: EncodedColumn,
    attached: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl LookupColumn {
    pub(crate) fn new(encoded: EncodedColumn) -> Self {
        Self { encoded, attached: OnceLock::new() }
    }

    /// The column.
    pub fn encoded(&self) -> &EncodedColumn {
        &self.encoded
    }

    /// What was attached, if it is a `T`.
    pub fn attached<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(self.attached.get()?).downcast().ok()
    }

    /// The same; a default one is attached if nothing is.
    pub fn attached_or_default<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let attached = self.attached.get_or_init(|| Arc::<T>::default());
        Arc::clone(attached).downcast().unwrap_or_default()
    }
}

/// A test of all values of a dictionary.
#[derive(Debug, Clone)]
pub struct DictionaryTest {
    pub dictionary: Arc<Dictionary>,
    pub program: Arc<TestProgram>,
}

/// Statistics of a column of which nobody asks for any.
pub(crate) fn plain_statistics() -> ColumnStatistics {
    ColumnStatistics { null_count: 0, distinct: None, sorted: false, unique: None }
}
