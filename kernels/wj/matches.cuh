// Matches of two relations that were partitioned by the same bits of their keys' hashes.
//
// The work is cut into items: up to `capacity` build rows of a partition with up to `chunk_rows` probe rows
// of it. A block links the build rows of an item into chains in shared memory, one atomic exchange a
// row, and walks them for each probe row. Equal keys are links of one chain, so any number of
// duplicates is right; an item's work is bounded by capacity x chunk_rows.
#pragma once
#include "wj/partition.cuh"

// One work item; no build rows: there are no more.
struct MatchItem {
    u32 build_first;
    u32 probe_first;
    u32 build_rows;
    u32 probe_rows;
};

// The last of `count` ascending starts that is at most `value`; starts[0] is. All lanes of a warp call it.
WJ_DEVICE u32 last_start(const u64* starts, u32 count, u64 value) {
    const u32 lane = threadIdx.x & 31;
    u32 low = 0;
    u32 size = count;
    for (u32 step = 0; step < 8 && size > 1; ++step) {
        const u32 stride = (size + 31) / 32;
        const bool is_before = lane * stride < size && starts[low + lane * stride] <= value;
        const u32 last = __popc(__ballot_sync(0xffffffffu, is_before)) - 1;
        low += last * stride;
        size = size - last * stride < stride ? size - last * stride : stride;
    }
    return low;
}

struct MatchSides {
    const u32* build_offsets;  // partitions + 1
    const u32* probe_offsets;  // partitions + 1
    const u64* items;          // partitions + 1: work items before each partition
    u32 partitions;
    u32 capacity;
    u32 chunk_rows;
};

// Work item `number`. All lanes of a warp call it with the same number.
WJ_DEVICE MatchItem match_item(const MatchSides& sides, u64 number) {
    if (number >= sides.items[sides.partitions]) return MatchItem{0, 0, 0, 0};
    // Where each partition is one item, its number is that of the item.
    const bool is_guess = number < sides.partitions && sides.items[number] == number && sides.items[number + 1] > number;
    const u32 partition = is_guess ? (u32)number : last_start(sides.items, sides.partitions, number);
    const u32 build = sides.build_offsets[partition];
    const u32 probe = sides.probe_offsets[partition];
    const u32 build_rows = sides.build_offsets[partition + 1] - build;
    const u32 probe_rows = sides.probe_offsets[partition + 1] - probe;
    const u32 chunks = (probe_rows + sides.chunk_rows - 1) / sides.chunk_rows;
    const u64 index = number - sides.items[partition];
    const u32 build_skip = (u32)(index / chunks) * sides.capacity;
    const u32 probe_skip = (u32)(index % chunks) * sides.chunk_rows;
    const u32 build_left = build_rows - build_skip;
    const u32 probe_left = probe_rows - probe_skip;
    return MatchItem{build + build_skip, probe + probe_skip, build_left < sides.capacity ? build_left : sides.capacity,
                     probe_left < sides.chunk_rows ? probe_left : sides.chunk_rows};
}

// Chains in shared memory: entry = place of a build row in the item + 1, 0: end.
struct MatchTable {
    u32* heads;
    u16* next;
    u32 heads_bits;
    u32 capacity;
};

// The chain of a key word. A partition is a random sample of the keys, by all bits of a strong hash: one
// multiplication spreads it, and costs a fifth.
WJ_DEVICE u32 chain_of(const MatchTable& table, u64 word) {
    const u64 mixed = WJ_HASH_BITS < 64 ? hash_key(word) : word * WJ_HASH_MULTIPLIER_A;
    return (u32)(mixed >> 32) >> (32 - table.heads_bits);
}

// One word of several key words.
WJ_DEVICE u64 fold_words(u64 word, u64 next) { return (word ^ word >> 31) * WJ_HASH_MULTIPLIER_B + next; }

// Empties the table. All threads of the block call it.
WJ_DEVICE void clear_chains(const MatchTable& table) {
    __syncthreads();
    for (u32 head = threadIdx.x; head < 1u << table.heads_bits; head += blockDim.x) table.heads[head] = 0;
    __syncthreads();
}

WJ_DEVICE void link_row(const MatchTable& table, u32 place, u64 word) {
    table.next[place] = (u16)atomicExch(&table.heads[chain_of(table, word)], place + 1);
}

// The first entry from `entry` on that `accepts`; 0 if there is none.
template <class Accepts>
WJ_DEVICE u32 first_match(const MatchTable& table, u32 entry, Accepts accepts) {
    for (u32 step = 0; step < table.capacity && entry != 0; ++step) {
        if (accepts(entry - 1)) return entry;
        entry = table.next[entry - 1];
    }
    return 0;
}

// Reserves a place in the output for each match of the warp's lanes, with one atomic: the first of them,
// and in `ranks` that of each match from there on. All lanes of the warp call it.
template <int ITEMS>
WJ_DEVICE u64 reserve_matches(u64* counter, u64 capacity, u32 (&matches)[ITEMS], u32 (&ranks)[ITEMS], bool& fits) {
    const u32 lane = threadIdx.x & 31;
    const u32 below = (1u << lane) - 1;
    u32 total = 0;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const u32 lanes = __ballot_sync(0xffffffffu, matches[item] != 0);
        ranks[item] = total + __popc(lanes & below);
        total += __popc(lanes);
    }
    u64 first = 0;
    if (lane == 0 && total != 0) first = atomicAdd(counter, (u64)total);
    first = __shfl_sync(0xffffffffu, first, 0);
    fits = first + total <= capacity;
    return first;
}
