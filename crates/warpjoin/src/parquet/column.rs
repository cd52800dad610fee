//! Decodes a column on one device.

use std::ops::Range;

use warpjoin_device::{Buffer, Event, Ptr, Stream};
use warpjoin_kernels::common::{PackValidityParams, control, status};
use warpjoin_kernels::decode::{
    BitsParams, DecompressParams, IndicesParams, LevelsParams, PlainParams, SpreadParams, VALUES_BIG_ENDIAN,
    VALUES_SIGNED, VALUES_UNSIGNED, page,
};

use super::kernels::{launch_over_pages, launch_over_rows};
use super::pages::{ColumnChunk, Compression, Encoding, Page};
use super::{DecodeError, Stored, declined};
use crate::column::{Domain, Layout};
use crate::table::BUFFER_ALIGNMENT_BYTES;

/// Bytes of pages without compression that are on the device at a time, unless a chunk has more: enough pages to keep it busy.
const BATCH_BYTES_MAX: u64 = 1 << 30;
/// The least of them, where memory is scarce.
const BATCH_BYTES_MIN: u64 = 64 << 20;
/// Bytes that kernels may read behind the last page.
const PADDING_BYTES: u64 = 16;

/// A column to be decoded.
#[derive(Debug, Clone, Copy)]
pub struct StoredColumn<'a> {
    /// How its values are stored.
    pub stored: Stored,
    /// Whether its pages have definition levels.
    pub is_nullable: bool,
    /// Bounds of all values. The layout follows from it.
    pub domain: Domain,
    /// Its row groups, in the order of the rows.
    pub chunks: &'a [ColumnChunk<'a>],
}

/// A decoded column on one device.
#[derive(Debug)]
pub struct DecodedColumn {
    /// Rows x width of the layout, 0 where null; `None` with width 0 or without rows.
    pub values: Option<Buffer>,
    /// A bit a row, set where valid; `None` of columns without levels, or without rows.
    pub validity: Option<Buffer>,
    /// Rows that are null.
    pub nulls: u64,
    /// Decompressing and decoding on the device, in ns, without bringing the pages there.
    pub kernel_ns: u64,
}

/// Decodes a column on the device of a stream, and waits for it.
///
/// # Errors
/// [`DecodeError::Declined`] where kernels can't decode it, its bytes are damaged, or a value leaves the domain.
pub fn decode_column(stream: &Stream, column: &StoredColumn<'_>) -> Result<DecodedColumn, DecodeError> {
    let rows: u64 = column.chunks.iter().map(|chunk| chunk.rows).sum();
    if rows == 0 {
        return Ok(DecodedColumn { values: None, validity: None, nulls: 0, kernel_ns: 0 });
    }
    let width = Layout::of(column.domain).width_bytes;
    let decoder = Decoder {
        stream,
        column,
        // Of constants, to see that they are.
        width_bytes: u64::from(width.max(1)),
        control: stream.alloc_filled(control::BYTES, 0)?,
    };
    let values = padded(stream, rows * decoder.width_bytes)?;
    let validity = column.is_nullable.then(|| stream.alloc(rows)).transpose()?;
    let (mut first_row, mut events) = (0, vec![]);
    // They are there with and without compression.
    let batch_bytes = (stream.free_bytes() / 4).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
    for batch in batches(column, batch_bytes)? {
        let batch_rows: u64 = batch.iter().map(|(chunk, _)| chunk.rows).sum();
        events.push(decoder.decode(&batch, batch_rows, (&values, validity.as_ref(), first_row))?);
        first_row += batch_rows;
    }
    let (validity, nulls) = match validity {
        Some(bytes) => {
            let bits = padded(stream, rows.div_ceil(32) * 4)?;
            let counted = stream.alloc_filled(control::BYTES, 0)?;
            let params =
                PackValidityParams { rows, bytes: Ptr::of(&bytes), words: Ptr::of(&bits), control: Ptr::of(&counted) };
            launch_over_rows(stream, "pack_validity", rows, &params)?;
            (Some(bits), read_control(stream, &counted)?[control::ROWS])
        }
        None => (None, 0),
    };
    let found = read_control(stream, &decoder.control)?;
    if found[control::STATUS] & status::DAMAGED != 0 {
        return declined("a page is damaged, or has values that its statistics exclude");
    }
    let kernel_ns = events.iter().map(|(begin, end)| end.elapsed_ns(begin)).sum::<Result<u64, _>>()?;
    Ok(DecodedColumn { values: (width > 0).then_some(values), validity, nulls, kernel_ns })
}

