// The control block of a kernel: WJ_CONTROL_WORDS words of device memory, zeroed before a launch
// and read by the host after it. Word 0 holds status bits; what the others count is said by each kernel.
//
// Loops that may run long also take `cancel`: the address of a word in host memory that the host sets to end the kernel, or 0.
// The first thread that sees it sets a status bit for the others.
#pragma once
#include "common/constants.cuh"
#include "common/warp.cuh"

// Sets a status bit; the first thread that sees it unset pays for the atomic.
WJ_DEVICE void raise_status(u64* control, u64 bit) {
    if ((load_relaxed(&control[WJ_CONTROL_STATUS]) & bit) == 0) atomicOr(&control[WJ_CONTROL_STATUS], bit);
}

// Sets the status bit if the host has cancelled the launch. It looks in one of `interval` turns only: a load from host memory
// takes a microsecond or more, and loads of one word by the whole grid run one after the other. 8,000 of them made a join of 2^27
// rows 7 ms slower (an H100, 5 ms without). Callers add the number of their warp or block to `turn`, so that some look in each
// turn. One thread of the warp or block calls it.
WJ_DEVICE void check_cancelled(u64* control, u64 cancel, u64 turn, u32 interval) {
    if (cancel == 0 || turn % interval != 0) return;
    if (load_relaxed(reinterpret_cast<const u64*>(cancel)) != 0) raise_status(control, WJ_STATUS_CANCELLED);
}

// Whether any lane of the warp sees that the launch can't succeed any more. All lanes call it, with their turn. A warp, or
// another of the grid if they are few, looks at `cancel` in one of `interval` turns.
WJ_DEVICE bool is_aborted(u64* control, u64 cancel, u64 turn, u32 interval) {
    if ((threadIdx.x & 31) == 0) {
        const u32 warps = gridDim.x * (blockDim.x >> 5);
        const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
        check_cancelled(control, cancel, turn + warp, interval < warps ? interval : warps);
    }
    return __any_sync(0xffffffffu, (load_relaxed(&control[WJ_CONTROL_STATUS]) & WJ_STATUS_ABORT) != 0);
}

// Whether any thread of the block sees one of these status bits. All threads of the block call it, with their turn. A block,
// or another of the grid if they are few, looks at `cancel` in one of `interval` turns.
WJ_DEVICE bool is_block_stopped(u64* control, u64 bits, u64 cancel, u64 turn, u32 interval) {
    if (threadIdx.x == 0) {
        check_cancelled(control, cancel, turn + blockIdx.x, interval < gridDim.x ? interval : gridDim.x);
    }
    return __syncthreads_or((load_relaxed(&control[WJ_CONTROL_STATUS]) & bits) != 0) != 0;
}

// `interval` of loops over rows, tiles, and pairs of partitions: one warp or block of the grid looks in each turn.
#define WJ_GRID_CANCEL_TURNS 65536
// Of loops over matches, which other warps may not have: a turn is WJ_MATCH_TURNS of the loop, or WJ_PAIR_MATCHES matches.
#define WJ_MATCH_CANCEL_TURNS 512
// Matches of a pair of partitions that a warp takes before it looks again whether it is cancelled.
#define WJ_PAIR_MATCHES 65536
// Turns of a loop over matches in which a warp looks once whether the launch can still succeed.
#define WJ_MATCH_TURNS 1024

// Reserves one place an active lane in an output that `counter` counts, with one atomic a warp.
// All lanes of the warp call it.
WJ_DEVICE u64 reserve_rows(u64* counter, bool active) {
    const u32 lane = threadIdx.x & 31;
    const u32 lanes = __ballot_sync(0xffffffffu, active);
    u64 first = 0;
    if (lanes != 0) {
        const u32 leader = __ffs(lanes) - 1;
        if (lane == leader) first = atomicAdd(counter, (u64)__popc(lanes));
        first = __shfl_sync(0xffffffffu, first, leader);
    }
    return first + __popc(lanes & ((1u << lane) - 1));
}

// Reserves `count` places for each lane: returns the first of the warp. All lanes of the warp call it.
WJ_DEVICE u64 reserve_matches(u64* counter, u64 count) {
    const u64 total = warp_inclusive_sum(count);
    u64 first = 0;
    if ((threadIdx.x & 31) == 31 && total != 0) first = atomicAdd(counter, total);
    return __shfl_sync(0xffffffffu, first, 31);
}

// The places of the active lanes, from the `next` of those on that the warp has reserved. All lanes of the warp call it.
WJ_DEVICE u64 place_match(u64& next, bool active) {
    const u32 lanes = __ballot_sync(0xffffffffu, active);
    const u64 place = next + __popc(lanes & ((1u << (threadIdx.x & 31)) - 1));
    next += __popc(lanes);
    return place;
}

// Turns of a block in which it looks whether there are rows enough, before it does so in every 16th only: rows may be rare.
#define WJ_EAGER_TURNS 16

// Whether `counter` has come to the `wanted` rows, so that the block may stop before this turn. All threads of the block
// call it.
WJ_DEVICE bool has_enough(const u64* counter, u64 wanted, u64 turn) {
    if (turn >= WJ_EAGER_TURNS && turn % WJ_EAGER_TURNS != 0) return false;
    return __syncthreads_or(threadIdx.x == 0 && load_relaxed(counter) >= wanted) != 0;
}

// What a block shares to reserve places together.
struct BlockReservation {
    u64 first;
    u32 sums[32];
};
static_assert(sizeof(BlockReservation) == WJ_RESERVATION_BYTES, "what launches ask for");

// A place for `count` rows of the caller's warp; one atomic a block: few enough for the one address that
// all blocks add to. All threads of the block call it, those of a warp with the same count; again at once, if they want.
WJ_DEVICE u64 reserve_of_block(BlockReservation& shared, u64* counter, u32 warp_count) {
    const u32 lane = threadIdx.x & 31;
    const u32 warp = threadIdx.x >> 5;
    // The other lanes may still read the word of the warp from the time before.
    __syncwarp();
    if (lane == 0) shared.sums[warp] = warp_count;
    __syncthreads();
    if (warp == 0) {
        const u32 count = lane < blockDim.x / 32 ? shared.sums[lane] : 0;
        const u32 inclusive = warp_inclusive_sum(count);
        shared.sums[lane] = inclusive - count;
        if (lane == 31) shared.first = inclusive == 0 ? 0 : atomicAdd(counter, (u64)inclusive);
    }
    __syncthreads();
    return shared.first + shared.sums[warp];
}

// As reserve_rows, by block. All threads of the block call it.
WJ_DEVICE u64 reserve_rows_of_block(BlockReservation& shared, u64* counter, bool active) {
    const u32 lanes = __ballot_sync(0xffffffffu, active);
    return reserve_of_block(shared, counter, __popc(lanes)) + __popc(lanes & ((1u << (threadIdx.x & 31)) - 1));
}

// The same for ITEMS rows a thread, of which the bits of `active` go on; `ranks` are their places from the
// result on, item by item. All threads of the block call it.
template <int ITEMS>
WJ_DEVICE u64 reserve_items_of_block(BlockReservation& shared, u64* counter, u32 active, u32 (&ranks)[ITEMS]) {
    const u32 below = (1u << (threadIdx.x & 31)) - 1;
    u32 total = 0;
WJ_UNROLL
    for (int item = 0; item < ITEMS; ++item) {
        const u32 lanes = __ballot_sync(0xffffffffu, (active >> item & 1) != 0);
        ranks[item] = total + __popc(lanes & below);
        total += __popc(lanes);
    }
    return reserve_of_block(shared, counter, total);
}
