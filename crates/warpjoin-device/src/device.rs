//! [`Device`]: the checked front end over a backend.
//!
//! Owns the memory budget, the modules in memory and the opened peers of a device. Must not know which kind of device it is.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::backend::DeviceBackend;
use crate::modules::Modules;
use crate::{CancelWord, Cancellation, DeviceError, Kernel, MemoryPool, Module, ModuleSource, Result, Stream};

/// What executes the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// An NVIDIA GPU.
    Cuda,
    /// The CPU, running the same kernel sources.
    Simulated,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "cuda",
            Self::Simulated => "sim",
        })
    }
}

/// How a device reaches a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Ordinal of the peer.
    pub peer: usize,
    /// Whether kernels can reach the peer's memory.
    pub access: bool,
    /// For example `NVLink`, `PCIe` or `simulated`.
    pub name: String,
}

/// Static properties of a device.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Kind of device.
    pub kind: DeviceKind,
    /// Index among the devices of its kind.
    pub ordinal: usize,
    /// For example `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Total memory of the device.
    pub memory_bytes: u64,
    /// Initial budget of the device.
    pub budget_bytes: u64,
    /// Compute capability; (9, 0) for an H100. The simulated device reports (0, 0).
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads that a multiprocessor holds at once.
    pub threads_per_multiprocessor: u32,
    /// Size of the L2 cache.
    pub l2_bytes: u64,
    /// Peak memory bandwidth by memory clock and bus width; 0 if unknown, and on simulated devices.
    pub memory_bytes_per_s: u64,
    /// Maximum shared memory of a block.
    pub shared_bytes_per_block_max: u32,
    /// Maximum threads of a block whose kernel accepts any block size. 1,024 on GPUs; few on simulated devices, where a
    /// lane costs far more than a row.
    pub block_threads_max: u32,
    /// Driver version or compiler, for display.
    pub driver: String,
    /// Version of the run-time compiler, for display.
    pub compiler: String,
    /// Connections to the other devices of the same kind.
    pub links: Vec<Link>,
}

impl DeviceInfo {
    /// `wanted` threads of a block, or fewer where the device has a lower maximum.
    pub fn block_threads(&self, wanted: u32) -> u32 {
        wanted.min(self.block_threads_max)
    }
}

/// A device. Cheap to clone; clones are the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<DeviceInner>,
}

struct DeviceInner {
    /// Unique in the process, and never used again.
    id: u64,
    backend: Arc<dyn DeviceBackend>,
    memory: Arc<MemoryPool>,
    host_memory: Arc<MemoryPool>,
    modules: Modules,
    /// Ids of the devices that this device has peer access to.
    peers: Mutex<HashSet<u64>>,
}

/// A weak reference to a device.
#[derive(Clone)]
pub(crate) struct WeakDevice(Weak<DeviceInner>);

impl WeakDevice {
    pub(crate) fn upgrade(&self) -> Option<Device> {
        self.0.upgrade().map(|inner| Device { inner })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Device {
    /// A device whose buffers on the host count against `host_memory`.
    pub(crate) fn new(backend: Arc<dyn DeviceBackend>, host_memory: Arc<MemoryPool>) -> Self {
        let memory = Arc::new(MemoryPool::new(backend.info().budget_bytes));
        Self::with_memory(backend, memory, host_memory)
    }

    /// A device that shares the memory and the budget of `other`.
    pub(crate) fn sharing_memory(backend: Arc<dyn DeviceBackend>, other: &Self) -> Self {
        Self::with_memory(backend, Arc::clone(&other.inner.memory), Arc::clone(&other.inner.host_memory))
    }

    fn with_memory(backend: Arc<dyn DeviceBackend>, memory: Arc<MemoryPool>, host_memory: Arc<MemoryPool>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (modules, peers) = (Modules::default(), Mutex::default());
        Self { inner: Arc::new(DeviceInner { id, backend, memory, host_memory, modules, peers }) }
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    pub(crate) fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.inner))
    }

    /// Returns cached memory that is not in use to the driver, for other processes. Takes some milliseconds, and makes the
    /// next allocation as slow. An allocation that finds no memory trims by itself.
    ///
    /// # Errors
    /// When the driver fails, or earlier work failed.
    pub fn trim(&self) -> Result<()> {
        self.inner.backend.trim()
    }

    /// Bytes that this process holds on the device: buffers and cached memory. `None` if the driver does not report them.
    /// Contexts and modules (some hundred MiB) are not counted.
    pub fn held_bytes(&self) -> Option<u64> {
        self.inner.backend.held_bytes()
    }

    /// Bytes of the device's memory that no process uses; `None` if the driver does not report them.
    pub fn unused_bytes(&self) -> Option<u64> {
        self.inner.backend.free_bytes()
    }

    /// For decorators.
    pub(crate) fn backend(&self) -> &Arc<dyn DeviceBackend> {
        &self.inner.backend
    }

    /// Static properties.
    pub fn info(&self) -> &DeviceInfo {
        self.inner.backend.info()
    }

