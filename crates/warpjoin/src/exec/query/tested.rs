//! Results of a query's string tests on large dictionaries.

use std::collections::HashMap;
use std::sync::Arc;

use warpjoin_columns::column::Dictionary;
use warpjoin_columns::string_test::TestProgram;
use warpjoin_device::Buffer;

use crate::runtime::device_strings::UsedStrings;

/// Results of tests that a query has run.
#[derive(Default)]
pub(in crate::exec) struct TestResults {
    /// By address of the dictionary, which `kept` keeps alive: the results on each device.
    pub of: HashMap<(usize, Arc<TestProgram>), Vec<Arc<Buffer>>>,
    pub kept: Vec<(Arc<Dictionary>, Option<UsedStrings>)>,
}
