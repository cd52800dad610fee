// Collectives of warps and blocks. Each waits for exactly the lanes that it names; the scheduler
// reports lanes that never come, or that come to something else. `line` is for its message.
#pragma once

WJ_SIM_INLINE void __syncthreads(int line = __builtin_LINE()) {
    wj_sim_runtime->block(&wj_sim_lane(), WJ_BARRIER, 0, line);
}
WJ_SIM_INLINE int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return static_cast<int>(wj_sim_runtime->block(&wj_sim_lane(), WJ_BARRIER_COUNT, predicate != 0, line));
}
WJ_SIM_INLINE int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return static_cast<int>(wj_sim_runtime->block(&wj_sim_lane(), WJ_BARRIER_OR, predicate != 0, line));
}
WJ_SIM_INLINE int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return static_cast<int>(wj_sim_runtime->block(&wj_sim_lane(), WJ_BARRIER_AND, predicate != 0, line));
}

WJ_SIM_INLINE unsigned long long wj_sim_warp(WjWarpOp op, unsigned mask, unsigned long long value, int line) {
    return wj_sim_runtime->warp(&wj_sim_lane(), op, mask, value, 0, line);
}

WJ_SIM_INLINE void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    wj_sim_warp(WJ_SYNC, mask, 0, line);
}
WJ_SIM_INLINE unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return static_cast<unsigned>(wj_sim_warp(WJ_BALLOT, mask, predicate != 0, line));
}
WJ_SIM_INLINE int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return static_cast<int>(wj_sim_warp(WJ_ANY, mask, predicate != 0, line));
}
WJ_SIM_INLINE int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return static_cast<int>(wj_sim_warp(WJ_ALL, mask, predicate != 0, line));
}

template <class T>
WJ_SIM_INLINE unsigned long long wj_sim_bits(T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "collectives take values of 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <class T>
WJ_SIM_INLINE T wj_sim_value(unsigned long long bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T>
WJ_SIM_INLINE T wj_sim_shuffle(unsigned mask, T value, unsigned source, int line) {
    return wj_sim_value<T>(wj_sim_runtime->warp(&wj_sim_lane(), WJ_SHUFFLE, mask, wj_sim_bits(value), source, line));
}

template <class T>
WJ_SIM_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    unsigned lane = threadIdx.x & 31, low = static_cast<unsigned>(width) - 1;
    return wj_sim_shuffle(mask, value, (lane & ~low) | (static_cast<unsigned>(source) & low), line);
}
template <class T>
WJ_SIM_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    unsigned lane = threadIdx.x & 31, low = static_cast<unsigned>(width) - 1;
    return wj_sim_shuffle(mask, value, (lane & low) < delta ? lane : lane - delta, line);
}
template <class T>
WJ_SIM_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    unsigned lane = threadIdx.x & 31, low = static_cast<unsigned>(width) - 1;
    return wj_sim_shuffle(mask, value, delta > low - (lane & low) ? lane : lane + delta, line);
}
template <class T>
WJ_SIM_INLINE T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    unsigned lane = threadIdx.x & 31, low = static_cast<unsigned>(width) - 1;
    unsigned source = lane ^ static_cast<unsigned>(bits);
    return wj_sim_shuffle(mask, value, source > (lane | low) ? lane : source, line);
}

template <class T>
WJ_SIM_INLINE unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
    return static_cast<unsigned>(wj_sim_warp(WJ_MATCH_ANY, mask, wj_sim_bits(value), line));
}
template <class T>
WJ_SIM_INLINE unsigned __match_all_sync(unsigned mask, T value, int* predicate, int line = __builtin_LINE()) {
    unsigned matched = static_cast<unsigned>(wj_sim_warp(WJ_MATCH_ALL, mask, wj_sim_bits(value), line));
    *predicate = matched != 0;
    return matched;
}

WJ_SIM_INLINE unsigned __reduce_add_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
    return static_cast<unsigned>(wj_sim_warp(WJ_ADD, mask, value, line));
}
WJ_SIM_INLINE int __reduce_add_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return static_cast<int>(wj_sim_warp(WJ_ADD, mask, static_cast<unsigned>(value), line));
}
WJ_SIM_INLINE unsigned __reduce_min_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
    return static_cast<unsigned>(wj_sim_warp(WJ_MIN_U32, mask, value, line));
}
WJ_SIM_INLINE int __reduce_min_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return static_cast<int>(wj_sim_warp(WJ_MIN_I32, mask, static_cast<unsigned>(value), line));
}
WJ_SIM_INLINE unsigned __reduce_max_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
    return static_cast<unsigned>(wj_sim_warp(WJ_MAX_U32, mask, value, line));
}
WJ_SIM_INLINE int __reduce_max_sync(unsigned mask, int value, int line = __builtin_LINE()) {
    return static_cast<int>(wj_sim_warp(WJ_MAX_I32, mask, static_cast<unsigned>(value), line));
}
WJ_SIM_INLINE unsigned __reduce_and_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
    return static_cast<unsigned>(wj_sim_warp(WJ_AND, mask, value, line));
}
WJ_SIM_INLINE unsigned __reduce_or_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
    return static_cast<unsigned>(wj_sim_warp(WJ_OR, mask, value, line));
}
WJ_SIM_INLINE unsigned __reduce_xor_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
    return static_cast<unsigned>(wj_sim_warp(WJ_XOR, mask, value, line));
}

WJ_SIM_INLINE void __nanosleep(unsigned) { wj_sim_runtime->yield(&wj_sim_lane()); }
static inline __attribute__((noreturn)) void __trap(int line = __builtin_LINE()) {
    wj_sim_runtime->fail(&wj_sim_lane(), "__trap()", line);
    __builtin_unreachable();
}

// A fence orders this lane's accesses; it waits for nobody.
WJ_SIM_ATOMIC void wj_sim_fence(WjScope scope) {
    WjObservable observable;
#if defined(WJ_SIM_RACES)
    wj_sim_runtime->fence(&wj_sim_lane(), scope);
#endif
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
WJ_SIM_INLINE void __threadfence() { wj_sim_fence(WJ_DEVICE_SCOPE); }
WJ_SIM_INLINE void __threadfence_block() { wj_sim_fence(WJ_BLOCK_SCOPE); }
WJ_SIM_INLINE void __threadfence_system() { wj_sim_fence(WJ_SYSTEM_SCOPE); }
