// What the memory of a device allows: streams of 16 bytes, and accesses of 8 bytes to random places.
//
// copy_stream, read_stream, write_stream: vectors of 16 bytes, 4 in flight a thread. random_read,
// random_write, random_cas, random_add: `accesses` of 8 bytes among mask + 1 words, ACCESSES_IN_FLIGHT
// in flight a thread, at places that a hash of the access number gives. gather_4, gather_8:
// output[i] = values[places[i]].
// sink: one word that is written when all bits of what was read happen to be 1, so that reads are not
// dropped. Grid: grid stride over tiles; no shared memory.
// Definitions, which come from Rust: THREADS, VECTORS_IN_FLIGHT, ACCESSES_IN_FLIGHT.
#include "common/simt.cuh"

struct StreamParams {
    u64 vectors;  // a multiple of THREADS * VECTORS_IN_FLIGHT
    const uint4* input;
    uint4* output;
    u64* sink;
};

// Calls body(first vector of the thread) for each tile of the block.
template <class Body>
WJ_DEVICE void for_tiles(u64 items, u64 items_per_thread, Body body) {
    const u64 tile = blockDim.x * items_per_thread;
    for (u64 first = blockIdx.x * tile; first < items; first += gridDim.x * tile) body(first + threadIdx.x);
}

WJ_ENTRY(copy_stream, StreamParams, THREADS) {
    for_tiles(p.vectors, VECTORS_IN_FLIGHT, [&](u64 first) {
        uint4 vectors[VECTORS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) vectors[i] = __ldcs(p.input + first + i * THREADS);
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) __stcs(p.output + first + i * THREADS, vectors[i]);
    });
}

WJ_ENTRY(read_stream, StreamParams, THREADS) {
    u32 all = ~0u;
    for_tiles(p.vectors, VECTORS_IN_FLIGHT, [&](u64 first) {
        uint4 vectors[VECTORS_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) vectors[i] = __ldcs(p.input + first + i * THREADS);
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) all &= vectors[i].x & vectors[i].y & vectors[i].z & vectors[i].w;
    });
    if (all == ~0u) *p.sink = 1;
}

WJ_ENTRY(write_stream, StreamParams, THREADS) {
    for_tiles(p.vectors, VECTORS_IN_FLIGHT, [&](u64 first) {
#pragma unroll
        for (int i = 0; i < VECTORS_IN_FLIGHT; ++i) {
            const u32 word = (u32)(first + i * THREADS);
            __stcs(p.output + first + i * THREADS, make_uint4(word, word, word, word));
        }
    });
}

struct RandomParams {
    u64 accesses;  // a multiple of THREADS * ACCESSES_IN_FLIGHT, below 2^32
    u64 mask;      // words - 1, a power of two less 1, below 2^32
    u64* words;
    u64* sink;
};

// A place that looks random, in few instructions.
WJ_DEVICE u32 place_of(u32 access) {
    access *= 0x9e3779b1u;
    access ^= access >> 15;
    access *= 0x85ebca77u;
    return access ^ access >> 13;
}

// Calls body(access number, word) for each access, ACCESSES_IN_FLIGHT side by side.
template <class Body>
WJ_DEVICE void for_random(const RandomParams& p, Body body) {
    for_tiles(p.accesses, ACCESSES_IN_FLIGHT, [&](u64 first) {
#pragma unroll
        for (int i = 0; i < ACCESSES_IN_FLIGHT; ++i) {
            const u32 access = (u32)first + i * THREADS;
            body(access, p.words + (place_of(access) & (u32)p.mask));
        }
    });
}

WJ_ENTRY(random_read, RandomParams, THREADS) {
    u64 all = ~0ULL;
    for_random(p, [&](u32 access, u64* word) { all &= __ldcg(word); });
    if (all == ~0ULL) *p.sink = 1;
}

WJ_ENTRY(random_write, RandomParams, THREADS) {
    for_random(p, [&](u32 access, u64* word) { __stcg(word, (u64)access); });
}

WJ_ENTRY(random_cas, RandomParams, THREADS) {
    u64 all = ~0ULL;
    for_random(p, [&](u32 access, u64* word) { all &= atomicCAS(word, 0ULL, access + 1ULL); });
    if (all == ~0ULL) *p.sink = 1;
}

WJ_ENTRY(random_add, RandomParams, THREADS) {
    for_random(p, [&](u32 access, u64* word) { atomicAdd(word, 1ULL); });
}

struct GatherParams {
    u64 rows;  // a multiple of THREADS * ACCESSES_IN_FLIGHT
    const u32* places;
    const void* values;
    void* output;
};

template <class T>
WJ_DEVICE void gather(const GatherParams& p) {
    const T* values = static_cast<const T*>(p.values);
    T* output = static_cast<T*>(p.output);
    for_tiles(p.rows, ACCESSES_IN_FLIGHT, [&](u64 first) {
        T gathered[ACCESSES_IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < ACCESSES_IN_FLIGHT; ++i) gathered[i] = __ldg(values + __ldcs(p.places + first + i * THREADS));
#pragma unroll
        for (int i = 0; i < ACCESSES_IN_FLIGHT; ++i) __stcs(output + first + i * THREADS, gathered[i]);
    });
}

WJ_ENTRY(gather_4, GatherParams, THREADS) { gather<u32>(p); }
WJ_ENTRY(gather_8, GatherParams, THREADS) { gather<u64>(p); }
