//! The device of a hash table, and what all operations share: allocation, launches and reports.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use warpjoin_codegen::FixedModule;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, DeviceInfo, Event, Kernel, Launch, Stream};
use warpjoin_kernels::KernelParams;
use warpjoin_kernels::common::{BLOCK_THREADS, control, status};

use crate::Session;
use crate::exec::Strides;

/// Columns and words are padded with 0 to a multiple of this.
const ALIGNMENT_BYTES: u64 = 16;

/// One device with a stream of its own.
pub(super) struct TableDevice {
    pub session: Arc<Session>,
    pub stream: Stream,
    /// Reached when the work before the last report was done.
    worked: Mutex<Option<Event>>,
}

impl fmt::Debug for TableDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableDevice({:?})", self.stream)
    }
}

/// What a kernel counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Report {
    pub is_full: bool,
    pub rows: u64,
}

impl TableDevice {
    pub(super) fn new(session: &Arc<Session>) -> Result<Self> {
        let [device] = session.devices() else {
            return Err(Error::InvalidArgument(format!(
                "a hash table lives on one device, and the session has {}: open a session of one",
                session.devices().len()
            )));
        };
        Ok(Self { session: session.clone(), stream: device.create_stream()?, worked: Mutex::default() })
    }

    /// An entry of a module.
    pub(super) fn kernel(&self, module: FixedModule, entry: &'static str) -> Result<Kernel> {
        self.session.fixed_kernel(&self.stream, module, entry)
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        self.stream.device().info()
    }

    /// A buffer whose last bytes, those past `bytes`, are 0.
    pub(super) fn alloc(&self, bytes: u64) -> Result<Buffer> {
        let padded = bytes.next_multiple_of(ALIGNMENT_BYTES).max(ALIGNMENT_BYTES);
        let buffer = self.stream.alloc(padded)?;
        self.stream.fill(&buffer, padded - ALIGNMENT_BYTES, ALIGNMENT_BYTES, 0)?;
        Ok(buffer)
    }

    /// A buffer for a bit a row.
    pub(super) fn alloc_bits(&self, rows: u64) -> Result<Buffer> {
        self.alloc(rows.div_ceil(32) * 4)
    }

    pub(super) fn alloc_zeroed(&self, bytes: u64) -> Result<Buffer> {
        Ok(self.stream.alloc_filled(bytes.next_multiple_of(ALIGNMENT_BYTES).max(ALIGNMENT_BYTES), 0)?)
    }

    pub(super) fn control(&self) -> Result<Buffer> {
        self.alloc_zeroed(control::BYTES)
    }

    /// Waits, and reads what a kernel counted.
    pub(super) fn report(&self, control: &Buffer) -> Result<Report> {
        *self.worked.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.stream.record()?);
        let mut bytes = [0; control::WORDS * 8];
        self.stream.read(control, 0, &mut bytes)?;
        let word = |index: usize| u64::from_le_bytes(bytes.as_chunks::<8>().0[index]);
        Ok(Report { is_full: word(control::STATUS) & status::FULL != 0, rows: word(control::ROWS) })
    }

    /// Launches a kernel whose threads take `each` rows at a time in a grid-stride loop.
    pub(super) fn launch_rows(
        &self,
        kernel: &Kernel,
        rows: u64,
        each: u64,
        shared_bytes: u32,
        params: &impl KernelParams<Buffer>,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let launch = Strides { rows_each: each.max(1), shared_bytes, ..Strides::ROWS }.over(rows, &self.stream);
        self.launch(kernel, launch, params)
    }

    pub(super) fn launch(&self, kernel: &Kernel, launch: Launch, params: &impl KernelParams<Buffer>) -> Result<()> {
        *self.worked.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(self.stream.launch(kernel, launch, params)?)
    }

    /// Puts the event of [`Self::work_done`] back for the next call.
    pub(super) fn keep_done(&self, done: Event) {
        *self.worked.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    }

    /// An event that is reached when all kernels are done; host waits after them do not count.
    pub(super) fn work_done(&self) -> Result<Event> {
        let worked = self.worked.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(match worked {
            Some(event) => event,
            None => self.stream.record()?,
        })
    }

    /// Threads of a block of a kernel that takes rows.
    pub(super) fn block_threads(&self) -> u32 {
        self.stream.device().info().block_threads(BLOCK_THREADS)
    }
}
