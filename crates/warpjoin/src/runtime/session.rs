//! The session: the devices that queries run on, and state that queries leave for later ones.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use warpjoin_codegen::{FixedModule, USUAL_HASH_BITS, interpreters, prebuilt};
use warpjoin_columns::devices::{DeviceSet, MemoryBudget};
use warpjoin_columns::{Result, Table};
use warpjoin_device::{Device, DeviceKind, Kernel, Stream};
use warpjoin_plan::optimize::Orders;
use warpjoin_plan::plan::Plan;

use crate::runtime::dictionary_cache::DictionaryCache;
use crate::runtime::lookup_copies::LookupCopies;
use crate::runtime::pipelines::Pipelines;

/// Devices of one kind that hold tables and run queries ([`DeviceSet`]), and state that queries leave for later ones:
/// join orders, generated pipelines, kernels of hash tables.
pub struct Session {
    devices: Arc<DeviceSet>,
    /// Entries of hand-written modules, on the one device of a session that has hash tables.
    kernels: Mutex<HashMap<(FixedModule, &'static str), Kernel>>,
    orders: Orders,
    pipelines: Arc<Pipelines>,
    dictionary_cache: Arc<DictionaryCache>,
    lookup_copies: Arc<LookupCopies>,
    /// With several devices: a session for each one alone, made on first use.
    members: Vec<OnceLock<Arc<Self>>>,
}

impl Session {
    /// Maximum devices of a session, all on one host.
    pub const DEVICES_MAX: usize = warpjoin_device::DEVICES_MAX;

    /// Opens a session on `devices` (1 to [`Self::DEVICES_MAX`] of one kind), and peer access between all that have it.
    ///
    /// # Errors
    /// When there is no device, they are of different kinds, or opening access fails.
    pub fn new(devices: Vec<Device>) -> Result<Arc<Self>> {
        let devices = DeviceSet::new(devices)?;
        let (dictionary_cache, lookup_copies) =
            (Arc::new(DictionaryCache::default()), Arc::new(LookupCopies::default()));
        for device in devices.devices() {
            let cache: Weak<DictionaryCache> = Arc::downgrade(&dictionary_cache);
            device.memory().add_cache(cache);
            let copies: Weak<LookupCopies> = Arc::downgrade(&lookup_copies);
            device.memory().add_cache(copies);
        }
        if devices.kind() == DeviceKind::Cuda {
            prepare(&devices);
        }
        Ok(Arc::new(Self::on(devices, dictionary_cache, lookup_copies)))
    }

