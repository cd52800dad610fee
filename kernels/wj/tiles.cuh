// The order in which the blocks of an aggregation take tiles of rows: runs of neighbouring tiles, so that
// rows that lie together meet in one block's table. A block may stop and be resumed later.
#pragma once
#include "wj/control.cuh"

struct TileOrder {
    u64 turns;     // tiles of a block, those behind the last one included
    u32 run_bits;  // 2^run_bits tiles are a run

    // The tile of a turn; it may lie behind the last one.
    WJ_DEVICE_MEMBER u64 tile(u64 turn) const {
        const u64 run = (turn >> run_bits) * gridDim.x + blockIdx.x;
        return run << run_bits | (turn & ((1ULL << run_bits) - 1));
    }
};

// Four runs a block, or more of 2^run_bits_max tiles.
WJ_DEVICE TileOrder tile_order(u64 tiles, u32 run_bits_max) {
    const u64 each = (tiles + gridDim.x - 1) / gridDim.x;
    TileOrder order;
    order.run_bits = 0;
    while (order.run_bits < run_bits_max && (each >> (order.run_bits + 3)) != 0) ++order.run_bits;
    const u64 runs = (tiles + (1ULL << order.run_bits) - 1) >> order.run_bits;
    order.turns = ((runs + gridDim.x - 1) / gridDim.x) << order.run_bits;
    return order;
}

// Whether the block must stop before this turn: the launch is in vain, or the table is to grow. All threads
// of the block call it, with the same turn.
WJ_DEVICE bool is_stopped(const u64* control, u64 turn) {
    if (turn % 8 != 0) return false;
    const bool stops = (load_relaxed(&control[WJ_CONTROL_STATUS]) & (WJ_STATUS_ABORT | WJ_STATUS_GROW)) != 0;
    return __syncthreads_or(stops) != 0;
}
