//! The segments of a hash table, each of which a block builds in shared memory.

use warpjoin_codegen::{BucketShape, SlotForm};
use warpjoin_device::DeviceInfo;
use warpjoin_kernels::table::BUILD_THREADS_MAX;

use super::device::TableDevice;
use super::partitioned::{BIN_BITS_MAX, bits_for};
use crate::exec::partition::PARTITION_BITS_MAX;

/// Equal runs of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segments {
    /// 2^bits segments.
    pub bits: u32,
    pub buckets_each: u64,
}

/// Room of a segment beyond the mean, in standard deviations of its keys: one in a million segments exceeds it.
const SEGMENT_SPREADS: f64 = 4.7;
/// Shared memory for each thread of a build, in bytes: with more threads, registers would limit the resident blocks.
const BYTES_PER_THREAD: u32 = 256;
/// Shared memory that the driver reserves for each block.
const RESERVED_BYTES: u64 = 1024;
/// Smaller segments than this vary too much in fill.
const SEGMENT_BYTES_MIN: u64 = 24 << 10;
/// Shared memory for counters and alignment, besides buckets and late rows.
const SHARED_BYTES_BESIDE: u32 = 16;
/// Slots for each late row, one that finds its home bucket full, that a build has room for. At a load factor of 0.95,
/// one of 8 rows is late.
const SLOTS_PER_LATE: u32 = 6;

impl Segments {
    /// Segments for `keys` keys at a load factor.
    pub(super) fn new(
        device: &TableDevice,
        form: SlotForm,
        shape: BucketShape,
        keys: u64,
        load_factor: f64,
        (is_cut, segment_bytes_max): (bool, Option<u32>),
    ) -> Self {
        let slots_of_bucket = f64::from(shape.bytes / form.slot_bytes());
        let buckets = ((keys as f64 / load_factor / slots_of_bucket).ceil() as u64).max(1);
        if !is_cut {
            return Self { bits: 0, buckets_each: buckets };
        }
        let info = device.stream.device().info();
        let bits = |budget_bytes: u64| {
            let most =
                (budget_bytes.saturating_sub(SHARED_BYTES_BESIDE.into())) / u64::from(bytes_of_bucket(form, shape));
            bits_for(buckets.div_ceil(most.max(1)))
        };
        let bits = match segment_bytes_max {
            Some(bytes) => bits(bytes.into()),
            None => {
                let all_bytes = buckets * u64::from(bytes_of_bucket(form, shape));
                chosen_bits(info, (keys, load_factor), all_bytes, bits)
            }
        };
        Self { bits, buckets_each: buckets.div_ceil(1 << bits) }
    }

    pub(super) fn buckets(self) -> u64 {
        self.buckets_each << self.bits
    }

    /// Maximum late rows of a segment, those that find their home bucket full.
    pub(super) fn late_max(self, form: SlotForm, shape: BucketShape) -> u32 {
        let slots = self.buckets_each * u64::from(shape.bytes / form.slot_bytes());
        u32::try_from(slots / u64::from(SLOTS_PER_LATE)).unwrap_or(u32::MAX)
    }

    /// Shared memory of a block that builds a segment.
    pub(super) fn shared_bytes(self, form: SlotForm, shape: BucketShape) -> u32 {
        let buckets = u32::try_from(self.buckets_each).unwrap_or(u32::MAX);
        buckets.saturating_mul(bytes_of_bucket(form, shape)).saturating_add(SHARED_BYTES_BESIDE)
    }
}

/// Chooses the bits of segments for `keys` keys and `all_bytes` of segments in total; `bits_of` gives the bits for a
/// segment size. Small segments are built by more blocks at once, but vary more in their number of keys.
fn chosen_bits(
    info: &DeviceInfo,
    (keys, load_factor): (u64, f64),
    all_bytes: u64,
    bits_of: impl Fn(u64) -> u32,
) -> u32 {
    let shared_bytes = u64::from(info.shared_bytes_per_block_max);
    let spread_keys = (SEGMENT_SPREADS * load_factor / (1.0 - load_factor).max(1e-3)).powi(2) as u64;
    // Blocks that a multiprocessor holds.
    let most_bytes = |resident: u64| shared_bytes / resident - RESERVED_BYTES;
    let chosen = |resident: u64| {
        let most_bytes = most_bytes(resident);
        let even_bytes = all_bytes / (u64::from(info.multiprocessors) * resident).max(1);
        let wanted = bits_of(even_bytes.clamp(most_bytes.min(SEGMENT_BYTES_MIN), most_bytes));
        let fits = |bits: &u32| *bits <= PARTITION_BITS_MAX && keys >> bits >= spread_keys;
        (bits_of(most_bytes)..=wanted).rev().find(fits)
    };
    // Bins take one pass, which is cheaper with long runs. So there are no more segments than are built at once, two
    // for each multiprocessor, unless they would be too large.
    let bins = bits_of(most_bytes(2)).max((u64::from(info.multiprocessors) * 2).ilog2());
    match (chosen(4), chosen(2)) {
        (_, Some(coarse)) if coarse.min(bins) <= BIN_BITS_MAX => coarse.min(bins),
        (fine, coarse) => fine.or(coarse).or_else(|| chosen(1)).unwrap_or_else(|| bits_of(most_bytes(1))),
    }
}

/// Shared memory of a bucket: slots, a counter, a passed byte, and late rows with their links.
fn bytes_of_bucket(form: SlotForm, shape: BucketShape) -> u32 {
    shape.bytes + 5 + (8 * (shape.bytes / form.slot_bytes())).div_ceil(SLOTS_PER_LATE)
}

impl Segments {
    /// Threads of a block that builds a segment.
    pub(super) fn block_threads(self, form: SlotForm, shape: BucketShape) -> u32 {
        (self.shared_bytes(form, shape) / BYTES_PER_THREAD).next_power_of_two().clamp(128, BUILD_THREADS_MAX)
    }
}
