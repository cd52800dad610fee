//! Values of fixed length: numbers, decimals, booleans.

use warpjoin_columns::column::Domain;
use warpjoin_device::{Buffer, Ptr, Stream};
use warpjoin_kernels::decode::{
    BitsParams, IndicesParams, PlainParams, VALUES_BIG_ENDIAN, VALUES_INT96, VALUES_SIGNED, VALUES_UNSIGNED,
};

use super::batch::{DeviceBatch, Pages};
use super::error::{DecodeError, declined};
use super::kernels::launch_over_pages;
use super::stored::Stored;

/// Decodes the values of batches.
pub(super) struct Numbers<'a> {
    pub(super) stream: &'a Stream,
    pub(super) control: &'a Buffer,
    pub(super) stored: Stored,
    pub(super) domain: Domain,
    pub(super) width_bytes: u64,
}

impl Numbers<'_> {
    /// Writes the values of each page contiguously, from the page's first row.
    pub(super) fn decode(&self, batch: &DeviceBatch<'_>, target: Ptr<'_, *mut u8>) -> Result<(), DecodeError> {
        self.plain(batch, batch.plain(), target, "plain")?;
        self.plain(batch, batch.delta(), target, "delta")?;
        self.plain(batch, batch.split(), target, "split")?;
        self.bits(batch, batch.hybrid(), target, true)?;
        let indices = batch.indices();
        if indices.count > 0 {
            let entries = self.stream.alloc((batch.entries * self.width_bytes).max(1))?;
            self.plain(batch, batch.dictionaries(), Ptr::of(&entries), "plain")?;
            look_up(self.stream, self.control, batch, self.width_bytes, &entries, target)?;
        }
        Ok(())
    }

    /// Decodes pages of values by themselves, by the kernels of an encoding.
    fn plain(
        &self,
        batch: &DeviceBatch<'_>,
        pages: Pages<'_>,
        target: Ptr<'_, *mut u8>,
        encoding: &str,
    ) -> Result<(), DecodeError> {
        let (kind, value_bytes) = match self.stored {
            Stored::Bits => return self.bits(batch, pages, target, false),
            Stored::Int32 { signed } => (if signed { VALUES_SIGNED } else { VALUES_UNSIGNED }, 4),
            Stored::Int64 { signed } => (if signed { VALUES_SIGNED } else { VALUES_UNSIGNED }, 8),
            Stored::Int96 => (VALUES_INT96, 12),
            Stored::Float => (VALUES_SIGNED, 4),
            Stored::Double => (VALUES_SIGNED, 8),
            Stored::Fixed { bytes: bytes @ 1..=16 } => (VALUES_BIG_ENDIAN, u64::from(bytes)),
            Stored::Fixed { bytes } => return declined(format!("values of {bytes} bytes")),
            Stored::Strings => return declined("strings among numbers"),
        };
        let (base, span) = match self.domain {
            Domain::Int { min, max } => (min as u128, max.wrapping_sub(min) as u128),
            Domain::Float32 | Domain::Float64 => (0, u128::MAX),
            Domain::Bytes => return declined("raw strings"),
        };
        let params = PlainParams {
            pages: pages.words,
            page_count: pages.count,
            bytes: Ptr::of(&batch.bytes),
            counts: pages.counts,
            kind,
            value_bytes,
            base_low: base as u64,
            base_high: (base >> 64) as u64,
            span_low: span as u64,
            span_high: (span >> 64) as u64,
            target,
            control: Ptr::of(self.control),
        };
        let entry = format!("decode_{encoding}_{}", self.width_bytes);
        Ok(launch_over_pages(self.stream, &entry, pages.count, &params)?)
    }

    fn bits(
        &self,
        batch: &DeviceBatch<'_>,
        pages: Pages<'_>,
        target: Ptr<'_, *mut u8>,
        is_hybrid: bool,
    ) -> Result<(), DecodeError> {
        let params = BitsParams {
            pages: pages.words,
            page_count: pages.count,
            bytes: Ptr::of(&batch.bytes),
            counts: pages.counts,
            is_hybrid,
            target,
            control: Ptr::of(self.control),
        };
        Ok(launch_over_pages(self.stream, "decode_bits", pages.count, &params)?)
    }
}

/// Writes the entries, of `width_bytes` each, that the indices of a batch refer to.
pub(super) fn look_up(
    stream: &Stream,
    control: &Buffer,
    batch: &DeviceBatch<'_>,
    width_bytes: u64,
    entries: &Buffer,
    target: Ptr<'_, *mut u8>,
) -> Result<(), DecodeError> {
    let pages = batch.indices();
    let params = IndicesParams {
        pages: pages.words,
        page_count: pages.count,
        bytes: Ptr::of(&batch.bytes),
        counts: pages.counts,
        dictionary: Ptr::of(entries),
        target,
        control: Ptr::of(control),
    };
    Ok(launch_over_pages(stream, &format!("decode_indices_{width_bytes}"), pages.count, &params)?)
}
