//! Launches of the kernels that find an order: `sort.cu` and `top_k.cu`.

use warpjoin_codegen::Constants;
use warpjoin_columns::{Error, Result};
use warpjoin_device::{Buffer, Launch, ModuleSource, Ptr, Stream};
use warpjoin_kernels::common::BLOCK_SUMS;
use warpjoin_kernels::padded;
use warpjoin_kernels::sort::{
    CountDigitsParams, FewParams, GATHER_COLUMNS, GatherParams, SORT_COUNT_THREADS, SORT_DIGIT_BITS, SORT_DIGITS,
    SORT_ITEMS, SORT_THREADS, SampleWordsParams, SortPassParams, TOP_K_DIGIT_BITS, TOP_K_DIGITS, TopKParams,
    top_k_state,
};

use crate::exec::entry_kernels::{EntryKernels, EntryLaunches};
use crate::exec::launch::Strides;
use crate::exec::query::Query;

/// Shared memory for a block's sums (u64), in bytes.
const SUMS_BYTES: u32 = BLOCK_SUMS * 8;
/// Resident blocks of a multiprocessor for counting kernels.
const COUNT_BLOCKS: u64 = 4;
/// Keys of a thread that counts (`WJ_COUNTED_KEYS` of `sort.cu`).
const COUNTED_KEYS: u64 = 8;

/// A key word of the rows of one device.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyWord<'a> {
    pub buffer: &'a Buffer,
    /// Number of low bits that are used.
    pub bits: u32,
}

impl KeyWord<'_> {
    fn width_bytes(self) -> u64 {
        if self.bits <= 32 { 4 } else { 8 }
    }

    /// The entry for words of this width.
    fn entry(self, of: ByWidth) -> &'static str {
        of_width(of, self.width_bytes())
    }
}

/// A kernel for words of 4 bytes and one for words of 8.
type ByWidth = [&'static str; 2];

fn of_width(of: ByWidth, width_bytes: u64) -> &'static str {
    of[usize::from(width_bytes == 8)]
}

const COUNT: ByWidth = ["sort_count_4", "sort_count_8"];
const PASS: ByWidth = ["sort_pass_4", "sort_pass_8"];
/// A pass over words of 8 bytes that writes words of 4.
const NARROWING_PASS: &str = "sort_pass_8_4";
const SAMPLE: ByWidth = ["sort_sample_4", "sort_sample_8"];
const GATHER: &str = "sort_gather";
const DIGIT: ByWidth = ["top_k_digit_4", "top_k_digit_8"];
const COLLECT: ByWidth = ["top_k_collect_4", "top_k_collect_8"];
const FEW: &str = "sort_few";

/// A step of sorting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortStep {
    /// Drops rows by their first word that can't be among the first rows.
    TopK,
    /// One block sorts few rows by all words.
    Few,
    /// Sorts all rows, word by word.
    Radix,
    /// Samples the first words.
    Sample,
    /// Gathers columns into the order.
    Gather,
}

impl SortStep {
    /// The kernel entries for words of these bits.
    fn entries(self, word_bits: &[u32]) -> Vec<&'static str> {
        let of = |kernel: ByWidth, &bits: &u32| kernel[usize::from(bits > 32)];
        match self {
            Self::TopK => word_bits.iter().take(1).flat_map(|bits| [of(DIGIT, bits), of(COLLECT, bits)]).collect(),
            Self::Few => vec![FEW],
            Self::Radix => word_bits
                .iter()
                .flat_map(|bits| {
                    let narrowing = if *bits > u32::BITS { &[NARROWING_PASS, PASS[0]][..] } else { &[] };
                    [of(COUNT, bits), of(PASS, bits)].into_iter().chain(narrowing.iter().copied())
                })
                .collect(),
            Self::Sample => word_bits.iter().take(1).map(|bits| of(SAMPLE, bits)).collect(),
            Self::Gather => vec![GATHER],
        }
    }
}

/// The kernels compiled so far, for every device.
#[derive(Default)]
pub(super) struct SortKernels(EntryKernels);

