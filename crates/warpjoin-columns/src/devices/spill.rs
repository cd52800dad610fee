//! Spills rows from a device, column by column: to host memory, or to a file if host memory has no room.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use warpjoin_device::{Buffer, Cause, DeviceError, Event, Stream};

use super::CopyLane;
use crate::Result;

/// Bytes written to or read from a file at a time.
const PIECE_BYTES: u64 = 16 << 20;

/// A column: the values of its rows, and the bytes of each.
pub type ColumnBytes = (Buffer, u64);

/// A file without a name, which the system removes once it is closed.
#[derive(Debug)]
struct SpillFile {
    folder: PathBuf,
    /// The file, and the number of bytes written so far.
    file: Mutex<(File, u64)>,
}

impl SpillFile {
    fn create(folder: &Path) -> Result<Arc<Self>> {
        let folder = folder.to_path_buf();
        let file = tempfile::tempfile_in(&folder).map_err(|error| failed(&folder, &error))?;
        Ok(Arc::new(Self { folder, file: Mutex::new((file, 0)) }))
    }

    /// Appends the columns of some rows, one after the other; returns where they begin.
    fn append(&self, stream: &Stream, columns: &[ColumnBytes], rows: u64) -> Result<u64> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, end) = &mut *file;
        let (begin, mut piece) = (*end, vec![]);
        let mut put = |bytes: &[u8]| {
            file.seek(SeekFrom::Start(*end))?;
            file.write_all(bytes)?;
            *end += bytes.len() as u64;
            io::Result::Ok(())
        };
        for (buffer, width) in columns {
            for (first, bytes) in pieces_of(0..rows * width) {
                piece.resize(bytes as usize, 0);
                stream.read(buffer, first, &mut piece)?;
                put(&piece).map_err(|error| failed(&self.folder, &error))?;
            }
        }
        Ok(begin)
    }

    /// Enqueues writes of bytes of the file to a buffer, from one of its bytes on.
    fn copy(&self, stream: &Stream, from: Range<u64>, (to, at): (&Buffer, u64)) -> Result<()> {
        let mut piece = vec![];
        let begin = from.start;
        for (first, bytes) in pieces_of(from) {
            piece.resize(bytes as usize, 0);
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            let read = file.0.seek(SeekFrom::Start(first)).and_then(|_| file.0.read_exact(&mut piece));
            drop(file);
            read.map_err(|error| failed(&self.folder, &error))?;
            stream.write(to, at + (first - begin), &piece)?;
        }
        Ok(())
    }
}

/// The begins and lengths of pieces of a range of bytes.
fn pieces_of(range: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let end = range.end;
    range.step_by(PIECE_BYTES as usize).map(move |first| (first, PIECE_BYTES.min(end - first)))
}

fn failed(folder: &Path, error: &io::Error) -> DeviceError {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space, or set",
        _ => "set",
    };
    let reason = format!("rows could not be spilled here: {error}; {advice} warpjoin.spill_path to another folder");
    DeviceError::File { path: folder.to_path_buf(), reason }
}

/// Spilled rows, column by column.
#[derive(Debug)]
pub struct SpilledColumns {
    widths: Vec<u64>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Buffers of the host, or of the device itself.
    Memory(Vec<Buffer>),
    File {
        file: Arc<SpillFile>,
        begin: u64,
        rows: u64,
    },
}

impl SpilledColumns {
    /// Rows that stay where they are.
    pub fn staying(columns: Vec<ColumnBytes>) -> Self {
        let (buffers, widths) = columns.into_iter().unzip();
        Self { widths, place: Place::Memory(buffers) }
    }

    /// Enqueues copies of some rows to columns of the same widths, from row `at` on; how many bytes come from the host.
    pub fn copy(&self, stream: &Stream, rows: Range<u64>, (targets, at): (&[&Buffer], u64)) -> Result<u64> {
        let mut copied = 0;
        let mut first_byte = 0;
        for ((number, &width), to) in self.widths.iter().enumerate().zip(targets) {
            let bytes = (rows.end - rows.start) * width;
            match &self.place {
                Place::Memory(buffers) => {
                    stream.copy((&buffers[number], rows.start * width), (to, at * width), bytes)?;
                    copied += if buffers[number].is_on_host() { bytes } else { 0 };
                }
                Place::File { file, begin, rows: all_rows } => {
                    let from = begin + first_byte + rows.start * width;
                    file.copy(stream, from..from + bytes, (to, at * width))?;
                    first_byte += all_rows * width;
                    copied += bytes;
                }
            }
        }
        Ok(copied)
    }
}

/// Spills rows from a device. Their device buffers are freed after the copies.
pub struct Outbound<'p> {
    lane: CopyLane,
    under_way: VecDeque<(Vec<ColumnBytes>, Event)>,
    /// The folder for files, if allowed.
    folder: Option<&'p Path>,
    file: Option<Arc<SpillFile>>,
}

impl<'p> Outbound<'p> {
    /// For work on a stream.
    pub fn new(kernels: &Stream, folder: Option<&'p Path>) -> Result<Self> {
        Ok(Self { lane: CopyLane::new(kernels)?, under_way: VecDeque::new(), folder, file: None })
    }

    /// Spills `rows` rows, after the kernels that write their columns.
    pub fn send(&mut self, columns: Vec<ColumnBytes>, rows: u64) -> Result<SpilledColumns> {
        let widths: Vec<u64> = columns.iter().map(|(_, width)| *width).collect();
        let room =
            widths.iter().map(|width| self.lane.kernels().alloc_host(rows * width)).collect::<Result<Vec<_>, _>>();
        let on_host = match (room, self.folder) {
            (Err(error), Some(folder)) if error.cause() == Cause::OutOfMemory => {
                let file = match &self.file {
                    Some(file) => Arc::clone(file),
                    None => Arc::clone(self.file.insert(SpillFile::create(folder)?)),
                };
                let begin = file.append(self.lane.kernels(), &columns, rows)?;
                return Ok(SpilledColumns { widths, place: Place::File { file, begin, rows } });
            }
            (room, _) => room?,
        };
        let copied = self.lane.enqueue(|copies| {
            for ((from, width), to) in columns.iter().zip(&on_host) {
                copies.copy((from, 0), (to, 0), rows * width)?;
            }
            Ok(())
        })?;
        self.under_way.push_back((columns, copied));
        Ok(SpilledColumns { widths, place: Place::Memory(on_host) })
    }

    /// Has what follows on the stream wait for copies, the oldest first, until at most `count` are under way.
    pub fn retire(&mut self, count: usize) -> Result<()> {
        self.lane.retire(&mut self.under_way, count)
    }
}
