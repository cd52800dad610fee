//! Atomics, bit functions and arithmetic on the simulated device.
#![allow(clippy::unwrap_used, reason = "tests")]

mod sim_common;
use sim_common::*;

/// Asserts that all checks hold in every lane.
fn assert_all(setup: &str, checks: &[&str]) {
    let checks: String =
        checks.iter().enumerate().map(|(i, check)| format!("if (!({check})) p.out[{i}] = 1;\n")).collect::<String>();
    for seed in [None, Some(1)] {
        let failed = run(&open(seed), &format!("{setup}\n{checks}"), shape(1, 32), 256);
        let failed: Vec<_> =
            failed.iter().take(100).enumerate().filter(|(_, failed)| **failed != 0).map(|(i, _)| i).collect();
        assert!(failed.is_empty(), "{failed:?} of\n{checks}");
    }
}

#[test]
fn bits() {
    let checks = [
        "__popc(0xf0f0u) == 8 && __popcll(~0ull) == 64",
        "__ffs(0) == 0 && __ffs(8) == 4 && __ffs((int)0x80000000u) == 32",
        "__ffsll(0) == 0 && __ffsll(1ll << 40) == 41",
        "__clz(0) == 32 && __clz(1) == 31 && __clz(-1) == 0",
        "__clzll(0) == 64 && __clzll(1) == 63 && __clzll(-1) == 0",
        "__brev(1u) == 0x80000000u && __brev(0x12345678u) == 0x1e6a2c48u && __brevll(2ull) == 1ull << 62",
        "__umulhi(0x80000000u, 6u) == 3u && __mulhi(-2, 1 << 30) == -1",
        "__umul64hi(1ull << 63, 6ull) == 3ull && __mul64hi(-2ll, 1ll << 62) == -1ll",
        "__byte_perm(0x33221100u, 0x77665544u, 0x7531u) == 0x77553311u && __byte_perm(0x80u, 0, 0x8888u) == ~0u",
        "__funnelshift_l(0x80000000u, 1u, 1) == 3u && __funnelshift_r(0u, 1u, 1) == 0x80000000u",
        "__longlong_as_double(0x3ff0000000000000ll) == 1.0 && __double_as_longlong(-0.0) == (i64)(1ull << 63)",
        "__float_as_uint(1.0f) == 0x3f800000u && __uint_as_float(0x40000000u) == 2.0f",
        "__float_as_int(-0.0f) == (int)0x80000000u && __int_as_float(0x3f800000) == 1.0f",
        "sizeof(u64) == 8 && sizeof(u128) == 16 && sizeof(size_t) == 8",
        "(u64)((u128)~0ull * ~0ull >> 64) == ~0ull - 1 && (u64)(((u128)1 << 100) / (p.n | 1) >> 64) != 1",
    ];
    assert_all("", &checks);
}

#[test]
fn arithmetic() {
    let checks = [
        "min(1, 2) == 1 && max(-1, 1) == 1 && min(1u, 2u) == 1u && max(1u, 2u) == 2u",
        "min(-1, 1u) == 1u && max(-1, 1u) == ~0u",
        "min(-1ll, 1ll) == -1ll && max(1ull, ~0ull) == ~0ull && min(-1ll, 1ull) == 1ull",
        "min(1.5, 2.5) == 1.5 && max(1.5f, 2.5f) == 2.5f && min(__longlong_as_double(0x7ff8000000000000ll), 1.0) == 1.0",
        "isnan(__longlong_as_double(0x7ff8000000000000ll)) && !isnan(1.0) && isnan(__uint_as_float(0x7fc00000u))",
        "isinf(1e300 * 1e300) && isfinite(1.0) && signbit(-0.0) && !signbit(1.0f)",
        "floor(-1.5) == -2 && ceil(-1.5) == -1 && trunc(-1.5) == -1 && round(2.5) == 3 && rint(2.5) == 2",
        "sqrt(9.0 + (double)(p.n & 0)) == 3 && fma(2.0, 3.0, 4.0) == 10 && fmod(7.5, 2.0) == 1.5 && fabs(-1.0) == 1",
        "fma(1.0 + 0x1p-52, 1.0 + 0x1p-52, -(1.0 + 0x1p-51)) == 0x1p-104",
        "floorf(1.5f) == 1 && sqrtf(4.0f) == 2 && fmaf(2.f, 3.f, 4.f) == 10 && fabsf(-2.f) == 2",
        "abs(-3) == 3 && llabs(-3ll) == 3 && pow(2.0, 10.0) == 1024 && log(1.0) == 0 && exp(0.0) == 1",
        "fmin(1.0, 2.0) == 1 && fmax(1.0, 2.0) == 2 && copysign(1.0, -2.0) == -1",
    ];
    assert_all("", &checks);
}