impl SortKernels {
    /// Compiles the kernels that the steps need and that are missing.
    pub(super) fn compile(&mut self, query: &mut Query<'_>, word_bits: &[u32], steps: &[SortStep]) -> Result<()> {
        let entries = steps.iter().flat_map(|step| step.entries(word_bits));
        self.0.add(query, entries, || [sort_module(), top_k_module()])
    }

    /// Their launches on a device.
    pub(super) fn on<'a>(&'a self, device: usize, stream: &'a Stream, control: &'a Buffer) -> SortLaunches<'a> {
        SortLaunches { on: EntryLaunches::new(&self.0, device, stream), control }
    }
}

/// Enqueues on one device.
pub(super) struct SortLaunches<'a> {
    pub on: EntryLaunches<'a>,
    control: &'a Buffer,
}

/// The values that move with the keys of a sort, and where the results go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved<'a> {
    /// Values of 4 bytes for each row; `None`: the row numbers.
    pub values: Option<&'a Buffer>,
    /// Receives the sorted keys; `None`: they are not needed.
    pub sorted_keys: Option<&'a Buffer>,
    pub sorted_values: Option<&'a Buffer>,
}

/// A top-k selection in progress: the numbers of the first rows.
pub(super) struct TopK {
    pub numbers: Buffer,
    state: Buffer,
    wanted: u64,
    capacity: u64,
    cuts_ties: bool,
}

impl TopK {
    /// Waits, and returns the number of rows collected; `None` if there were too many.
    pub(super) fn rows(&self, stream: &Stream) -> Result<Option<u64>> {
        let mut state = [0u64; top_k_state::WORDS];
        stream.read(&self.state, 0, bytemuck::cast_slice_mut(&mut state))?;
        let all = state[top_k_state::BELOW] + state[top_k_state::WITHIN];
        Ok(match all <= self.capacity {
            true => Some(all),
            false if self.cuts_ties => Some(self.wanted),
            false => None,
        })
    }
}

