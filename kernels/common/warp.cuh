// What the lanes of a warp make of their values together. All lanes call it.
#pragma once
#include "common/simt.cuh"

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