#[test]
fn vectors_and_cached_loads() {
    let setup = "u64* slots = p.out + 100 + threadIdx.x * 4;
        *(ulonglong2*)(slots) = make_ulonglong2(1, 2); __stcs(slots + 2, 3ull); __stcg(slots + 3, 4ull);
        uint4 v = make_uint4(1, 2, 3, 4); int2 i = make_int2(-1, -2); uint2 u = make_uint2(5, 6); int4 j = make_int4(1, 2, 3, 4);";
    let checks = [
        "__ldg(slots) == 1 && __ldcs(slots + 1) == 2 && __ldcg(slots + 2) == 3 && __ldca(slots + 3) == 4",
        "load_relaxed(slots) == 1 && load_relaxed((u32*)slots) == 1 && load_relaxed((u8*)slots) == 1",
        "v.x == 1 && v.w == 4 && i.y == -2 && u.x == 5 && j.z == 3",
        "sizeof(uint4) == 16 && alignof(uint4) == 16 && alignof(uint2) == 8 && alignof(ulonglong2) == 16",
        "threadIdx.x < blockDim.x && blockIdx.x < gridDim.x && blockDim.x == 32 && gridDim.x == 1 && warpSize == 32",
    ];
    assert_all(setup, &checks);
}

#[test]
fn atomics_return_the_old_value() {
    // Each lane has its own cells. Other tests cover contention.
    let setup = "u64* base = p.out + 100 + threadIdx.x * 4; for (int k = 0; k < 4; ++k) base[k] = 0;
        u32* a = (u32*)base; int* b = (int*)(base + 1); u64* c = base + 2; i64* s = (i64*)(base + 3);";
    let checks = [
        "atomicAdd(a, 5u) == 0 && atomicAdd(a, 1) == 5 && atomicSub(a, 2u) == 6 && *a == 4",
        "atomicAdd(b, -5) == 0 && atomicSub(b, 1) == -5 && *b == -6",
        "atomicAdd(c, 1ull << 40) == 0 && atomicAdd(c, ~0ull) == 1ull << 40 && *c == (1ull << 40) - 1",
        "atomicMin(a, 3u) == 4 && atomicMin(a, 9u) == 3 && atomicMax(a, 7u) == 3 && atomicMax(a, 1u) == 7 && *a == 7",
        "atomicMin(b, -9) == -6 && atomicMax(b, 2) == -9 && *b == 2",
        "atomicMin(c, 5ull) == (1ull << 40) - 1 && atomicMax(c, ~0ull) == 5 && *c == ~0ull",
        "atomicMin(s, -7ll) == 0 && atomicMax(s, 7ll) == -7 && *s == 7",
        "atomicAnd(a, 5u) == 7 && atomicOr(a, 8u) == 5 && atomicXor(a, 1u) == 13 && *a == 12",
        "atomicAnd(b, 3) == 2 && atomicOr(b, 4) == 2 && atomicXor(b, -1) == 6 && *b == -7",
        "atomicAnd(c, 12ull) == ~0ull && atomicOr(c, 1ull << 50) == 12 && atomicXor(c, 4ull) == (12 | 1ull << 50)",
        "atomicExch(a, 9u) == 12 && atomicExch(b, -1) == -7 && atomicExch(c, 3ull) == (8 | 1ull << 50)",
        "atomicCAS(a, 1u, 2u) == 9 && *a == 9 && atomicCAS(a, 9u, 2u) == 9 && *a == 2",
        "atomicCAS(b, 1, 2) == -1 && atomicCAS(b, -1, 2) == -1 && *b == 2",
        "atomicCAS(c, 1ull, 2ull) == 3 && atomicCAS(c, 3ull, ~0ull) == 3 && *c == ~0ull",
        "atomicExch((float*)a, 1.5f) != 1.5f && atomicAdd((float*)a, 2.0f) == 1.5f && *(float*)a == 3.5f",
        "atomicExch(c, 0ull) == ~0ull && atomicAdd((double*)c, 2.5) == 0 && atomicAdd((double*)c, 1.0) == 2.5 && *(double*)c == 3.5",
        "atomicCAS((u16*)a + 1, *((u16*)a + 1), (u16)7) != 7 && *((u16*)a + 1) == 7",
        "atomicAdd_system(a, 0u) == *a && atomicCAS_block(c, 0ull, 1ull) == *c",
        "(__threadfence(), __threadfence_block(), __threadfence_system(), __nanosleep(10), true)",
    ];
    assert_all(setup, &checks);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_compare_and_swap_of_16_bytes_is_atomic() {
    // Both halves of the cell must change together.
    let body = "u128* cell = (u128*)p.out; u128 seen = 0;
        for (int i = 0; i < 100000; ++i) {
            u128 before = seen;
            seen = atomicCAS(cell, before, before + ((u128)1 << 64) + 2);
            if (seen == before) return;
        }
        p.out[2] = 1;";
    for seed in seeds() {
        assert_eq!(run(&open(seed), body, shape(8, 64), 3), [1024, 512, 0]);
    }
}

#[test]
fn contended_atomics_lose_no_update() {
    let body = "for (u64 i = 0; i < 10; ++i) {
            atomicAdd(p.out, i); atomicAdd((u32*)(p.out + 1), 1u); atomicAdd((double*)(p.out + 2), 0.5);
            atomicMax(p.out + 3, i * blockIdx.x); atomicOr(p.out + 4, 1ull << threadIdx.x); atomicAdd((float*)(p.out + 5), 1.0f);
        }";
    for seed in seeds() {
        let out = run(&open(seed), body, shape(16, 64), 6);
        assert_eq!(out[..2], [1024 * 45, 10_240]);
        assert_eq!(f64::from_bits(out[2]), 5120.0);
        assert_eq!(out[3..5], [9 * 15, u64::MAX]);
        assert_eq!(f32::from_bits(out[5] as u32), 10_240.0);
    }
}
