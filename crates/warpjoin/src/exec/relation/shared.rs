//! Rows that several pipelines read, or another plan.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpjoin_columns::devices::DeviceSet;
use warpjoin_plan::plan::{Share, SharedRowsId};

use super::Relation;

/// Rows that one plan leaves on its devices for a later plan of the same query on the same devices. Reading removes
/// them. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct SharedRows(Arc<Mutex<HashMap<SharedRowsId, LeftRows>>>);

#[derive(Debug)]
struct LeftRows {
    devices: Arc<DeviceSet>,
    rows: Relation,
}

impl SharedRows {
    /// Leaves rows on devices.
    pub(in crate::exec) fn leave(&self, name: SharedRowsId, devices: &Arc<DeviceSet>, rows: Relation) {
        self.locked().insert(name, LeftRows { devices: Arc::clone(devices), rows });
    }

    /// Takes the rows that were left on these devices.
    pub(in crate::exec) fn take(&self, name: SharedRowsId, devices: &Arc<DeviceSet>) -> Option<Relation> {
        let mut left = self.locked();
        left.get(&name).filter(|left| Arc::ptr_eq(&left.devices, devices))?;
        left.remove(&name).map(|left| left.rows)
    }

    /// The devices on which rows were left.
    pub(in crate::exec) fn devices(&self) -> Option<Arc<DeviceSet>> {
        self.locked().values().next().map(|left| Arc::clone(&left.devices))
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<SharedRowsId, LeftRows>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows that several pipelines read.
#[derive(Default)]
pub(crate) struct SharedRelations {
    /// By their mark.
    pub marked: HashMap<Share, Relation>,
}
