//! What was made of large dictionaries, kept with them: results of functions, codes of other dictionaries.
//!
//! Tables live longer than queries, and most queries ask the same again.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::Result;
use crate::column::{Dictionary, EncodedColumn};
use crate::expr::HostFunction;

/// Distinct values from which on anything is remembered.
const VALUES_MIN: usize = 4096;
/// How much of one dictionary: what was asked for longest ago goes.
const COLUMNS_MAX: usize = 8;

/// How a column of one value a dictionary value was made.
#[derive(Debug)]
pub(in crate::codegen) enum Made {
    /// Results, with one more for null if there is one.
    ByFunction { function: Arc<dyn HostFunction>, has_null: bool },
    /// Codes of another dictionary.
    CodesOf(Weak<Dictionary>),
}

impl Made {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ByFunction { function, has_null }, Self::ByFunction { function: other, has_null: other_has }) => {
                has_null == other_has && function.is_same(other.as_ref())
            }
            // Of a dictionary that is gone nobody asks; while the weak one lives, its address is not another's.
            (Self::CodesOf(to), Self::CodesOf(other)) => to.ptr_eq(other),
            _ => false,
        }
    }

    /// Whether nobody can ask for it any more.
    fn is_stale(&self) -> bool {
        matches!(self, Self::CodesOf(to) if to.strong_count() == 0)
    }
}

#[derive(Debug, Default)]
struct Columns(Mutex<Vec<(Made, Arc<EncodedColumn>)>>);

/// Drops all columns that were remembered with a dictionary.
pub(crate) fn forget(dictionary: &Dictionary) {
    if let Some(columns) = dictionary.attached::<Columns>() {
        columns.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The column that `make` makes of `dictionary`, or made earlier.
pub(in crate::codegen) fn remembered(
    dictionary: &Dictionary,
    made: Made,
    make: impl FnOnce() -> Result<EncodedColumn>,
) -> Result<Arc<EncodedColumn>> {
    if dictionary.len() < VALUES_MIN {
        return make().map(Arc::new);
    }
    let columns = dictionary.attached_or_default::<Columns>();
    let locked = || columns.0.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut known = locked();
        known.retain(|(made, _)| !made.is_stale());
        if let Some(at) = known.iter().position(|(known, _)| known.is_same(&made)) {
            let latest = known.remove(at);
            let column = Arc::clone(&latest.1);
            known.push(latest);
            return Ok(column);
        }
    }
    // Not under the lock: it may take long, and others ask for other columns.
    let column = Arc::new(make()?);
    let mut known = locked();
    known.push((made, Arc::clone(&column)));
    let excess = known.len().saturating_sub(COLUMNS_MAX);
    known.drain(..excess);
    Ok(column)
}
