// The rows of each key of a multimap side by side (compressed sparse rows), and what a join with them puts out.
//
// A list is a u64 a place of the table: its first entry in the row list in the high half, its rows in the low one.
// count_places, list_offsets, fill_lists: lists from the place of each row.
// count_rows: rows of each wanted key, from places or from bits of what was found.
// tile_sums, scan_sums, row_offsets: exclusive sums of the counts in 64 bits.
// emit_matches: the wanted row and the stored row of each match, by place in the output: any number of
// matches of a key is spread evenly.
// live_rows: rows whose list was not taken away. take_lists: takes lists away, and counts their rows.
// Grids: one row, place or output a thread, grid stride; tile_sums and row_offsets a tile of 8 rows a thread a
// block; scan_sums one block. Shared: 33 u64 for sums, a BlockReservation for live_rows.
#include "common/control.cuh"
#include "partition/partition.cuh"
#include "table/constants.cuh"
#include "table/params.cuh"  // src/table.rs

WJ_ENTRY(count_places, ListParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.count; row += stride) {
        if (p.places[row] != WJ_NO_PLACE) atomicAdd(&p.lists[p.places[row]], 1ULL);
    }
}

WJ_ENTRY(list_offsets, ListParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.count + stride - 1) / stride;
    u64 place = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, place += stride) {
        const u32 count = place < p.count ? (u32)p.lists[place] : 0;
        // Sums over the warp, then one atomic.
        const u32 inclusive = warp_inclusive_sum(count);
        u64 first = 0;
        if ((threadIdx.x & 31) == 31 && inclusive != 0) first = atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)inclusive);
        first = __shfl_sync(0xffffffffu, first, 31) + inclusive - count;
        if (place >= p.count) continue;
        p.lists[place] = first << 32 | count;
        p.cursors[place] = (u32)first;
    }
}

WJ_ENTRY(fill_lists, ListParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.count; row += stride) {
        if (p.places[row] != WJ_NO_PLACE) p.row_list[atomicAdd(&p.cursors[p.places[row]], 1u)] = (u32)(p.first_row + row);
    }
}

WJ_ENTRY(take_lists, TakeParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.count; row += stride) {
        if (p.places[row] == WJ_NO_PLACE) continue;
        const u32 taken = (u32)atomicExch(&p.lists[p.places[row]], 0ULL);
        if (taken != 0) atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)taken);
    }
}

WJ_ENTRY(live_rows, LiveParams, WJ_BLOCK_THREADS) {
    BlockReservation& reservation = shared_as<BlockReservation>();
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.count + stride - 1) / stride;
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        bool live = row < p.count;
        if (row < p.indexed) live = p.places[row] != WJ_NO_PLACE && (u32)p.lists[p.places[row]] != 0;
        const u64 at = reserve_rows_of_block(reservation, &p.control[WJ_CONTROL_ROWS], live);
        if (live) p.live[at] = row;
        __syncthreads();
    }
}

WJ_ENTRY(count_rows, CountRowsParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.count; row += stride) {
        u32 count = 0;
        if (p.places == nullptr) {
            count = p.found[row / 32] >> (row & 31) & 1;
        } else if (p.places[row] != WJ_NO_PLACE) {
            count = (u32)p.lists[p.places[row]];
        }
        if (p.counts != nullptr) p.counts[row] = count;
        if (p.flags != nullptr) p.flags[row] = count != 0;
    }
}

WJ_DEVICE u64 load_tile(const SumParams& p, u64 (&values)[WJ_LIST_ITEMS], u64& first) {
    first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * WJ_LIST_ITEMS;
    u64 total = 0;
WJ_UNROLL
    for (u32 k = 0; k < WJ_LIST_ITEMS; ++k) {
        values[k] = first + k < p.count ? p.counts[first + k] : 0;
        total += values[k];
    }
    return total;
}

WJ_ENTRY(tile_sums, SumParams, WJ_BLOCK_THREADS) {
    u64* sums = &shared_as<u64>();
    u64 values[WJ_LIST_ITEMS];
    u64 first;
    block_exclusive_sum(sums, load_tile(p, values, first));
    if (threadIdx.x == 0) p.tiles[blockIdx.x] = sums[32];
}

WJ_ENTRY(scan_sums, SumParams, 1024) {
    const u64 total = block_scan<u64>(&shared_as<u64>(), p.tile_count, [&](u64 tile) { return p.tiles[tile]; },
                                      [&](u64 tile, u64 before) { p.tiles[tile] = before; });
    if (threadIdx.x == 0) p.tiles[p.tile_count] = total;
}

WJ_ENTRY(row_offsets, SumParams, WJ_BLOCK_THREADS) {
    u64* sums = &shared_as<u64>();
    u64 values[WJ_LIST_ITEMS];
    u64 first;
    u64 running = block_exclusive_sum(sums, load_tile(p, values, first)) + p.tiles[blockIdx.x];
WJ_UNROLL
    for (u32 k = 0; k < WJ_LIST_ITEMS; ++k) {
        if (first + k < p.count) p.offsets[first + k] = running;
        running += values[k];
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) p.offsets[p.count] = p.tiles[p.tile_count];
}

// The last row whose offset is not above `at`, between `low` and `high`.
WJ_DEVICE u64 row_of_match(const u64* offsets, u64 low, u64 high, u64 at) {
    for (u32 step = 0; step < 64 && low < high; ++step) {
        const u64 middle = (low + high + 1) / 2;
        if (offsets[middle] <= at) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

WJ_ENTRY(emit_matches, EmitParams, WJ_BLOCK_THREADS) {
    u64* range = &shared_as<u64>();
    const u64 tile = (u64)blockDim.x * WJ_LIST_ITEMS;
    const u64 tiles = (p.matches + tile - 1) / tile;
    for (u64 index = blockIdx.x; index < tiles; index += gridDim.x) {
        const u64 first = index * tile;
        const u64 end = first + tile < p.matches ? first + tile : p.matches;
        __syncthreads();
        if (threadIdx.x < 2) range[threadIdx.x] = row_of_match(p.offsets, 0, p.count - 1, threadIdx.x == 0 ? first : end - 1);
        __syncthreads();
        for (u64 at = first + threadIdx.x; at < end; at += blockDim.x) {
            const u64 row = row_of_match(p.offsets, range[0], range[1], at);
            p.wanted_rows[at] = row;
            if (p.stored_rows == nullptr) continue;
            p.stored_rows[at] = p.row_list[(p.lists[p.places[row]] >> 32) + (at - p.offsets[row])];
        }
    }
}
