//! What a pipeline reads by a row's place in it.

use std::sync::Arc;

use crate::column::{ColumnStatistics, Dictionary, EncodedColumn};
use crate::string_test::TestProgram;

/// What a pipeline reads by code.
#[derive(Debug, Clone)]
pub(crate) enum Lookup {
    /// Made on the host.
    Column(Arc<EncodedColumn>),
    /// One byte a value, made on the devices.
    Test(DictionaryTest),
}

/// A test of all values of a dictionary.
#[derive(Debug, Clone)]
pub(crate) struct DictionaryTest {
    pub dictionary: Arc<Dictionary>,
    pub program: Arc<TestProgram>,
}

/// Statistics of a column of which nobody asks for any.
pub(in crate::codegen) fn plain_statistics() -> ColumnStatistics {
    ColumnStatistics { null_count: 0, distinct: None, sorted: false, unique: None }
}
