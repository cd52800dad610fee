// Fills runtime filters with the key words of a finished build: see join/runtime_filter.cuh.
//
// Inputs: keys[rows], never 0; words, zeroed: (span + 31) / 32 of 4 bytes for a bitmap of key words up to span, `count`
// of 8 bytes for a Bloom filter, none for bounds alone; bounds[2], zeroed, or null.
// Grid: one row a thread, grid stride; no shared memory, no status.
#include "group/accumulate.cuh"
#include "join/params.cuh"  // src/join.rs
#include "join/runtime_filter.cuh"

// Calls `set` for each key and raises the bounds, once a warp.
template <class Set>
WJ_DEVICE void fill(const FilterParams& p, Set set) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 below = 0;
    u64 highest = 0;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        const u64 key = p.keys[row];
        set(key);
        if (~key > below) below = ~key;
        if (key > highest) highest = key;
    }
    if (p.bounds == nullptr) return;
WJ_UNROLL
    for (u32 distance = 16; distance > 0; distance /= 2) {
        const u64 other_below = __shfl_xor_sync(0xffffffffu, below, distance);
        const u64 other_highest = __shfl_xor_sync(0xffffffffu, highest, distance);
        if (other_below > below) below = other_below;
        if (other_highest > highest) highest = other_highest;
    }
    if ((threadIdx.x & 31) == 0) {
        accumulate_max(&p.bounds[0], below);
        accumulate_max(&p.bounds[1], highest);
    }
}

WJ_ENTRY(fill_bounds, FilterParams, WJ_BLOCK_THREADS) {
    fill(p, [](u64 key) {});
}

WJ_ENTRY(fill_bitmap, FilterParams, WJ_BLOCK_THREADS) {
    u32* words = static_cast<u32*>(p.words);
    fill(p, [&](u64 key) { set_in_bitmap(words, key); });
}

WJ_ENTRY(fill_bloom, FilterParams, WJ_BLOCK_THREADS) {
    u64* words = static_cast<u64*>(p.words);
    fill(p, [&](u64 key) {
        const u64 hash = hash_key(key);
        accumulate_or(&words[hash_place(hash, p.count)], bloom_bits(hash));
    });
}
