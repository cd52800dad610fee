//! The rows of a column that one device decodes.

use std::ops::Range;
use std::sync::Arc;

use warpjoin_columns::Error;
use warpjoin_columns::column::{Dictionary, Domain, Layout};
use warpjoin_columns::table::BUFFER_ALIGNMENT_BYTES;
use warpjoin_device::{Buffer, Event, Ptr, Stream};
use warpjoin_kernels::common::{PackValidityParams, control, status};
use warpjoin_kernels::decode::{BoundsParams, NarrowParams};

use super::batch::{Batches, ChunkPages, DeviceBatch};
use super::error::{DecodeError, declined};
use super::kernels::{launch_over_rows, read_control, warps_over_rows};
use super::numbers::Numbers;
use super::stored::StoredColumn;

/// Maximum decompressed bytes on the device at a time, unless a chunk has more.
const BATCH_BYTES_MAX: u64 = 1 << 30;
/// The same if memory is scarce.
const BATCH_BYTES_LEAST: u64 = 64 << 20;

/// A decoded column on one device.
#[derive(Debug)]
pub struct DecodedColumn {
    /// The domain of the column's values, or of codes.
    pub domain: Domain,
    /// For strings: the dictionary of the codes.
    pub dictionary: Option<Arc<Dictionary>>,
    /// Rows x width of the layout, 0 where null; `None` with width 0 or without rows.
    pub values: Option<Buffer>,
    /// One bit for each row, set where valid; `None` for columns without definition levels, or without rows.
    pub validity: Option<Buffer>,
    /// Rows that are null.
    pub nulls: u64,
    /// Time of decompressing and decoding on the device, in ns, without the upload of pages. For strings, it includes
    /// the host's time for making the dictionary.
    pub kernel_ns: u64,
}

/// Events around the kernels of a batch.
pub(super) type Spans = Vec<(Event, Event)>;

/// The rows of a part, and the row groups that contain them. Row groups are decoded as a whole.
pub(super) struct Part<'a> {
    pub(super) stream: &'a Stream,
    /// Reports damaged pages.
    pub(super) control: Buffer,
    /// The column, with only these row groups.
    column: StoredColumn<'a>,
    /// Rows of the row groups before the part's.
    skipped: u64,
    rows: u64,
    /// One byte for each row of the row groups.
    validity: Option<Buffer>,
}

impl<'a> Part<'a> {
    /// A part with the row groups that contain its rows.
    pub(super) fn new(stream: &'a Stream, column: &StoredColumn<'a>, rows: Range<u64>) -> Result<Self, DecodeError> {
        let (mut first_row, mut chunks, mut skipped) = (0, 0..0, 0);
        for (number, chunk) in column.chunks.iter().enumerate() {
            let end = first_row + chunk.rows;
            if end <= rows.start {
                chunks = number + 1..number + 1;
            } else if first_row < rows.end {
                if chunks.is_empty() {
                    skipped = rows.start - first_row;
                }
                chunks.end = number + 1;
            }
            first_row = end;
        }
        Self::of_chunks(stream, StoredColumn { chunks: &column.chunks[chunks], ..*column }, skipped, rows)
    }

    /// A part with all row groups.
    pub(super) fn of_all(stream: &'a Stream, column: &StoredColumn<'a>, rows: Range<u64>) -> Result<Self, DecodeError> {
        Self::of_chunks(stream, *column, rows.start, rows)
    }

    fn of_chunks(
        stream: &'a Stream,
        column: StoredColumn<'a>,
        skipped: u64,
        rows: Range<u64>,
    ) -> Result<Self, DecodeError> {
        let mut part = Self {
            stream,
            control: stream.alloc_filled(control::BYTES, 0)?,
            column,
            skipped,
            rows: rows.end - rows.start,
            validity: None,
        };
        if column.is_nullable && part.rows > 0 {
            part.validity = Some(stream.alloc(column.rows())?);
        }
        Ok(part)
    }

