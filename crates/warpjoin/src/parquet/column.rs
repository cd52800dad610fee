//! Decodes a column on one device.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpjoin_device::{Buffer, Event, Ptr, Stream};
use warpjoin_kernels::common::{PackValidityParams, control, status};
use warpjoin_kernels::decode::{BoundsParams, NarrowParams};

use super::batch::{Batch, DeviceBatch, batches};
use super::error::{DecodeError, declined};
use super::kernels::{launch_over_rows, read_control, warps_over_rows};
use super::numbers::Numbers;
use super::stored::{Stored, StoredColumn};
use super::text::Strings;
use crate::column::{Dictionary, Domain, Layout};
use crate::table::BUFFER_ALIGNMENT_BYTES;

/// Bytes of pages without compression that are on the device at a time, unless a chunk has more: enough pages to keep it busy.
const BATCH_BYTES_MAX: u64 = 1 << 30;
/// The least of them, where memory is scarce.
const BATCH_BYTES_MIN: u64 = 64 << 20;

/// A decoded column on one device.
#[derive(Debug)]
pub struct DecodedColumn {
    /// What the values may be: the domain of the column, or of codes.
    pub domain: Domain,
    /// Of strings: what the codes stand for.
    pub dictionary: Option<Arc<Dictionary>>,
    /// Rows x width of the layout, 0 where null; `None` with width 0 or without rows.
    pub values: Option<Buffer>,
    /// A bit a row, set where valid; `None` of columns without levels, or without rows.
    pub validity: Option<Buffer>,
    /// Rows that are null.
    pub nulls: u64,
    /// Decompressing and decoding on the device, in ns, without bringing the pages there. For strings, the host's part of
    /// making the dictionary is in it.
    pub kernel_ns: u64,
}

/// Decodes a column of an Arrow type on the device of a stream, and waits for it.
///
/// # Errors
/// [`DecodeError::Declined`] where kernels can't decode it, its bytes are damaged, or a value leaves the domain.
pub fn decode_column(
    stream: &Stream,
    column: &StoredColumn<'_>,
    data_type: &DataType,
) -> Result<DecodedColumn, DecodeError> {
    let rows: u64 = column.chunks.iter().map(|chunk| chunk.rows).sum();
    let control = stream.alloc_filled(control::BYTES, 0)?;
    let is_nullable = column.is_nullable && rows > 0;
    let decoder =
        Decoder { stream, column, rows, validity: is_nullable.then(|| stream.alloc(rows)).transpose()?, control };
    let mut decoded = match column.stored {
        Stored::Strings => decoder.strings(data_type)?,
        _ => decoder.numbers()?,
    };
    if let Some(bytes) = decoder.validity {
        let bits = padded(stream, rows.div_ceil(32) * 4)?;
        let counted = stream.alloc_filled(control::BYTES, 0)?;
        let params =
            PackValidityParams { rows, bytes: Ptr::of(&bytes), words: Ptr::of(&bits), control: Ptr::of(&counted) };
        launch_over_rows(stream, "pack_validity", rows, &params)?;
        decoded.nulls = read_control(stream, &counted)?[control::ROWS];
        decoded.validity = Some(bits);
    }
    check_control(stream, &decoder.control)?;
    Ok(decoded)
}

/// A buffer of which the last bytes are 0, as columns of tables have it.
fn padded(stream: &Stream, bytes: u64) -> Result<Buffer, DecodeError> {
    let all = bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES).max(BUFFER_ALIGNMENT_BYTES);
    let buffer = stream.alloc(all)?;
    let from = bytes.saturating_sub(BUFFER_ALIGNMENT_BYTES);
    stream.fill(&buffer, from, all - from, 0)?;
    Ok(buffer)
}

fn check_control(stream: &Stream, control: &Buffer) -> Result<(), DecodeError> {
    if read_control(stream, control)?[control::STATUS] & status::DAMAGED != 0 {
        return declined("a page is damaged, or has values that its statistics exclude");
    }
    Ok(())
}

struct Decoder<'a> {
    stream: &'a Stream,
    column: &'a StoredColumn<'a>,
    rows: u64,
    /// A byte a row.
    validity: Option<Buffer>,
    control: Buffer,
}