impl SortLaunches<'_> {
    /// A grid that strides over the rows, and counts in shared memory.
    fn counting(&self, rows: u64, shared_bytes: u32) -> Launch {
        let strides =
            Strides { threads: SORT_COUNT_THREADS, rows_each: COUNTED_KEYS, resident: COUNT_BLOCKS, shared_bytes };
        strides.over(rows, self.on.stream)
    }

    /// Sorts row numbers by a word, stably: the given `numbers`, or all `rows`.
    pub(super) fn radix(&mut self, word: &KeyWord<'_>, rows: u64, numbers: Option<&Buffer>) -> Result<Buffer> {
        let width = word.width_bytes();
        let sorted = self.on.stream.alloc(rows * 4)?;
        // The words in the order of the numbers.
        let keys = match numbers {
            Some(numbers) => {
                let keys = self.on.stream.alloc(rows * width)?;
                self.gather(Some(numbers), 0, rows, &[(word.buffer, &keys, width)])?;
                Some(keys)
            }
            None => None,
        };
        self.sweep(word, rows, keys, Moved { values: numbers, sorted_keys: None, sorted_values: Some(&sorted) })?;
        Ok(sorted)
    }

    /// Sorts rows by a word: by `keys` if given, else by the word in row order. If nobody reads the sorted keys, later passes
    /// move only the bits of a key that they need.
    pub(super) fn sweep(
        &mut self,
        word: &KeyWord<'_>,
        rows: u64,
        mut keys: Option<Buffer>,
        moved: Moved<'_>,
    ) -> Result<()> {
        let mut width = word.width_bytes();
        let passes = word.bits.div_ceil(SORT_DIGIT_BITS).max(1);
        let digit_bits = word.bits.div_ceil(passes).max(1);
        let block_threads = self.on.threads(SORT_THREADS);
        let tile_rows = u64::from(block_threads * SORT_ITEMS);
        let tiles = rows.div_ceil(tile_rows);
        let digits = u64::from(SORT_DIGITS);
        // Sums of all passes, blocks that have counted, tiles taken in each pass; then what tiles publish.
        let head_words = u64::from(passes) * digits + 1 + u64::from(passes);
        let sums = self.on.stream.alloc_filled(head_words * 8, 0)?;
        let published = self.on.stream.alloc_filled(u64::from(passes) * tiles * digits * 8, 0)?;
        let finished = u64::from(passes) * digits;
        let count = self.counting(rows, SUMS_BYTES + passes * SORT_DIGITS * 4 + 4);
        self.on.launch(
            word.entry(COUNT),
            count,
            &CountDigitsParams {
                keys: Ptr::of(keys.as_ref().unwrap_or(word.buffer)),
                rows,
                bits: word.bits.into(),
                digit_bits: digit_bits.into(),
                sums: Ptr::of(&sums),
                finished: Ptr::at(&sums, finished),
            },
        )?;
        let blocks = u32::try_from(tiles).map_err(|_| Error::internal("more tiles than blocks"))?;
        // Rows of each warp, of the tile, and where they go, by digit.
        let by_digit_bytes = SORT_DIGITS * 4 * (block_threads / 32 + 2);
        let mut values: Option<Buffer> = None;
        // Bits that the present keys lack.
        let mut dropped = 0;
        for pass in 0..passes {
            let is_last = pass + 1 == passes;
            let (shift, sorted_bits) = (pass * digit_bits, (pass + 1) * digit_bits);
            let narrows = width == 8
                && !is_last
                && moved.sorted_keys.is_none()
                && word.bits.saturating_sub(sorted_bits) <= u32::BITS;
            let (entry, next_width) = match narrows {
                true => (NARROWING_PASS, 4),
                false => (of_width(PASS, width), width),
            };
            let next_keys = if is_last { None } else { Some(self.on.stream.alloc(rows * next_width)?) };
            let shared_bytes = tile_rows as u32 * width as u32 + by_digit_bytes + BLOCK_SUMS * 4 + 4;
            let launch = Launch { blocks, block_threads, shared_bytes };
            let moves = !is_last && moved.sorted_values.is_some();
            let next_values = if moves { Some(self.on.stream.alloc(rows * 4)?) } else { None };
            self.on.launch(
                entry,
                launch,
                &SortPassParams {
                    keys: Ptr::of(keys.as_ref().unwrap_or(word.buffer)),
                    numbers: values.as_ref().or(moved.values).map(Ptr::of),
                    rows,
                    shift: (shift - dropped).into(),
                    bits: digit_bits.min(word.bits - shift.min(word.bits)).into(),
                    dropped_bits: (sorted_bits - dropped).into(),
                    sums: Ptr::at(&sums, u64::from(pass) * digits),
                    published: Ptr::at(&published, u64::from(pass) * tiles * digits),
                    next_tile: Ptr::at(&sums, finished + 1 + u64::from(pass)),
                    keys_out: if is_last { moved.sorted_keys } else { next_keys.as_ref() }.map(Ptr::of),
                    numbers_out: if is_last { moved.sorted_values } else { next_values.as_ref() }.map(Ptr::of),
                    control: Ptr::of(self.control),
                },
            )?;
            keys = next_keys;
            values = next_values;
            width = next_width;
            if narrows {
                dropped = sorted_bits;
            }
        }
        Ok(())
    }

    /// Gathers columns, each given as source, target and bytes of a row: rows `first` to `first + rows` of `numbers`,
    /// or of the present order.
    pub(super) fn gather(
        &mut self,
        numbers: Option<&Buffer>,
        first: u64,
        rows: u64,
        columns: &[(&Buffer, &Buffer, u64)],
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        for columns in columns.chunks(GATHER_COLUMNS) {
            let params = GatherParams {
                numbers: numbers.map(Ptr::of),
                first,
                rows,
                columns: columns.len() as u64,
                sources: padded(columns.iter().map(|column| Some(Ptr::of(column.0))), None),
                targets: padded(columns.iter().map(|column| Some(Ptr::of(column.1))), None),
                widths: padded(columns.iter().map(|column| column.2), 0),
            };
            self.on.launch(GATHER, Strides::ROWS.over(rows, self.on.stream), &params)?;
        }
        Ok(())
    }

    /// Reads every `stride`-th word. Waits.
    pub(super) fn sample(&mut self, word: &KeyWord<'_>, rows: u64, stride: u64) -> Result<Vec<u64>> {
        let mut samples = vec![0u64; rows.div_ceil(stride) as usize];
        let buffer = self.on.stream.alloc(samples.len() as u64 * 8)?;
        let params = SampleWordsParams {
            keys: Ptr::of(word.buffer),
            stride,
            count: samples.len() as u64,
            samples: Ptr::of(&buffer),
        };
        let launch = Strides::ROWS.over(params.count, self.on.stream);
        self.on.launch(word.entry(SAMPLE), launch, &params)?;
        self.on.stream.read(&buffer, 0, bytemuck::cast_slice_mut(&mut samples))?;
        Ok(samples)
    }

    /// Collects the numbers of the first `wanted` rows by a word, and of other rows with the same or nearly the same
    /// word as the last of them. If further words decide among equal ones, there must be room for all of these.
    pub(super) fn top_k(
        &mut self,
        word: &KeyWord<'_>,
        rows: u64,
        wanted: u64,
        capacity: u64,
        is_only: bool,
    ) -> Result<TopK> {
        // The state, and the counts behind it.
        let state_words = top_k_state::WORDS as u64;
        let state = self.on.stream.alloc_filled(state_words * 8 + u64::from(TOP_K_DIGITS) * 4, 0)?;
        let numbers = self.on.stream.alloc(capacity * 4)?;
        let params = TopKParams {
            keys: Ptr::of(word.buffer),
            rows,
            bits: word.bits.into(),
            wanted,
            capacity,
            cuts_ties: is_only,
            state: Ptr::of(&state),
            counts: Ptr::at(&state, state_words * 2),
            numbers: Ptr::of(&numbers),
        };
        let launch = self.counting(rows, SUMS_BYTES + (TOP_K_DIGITS + 1) * 4);
        for _ in 0..word.bits.div_ceil(TOP_K_DIGIT_BITS) {
            self.on.launch(word.entry(DIGIT), launch, &params)?;
        }
        self.on.launch(word.entry(COLLECT), Launch { shared_bytes: 0, ..launch }, &params)?;
        Ok(TopK { numbers, state, wanted, capacity, cuts_ties: is_only })
    }

    /// Sorts few rows by all words, in one block.
    pub(super) fn few(&mut self, words: &[KeyWord<'_>], numbers: Option<&Buffer>, rows: u64) -> Result<Buffer> {
        let order = self.on.stream.alloc(rows * 4)?;
        let slots = rows.next_power_of_two();
        let params = FewParams {
            words: padded(words.iter().map(|word| Some(Ptr::of(word.buffer))), None),
            is_wide: padded(words.iter().map(|word| word.width_bytes() == 8), false),
            word_count: words.len() as u64,
            numbers: numbers.map(Ptr::of),
            rows,
            slots,
            order: Ptr::of(&order),
        };
        let threads = (slots / 2).clamp(32, 1024) as u32;
        let launch = Launch { blocks: 1, block_threads: self.on.threads(threads), shared_bytes: slots as u32 * 12 };
        self.on.launch(FEW, launch, &params)?;
        Ok(order)
    }
}

fn sort_module() -> ModuleSource {
    Constants::USUAL.module(warpjoin_kernels::SORT, [&COUNT[..], &PASS, &[NARROWING_PASS, GATHER], &SAMPLE].concat())
}

fn top_k_module() -> ModuleSource {
    Constants::USUAL.module(warpjoin_kernels::TOP_K, [&DIGIT[..], &COLLECT, &[FEW]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_as_many_keys_as_their_kernel_takes() {
        let defined = format!("#define WJ_COUNTED_KEYS {COUNTED_KEYS}\n");
        assert!(warpjoin_kernels::SORT.text.contains(&defined), "{defined}");
    }
}
