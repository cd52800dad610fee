// Rows that a block finds among those of a turn: all threads test several rows each, and what follows has full warps.
#pragma once
#include "common/simt.cuh"

// Bytes in front of the rows of a block's queue.
#define WJ_QUEUE_HEAD_BYTES 16

// Of a block, in its shared memory.
struct RowQueue {
    u32* count;
    u16* rows;  // from the first row of the turn on
};

// Takes WJ_QUEUE_HEAD_BYTES from `offset` on, and 2 bytes a row of a turn.
WJ_DEVICE RowQueue row_queue(u32 offset) {
    u8* const first = &shared_as<u8>() + offset;
    return RowQueue{reinterpret_cast<u32*>(first), reinterpret_cast<u16*>(first + WJ_QUEUE_HEAD_BYTES)};
}

// Empties the queue. All threads of the block call it, once they have read what was in it.
WJ_DEVICE void clear_queue(const RowQueue& queue) {
    __syncthreads();
    if (threadIdx.x == 0) *queue.count = 0;
    __syncthreads();
}

// Adds rows that are alive: item i of a thread is row first + i * stride + threadIdx.x of the turn. All lanes call it.
template <int ITEMS>
WJ_DEVICE void push_rows(const RowQueue& queue, u32 first, u32 stride, const bool (&alive)[ITEMS]) {
    const u32 lane = threadIdx.x & 31;
    const u32 below = (1u << lane) - 1;
    u32 ranks[ITEMS];
    u32 total = 0;
WJ_UNROLL
    for (int item = 0; item < ITEMS; ++item) {
        const u32 lanes = __ballot_sync(0xffffffffu, alive[item]);
        ranks[item] = total + __popc(lanes & below);
        total += __popc(lanes);
    }
    if (total == 0) return;
    u32 place = 0;
    if (lane == 0) place = atomicAdd(queue.count, total);
    place = __shfl_sync(0xffffffffu, place, 0);
WJ_UNROLL
    for (int item = 0; item < ITEMS; ++item) {
        if (alive[item]) queue.rows[place + ranks[item]] = (u16)(first + item * stride + threadIdx.x);
    }
}
