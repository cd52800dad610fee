//! Row groups of a column on one device: their decompressed pages and definition levels.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use rayon::prelude::*;
use warpjoin_device::{Buffer, Event, Ptr, Stream, take_huge_pages};
use warpjoin_kernels::decode::{DecompressParams, LevelsParams, SpreadParams, page};

use super::error::{DecodeError, declined};
use super::kernels::launch_over_pages;
use super::pages::{Compression, Encoding, Page};
use super::stored::{Stored, StoredColumn};

/// Bytes that kernels may read past the last page.
const PADDING_BYTES: u64 = 16;

/// Minimum decompressed bytes of a batch, unless the column has fewer: enough to keep a device busy.
const BATCH_BYTES_MIN: u64 = 64 << 20;

/// Maximum bytes of a row group that the host decompresses at once. Larger row groups are declined: their headers are
/// damaged, or the CPU decodes them page by page.
const CHUNK_BYTES_MAX: usize = 2 << 30;

/// A row group with its pages.
pub(super) struct ChunkPages<'a> {
    bytes: &'a [u8],
    compression: Compression,
    pub(super) pages: Vec<Page>,
}

/// Maximum distinct strings of a column: entries of dictionaries, and rows of plain pages. Waits for all bytes.
pub(super) fn candidates(column: &StoredColumn<'_>) -> Result<u64, DecodeError> {
    let chunks = Batches::new(*column, u64::MAX).next()?;
    let pages = chunks.iter().flat_map(|chunk| &chunk.pages);
    Ok(pages.filter(|page| page.is_dictionary || page.encoding != Encoding::Indices).map(|page| page.rows).sum())
}

/// Row groups of a column, some at a time.
pub(super) struct Batches<'a> {
    column: StoredColumn<'a>,
    next: usize,
    bytes_max: u64,
}

impl<'a> Batches<'a> {
    /// Batches of at most `bytes_max` decompressed bytes, but at least one row group.
    pub(super) fn new(column: StoredColumn<'a>, bytes_max: u64) -> Self {
        Self { column, next: 0, bytes_max }
    }

    /// The next row groups. Waits until the bytes of one have arrived, then takes all that have arrived.
    pub(super) fn next(&mut self) -> Result<Vec<ChunkPages<'a>>, DecodeError> {
        let (mut batch, mut batch_bytes) = (vec![], 0u64);
        let column = self.column;
        while let Some(chunk) = column.chunks.get(self.next) {
            let is_enough = batch_bytes >= BATCH_BYTES_MIN && self.bytes_max < u64::MAX;
            if chunk.rows > 0 && is_enough && !chunk.bytes.are_here() {
                break;
            }
            if chunk.rows > 0 {
                let bytes = chunk.wait()?;
                let pages = chunk.pages(bytes, column.is_nullable)?;
                let page_bytes = pages.iter().fold(0u64, |all, page| all.saturating_add(page.page_bytes));
                if !batch.is_empty() && batch_bytes.saturating_add(page_bytes) > self.bytes_max {
                    break;
                }
                batch_bytes = batch_bytes.saturating_add(page_bytes);
                batch.push(ChunkPages { bytes, compression: chunk.compression, pages });
            }
            self.next += 1;
        }
        Ok(batch)
    }
}

/// The bytes of a row group to upload to the device.
struct Upload<'a> {
    pages: Cow<'a, [Page]>,
    /// Where each part begins, and its bytes.
    parts: Vec<(usize, Cow<'a, [u8]>)>,
    bytes: usize,
    is_compressed: bool,
}

impl<'a> Upload<'a> {
    fn of(chunk: &'a ChunkPages<'a>) -> Result<Self, DecodeError> {
        let pages = &chunk.pages;
        let Compression::OnHost(decompress) = chunk.compression else {
            return Ok(Self {
                pages: Cow::Borrowed(pages),
                parts: vec![(0, Cow::Borrowed(chunk.bytes))],
                bytes: chunk.bytes.len(),
                is_compressed: matches!(chunk.compression, Compression::Snappy),
            });
        };
        let places = pages.iter().scan(0, |end, page| {
            let place = *end;
            *end += (page.page_bytes as usize).next_multiple_of(PADDING_BYTES as usize);
            Some((place, *end))
        });
        let places: Vec<(usize, usize)> = places.collect();
        let end = places.last().map_or(0, |place| place.1);
        if end > CHUNK_BYTES_MAX {
            return declined(format!("{end} bytes of a row group, which the host would decompress"));
        }
        let mut bytes = vec![0; end];
        take_huge_pages(&mut bytes);
        let (mut rest, mut targets) = (bytes.as_mut_slice(), vec![]);
        for (page, (place, end)) in pages.iter().zip(&places) {
            let (target, after) = rest.split_at_mut(end - place);
            targets.push((page, &mut target[..page.page_bytes as usize]));
            rest = after;
        }
        let decompress = |(page, target): (&Page, &mut [u8])| {
            let (raw, compressed) = chunk.bytes[page.at..page.at + page.compressed_bytes].split_at(page.raw_bytes);
            let (levels, values) = target.split_at_mut(page.raw_bytes);
            levels.copy_from_slice(raw);
            // Nothing behind levels may be compressed to nothing.
            if values.is_empty() && compressed.is_empty() {
                return Ok(());
            }
            decompress(compressed, values).map_err(DecodeError::Declined)
        };
        targets.into_par_iter().try_for_each(decompress)?;
        let moved = |(page, (place, _)): (&Page, &(usize, usize))| {
            let all = page.page_bytes as usize;
            Page { at: *place, compressed_bytes: all, raw_bytes: all, ..*page }
        };
        Ok(Self {
            pages: pages.iter().zip(&places).map(moved).collect(),
            parts: vec![(0, Cow::Owned(bytes))],
            bytes: end,
            is_compressed: false,
        })
    }
}

