//! A stream backend that asks a fault plan before each call, and reports the use of memory to it.
//!
//! Must not know which kind of device it wraps.

use std::sync::Arc;

use super::order::{Clock, StreamId};
use super::plan::{CallKind, FaultPlan};
use super::recording::NamedKernel;
use crate::backend::{Handle, StreamBackend};
use crate::{DeviceError, Launch, Result};

pub(super) struct FaultyStream {
    inner: Arc<dyn StreamBackend>,
    plan: FaultPlan,
    /// Label of the device.
    label: String,
    id: StreamId,
}

/// An event, and the clock of its stream when it was recorded.
struct FaultyEvent {
    inner: Handle,
    clock: Clock,
}

impl FaultyStream {
    pub(super) fn new(inner: Arc<dyn StreamBackend>, plan: FaultPlan, label: String) -> Self {
        let id = plan.with_order(|order| order.open_stream());
        Self { inner, plan, label, id }
    }

    fn begin(&self, kind: CallKind) -> Result<()> {
        self.plan.begin(&self.label, kind)
    }

    /// Records that work of this stream uses memory.
    fn uses(&self, addresses: &[u64]) {
        self.plan.with_order(|order| order.work(self.id, addresses));
    }

    /// Records that the host has waited for this stream.
    fn waited(&self) {
        self.plan.with_order(|order| order.host_waits(self.id));
    }

    fn alloc_by(
        &self,
        bytes: u64,
        allocate: impl FnOnce() -> Result<u64, Option<DeviceError>>,
    ) -> Result<u64, Option<DeviceError>> {
        match self.begin(CallKind::Alloc) {
            // How backends report out of memory.
            Err(DeviceError::OutOfDriverMemory { .. }) => return Err(None),
            result => result.map_err(Some)?,
        }
        let address = allocate()?;
        self.plan.with_order(|order| order.alloc(self.id, address, bytes));
        Ok(address)
    }
}

impl StreamBackend for FaultyStream {
    fn alloc(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        self.alloc_by(bytes, || self.inner.alloc(bytes))
    }

    fn alloc_cleared(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        self.alloc_by(bytes, || self.inner.alloc_cleared(bytes))
    }

    fn free(&self, address: u64, bytes: u64) {
        self.plan.with_order(|order| order.free(self.id, address, &self.label));
        self.inner.free(address, bytes);
    }

    fn alloc_host(&self, bytes: u64) -> Result<u64, Option<DeviceError>> {
        self.alloc_by(bytes, || self.inner.alloc_host(bytes))
    }

    fn free_host(&self, address: u64, bytes: u64) {
        self.plan.with_order(|order| order.free(self.id, address, &self.label));
        self.inner.free_host(address, bytes);
    }

    fn write_host(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.begin(CallKind::Write)?;
        self.uses(&[address]);
        self.inner.write_host(address, bytes)
    }

    fn read_host(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.begin(CallKind::Read)?;
        self.uses(&[address]);
        self.inner.read_host(address, bytes)?;
        self.waited();
        Ok(())
    }

    fn fill_host(&self, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.begin(CallKind::Fill)?;
        self.uses(&[address]);
        self.inner.fill_host(address, bytes, value)
    }

    fn release_kept(&self) {
        self.inner.release_kept();
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.begin(CallKind::Write)?;
        self.uses(&[address]);
        self.inner.write(address, bytes)
    }

    fn write_all(&self, address: u64, parts: &[(usize, &[u8])]) -> Result<()> {
        self.begin(CallKind::Write)?;
        self.uses(&[address]);
        self.inner.write_all(address, parts)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.begin(CallKind::Read)?;
        self.uses(&[address]);
        self.inner.read(address, bytes)?;
        self.waited();
        Ok(())
    }

    fn read_all(&self, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.begin(CallKind::Read)?;
        let addresses: Vec<u64> = parts.iter().map(|(address, _)| *address).collect();
        self.uses(&addresses);
        self.inner.read_all(parts)?;
        self.waited();
        Ok(())
    }

    fn fill(&self, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.begin(CallKind::Fill)?;
        self.uses(&[address]);
        self.inner.fill(address, bytes, value)
    }

    fn copy(&self, source: u64, target: u64, bytes: u64) -> Result<()> {
        self.begin(CallKind::Copy)?;
        self.uses(&[source, target]);
        self.inner.copy(source, target, bytes)
    }

    fn launch(&self, kernel: &Handle, launch: Launch, params: &[u64]) -> Result<()> {
        self.begin(CallKind::Launch)?;
        self.uses(params);
        let kernel: &NamedKernel = kernel
            .downcast_ref()
            .ok_or_else(|| DeviceError::Invalid("the kernel belongs to a device without faults".into()))?;
        self.plan.launched(&kernel.name);
        self.inner.launch(&kernel.inner, launch, params)
    }

    fn record(&self) -> Result<Handle> {
        self.begin(CallKind::Record)?;
        let clock = self.plan.with_order(|order| order.record(self.id));
        Ok(Arc::new(FaultyEvent { inner: self.inner.record()?, clock }))
    }

    fn wait(&self, event: &Handle) -> Result<()> {
        if self.plan.is_missing(CallKind::Wait) {
            return Ok(());
        }
        self.begin(CallKind::Wait)?;
        let event = faulty_event(event)?;
        self.inner.wait(&event.inner)?;
        self.plan.with_order(|order| order.wait(self.id, &event.clock));
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        // As with errors of earlier work: all of it has ended.
        let failed = self.begin(CallKind::Synchronize);
        let waited = self.inner.synchronize();
        self.waited();
        failed.and(waited)
    }

    fn elapsed_ns(&self, from: &Handle, to: &Handle) -> Result<u64> {
        self.inner.elapsed_ns(&faulty_event(from)?.inner, &faulty_event(to)?.inner)
    }
}

impl Drop for FaultyStream {
    fn drop(&mut self) {
        self.plan.with_order(|order| order.close_stream(self.id));
    }
}

fn faulty_event(event: &Handle) -> Result<&FaultyEvent> {
    event.downcast_ref().ok_or_else(|| DeviceError::Invalid("the event belongs to a device without faults".into()))
}
