//! A cache of freed device memory, one per stream.
//!
//! A query allocates some forty buffers per millisecond of kernel time. The driver takes 5 us to allocate and free one, and
//! 4 us more to clear it. A stream can reuse its freed memory immediately, since its work is in order. Blocks of up to
//! 1 MiB are kept in free lists by size. The smallest cleared blocks come from slabs, each cleared as a whole. Larger blocks
//! are kept for allocations of nearly the same size, as when a query runs again: the driver's pool does not find room
//! for them among free memory in pieces, and then takes 1 to 2 ms a GiB to map other memory, more for peers.
//!
//! Owns the addresses of free blocks; must not call the driver.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size classes are powers of two.
const SMALLEST_BITS: u32 = 8;
const LARGEST_BITS: u32 = 20;
const CLASSES: usize = (LARGEST_BITS - SMALLEST_BITS + 1) as usize;
/// Maximum bytes in free lists.
const KEPT_BYTES_MAX: u64 = 32 << 20;
/// Maximum number of larger blocks of a stream.
const LARGE_MAX: usize = 64;
/// A larger block may exceed the requested bytes by one part in this many, a huge one by less.
const UNUSED_SHARE: u64 = 8;
const HUGE_BYTES: u64 = 128 << 20;
const HUGE_UNUSED_SHARE: u64 = 64;
/// Pieces of a slab. A piece has the smallest block size.
const SLAB_PIECES: u64 = 64;
const PIECE_BYTES: u64 = 1 << SMALLEST_BITS;
/// Size of a slab.
pub(super) const SLAB_BYTES: u64 = SLAB_PIECES * PIECE_BYTES;

/// The free memory of one stream.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Free blocks by size class.
    free: [Vec<u64>; CLASSES],
    kept_bytes: u64,
    /// Address and bytes of larger free blocks, in the order in which they were freed.
    large: VecDeque<(u64, u64)>,
    large_bytes: u64,
    /// Bytes that all streams of the GPU may keep.
    total_bytes_max: u64,
    /// Pieces are taken from the last slab.
    slabs: Vec<Slab>,
    /// Bytes that all streams of a GPU keep, without slabs, which are a few KiB.
    total_bytes: Arc<AtomicU64>,
}

/// A range of pieces that was cleared as a whole.
#[derive(Debug)]
struct Slab {
    address: u64,
    /// Pieces taken since the slab was cleared.
    taken: u64,
    /// Taken pieces that are in use.
    live: u64,
}

impl Blocks {
    /// An empty cache that adds its bytes to `total_bytes`, and keeps larger blocks as long as they stay within the
    /// maximum.
    pub(super) fn with_total(total_bytes: Arc<AtomicU64>, total_bytes_max: u64) -> Self {
        Self { total_bytes, total_bytes_max, ..Self::default() }
    }