/// The words that describe pages, by the kernel that decodes them, in the order of the upload.
#[derive(Default)]
struct PageWords {
    dictionaries: Vec<u64>,
    plain: Vec<u64>,
    hybrid: Vec<u64>,
    indices: Vec<u64>,
    delta: Vec<u64>,
    split: Vec<u64>,
    source_bytes: u64,
    page_bytes: u64,
    entries: u64,
    rows: u64,
    is_compressed: bool,
}

impl PageWords {
    /// The words of a batch's pages.
    fn of(batch: &[Upload<'_>], stored: Stored) -> Result<Self, DecodeError> {
        let is_compressed = batch.iter().any(|upload| upload.is_compressed);
        let mut words = Self { is_compressed, ..Self::default() };
        for Upload { pages, bytes, .. } in batch {
            let dictionary = pages.first().filter(|page| page.is_dictionary).map(|page| page.rows);
            let entries = words.entries..words.entries + dictionary.unwrap_or(0);
            for page in pages.iter() {
                let is_bits = stored == Stored::Bits;
                match page.encoding {
                    Encoding::Indices if dictionary.is_none() => return declined("indices without a dictionary"),
                    Encoding::Hybrid if !is_bits => return declined("run-length encoded values of another type"),
                    Encoding::Indices | Encoding::Delta | Encoding::Split if is_bits => {
                        return declined("an encoding of numbers for booleans");
                    }
                    Encoding::Delta if !stored.has_differences() => {
                        return declined("delta encoded values of another type");
                    }
                    Encoding::Split if stored == Stored::Strings => return declined("byte stream split of strings"),
                    _ => {}
                }
                words.add(page, &entries);
            }
            words.source_bytes += (*bytes as u64).next_multiple_of(PADDING_BYTES);
            words.entries = entries.end;
        }
        Ok(words)
    }

    fn add(&mut self, page: &Page, entries: &Range<u64>) {
        let mut words = [0; page::WORDS];
        words[page::SOURCE_AT] = self.source_bytes + page.at as u64;
        words[page::SOURCE_BYTES] = page.compressed_bytes as u64;
        words[page::RAW_BYTES] = page.raw_bytes as u64;
        words[page::AT] = if self.is_compressed { self.page_bytes } else { words[page::SOURCE_AT] };
        words[page::BYTES] = page.page_bytes;
        words[page::LEVELS] = page.levels;
        words[page::LEVELS_BYTES] = page.levels_bytes;
        words[page::ROWS] = page.rows;
        words[page::FIRST_ROW] = if page.is_dictionary { entries.start } else { self.rows };
        words[page::DICTIONARY] = entries.start;
        words[page::ENTRIES] = entries.end - entries.start;
        self.page_bytes += page.page_bytes.next_multiple_of(PADDING_BYTES);
        self.rows += if page.is_dictionary { 0 } else { page.rows };
        let list = match (page.is_dictionary, page.encoding) {
            (true, _) => &mut self.dictionaries,
            (false, Encoding::Plain) => &mut self.plain,
            (false, Encoding::Hybrid) => &mut self.hybrid,
            (false, Encoding::Indices) => &mut self.indices,
            (false, Encoding::Delta) => &mut self.delta,
            (false, Encoding::Split) => &mut self.split,
        };
        list.extend(words);
    }
}

/// Pages of one kind on a device.
#[derive(Clone, Copy)]
pub(super) struct Pages<'a> {
    /// `page::WORDS` words each.
    pub(super) words: Ptr<'a, *const u64>,
    pub(super) count: u64,
    /// Number of values of each page; `None`: the number of its rows.
    pub(super) counts: Option<Ptr<'a, *const u32>>,
}

/// A batch on a device.
pub(super) struct DeviceBatch<'a> {
    stream: &'a Stream,
    control: &'a Buffer,
    /// Where the pages are.
    pages: Buffer,
    /// Numbers of dictionaries, plain pages, runs, indices, differences and split pages, in this order.
    page_counts: [u64; 6],
    /// The decompressed pages, and [`PADDING_BYTES`] more.
    pub(super) bytes: Buffer,
    /// Values of each data page that are not null.
    value_counts: Option<Buffer>,
    /// Entries of all dictionaries.
    pub(super) entries: u64,
    pub(super) rows: u64,
    /// Recorded before the first kernel.
    pub(super) begin: Event,
}

