// Scalar functions of generated kernels. The same bits on every device: integer arithmetic, and what
// IEEE 754 rounds correctly.
#pragma once
#include "common/simt.cuh"

// Whether a sum, difference or product leaves 128 bits. A product that does, of a magnitude below 2^128, has wrapped
// to the other sign.
WJ_DEVICE bool wide_sum_overflows(i128 left, i128 right) {
    const i128 sum = (i128)((u128)left + (u128)right);
    return ((left ^ sum) & (right ^ sum)) < 0;
}
WJ_DEVICE bool wide_difference_overflows(i128 left, i128 right) {
    const i128 difference = (i128)((u128)left - (u128)right);
    return ((left ^ right) & (left ^ difference)) < 0;
}
WJ_DEVICE bool wide_product_overflows(i128 left, i128 right) {
    const f64 product = (f64)left * (f64)right;
    const i128 wrapped = (i128)((u128)left * (u128)right);
    return fabs(product) > 2e38 || (fabs(product) > 1e38 && (wrapped < 0) != (product < 0));
}

// A whole double of magnitude below 2^127.
WJ_DEVICE i128 wide_of_double(f64 value) {
    const f64 magnitude = fabs(value);
    if (magnitude < 9007199254740992.0) return (i128)(i64)value;
    const u64 bits = (u64)__double_as_longlong(magnitude);
    const u64 digits = (bits & 0xfffffffffffffULL) | 0x10000000000000ULL;
    const int shift = ((int)(bits >> 52) - 1075) & 127;
    const i128 whole = (i128)((u128)digits << shift);
    return value < 0 ? -whole : whole;
}

// Quotient toward negative infinity; the divisor is positive.
template <class T>
WJ_DEVICE T floor_divide(T left, T right) {
    const T quotient = left / right;
    return left % right < 0 ? quotient - 1 : quotient;
}

// What is left of that quotient: 0 and more. The multiple below may be out of the type.
template <class T>
WJ_DEVICE T floor_remainder(T left, T right) {
    const T remainder = left % right;
    return remainder < 0 ? remainder + right : remainder;
}

// The sign of a float as a float; NaN of NaN.
template <class T>
WJ_DEVICE T float_sign(T value) {
    return value == 0 ? T(0) : (value > 0 ? T(1) : (value < 0 ? T(-1) : value));
}
