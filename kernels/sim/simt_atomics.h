// CUDA's atomics: relaxed, as on a GPU. The overloads are CUDA's, no more: what compiles here
// compiles there.
#pragma once

template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_add(T* address, T value) {
    WjObservable observable;
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_exchange(T* address, T value) {
    WjObservable observable;
    return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_compare_exchange(T* address, T expected, T value) {
    WjObservable observable;
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
// No instruction of the host: compare and swap until it holds.
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_min(T* address, T value) {
    WjObservable observable;
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (value < old &&
           !__atomic_compare_exchange_n(address, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_max(T* address, T value) {
    WjObservable observable;
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (old < value &&
           !__atomic_compare_exchange_n(address, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_and(T* address, T value) {
    WjObservable observable;
    return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_or(T* address, T value) {
    WjObservable observable;
    return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_xor(T* address, T value) {
    WjObservable observable;
    return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
}
// `Bits` is the unsigned integer of T's width.
template <class T, class Bits>
WJ_SIM_ATOMIC T wj_sim_fetch_add_float(T* address, T value) {
    WjObservable observable;
    Bits* cell = reinterpret_cast<Bits*>(address);
    Bits old = __atomic_load_n(cell, __ATOMIC_RELAXED), sum_bits;
    T old_value, sum;
    do {
        __builtin_memcpy(&old_value, &old, sizeof(T));
        sum = old_value + value;
        __builtin_memcpy(&sum_bits, &sum, sizeof(T));
    } while (!__atomic_compare_exchange_n(cell, &old, sum_bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old_value;
}

static inline int atomicAdd(int* a, int v) { return static_cast<int>(wj_sim_fetch_add(reinterpret_cast<unsigned*>(a), static_cast<unsigned>(v))); }
static inline unsigned atomicAdd(unsigned* a, unsigned v) { return wj_sim_fetch_add(a, v); }
static inline unsigned long long atomicAdd(unsigned long long* a, unsigned long long v) { return wj_sim_fetch_add(a, v); }
static inline float atomicAdd(float* a, float v) { return wj_sim_fetch_add_float<float, unsigned>(a, v); }
static inline double atomicAdd(double* a, double v) { return wj_sim_fetch_add_float<double, unsigned long long>(a, v); }

static inline int atomicSub(int* a, int v) { return static_cast<int>(wj_sim_fetch_add(reinterpret_cast<unsigned*>(a), 0u - static_cast<unsigned>(v))); }
static inline unsigned atomicSub(unsigned* a, unsigned v) { return wj_sim_fetch_add(a, 0u - v); }

static inline int atomicExch(int* a, int v) { return wj_sim_exchange(a, v); }
static inline unsigned atomicExch(unsigned* a, unsigned v) { return wj_sim_exchange(a, v); }
static inline unsigned long long atomicExch(unsigned long long* a, unsigned long long v) { return wj_sim_exchange(a, v); }
static inline float atomicExch(float* a, float v) {
    unsigned bits;
    __builtin_memcpy(&bits, &v, 4);
    bits = wj_sim_exchange(reinterpret_cast<unsigned*>(a), bits);
    __builtin_memcpy(&v, &bits, 4);
    return v;
}

static inline int atomicCAS(int* a, int expected, int v) { return wj_sim_compare_exchange(a, expected, v); }
static inline unsigned atomicCAS(unsigned* a, unsigned expected, unsigned v) { return wj_sim_compare_exchange(a, expected, v); }
static inline unsigned short atomicCAS(unsigned short* a, unsigned short expected, unsigned short v) { return wj_sim_compare_exchange(a, expected, v); }
static inline unsigned long long atomicCAS(unsigned long long* a, unsigned long long expected, unsigned long long v) { return wj_sim_compare_exchange(a, expected, v); }
#if defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16)
// As on GPUs of compute capability 9.0 and later.
WJ_SIM_ATOMIC unsigned __int128 atomicCAS(unsigned __int128* a, unsigned __int128 expected, unsigned __int128 v) {
    WjObservable observable;
    return __sync_val_compare_and_swap(a, expected, v);
}
#endif

static inline int atomicMin(int* a, int v) { return wj_sim_fetch_min(a, v); }
static inline unsigned atomicMin(unsigned* a, unsigned v) { return wj_sim_fetch_min(a, v); }
static inline long long atomicMin(long long* a, long long v) { return wj_sim_fetch_min(a, v); }
static inline unsigned long long atomicMin(unsigned long long* a, unsigned long long v) { return wj_sim_fetch_min(a, v); }
static inline int atomicMax(int* a, int v) { return wj_sim_fetch_max(a, v); }
static inline unsigned atomicMax(unsigned* a, unsigned v) { return wj_sim_fetch_max(a, v); }
static inline long long atomicMax(long long* a, long long v) { return wj_sim_fetch_max(a, v); }
static inline unsigned long long atomicMax(unsigned long long* a, unsigned long long v) { return wj_sim_fetch_max(a, v); }

static inline int atomicAnd(int* a, int v) { return wj_sim_fetch_and(a, v); }
static inline unsigned atomicAnd(unsigned* a, unsigned v) { return wj_sim_fetch_and(a, v); }
static inline unsigned long long atomicAnd(unsigned long long* a, unsigned long long v) { return wj_sim_fetch_and(a, v); }
static inline int atomicOr(int* a, int v) { return wj_sim_fetch_or(a, v); }
static inline unsigned atomicOr(unsigned* a, unsigned v) { return wj_sim_fetch_or(a, v); }
static inline unsigned long long atomicOr(unsigned long long* a, unsigned long long v) { return wj_sim_fetch_or(a, v); }
static inline int atomicXor(int* a, int v) { return wj_sim_fetch_xor(a, v); }
static inline unsigned atomicXor(unsigned* a, unsigned v) { return wj_sim_fetch_xor(a, v); }
static inline unsigned long long atomicXor(unsigned long long* a, unsigned long long v) { return wj_sim_fetch_xor(a, v); }

// Scopes are one here: every simulated device shares the host's memory.
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicSub_block atomicSub
#define atomicSub_system atomicSub
#define atomicExch_block atomicExch
#define atomicExch_system atomicExch
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS
#define atomicMin_block atomicMin
#define atomicMin_system atomicMin
#define atomicMax_block atomicMax
#define atomicMax_system atomicMax
#define atomicAnd_block atomicAnd
#define atomicAnd_system atomicAnd
#define atomicOr_block atomicOr
#define atomicOr_system atomicOr
#define atomicXor_block atomicXor
#define atomicXor_system atomicXor
