//! Launches of the kernels that find an order: `sort.cu` and `top_k.cu`.

use warpjoin_device::{Arg, Buffer, Kernel, Launch, ModuleSource, Stream};

use crate::codegen::{
    BLOCK_THREADS, Constants, GATHER_COLUMNS, SORT_DIGIT_BITS, SORT_DIGITS, SORT_FEW_WORDS, SORT_ITEMS, SORT_THREADS,
    TOP_K_DIGIT_BITS, sort_defines, top_k_state,
};
use crate::exec::entry_kernels::EntryKernels;
use crate::exec::query::Query;
use crate::{Error, Result};

/// Bytes of the partial sums of a block scan of u64, padded.
const SCAN_BYTES: u32 = 33 * 8;
/// Threads of blocks that count, and how many of them share a multiprocessor.
const COUNT_THREADS: u32 = 512;
const COUNT_BLOCKS: u64 = 4;

/// A key word of the rows of one device.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyWord<'a> {
    pub buffer: &'a Buffer,
    /// Bits that are used, from the lowest one on.
    pub bits: u32,
}

impl KeyWord<'_> {
    fn width_bytes(self) -> u64 {
        if self.bits <= 32 { 4 } else { 8 }
    }
}

/// A kernel for words of 4 bytes and one for words of 8.
type ByWidth = [&'static str; 2];

const COUNT: ByWidth = ["sort_count_4", "sort_count_8"];
const PASS: ByWidth = ["sort_pass_4", "sort_pass_8"];
const SAMPLE: ByWidth = ["sort_sample_4", "sort_sample_8"];
const GATHER: &str = "sort_gather";
const DIGIT: ByWidth = ["top_k_digit_4", "top_k_digit_8"];
const COLLECT: ByWidth = ["top_k_collect_4", "top_k_collect_8"];
const FEW: &str = "sort_few";

/// What is done with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortStep {
    /// Some are left out by their first word.
    TopK,
    /// One block sorts them by all words.
    Few,
    /// All are sorted, word by word.
    Radix,
    /// Their first words are looked at.
    Sample,
    /// Columns are brought into an order.
    Gather,
}

impl SortStep {
    /// The entries for words of so many bits.
    fn entries(self, word_bits: &[u32]) -> Vec<&'static str> {
        let of = |kernel: ByWidth, &bits: &u32| kernel[usize::from(bits > 32)];
        match self {
            Self::TopK => word_bits.iter().take(1).flat_map(|bits| [of(DIGIT, bits), of(COLLECT, bits)]).collect(),
            Self::Few => vec![FEW],
            Self::Radix => word_bits.iter().flat_map(|bits| [of(COUNT, bits), of(PASS, bits)]).collect(),
            Self::Sample => word_bits.iter().take(1).map(|bits| of(SAMPLE, bits)).collect(),
            Self::Gather => vec![GATHER],
        }
    }
}

/// The kernels that were wanted so far, on every device.
#[derive(Default)]
pub(super) struct SortKernels(EntryKernels);

impl SortKernels {
    /// Compiles what the steps need, and was not needed before.
    pub(super) fn compile(&mut self, query: &mut Query<'_>, word_bits: &[u32], steps: &[SortStep]) -> Result<()> {
        let entries = steps.iter().flat_map(|step| step.entries(word_bits));
        self.0.add(query, entries, || [sort_module(), top_k_module()])
    }

    fn get(&self, entry: &str, device: usize) -> Result<&Kernel> {
        self.0.get(entry, device)
    }

    fn of(&self, entries: ByWidth, word: &KeyWord<'_>, device: usize) -> Result<&Kernel> {
        self.get(entries[usize::from(word.width_bytes() == 8)], device)
    }
}

/// Enqueues on one device.
pub(super) struct SortLaunches<'a> {
    pub kernels: &'a SortKernels,
    pub device: usize,
    pub stream: &'a Stream,
    pub control: &'a Buffer,
    pub launches: u64,
}

/// What moves with the keys of a sort, and where it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved<'a> {
    /// 4 bytes a row; `None`: the rows' numbers.
    pub values: Option<&'a Buffer>,
    /// `None`: nobody needs them.
    pub sorted_keys: Option<&'a Buffer>,
    pub sorted_values: Option<&'a Buffer>,
}

/// Rows up to the last one wanted, on their way.
pub(super) struct TopK {
    pub numbers: Buffer,
    state: Buffer,
    wanted: u64,
    capacity: u64,
    cuts_ties: bool,
}

