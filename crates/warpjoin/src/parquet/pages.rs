//! The pages of a column of a row group.

use std::fmt;

use warpjoin_kernels::decode::{LEVELS_GIVEN, LEVELS_NONE, LEVELS_PREFIXED};

use super::error::{DecodeError, declined};
use super::header::{PageHeader, PageKind};

/// How pages are compressed.
#[derive(Debug, Clone, Copy)]
pub enum Compression {
    /// No compression.
    None,
    /// Raw Snappy, without framing.
    Snappy,
    /// A codec without a kernel: the host decompresses pages on all cores before they go to the device.
    OnHost(Decompress),
}

/// Decompresses a page into `target`, which it must fill exactly; an error message otherwise.
pub type Decompress = fn(page: &[u8], target: &mut [u8]) -> Result<(), String>;

impl Compression {
    /// Maximum decompressed bytes for each compressed byte; a header that exceeds it is damaged.
    fn ratio_max(self) -> u64 {
        match self {
            // A copy of 64 bytes takes three.
            Self::None | Self::Snappy => 32,
            Self::OnHost(_) => 1 << 16,
        }
    }
}

/// Bytes of a file, which may not have been read yet.
pub trait ChunkBytes: fmt::Debug + Sync {
    /// Whether they have arrived.
    fn are_here(&self) -> bool;

    /// Waits for the bytes; `None` if they will never arrive.
    fn wait(&self) -> Option<&[u8]>;
}

impl ChunkBytes for Vec<u8> {
    fn are_here(&self) -> bool {
        true
    }

    fn wait(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// A column of one row group, as it is in its file.
#[derive(Debug, Clone, Copy)]
pub struct ColumnChunk<'a> {
    /// All of its pages, with their headers; the dictionary first, if there is one.
    pub bytes: &'a dyn ChunkBytes,
    /// How they are compressed.
    pub compression: Compression,
    /// Rows of the row group.
    pub rows: u64,
}

/// Encodings of Parquet.
const PLAIN: i32 = 0;
const PLAIN_DICTIONARY: i32 = 2;
const RLE: i32 = 3;
const DELTA_BINARY_PACKED: i32 = 5;
const DELTA_LENGTH_BYTE_ARRAY: i32 = 6;
const RLE_DICTIONARY: i32 = 8;
const BYTE_STREAM_SPLIT: i32 = 9;

/// How the values of a page are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Encoding {
    Plain,
    /// Runs of booleans.
    Hybrid,
    Indices,
    /// Differences of integers, or of the lengths of strings.
    Delta,
    /// The first bytes of all values, then the second ones, and so on.
    Split,
}

/// A page, and where it is in the bytes of its chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    pub(super) is_dictionary: bool,
    pub(super) encoding: Encoding,
    /// Where it begins, after its header.
    pub(super) at: usize,
    pub(super) compressed_bytes: usize,
    /// Number of leading bytes that are not compressed.
    pub(super) raw_bytes: usize,
    pub(super) page_bytes: u64,
    /// One of `LEVELS_*`.
    pub(super) levels: u64,
    pub(super) levels_bytes: u64,
    /// Rows, or entries of a dictionary.
    pub(super) rows: u64,
}

impl ColumnChunk<'_> {
    /// Waits for the bytes.
    pub(super) fn wait(&self) -> Result<&[u8], DecodeError> {
        self.bytes.wait().map_or_else(|| declined("its bytes can't be read"), Ok)
    }

    /// The pages among the bytes, whose rows together are those of the chunk. `is_nullable`: they have definition levels.
    pub(super) fn pages(&self, bytes: &[u8], is_nullable: bool) -> Result<Vec<Page>, DecodeError> {
        let (mut pages, mut at, mut rows) = (vec![], 0, 0);
        while rows < self.rows {
            let (header, header_bytes) = PageHeader::read(&bytes[at..])?;
            at += header_bytes;
            let compressed_bytes = header.compressed_bytes as usize;
            if compressed_bytes > bytes.len() - at {
                return declined("a page extends past its column chunk");
            }
            let page = self.page(header, at, is_nullable)?;
            at += compressed_bytes;
            let Some(page) = page else { continue };
            if page.is_dictionary && !pages.is_empty() {
                return declined("a dictionary page after other pages");
            }
            rows += if page.is_dictionary { 0 } else { page.rows };
            pages.push(page);
        }
        if rows != self.rows {
            return declined(format!("pages of {rows} rows in a row group of {}", self.rows));
        }
        Ok(pages)
    }

    fn page(&self, header: PageHeader, at: usize, is_nullable: bool) -> Result<Option<Page>, DecodeError> {
        let PageHeader { kind, compressed_bytes, page_bytes } = header;
        let compressed_bytes = compressed_bytes as usize;
        let is_plain = matches!(self.compression, Compression::None);
        let whole = if is_plain { compressed_bytes } else { 0 };
        let page = |encoding: Encoding, rows: u32| Page {
            is_dictionary: false,
            encoding,
            at,
            compressed_bytes,
            raw_bytes: whole,
            page_bytes: page_bytes.into(),
            levels: LEVELS_NONE,
            levels_bytes: 0,
            rows: rows.into(),
        };
        let page = match kind {
            PageKind::Dictionary { entries, encoding: PLAIN | PLAIN_DICTIONARY } => {
                Page { is_dictionary: true, ..page(Encoding::Plain, entries) }
            }
            PageKind::Dictionary { encoding, .. } => return declined(format!("a dictionary of encoding {encoding}")),
            PageKind::V1 { values, encoding, level_encoding } => {
                if is_nullable && level_encoding != RLE {
                    return declined(format!("levels of encoding {level_encoding}"));
                }
                let levels = if is_nullable { LEVELS_PREFIXED } else { LEVELS_NONE };
                Page { levels, ..page(encoding_of(encoding)?, values) }
            }
            PageKind::V2 { values, encoding, definition_bytes, repetition_bytes, is_compressed } => {
                if repetition_bytes > 0 {
                    return declined("a nested column");
                }
                let levels = if definition_bytes > 0 { LEVELS_GIVEN } else { LEVELS_NONE };
                if !is_nullable && definition_bytes > 0 {
                    return declined("levels of a column that is never null");
                }
                let raw_bytes = if is_compressed && !is_plain { definition_bytes as usize } else { compressed_bytes };
                let levels_bytes = definition_bytes.into();
                Page { levels, levels_bytes, raw_bytes, ..page(encoding_of(encoding)?, values) }
            }
            PageKind::Other => return Ok(None),
        };
        let compressed = page.compressed_bytes as u64;
        let is_whole = page.raw_bytes == page.compressed_bytes;
        if page.raw_bytes > page.compressed_bytes
            || (is_whole && compressed != page.page_bytes)
            || page.page_bytes < page.raw_bytes as u64
            || page.page_bytes > compressed * self.compression.ratio_max()
        {
            return declined(format!("a page of {} bytes, compressed {compressed}", page.page_bytes));
        }
        Ok(Some(page))
    }
}

fn encoding_of(encoding: i32) -> Result<Encoding, DecodeError> {
    match encoding {
        PLAIN => Ok(Encoding::Plain),
        RLE => Ok(Encoding::Hybrid),
        PLAIN_DICTIONARY | RLE_DICTIONARY => Ok(Encoding::Indices),
        DELTA_BINARY_PACKED | DELTA_LENGTH_BYTE_ARRAY => Ok(Encoding::Delta),
        BYTE_STREAM_SPLIT => Ok(Encoding::Split),
        other => declined(format!("encoding {other}")),
    }
}
