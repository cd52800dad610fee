//! Strings: the device finds equal ones, and encodes them as codes of a dictionary.

use std::hash::{BuildHasher, RandomState};
use std::mem::take;
use std::ops::Range;
use std::time::Instant;

use arrow::datatypes::DataType;
use rayon::prelude::*;
use warpjoin_columns::Error;
use warpjoin_columns::column::Dictionary;
use warpjoin_device::{Buffer, Launch, Ptr, Stream, take_huge_pages};
use warpjoin_kernels::common::{BLOCK_THREADS, SCAN_ITEMS, control, scan_shared_bytes};
use warpjoin_kernels::decode::{
    CodeStringsParams, FindStringsParams, GatherStringsParams, InternParams, MarkEntriesParams, NumberStringsParams,
    TileStringsParams,
};
use warpjoin_kernels::string::TILE;

use super::batch::{DeviceBatch, Pages};
use super::error::{DecodeError, declined};
use super::kernels::{kernel, launch_over_pages, launch_over_rows, read_control};
use super::numbers::look_up;
use crate::runtime::device_strings::{STRING_PADDING_BYTES, STRING_TILE_BYTES_MAX, StringShard};

/// Maximum strings of a column: their numbers, and twice as many slots, must fit 32 bits.
const STRINGS_MAX: u64 = 1 << 30;
/// Maximum device bytes for each string.
const STRING_BYTES: u64 = 64;
/// Bytes that each tile of the scan publishes for look-back.
const SUM_BYTES: u64 = 16;

/// The strings of a batch.
pub(super) struct Strings<'a> {
    stream: &'a Stream,
    control: &'a Buffer,
    batch: &'a DeviceBatch<'a>,
    /// The slot of each string.
    slots: Buffer,
    table: Buffer,
    codes: Buffer,
    /// The distinct strings, concatenated, and their end offsets after an initial 0; empty if the host does not get
    /// them.
    text: Vec<u8>,
    ends: Vec<i64>,
    /// The same on the device, until taken.
    on_device: Option<(Buffer, Buffer)>,
    /// The final code for each preliminary one, once the dictionary is known; `None`: they are equal.
    ranks: Option<Buffer>,
}