impl TopK {
    /// Waits; how many rows were collected, `None` where these were too many.
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
    fn launch(&mut self, kernel: &Kernel, launch: Launch, args: &[Arg<'_>]) -> Result<()> {
        self.stream.launch(kernel, launch, args)?;
        self.launches += 1;
        Ok(())
    }

    fn threads(&self, threads: u32) -> u32 {
        self.stream.device().info().block_threads(threads)
    }

    /// A grid that strides over the rows, and counts in shared memory.
    fn counting(&self, rows: u64, shared_bytes: u32) -> Launch {
        let block_threads = self.threads(COUNT_THREADS);
        let fill = u64::from(self.stream.device().info().multiprocessors) * COUNT_BLOCKS;
        let blocks = rows.div_ceil(u64::from(block_threads) * 8).clamp(1, fill.max(1));
        Launch { blocks: blocks as u32, block_threads, shared_bytes }
    }

    /// Sorts row numbers by a word: those given, in whose order equal words stay, or all `rows`.
    pub(super) fn radix(&mut self, word: &KeyWord<'_>, rows: u64, numbers: Option<&Buffer>) -> Result<Buffer> {
        let width = word.width_bytes();
        let sorted = self.stream.alloc(rows * 4)?;
        // The words in the order of the numbers.
        let keys = match numbers {
            Some(numbers) => {
                let keys = self.stream.alloc(rows * width)?;
                self.gather(Some(numbers), 0, rows, &[(word.buffer, &keys, width)])?;
                Some(keys)
            }
            None => None,
        };
        self.sweep(word, rows, keys, Moved { values: numbers, sorted_keys: None, sorted_values: Some(&sorted) })?;
        Ok(sorted)
    }

    /// Sorts rows by a word: `keys`, or the word as it lies.
    pub(super) fn sweep(
        &mut self,
        word: &KeyWord<'_>,
        rows: u64,
        mut keys: Option<Buffer>,
        moved: Moved<'_>,
    ) -> Result<()> {
        let width = word.width_bytes();
        let passes = word.bits.div_ceil(SORT_DIGIT_BITS).max(1);
        let digit_bits = word.bits.div_ceil(passes).max(1);
        let block_threads = self.threads(SORT_THREADS);
        let tile_rows = u64::from(block_threads * SORT_ITEMS);
        let tiles = rows.div_ceil(tile_rows);
        let digits = u64::from(SORT_DIGITS);
        let published_bytes = tiles * digits * 8;
        // Sums of all passes, blocks that have counted, tiles taken in each pass; then what tiles publish.
        let head_words = u64::from(passes) * digits + 1 + u64::from(passes);
        let sums = self.stream.alloc_filled(head_words * 8, 0)?;
        let published = self.stream.alloc_filled(u64::from(passes) * published_bytes, 0)?;
        let finished = u64::from(passes) * digits * 8;
        let count = self.counting(rows, SCAN_BYTES + passes * SORT_DIGITS * 4 + 4);
        self.launch(
            self.kernels.of(COUNT, word, self.device)?,
            count,
            &[
                Arg::Buffer(keys.as_ref().unwrap_or(word.buffer)),
                Arg::U64(rows),
                Arg::U64(word.bits.into()),
                Arg::U64(digit_bits.into()),
                Arg::Buffer(&sums),
                Arg::BufferAt(&sums, finished),
            ],
        )?;
        let blocks = u32::try_from(tiles).map_err(|_| Error::internal("more tiles than blocks"))?;
        let shared_bytes =
            tile_rows as u32 * width as u32 + SORT_DIGITS * (8 + 4 + block_threads / 32 * 4) + 33 * 4 + 4;
        let launch = Launch { blocks, block_threads, shared_bytes };
        let mut values: Option<Buffer> = None;
        for pass in 0..passes {
            let is_last = pass + 1 == passes;
            let shift = pass * digit_bits;
            let next_keys = if is_last { None } else { Some(self.stream.alloc(rows * width)?) };
            let moves = !is_last && moved.sorted_values.is_some();
            let next_values = if moves { Some(self.stream.alloc(rows * 4)?) } else { None };
            self.launch(
                self.kernels.of(PASS, word, self.device)?,
                launch,
                &[
                    Arg::Buffer(keys.as_ref().unwrap_or(word.buffer)),
                    Arg::or_null(values.as_ref().or(moved.values)),
                    Arg::U64(rows),
                    Arg::U64(shift.into()),
                    Arg::U64(digit_bits.min(word.bits - shift.min(word.bits)).into()),
                    Arg::BufferAt(&sums, u64::from(pass) * digits * 8),
                    Arg::BufferAt(&published, u64::from(pass) * published_bytes),
                    Arg::BufferAt(&sums, finished + 8 + u64::from(pass) * 8),
                    Arg::or_null(if is_last { moved.sorted_keys } else { next_keys.as_ref() }),
                    Arg::or_null(if is_last { moved.sorted_values } else { next_values.as_ref() }),
                    Arg::Buffer(self.control),
                ],
            )?;
            keys = next_keys;
            values = next_values;
        }
        Ok(())
    }

    /// Columns, each from, to and bytes a row: rows `first` to `first + rows` of `numbers`, or of all as they lie.
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
            let mut args = vec![Arg::or_null(numbers), Arg::U64(first), Arg::U64(rows), Arg::U64(columns.len() as u64)];
            let at = |index: usize| columns.get(index);
            args.extend((0..GATHER_COLUMNS).map(|index| at(index).map_or(Arg::Null, |column| Arg::Buffer(column.0))));
            args.extend((0..GATHER_COLUMNS).map(|index| at(index).map_or(Arg::Null, |column| Arg::Buffer(column.1))));
            args.extend((0..GATHER_COLUMNS).map(|index| Arg::U64(at(index).map_or(0, |column| column.2))));
            let launch = crate::exec::launch::launch(rows, self.stream, 0);
            self.launch(self.kernels.get(GATHER, self.device)?, launch, &args)?;
        }
        Ok(())
    }

    /// Every `stride`-th word. Waits.
    pub(super) fn sample(&mut self, word: &KeyWord<'_>, rows: u64, stride: u64) -> Result<Vec<u64>> {
        let mut samples = vec![0u64; rows.div_ceil(stride) as usize];
        let buffer = self.stream.alloc(samples.len() as u64 * 8)?;
        let launch = Launch {
            blocks: (samples.len() as u64).div_ceil(BLOCK_THREADS.into()).max(1) as u32,
            block_threads: self.threads(BLOCK_THREADS),
            shared_bytes: 0,
        };
        let args = [Arg::Buffer(word.buffer), Arg::U64(stride), Arg::U64(samples.len() as u64), Arg::Buffer(&buffer)];
        self.launch(self.kernels.of(SAMPLE, word, self.device)?, launch, &args)?;
        self.stream.read(&buffer, 0, bytemuck::cast_slice_mut(&mut samples))?;
        Ok(samples)
    }

    /// Collects the numbers of the first `wanted` rows by a word, and of others that have the last one's key or nearly so.
    /// Where other words decide among equal ones, all of those must find room.
    pub(super) fn top_k(
        &mut self,
        word: &KeyWord<'_>,
        rows: u64,
        wanted: u64,
        capacity: u64,
        is_only: bool,
    ) -> Result<TopK> {
        let digits = 1u64 << TOP_K_DIGIT_BITS;
        let state_bytes = top_k_state::WORDS as u64 * 8;
        let state = self.stream.alloc_filled(state_bytes + digits * 4, 0)?;
        let numbers = self.stream.alloc(capacity * 4)?;
        let args = [
            Arg::Buffer(word.buffer),
            Arg::U64(rows),
            Arg::U64(word.bits.into()),
            Arg::U64(wanted),
            Arg::U64(capacity),
            Arg::U64(is_only.into()),
            Arg::Buffer(&state),
            Arg::BufferAt(&state, state_bytes),
            Arg::Buffer(&numbers),
        ];
        let launch = self.counting(rows, SCAN_BYTES + (digits as u32 + 1) * 4);
        for _ in 0..word.bits.div_ceil(TOP_K_DIGIT_BITS) {
            self.launch(self.kernels.of(DIGIT, word, self.device)?, launch, &args)?;
        }
        self.launch(self.kernels.of(COLLECT, word, self.device)?, Launch { shared_bytes: 0, ..launch }, &args)?;
        Ok(TopK { numbers, state, wanted, capacity, cuts_ties: is_only })
    }

    /// The order of few rows by all words.
    pub(super) fn few(&mut self, words: &[KeyWord<'_>], numbers: Option<&Buffer>, rows: u64) -> Result<Buffer> {
        let order = self.stream.alloc(rows * 4)?;
        let slots = rows.next_power_of_two();
        let at = |index: usize| words.get(index);
        let mut args: Vec<Arg<'_>> =
            (0..SORT_FEW_WORDS).map(|index| at(index).map_or(Arg::Null, |word| Arg::Buffer(word.buffer))).collect();
        args.extend((0..SORT_FEW_WORDS).map(|i| Arg::U64(at(i).is_some_and(|word| word.width_bytes() == 8).into())));
        args.extend([
            Arg::U64(words.len() as u64),
            Arg::or_null(numbers),
            Arg::U64(rows),
            Arg::U64(slots),
            Arg::Buffer(&order),
        ]);
        let threads = (slots / 2).clamp(32, 1024) as u32;
        let launch = Launch { blocks: 1, block_threads: self.threads(threads), shared_bytes: slots as u32 * 12 };
        self.launch(self.kernels.get(FEW, self.device)?, launch, &args)?;
        Ok(order)
    }
}

fn sort_module() -> ModuleSource {
    module(warpjoin_kernels::SORT, &[&COUNT[..], &PASS, &[GATHER], &SAMPLE].concat())
}

fn top_k_module() -> ModuleSource {
    module(warpjoin_kernels::TOP_K, &[&DIGIT[..], &COLLECT, &[FEW]].concat())
}

fn module(file: warpjoin_kernels::KernelFile, entries: &[&str]) -> ModuleSource {
    let mut defines = Constants { hash_bits: 64, lanes: 1 }.defines();
    defines.extend(sort_defines());
    ModuleSource {
        name: file.name.into(),
        text: file.text.into(),
        entries: entries.iter().map(|entry| (*entry).to_string()).collect(),
        defines,
    }
}
