// Matches of two relations that were partitioned by the same bits of their keys' hashes.
//
// The work is cut into items: up to `capacity` build rows of a partition with up to `chunk_rows` probe rows
// of it. A block links the build rows of an item into chains in shared memory, one atomic exchange a
// row, and walks them for each probe row. Equal keys are links of one chain, so any number of
// duplicates is right; an item's work is bounded by capacity x chunk_rows.
#pragma once
#include "partition/partition.cuh"

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

// Probe rows of a partition's work items. Partitions of several items' build rows most likely have keys that
// occur often: their work is more than their rows, so it is cut finer.
WJ_DEVICE u32 chunk_rows_of(u32 build_rows, u32 probe_rows, u32 capacity, u32 chunk_rows) {
    if (build_rows <= capacity) return chunk_rows;
    const u32 fine = capacity / 8 > probe_rows / 128 + 1 ? capacity / 8 : probe_rows / 128 + 1;
    return fine < chunk_rows ? fine : chunk_rows;
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
    const u32 chunk_rows = chunk_rows_of(build_rows, probe_rows, sides.capacity, sides.chunk_rows);
    const u32 chunks = (probe_rows + chunk_rows - 1) / chunk_rows;
    const u64 index = number - sides.items[partition];
    const u32 build_skip = (u32)(index / chunks) * sides.capacity;
    const u32 probe_skip = (u32)(index % chunks) * chunk_rows;
    const u32 build_left = build_rows - build_skip;
    const u32 probe_left = probe_rows - probe_skip;
    return MatchItem{build + build_skip, probe + probe_skip, build_left < sides.capacity ? build_left : sides.capacity,
                     probe_left < chunk_rows ? probe_left : chunk_rows};
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

// The matches of a probe row that are left: the next entry in the low half, their number in the high one.
// Entries and counts are at most `capacity`, which fits 16 bits.
template <class Accepts>
WJ_DEVICE u32 count_matches(const MatchTable& table, u32 entry, Accepts accepts) {
    const u32 first = first_match(table, entry, accepts);
    u32 count = 0;
    entry = first;
    for (u32 step = 0; step < table.capacity && entry != 0; ++step) {
        ++count;
        entry = first_match(table, table.next[entry - 1], accepts);
    }
    return count << 16 | first;
}

// What is left behind the next entry of `matches`.
template <class Accepts>
WJ_DEVICE u32 later_matches(const MatchTable& table, u32 matches, Accepts accepts) {
    const u32 count = matches >> 16;
    if (count <= 1) return 0;
    return (count - 1) << 16 | first_match(table, table.next[(matches & 0xffff) - 1], accepts);
}

// Reserves places in the output for all matches of the warp's lanes, with one atomic. All lanes of the warp
// call it.
template <int ITEMS>
WJ_DEVICE u64 reserve_matches(u64* counter, u64 capacity, const u32 (&matches)[ITEMS], bool& fits) {
    u64 total = 0;
WJ_UNROLL
    for (int item = 0; item < ITEMS; ++item) total += matches[item] >> 16;
WJ_UNROLL
    for (u32 distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(0xffffffffu, total, distance);
    u64 first = 0;
    if ((threadIdx.x & 31) == 0 && total != 0) first = atomicAdd(counter, total);
    first = __shfl_sync(0xffffffffu, first, 0);
    fits = first + total <= capacity;
    return first;
}

// Numbers the next match of each row, item by item; returns how many there are. All lanes of the warp call it.
template <int ITEMS>
WJ_DEVICE u32 rank_matches(const u32 (&matches)[ITEMS], u32 (&ranks)[ITEMS]) {
    const u32 below = (1u << (threadIdx.x & 31)) - 1;
    u32 total = 0;
WJ_UNROLL
    for (int item = 0; item < ITEMS; ++item) {
        const u32 lanes = __ballot_sync(0xffffffffu, matches[item] != 0);
        ranks[item] = total + __popc(lanes & below);
        total += __popc(lanes);
    }
    return total;
}

// The build rows of an item by key in shared memory, those of a key side by side, for keys that occur
// often: a probe row finds all its matches at once, and a warp shares the writing of them.
struct MatchLists {
    u32* slots;     // 2^slots_bits: place of the first build row of a key + 1, 0: empty
    u32* counts;    // capacity: build rows of the key, at its first row; then with their end in `order` below
    u32* shared;    // LIST_WORDS: see ListWords
    u16* order;     // capacity: places by key
    u16* leaders;   // capacity: first row of the row's key
    u32 slots_bits;
    u32 capacity;
};

// Words that the warps of a block share.
enum ListWords { LIST_ROWS, LIST_HEAVY_COUNT, LIST_HEAVY, LIST_HEAVY_MAX = 30, LIST_WORDS = LIST_HEAVY + LIST_HEAVY_MAX };

WJ_DEVICE u32 list_slot(const MatchLists& lists, u64 word) {
    const u64 mixed = WJ_HASH_BITS < 64 ? hash_key(word) : word * WJ_HASH_MULTIPLIER_A;
    return (u32)(mixed >> 32) >> (32 - lists.slots_bits);
}

// The first row of the key for which `is_key` holds, + 1; 0 if there is none. There are more slots than keys.
template <class IsKey>
WJ_DEVICE u32 find_list(const MatchLists& lists, u64 word, IsKey is_key) {
    const u32 mask = (1u << lists.slots_bits) - 1;
    u32 slot = list_slot(lists, word);
    for (u32 step = 0; step <= mask; ++step) {
        const u32 entry = lists.slots[slot];
        if (entry == 0 || is_key(entry - 1)) return entry;
        slot = (slot + 1) & mask;
    }
    return 0;
}

// Counts a row for its key.
template <class IsKey>
WJ_DEVICE void count_row(const MatchLists& lists, u32 place, u64 word, IsKey is_key) {
    const u32 mask = (1u << lists.slots_bits) - 1;
    u32 slot = list_slot(lists, word);
    for (u32 step = 0; step <= mask; ++step) {
        u32 entry = load_relaxed(&lists.slots[slot]);
        if (entry == 0) {
            entry = atomicCAS(&lists.slots[slot], 0u, place + 1);
            if (entry == 0) entry = place + 1;
        }
        if (entry == place + 1 || is_key(entry - 1)) {
            lists.leaders[place] = (u16)(entry - 1);
            atomicAdd(&lists.counts[entry - 1], 1u);
            return;
        }
        slot = (slot + 1) & mask;
    }
}

// Empties the lists. All threads of the block call it.
WJ_DEVICE void clear_lists(const MatchLists& lists) {
    __syncthreads();
    for (u32 slot = threadIdx.x; slot < 1u << lists.slots_bits; slot += blockDim.x) lists.slots[slot] = 0;
    for (u32 place = threadIdx.x; place < lists.capacity; place += blockDim.x) lists.counts[place] = 0;
    if (threadIdx.x < LIST_WORDS) lists.shared[threadIdx.x] = 0;
    __syncthreads();
}

// The matches of a warp's probe rows, one after the other.
struct WarpMatches {
    u32 count;      // of the lane's row
    u32 inclusive;  // of the lanes up to this one
    u32 total;      // of the warp
};

WJ_DEVICE WarpMatches warp_matches(u32 count) {
    const u32 inclusive = warp_inclusive_sum(count);
    return WarpMatches{count, inclusive, __shfl_sync(0xffffffffu, inclusive, 31)};
}

// The lane whose row has match `number` of the warp. All lanes call it.
WJ_DEVICE u32 lane_of_match(const WarpMatches& matches, u32 number) {
    u32 source = 0;
WJ_UNROLL
    for (u32 step = 16; step > 0; step /= 2) {
        const u32 before = __shfl_sync(0xffffffffu, matches.inclusive, source + step - 1);
        if (before <= number) source += step;
    }
    return source;
}

// Puts the counted rows in order. All threads of the block call it.
WJ_DEVICE void order_rows(const MatchLists& lists, u32 rows) {
    __syncthreads();
    for (u32 first = threadIdx.x & ~31u; first < rows; first += blockDim.x) {
        const u32 lane = threadIdx.x & 31;
        const u32 place = first + lane;
        const bool leads = place < rows && lists.leaders[place] == place;
        const WarpMatches keys = warp_matches(leads ? lists.counts[place] : 0);
        u32 before = 0;
        if (lane == 0 && keys.total != 0) before = atomicAdd(&lists.shared[LIST_ROWS], keys.total);
        before = __shfl_sync(0xffffffffu, before, 0);
        if (leads) lists.counts[place] = keys.count << 16 | (before + keys.inclusive - keys.count);
    }
    __syncthreads();
    for (u32 place = threadIdx.x; place < rows; place += blockDim.x) {
        lists.order[atomicAdd(&lists.counts[lists.leaders[place]], 1u) & 0xffff] = (u16)place;
    }
    __syncthreads();
}

// The build rows of the key whose first row is `leader` - 1; none for 0.
WJ_DEVICE u32 count_of(const MatchLists& lists, u32 leader) { return leader == 0 ? 0 : lists.counts[leader - 1] >> 16; }

// Where they begin in `order`.
WJ_DEVICE u32 begin_of(const MatchLists& lists, u32 leader) {
    if (leader == 0) return 0;
    const u32 word = lists.counts[leader - 1];
    return (word & 0xffff) - (word >> 16);
}

// The groups of probe rows that a warp takes: each its own ones first, then all warps together those of so many
// matches that one alone would be waited for.
struct ListTurns {
    u32 group;      // of the next turn, then the number of the next heavy one
    bool is_shared;
};

// Gives the next group of `groups` in turns.group; false: there is none. All lanes of a warp call it, and
// every warp of the block until there is none.
WJ_DEVICE bool next_group(const MatchLists& lists, ListTurns& turns, u32 groups, u32& group) {
    if (!turns.is_shared) {
        group = turns.group;
        turns.group += blockDim.x / 32;
        if (group < groups) return true;
        __syncthreads();
        turns.group = 0;
        turns.is_shared = true;
    }
    const u32 heavy = lists.shared[LIST_HEAVY_COUNT];
    const u32 number = turns.group++;
    if (number >= (heavy < LIST_HEAVY_MAX ? heavy : LIST_HEAVY_MAX)) return false;
    group = lists.shared[LIST_HEAVY + number];
    return true;
}

// Whether a group of `matches` matches is left to all warps together. All lanes of a warp call it.
WJ_DEVICE bool leave_group(const MatchLists& lists, const ListTurns& turns, u32 group, u32 matches) {
    if (turns.is_shared || matches < 8 * blockDim.x) return false;
    u32 number = 0;
    if ((threadIdx.x & 31) == 0) number = atomicAdd(&lists.shared[LIST_HEAVY_COUNT], 1u);
    number = __shfl_sync(0xffffffffu, number, 0);
    if (number >= LIST_HEAVY_MAX) return false;
    if ((threadIdx.x & 31) == 0) lists.shared[LIST_HEAVY + number] = group;
    return true;
}

// The warp's part of `total` matches: whole turns of 32, all of them unless the group is shared.
struct MatchRange {
    u32 begin;
    u32 end;
};

WJ_DEVICE MatchRange range_of_warp(const ListTurns& turns, u32 total) {
    if (!turns.is_shared) return MatchRange{0, total};
    const u32 warps = blockDim.x / 32;
    const u32 each = (total + 32 * warps - 1) / (32 * warps) * 32;
    const u32 begin = threadIdx.x / 32 * each;
    return MatchRange{begin < total ? begin : total, begin + each < total ? begin + each : total};
}

// Which row each lane's match belongs to; kept while a whole warp has matches of one row.
struct MatchSource {
    u32 lane;
    u32 end;       // of the row's matches, where all lanes have the same row; else 0
};

// Moves to the lanes' matches `number`, the first lane's being `first`; whether it changed. All lanes of a
// warp call it.
WJ_DEVICE bool move_source(MatchSource& source, const WarpMatches& matches, u32 first, u32 number) {
    if (first + 32 <= source.end) return false;
    source.lane = lane_of_match(matches, number);
    const u32 last = __shfl_sync(0xffffffffu, source.lane, 31);
    const u32 end = __shfl_sync(0xffffffffu, matches.inclusive, last);
    source.end = __shfl_sync(0xffffffffu, source.lane, 0) == last ? end : 0;
    return true;
}

// Lanes that the first turn leaves out, for the others to write whole sectors: worth it where there are many
// turns.
WJ_DEVICE u32 shift_to_sectors(const MatchRange& range, u64 places) {
    return range.end - range.begin >= 512 ? (u32)places & 31 : 0;
}
