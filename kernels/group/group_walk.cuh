// The order in which the blocks of an aggregation take rows that lie by partition, and what becomes of a
// partition that one block has to itself.
//
// The rows are cut into chunks, which blocks take from one counter. With a chunk goes every partition that begins
// in it, as a whole; only a partition much longer than a chunk is split, and goes with the chunks that it lies in.
// The stretch of rows that a block takes at a time is an item. No other item has the keys of a whole partition, so
// the groups that its block's table holds in the end are finished: they are written out as they are.
// A block may stop between two turns and be resumed later; what is left of its item is then no whole any more.
#pragma once
#include "group/block_table.cuh"
#include "common/tiles.cuh"

struct GroupParts {
    const u32* offsets;  // count + 1: where each partition begins
    u64 count;
    u64 chunk_rows;
    u64* places;  // WJ_PLACES_HEAD + WJ_PLACES_EACH words a block
    u64 open_ends;  // WJ_OPEN_FIRST, WJ_OPEN_LAST: other devices have rows of the first key, of the last one
};

// Finished groups: rows as those of the group table, in no order.
struct FinishedGroups {
    u64* rows;
    u64 capacity;
    u64* counter;
};

struct GroupWalk {
    u64 chunk_end;  // 0: no chunk under way
    u64 finished;   // scratch of reserve_finished
    u32 row;        // the item's first row
    u32 end;        // behind its last one
    u32 partition;  // the next one of the chunk
    u32 is_whole;   // the item is a whole partition
    u32 is_done;    // no chunk is left
    u32 listed;     // scratch of reserve_finished
};
static_assert(sizeof(GroupWalk) == 8 * WJ_WALK_WORDS, "what launches ask for");

// Where the block stands; an item without rows at first. All threads of the block call it.
WJ_DEVICE GroupWalk& open_walk(const GroupParts& parts) {
    GroupWalk& walk = shared_as<GroupWalk>();
    if (threadIdx.x == 0) {
        const u64* place = parts.places + WJ_PLACES_HEAD + (u64)blockIdx.x * WJ_PLACES_EACH;
        walk.row = (u32)place[0];
        walk.end = (u32)place[1];
        walk.chunk_end = place[2];
        walk.partition = (u32)place[3];
    }
    __syncthreads();
    return walk;
}

// Keeps the place of a block that has done its item up to `row`. One thread calls it.
WJ_DEVICE void close_walk(const GroupParts& parts, const GroupWalk& walk, u32 row) {
    u64* place = parts.places + WJ_PLACES_HEAD + (u64)blockIdx.x * WJ_PLACES_EACH;
    place[0] = row;
    place[1] = walk.end;
    place[2] = walk.chunk_end;
    place[3] = walk.partition;
}

