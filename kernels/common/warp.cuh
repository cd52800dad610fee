// What the lanes of a warp make of their values together. All lanes call it.
#pragma once
#include "common/simt.cuh"

// Whether it is so for any of the `lanes` lanes, a power of two up to 32, that have a row together: neighbours.
WJ_DEVICE bool any_of_lanes(bool is_so, u64 lanes) {
    const u32 all = __ballot_sync(0xffffffffu, is_so);
    const u32 own = lanes >= 32 ? 0xffffffffu : (1u << (u32)lanes) - 1;
    return (all & own << (threadIdx.x & 31 & ~((u32)lanes - 1))) != 0;
}

// The sum over the lanes up to and with the caller's.
template <class T>
WJ_DEVICE T warp_inclusive_sum(T value) {
    const u32 lane = threadIdx.x & 31;
WJ_UNROLL
    for (u32 distance = 1; distance < 32; distance *= 2) {
        const T other = __shfl_up_sync(0xffffffffu, value, distance);
        if (lane >= distance) value += other;
    }
    return value;
}