/// A buffer of which the last bytes are 0, as columns of tables have it.
fn padded(stream: &Stream, bytes: u64) -> Result<Buffer, DecodeError> {
    let all = bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES).max(BUFFER_ALIGNMENT_BYTES);
    let buffer = stream.alloc(all)?;
    let from = bytes.saturating_sub(BUFFER_ALIGNMENT_BYTES);
    stream.fill(&buffer, from, all - from, 0)?;
    Ok(buffer)
}

pub(super) fn read_control(stream: &Stream, control: &Buffer) -> Result<[u64; control::WORDS], DecodeError> {
    let mut words = [0; control::WORDS];
    stream.read(control, 0, bytemuck::cast_slice_mut(&mut words))?;
    Ok(words)
}

type Batch<'a> = Vec<(&'a ColumnChunk<'a>, Vec<Page>)>;

/// The chunks with their pages, some at a time.
fn batches<'a>(column: &StoredColumn<'a>, batch_bytes: u64) -> Result<Vec<Batch<'a>>, DecodeError> {
    let (mut batches, mut bytes): (Vec<Batch<'a>>, u64) = (vec![], 0);
    for chunk in column.chunks.iter().filter(|chunk| chunk.rows > 0) {
        let pages = chunk.pages(column.is_nullable)?;
        let page_bytes: u64 = pages.iter().map(|page| page.page_bytes).sum();
        bytes += page_bytes;
        match batches.last_mut().filter(|_| bytes <= batch_bytes) {
            Some(batch) => batch.push((chunk, pages)),
            None => {
                batches.push(vec![(chunk, pages)]);
                bytes = page_bytes;
            }
        }
    }
    Ok(batches)
}

/// The words of pages by what decodes them, in the order in which they are uploaded.
#[derive(Default)]
struct PageWords {
    dictionaries: Vec<u64>,
    plain: Vec<u64>,
    hybrid: Vec<u64>,
    indices: Vec<u64>,
    source_bytes: u64,
    page_bytes: u64,
    entries: u64,
    is_compressed: bool,
}

impl PageWords {
    /// Those of a batch.
    fn of(batch: &Batch<'_>, stored: Stored) -> Result<Self, DecodeError> {
        let mut words = Self::default();
        let mut first_row = 0;
        words.is_compressed = batch.iter().any(|(chunk, _)| chunk.compression != Compression::None);
        for (chunk, pages) in batch {
            let dictionary = pages.first().filter(|page| page.is_dictionary).map(|page| page.rows);
            let entries = words.entries..words.entries + dictionary.unwrap_or(0);
            for page in pages {
                let is_bits = stored == Stored::Bits;
                match page.encoding {
                    Encoding::Indices if dictionary.is_none() => return declined("indices without a dictionary"),
                    Encoding::Hybrid if !is_bits => return declined("runs of other values than booleans"),
                    Encoding::Indices if is_bits => return declined("a dictionary of booleans"),
                    _ => {}
                }
                words.add(page, &entries, first_row);
                first_row += if page.is_dictionary { 0 } else { page.rows };
            }
            words.source_bytes += (chunk.bytes.len() as u64).next_multiple_of(PADDING_BYTES);
            words.entries = entries.end;
        }
        Ok(words)
    }

