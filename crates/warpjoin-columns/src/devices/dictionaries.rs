//! Tracks the dictionaries of tables, so that data derived from their strings is dropped with the last of these tables.
//!
//! Identifies dictionaries by their address, which is unique while they are kept alive. Must not know the derived data:
//! its keepers are notified.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// Keeps what is made of dictionaries, as long as tables have them.
pub trait DictionaryKeeper: Send + Sync {
    /// No table has these dictionaries any more.
    fn forget(&self, addresses: &[usize]);
}

/// Which dictionaries tables have. Tables tell when they come and go.
#[derive(Default)]
pub struct DictionaryOwners(Mutex<Owners>);

#[derive(Default)]
struct Owners {
    /// Columns of tables by the address of their dictionary.
    columns: HashMap<usize, usize>,
    keepers: Vec<Weak<dyn DictionaryKeeper>>,
}

impl DictionaryOwners {
    /// Has a keeper told of dictionaries that go, as long as it lives.
    pub fn tell(&self, keeper: Weak<dyn DictionaryKeeper>) {
        self.locked().keepers.push(keeper);
    }

    /// A table has columns with these dictionaries from now on.
    pub fn add(&self, addresses: impl IntoIterator<Item = usize>) {
        let mut owners = self.locked();
        for address in addresses {
            *owners.columns.entry(address).or_default() += 1;
        }
    }

    /// A table with such columns goes.
    pub fn remove(&self, addresses: impl IntoIterator<Item = usize>) {
        let mut gone = vec![];
        let keepers = {
            let Owners { columns, keepers } = &mut *self.locked();
            for address in addresses {
                let Some(left) = columns.get_mut(&address) else { continue };
                *left -= 1;
                if *left == 0 {
                    columns.remove(&address);
                    gone.push(address);
                }
            }
            if gone.is_empty() {
                return;
            }
            keepers.clone()
        };
        // Not under the lock: a keeper takes its own, under which it asks for owners.
        keepers.iter().filter_map(Weak::upgrade).for_each(|keeper| keeper.forget(&gone));
    }

    /// Whether tables have all of these dictionaries.
    pub fn have_all(&self, addresses: &[usize]) -> bool {
        let owners = self.locked();
        addresses.iter().all(|address| owners.columns.contains_key(address))
    }

    /// Whether a table has any. For tests.
    pub fn is_owned(&self) -> bool {
        !self.locked().columns.is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, Owners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
