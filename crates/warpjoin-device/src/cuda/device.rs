//! One GPU: the CUDA implementation of [`DeviceBackend`].
//!
//! Owns the steps from a module's source to loaded kernels. Must not check what the front end has checked.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::CUresult;

use super::context::Context;
use super::driver::Driver;
use super::exit::LibraryInUse;
use super::functions;
use super::module::{self, CudaKernel};
use super::nvrtc::{self, Nvrtc, Target, prebuilt};
use super::shared::Shared;
use super::stream::CudaStream;
use super::{CudaOptions, info};
use crate::backend::{DeviceBackend, Handle, StreamBackend};
use crate::cache::KernelCache;
use crate::cancellation::HostWord;
use crate::{Device, DeviceError, DeviceInfo, ModuleSource, Result};

/// An opened GPU.
#[derive(Debug)]
pub(super) struct CudaDevice {
    info: DeviceInfo,
    shared: Arc<Shared>,
    compiler: Option<Compiler>,
    cache: KernelCache,
}

/// NVRTC, and its compilation target. Without it a GPU has only the prebuilt kernels.
#[derive(Debug, Clone, Copy)]
struct Compiler {
    nvrtc: &'static Nvrtc,
    target: Target,
}

impl Compiler {
    /// The compiler for GPUs of this compute capability; `None`, with a warning, if there is none.
    fn for_gpu(capability: (u32, u32)) -> Option<Self> {
        let found = Nvrtc::get().and_then(|nvrtc| Ok(Self { nvrtc, target: nvrtc.target(capability)? }));
        found.inspect_err(|error| log::warn!("pipelines are interpreted: {error}")).ok()
    }
}

impl CudaDevice {
    /// Opens GPU `ordinal`. `ordinals` are those of all GPUs.
    pub(super) fn open(
        driver: Driver,
        ordinal: usize,
        ordinals: Range<usize>,
        options: &CudaOptions,
        cache: KernelCache,
    ) -> Result<Self> {
        let context = Arc::new(Context::open(driver, ordinal)?);
        let mut info = info::read(&context, ordinal, ordinals, options.memory_bytes)?;
        let compiler = Compiler::for_gpu(info.compute_capability);
        if let Some(Compiler { nvrtc, .. }) = compiler {
            info.compiler = format!("NVRTC {}", nvrtc.version());
        }
        Ok(Self { info, shared: Arc::new(Shared::new(context)?), compiler, cache })
    }

    /// The GPU of a device; `None` if it is not a GPU.
    pub(super) fn of(device: &Device) -> Option<&Self> {
        device.backend().as_any().downcast_ref()
    }

    /// The same GPU, context, pool and streams with another disk cache.
    pub(super) fn with_cache(&self, cache: KernelCache) -> Self {
        let Self { info, shared, compiler, cache: _ } = self;
        Self { info: info.clone(), shared: Arc::clone(shared), compiler: *compiler, cache }
    }

    pub(super) fn has_cache(&self, cache: &KernelCache) -> bool {
        self.cache.dir() == cache.dir()
    }

    /// Whether the context works.
    pub(super) fn is_alive(&self) -> bool {
        self.shared.is_alive()
    }

    fn load(&self, source: &ModuleSource) -> Result<Vec<CudaKernel>> {
        let _use = LibraryInUse::begin()?;
        let load = |image: &[u8]| module::load(&self.shared.context, image, &source.entries);
        if let Some(binary) = prebuilt::find_binary(source, self.info.compute_capability) {
            match load(binary) {
                // Of a compiler that is newer than the driver.
                Err(error @ DeviceError::BadImage { .. }) => log::debug!("a prebuilt kernel is not used: {error}"),
                loaded => return loaded,
            }
        }
        let Some(Compiler { nvrtc, target }) = self.compiler else {
            return load(prebuilt::find(source).ok_or(DeviceError::NoNvrtc)?);
        };
        let (key, extension) = (nvrtc.key(source, target), target.extension());
        if let Some(kernels) = self.cache.load_with(&key, extension, load)? {
            return Ok(kernels);
        }
        let image = nvrtc.compile(source, target)?;
        let kernels = load(&image).map_err(|error| self.with_versions(error, target))?;
        self.cache.store(&key, extension, &image);
        Ok(kernels)
    }

    /// Adds the versions of compiler and driver to the error of an image that does not load. The usual cause is a compiler
    /// newer than the driver.
    fn with_versions(&self, error: DeviceError, target: Target) -> DeviceError {
        match error {
            DeviceError::BadImage { device, call, reason } => DeviceError::BadImage {
                device,
                call,
                reason: format!(
                    "{reason}; compiled for {target} by {}, the driver supports {}",
                    self.info.compiler, self.info.driver
                ),
            },
            other => other,
        }
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        nvrtc::wait_for_copies();
    }
}

impl DeviceBackend for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn create_stream(&self) -> Result<Arc<dyn StreamBackend>> {
        Ok(Arc::new(CudaStream::new(self.shared.clone())?))
    }

    fn compile(&self, source: &ModuleSource) -> Result<Vec<Handle>> {
        Ok(self.load(source)?.into_iter().map(|kernel| Arc::new(kernel) as Handle).collect())
    }

    fn is_stored(&self, source: &ModuleSource) -> bool {
        prebuilt::find_binary(source, self.info.compute_capability).is_some()
            || match self.compiler {
                Some(Compiler { nvrtc, target }) => self.cache.contains(&nvrtc.key(source, target), target.extension()),
                None => prebuilt::find(source).is_some(),
            }
    }

    fn can_compile(&self) -> bool {
        self.compiler.is_some()
    }

    fn open_peer_access(&self, peer: &dyn DeviceBackend) -> Result<()> {
        let (from, to) = (&self.shared.context, peer.info().ordinal);
        let no_access =
            || DeviceError::NoPeerLink { from: from.label().into(), to: format!("{}:{to}", peer.info().kind) };
        let peer = peer.as_any().downcast_ref::<Self>().ok_or_else(no_access)?;
        if from.device() == peer.shared.context.device() {
            // The same GPU, opened twice.
            return Ok(());
        }
        if !info::can_access(from, to)? {
            return Err(no_access());
        }
        from.make_current()?;
        // For memory outside of pools, and for the copy engines.
        // SAFETY: both contexts are retained; the first is current.
        let result = unsafe { functions::cuCtxEnablePeerAccess(peer.shared.context.raw(), 0) };
        if result != CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
            from.check("cuCtxEnablePeerAccess", result)?;
        }
        peer.shared.pool.grant(from)
    }

    fn host_word(&self) -> Result<Arc<dyn HostWord>> {
        self.shared.host_words.take()
    }

    fn trim(&self) -> Result<()> {
        self.shared.trim_all()
    }

    fn held_bytes(&self) -> Option<u64> {
        self.shared.pool.reserved_bytes().ok()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.shared.context.memory_info().ok().map(|(free, _)| free)
    }

    fn kept_bytes(&self) -> u64 {
        self.shared.kept_bytes.load(Ordering::Relaxed)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