    fn add(&mut self, page: &Page, entries: &Range<u64>, first_row: u64) {
        let mut words = [0; page::WORDS];
        words[page::SOURCE_AT] = self.source_bytes + page.at as u64;
        words[page::SOURCE_BYTES] = page.compressed_bytes as u64;
        words[page::RAW_BYTES] = page.raw_bytes as u64;
        words[page::AT] = if self.is_compressed { self.page_bytes } else { words[page::SOURCE_AT] };
        words[page::BYTES] = page.page_bytes;
        words[page::LEVELS] = page.levels;
        words[page::LEVELS_BYTES] = page.levels_bytes;
        words[page::ROWS] = page.rows;
        words[page::FIRST_ROW] = if page.is_dictionary { entries.start } else { first_row };
        words[page::DICTIONARY] = entries.start;
        words[page::ENTRIES] = entries.end - entries.start;
        self.page_bytes += page.page_bytes.next_multiple_of(PADDING_BYTES);
        let list = match (page.is_dictionary, page.encoding) {
            (true, _) => &mut self.dictionaries,
            (false, Encoding::Plain) => &mut self.plain,
            (false, Encoding::Hybrid) => &mut self.hybrid,
            (false, Encoding::Indices) => &mut self.indices,
        };
        list.extend(words);
    }
}

fn pages_in(words: &[u64]) -> u64 {
    (words.len() / page::WORDS) as u64
}

struct Decoder<'a> {
    stream: &'a Stream,
    column: &'a StoredColumn<'a>,
    width_bytes: u64,
    control: Buffer,
}

