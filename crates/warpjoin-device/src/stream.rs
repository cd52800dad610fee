//! [`Stream`]: the checked front end over a backend's queue.
//!
//! Owns the checks of bounds, budget and peer access. Must not know which kind of device executes the work.

use std::fmt;
use std::sync::Arc;

use warpjoin_kernels::KernelParams;

use crate::backend::StreamBackend;
use crate::trace::span;
use crate::{Arg, Buffer, Cause, Device, DeviceError, Event, Kernel, Launch, MemoryPlace, Result};

/// Decides when a stream may launch kernels, where several share the device.
pub trait Pacer: Send + Sync {
    /// Called before each launch. May wait.
    ///
    /// # Errors
    /// [`DeviceError::Cancelled`] when the work is cancelled while it waits.
    fn before_launch(&self) -> Result<()>;

    /// Called after each wait for all work of the stream, even if that failed.
    fn after_wait(&self);
}

/// An in-order queue of work on one device. Cheap to clone; clones are the same queue.
#[derive(Clone)]
pub struct Stream {
    device: Device,
    backend: Arc<dyn StreamBackend>,
    /// Maximum bytes in use on the device after an allocation by this stream.
    budget_bytes: u64,
    /// The same for buffers in host memory.
    host_budget_bytes: u64,
    /// Decides when launches begin; `None`: at once.
    pacer: Option<Arc<dyn Pacer>>,
}

impl Stream {
    pub(crate) fn new(device: Device, backend: Arc<dyn StreamBackend>) -> Self {
        Self { device, backend, budget_bytes: u64::MAX, host_budget_bytes: u64::MAX, pacer: None }
    }

    /// The same queue, with launches that begin when `pacer` lets them.
    #[must_use]
    pub fn paced(self, pacer: Arc<dyn Pacer>) -> Self {
        Self { pacer: Some(pacer), ..self }
    }

    /// The same queue, with a budget for its allocations. It limits all bytes in use on the device, not only this
    /// stream's.
    #[must_use]
    pub fn within(self, budget_bytes: u64) -> Self {
        Self { budget_bytes, ..self }
    }

    /// The same queue, with a budget for its buffers in host memory. It limits all such buffers, not only this
    /// stream's.
    #[must_use]
    pub fn within_host(self, host_budget_bytes: u64) -> Self {
        Self { host_budget_bytes, ..self }
    }

