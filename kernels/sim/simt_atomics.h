// CUDA's atomics: relaxed, as on a GPU. The overloads are CUDA's, no more: what compiles here
// compiles there. Scopes matter to the race detector alone: every simulated device shares the host's
// memory.
#pragma once

template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_add(T* address, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_READ_MODIFY_WRITE, scope);
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_exchange(T* address, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_READ_MODIFY_WRITE, scope);
    return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_compare_exchange(T* address, T expected, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, *address == expected ? WJ_READ_MODIFY_WRITE : WJ_OBSERVE, scope);
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
// No instruction of the host: compare and swap until it holds.
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_min(T* address, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_READ_MODIFY_WRITE, scope);
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (value < old &&
           !__atomic_compare_exchange_n(address, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_max(T* address, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_READ_MODIFY_WRITE, scope);
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (old < value &&
           !__atomic_compare_exchange_n(address, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_and(T* address, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_READ_MODIFY_WRITE, scope);
    return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_or(T* address, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_READ_MODIFY_WRITE, scope);
    return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}
template <class T>
WJ_SIM_ATOMIC T wj_sim_fetch_xor(T* address, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_READ_MODIFY_WRITE, scope);
    return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
}
// `Bits` is the unsigned integer of T's width.
template <class T, class Bits>
WJ_SIM_ATOMIC T wj_sim_fetch_add_float(T* address, T value, WjScope scope) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_READ_MODIFY_WRITE, scope);
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

WJ_SIM_INLINE int atomicAdd(int* a, int v, WjScope scope = WJ_DEVICE_SCOPE) { return static_cast<int>(wj_sim_fetch_add(reinterpret_cast<unsigned*>(a), static_cast<unsigned>(v), scope)); }
WJ_SIM_INLINE unsigned atomicAdd(unsigned* a, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_add(a, v, scope); }
WJ_SIM_INLINE unsigned long long atomicAdd(unsigned long long* a, unsigned long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_add(a, v, scope); }
WJ_SIM_INLINE float atomicAdd(float* a, float v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_add_float<float, unsigned>(a, v, scope); }
WJ_SIM_INLINE double atomicAdd(double* a, double v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_add_float<double, unsigned long long>(a, v, scope); }

WJ_SIM_INLINE int atomicSub(int* a, int v, WjScope scope = WJ_DEVICE_SCOPE) { return static_cast<int>(wj_sim_fetch_add(reinterpret_cast<unsigned*>(a), 0u - static_cast<unsigned>(v), scope)); }
WJ_SIM_INLINE unsigned atomicSub(unsigned* a, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_add(a, 0u - v, scope); }

WJ_SIM_INLINE int atomicExch(int* a, int v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_exchange(a, v, scope); }
WJ_SIM_INLINE unsigned atomicExch(unsigned* a, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_exchange(a, v, scope); }
WJ_SIM_INLINE unsigned long long atomicExch(unsigned long long* a, unsigned long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_exchange(a, v, scope); }
WJ_SIM_INLINE float atomicExch(float* a, float v, WjScope scope = WJ_DEVICE_SCOPE) {
    unsigned bits;
    __builtin_memcpy(&bits, &v, 4);
    bits = wj_sim_exchange(reinterpret_cast<unsigned*>(a), bits, scope);
    __builtin_memcpy(&v, &bits, 4);
    return v;
}

WJ_SIM_INLINE int atomicCAS(int* a, int expected, int v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_compare_exchange(a, expected, v, scope); }
WJ_SIM_INLINE unsigned atomicCAS(unsigned* a, unsigned expected, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_compare_exchange(a, expected, v, scope); }
WJ_SIM_INLINE unsigned short atomicCAS(unsigned short* a, unsigned short expected, unsigned short v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_compare_exchange(a, expected, v, scope); }
WJ_SIM_INLINE unsigned long long atomicCAS(unsigned long long* a, unsigned long long expected, unsigned long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_compare_exchange(a, expected, v, scope); }
#if defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16)
// As on GPUs of compute capability 9.0 and later.
WJ_SIM_ATOMIC unsigned __int128 atomicCAS(unsigned __int128* a, unsigned __int128 expected, unsigned __int128 v,
                                          WjScope scope = WJ_DEVICE_SCOPE) {
    WjObservable observable;
    wj_sim_atomic(a, *a == expected ? WJ_READ_MODIFY_WRITE : WJ_OBSERVE, scope);
    return __sync_val_compare_and_swap(a, expected, v);
}
#endif

WJ_SIM_INLINE int atomicMin(int* a, int v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_min(a, v, scope); }
WJ_SIM_INLINE unsigned atomicMin(unsigned* a, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_min(a, v, scope); }
WJ_SIM_INLINE long long atomicMin(long long* a, long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_min(a, v, scope); }
WJ_SIM_INLINE unsigned long long atomicMin(unsigned long long* a, unsigned long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_min(a, v, scope); }
WJ_SIM_INLINE int atomicMax(int* a, int v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_max(a, v, scope); }
WJ_SIM_INLINE unsigned atomicMax(unsigned* a, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_max(a, v, scope); }
WJ_SIM_INLINE long long atomicMax(long long* a, long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_max(a, v, scope); }
WJ_SIM_INLINE unsigned long long atomicMax(unsigned long long* a, unsigned long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_max(a, v, scope); }

WJ_SIM_INLINE int atomicAnd(int* a, int v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_and(a, v, scope); }
WJ_SIM_INLINE unsigned atomicAnd(unsigned* a, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_and(a, v, scope); }
WJ_SIM_INLINE unsigned long long atomicAnd(unsigned long long* a, unsigned long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_and(a, v, scope); }
WJ_SIM_INLINE int atomicOr(int* a, int v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_or(a, v, scope); }
WJ_SIM_INLINE unsigned atomicOr(unsigned* a, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_or(a, v, scope); }
WJ_SIM_INLINE unsigned long long atomicOr(unsigned long long* a, unsigned long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_or(a, v, scope); }
WJ_SIM_INLINE int atomicXor(int* a, int v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_xor(a, v, scope); }
WJ_SIM_INLINE unsigned atomicXor(unsigned* a, unsigned v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_xor(a, v, scope); }
WJ_SIM_INLINE unsigned long long atomicXor(unsigned long long* a, unsigned long long v, WjScope scope = WJ_DEVICE_SCOPE) { return wj_sim_fetch_xor(a, v, scope); }

#define atomicAdd_block(...) atomicAdd(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicAdd_system(...) atomicAdd(__VA_ARGS__, WJ_SYSTEM_SCOPE)
#define atomicSub_block(...) atomicSub(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicSub_system(...) atomicSub(__VA_ARGS__, WJ_SYSTEM_SCOPE)
#define atomicExch_block(...) atomicExch(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicExch_system(...) atomicExch(__VA_ARGS__, WJ_SYSTEM_SCOPE)
#define atomicCAS_block(...) atomicCAS(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicCAS_system(...) atomicCAS(__VA_ARGS__, WJ_SYSTEM_SCOPE)
#define atomicMin_block(...) atomicMin(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicMin_system(...) atomicMin(__VA_ARGS__, WJ_SYSTEM_SCOPE)
#define atomicMax_block(...) atomicMax(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicMax_system(...) atomicMax(__VA_ARGS__, WJ_SYSTEM_SCOPE)
#define atomicAnd_block(...) atomicAnd(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicAnd_system(...) atomicAnd(__VA_ARGS__, WJ_SYSTEM_SCOPE)
#define atomicOr_block(...) atomicOr(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicOr_system(...) atomicOr(__VA_ARGS__, WJ_SYSTEM_SCOPE)
#define atomicXor_block(...) atomicXor(__VA_ARGS__, WJ_BLOCK_SCOPE)
#define atomicXor_system(...) atomicXor(__VA_ARGS__, WJ_SYSTEM_SCOPE)
