// The order in which the blocks of an aggregation take tiles of rows: runs of neighbouring tiles, so that
// rows that lie together meet in one block's table. A turn is a few rows a thread; a block may stop between
// two turns and be resumed later.
#pragma once
#include "common/control.cuh"

// Most rows of a thread in a turn.
#define WJ_TURN_ITEMS 16

struct TileOrder {
    u64 turns;     // of a block, those behind the last row included
    u32 items;     // rows of a thread in a turn
    u32 run_bits;  // 2^run_bits turns are a run

    // The caller's first row of a turn; the others are blockDim.x apart. It may lie behind the last one.
    WJ_DEVICE_MEMBER u64 row(u64 turn) const {
        const u64 run = (turn >> run_bits) * gridDim.x + blockIdx.x;
        return ((run << run_bits | (turn & ((1ULL << run_bits) - 1))) * items) * blockDim.x + threadIdx.x;
    }
};

// Turns of the block with the most runs of 2^bits turns.
WJ_DEVICE u64 turns_of_runs(u64 tiles, u32 items, u32 bits) {
    const u64 run_tiles = (u64)items << bits;
    const u64 runs = (tiles + run_tiles - 1) / run_tiles;
    return ((runs + gridDim.x - 1) / gridDim.x) << bits;
}

// Four runs a block, or more of 2^run_bits_max turns; shorter ones where some blocks would have a run more than others for long.
WJ_DEVICE TileOrder tile_order(u64 rows, u32 run_bits_max) {
    const u64 tiles = (rows + blockDim.x - 1) / blockDim.x;
    const u64 each = (tiles + gridDim.x - 1) / gridDim.x;
    TileOrder order;
    order.items = each < WJ_TURN_ITEMS ? (each == 0 ? 1 : (u32)each) : WJ_TURN_ITEMS;
    order.run_bits = 0;
    while (order.run_bits < run_bits_max && (each / order.items) >> (order.run_bits + 3) != 0) ++order.run_bits;
    const u64 least = turns_of_runs(tiles, order.items, 0);
    while (turns_of_runs(tiles, order.items, order.run_bits) > least + least / 32) --order.run_bits;
    order.turns = turns_of_runs(tiles, order.items, order.run_bits);
    return order;
}

// Asks for a block's rows `ahead` steps behind row `next`, which is that of its first thread; none behind `end`. One
// thread calls it.
template <class T>
WJ_DEVICE void prefetch_rows(const T* column, u64 next, u32 ahead, u64 end) {
    const u64 first = next + ahead * blockDim.x;
    if (first + blockDim.x > end) return;
    const u64 address = (u64)(column + first);
    prefetch_bytes((const void*)(address & ~15ULL), blockDim.x * (u32)sizeof(T));
}

// Whether the block must stop before this turn: the launch is in vain, or the table is to grow. All threads
// of the block call it.
WJ_DEVICE bool is_stopped(u64* control, u64 cancel, u64 turn) {
    return is_block_stopped(control, WJ_STATUS_ABORT | WJ_STATUS_GROW, cancel, turn, WJ_GRID_CANCEL_TURNS);
}