/// The dictionary of the strings of all devices.
pub(super) fn dictionary_of(strings: &mut [Strings<'_>], value_type: &DataType) -> Result<Dictionary, DecodeError> {
    let brought = strings.iter_mut().filter(|strings| !strings.ends.is_empty());
    let texts: Vec<_> = brought.map(|strings| (take(&mut strings.text), take(&mut strings.ends))).collect();
    let is_of_one = texts.len() == 1;
    let (dictionary, ranks) = match Dictionary::of_distinct(texts, value_type) {
        Ok(found) => found,
        // Such as bytes that are no text: decoding on the CPU says where.
        Err(error) => return declined(error.to_string()),
    };
    for (device, strings) in strings.iter_mut().enumerate() {
        // If one device has brought the strings of all, all number them alike. Buffers are not empty.
        let ranks = ranks[if is_of_one { 0 } else { device }].as_ref().filter(|ranks| !ranks.is_empty());
        strings.ranks = ranks.map(|ranks| strings.stream.upload(bytemuck::cast_slice(ranks))).transpose()?;
    }
    Ok(dictionary)
}

impl<'a> Strings<'a> {
    /// Finds the distinct strings that occur in rows of the batch. `brings`: they are also copied to the host.
    pub(super) fn find(
        stream: &'a Stream,
        control: &'a Buffer,
        batch: &'a DeviceBatch<'a>,
        brings: bool,
    ) -> Result<Self, DecodeError> {
        let started = Instant::now();
        let plain_rows = if batch.plain().count + batch.delta().count > 0 { batch.rows } else { 0 };
        let count = batch.entries + plain_rows;
        if count > STRINGS_MAX {
            return declined(format!("{count} strings exceed the limit of one dictionary"));
        }
        if count * STRING_BYTES > stream.free_bytes() / 2 {
            return Err(DecodeError::NoRoom(format!("no room on the device to tell {count} strings apart")));
        }
        let room = |bytes_each: u64| stream.alloc((count * bytes_each).max(1));
        let (starts, lengths) = (room(8)?, stream.alloc_filled((count * 4).max(1), 0xff)?);
        let lists = [
            ("find_strings", batch.dictionaries(), 0),
            ("find_strings", batch.plain(), batch.entries),
            ("find_packed_strings", batch.delta(), batch.entries),
        ];
        for (entry, pages, first_string) in lists {
            let params = FindStringsParams {
                pages: pages.words,
                page_count: pages.count,
                bytes: Ptr::of(&batch.bytes),
                counts: pages.counts,
                first_string,
                starts: Ptr::of(&starts),
                lengths: Ptr::of(&lengths),
                control: Ptr::of(control),
            };
            launch_over_pages(stream, entry, pages.count, &params)?;
        }
        let marks = stream.alloc_filled((batch.entries * 4).max(1), 0)?;
        let indices = batch.indices();
        let params = MarkEntriesParams {
            pages: indices.words,
            page_count: indices.count,
            bytes: Ptr::of(&batch.bytes),
            counts: indices.counts,
            marks: Ptr::of(&marks),
            control: Ptr::of(control),
        };
        launch_over_pages(stream, "mark_entries", indices.count, &params)?;

        let slot_count = (count * 2).next_power_of_two().max(2);
        let (slots, table) = (room(4)?, stream.alloc_filled(slot_count * 8, 0)?);
        let params = InternParams {
            count,
            entry_count: batch.entries,
            marks: Ptr::of(&marks),
            bytes: Ptr::of(&batch.bytes),
            starts: Ptr::of(&starts),
            lengths: Ptr::of(&lengths),
            // So that nobody can choose strings that come to the same slots.
            seed: RandomState::new().hash_one(count),
            slot_mask: slot_count - 1,
            table: Ptr::of(&table),
            slots: Ptr::of(&slots),
            control: Ptr::of(control),
        };
        launch_over_rows(stream, "intern_strings", count, &params)?;
        drop(marks);

        let (codes, firsts, ends) = (room(4)?, room(4)?, stream.alloc_filled((count + 1) * 8, 0)?);
        let distinct = number(stream, count, (&lengths, &slots, &table), (&codes, &firsts, &ends))?;
        let told_apart = started.elapsed();
        let mut host_ends = vec![0i64; if brings { distinct as usize + 1 } else { 1 }];
        take_huge_pages(&mut host_ends);
        let first_end = distinct + 1 - host_ends.len() as u64;
        stream.read(&ends, first_end * 8, bytemuck::cast_slice_mut(&mut host_ends))?;
        let all_bytes = host_ends.last().copied().unwrap_or(0) as u64;
        let text = stream.alloc(all_bytes + STRING_PADDING_BYTES)?;
        stream.fill(&text, all_bytes, STRING_PADDING_BYTES, 0)?;
        let params = GatherStringsParams {
            distinct,
            firsts: Ptr::of(&firsts),
            ends: Ptr::of(&ends),
            bytes: Ptr::of(&batch.bytes),
            starts: Ptr::of(&starts),
            target: Ptr::of(&text),
        };
        // A warp a string.
        launch_over_rows(stream, "gather_strings", distinct * 32, &params)?;
        let mut host_text = vec![0u8; if brings { all_bytes as usize } else { 0 }];
        take_huge_pages(&mut host_text);
        stream.read(&text, 0, &mut host_text)?;

        log::debug!(
            "{count} strings: {distinct} distinct ones found in {told_apart:.1?}, {} of {all_bytes} bytes on the host in {:.1?}",
            host_text.len(),
            started.elapsed() - told_apart
        );
        let on_device = Some((text, ends));
        Ok(Self {
            stream,
            control,
            batch,
            slots,
            table,
            codes,
            text: host_text,
            ends: if brings { host_ends } else { vec![] },
            on_device,
            ranks: None,
        })
    }

    /// Takes some tiles of the strings in the form that test kernels read, if they are in dictionary order.
    pub(super) fn for_tests(
        &mut self,
        dictionary: &Dictionary,
        tiles: Range<usize>,
    ) -> Result<Option<StringShard>, DecodeError> {
        let stream = self.stream;
        let Some((bytes, ends)) = self.on_device.take().filter(|_| self.ranks.is_none()) else { return Ok(None) };
        let strings = (tiles.start * TILE).min(dictionary.len())..(tiles.end * TILE).min(dictionary.len());
        let tile_bytes = |tile: usize| {
            let of = |code: usize| dictionary.bytes(code as u32).map_or(0, |text| text.len() as u64);
            (tile * TILE..strings.end.min((tile + 1) * TILE)).map(of).sum::<u64>()
        };
        let all_tile_bytes: Vec<u64> = tiles.clone().into_par_iter().map(tile_bytes).collect();
        if all_tile_bytes.iter().any(|&bytes| bytes > STRING_TILE_BYTES_MAX) {
            return Ok(None);
        }
        let count = strings.len() as u64;
        let tile_starts = stream.alloc_filled((tiles.len() as u64 + 1) * 8, 0)?;
        let tile_ends = stream.alloc(count.max(1) * 4)?;
        if count > 0 {
            let params = TileStringsParams {
                distinct: count,
                ends: Ptr::at(&ends, strings.start as u64),
                tile_starts: Ptr::of(&tile_starts),
                tile_ends: Ptr::of(&tile_ends),
            };
            launch_over_rows(stream, "tile_strings", count, &params)?;
        }
        let text_bytes = all_tile_bytes.iter().sum();
        Ok(Some(StringShard { strings, bytes, tile_starts, ends: tile_ends, text_bytes }))
    }

    /// Writes the codes of each page contiguously, `width_bytes` wide, from the page's first row.
    pub(super) fn decode(&self, width_bytes: u64, target: Ptr<'_, *mut u8>) -> Result<(), DecodeError> {
        self.code(self.batch.plain(), self.batch.entries, width_bytes, target)?;
        self.code(self.batch.delta(), self.batch.entries, width_bytes, target)?;
        if self.batch.indices().count > 0 {
            let entries = self.stream.alloc((self.batch.entries * width_bytes).max(1))?;
            self.code(self.batch.dictionaries(), 0, width_bytes, Ptr::of(&entries))?;
            look_up(self.stream, self.control, self.batch, width_bytes, &entries, target)?;
        }
        Ok(())
    }

    fn code(
        &self,
        pages: Pages<'_>,
        first_string: u64,
        width_bytes: u64,
        target: Ptr<'_, *mut u8>,
    ) -> Result<(), DecodeError> {
        let params = CodeStringsParams {
            pages: pages.words,
            page_count: pages.count,
            bytes: Ptr::of(&self.batch.bytes),
            counts: pages.counts,
            first_string,
            slots: Ptr::of(&self.slots),
            table: Ptr::of(&self.table),
            codes: Ptr::of(&self.codes),
            ranks: self.ranks.as_ref().map(Ptr::of),
            target,
        };
        Ok(launch_over_pages(self.stream, &format!("code_strings_{width_bytes}"), pages.count, &params)?)
    }
}

/// Numbers the distinct strings, and waits for their number.
fn number(
    stream: &Stream,
    count: u64,
    (lengths, slots, table): (&Buffer, &Buffer, &Buffer),
    (codes, firsts, ends): (&Buffer, &Buffer, &Buffer),
) -> Result<u64, DecodeError> {
    let found = stream.alloc_filled(control::BYTES, 0)?;
    let block_threads = stream.device().info().block_threads(BLOCK_THREADS);
    let tiles = count.div_ceil(u64::from(block_threads * SCAN_ITEMS));
    let next_tile = stream.alloc_filled(8, 0)?;
    let states = stream.alloc_filled((tiles * 4).max(1), 0)?;
    let sums = || stream.alloc((tiles * SUM_BYTES).max(1));
    let (of_tile, up_to_tile) = (sums()?, sums()?);
    let params = NumberStringsParams {
        count,
        lengths: Ptr::of(lengths),
        slots: Ptr::of(slots),
        table: Ptr::of(table),
        codes: Ptr::of(codes),
        firsts: Ptr::of(firsts),
        ends: Ptr::of(ends),
        next_tile: Ptr::of(&next_tile),
        states: Ptr::of(&states),
        of_tile: Ptr::of(&of_tile),
        up_to_tile: Ptr::of(&up_to_tile),
        control: Ptr::of(&found),
    };
    if tiles > 0 {
        let shared_bytes = scan_shared_bytes(SUM_BYTES);
        let launch = Launch { blocks: tiles as u32, block_threads, shared_bytes };
        stream.launch(&kernel(stream, "number_strings")?, launch, &params)?;
    }
    let found = read_control(stream, &found)?;
    if found[control::STATUS] != 0 {
        return Err(Error::internal(format!("numbering strings ended with status {}", found[control::STATUS])).into());
    }
    Ok(found[control::ROWS])
}
