//! The device backend of a simulated device.
//!
//! Owns the count of allocated memory. Must not know how work is executed.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::options::SimOptions;
use super::simulation::Simulation;
use super::stream::SimStream;
use crate::backend::{DeviceBackend, Handle, StreamBackend};
use crate::cancellation::HostWord;
use crate::{DeviceError, DeviceInfo, DeviceKind, Link, ModuleSource, Result};

pub(super) struct SimDevice {
    simulation: Arc<Simulation>,
    info: DeviceInfo,
    used_bytes: Arc<AtomicU64>,
}

impl SimDevice {
    pub(super) fn new(simulation: Arc<Simulation>, ordinal: usize, options: &SimOptions) -> Self {
        let peers = (0..options.devices).filter(|&peer| peer != ordinal);
        let links = peers.map(|peer| Link { peer, access: true, name: "simulated".into() }).collect();
        let info = DeviceInfo {
            kind: DeviceKind::Simulated,
            ordinal,
            name: "Simulated GPU".into(),
            memory_bytes: options.memory_bytes,
            budget_bytes: options.memory_bytes,
            compute_capability: (0, 0),
            multiprocessors: options.multiprocessors,
            threads_per_multiprocessor: options.threads_per_multiprocessor,
            l2_bytes: options.l2_bytes,
            memory_bytes_per_s: 0,
            shared_bytes_per_block_max: options.shared_bytes_per_block_max,
            block_threads_max: options.block_threads_max,
            driver: simulation.compiler().to_string(),
            compiler: simulation.compiler().to_string(),
            links,
        };
        Self { simulation, info, used_bytes: Arc::default() }
    }
}

impl DeviceBackend for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn create_stream(&self) -> Result<Arc<dyn StreamBackend>> {
        let memory = MemoryUse { used_bytes: self.used_bytes.clone(), memory_bytes: self.info.memory_bytes };
        Ok(Arc::new(SimStream::new(self.simulation.clone(), self.info.ordinal, memory)))
    }

    fn is_stored(&self, source: &ModuleSource) -> bool {
        self.simulation.is_stored(source)
    }

    fn compile(&self, source: &ModuleSource) -> Result<Vec<Handle>> {
        let kernels = self.simulation.compile(source, self.info.ordinal)?;
        Ok(kernels.into_iter().map(|kernel| kernel as Handle).collect())
    }

    fn open_peer_access(&self, peer: &dyn DeviceBackend) -> Result<()> {
        // Nothing to do: all memory is host memory, and the front end tracks peer access.
        match peer.as_any().downcast_ref::<Self>() {
            Some(peer) if Arc::ptr_eq(&peer.simulation, &self.simulation) => Ok(()),
            _ => Err(DeviceError::NoPeerLink {
                from: format!("sim:{}", self.info.ordinal),
                to: "a device of another simulation".into(),
            }),
        }
    }

    fn host_word(&self) -> Result<Arc<dyn HostWord>> {
        Ok(Arc::new(SimWord::default()))
    }

    fn trim(&self) -> Result<()> {
        Ok(())
    }

    fn held_bytes(&self) -> Option<u64> {
        Some(self.used_bytes.load(Ordering::Relaxed))
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(self.info.memory_bytes.saturating_sub(self.used_bytes.load(Ordering::Relaxed)))
    }

    fn kept_bytes(&self) -> u64 {
        0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Kernels of simulated devices read any memory of the process.
#[derive(Debug, Default)]
struct SimWord(AtomicU64);

impl HostWord for SimWord {
    fn word(&self) -> &AtomicU64 {
        &self.0
    }
}

/// Counts the bytes allocated on a device, up to its memory. A budget may be larger than that.
pub(super) struct MemoryUse {
    used_bytes: Arc<AtomicU64>,
    memory_bytes: u64,
}

impl MemoryUse {
    /// Adds `bytes`. Adds nothing and returns false if the device does not have them.
    pub(super) fn try_add(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|&total| total <= self.memory_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    pub(super) fn remove(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