impl<'a> DeviceBatch<'a> {
    /// Brings a batch to the device of a stream, decompresses it, and decodes its definition levels to `validity`, one
    /// byte for each row. Damaged pages are reported in `control`.
    pub(super) fn load(
        stream: &'a Stream,
        control: &'a Buffer,
        batch: &[ChunkPages<'_>],
        stored: Stored,
        validity: Option<Ptr<'_, *mut u8>>,
    ) -> Result<Self, DecodeError> {
        let uploads: Vec<Upload<'_>> = batch.par_iter().map(Upload::of).collect::<Result<_, _>>()?;
        let words = PageWords::of(&uploads, stored)?;
        let source = stream.alloc_filled(words.source_bytes + PADDING_BYTES, 0)?;
        let (mut first, mut parts): (usize, Vec<(usize, &[u8])>) = (0, vec![]);
        for upload in &uploads {
            parts.extend(upload.parts.iter().map(|(start, bytes)| (first + start, &**bytes)));
            first += upload.bytes.next_multiple_of(PADDING_BYTES as usize);
        }
        let started = Instant::now();
        stream.write_all(&source, 0, &parts)?;
        log::debug!("{} bytes of pages copied in {:.1?}", words.source_bytes, started.elapsed());
        let lists = [&words.dictionaries[..], &words.plain, &words.hybrid, &words.indices, &words.delta, &words.split];
        let pages = stream.upload(bytemuck::cast_slice(&lists.concat()))?;
        let mut loaded = Self {
            stream,
            control,
            pages,
            page_counts: lists.map(|list| (list.len() / page::WORDS) as u64),
            bytes: source,
            value_counts: None,
            entries: words.entries,
            rows: words.rows,
            begin: stream.record()?,
        };
        if words.is_compressed {
            loaded.bytes = loaded.decompressed(words.page_bytes)?;
        }
        if let Some(validity) = validity {
            loaded.value_counts = Some(loaded.levels(validity)?);
        }
        Ok(loaded)
    }

    pub(super) fn dictionaries(&self) -> Pages<'_> {
        Pages { words: self.words_from(0), count: self.page_counts[0], counts: None }
    }

    pub(super) fn plain(&self) -> Pages<'_> {
        self.data_pages(1)
    }

    pub(super) fn hybrid(&self) -> Pages<'_> {
        self.data_pages(2)
    }

    pub(super) fn indices(&self) -> Pages<'_> {
        self.data_pages(3)
    }

    pub(super) fn delta(&self) -> Pages<'_> {
        self.data_pages(4)
    }

    pub(super) fn split(&self) -> Pages<'_> {
        self.data_pages(5)
    }

    fn data_pages(&self, kind: usize) -> Pages<'_> {
        let first: u64 = self.page_counts[..kind].iter().sum();
        let counts = self.value_counts.as_ref().map(|counts| Ptr::at(counts, first - self.page_counts[0]));
        Pages { words: self.words_from(first), count: self.page_counts[kind], counts }
    }

    /// All pages but dictionaries.
    fn all_data_pages(&self) -> Pages<'_> {
        Pages { count: self.page_counts[1..].iter().sum(), ..self.data_pages(1) }
    }

    fn words_from(&self, page: u64) -> Ptr<'_, *const u64> {
        Ptr::at(&self.pages, page * page::WORDS as u64)
    }

    /// All pages, decompressed.
    fn decompressed(&self, page_bytes: u64) -> Result<Buffer, DecodeError> {
        let target = self.stream.alloc_filled(page_bytes + PADDING_BYTES, 0)?;
        let params = DecompressParams {
            pages: self.words_from(0),
            page_count: self.page_counts.iter().sum(),
            source: Ptr::of(&self.bytes),
            target: Ptr::of(&target),
            control: Ptr::of(self.control),
        };
        launch_over_pages(self.stream, "decompress_snappy", params.page_count, &params)?;
        Ok(target)
    }

    /// The number of values of each page that are not null.
    fn levels(&self, validity: Ptr<'_, *mut u8>) -> Result<Buffer, DecodeError> {
        let pages = self.all_data_pages();
        let counts = self.stream.alloc_filled(pages.count * 4, 0)?;
        let params = LevelsParams {
            pages: pages.words,
            page_count: pages.count,
            bytes: Ptr::of(&self.bytes),
            validity,
            counts: Ptr::of(&counts),
            control: Ptr::of(self.control),
        };
        launch_over_pages(self.stream, "decode_levels", pages.count, &params)?;
        Ok(counts)
    }

    /// Moves the values of each page, `width_bytes` wide, to the rows that are not null.
    pub(super) fn spread(
        &self,
        values: &Buffer,
        width_bytes: u64,
        validity: Ptr<'_, *mut u8>,
        target: Ptr<'_, *mut u8>,
    ) -> Result<(), DecodeError> {
        let pages = self.all_data_pages();
        let params = SpreadParams {
            pages: pages.words,
            page_count: pages.count,
            validity: validity.to_const(),
            values: Ptr::of(values),
            target,
        };
        Ok(launch_over_pages(self.stream, &format!("spread_{width_bytes}"), pages.count, &params)?)
    }
}
