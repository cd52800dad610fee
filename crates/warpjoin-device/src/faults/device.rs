//! A device backend that asks a fault plan before each call.
//!
//! Must not know which kind of device it wraps.

use std::any::Any;
use std::sync::Arc;

use super::plan::{CallKind, FaultPlan};
use super::recording::named;
use super::stream::FaultyStream;
use crate::backend::{DeviceBackend, Handle, StreamBackend};
use crate::cancellation::HostWord;
use crate::{DeviceError, DeviceInfo, ModuleSource, Result};

pub(super) struct FaultyDevice {
    inner: Arc<dyn DeviceBackend>,
    plan: FaultPlan,
    label: String,
}

impl FaultyDevice {
    pub(super) fn new(inner: Arc<dyn DeviceBackend>, plan: FaultPlan) -> Self {
        let label = format!("{}:{}", inner.info().kind, inner.info().ordinal);
        Self { inner, plan, label }
    }

    fn begin(&self, kind: CallKind) -> Result<()> {
        self.plan.begin(&self.label, kind)
    }
}

impl DeviceBackend for FaultyDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn create_stream(&self) -> Result<Arc<dyn StreamBackend>> {
        self.begin(CallKind::CreateStream)?;
        let inner = self.inner.create_stream()?;
        Ok(Arc::new(FaultyStream::new(inner, self.plan.clone(), self.label.clone())))
    }

    fn compile(&self, source: &ModuleSource) -> Result<Vec<Handle>> {
        self.begin(CallKind::Compile)?;
        let kernels = self.plan.watching_files(|| self.inner.compile(source))?;
        Ok(named(source, kernels))
    }

    fn is_stored(&self, source: &ModuleSource) -> bool {
        self.inner.is_stored(source)
    }

    fn can_compile(&self) -> bool {
        self.inner.can_compile()
    }

    fn open_peer_access(&self, peer: &dyn DeviceBackend) -> Result<()> {
        self.begin(CallKind::OpenPeer)?;
        let Some(peer) = peer.as_any().downcast_ref::<Self>() else {
            return Err(DeviceError::NoPeerLink { from: self.label.clone(), to: "a device without faults".into() });
        };
        if !self.plan.has_peers() {
            return Err(DeviceError::NoPeerLink { from: self.label.clone(), to: peer.label.clone() });
        }
        self.inner.open_peer_access(&*peer.inner)
    }

    fn host_word(&self) -> Result<Arc<dyn HostWord>> {
        self.begin(CallKind::HostWord)?;
        self.inner.host_word()
    }

    fn trim(&self) -> Result<()> {
        self.inner.trim()
    }

    fn held_bytes(&self) -> Option<u64> {
        self.inner.held_bytes()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn kept_bytes(&self) -> u64 {
        self.inner.kept_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