impl Decoder<'_> {
    fn load(&self, batch: &Batch<'_>, first_row: u64) -> Result<DeviceBatch<'_>, DecodeError> {
        DeviceBatch::load(self.stream, &self.control, batch, self.column.stored, self.validity_from(first_row))
    }

    fn validity_from(&self, row: u64) -> Option<Ptr<'_, *mut u8>> {
        self.validity.as_ref().map(|validity| Ptr::at_byte(validity, row))
    }

    fn numbers(&self) -> Result<DecodedColumn, DecodeError> {
        let Self { stream, column, rows, .. } = *self;
        let domain = column.domain.unwrap_or_else(|| column.stored.domain());
        let width = Layout::of(domain).width_bytes;
        // Values of constants are decoded, too, to see that they are.
        let width_bytes = u64::from(width.max(1));
        let values = padded(stream, rows * width_bytes)?;
        let numbers = Numbers { stream, control: &self.control, stored: column.stored, domain, width_bytes };
        // They are there with and without compression, and those of other columns beside them.
        let batch_bytes = (stream.free_bytes() / 16).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
        let (mut first_row, mut spans) = (0, vec![]);
        for batch in batches(column, batch_bytes)? {
            let batch = self.load(&batch, first_row)?;
            self.spread(&batch, &values, width_bytes, first_row, |target| numbers.decode(&batch, target))?;
            first_row += batch.rows;
            spans.push((batch.begin, stream.record()?));
        }
        if let (Domain::Int { min, .. }, None, true) = (domain, column.domain, rows > 0) {
            let bounds = self.bounds(&values, width)?;
            let (domain, values) = self.narrowed(values, width, min, bounds)?;
            return self.finish(domain, None, values, &spans);
        }
        self.finish(domain, None, (width > 0).then_some(values), &spans)
    }

    /// The smallest and the largest value as they are stored; `None` where all rows are null.
    fn bounds(&self, values: &Buffer, width: u32) -> Result<Option<(u128, u128)>, DecodeError> {
        let entry = format!("column_bounds_{width}");
        let warps = warps_over_rows(self.stream, self.rows);
        let found = self.stream.alloc(warps * 32)?;
        let params = BoundsParams {
            rows: self.rows,
            values: Ptr::of(values),
            validity: self.validity_from(0).map(Ptr::to_const),
            bounds: Ptr::of(&found),
        };
        launch_over_rows(self.stream, &entry, self.rows, &params)?;
        let mut of_warps = vec![[0u128; 2]; warps as usize];
        self.stream.read(&found, 0, bytemuck::cast_slice_mut(&mut of_warps))?;
        // Values of 16 bytes are signed.
        let flip = if width == 16 { 1 << 127 } else { 0 };
        let known = of_warps.into_iter().map(|[min, max]| (min ^ flip, max ^ flip)).filter(|(min, max)| min <= max);
        let bounds = known.reduce(|(min, max), (low, high)| (min.min(low), max.max(high)));
        Ok(bounds.map(|(min, max)| (min ^ flip, max ^ flip)))
    }

    /// Values of a domain that begins with `min` in the layout of what they really are.
    fn narrowed(
        &self,
        values: Buffer,
        width: u32,
        min: i128,
        bounds: Option<(u128, u128)>,
    ) -> Result<(Domain, Option<Buffer>), DecodeError> {
        // Of 16 bytes they are stored as they are.
        let stored_base = if width == 16 { 0 } else { min };
        let value_of = |stored: u128| (stored as i128).wrapping_add(stored_base);
        let (min, max) = bounds.map_or((0, 0), |(min, max)| (value_of(min), value_of(max)));
        let domain = Domain::Int { min, max };
        let layout = Layout::of(domain);
        if layout.width_bytes == 0 {
            return Ok((domain, None));
        }
        let subtracted = layout.base.wrapping_sub(stored_base);
        if layout.width_bytes == width && subtracted == 0 {
            return Ok((domain, Some(values)));
        }
        let narrow = padded(self.stream, self.rows * u64::from(layout.width_bytes))?;
        let params = NarrowParams {
            rows: self.rows,
            values: Ptr::of(&values),
            validity: self.validity_from(0).map(Ptr::to_const),
            base_low: subtracted as u64,
            base_high: (subtracted >> 64) as u64,
            width_bytes: layout.width_bytes.into(),
            target: Ptr::of(&narrow),
        };
        launch_over_rows(self.stream, &format!("narrow_{width}"), self.rows, &params)?;
        Ok((domain, Some(narrow)))
    }

    fn strings(&self, value_type: &DataType) -> Result<DecodedColumn, DecodeError> {
        let stream = self.stream;
        // Equal strings are looked for among all.
        let mut batches = batches(self.column, u64::MAX)?;
        let batch = batches.pop().unwrap_or_default();
        let pages_bytes = batch.iter().flat_map(|(_, pages)| pages).fold(0u64, |all, page| all + page.page_bytes);
        if pages_bytes > stream.free_bytes() / 4 {
            return declined(format!("strings of {pages_bytes} bytes are too many for the device at once"));
        }
        let batch = self.load(&batch, 0)?;
        let strings = Strings::find(stream, &self.control, &batch, value_type)?;
        // Damaged strings make no dictionary.
        check_control(stream, &self.control)?;
        let width_bytes = u64::from(Layout::of(strings.domain).width_bytes);
        let values = (width_bytes > 0).then(|| padded(stream, self.rows * width_bytes)).transpose()?;
        if let Some(values) = &values {
            self.spread(&batch, values, width_bytes, 0, |target| strings.decode(target))?;
        }
        let spans = [(batch.begin.clone(), stream.record()?)];
        self.finish(strings.domain, Some(strings.dictionary.clone()), values, &spans)
    }

    /// Has `decode` write the values of a batch side by side, and brings them to their rows from `first_row` on.
    fn spread(
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

    /// The column, without validity.
    fn finish(
        &self,
        domain: Domain,
        dictionary: Option<Arc<Dictionary>>,
        values: Option<Buffer>,
        spans: &[(Event, Event)],
    ) -> Result<DecodedColumn, DecodeError> {
        self.stream.synchronize()?;
        let kernel_ns = spans.iter().map(|(begin, end)| end.elapsed_ns(begin)).sum::<Result<u64, _>>()?;
        let values = values.filter(|_| self.rows > 0);
        Ok(DecodedColumn { domain, dictionary, values, validity: None, nulls: 0, kernel_ns })
    }
}
