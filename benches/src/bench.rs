//! [`Bench`]: a session with its devices, and the scale of the data.
//!
//! Must not know what is measured.

use std::ops::Deref;
use std::sync::Arc;

use warpjoin::Session;
use warpjoin_device::{
    Arg, Buffer, CudaOptions, Device, Kernel, Launch, SimOptions, Stream, open_cuda, open_simulated,
};

use crate::shared::{THREADS, module};
use crate::{Error, Result};

/// Divides all sizes by a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Numbers of rows are divided by 2^bits.
    pub bits: u32,
}

impl Scale {
    /// Full sizes, for which targets are set.
    pub const FULL: Scale = Scale { bits: 0 };
    /// Sizes for a simulated device.
    pub const TINY: Scale = Scale { bits: 16 };
    const ROWS_MIN: u64 = 64;

    /// `2^bits` rows divided by the scale, but at least 64.
    pub fn rows(self, bits: u32) -> u64 {
        (1u64 << bits >> self.bits).max(Self::ROWS_MIN)
    }

    /// Whether sizes are not reduced.
    pub fn is_full(self) -> bool {
        self.bits == 0
    }
}

/// A session on one device or several.
pub struct Bench {
    session: Arc<Session>,
    members: Vec<Member>,
    scale: Scale,
}

/// A device of a bench.
pub struct Member {
    device: Device,
    /// For data, limits and checks. Operators use their own streams.
    stream: Stream,
}

impl Bench {
    /// A bench on the devices of `session`.
    ///
    /// # Errors
    /// When a device cannot create a stream.
    pub fn new(session: Arc<Session>, scale: Scale) -> Result<Self> {
        let member = |device: &Device| Ok(Member { device: device.clone(), stream: device.create_stream()? });
        let members = session.devices().iter().map(member).collect::<Result<_>>()?;
        Ok(Self { session, members, scale })
    }

    /// A bench on the first GPU, or on the first n of WARPJOIN_BENCH_DEVICES=n. Without a GPU, a bench on simulated devices
    /// with tiny sizes, with a warning.
    ///
    /// With WARPJOIN_REQUIRE_GPU=1, the lack of a GPU is an error. WARPJOIN_BENCH_SCALE_BITS=n divides
    /// all sizes by 2^n.
    ///
    /// # Errors
    /// When the devices cannot be opened.
    pub fn open() -> Result<Self> {
        let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
        let scale_bits = number("WARPJOIN_BENCH_SCALE_BITS");
        let devices = number("WARPJOIN_BENCH_DEVICES").map_or(1, |devices| devices as usize);
        let options = CudaOptions { devices: Some(devices), ..CudaOptions::default() };
        match open_cuda(&options) {
            Ok(devices) => {
                let scale = scale_bits.map_or(Scale::FULL, |bits| Scale { bits });
                Self::new(Session::new(devices)?, scale)
            }
            Err(reason) if std::env::var("WARPJOIN_REQUIRE_GPU").is_ok_and(|value| value == "1") => Err(reason.into()),
            Err(reason) => {
                eprintln!("no GPU ({reason}): using simulated devices with tiny sizes, TIMES ARE MEANINGLESS");
                let scale = scale_bits.map_or(Scale::TINY, |bits| Scale { bits });
                Self::new(Session::new(open_simulated(&SimOptions { devices, ..SimOptions::default() })?)?, scale)
            }
        }
    }

    /// The session in which operators run.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Its devices; never none.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The scale of the data.
    pub fn scale(&self) -> Scale {
        self.scale
    }
}

/// Limits, and lines of one device, use the first.
impl Deref for Bench {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.members[0]
    }
}

impl Member {
    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The stream for data and for the benches' own kernels.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Device time in nanoseconds of the work that `enqueue` adds to the stream. Waits for it.
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

    /// A launch with one block per tile, but at most 64 blocks per multiprocessor.
    pub(crate) fn launch(&self, tiles: u64) -> Launch {
        let fill = u64::from(self.device.info().multiprocessors) * 64;
        Launch { blocks: tiles.clamp(1, fill) as u32, block_threads: THREADS, shared_bytes: 0 }
    }

    /// Launches a kernel with one thread per row.
    pub(crate) fn launch_rows(&self, kernel: &Kernel, rows: u64, args: &[Arg<'_>]) -> Result<()> {
        Ok(self.stream.launch(kernel, self.launch(rows.div_ceil(THREADS.into())), args)?)
    }

    /// Reads 64-bit words after the work enqueued on the stream.
    pub(crate) fn read_words<const WORDS: usize>(&self, buffer: &Buffer) -> Result<[u64; WORDS]> {
        let mut words = [0u64; WORDS];
        self.stream.read(buffer, 0, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words)
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::Engine(error.into())
    }
}
