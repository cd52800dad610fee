//! The stream backend of a simulated device: turns calls into work.
//!
//! Must not know when work is executed.

use std::sync::Arc;

use super::device::MemoryUse;
use super::launch::SimKernel;
use super::memory;
use super::simulation::Simulation;
use super::work::{self, SimEvent, Work};
use crate::backend::{Handle, StreamBackend};
use crate::{DeviceError, Launch, Result};

pub(super) struct SimStream {
    simulation: Arc<Simulation>,
    id: u64,
    device: usize,
    memory: MemoryUse,
}

impl SimStream {
    pub(super) fn new(simulation: Arc<Simulation>, device: usize, memory: MemoryUse) -> Self {
        let id = simulation.open_stream(device);
        Self { simulation, id, device, memory }
    }

    fn enqueue(&self, work: Work) -> Result<()> {
        self.simulation.enqueue(self.id, work)
    }

    fn event<'a>(&self, handle: &'a Handle) -> Result<&'a SimEvent> {
        handle
            .downcast_ref::<SimEvent>()
            .filter(|event| event.simulation == self.simulation.id)
            .ok_or_else(|| DeviceError::Invalid("the event belongs to another simulation".into()))
    }
}

impl StreamBackend for SimStream {
    fn alloc(&self, bytes: u64) -> std::result::Result<u64, Option<DeviceError>> {
        if !self.memory.try_add(bytes) {
            return Err(None);
        }
        let poison = self.simulation.poison();
        let mut address = memory::allocate(bytes, poison);
        if address.is_none() && self.simulation.advance(self.id).is_ok() {
            // Executing pending frees may have made room.
            address = memory::allocate(bytes, poison);
        }
        let Some(address) = address else {
            self.memory.remove(bytes);
            return Err(None);
        };
        self.simulation.allocated(self.id, address, bytes).map(|()| address).map_err(|error| {
            self.free(address, bytes);
            Some(error)
        })
    }

    fn free(&self, address: u64, bytes: u64) {
        self.memory.remove(bytes);
        if let Err(error) = self.enqueue(Work::Free { address, bytes }) {
            log::error!("simulated device: free: {error}");
        }
    }

    fn alloc_host(&self, bytes: u64) -> std::result::Result<u64, Option<DeviceError>> {
        let address = memory::allocate(bytes, self.simulation.poison()).ok_or(None)?;
        self.simulation.allocated(self.id, address, bytes).map(|()| address).map_err(|error| {
            self.free_host(address, bytes);
            Some(error)
        })
    }

    fn free_host(&self, address: u64, bytes: u64) {
        if let Err(error) = self.enqueue(Work::Free { address, bytes }) {
            log::error!("simulated device: free of host memory: {error}");
        }
    }

    fn write_host(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.write(address, bytes)
    }

    fn read_host(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.read(address, bytes)
    }

    fn fill_host(&self, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.fill(address, bytes, value)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if self.simulation.is_eager() {
            // All earlier work is done, so the write can happen now, without a copy of the bytes.
            self.simulation.advance(self.id)?;
            work::write(address, bytes);
            return Ok(());
        }
        self.enqueue(Work::Write { address, bytes: bytes.into() })
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.simulation.synchronize(self.id, self.device)?;
        self.simulation.check_read(self.id, self.device, address, bytes.len() as u64)?;
        work::read(address, bytes);
        Ok(())
    }

    fn fill(&self, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.enqueue(Work::Fill { address, bytes, value })
    }

    fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()> {
        self.enqueue(Work::Copy { source, target, bytes })
    }

    fn launch(&self, kernel: &Handle, launch: Launch, params: &[u64]) -> Result<()> {
        let kernel = kernel.clone().downcast::<SimKernel>();
        let kernel = kernel.map_err(|_| DeviceError::Invalid("the kernel belongs to another kind of device".into()))?;
        if kernel.device_key != (self.simulation.id, self.device) {
            return Err(DeviceError::Invalid(format!("{}: compiled for another device", kernel.name)));
        }
        kernel.check(launch, params)?;
        self.enqueue(Work::Launch { kernel, launch, params: params.to_vec() })
    }

    fn record(&self) -> Result<Handle> {
        let event = self.simulation.new_event();
        self.enqueue(Work::Record(event.clone()))?;
        Ok(event)
    }

    fn wait(&self, event: &Handle) -> Result<()> {
        self.event(event)?;
        let event = event.clone().downcast::<SimEvent>();
        self.enqueue(Work::Wait(event.map_err(|_| DeviceError::Invalid("the handle is not an event".into()))?))
    }

    fn synchronize(&self) -> Result<()> {
        self.simulation.synchronize(self.id, self.device)
    }

    fn elapsed_ns(&self, from: &Handle, to: &Handle) -> Result<u64> {
        match (self.event(from)?.reached(), self.event(to)?.reached()) {
            (Some(from), Some(to)) => Ok(to.instant.saturating_duration_since(from.instant).as_nanos() as u64),
            _ => Err(DeviceError::Invalid("an event has not been reached: synchronize first".into())),
        }
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.simulation.close_stream(self.id);
    }
}
