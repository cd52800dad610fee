// What generated pipeline kernels are written in.
#pragma once
#include "group/accumulate.cuh"
#include "group/block_table.cuh"
#include "common/control.cuh"
#include "common/dates.cuh"
#include "group/group_table.cuh"
#include "group/group_walk.cuh"
#include "join/key_table.cuh"
#include "join/runtime_filter.cuh"
#include "group/sketch.cuh"
#include "common/tiles.cuh"
#include "common/row_queue.cuh"
#include "join/matches.cuh"

// Bit `row` of a validity bitmap (least significant first).
WJ_DEVICE bool bit_at(const u8* bits, u64 row) { return (bits[row >> 3] >> (row & 7)) & 1; }

// 128-bit parameter from its two words.
WJ_DEVICE i128 wide_literal(u64 low, u64 high) { return (i128)((u128)high << 64 | low); }

// Slots of a table that is indexed by the key, zeroed before. A key that comes twice makes it useless.
template <class T>
WJ_DEVICE void fill_slot(T* slots, u64 key, T value, u64* control) {
    if (atomicExch(&slots[key], value) != 0) raise_status(control, WJ_STATUS_DUPLICATE);
}

// Counts the rows of all threads. All lanes call it.
WJ_DEVICE void add_rows(u64* control, u32 rows) {
    const u32 sum = __reduce_add_sync(0xffffffffu, rows);
    if ((threadIdx.x & 31) == 0 && sum != 0) atomicAdd(&control[WJ_CONTROL_ROWS], (u64)sum);
}

// Division and remainder that never trap; the caller reports division by zero itself.
template <class T>
WJ_DEVICE T divide_or_zero(T left, T right) {
    return right == 0 ? T(0) : (right == T(-1) ? T(0) - left : left / right);
}
template <class T>
WJ_DEVICE T modulo_or_zero(T left, T right) {
    return right == 0 || right == T(-1) ? T(0) : left % right;
}

// Key word of a float: -0.0 is 0.0, and every NaN is one value.
WJ_DEVICE u64 float_key(f64 value) {
    if (value != value) return 0x7ff8000000000000ULL;
    return value == 0 ? 0ULL : (u64)__double_as_longlong(value);
}
