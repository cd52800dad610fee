//! The devices that queries run on.

use std::fmt;
use std::sync::Arc;

use warpjoin_device::{Device, DeviceError, DeviceKind, Stream};

use crate::hash_table::HashKernels;
use crate::optimize::Orders;
use crate::runtime::compiler::Compiler;
use crate::runtime::device_threads::DeviceThreads;
use crate::runtime::pipelines::Pipelines;
use crate::{Error, Result};

/// A set of devices of one kind. Tables belong to a session, sharded over its devices; queries run on all of them. Rows go
/// from device to device directly, or through the host's memory between two that can't reach each other.
pub struct Session {
    devices: Vec<Device>,
    has_peer_access: bool,
    /// One stream a device for what outlives queries: tables.
    load_streams: Vec<Stream>,
    hash_kernels: HashKernels,
    orders: Orders,
    pipelines: Pipelines,
    compiler: Compiler,
    device_threads: DeviceThreads,
}

impl Session {
    /// Most devices of a session: those of one host.
    pub const DEVICES_MAX: usize = crate::codegen::DEVICES_MAX;

    /// Opens a session on `devices` (1 to [`Self::DEVICES_MAX`] of one kind), and peer access between all that have it.
    ///
    /// # Errors
    /// When there is no device, they are of different kinds, or opening access fails.
    pub fn new(devices: Vec<Device>) -> Result<Arc<Self>> {
        if devices.is_empty() || devices.len() > Self::DEVICES_MAX {
            let (max, asked) = (Self::DEVICES_MAX, devices.len());
            return Err(Error::InvalidArgument(format!("a session takes 1 to {max} devices, not {asked}")));
        }
        let first = devices[0].info().kind;
        if let Some(other) = devices.iter().map(|device| device.info().kind).find(|kind| *kind != first) {
            return Err(Error::InvalidArgument(format!(
                "a session takes devices of one kind, not {first} and {other}"
            )));
        }
        let mut has_peer_access = true;
        for from in &devices {
            for to in &devices {
                match from.open_peer_access(to) {
                    Ok(()) => {}
                    Err(DeviceError::NoPeerLink { .. }) => has_peer_access = false,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let load_streams = devices.iter().map(Device::create_stream).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            devices,
            has_peer_access,
            load_streams,
            hash_kernels: HashKernels::default(),
            orders: Orders::default(),
            pipelines: Pipelines::default(),
            compiler: Compiler::default(),
            device_threads: DeviceThreads::default(),
        }))
    }

    /// The devices, in shard order.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Whether each device can reach the memory of all others. Between two that can't, rows go through the host's memory.
    pub fn has_peer_access(&self) -> bool {
        self.has_peer_access
    }

    /// Kind of all its devices.
    pub fn kind(&self) -> DeviceKind {
        self.devices[0].info().kind
    }

    /// Streams for loading tables, one a device.
    pub(crate) fn load_streams(&self) -> &[Stream] {
        &self.load_streams
    }

    /// Kernels of hash tables that were looked up.
    pub(crate) fn hash_kernels(&self) -> &HashKernels {
        &self.hash_kernels
    }

    /// Orders of joins that were chosen before.
    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Pipelines that were generated before.
    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.pipelines
    }

    /// Compiles what queries will want.
    pub(crate) fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// Threads that drive its devices but the first; `None`: the thread of the query drives all.
    pub(crate) fn device_threads(&self) -> Option<&rayon::ThreadPool> {
        self.device_threads.of(self.devices.len())
    }

    /// Waits until all kernels are compiled that queries have asked for, better forms of those that ran in a quick one
    /// ([`crate::ExecOptions::quick_kernels`]) included: before times are taken, say.
    pub fn finish_compiling(&self) {
        self.compiler.finish();
    }

    /// Fresh streams for one query, one a device.
    pub(crate) fn query_streams(&self, memory_budget_bytes: u64) -> Result<Vec<Stream>> {
        let stream = |device: &Device| Ok(device.create_stream()?.within(memory_budget_bytes));
        self.devices.iter().map(stream).collect()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.devices)
    }
}
