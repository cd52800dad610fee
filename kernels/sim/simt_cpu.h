// CUDA's names for the system's C++ compiler: what `common/simt.cuh` includes for simulated devices.
// Lanes yield to others before and after every atomic and relaxed access, and at every collective.
// No standard header is included: they would cost more to compile than the kernels do.
#pragma once

#include "sim/abi.h"

#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define WJ_SIM_INLINE static inline __attribute__((always_inline))
#if defined(__SANITIZE_THREAD__)
#define WJ_SIM_PLAIN_CALLS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WJ_SIM_PLAIN_CALLS 1
#endif
#endif
// Around accesses that are no plain ones: they yield, and tell the race detector, by themselves.
#if defined(WJ_SIM_PLAIN_CALLS)
#define WJ_SIM_ATOMIC static __attribute__((noinline, no_sanitize("thread")))
#else
#define WJ_SIM_ATOMIC WJ_SIM_INLINE
#endif

typedef decltype(sizeof(0)) size_t;

static const WjRuntime* wj_sim_runtime;

// Called on the host's stack, so it must not be a yield point.
extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) void wj_sim_bind(const WjRuntime* runtime) {
    wj_sim_runtime = runtime;
}

// An entry: `WJ_ENTRY(name, Params, threads_max) { ... }`; its argument is `p`, a Params.
#define WJ_ENTRY(name, Params, threads_max)                                            \
    extern "C" __attribute__((visibility("default"))) const WjEntryInfo name##_wj_info = { \
        threads_max, __is_empty(Params) ? 0 : sizeof(Params)};                          \
    extern "C" __attribute__((visibility("default"))) void name(const Params& p)

#define WJ_ENTRY_RESIDENT(name, Params, threads_max, blocks_min) WJ_ENTRY(name, Params, threads_max)

WJ_SIM_INLINE unsigned long wj_sim_stack_pointer() {
    unsigned long sp;
#if defined(__x86_64__)
    asm("movq %%rsp, %0" : "=r"(sp));
#elif defined(__aarch64__)
    asm("mov %0, sp" : "=r"(sp));
#else
    sp = reinterpret_cast<unsigned long>(__builtin_frame_address(0));
#endif
    return sp;
}

WJ_SIM_INLINE WjLane& wj_sim_lane_of(unsigned long sp) {
    unsigned long top = (sp | (WJ_SIM_STACK_BYTES - 1)) + 1;
    unsigned long colour = (sp >> WJ_SIM_STACK_SHIFT) & (WJ_SIM_COLOURS - 1);
    return *reinterpret_cast<WjLane*>(top - WJ_SIM_LANE_BYTES - colour * WJ_SIM_COLOUR_BYTES);
}

WJ_SIM_INLINE WjLane& wj_sim_lane() { return wj_sim_lane_of(wj_sim_stack_pointer()); }

#define threadIdx (wj_sim_lane().thread_index)
#define blockIdx (wj_sim_lane().block_index)
#define blockDim (wj_sim_lane().block_dim)
#define gridDim (wj_sim_lane().grid_dim)
#define warpSize 32

WJ_SIM_INLINE void wj_sim_yield_point() {
    unsigned long sp = wj_sim_stack_pointer();
    WjLane& lane = wj_sim_lane_of(sp);
    bool is_full = (sp & (WJ_SIM_STACK_BYTES - 1)) < WJ_SIM_STACK_RESERVE_BYTES;
    if (__builtin_expect((--lane.yield_in <= 0) | is_full, 0)) wj_sim_runtime->yield(&lane);
}

// Around an access that other lanes can observe: they may run just before it and just after it.
struct WjObservable {
    __forceinline__ WjObservable() { wj_sim_yield_point(); }
    __forceinline__ ~WjObservable() { wj_sim_yield_point(); }
};

// Tells the race detector (with WJ_SIM_RACES) of the atomic access that follows; true if a load must
// give `*stale`. Its caller is not inlined, so the return address is that of the access.
template <class T>
WJ_SIM_INLINE bool wj_sim_atomic(const T* address, WjAtomic kind, WjScope scope, unsigned long long* stale = nullptr) {
#if defined(WJ_SIM_RACES)
    return wj_sim_runtime->atomic(&wj_sim_lane(), address, sizeof(T), kind, scope, __builtin_return_address(0), stale);
#else
    return false;
#endif
}

// The block's dynamic shared memory, seen as a T. Its size comes with the launch.
template <class T>
static inline T& shared_as() {
    WjLane& lane = wj_sim_lane();
    if (!lane.shared) wj_sim_runtime->fail(&lane, "shared memory used, and none asked at launch", 0);
    return *static_cast<T*>(lane.shared);
}

// A load that is not merged with others: it sees what other threads have stored meanwhile.
template <class T>
WJ_SIM_ATOMIC T load_relaxed(const T* address) {
    WjObservable observable;
    unsigned long long stale;
    if (sizeof(T) <= 8 && wj_sim_atomic(address, WJ_LOAD, WJ_SYSTEM_SCOPE, &stale)) {
        T value;
        __builtin_memcpy(&value, &stale, sizeof(T));
        return value;
    }
    return *const_cast<const volatile T*>(address);
}

// A store that is made at once, for threads that wait for it.
template <class T>
WJ_SIM_ATOMIC void store_relaxed(T* address, T value) {
    WjObservable observable;
    wj_sim_atomic(address, WJ_STORE, WJ_SYSTEM_SCOPE);
    *const_cast<volatile T*>(address) = value;
}

// A load of 8 or 16 bytes beside atomics of other threads: each 8 bytes have some value that they had. Whoever decides by it
// must look again with an atomic.
template <class T>
WJ_SIM_INLINE T load_unordered(const T* address) {
    unsigned long long words[sizeof(T) / 8];
    for (unsigned i = 0; i < sizeof(T) / 8; ++i) words[i] = load_relaxed(reinterpret_cast<const unsigned long long*>(address) + i);
    T value;
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
}

// The host's caches take no hints.
template <class T>
WJ_SIM_INLINE T load_once(const T* address) {
    return *address;
}
template <class T>
WJ_SIM_INLINE void store_once(T* address, T value) {
    *address = value;
}

#include "sim/simt_types.h"
#include "sim/simt_collectives.h"
#include "sim/simt_atomics.h"
#include "sim/simt_math.h"
#if defined(WJ_SIM_PLAIN_CALLS)
#include "sim/simt_plain.h"
#endif
