// What the rows of a column tell about it.
//
// column_order_N: whether a value of N bytes is less than the one before it, or equal to it.
// column_repeats_N: whether a value occurs twice: a bit for each number up to the largest one.
// column_bounds_N: the smallest and the largest value.
// narrow_N: values of N bytes in fewer bytes, less a base.
// take_rows_N: some rows of a column. take_valid: whether these are valid.
//
// Values are unsigned, those of 16 bytes signed. The status has WJ_FACT_UNSORTED and WJ_FACT_REPEATED.
// Grid: rows, grid stride; no shared memory.
#include "common/scan.cuh"
#include "decode/constants.cuh"
#include "decode/params.cuh"  // src/decode.rs

template <class T>
WJ_DEVICE void column_order(const OrderParams& p) {
    const T* values = reinterpret_cast<const T*>(p.values);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    bool is_unsorted = false, is_repeated = false;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x + 1; row < p.rows; row += stride) {
        is_unsorted = is_unsorted || values[row] < values[row - 1];
        is_repeated = is_repeated || values[row] == values[row - 1];
    }
    if (is_unsorted) raise_status(p.control, WJ_FACT_UNSORTED);
    if (is_repeated) raise_status(p.control, WJ_FACT_REPEATED);
}

WJ_ENTRY(column_order_1, OrderParams, WJ_BLOCK_THREADS) { column_order<u8>(p); }
WJ_ENTRY(column_order_2, OrderParams, WJ_BLOCK_THREADS) { column_order<u16>(p); }
WJ_ENTRY(column_order_4, OrderParams, WJ_BLOCK_THREADS) { column_order<u32>(p); }
WJ_ENTRY(column_order_8, OrderParams, WJ_BLOCK_THREADS) { column_order<u64>(p); }
WJ_ENTRY(column_order_16, OrderParams, WJ_BLOCK_THREADS) { column_order<i128>(p); }

template <class T>
WJ_DEVICE void column_repeats(const RepeatsParams& p) {
    const T* values = reinterpret_cast<const T*>(p.values);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        // The columns with most repeats end soonest.
        if ((load_relaxed(&p.control[WJ_CONTROL_STATUS]) & WJ_FACT_REPEATED) != 0) return;
        const u64 value = values[row];
        const u32 bit = 1u << (value & 31);
        if ((atomicOr(&p.seen[value >> 5], bit) & bit) != 0) raise_status(p.control, WJ_FACT_REPEATED);
    }
}

WJ_ENTRY(column_repeats_1, RepeatsParams, WJ_BLOCK_THREADS) { column_repeats<u8>(p); }
WJ_ENTRY(column_repeats_2, RepeatsParams, WJ_BLOCK_THREADS) { column_repeats<u16>(p); }
WJ_ENTRY(column_repeats_4, RepeatsParams, WJ_BLOCK_THREADS) { column_repeats<u32>(p); }
WJ_ENTRY(column_repeats_8, RepeatsParams, WJ_BLOCK_THREADS) { column_repeats<u64>(p); }

template <class T>
WJ_DEVICE void column_bounds(const BoundsParams& p) {
    const T* values = reinterpret_cast<const T*>(p.values);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    bool is_known = false;
    T least = 0, most = 0;
    for (u64 row = thread; row < p.rows; row += stride) {
        if (p.validity != nullptr && p.validity[row] == 0) continue;
        const T value = values[row];
        if (!is_known || value < least) least = value;
        if (!is_known || value > most) most = value;
        is_known = true;
    }
    u128 low = is_known ? (u128)least : 1, high = is_known ? (u128)most : 0;
WJ_UNROLL
    for (u32 distance = 16; distance > 0; distance /= 2) {
        const u128 other_low = lane_down(low, distance), other_high = lane_down(high, distance);
        const bool is_known_there = (T)other_low <= (T)other_high;
        const bool is_known_here = (T)low <= (T)high;
        if (is_known_there && (!is_known_here || (T)other_low < (T)low)) low = other_low;
        if (is_known_there && (!is_known_here || (T)other_high > (T)high)) high = other_high;
    }
    if ((threadIdx.x & 31) == 0) {
        u128* bounds = reinterpret_cast<u128*>(p.bounds) + thread / 32 * 2;
        bounds[0] = low;
        bounds[1] = high;
    }
}

WJ_ENTRY(column_bounds_1, BoundsParams, WJ_BLOCK_THREADS) { column_bounds<u8>(p); }
WJ_ENTRY(column_bounds_4, BoundsParams, WJ_BLOCK_THREADS) { column_bounds<u32>(p); }
WJ_ENTRY(column_bounds_8, BoundsParams, WJ_BLOCK_THREADS) { column_bounds<u64>(p); }
WJ_ENTRY(column_bounds_16, BoundsParams, WJ_BLOCK_THREADS) { column_bounds<i128>(p); }

template <class T>
WJ_DEVICE void narrow(const NarrowParams& p) {
    const T* values = reinterpret_cast<const T*>(p.values);
    const u128 base = (u128)p.base_high << 64 | p.base_low;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        const bool is_valid = p.validity == nullptr || p.validity[row] != 0;
        const u128 value = is_valid ? (u128)values[row] - base : 0;
        switch (p.width_bytes) {
            case 1: p.target[row] = (u8)value; break;
            case 2: reinterpret_cast<u16*>(p.target)[row] = (u16)value; break;
            case 4: reinterpret_cast<u32*>(p.target)[row] = (u32)value; break;
            case 8: reinterpret_cast<u64*>(p.target)[row] = (u64)value; break;
            default: reinterpret_cast<u128*>(p.target)[row] = value;
        }
    }
}

WJ_ENTRY(narrow_4, NarrowParams, WJ_BLOCK_THREADS) { narrow<u32>(p); }
WJ_ENTRY(narrow_8, NarrowParams, WJ_BLOCK_THREADS) { narrow<u64>(p); }
WJ_ENTRY(narrow_16, NarrowParams, WJ_BLOCK_THREADS) { narrow<i128>(p); }

template <class T>
WJ_DEVICE void take_rows(const TakeParams& p) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < p.count; at += stride) {
        reinterpret_cast<T*>(p.target)[at] = reinterpret_cast<const T*>(p.values)[p.rows[at]];
    }
}

WJ_ENTRY(take_rows_1, TakeParams, WJ_BLOCK_THREADS) { take_rows<u8>(p); }
WJ_ENTRY(take_rows_2, TakeParams, WJ_BLOCK_THREADS) { take_rows<u16>(p); }
WJ_ENTRY(take_rows_4, TakeParams, WJ_BLOCK_THREADS) { take_rows<u32>(p); }
WJ_ENTRY(take_rows_8, TakeParams, WJ_BLOCK_THREADS) { take_rows<u64>(p); }
WJ_ENTRY(take_rows_16, TakeParams, WJ_BLOCK_THREADS) { take_rows<u128>(p); }

WJ_ENTRY(take_valid, TakeParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < p.count; at += stride) {
        const u64 row = p.rows[at];
        p.target[at] = p.values[row >> 3] >> (row & 7) & 1;
    }
}
