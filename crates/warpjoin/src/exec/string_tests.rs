//! String tests on large dictionaries, on the devices: one result byte for each distinct value, read by code.
//!
//! The strings are copied to the devices when they are first tested, a share of the tiles to each device. They stay as
//! long as their dictionary, or until an allocation needs their memory. Each device tests its share; then all devices
//! get all results.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use warpjoin_codegen::{Constants, DictionaryTest};
use warpjoin_columns::Result;
use warpjoin_columns::column::Dictionary;
use warpjoin_columns::devices::{CopyLane, alloc_in_order};
use warpjoin_device::{Buffer, Launch, ModuleSource, Ptr, Stream, span};
use warpjoin_kernels::common::BLOCK_THREADS;
use warpjoin_kernels::string::{STAGE_BYTES, TILE, TestParams};

use super::metrics::PipelineMetrics;
use super::query::{Pending, Query};
use crate::runtime::device_strings::{
    DeviceStrings, STRING_PADDING_BYTES, STRING_TILE_BYTES_MAX, StringShard, UsedStrings,
};

/// Bytes of shared memory for the pattern's transition of each byte value.
const PATTERN_BYTES: u32 = 256 * 8;
/// Bytes that a thread gathers on the host at a time.
const PIECE_BYTES: u64 = 16 << 20;
/// Bytes that are copied between two looks at whether the query was cancelled.
const COPY_BYTES: usize = 256 << 20;
/// Tiles whose ends are found at a time: 16 MiB, whose memory is used again for the next ones.
const ENDS_TILES: usize = 16384;
/// Threads that gather and upload.
const UPLOADS_MAX: usize = 8;

/// Positions of strings on a device.
struct StringPlaces {
    strings: Range<usize>,
    tiles: Vec<Range<usize>>,
    tile_bytes: Vec<u64>,
    /// Where each tile begins, and where the last one ends.
    starts: Vec<u64>,
    /// Where each string ends in its tile; `None` if the strings lie one behind the other: it is found while they are copied.
    ends: Option<Vec<u32>>,
}

impl StringPlaces {
    fn of(dictionary: &Dictionary, strings: Range<usize>) -> Self {
        let tiles: Vec<Range<usize>> =
            strings.clone().step_by(TILE).map(|first| first..(first + TILE).min(strings.end)).collect();
        let adjacent = |tile: &Range<usize>| Some(dictionary.adjacent_bytes(tile.clone())?.len() as u64);
        let (tile_bytes, ends) = match tiles.par_iter().map(adjacent).collect::<Option<Vec<u64>>>() {
            Some(tile_bytes) => (tile_bytes, None),
            None => {
                let mut ends = vec![0u32; strings.len()];
                (find_ends(dictionary, &tiles, &mut ends), Some(ends))
            }
        };
        let mut starts = vec![0u64; tiles.len() + 1];
        for (tile, bytes) in tile_bytes.iter().enumerate() {
            starts[tile + 1] = starts[tile] + bytes;
        }
        Self { strings, tiles, tile_bytes, starts, ends }
    }

    /// Whether no tile exceeds the kernels' limit of bytes.
    fn fits(&self) -> bool {
        self.tile_bytes.iter().all(|&bytes| bytes <= STRING_TILE_BYTES_MAX)
    }

    /// Bytes on the device.
    fn bytes(&self) -> u64 {
        let text_bytes = self.starts.last().copied().unwrap_or(0);
        text_bytes + STRING_PADDING_BYTES + (self.starts.len() * 8 + self.strings.len().max(1) * 4) as u64
    }
}

/// Where each string of some tiles ends in its tile; returns the bytes of each tile.
fn find_ends(dictionary: &Dictionary, tiles: &[Range<usize>], ends: &mut [u32]) -> Vec<u64> {
    let of_tile = |(ends, tile): (&mut [u32], &Range<usize>)| {
        let mut end = 0u64;
        dictionary.visit(tile.clone(), &mut |string, bytes| {
            end += bytes.len() as u64;
            ends[string] = u32::try_from(end).unwrap_or(u32::MAX);
            Some(())
        });
        end
    };
    ends.par_chunks_mut(TILE).zip(tiles).map(of_tile).collect()
}

/// The module of the kernel.
fn string_module() -> ModuleSource {
    Constants::USUAL.module(warpjoin_kernels::STRINGS, TestParams::<()>::ENTRIES.iter().copied())
}