    fn load(&self, batch: &[ChunkPages<'_>], first_row: u64) -> Result<DeviceBatch<'_>, DecodeError> {
        DeviceBatch::load(self.stream, &self.control, batch, self.column.stored, self.validity_from(first_row))
    }

    /// Loads all row groups at once, to find equal strings among all of them.
    pub(super) fn load_all(&self) -> Result<DeviceBatch<'_>, DecodeError> {
        let batch = Batches::new(self.column, u64::MAX).next()?;
        let pages = batch.iter().flat_map(|chunk| &chunk.pages);
        let pages_bytes = pages.fold(0u64, |all, page| all.saturating_add(page.page_bytes));
        if pages_bytes > self.stream.free_bytes() / 4 {
            let why = format!("strings of {pages_bytes} bytes are too many for the device at once");
            return Err(DecodeError::NoRoom(why));
        }
        self.load(&batch, 0)
    }

    /// The validity from a row of the row groups on.
    fn validity_from(&self, row: u64) -> Option<Ptr<'_, *mut u8>> {
        self.validity.as_ref().map(|validity| Ptr::at_byte(validity, row))
    }

    /// Room for the values of all row groups.
    pub(super) fn room(&self, width_bytes: u64) -> Result<Buffer, DecodeError> {
        padded(self.stream, self.column.rows() * width_bytes)
    }

    /// The values of all row groups, less the base of their domain.
    pub(super) fn numbers(&self, domain: Domain, width_bytes: u64) -> Result<(Buffer, Spans), DecodeError> {
        let stream = self.stream;
        let values = self.room(width_bytes)?;
        let numbers = Numbers { stream, control: &self.control, stored: self.column.stored, domain, width_bytes };
        // They are there with and without compression, and those of other columns beside them.
        let batch_bytes = (stream.free_bytes() / 16).clamp(BATCH_BYTES_LEAST, BATCH_BYTES_MAX);
        let (mut first_row, mut spans) = (0, vec![]);
        let mut batches = Batches::new(self.column, batch_bytes);
        loop {
            let batch = batches.next()?;
            if batch.is_empty() {
                break;
            }
            let batch = self.load(&batch, first_row)?;
            self.spread(&batch, &values, width_bytes, first_row, |target| numbers.decode(&batch, target))?;
            first_row += batch.rows;
            spans.push((batch.begin, stream.record()?));
        }
        Ok((values, spans))
    }

