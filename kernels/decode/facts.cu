// What the rows of a column tell about it.
//
// column_order_N: whether a value of N bytes is less than the one before it, or equal to it.
// column_repeats_N: whether a value occurs twice: a bit for each number up to the largest one.
// take_rows_N: some rows of a column. take_valid: whether these are valid.
//
// Values are unsigned, those of 16 bytes signed. The status has WJ_FACT_UNSORTED and WJ_FACT_REPEATED.
// Grid: rows, grid stride; no shared memory.
#include "common/control.cuh"
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
