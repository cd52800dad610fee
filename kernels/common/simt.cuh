// The one header that knows whether a kernel is compiled for a GPU or for the simulated device.
// Everything else is written against the names below, which mean the same on both: CUDA's own
// (threadIdx, __syncthreads, __ballot_sync, __shfl_sync, atomicCAS, ...), and those defined here.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef __int128 i128;
typedef unsigned __int128 u128;
typedef float f32;
typedef double f64;

// Before a loop of few turns known to the compiler, over what each thread has in registers.
#define WJ_UNROLL _Pragma("unroll")

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

// An entry: `WJ_ENTRY(name, Params, threads_max) { ... }`; its argument is `p`, a Params.
#define WJ_ENTRY(name, Params, threads_max) \
    WJ_IF_WANTED(name, extern "C" __global__ void __launch_bounds__(threads_max) name(const __grid_constant__ Params p))

// As WJ_ENTRY, for at least `blocks_min` blocks on a multiprocessor: bounds the registers.
#define WJ_ENTRY_RESIDENT(name, Params, threads_max, blocks_min) \
    WJ_IF_WANTED(name, extern "C" __global__ void __launch_bounds__(threads_max, blocks_min) \
                     name(const __grid_constant__ Params p))

// Where WJ_SELECTED is defined, only the entries named by WJ_WANTED_<name>=1 are compiled: another one becomes a
// template that nobody instantiates.
#if defined(WJ_SELECTED)
#define WJ_FLAG_1 ~,
#define WJ_PICK(skipped, picked, ...) picked
#define WJ_CHOOSE_BY(...) WJ_PICK(__VA_ARGS__, ~)
#define WJ_CHOOSE_OF(flag) WJ_CHOOSE_BY(WJ_FLAG_##flag WJ_FIRST, WJ_SECOND)
#define WJ_CHOOSE(flag) WJ_CHOOSE_OF(flag)
#define WJ_FIRST(first, second) first
#define WJ_SECOND(first, second) second
#define WJ_IF_WANTED(name, head) WJ_CHOOSE(WJ_WANTED_##name)(head, template <class Params> __device__ void name(Params p))
#else
#define WJ_IF_WANTED(name, head) head
#endif

// The block's dynamic shared memory, seen as a T. Its size comes with the launch.
template <class T>
__device__ __forceinline__ T& shared_as() {
    extern __shared__ __align__(16) unsigned char wj_shared_bytes[];
    return *reinterpret_cast<T*>(wj_shared_bytes);
}

// The address of the block's dynamic shared memory, of which the compiler knows nothing, so that it is not computed over and over;
// and what is at such an address.
__device__ __forceinline__ u32 shared_address() {
    u32 address = (u32)__cvta_generic_to_shared(&shared_as<u8>());
    asm volatile("" : "+r"(address));
    return address;
}
template <class T>
__device__ __forceinline__ T& shared_at(u32 address) {
    return *reinterpret_cast<T*>(__cvta_shared_to_generic(address));
}

// Four words at an address of shared memory that is a multiple of 16, in one load that stays where it is.
__device__ __forceinline__ void load_four(u32 address, u32 (&words)[4]) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
}

// A load that is not merged with others: it sees what other threads have stored meanwhile.
template <class T>
__device__ __forceinline__ T load_relaxed(const T* address) {
    return *const_cast<const volatile T*>(address);
}

// A store that is made at once, for threads that wait for it.
template <class T>
__device__ __forceinline__ void store_relaxed(T* address, T value) {
    *const_cast<volatile T*>(address) = value;
}

// A load of 8 or 16 bytes beside atomics of other threads: each 8 bytes have some value that they had. Whoever decides by it
// must look again with an atomic.
template <class T>
__device__ __forceinline__ T load_unordered(const T* address) {
    return *address;
}

// The bits of 1, 2, 4 or 8 bytes of global memory, without a branch, where `loads`; elsewhere 0. Nothing waits for them here.
template <int BYTES>
__device__ __forceinline__ u64 load_bits_if(const void* address, bool loads) {
    const size_t global = __cvta_generic_to_global(address);
    u64 word = 0;
    u32 half = 0;
#define WJ_LOAD_IF(width, to, constraint)                                                                   \
    asm volatile("{ .reg .pred loads; setp.ne.u32 loads, %2, 0; @loads ld.global." width " %0, [%1]; }"     \
                 : "+" constraint(to)                                                                       \
                 : "l"(global), "r"((u32)loads))
    if (BYTES == 1) WJ_LOAD_IF("u8", half, "r");
    if (BYTES == 2) WJ_LOAD_IF("u16", half, "r");
    if (BYTES == 4) WJ_LOAD_IF("u32", half, "r");
    if (BYTES == 8) WJ_LOAD_IF("u64", word, "l");
#undef WJ_LOAD_IF
    return BYTES == 8 ? word : half;
}