    fn keep(&mut self, bytes: u64) {
        self.kept_bytes += bytes;
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn unkeep(&mut self, bytes: u64) {
        self.kept_bytes -= bytes;
        self.total_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn keep_large(&mut self, bytes: u64) {
        self.large_bytes += bytes;
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn unkeep_large(&mut self, bytes: u64) {
        self.large_bytes -= bytes;
        self.total_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes to allocate from the driver for a request of `bytes`.
    pub(super) fn size(bytes: u64) -> u64 {
        class_of(bytes).map_or(bytes, |class| 1 << (class as u32 + SMALLEST_BITS))
    }

    /// Takes a free block of at least `bytes`, with undefined content.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let Some(class) = class_of(bytes) else { return self.take_large(bytes) };
        let address = self.free[class].pop()?;
        self.unkeep(Self::size(bytes));
        Some(address)
    }

    /// Whether cleared blocks of this size come from slabs.
    pub(super) fn is_piece(bytes: u64) -> bool {
        bytes <= PIECE_BYTES
    }

    /// Takes a cleared piece. `None` if a slab must be added first.
    pub(super) fn take_cleared(&mut self) -> Option<u64> {
        let slab = self.slabs.last_mut().filter(|slab| slab.taken < SLAB_PIECES)?;
        let address = slab.address + slab.taken * PIECE_BYTES;
        slab.taken += 1;
        slab.live += 1;
        Some(address)
    }

    /// Removes a slab without pieces in use. The caller clears it and passes it to [`Self::add_slab`].
    pub(super) fn unused_slab(&mut self) -> Option<u64> {
        let at = self.slabs.iter().position(|slab| slab.live == 0)?;
        Some(self.slabs.remove(at).address)
    }

    /// Adds a cleared slab, from which pieces are taken from now on.
    pub(super) fn add_slab(&mut self, address: u64) {
        self.slabs.push(Slab { address, taken: 0, live: 0 });
    }

    fn take_large(&mut self, bytes: u64) -> Option<u64> {
        let most = bytes + bytes / if bytes >= HUGE_BYTES { HUGE_UNUSED_SHARE } else { UNUSED_SHARE };
        let fits = self.large.iter().enumerate().filter(|(_, (_, kept))| (bytes..=most).contains(kept));
        let (at, _) = fits.min_by_key(|(_, (_, kept))| *kept)?;
        let (address, kept) = self.large.remove(at)?;
        self.unkeep_large(kept);
        Some(address)
    }

    /// Frees a block or piece of `bytes`. The caller returns the resulting addresses to the driver.
    pub(super) fn put(&mut self, address: u64, bytes: u64) -> Vec<u64> {
        if Self::is_piece(bytes)
            && let Some(slab) = self.slabs.iter_mut().find(|slab| (slab.address..slab.end()).contains(&address))
        {
            slab.live -= 1;
            return vec![];
        }
        let Some(class) = class_of(bytes) else { return self.put_large(address, bytes) };
        if self.kept_bytes + Self::size(bytes) > KEPT_BYTES_MAX {
            return vec![address];
        }
        self.keep(Self::size(bytes));
        self.free[class].push(address);
        vec![]
    }

    fn put_large(&mut self, address: u64, bytes: u64) -> Vec<u64> {
        if bytes > self.total_bytes_max / 2 {
            return vec![address];
        }
        self.large.push_back((address, bytes));
        self.keep_large(bytes);
        let mut returned = vec![];
        while self.large.len() > LARGE_MAX || self.total_bytes.load(Ordering::Relaxed) > self.total_bytes_max {
            let Some((address, bytes)) = self.large.pop_front() else { break };
            self.unkeep_large(bytes);
            returned.push(address);
        }
        returned
    }

    /// Removes all free memory. The caller returns the resulting addresses to the driver.
    pub(super) fn drain(&mut self) -> Vec<u64> {
        self.unkeep(self.kept_bytes);
        self.unkeep_large(self.large_bytes);
        let mut addresses: Vec<u64> = self.free.iter_mut().flat_map(std::mem::take).collect();
        addresses.extend(self.large.drain(..).map(|(address, _)| address));
        while let Some(address) = self.unused_slab() {
            addresses.push(address);
        }
        addresses
    }
}

impl Slab {
    fn end(&self) -> u64 {
        self.address + SLAB_BYTES
    }
}

/// Size class of a block; `None` for larger blocks.
fn class_of(bytes: u64) -> Option<usize> {
    let bits = 64 - bytes.saturating_sub(1).leading_zeros();
    (bits <= LARGEST_BITS).then(|| bits.max(SMALLEST_BITS) as usize - SMALLEST_BITS as usize)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const MAX: u64 = 256 << 20;

    fn blocks() -> Blocks {
        Blocks::with_total(Arc::default(), MAX)
    }

    #[test]
    fn small_sizes_are_rounded_up_to_a_power_of_two() {
        assert_eq!([1, 256, 257, 1 << 20].map(Blocks::size), [256, 256, 512, 1 << 20]);
        assert_eq!(Blocks::size((1 << 20) + 1), (1 << 20) + 1);
        let mut blocks = Blocks::default();
        assert!(blocks.put(4096, 1000).is_empty());
        assert_eq!((blocks.take(512), blocks.take(513), blocks.take(1024)), (None, Some(4096), None));
    }

    #[test]
    fn the_total_counts_all_streams() {
        let total = Arc::new(AtomicU64::new(0));
        let [mut one, mut other] = [(); 2].map(|()| Blocks::with_total(Arc::clone(&total), MAX));
        let kept = || total.load(Ordering::Relaxed);
        assert!(one.put(4096, 1000).is_empty() && other.put(1 << 40, 80 << 20).is_empty());
        assert_eq!(kept(), 1024 + (80 << 20));
        assert_eq!(one.take(1024), Some(4096));
        assert_eq!(kept(), 80 << 20);
        // Larger blocks exceed the maximum, and evict each other; those of another stream count.
        (1..5).for_each(|n| drop(other.put(n << 41, 100 << 20)));
        assert_eq!(kept(), other.large_bytes);
        assert_eq!(one.put(1 << 50, 100 << 20), [1 << 50]);
        other.drain();
        assert!(one.put(1 << 50, 100 << 20).is_empty());
        one.drain();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn kept_bytes_have_a_maximum() {
        let mut blocks = Blocks::default();
        let kept = (0..64).filter(|&n| blocks.put(n << 20, 1 << 20).is_empty()).count();
        assert_eq!(kept as u64, KEPT_BYTES_MAX >> 20);
        assert_eq!(blocks.drain().len(), kept);
        assert!(blocks.drain().is_empty() && blocks.kept_bytes == 0);
    }

    #[test]
    fn large_blocks_are_reused_for_nearly_their_size() {
        let mut blocks = blocks();
        assert_eq!(blocks.put(1 << 40, MAX), [1 << 40], "too large");
        assert!(blocks.put(1 << 41, 80 << 20).is_empty() && blocks.put(2 << 41, 90 << 20).is_empty());
        assert_eq!(blocks.take(70 << 20), None, "too much would be unused");
        assert_eq!(blocks.take(91 << 20), None);
        assert_eq!(blocks.take(85 << 20), Some(2 << 41));
        assert_eq!(blocks.take(80 << 20), Some(1 << 41));
        // The blocks freed first are evicted.
        for n in 0..4 {
            let returned = blocks.put((n + 1) << 41, 100 << 20);
            assert_eq!(returned, if n < 2 { vec![] } else { vec![(n - 1) << 41] });
        }
        assert_eq!(blocks.drain(), [3 << 41, 4 << 41]);
        assert_eq!(blocks.large_bytes, 0);
        // Of huge ones little may be unused.
        assert!(blocks.put(1 << 41, 128 << 20).is_empty());
        assert_eq!(blocks.take((128 << 20) - (4 << 20)), Some(1 << 41));
        let mut blocks = Blocks::with_total(Arc::default(), 1 << 40);
        assert!(blocks.put(1 << 41, 1 << 30).is_empty());
        assert_eq!(blocks.take((1 << 30) - (64 << 20)), None);
        assert_eq!(blocks.take((1 << 30) - (8 << 20)), Some(1 << 41));
    }

    proptest! {
        /// With a fake driver: blocks in use never overlap, cleared blocks are clear, and no memory is lost.
        #[test]
        fn blocks_in_use_do_not_overlap(steps in prop::collection::vec((any::<bool>(), 1..(3u64 << 20), any::<prop::sample::Index>()), 1..400)) {
            let mut blocks = blocks();
            let (mut next, mut owned) = (1u64 << 30, HashMap::new());
            let mut clear: HashMap<u64, bool> = HashMap::new();
            let mut used: Vec<(u64, u64)> = vec![];
            let mut driver = |bytes: u64, owned: &mut HashMap<u64, u64>| {
                next += 1 << 22;
                owned.insert(next, bytes);
                next
            };
            for (allocates, bytes, which) in steps {
                if allocates || used.is_empty() {
                    let cleared = bytes % 3 == 0;
                    let bytes = if cleared { bytes % PIECE_BYTES + 1 } else { bytes };
                    let address = if cleared {
                        blocks.take_cleared().unwrap_or_else(|| {
                            let slab = blocks.unused_slab().unwrap_or_else(|| driver(SLAB_BYTES, &mut owned));
                            (0..SLAB_PIECES).for_each(|piece| { clear.insert(slab + piece * PIECE_BYTES, true); });
                            blocks.add_slab(slab);
                            blocks.take_cleared().unwrap()
                        })
                    } else {
                        blocks.take(bytes).unwrap_or_else(|| driver(Blocks::size(bytes), &mut owned))
                    };
                    prop_assert!(!cleared || clear[&address]);
                    prop_assert!(used.iter().all(|&(a, b)| address + bytes <= a || a + b <= address));
                    clear.insert(address, false);
                    used.push((address, bytes));
                } else {
                    let (address, bytes) = used.swap_remove(which.index(used.len()));
                    for address in blocks.put(address, bytes) {
                        prop_assert!(owned.remove(&address).is_some());
                    }
                }
            }
            for (address, bytes) in used {
                for address in blocks.put(address, bytes) {
                    prop_assert!(owned.remove(&address).is_some());
                }
            }
            for address in blocks.drain() {
                prop_assert!(owned.remove(&address).is_some());
            }
            prop_assert!(owned.is_empty(), "lost: {owned:?}");
        }
    }
}
