//! Stages host-resident columns: copies them to a device chunk by chunk; the next chunk is copied while a kernel reads
//! this one.
//!
//! Chunks are copied on their own stream. A chunk is freed there after the kernel that reads it, so that two chunks
//! alternate in the same memory. Must not know what kernels do with the columns.

use std::collections::VecDeque;

use warpjoin_codegen::{Binding, GeneratedPipeline};
use warpjoin_columns::Result;
use warpjoin_device::{Buffer, Cause, Event, Stream};

use super::lane::Job;
use crate::exec::relation::{Part, Relation, Source, TableColumns};

/// Bytes of a chunk: large enough to saturate the bus (more than a megabyte) and to amortize launches.
const CHUNK_BYTES: u64 = 64 << 20;
/// A chunk takes at most an eighth of a device's free memory. Two chunks are on the device at a time.
const FREE_DIVISOR: u64 = 8;
/// Minimum bytes to stage; smaller columns are read in place.
const BYTES_MIN: u64 = 1 << 20;
/// Maximum chunks on the device at a time.
const CHUNKS_MAX: usize = 2;
/// Buffers have a multiple of this, so that kernels can read whole vectors.
const ALIGNMENT_BYTES: u64 = 16;

/// A part of a source column that lies in host memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostPart {
    part: Part,
    /// Bits of a row.
    bits: u64,
}

/// The chunks of a pipeline on one device.
pub(super) struct Staging {
    /// The stream for copies; `None` before the first copy.
    copies: Option<Stream>,
    /// Chunks on the device, in the order in which they were copied.
    chunks: VecDeque<StagedChunk>,
    /// The device had no room for a chunk: columns are read in place.
    has_no_room: bool,
    /// Bytes copied so far.
    pub(super) bytes: u64,
}

/// Parts of columns of one chunk.
pub(super) struct StagedChunk {
    /// Its job (`Job::chunks_of`), and its number.
    id: (usize, u64),
    buffers: Vec<(Part, Buffer)>,
    /// Reached when the copies have ended.
    ready: Event,
    /// Whether the kernel's stream waits for `ready`.
    is_awaited: bool,
    /// Reached when the kernel that reads the chunk has ended.
    done: Option<Event>,
}

impl StagedChunk {
    /// A part of a source column, from the chunk's first row; `None`: it was not staged.
    pub(super) fn buffer(&self, part: Part) -> Option<&Buffer> {
        self.buffers.iter().find(|(of, _)| *of == part).map(|(_, buffer)| buffer)
    }
}

/// The parts of columns that a pipeline reads from host memory.
pub(super) fn parts_on_host(
    relation: &Relation,
    columns: &TableColumns,
    generated: &GeneratedPipeline,
    device: usize,
) -> Vec<HostPart> {
    let source = &relation.source;
    let validity_bits = match source {
        Source::Table(..) => 1,
        _ => 8,
    };
    let mut parts: Vec<HostPart> = vec![];
    for binding in &generated.bindings {
        let (part, bits) = match *binding {
            Binding::SourceValues(column) => (Part::Values(column), 8 * source.width_bytes(column)),
            Binding::SourceValidity(column) => (Part::Validity(column), validity_bits),
            _ => continue,
        };
        let is_on_host = columns.buffer(source, device, part).is_some_and(Buffer::is_on_host);
        if is_on_host && !parts.iter().any(|known| known.part == part) {
            parts.push(HostPart { part, bits });
        }
    }
    parts
}

/// Total bits of a row in these parts.
pub(super) fn bits_of(parts: &[HostPart]) -> u64 {
    parts.iter().map(|part| part.bits).sum()
}

/// Rows of a chunk for staging a pipeline's host-resident columns (`on_host`: those of each device); `None`: all
/// columns are on the devices, or those on the host are small.
pub(super) fn staged_rows(relation: &Relation, on_host: &[Vec<HostPart>], streams: &[Stream]) -> Option<u64> {
    let rows_of = |(device, stream): (usize, &Stream)| {
        let bits = bits_of(&on_host[device]);
        let is_large = relation.source.shard_rows(device).saturating_mul(bits) / 8 >= BYTES_MIN;
        let chunk_bytes = CHUNK_BYTES.min(stream.free_bytes() / FREE_DIVISOR);
        (is_large && chunk_bytes >= BYTES_MIN / 4).then(|| chunk_bytes.saturating_mul(8) / bits)
    };
    streams.iter().enumerate().filter_map(rows_of).min()
}