// The bits of 1, 2 or 4 bytes (2^`width`; `lacking` bits less than 32): `begin_load` reads the four bytes around them, as one register
// is written by one load, and nothing waits for them before `end_load`.
struct BegunLoad {
    u32 word;
    u32 shift;
};
__device__ __forceinline__ BegunLoad begin_load(u64 address, u32, bool loads) {
    const u32 word = (u32)load_bits_if<4>((const void*)(address & ~3ULL), loads);
    return BegunLoad{word, ((u32)address & 3) * 8};
}
// Behind the last of several loads: without it the compiler ends the first one before the last one has begun. All lanes call it.
__device__ __forceinline__ void all_loads_begun() { __syncwarp(); }
__device__ __forceinline__ u32 end_load(BegunLoad load, u32 lacking) {
    return load.word >> load.shift & 0xffffffffu >> lacking;
}

// A load of what is read once, and a store of what is not read soon: they leave the L2 cache to others.
template <class T>
__device__ __forceinline__ T load_once(const T* address) {
    return __ldcs(address);
}
template <class T>
__device__ __forceinline__ void store_once(T* address, T value) {
    __stcs(address, value);
}

template <>
__device__ __forceinline__ i128 load_once(const i128* address) {
    const ulonglong2 halves = __ldcs(reinterpret_cast<const ulonglong2*>(address));
    return (i128)((u128)halves.y << 64 | halves.x);
}
template <>
__device__ __forceinline__ void store_once(i128* address, i128 value) {
    __stcs(reinterpret_cast<ulonglong2*>(address), make_ulonglong2((u64)value, (u64)((u128)value >> 64)));
}

// A value of which the compiler knows nothing: what follows from it is computed anew rather than kept in registers.
__device__ __forceinline__ u32 opaque(u32 value) {
    asm volatile("" : "+r"(value));
    return value;
}

// Threads of a block that is launched with `threads` where a device allows it: a constant, as every GPU does. Simulated blocks
// may have fewer.
__device__ __forceinline__ constexpr u32 block_threads(u32 threads) { return threads; }

// Asks for bytes of global memory ahead of time; address and length are multiples of 16.
__device__ __forceinline__ void prefetch_bytes(const void* address, u32 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(address)), "r"(bytes));
#endif
}

#define WJ_DEVICE __device__ __forceinline__
#define WJ_DEVICE_MEMBER __device__ __forceinline__

#else

#include "sim/simt_cpu.h"

static inline u32 opaque(u32 value) { return value; }
static inline u32 shared_address() { return 0; }
template <class T>
static inline T& shared_at(u32 address) {
    return *reinterpret_cast<T*>(&shared_as<u8>() + address);
}
static inline void load_four(u32 address, u32 (&words)[4]) {
    for (int at = 0; at < 4; ++at) words[at] = shared_at<u32>(address + 4 * at);
}
template <int BYTES>
static inline u64 load_bits_if(const void* address, bool loads) {
    if (!loads) return 0;
    return BYTES == 1   ? *static_cast<const u8*>(address)
           : BYTES == 2 ? *static_cast<const u16*>(address)
           : BYTES == 4 ? *static_cast<const u32*>(address)
                        : *static_cast<const u64*>(address);
}
struct BegunLoad {
    u32 word;
};
static inline BegunLoad begin_load(u64 address, u32 width, bool loads) {
    const void* const place = (const void*)address;
    const u64 word = width == 0   ? load_bits_if<1>(place, loads)
                     : width == 1 ? load_bits_if<2>(place, loads)
                                 : load_bits_if<4>(place, loads);
    return BegunLoad{(u32)word};
}
static inline void all_loads_begun() {}
static inline u32 end_load(BegunLoad load, u32) { return load.word; }
static inline u32 block_threads(u32) { return blockDim.x; }
static inline void prefetch_bytes(const void*, u32) {}

#define WJ_DEVICE static inline
#define WJ_DEVICE_MEMBER inline

#endif