    /// Lets `decode` write the values of a batch contiguously, and moves them to their rows, from `first_row`.
    pub(super) fn spread(
        &self,
        batch: &DeviceBatch<'_>,
        values: &Buffer,
        width_bytes: u64,
        first_row: u64,
        decode: impl FnOnce(Ptr<'_, *mut u8>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let target = Ptr::at_byte(values, first_row * width_bytes);
        let Some(validity) = self.validity_from(first_row) else { return decode(target) };
        let dense = self.stream.alloc((batch.rows * width_bytes).max(1))?;
        decode(Ptr::of(&dense))?;
        batch.spread(&dense, width_bytes, validity, target)
    }

    /// The smallest and the largest value of the part, whose layout begins at `min`; `None` if all rows are null.
    pub(super) fn bounds(
        &self,
        values: &Buffer,
        layout: Layout,
        min: i128,
    ) -> Result<Option<(i128, i128)>, DecodeError> {
        if self.rows == 0 {
            return Ok(None);
        }
        let warps = warps_over_rows(self.stream, self.rows);
        let found = self.stream.alloc(warps * 32)?;
        let params = BoundsParams {
            rows: self.rows,
            values: Ptr::at_byte(values, self.skipped * u64::from(layout.width_bytes)),
            validity: self.validity_from(self.skipped).map(Ptr::to_const),
            bounds: Ptr::of(&found),
        };
        launch_over_rows(self.stream, &format!("column_bounds_{}", layout.width_bytes), self.rows, &params)?;
        let mut of_warps = vec![[0u128; 2]; warps as usize];
        self.stream.read(&found, 0, bytemuck::cast_slice_mut(&mut of_warps))?;
        // Those of 16 bytes are signed, and stored as they are.
        let (flip, base) = if layout.width_bytes == 16 { (1 << 127, 0) } else { (0, min) };
        let known = of_warps.into_iter().map(|[min, max]| (min ^ flip, max ^ flip)).filter(|(min, max)| min <= max);
        let value_of = |stored: u128| ((stored ^ flip) as i128).wrapping_add(base);
        let bounds = known.reduce(|(min, max), (low, high)| (min.min(low), max.max(high)));
        Ok(bounds.map(|(min, max)| (value_of(min), value_of(max))))
    }

    /// The values of the part in another layout; `None` if that layout stores nothing.
    pub(super) fn narrowed(&self, values: Buffer, from: Layout, to: Layout) -> Result<Option<Buffer>, DecodeError> {
        let subtracted = to.base.wrapping_sub(from.base);
        if to.width_bytes == 0 || self.rows == 0 {
            return Ok(None);
        }
        if to.width_bytes == from.width_bytes && subtracted == 0 {
            return self.cut(values, from.width_bytes.into());
        }
        let narrow = padded(self.stream, self.rows * u64::from(to.width_bytes))?;
        let params = NarrowParams {
            rows: self.rows,
            values: Ptr::at_byte(&values, self.skipped * u64::from(from.width_bytes)),
            validity: self.validity_from(self.skipped).map(Ptr::to_const),
            base_low: subtracted as u64,
            base_high: (subtracted >> 64) as u64,
            width_bytes: to.width_bytes.into(),
            target: Ptr::of(&narrow),
        };
        launch_over_rows(self.stream, &format!("narrow_{}", from.width_bytes), self.rows, &params)?;
        Ok(Some(narrow))
    }

    /// The values of the part among those of its row groups; `None` without rows.
    pub(super) fn cut(&self, values: Buffer, width_bytes: u64) -> Result<Option<Buffer>, DecodeError> {
        if self.rows == 0 {
            return Ok(None);
        }
        if self.rows == self.column.rows() {
            return Ok(Some(values));
        }
        let cut = padded(self.stream, self.rows * width_bytes)?;
        self.stream.copy((&values, self.skipped * width_bytes), (&cut, 0), self.rows * width_bytes)?;
        Ok(Some(cut))
    }

    /// Waits, and fails if a page is damaged.
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        match read_control(self.stream, &self.control)?[control::STATUS] {
            0 => Ok(()),
            found if found & status::DAMAGED != 0 => {
                declined("a page is damaged, or has values that its statistics exclude")
            }
            found => Err(Error::internal(format!("decoding ended with status {found}")).into()),
        }
    }

    /// The part with its validity, once it is there.
    pub(super) fn finish(
        &self,
        domain: Domain,
        dictionary: Option<Arc<Dictionary>>,
        values: Option<Buffer>,
        spans: &[(Event, Event)],
    ) -> Result<DecodedColumn, DecodeError> {
        let (stream, rows) = (self.stream, self.rows);
        let (mut validity, mut nulls) = (None, 0);
        if let Some(bytes) = self.validity_from(self.skipped) {
            let bits = padded(stream, rows.div_ceil(32) * 4)?;
            let counted = stream.alloc_filled(control::BYTES, 0)?;
            let params =
                PackValidityParams { rows, bytes: bytes.to_const(), words: Ptr::of(&bits), control: Ptr::of(&counted) };
            launch_over_rows(stream, "pack_validity", rows, &params)?;
            nulls = read_control(stream, &counted)?[control::ROWS];
            validity = Some(bits);
        }
        self.check()?;
        let kernel_ns = spans.iter().map(|(begin, end)| end.elapsed_ns(begin)).sum::<Result<u64, _>>()?;
        Ok(DecodedColumn { domain, dictionary, values, validity, nulls, kernel_ns })
    }
}

/// A buffer padded with 0, as columns of tables are.
fn padded(stream: &Stream, bytes: u64) -> Result<Buffer, DecodeError> {
    let all = bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES).max(BUFFER_ALIGNMENT_BYTES);
    let buffer = stream.alloc(all)?;
    let from = bytes.saturating_sub(BUFFER_ALIGNMENT_BYTES);
    stream.fill(&buffer, from, all - from, 0)?;
    Ok(buffer)
}