impl Query<'_> {
    /// The results of a test on every device (values x 1 byte, 1: passed). Computed once for each query.
    pub(super) fn tested(&mut self, test: &DictionaryTest) -> Result<Vec<Arc<Buffer>>> {
        let key = (Arc::as_ptr(&test.dictionary).addr(), Arc::clone(&test.program));
        if let Some(known) = self.tests.of.get(&key) {
            return Ok(known.clone());
        }
        let strings = self.device_strings(&test.dictionary)?;
        let results = match &strings {
            Some(used) => self.run_test(test, &used.strings)?,
            None => self.test_on_host(test)?,
        };
        let results: Vec<Arc<Buffer>> = results.into_iter().map(Arc::new).collect();
        self.tests.of.insert(key, results.clone());
        self.tests.kept.push((Arc::clone(&test.dictionary), strings));
        Ok(results)
    }

    fn test_on_host(&mut self, test: &DictionaryTest) -> Result<Vec<Buffer>> {
        let values = 0..test.dictionary.len() as u32;
        let passes = |code| u8::from(test.program.passes(test.dictionary.bytes(code).unwrap_or_default()));
        let results: Vec<u8> = values.into_par_iter().map(passes).collect();
        self.metrics.uploaded_bytes += (results.len() * self.streams.len()) as u64;
        Ok(self.streams.iter().map(|stream| stream.upload(&results)).collect::<Result<_, _>>()?)
    }

    fn run_test(&mut self, test: &DictionaryTest, strings: &DeviceStrings) -> Result<Vec<Buffer>> {
        let program = &test.program;
        let kernels = self.compile(&string_module(), program.entry())?;
        let elements: Vec<u8> = program.elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        let (mut results, mut spans) = (vec![], vec![]);
        for (device, shard) in strings.shards.iter().enumerate() {
            let stream = &self.streams[device];
            // Shares of tiles are rounded up to words.
            let result = stream.alloc((test.dictionary.len() as u64).next_multiple_of(8))?;
            let elements = stream.upload(if elements.is_empty() { &[0, 0] } else { &elements })?;
            stream.wait_for_permit()?;
            let begin = stream.record()?;
            let tiles = shard.strings.len().div_ceil(TILE);
            if tiles > 0 {
                let params = TestParams {
                    bytes: Ptr::of(&shard.bytes),
                    tile_starts: Ptr::of(&shard.tile_starts),
                    ends: Ptr::of(&shard.ends),
                    strings: shard.strings.len() as u64,
                    elements: Ptr::of(&elements),
                    element_count: program.elements.len() as u64,
                    folds_case: program.folds_case,
                    accepts: program.accepts,
                    results: Ptr::at(&result, shard.strings.start as u64),
                };
                let blocks = u32::try_from(tiles).unwrap_or(u32::MAX).min(stream.device().info().multiprocessors * 8);
                let launch = Launch { blocks, block_threads: BLOCK_THREADS, shared_bytes: STAGE_BYTES + PATTERN_BYTES };
                self.launch(device, &kernels[device], launch, &params)?;
            }
            spans.push((begin, self.streams[device].record()?));
            results.push(result);
            self.kept.push(elements);
        }
        self.share_results(strings, &results)?;
        self.pending.push(Pending::timed(self.metrics.pipelines.len(), spans));
        self.metrics.pipelines.push(PipelineMetrics {
            name: "Dictionary -> Test".into(),
            rows_in: test.dictionary.len() as u64,
            rows_out: test.dictionary.len() as u64,
            read_bytes: strings.shards.iter().map(|shard| shard.text_bytes).sum(),
            kernel_ns: 0,
            retries: 0,
            ..PipelineMetrics::default()
        });
        Ok(results)
    }

    /// Brings the share of each device to all others.
    fn share_results(&mut self, strings: &DeviceStrings, results: &[Buffer]) -> Result<()> {
        let ready = self.record_events()?;
        let waits = self.waits();
        for (from, shard) in strings.shards.iter().enumerate() {
            let (start, bytes) = (shard.strings.start as u64, shard.strings.len() as u64);
            for to in (0..results.len()).filter(|&to| to != from) {
                self.streams[to].wait(&ready[from])?;
                self.copy_across((from, &results[from], start), (to, &results[to], start), bytes)?;
                self.metrics.exchanged_bytes += bytes;
            }
        }
        // The results are kept as long as the query.
        waits.leave();
        Ok(())
    }

    /// The strings on the devices, uploaded if necessary; `None`: there is no room for them.
    fn device_strings(&mut self, dictionary: &Arc<Dictionary>) -> Result<Option<UsedStrings>> {
        if let Some(known) = DeviceStrings::find(dictionary, self.session) {
            return Ok(Some(known));
        }
        let _span = span(|| format!("strings {}", dictionary.len()));
        let devices = self.devices();
        let tiles = dictionary.len().div_ceil(TILE);
        let tile = |device: usize| (tiles * device / devices * TILE).min(dictionary.len());
        let places: Vec<StringPlaces> =
            (0..devices).map(|device| StringPlaces::of(dictionary, tile(device)..tile(device + 1))).collect();
        let mut of_devices = places.iter().zip(self.session.device_set().load_streams());
        if !of_devices.all(|(places, stream)| places.fits() && stream.make_room(places.bytes())) {
            return Ok(None);
        }
        let mut shards = vec![];
        for (device, places) in places.into_iter().enumerate() {
            shards.push(self.upload_strings(device, dictionary, places)?);
        }
        let strings = DeviceStrings { devices: Arc::downgrade(self.session.device_set()), shards };
        Ok(Some(strings.keep(dictionary, self.session)))
    }

    fn upload_strings(&mut self, device: usize, dictionary: &Dictionary, places: StringPlaces) -> Result<StringShard> {
        let StringPlaces { strings, tiles, starts, ends, .. } = places;
        let text_bytes = starts[tiles.len()];
        // What outlives the query lies on a stream that does, too.
        let budget = self.options.memory_budget();
        let stream = self.session.device_set().load_streams()[device].clone();
        let stream = &budget.of_stream(stream);
        let bytes = alloc_in_order(stream, text_bytes + STRING_PADDING_BYTES)?;
        let ends_buffer = alloc_in_order(stream, strings.len().max(1) as u64 * 4)?;
        match (ends, dictionary.adjacent_bytes(strings.clone())) {
            (None, Some(text)) => {
                let lane = CopyLane::new(stream)?;
                let (copied, found) = rayon::join(
                    || self.upload_adjacent(stream, &bytes, text),
                    || self.upload_ends(&lane, &ends_buffer, dictionary, &tiles),
                );
                copied.and(found)?;
            }
            (ends, _) => {
                self.upload_gathered(stream, &bytes, dictionary, &tiles, &starts)?;
                stream.write(&ends_buffer, 0, bytemuck::cast_slice(&ends.unwrap_or_default()))?;
            }
        }
        let shard = StringShard {
            bytes,
            tile_starts: stream.upload(bytemuck::cast_slice(&starts))?,
            ends: ends_buffer,
            text_bytes,
            strings,
        };
        stream.synchronize()?;
        self.metrics.uploaded_bytes += text_bytes + (shard.strings.len() * 4 + starts.len() * 8) as u64;
        Ok(shard)
    }

    /// Finds where strings end in their tiles, and copies that.
    fn upload_ends(
        &self,
        lane: &CopyLane,
        target: &Buffer,
        dictionary: &Dictionary,
        tiles: &[Range<usize>],
    ) -> Result<()> {
        let mut piece = vec![0u32; TILE * tiles.len().min(ENDS_TILES)];
        let mut at = 0;
        for tiles in tiles.chunks(ENDS_TILES) {
            self.options.check_cancelled()?;
            let strings = tiles.iter().map(ExactSizeIterator::len).sum::<usize>();
            let ends = &mut piece[..strings];
            find_ends(dictionary, tiles, ends);
            let copied = lane.enqueue(|stream| Ok(stream.write(target, at, bytemuck::cast_slice(ends))?))?;
            lane.join(&copied)?;
            at += strings as u64 * 4;
        }
        Ok(())
    }

    /// Copies strings that lie one behind the other.
    fn upload_adjacent(&self, stream: &Stream, target: &Buffer, text: &[u8]) -> Result<()> {
        let mut at = 0;
        for piece in text.chunks(COPY_BYTES) {
            self.options.check_cancelled()?;
            stream.write(target, at, piece)?;
            at += piece.len() as u64;
        }
        Ok(stream.write(target, at, &[0; STRING_PADDING_BYTES as usize])?)
    }

    /// Brings the strings of `tiles`, which begin at `starts`, one behind the other, and copies them.
    fn upload_gathered(
        &self,
        stream: &Stream,
        target: &Buffer,
        dictionary: &Dictionary,
        tiles: &[Range<usize>],
        starts: &[u64],
    ) -> Result<()> {
        let mut pieces = vec![];
        let mut first = 0;
        while first < tiles.len() {
            let end =
                starts.partition_point(|&start| start <= starts[first] + PIECE_BYTES).clamp(first + 2, starts.len())
                    - 1;
            pieces.push(first..end);
            first = end;
        }
        let options = self.options;
        let write = |copies: &CopyLane, tiles_of_piece: Range<usize>| {
            options.check_cancelled()?;
            let Range { start, end } = tiles_of_piece;
            // What follows the last string is read with it, and must not be left from elsewhere.
            let padding = if end == tiles.len() { STRING_PADDING_BYTES } else { 0 };
            let mut piece = Vec::with_capacity((starts[end] - starts[start] + padding) as usize);
            for tile in &tiles[start..end] {
                dictionary.visit(tile.clone(), &mut |_, bytes| {
                    piece.extend_from_slice(bytes);
                    Some(())
                });
            }
            piece.resize(piece.len() + padding as usize, 0);
            let written = copies.enqueue(|stream| Ok(stream.write(target, starts[start], &piece)?))?;
            copies.join(&written)
        };
        let lanes = (0..pieces.len().min(UPLOADS_MAX)).map(|_| CopyLane::new(stream)).collect::<Result<Vec<_>>>()?;
        let pieces = &pieces;
        // Lanes end with this call, and wait for the device. A panic there, with the shard returned already, would keep its
        // buffers.
        lanes.par_iter().enumerate().try_for_each(|(number, copies)| {
            (number..pieces.len()).step_by(lanes.len()).try_for_each(|piece| write(copies, pieces[piece].clone()))
        })
    }
}