impl Staging {
    pub(super) fn new() -> Self {
        Self { copies: None, chunks: VecDeque::new(), has_no_room: false, bytes: 0 }
    }

    /// The staged columns of a chunk, ready for work enqueued on `stream` from now on; `None`: nothing is staged,
    /// columns are on the device or read in place.
    pub(super) fn chunk(
        &mut self,
        stream: &Stream,
        device: usize,
        job: &Job<'_>,
        chunk: u64,
    ) -> Result<Option<&StagedChunk>> {
        self.copy(stream, device, job, chunk)?;
        let id = (job.chunks_of, chunk);
        let Some(staged) = self.chunks.iter_mut().find(|staged| staged.id == id) else { return Ok(None) };
        if !staged.is_awaited {
            stream.wait(&staged.ready)?;
            staged.is_awaited = true;
        }
        // A kernel of it comes again, which may end later.
        staged.done = None;
        Ok(Some(staged))
    }

    /// Records that all kernels of a chunk are enqueued.
    pub(super) fn launched(&mut self, stream: &Stream, job: &Job<'_>, chunk: u64) -> Result<()> {
        let id = (job.chunks_of, chunk);
        if let Some(staged) = self.chunks.iter_mut().find(|staged| staged.id == id) {
            staged.done = Some(stream.record()?);
        }
        Ok(())
    }

    /// Enqueues the copy of a chunk's columns to the device, unless it was enqueued before.
    pub(super) fn copy(&mut self, stream: &Stream, device: usize, job: &Job<'_>, chunk: u64) -> Result<()> {
        let id = (job.chunks_of, chunk);
        let Some(chunk_rows) = job.chunk_rows else { return Ok(()) };
        let parts = &job.on_host[device];
        if self.has_no_room || parts.is_empty() || self.chunks.iter().any(|staged| staged.id == id) {
            return Ok(());
        }
        let copies = match &self.copies {
            Some(copies) => copies.clone(),
            None => {
                let created = stream.device().create_stream()?.within(stream.budget_bytes());
                self.copies.insert(created).clone()
            }
        };
        // The memory of the oldest chunk is free behind its kernel.
        while self.chunks.len() >= CHUNKS_MAX {
            self.retire(stream)?;
        }
        let source = &job.relation.source;
        let all_rows = source.shard_rows(device);
        let first = chunk.saturating_mul(chunk_rows).min(all_rows);
        let rows = chunk_rows.min(all_rows - first);
        let mut buffers = vec![];
        for &HostPart { part, bits } in parts {
            let from = job.columns.buffer(source, device, part);
            let Some(from) = from else { continue };
            let (offset, padded) = (first * bits / 8, (rows * bits).div_ceil(8).next_multiple_of(ALIGNMENT_BYTES));
            let bytes = padded.min(from.bytes().saturating_sub(offset));
            let to = match copies.alloc(padded.max(ALIGNMENT_BYTES)) {
                Err(error) if error.cause() == Cause::OutOfMemory => {
                    // Nobody else waits for what is copied by now.
                    copies.synchronize()?;
                    self.has_no_room = true;
                    return Ok(());
                }
                allocated => allocated?,
            };
            copies.copy((from, offset), (&to, 0), bytes)?;
            self.bytes += bytes;
            buffers.push((part, to));
        }
        let ready = copies.record()?;
        self.chunks.push_back(StagedChunk { id, buffers, ready, is_awaited: false, done: None });
        Ok(())
    }

    /// Frees the oldest chunk, in stream order after the kernel that reads it.
    fn retire(&mut self, stream: &Stream) -> Result<()> {
        let (Some(oldest), Some(copies)) = (self.chunks.front(), &self.copies) else { return Ok(()) };
        match &oldest.done {
            Some(done) => copies.wait(done)?,
            // Nobody knows when.
            None if oldest.is_awaited => stream.synchronize()?,
            // Nobody has waited for what it was copied from.
            None => copies.synchronize()?,
        }
        self.chunks.pop_front();
        Ok(())
    }

    /// Frees all chunks, in stream order after the kernels that read them.
    pub(super) fn end(&mut self, stream: &Stream) {
        while !self.chunks.is_empty() {
            if let Err(error) = self.retire(stream) {
                log::debug!("chunks of a device that fails: {error}");
                // Whatever it has begun ends before the memory goes.
                let waits = [Some(stream), self.copies.as_ref()];
                waits.into_iter().flatten().for_each(|stream| drop(stream.synchronize()));
                self.chunks.clear();
            }
        }
    }
}
