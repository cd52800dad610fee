// Builds the hash table of a join from key words, one a build row.
//
// Inputs: keys[rows], never 0; values[rows] or null (then the row number is the value).
// Unique keys: build_unique alone; a key seen twice is counted and the table is useless then.
// Keys that are only looked for: build_set; keys may occur any number of times.
// Duplicate keys: build_count, build_offsets, build_fill leave (first << 32 | count) in the value of
// each slot, and the rows of a key side by side in row_list (compressed sparse rows).
// Dense keys: build_direct_4, _8 leave value + 1 in slot key - 1; a key seen twice makes it useless too.
// Slots of one word: build_words_4, _8; a set takes no notice of a key seen twice.
// Grid: one row (or slot) a thread, grid stride; shared memory for build_offsets only. Specialised by WJ_LANES.
// Status: WJ_STATUS_FULL when a key found no slot within steps_max windows.
#include "common/control.cuh"
#include "join/key_table.cuh"
#include "join/params.cuh"  // src/join.rs

// Inserts row after row; calls on_slot(row, outcome, slot) for each row that has its slot.
template <class OnSlot>
WJ_DEVICE void insert_rows(const BuildParams& p, OnSlot on_slot) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.rows + stride - 1) / stride;
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        if (is_aborted(p.control, p.cancel, round, WJ_GRID_CANCEL_TURNS)) break;
        const bool active = row < p.rows;
        const u64 key = active ? p.keys[row] : 0;
        u64 slot = 0;
        const InsertOutcome outcome = insert<WJ_LANES>(p.slots, p.windows, p.steps_max, key, hash_key(key), active, slot);
        if (!active) continue;
        if (outcome == INSERT_FULL) {
            raise_status(p.control, WJ_STATUS_FULL);
        } else {
            on_slot(row, outcome, slot);
        }
    }
}

WJ_ENTRY(build_unique, BuildParams, WJ_BLOCK_THREADS) {
    insert_rows(p, [&](u64 row, InsertOutcome outcome, u64 slot) {
        if (outcome == INSERT_NEW) {
            p.slots[slot].value = p.values ? p.values[row] : row;
        } else {
            raise_status(p.control, WJ_STATUS_DUPLICATE);
        }
    });
}

WJ_ENTRY(build_set, BuildParams, WJ_BLOCK_THREADS) {
    insert_rows(p, [](u64 row, InsertOutcome outcome, u64 slot) {});
}

WJ_ENTRY(build_count, BuildParams, WJ_BLOCK_THREADS) {
    insert_rows(p, [&](u64 row, InsertOutcome outcome, u64 slot) { atomicAdd(&p.slots[slot].value, 1ULL); });
}

// Shared: BlockReservation.
WJ_ENTRY(build_offsets, OffsetsParams, WJ_BLOCK_THREADS) {
    BlockReservation& shared = shared_as<BlockReservation>();
    const u64 tiles = (p.slot_count + blockDim.x - 1) / blockDim.x;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u64 slot = tile * blockDim.x + threadIdx.x;
        const u32 count = slot < p.slot_count && p.slots[slot].key != 0 ? (u32)p.slots[slot].value : 0;
        const u32 inclusive = warp_inclusive_sum(count);
        const u32 warp_count = __shfl_sync(0xffffffffu, inclusive, 31);
        const u64 first = reserve_of_block(shared, &p.control[WJ_CONTROL_ROWS], warp_count) + (inclusive - count);
        // The end of the list: filling it counts down to where it begins.
        if (count != 0) p.slots[slot].value = (first + count) << 32 | count;
    }
}

WJ_ENTRY(build_fill, FillParams, WJ_BLOCK_THREADS) {
    const ProbeGroup<WJ_LANES> probe_group;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.rows + stride - 1) / stride;
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        if (is_aborted(p.control, p.cancel, round, WJ_GRID_CANCEL_TURNS)) break;
        const bool active = row < p.rows;
        const u64 key = active ? p.keys[row] : 0;
        u64 slot = 0;
        const InsertOutcome outcome = insert<WJ_LANES>(p.slots, p.windows, p.windows, key, hash_key(key), active, slot);
        if (!active || outcome != INSERT_FOUND) continue;
        const u64 before = atomicAdd(&p.slots[slot].value, 0ULL - (1ULL << 32));
        p.row_list[(before >> 32) - 1] = (u32)row;
    }
}

template <class T>
WJ_DEVICE void fill_direct(const DirectParams& p) {
    T* slots = static_cast<T*>(p.slots);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        const T value = (T)((p.values ? p.values[row] : row) + 1);
        if (atomicExch(&slots[p.keys[row] - 1], value) != 0) raise_status(p.control, WJ_STATUS_DUPLICATE);
    }
}

WJ_ENTRY(build_direct_4, DirectParams, WJ_BLOCK_THREADS) { fill_direct<u32>(p); }
WJ_ENTRY(build_direct_8, DirectParams, WJ_BLOCK_THREADS) { fill_direct<u64>(p); }

template <class T>
WJ_DEVICE void fill_words(const WordsParams& p) {
    T* slots = static_cast<T*>(p.slots);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.rows + stride - 1) / stride;
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        if (is_aborted(p.control, p.cancel, round, WJ_GRID_CANCEL_TURNS)) break;
        if (row >= p.rows) continue;
        const u64 value = p.values ? p.values[row] : (p.has_row_numbers ? row : 0);
        const InsertOutcome outcome =
            insert_word<T>(slots, p.count, p.steps_max, p.keys[row], (u32)p.key_bits, value);
        if (outcome == INSERT_FULL) raise_status(p.control, WJ_STATUS_FULL);
        if (outcome == INSERT_FOUND && !p.is_set) raise_status(p.control, WJ_STATUS_DUPLICATE);
    }
}

WJ_ENTRY(build_words_4, WordsParams, WJ_BLOCK_THREADS) { fill_words<u32>(p); }
WJ_ENTRY(build_words_8, WordsParams, WJ_BLOCK_THREADS) { fill_words<u64>(p); }
