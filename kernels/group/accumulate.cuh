// Accumulators: words that start at 0 and are merged by adding, by the unsigned maximum, or bit by bit by or
// and exclusive or.
//
// A 128-bit sum is two words, low first. Minimum and maximum are the unsigned maximum of an encoding
// in which 0 is below every value's code or equal to the lowest (see order_code_*).
#pragma once
#include "common/simt.cuh"
#include "group/constants.cuh"

// Adds to a word of global memory that other threads add to as well.
WJ_DEVICE void accumulate_add(u64* word, u64 value) { atomicAdd(word, value); }
WJ_DEVICE void accumulate_add(f64* word, f64 value) { atomicAdd(word, value); }

// Adds a 128-bit value to two words: the carry of the low word goes into the high one.
WJ_DEVICE void accumulate_add_wide(u64* words, i128 value) {
    const u64 low = (u64)value;
    const u64 before = atomicAdd(&words[0], low);
    const u64 high = (u64)((u128)value >> 64) + (before + low < before ? 1 : 0);
    if (high != 0) atomicAdd(&words[1], high);
}

// Raises a word to `code`; most rows raise nothing and pay for a load only.
WJ_DEVICE void accumulate_max(u64* word, u64 code) {
    if (load_relaxed(word) < code) atomicMax(word, code);
}

// Sets bits; most rows set none that is not set.
WJ_DEVICE void accumulate_or(u64* word, u64 bits) {
    if ((bits & ~load_relaxed(word)) != 0) atomicOr(word, bits);
}
WJ_DEVICE void accumulate_xor(u64* word, u64 bits) {
    if (bits != 0) atomicXor(word, bits);
}

// Codes whose unsigned order is the order of the values, and back.
WJ_DEVICE u64 order_code_i64(i64 value) { return (u64)value ^ 0x8000000000000000ULL; }
WJ_DEVICE i64 order_value_i64(u64 code) { return (i64)(code ^ 0x8000000000000000ULL); }
// Floats in IEEE total order.
WJ_DEVICE u64 order_code_f64(f64 value) {
    const u64 bits = (u64)__double_as_longlong(value);
    return bits ^ ((u64)((i64)bits >> 63) | 0x8000000000000000ULL);
}
// The same with one zero: by these SQL compares.
WJ_DEVICE u64 comparison_code_f64(f64 value) { return order_code_f64(value == 0 ? 0.0 : value); }
WJ_DEVICE u32 order_code_f32(f32 value) {
    const u32 bits = __float_as_uint(value);
    return bits ^ ((u32)((i32)bits >> 31) | 0x80000000u);
}
WJ_DEVICE f64 order_value_f64(u64 code) {
    return __longlong_as_double((i64)(code ^ ((u64)((i64)~code >> 63) | 0x8000000000000000ULL)));
}

// Merges words into those of an accumulator in global memory; `high` is of a 128-bit sum.
WJ_DEVICE void merge_words(u32 kind, u64* words, u64 low, u64 high) {
    switch (kind) {
        case WJ_MERGE_ADD: accumulate_add(words, low); break;
        case WJ_MERGE_ADD_WIDE: accumulate_add_wide(words, (i128)((u128)high << 64 | low)); break;
        case WJ_MERGE_ADD_DOUBLE: accumulate_add(reinterpret_cast<f64*>(words), __longlong_as_double((i64)low)); break;
        case WJ_MERGE_MAX: accumulate_max(words, low); break;
        case WJ_MERGE_OR: accumulate_or(words, low); break;
        default: accumulate_xor(words, low); break;
    }
}

// A 128-bit value of two words, low first.
WJ_DEVICE i128 wide_of_words(const u64* words) { return (i128)((u128)words[1] << 64 | words[0]); }

// Sum of (x - mean of x) * (y - mean of y) over n > 0 pairs, from the sums of x, of y and of x * y. The means are split
// into whole part and rest: sums of products of what is left over are small, and exact.
WJ_DEVICE f64 central_sum(i64 n, i128 x, i128 y, i128 xy) {
    if (n <= 0) return 0.0;
    const i128 x_whole = x / n, y_whole = y / n;
    const i128 rests = (x - x_whole * n) * (y - y_whole * n);
    // Modulo 2^128, as the sum of the products fits.
    const i128 sum = (i128)((u128)xy - (u128)x_whole * (u128)y - (u128)y_whole * (u128)x +
                            (u128)(i128)n * (u128)x_whole * (u128)y_whole);
    const i128 bound = (i128)1 << 86;
    if (n < (1LL << 40) && sum < bound && sum > -bound) return (f64)(sum * n - rests) / (f64)n;
    return (f64)sum - (f64)rests / (f64)n;
}

// The same of doubles, whose distances were taken from about their means: x and y are small beside n. A sum of squares
// that rounding has left below 0 is 0.
WJ_DEVICE f64 central_sum(i64 n, f64 x, f64 y, f64 xy) {
    return n <= 0 ? 0.0 : xy - x / (f64)n * y;
}
WJ_DEVICE f64 central_square(i64 n, i128 x, i128 xx) { return central_sum(n, x, x, xx); }
WJ_DEVICE f64 central_square(i64 n, f64 x, f64 xx) {
    const f64 sum = central_sum(n, x, x, xx);
    return sum < 0.0 ? 0.0 : sum;
}

// Sums over the lanes of a warp; every lane gets the sum. All lanes call it.
template <class T>
WJ_DEVICE T warp_sum(T value) {
WJ_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}
WJ_DEVICE i128 warp_sum(i128 value) {
WJ_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) {
        const u64 low = __shfl_xor_sync(0xffffffffu, (u64)value, distance);
        const u64 high = __shfl_xor_sync(0xffffffffu, (u64)((u128)value >> 64), distance);
        value = (i128)((u128)value + ((u128)high << 64 | low));  // wraps
    }
    return value;
}
WJ_DEVICE u64 warp_or(u64 value) {
WJ_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) value |= __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}
WJ_DEVICE u64 warp_xor(u64 value) {
WJ_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) value ^= __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}
WJ_DEVICE u64 warp_max(u64 value) {
WJ_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) {
        const u64 other = __shfl_xor_sync(0xffffffffu, value, distance);
        value = other > value ? other : value;
    }
    return value;
}
