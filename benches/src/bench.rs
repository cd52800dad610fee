//! Where benches run: a session, its one device, and how much smaller than asked the data is.

use std::sync::Arc;

use warpjoin::Session;
use warpjoin_device::{
    Arg, Buffer, CudaOptions, Device, DeviceKind, Kernel, Launch, ModuleSource, SimOptions, Stream, open_cuda,
    open_simulated,
};

use crate::data::{data_module, definitions};
use crate::limits::kernels::limits_module;
use crate::lines::partition::check_module;
use crate::{Error, Result};

/// Threads of a block of the benches' own kernels.
pub(crate) const THREADS: u32 = 256;

/// How much smaller than asked everything is: by powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Numbers of rows are divided by 2^bits.
    pub bits: u32,
}

impl Scale {
    /// The sizes that targets are about.
    pub const FULL: Scale = Scale { bits: 0 };
    /// Sizes for a simulated device.
    pub const TINY: Scale = Scale { bits: 16 };
    const ROWS_MIN: u64 = 64;

    /// `2^bits` rows made smaller, but not below 64.
    pub fn rows(self, bits: u32) -> u64 {
        (1u64 << bits >> self.bits).max(Self::ROWS_MIN)
    }

    /// Whether sizes are as asked.
    pub fn is_full(self) -> bool {
        self.bits == 0
    }
}

/// A session on one device.
pub struct Bench {
    session: Arc<Session>,
    device: Device,
    /// For data, limits and checks; operators have streams of their own.
    stream: Stream,
    scale: Scale,
}

impl Bench {
    /// A bench on the first device of `session`.
    ///
    /// # Errors
    /// When the device gives no stream.
    pub fn new(session: Arc<Session>, scale: Scale) -> Result<Self> {
        let device = session.devices()[0].clone();
        let stream = device.create_stream()?;
        Ok(Self { session, device, stream, scale })
    }

    /// A bench on the first GPU; where there is none, on a simulated device, at tiny sizes and with a warning.
    ///
    /// WARPJOIN_REQUIRE_GPU=1 makes the lack of a GPU an error; WARPJOIN_BENCH_SCALE_BITS=n makes all
    /// sizes 2^n times smaller.
    ///
    /// # Errors
    /// When neither can be opened.
    pub fn open() -> Result<Self> {
        let scale_bits = std::env::var("WARPJOIN_BENCH_SCALE_BITS").ok().and_then(|bits| bits.parse().ok());
        let options = CudaOptions { devices: Some(1), ..CudaOptions::default() };
        match open_cuda(&options) {
            Ok(devices) => {
                let scale = scale_bits.map_or(Scale::FULL, |bits| Scale { bits });
                Self::new(Session::new(devices)?, scale)
            }
            Err(reason) if std::env::var("WARPJOIN_REQUIRE_GPU").is_ok_and(|value| value == "1") => Err(reason.into()),
            Err(reason) => {
                eprintln!("no GPU ({reason}): a simulated device at tiny sizes, WHOSE TIMES MEAN NOTHING");
                let scale = scale_bits.map_or(Scale::TINY, |bits| Scale { bits });
                Self::new(Session::new(open_simulated(&SimOptions::default())?)?, scale)
            }
        }
    }

    /// The session that operators run in.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A stream of the device, for data and kernels of a line.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// How much smaller than asked the data is.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Whether times mean something.
    pub fn is_gpu(&self) -> bool {
        self.device.info().kind == DeviceKind::Cuda
    }

    /// Device time of what `enqueue` puts on the stream; waits for it.
    ///
    /// # Errors
    /// When the work fails.
    pub fn timed(&self, enqueue: impl FnOnce(&Stream) -> Result<()>) -> Result<u64> {
        let begun = self.stream.record()?;
        enqueue(&self.stream)?;
        let ended = self.stream.record()?;
        self.stream.synchronize()?;
        Ok(ended.elapsed_ns(&begun)?)
    }

    /// A kernel of the benches' own sources.
    pub(crate) fn kernel(&self, file: (&str, &str), entries: &[&str], entry: &str) -> Result<Kernel> {
        Ok(self.device.compile(&module(file, entries))?.kernel(entry)?)
    }

    /// As many blocks as there are tiles, but no more than fill the device several times.
    pub(crate) fn launch(&self, tiles: u64) -> Launch {
        let fill = u64::from(self.device.info().multiprocessors) * 64;
        Launch { blocks: tiles.clamp(1, fill) as u32, block_threads: THREADS, shared_bytes: 0 }
    }

    /// Launches a kernel of one row a thread.
    pub(crate) fn launch_rows(&self, kernel: &Kernel, rows: u64, args: &[Arg<'_>]) -> Result<()> {
        Ok(self.stream.launch(kernel, self.launch(rows.div_ceil(THREADS.into())), args)?)
    }

    /// Reads 64-bit words once the stream has got there.
    pub(crate) fn read_words<const WORDS: usize>(&self, buffer: &Buffer) -> Result<[u64; WORDS]> {
        let mut words = [0u64; WORDS];
        self.stream.read(buffer, 0, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words)
    }
}

/// A module of one of the benches' own sources (name, text).
pub(crate) fn module((name, text): (&str, &str), entries: &[&str]) -> ModuleSource {
    ModuleSource {
        name: name.into(),
        text: text.into(),
        entries: entries.iter().map(|&entry| entry.into()).collect(),
        defines: definitions(),
    }
}

/// The benches' own kernels, so that tests can compile them for every architecture.
pub fn kernel_modules() -> Vec<ModuleSource> {
    vec![data_module(), limits_module(), check_module(), crate::lines::sort::check_module()]
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::Engine(error.into())
    }
}