    /// The budget of this stream's allocations: its own or its device's, whichever is less.
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes.min(self.device.memory().limit_bytes())
    }

    /// Bytes that the budget still allows.
    pub fn free_bytes(&self) -> u64 {
        self.device.memory().free_within(self.budget_bytes())
    }

    /// Whether the budget allows `bytes` more. Caches free memory if it does not.
    pub fn make_room(&self, bytes: u64) -> bool {
        if bytes > self.budget_bytes() {
            return false;
        }
        while self.free_bytes() < bytes {
            if !self.ask_caches(bytes) {
                return false;
            }
        }
        true
    }

    /// Lets a cache free the memory that is missing for `bytes` more. Returns whether one did.
    fn ask_caches(&self, bytes: u64) -> bool {
        let lacking = bytes.saturating_sub(self.free_bytes());
        // Where the budget allows them, the device itself has too little.
        self.device.memory().give_back(if lacking > 0 { lacking } else { bytes })
    }

    /// The device that the work runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn backend(&self) -> &dyn StreamBackend {
        &*self.backend
    }

    /// Allocates `bytes` of undefined content on this stream's device; 0 is allowed.
    ///
    /// # Errors
    /// [`DeviceError::OutOfDeviceMemory`] when the budget or the device does not allow it.
    pub fn alloc(&self, bytes: u64) -> Result<Buffer> {
        self.alloc_by(bytes, |backend| backend.alloc(bytes))
    }

    /// Allocates `bytes` of undefined content in host memory, where kernels and copies of all devices access them over
    /// the bus; 0 is allowed.
    ///
    /// # Errors
    /// [`DeviceError::OutOfHostMemory`] when the budget or the host does not allow it.
    pub fn alloc_host(&self, bytes: u64) -> Result<Buffer> {
        if bytes == 0 {
            return Ok(Buffer::new(self.clone(), 0, 0, MemoryPlace::Host));
        }
        let memory = self.device.host_memory();
        let out_of_memory = || DeviceError::OutOfHostMemory {
            device: self.device.label(),
            asked_bytes: bytes,
            free_bytes: self.free_host_bytes(),
            limit_bytes: self.host_budget_bytes.min(memory.limit_bytes()),
        };
        let charge = memory.charge(bytes, self.host_budget_bytes).ok_or_else(out_of_memory)?;
        let address = self.backend.alloc_host(bytes).map_err(|error| error.unwrap_or_else(out_of_memory))?;
        charge.keep();
        Ok(Buffer::new(self.clone(), address, bytes, MemoryPlace::Host))
    }

    /// Allocates `bytes` of undefined content on the device, as [`Self::alloc`], or on the host, as [`Self::alloc_host`].
    ///
    /// # Errors
    /// As those.
    pub fn alloc_at(&self, place: MemoryPlace, bytes: u64) -> Result<Buffer> {
        match place {
            MemoryPlace::Device => self.alloc(bytes),
            MemoryPlace::Host => self.alloc_host(bytes),
        }
    }

    /// Bytes that the budget of buffers in host memory still allows.
    pub fn free_host_bytes(&self) -> u64 {
        let memory = self.device.host_memory();
        memory.free_within(self.host_budget_bytes.min(memory.limit_bytes()))
    }

    /// Calls `allocate`, and retries as long as caches free memory.
    fn alloc_by(
        &self,
        bytes: u64,
        allocate: impl Fn(&dyn StreamBackend) -> Result<u64, Option<DeviceError>>,
    ) -> Result<Buffer> {
        let _span = span(|| format!("alloc {bytes}"));
        loop {
            match self.try_alloc_by(bytes, &allocate) {
                Err(error) if error.cause() == Cause::OutOfMemory && self.ask_caches(bytes) => {}
                result => return result,
            }
        }
    }

    fn try_alloc_by(
        &self,
        bytes: u64,
        allocate: impl Fn(&dyn StreamBackend) -> Result<u64, Option<DeviceError>>,
    ) -> Result<Buffer> {
        if bytes == 0 {
            return Ok(Buffer::new(self.clone(), 0, 0, MemoryPlace::Device));
        }
        let memory = self.device.memory();
        let out_of_memory = || self.out_of_memory(bytes);
        let charge = memory.charge(bytes, self.budget_bytes).ok_or_else(out_of_memory)?;
        // Cached memory counts too: the device never holds more than the budget.
        let kept_bytes = self.device.backend().kept_bytes();
        if kept_bytes > memory.free_within(self.budget_bytes()) {
            self.backend.release_kept();
        }
        let address = allocate(&*self.backend).map_err(|error| error.unwrap_or_else(out_of_memory))?;
        charge.keep();
        Ok(Buffer::new(self.clone(), address, bytes, MemoryPlace::Device))
    }

    fn out_of_memory(&self, asked_bytes: u64) -> DeviceError {
        DeviceError::OutOfDeviceMemory {
            device: self.device.label(),
            asked_bytes,
            free_bytes: self.free_bytes(),
            limit_bytes: self.budget_bytes(),
            physical_free_bytes: self.device.backend().free_bytes(),
        }
    }

    /// Checks that the budget would allow `bytes` if nothing else were allocated.
    ///
    /// # Errors
    /// [`DeviceError::OutOfDeviceMemory`] when it would not.
    pub fn check_budget(&self, bytes: u64) -> Result<()> {
        if bytes > self.budget_bytes() { Err(self.out_of_memory(bytes)) } else { Ok(()) }
    }

    /// Allocates a buffer and fills it with `bytes` from the host.
    ///
    /// # Errors
    /// As [`Self::alloc`] and [`Self::write`].
    pub fn upload(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.alloc(bytes.len() as u64)?;
        self.write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    /// Allocates a buffer whose bytes are all `value`.
    ///
    /// # Errors
    /// As [`Self::alloc`] and [`Self::fill`].
    pub fn alloc_filled(&self, bytes: u64, value: u8) -> Result<Buffer> {
        if value == 0 {
            return self.alloc_by(bytes, |backend| backend.alloc_cleared(bytes));
        }
        let buffer = self.alloc(bytes)?;
        self.fill(&buffer, 0, bytes, value)?;
        Ok(buffer)
    }

    pub(crate) fn free(&self, address: u64, bytes: u64, place: MemoryPlace) {
        if bytes == 0 {
            return;
        }
        let _span = span(|| format!("free {bytes}"));
        match place {
            MemoryPlace::Device => {
                self.backend.free(address, bytes);
                self.device.memory().release(bytes);
            }
            MemoryPlace::Host => {
                self.backend.free_host(address, bytes);
                self.device.host_memory().release(bytes);
            }
        }
    }

    /// Enqueues a copy of host bytes to `buffer`, starting at byte `offset`. The host bytes may be
    /// reused on return.
    ///
    /// # Errors
    /// When the range exceeds the buffer, or the driver fails.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(buffer, offset, bytes.len() as u64)?;
        let _span = span(|| format!("write {}", bytes.len()));
        let address = buffer.address() + offset;
        match buffer.place() {
            _ if bytes.is_empty() => Ok(()),
            MemoryPlace::Device => self.backend.write(address, bytes),
            MemoryPlace::Host => self.backend.write_host(address, bytes),
        }
    }

    /// As [`Self::write`], for several parts in one pass. Each part gives its distance from `offset`. Bytes of `buffer`
    /// between two parts become 0 or stay unchanged.
    ///
    /// # Errors
    /// When the parts overlap or are not in ascending order, and as [`Self::write`].
    pub fn write_all(&self, buffer: &Buffer, offset: u64, parts: &[(usize, &[u8])]) -> Result<()> {
        let mut end = 0;
        for (start, bytes) in parts {
            if *start < end {
                return Err(DeviceError::Invalid(format!("a part at byte {start} of parts that end at byte {end}")));
            }
            end = start.saturating_add(bytes.len());
        }
        self.check(buffer, offset, end as u64)?;
        let _span = span(|| format!("write {end}"));
        match buffer.place() {
            _ if end == 0 => Ok(()),
            MemoryPlace::Device => self.backend.write_all(buffer.address() + offset, parts),
            MemoryPlace::Host => {
                parts.iter().try_for_each(|(start, bytes)| self.write(buffer, offset + *start as u64, bytes))
            }
        }
    }

    /// Waits for the work enqueued so far, then copies bytes of `buffer`, starting at `offset`, to the host.
    ///
    /// # Errors
    /// When the range exceeds the buffer, or earlier work failed.
    pub fn read(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.check(buffer, offset, bytes.len() as u64)?;
        let _span = span(|| format!("read {}", bytes.len()));
        let address = buffer.address() + offset;
        match buffer.place() {
            _ if bytes.is_empty() => Ok(()),
            MemoryPlace::Device => self.waited(self.backend.read(address, bytes)),
            MemoryPlace::Host => self.waited(self.backend.read_host(address, bytes)),
        }
    }

    /// As [`Self::read`] for ranges of several buffers, with a single wait.
    ///
    /// # Errors
    /// When a range exceeds its buffer, or earlier work failed. The host bytes are then undefined.
    pub fn read_all(&self, parts: &mut [(&Buffer, u64, &mut [u8])]) -> Result<()> {
        for (buffer, offset, bytes) in parts.iter() {
            self.check(buffer, *offset, bytes.len() as u64)?;
        }
        if parts.iter().any(|(buffer, ..)| buffer.is_on_host()) {
            return parts.iter_mut().try_for_each(|(buffer, offset, bytes)| self.read(buffer, *offset, bytes));
        }
        let _span = span(|| "read several");
        let parts = parts.iter_mut().filter(|(.., bytes)| !bytes.is_empty());
        let mut parts: Vec<(u64, &mut [u8])> =
            parts.map(|(buffer, offset, bytes)| (buffer.address() + *offset, &mut **bytes)).collect();
        self.waited(match parts.as_mut_slice() {
            [] => return Ok(()),
            [(address, bytes)] => self.backend.read(*address, bytes),
            parts => self.backend.read_all(parts),
        })
    }

    /// Reports the end of a wait for all work to the pacer, and returns the wait's result.
    fn waited(&self, result: Result<()>) -> Result<()> {
        if let Some(pacer) = &self.pacer {
            pacer.after_wait();
        }
        result
    }

    /// Enqueues a fill of a range of `buffer` with `value`.
    ///
    /// # Errors
    /// When the range exceeds the buffer, or the driver fails.
    pub fn fill(&self, buffer: &Buffer, offset: u64, bytes: u64, value: u8) -> Result<()> {
        self.check(buffer, offset, bytes)?;
        let _span = span(|| format!("fill {bytes}"));
        let address = buffer.address() + offset;
        match buffer.place() {
            _ if bytes == 0 => Ok(()),
            MemoryPlace::Device => self.backend.fill(address, bytes, value),
            MemoryPlace::Host => self.backend.fill_host(address, bytes, value),
        }
    }

    /// Enqueues a copy from `(source, offset)` to `(target, offset)`. Each may be on this device, on an opened peer or
    /// in host memory.
    ///
    /// # Errors
    /// When a range exceeds its buffer, or a device cannot be reached.
    pub fn copy(&self, source: (&Buffer, u64), target: (&Buffer, u64), bytes: u64) -> Result<()> {
        self.check(source.0, source.1, bytes)?;
        self.check(target.0, target.1, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let _span = span(|| format!("copy {bytes}"));
        self.backend.copy(source.0.address() + source.1, target.0.address() + target.1, bytes)
    }

    /// Waits until the stream may launch kernels. Call it before an event from which kernels are timed.
    ///
    /// # Errors
    /// [`DeviceError::Cancelled`] when the work is cancelled meanwhile.
    pub fn wait_for_permit(&self) -> Result<()> {
        let _span = span(|| "permit");
        self.pacer.as_ref().map_or(Ok(()), |pacer| pacer.before_launch())
    }

    /// Enqueues a kernel launch.
    ///
    /// # Errors
    /// When the parameters are those of other kernels, the launch shape is invalid, a buffer cannot be reached, or the driver
    /// fails.
    pub fn launch<P>(&self, kernel: &Kernel, launch: Launch, params: &P) -> Result<()>
    where
        P: KernelParams<Buffer> + ?Sized,
    {
        if !P::ENTRIES.is_empty() && !P::ENTRIES.contains(&kernel.name()) {
            return Err(DeviceError::Invalid(format!("{}: parameters of {:?}", kernel.name(), P::ENTRIES)));
        }
        self.check_shape(kernel, launch)?;
        let (mut words, mut failure) = (vec![], None);
        params.pass(&mut |arg| match self.param(&arg) {
            Ok(word) => words.push(word),
            Err(error) => failure = Some(error),
        });
        if let Some(error) = failure {
            return Err(error);
        }
        self.wait_for_permit()?;
        let _span = span(|| format!("launch {}", kernel.name()));
        self.backend.launch(kernel.handle(), launch, &words)
    }

    /// Blocks of the launch that a multiprocessor holds at once, by threads, shared memory and registers; `None` if unknown.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn resident_blocks(&self, kernel: &Kernel, launch: Launch) -> Result<Option<u32>> {
        self.backend.resident_blocks(kernel.handle(), launch)
    }

    fn check_shape(&self, kernel: &Kernel, launch: Launch) -> Result<()> {
        let threads = launch.block_threads;
        let shared_max = self.device.info().shared_bytes_per_block_max;
        if launch.blocks == 0
            || launch.blocks > i32::MAX as u32
            || threads == 0
            || threads > 1024
            || !threads.is_multiple_of(32)
        {
            return Err(DeviceError::Invalid(format!("{}: cannot launch {launch:?}", kernel.name())));
        }
        if launch.shared_bytes > shared_max {
            return Err(DeviceError::Invalid(format!(
                "{}: {} bytes of shared memory requested, the maximum is {shared_max}",
                kernel.name(),
                launch.shared_bytes
            )));
        }
        Ok(())
    }

    /// Enqueues an event.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn record(&self) -> Result<Event> {
        let _span = span(|| "record");
        Ok(Event::new(self.clone(), self.backend.record()?))
    }

    /// Delays later work of this stream until `event` is reached. `event` may be of any device of the same kind.
    ///
    /// # Errors
    /// When the event is of another kind of device.
    pub fn wait(&self, event: &Event) -> Result<()> {
        if event.stream().device().info().kind != self.device.info().kind {
            return Err(DeviceError::Invalid("the event belongs to another kind of device".into()));
        }
        let _span = span(|| "wait event");
        self.backend.wait(event.handle())
    }

    /// Waits for all work enqueued so far.
    ///
    /// # Errors
    /// When that work failed.
    pub fn synchronize(&self) -> Result<()> {
        let _span = span(|| "synchronize");
        self.waited(self.backend.synchronize())
    }

    fn param(&self, arg: &Arg<'_>) -> Result<u64> {
        Ok(match *arg {
            Arg::U64(value) => value,
            Arg::Null => 0,
            Arg::Buffer(buffer) => {
                self.check(buffer, 0, 0)?;
                buffer.address()
            }
            Arg::BufferAt(buffer, offset) => {
                self.check(buffer, offset, 0)?;
                buffer.address() + offset
            }
        })
    }

    fn check(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > buffer.bytes()) {
            return Err(DeviceError::Invalid(format!(
                "range of {bytes} bytes at offset {offset} exceeds a buffer of {} bytes",
                buffer.bytes()
            )));
        }
        if !buffer.is_on_host() && !self.device.can_reach(buffer.device()) {
            return Err(DeviceError::NoPeerAccess { from: self.device.label(), to: buffer.device().label() });
        }
        Ok(())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.device.label())
    }
}