impl Decoder<'_> {
    /// Decodes the chunks of a batch to a column from one of its rows on. Events around the kernels.
    fn decode(
        &self,
        batch: &Batch<'_>,
        rows: u64,
        (values, validity, first_row): (&Buffer, Option<&Buffer>, u64),
    ) -> Result<(Event, Event), DecodeError> {
        let stream = self.stream;
        let words = PageWords::of(batch, self.column.stored)?;
        let source = stream.alloc_filled(words.source_bytes + PADDING_BYTES, 0)?;
        let mut at = 0;
        for (chunk, _) in batch {
            stream.write(&source, at, chunk.bytes)?;
            at += (chunk.bytes.len() as u64).next_multiple_of(PADDING_BYTES);
        }
        let all = [&words.dictionaries[..], &words.plain, &words.hybrid, &words.indices].concat();
        let pages = stream.upload(bytemuck::cast_slice(&all))?;
        let begin = stream.record()?;
        let bytes = if words.is_compressed { self.decompressed(&source, &pages, &all, &words)? } else { source };

        // Data pages stand behind the dictionaries.
        let dictionaries = pages_in(&words.dictionaries);
        let data_pages = pages_in(&all) - dictionaries;
        let from = |page: u64| Ptr::at(&pages, page * page::WORDS as u64);
        let target = Ptr::at_byte(values, first_row * self.width_bytes);
        let validity = validity.map(|validity| Ptr::<*mut u8>::at_byte(validity, first_row));
        let counts = match validity {
            Some(validity) => {
                let counts = stream.alloc_filled(data_pages * 4, 0)?;
                let params = LevelsParams {
                    pages: from(dictionaries),
                    page_count: data_pages,
                    bytes: Ptr::of(&bytes),
                    validity,
                    counts: Ptr::of(&counts),
                    control: Ptr::of(&self.control),
                };
                launch_over_pages(stream, "decode_levels", data_pages, &params)?;
                Some(counts)
            }
            None => None,
        };
        // Values side by side, if some rows have none.
        let dense = counts.is_some().then(|| stream.alloc(rows * self.width_bytes)).transpose()?;
        let dense_or_target = dense.as_ref().map_or(target, Ptr::of);
        let counts_from = |page: u64| counts.as_ref().map(|counts| Ptr::at(counts, page - dictionaries));

        let mut first = dictionaries;
        self.plain(&words.plain, from(first), counts_from(first), &bytes, dense_or_target)?;
        first += pages_in(&words.plain);
        if !words.hybrid.is_empty() {
            let list = (from(first), pages_in(&words.hybrid));
            self.bits(list, counts_from(first), &bytes, dense_or_target, true)?;
        }
        first += pages_in(&words.hybrid);
        if !words.indices.is_empty() {
            let entries = stream.alloc((words.entries * self.width_bytes).max(1))?;
            self.plain(&words.dictionaries, from(0), None, &bytes, Ptr::of(&entries))?;
            let params = IndicesParams {
                pages: from(first),
                page_count: pages_in(&words.indices),
                bytes: Ptr::of(&bytes),
                counts: counts_from(first),
                dictionary: Ptr::of(&entries),
                target: dense_or_target,
                control: Ptr::of(&self.control),
            };
            launch_over_pages(stream, &self.entry("decode_indices"), params.page_count, &params)?;
        }
        if let (Some(dense), Some(validity)) = (&dense, validity) {
            let params = SpreadParams {
                pages: from(dictionaries),
                page_count: data_pages,
                validity: validity.to_const(),
                values: Ptr::of(dense),
                target,
            };
            launch_over_pages(stream, &self.entry("spread"), data_pages, &params)?;
        }
        Ok((begin, stream.record()?))
    }

    fn entry(&self, name: &str) -> String {
        format!("{name}_{}", self.width_bytes)
    }

    /// All pages without compression.
    fn decompressed(
        &self,
        source: &Buffer,
        pages: &Buffer,
        all: &[u64],
        words: &PageWords,
    ) -> Result<Buffer, DecodeError> {
        let target = self.stream.alloc_filled(words.page_bytes + PADDING_BYTES, 0)?;
        let params = DecompressParams {
            pages: Ptr::of(pages),
            page_count: pages_in(all),
            source: Ptr::of(source),
            target: Ptr::of(&target),
            control: Ptr::of(&self.control),
        };
        launch_over_pages(self.stream, "decompress_snappy", params.page_count, &params)?;
        Ok(target)
    }

    /// Decodes plain pages, those of dictionaries among them.
    fn plain(
        &self,
        words: &[u64],
        pages: Ptr<'_, *const u64>,
        counts: Option<Ptr<'_, *const u32>>,
        bytes: &Buffer,
        target: Ptr<'_, *mut u8>,
    ) -> Result<(), DecodeError> {
        let (kind, value_bytes) = match self.column.stored {
            Stored::Bits => return self.bits((pages, pages_in(words)), counts, bytes, target, false),
            Stored::Int32 { signed } => (if signed { VALUES_SIGNED } else { VALUES_UNSIGNED }, 4),
            Stored::Int64 { signed } => (if signed { VALUES_SIGNED } else { VALUES_UNSIGNED }, 8),
            Stored::Float => (VALUES_SIGNED, 4),
            Stored::Double => (VALUES_SIGNED, 8),
            Stored::Fixed { bytes: bytes @ 1..=16 } => (VALUES_BIG_ENDIAN, u64::from(bytes)),
            Stored::Fixed { bytes } => return declined(format!("values of {bytes} bytes")),
        };
        let (base, span) = match self.column.domain {
            Domain::Int { min, max } => (min as u128, max.wrapping_sub(min) as u128),
            Domain::Float32 | Domain::Float64 => (0, u128::MAX),
            Domain::Bytes => return declined("raw strings"),
        };
        let params = PlainParams {
            pages,
            page_count: pages_in(words),
            bytes: Ptr::of(bytes),
            counts,
            kind,
            value_bytes,
            base_low: base as u64,
            base_high: (base >> 64) as u64,
            span_low: span as u64,
            span_high: (span >> 64) as u64,
            target,
            control: Ptr::of(&self.control),
        };
        Ok(launch_over_pages(self.stream, &self.entry("decode_plain"), params.page_count, &params)?)
    }

    fn bits(
        &self,
        (pages, page_count): (Ptr<'_, *const u64>, u64),
        counts: Option<Ptr<'_, *const u32>>,
        bytes: &Buffer,
        target: Ptr<'_, *mut u8>,
        is_hybrid: bool,
    ) -> Result<(), DecodeError> {
        let control = Ptr::of(&self.control);
        let params = BitsParams { pages, page_count, bytes: Ptr::of(bytes), counts, is_hybrid, target, control };
        Ok(launch_over_pages(self.stream, "decode_bits", page_count, &params)?)
    }
}