    fn on(devices: Arc<DeviceSet>, dictionary_cache: Arc<DictionaryCache>, lookup_copies: Arc<LookupCopies>) -> Self {
        let members = if devices.devices().len() > 1 { devices.devices().len() } else { 0 };
        Self {
            dictionary_cache,
            lookup_copies,
            kernels: Mutex::default(),
            orders: Orders::default(),
            pipelines: Pipelines::of(&devices),
            devices,
            members: (0..members).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The session of one of its devices alone. Load small tables to it: queries over tables of one member run on that
    /// device, all others on all devices.
    ///
    /// # Errors
    /// When there is no such device, or it has no more streams.
    pub fn member(self: &Arc<Self>, device: usize) -> Result<Arc<Self>> {
        let devices = self.devices.member(device)?;
        let Some(member) = self.members.get(device) else { return Ok(Arc::clone(self)) };
        let (cache, copies) = (&self.dictionary_cache, &self.lookup_copies);
        let made = || Arc::new(Self::on(devices, Arc::clone(cache), Arc::clone(copies)));
        Ok(Arc::clone(member.get_or_init(made)))
    }

    /// Whether a table lies on its devices, or on one of them alone.
    pub fn has(&self, table: &Table) -> bool {
        let devices = table.devices();
        Arc::ptr_eq(devices, &self.devices) || self.devices.device_of_member(devices).is_some()
    }

    /// Where a query over these tables runs: in a member if all of them lie on its device.
    pub(crate) fn of_tables<'t>(self: &Arc<Self>, tables: impl IntoIterator<Item = &'t Arc<Table>>) -> Arc<Self> {
        let mut tables = tables.into_iter();
        let member = tables.next().and_then(|first| {
            let is_alone = tables.all(|table| Arc::ptr_eq(table.devices(), first.devices()));
            is_alone.then(|| self.member_on(first.devices())).flatten()
        });
        member.unwrap_or_else(|| Arc::clone(self))
    }

    /// The member of these devices.
    pub(crate) fn member_on(self: &Arc<Self>, devices: &Arc<DeviceSet>) -> Option<Arc<Self>> {
        self.member(self.devices.device_of_member(devices)?).ok()
    }

    /// The member with the fewest running queries, if fewer run there than in `member` and it has room for copies of the tables.
    pub(crate) fn least_busy(
        self: &Arc<Self>,
        member: &Arc<Self>,
        tables: &[Arc<Table>],
        budget: MemoryBudget,
    ) -> Option<Arc<Self>> {
        let busy = member.devices.running();
        if busy == 0 {
            return None;
        }
        let others = (0..self.members.len()).filter_map(|device| self.member(device).ok());
        let mut others: Vec<_> = others.filter(|other| other.devices.running() < busy).collect();
        others.sort_by_key(|other| other.devices.running());
        others.into_iter().find(|other| Table::have_room_on(tables, &other.devices, budget))
    }

    /// Where a plan runs whose inputs lie with its tables: in a member if all tables lie on its device.
    pub fn of_plan(self: &Arc<Self>, plan: &Plan) -> Arc<Self> {
        self.of_tables(&plan.tables())
    }

    /// The devices that tables are loaded to.
    pub fn device_set(&self) -> &Arc<DeviceSet> {
        &self.devices
    }

    /// The devices, in shard order.
    pub fn devices(&self) -> &[Device] {
        self.devices.devices()
    }

    /// Whether each device can reach the memory of all others. Rows between two devices that can't go through host
    /// memory.
    pub fn has_peer_access(&self) -> bool {
        self.devices.has_peer_access()
    }

    /// Kind of all its devices.
    pub fn kind(&self) -> DeviceKind {
        self.devices.kind()
    }

    /// An entry of a hand-written module on the device of a stream. Making the source takes longer than many kernels run, so
    /// entries are kept.
    pub(crate) fn fixed_kernel(&self, stream: &Stream, module: FixedModule, entry: &'static str) -> Result<Kernel> {
        let kernels = || self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels().get(&(module, entry)) {
            return Ok(kernel.clone());
        }
        // Without the lock: compiling may take a second. The device compiles once for threads that ask at the same time.
        let kernel = stream.device().compile_entry(&module.source(), entry)?;
        kernels().insert((module, entry), kernel.clone());
        Ok(kernel)
    }

    /// Orders of joins that were chosen before.
    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Copies of lookup columns that queries keep on the devices.
    pub(crate) fn lookup_copies(&self) -> &LookupCopies {
        &self.lookup_copies
    }

    pub(crate) fn dictionary_cache(&self) -> &DictionaryCache {
        &self.dictionary_cache
    }

    /// Pipelines that were generated before.
    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.pipelines
    }

    /// Waits until all requested kernels are compiled, including those of interpreted pipelines. Call it before
    /// measuring times.
    pub fn finish_compiling(&self) {
        self.devices.compiler().finish();
    }

    /// Errors of kernels that did not compile in the background, at most 8. Their pipelines stay interpreted: a defect.
    pub fn compile_failures(&self) -> Vec<String> {
        self.devices.compiler().failures()
    }
}

/// Loads the interpreter kernels, so that a new query can start with them. Kernels that any query may need are compiled
/// in the background, if the disk cache lacks them, on the first call in a process.
fn prepare(devices: &DeviceSet) {
    static STORED: AtomicBool = AtomicBool::new(false);
    let all = devices.devices();
    let module = interpreters(USUAL_HASH_BITS);
    let modules = module.entries.iter().map(|entry| all[0].module_of(&module, entry).into_owned()).collect();
    devices.compiler().load(modules, all);
    if !STORED.swap(true, Ordering::Relaxed) {
        devices.compiler().store(prebuilt(), &all[0]);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.devices())
    }
}