    /// Kind and ordinal, for example `cuda:0`.
    pub fn label(&self) -> String {
        format!("{}:{}", self.info().kind, self.info().ordinal)
    }

    /// The memory budget of this device.
    pub fn memory(&self) -> &MemoryPool {
        &self.inner.memory
    }

    /// The budget of buffers that lie on the host. All GPUs of the process share it, and all devices of a simulation.
    pub fn host_memory(&self) -> &MemoryPool {
        &self.inner.host_memory
    }

    pub(crate) fn shared_host_memory(&self) -> &Arc<MemoryPool> {
        &self.inner.host_memory
    }

    /// Creates a stream: an in-order queue of work on this device.
    ///
    /// # Errors
    /// When the driver cannot create a stream.
    pub fn create_stream(&self) -> Result<Stream> {
        Ok(Stream::new(self.clone(), self.inner.backend.create_stream()?))
    }

    /// Compiles a module for this device, or takes it from memory or from the disk cache.
    /// Threads may compile different modules at once. A thread that asks for a module that another thread is compiling
    /// waits for it.
    ///
    /// # Errors
    /// When there is no compiler, or it rejects the source.
    pub fn compile(&self, source: &ModuleSource) -> Result<Module> {
        self.compile_unless(source, None)
    }

    /// As [`Self::compile`], unless it is cancelled first. A running compilation is not interrupted, but cancelled threads stop
    /// waiting for it.
    ///
    /// # Errors
    /// As [`Self::compile`], and [`DeviceError::Cancelled`].
    pub fn compile_unless(&self, source: &ModuleSource, cancel: Option<&Cancellation>) -> Result<Module> {
        self.inner.modules.get_or_compile(source, cancel, || {
            let handles = self.inner.backend.compile(source)?;
            if handles.len() != source.entries.len() {
                return Err(DeviceError::Invalid(format!("{}: {} entries compiled", source.name, handles.len())));
            }
            Ok(Module::new(source, handles))
        })
    }

    /// A word that tells running kernels of this device that the work is cancelled.
    ///
    /// # Errors
    /// When the driver has no pinned memory for it.
    pub fn cancel_word(&self, cancellation: &Arc<Cancellation>) -> Result<CancelWord> {
        Ok(cancellation.watch(self.inner.backend.host_word()?))
    }

    /// The module to compile when one entry is needed. NVRTC's time is the sum over all entries, so a GPU compiles entries
    /// separately. The simulated device's compiler has a long start-up, so it compiles all entries at once.
    pub fn module_of<'a>(&self, source: &'a ModuleSource, entry: &str) -> Cow<'a, ModuleSource> {
        if self.info().kind == DeviceKind::Cuda && source.entries.len() > 1 {
            Cow::Owned(source.of_entry(entry))
        } else {
            Cow::Borrowed(source)
        }
    }

    /// Compiles one entry of a module, as [`Self::module_of`] describes.
    ///
    /// # Errors
    /// As [`Self::compile`], and when the module has no such entry.
    pub fn compile_entry(&self, source: &ModuleSource, entry: &str) -> Result<Kernel> {
        self.compile(&self.module_of(source, entry))?.kernel(entry)
    }

    /// The module, if it is in memory.
    pub fn compiled(&self, source: &ModuleSource) -> Option<Module> {
        self.inner.modules.get(source)
    }

    /// Whether the module is in memory.
    pub fn is_compiled(&self, source: &ModuleSource) -> bool {
        self.inner.modules.contains(source)
    }

    /// Whether the disk cache has the module, or the prebuilt kernels.
    pub fn is_stored(&self, source: &ModuleSource) -> bool {
        self.inner.backend.is_stored(source)
    }

    /// Whether it compiles modules that are not stored. A GPU without NVRTC does not.
    pub fn can_compile(&self) -> bool {
        self.inner.backend.can_compile()
    }

    /// Number of modules in memory.
    pub fn compiled_modules(&self) -> usize {
        self.inner.modules.len()
    }

    /// Sources of the modules in memory, in no order. Tests compile them elsewhere.
    pub fn compiled_sources(&self) -> Vec<ModuleSource> {
        self.inner.modules.sources()
    }

    /// Lets work on this device reach the memory of `peer`. Opening twice is not an error.
    ///
    /// # Errors
    /// When the devices are of different kinds, or the hardware does not allow it.
    pub fn open_peer_access(&self, peer: &Device) -> Result<()> {
        if self.is_same(peer) || self.can_reach(peer) {
            return Ok(());
        }
        if self.info().kind != peer.info().kind {
            return Err(DeviceError::NoPeerLink { from: self.label(), to: peer.label() });
        }
        self.inner.backend.open_peer_access(&*peer.inner.backend)?;
        locked(&self.inner.peers).insert(peer.id());
        Ok(())
    }

    /// Whether work on this device may reach the memory of `other`.
    pub fn can_reach(&self, other: &Device) -> bool {
        self.is_same(other) || locked(&self.inner.peers).contains(&other.id())
    }

    /// Whether both are the same device.
    pub fn is_same(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.label())
    }
}

/// Takes a lock. Ignores poison: a panic cannot leave this data half-changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