// The first partition that begins at `row` or behind it.
WJ_DEVICE u32 partition_from(const GroupParts& parts, u64 row) {
    u32 low = 0;
    u32 high = (u32)parts.count;
    for (u32 step = 0; step < 32 && low < high; ++step) {
        const u32 middle = (low + high) / 2;
        if (parts.offsets[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

WJ_DEVICE void set_item(GroupWalk& walk, u64 row, u64 end, bool is_whole) {
    walk.row = (u32)row;
    walk.end = (u32)end;
    walk.is_whole = is_whole ? 1 : 0;
}

// Whether no other device has keys of these rows.
WJ_DEVICE bool is_closed(const GroupParts& parts, u64 begin, u64 end, u64 rows) {
    return !(begin == 0 && (parts.open_ends & WJ_OPEN_FIRST) != 0) && !(end == rows && (parts.open_ends & WJ_OPEN_LAST) != 0);
}

// Finds the next item that has rows. One thread calls it.
WJ_DEVICE void find_item(GroupWalk& walk, const GroupParts& parts) {
    const u64 rows = parts.offsets[parts.count];
    const u64 whole_rows = 2 * parts.chunk_rows;
    walk.is_done = 0;
    // Each pass takes a chunk or passes a partition.
    for (u64 pass = 0; pass <= rows / parts.chunk_rows + parts.count + 2; ++pass) {
        if (walk.chunk_end == 0) {
            const u64 first = atomicAdd(&parts.places[0], 1ULL) * parts.chunk_rows;
            if (first >= rows) break;
            walk.chunk_end = first + parts.chunk_rows;
            walk.partition = partition_from(parts, first);
            // The partition before may reach into the chunk.
            const u64 begin = walk.partition == 0 ? first : parts.offsets[walk.partition - 1];
            const u64 end = parts.offsets[walk.partition];
            if (begin < first && end > first && end - begin > whole_rows) {
                set_item(walk, first, end < walk.chunk_end ? end : walk.chunk_end, false);
                return;
            }
        }
        if (walk.partition >= parts.count || parts.offsets[walk.partition] >= walk.chunk_end) {
            walk.chunk_end = 0;
            continue;
        }
        const u64 begin = parts.offsets[walk.partition];
        const u64 end = parts.offsets[walk.partition + 1];
        ++walk.partition;
        if (begin == end) continue;
        const bool is_short = end - begin <= whole_rows;
        const bool is_whole = is_short && is_closed(parts, begin, end, rows);
        set_item(walk, begin, is_short || end < walk.chunk_end ? end : walk.chunk_end, is_whole);
        return;
    }
    walk.is_done = 1;
}

// Goes to the next item; false if there is none. All threads of the block call it, behind a barrier.
WJ_DEVICE bool next_item(GroupWalk& walk, const GroupParts& parts) {
    if (threadIdx.x == 0) find_item(walk, parts);
    __syncthreads();
    return walk.is_done == 0;
}

// Rows of a thread in the next turn.
WJ_DEVICE u32 items_of_turn(u32 row, u32 end) {
    const u32 left = (end - row + blockDim.x - 1) / blockDim.x;
    return left < WJ_TURN_ITEMS ? left : WJ_TURN_ITEMS;
}

// Makes a list of the slots of a block's table that hold groups, but for that of key word 0, and reserves rows for them;
// false where there is no room. `list` has room for all slots. All threads of the block call it, behind a barrier.
template <class Key>
WJ_DEVICE bool reserve_finished(const BlockTable<Key>& table, GroupWalk& walk, u16* list, const FinishedGroups& finished,
                                u32 stride) {
    const u32 lane = threadIdx.x & 31;
    const u32 slots = table.slots - 32;
    if (threadIdx.x == 0) walk.listed = 0;
    __syncthreads();
#pragma unroll 1
    for (u32 base = threadIdx.x - lane; base < slots; base += blockDim.x) {
        const u32 slot = base + lane;
        const bool used = slot < slots && table.keys[slot] != 0;
        const u32 lanes = __ballot_sync(0xffffffffu, used);
        u32 place = 0;
        if (lane == 0 && lanes != 0) place = atomicAdd(&walk.listed, (u32)__popc(lanes));
        place = __shfl_sync(0xffffffffu, place, 0) + __popc(lanes & ((1u << lane) - 1));
        if (used) list[place] = (u16)slot;
    }
    __syncthreads();
    const u32 count = walk.listed;
    if (threadIdx.x == 0) walk.finished = count == 0 ? 0 : atomicAdd(finished.counter, (u64)count);
    __syncthreads();
    const u64 first = walk.finished;
    if (first + count <= finished.capacity) return true;
    // The first that finds no room leaves no row uncleared.
    for (u64 row = first + threadIdx.x; row < finished.capacity; row += blockDim.x) finished.rows[row * stride] = 0;
    return false;
}

// Writes the groups to their rows, and empties the table; value_at(slot, word) is a word of a row. All threads of the
// block call it.
template <class Key, class ValueAt>
WJ_DEVICE void write_finished(const BlockTable<Key>& table, u32 words, const GroupWalk& walk, const u16* list,
                              const FinishedGroups& finished, u32 stride, ValueAt value_at) {
    u64* rows = finished.rows + walk.finished * stride;
    const u32 count = walk.listed * stride;
#pragma unroll 1
    for (u32 word = threadIdx.x; word < count; word += blockDim.x) {
        rows[word] = value_at((u32)list[word / stride], word % stride);
    }
    __syncthreads();
    clear_block_table(table, words);
}
