//! Dictionaries that tables have, so that what is made of their strings goes with the last of those tables.
//!
//! Knows dictionaries by their address, which is theirs as long as somebody keeps them. Must not know what is made of them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which dictionaries tables have. Tables tell when they come and go.
#[derive(Default)]
pub(crate) struct DictionaryOwners(Mutex<Owners>);

#[derive(Default)]
struct Owners {
    /// Columns of tables by the address of their dictionary.
    columns: HashMap<usize, usize>,
    /// Dictionaries that no table has any more, since this was last asked for.
    gone: HashSet<usize>,
}

impl DictionaryOwners {
    /// A table has columns with these dictionaries from now on.
    pub(crate) fn add(&self, addresses: impl IntoIterator<Item = usize>) {
        let mut owners = self.locked();
        for address in addresses {
            *owners.columns.entry(address).or_default() += 1;
        }
    }

    /// A table with such columns goes.
    pub(crate) fn remove(&self, addresses: impl IntoIterator<Item = usize>) {
        let Owners { columns, gone } = &mut *self.locked();
        for address in addresses {
            let Some(left) = columns.get_mut(&address) else { continue };
            *left -= 1;
            if *left == 0 {
                columns.remove(&address);
                gone.insert(address);
            }
        }
    }

    /// Whether tables have all of these dictionaries.
    pub(crate) fn have_all(&self, addresses: &[usize]) -> bool {
        let owners = self.locked();
        addresses.iter().all(|address| owners.columns.contains_key(address))
    }

    /// Dictionaries that went since this was last asked for.
    pub(crate) fn take_gone(&self) -> HashSet<usize> {
        std::mem::take(&mut self.locked().gone)
    }

    /// Whether a table has any.
    #[cfg(test)]
    pub(crate) fn is_owned(&self) -> bool {
        !self.locked().columns.is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, Owners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
