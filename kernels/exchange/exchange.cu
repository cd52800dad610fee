// Multisplit and transposition: brings every row to the device that owns its key, by hash or by range.
//
// route_count: counts[devices] += rows of each owner. route_assign: positions[row] = the row's place
// within the source's run at its owner, owner in the top byte; rows of a tile that go to one owner
// get neighbouring places. scatter_N: writes a column of N-byte values to the owners' buffers, each
// given with the address at which this source's run starts.
// Grid: tiles of WJ_BLOCK_THREADS rows, grid stride. Shared: WJ_DEVICES_MAX u32 and u64.
#include "common/control.cuh"
#include "common/hash.cuh"
#include "exchange/params.cuh"  // src/exchange.rs

WJ_DEVICE u32 owner_of(const RouteParams& p, u64 row) {
    const u64 key = p.is_wide ? p.keys[row] : reinterpret_cast<const u32*>(p.keys)[row];
    if (p.splitters == nullptr) return hash_device(hash_key(key), (u32)p.devices);
    u32 owner = 0;
    for (u32 device = 1; device < p.devices; ++device) owner += key >= p.splitters[device - 1];
    return owner;
}

struct RouteShared {
    u64 firsts[WJ_DEVICES_MAX];
    u32 counts[WJ_DEVICES_MAX];
};

// Counts the rows of the block's tile by owner in shared memory; returns the caller's place among
// those of its owner. All threads of the block call it; thread n alone reads count n, and may until it calls it again.
WJ_DEVICE u32 rank_in_tile(RouteShared& shared, u32 owner, bool active) {
    if (threadIdx.x < WJ_DEVICES_MAX) shared.counts[threadIdx.x] = 0;
    __syncthreads();
    const u32 lane = threadIdx.x & 31;
    const u32 peers = __match_any_sync(0xffffffffu, active ? owner : 0xffu);
    const u32 leader = __ffs(peers) - 1;
    u32 first = 0;
    if (active && lane == leader) first = atomicAdd(&shared.counts[owner], (u32)__popc(peers));
    first = __shfl_sync(0xffffffffu, first, leader);
    __syncthreads();
    return first + __popc(peers & ((1u << lane) - 1));
}

WJ_ENTRY(route_count, RouteParams, WJ_BLOCK_THREADS) {
    RouteShared& shared = shared_as<RouteShared>();
    const u64 tiles = (p.rows + blockDim.x - 1) / blockDim.x;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u64 row = tile * blockDim.x + threadIdx.x;
        const bool active = row < p.rows;
        const u32 owner = active ? owner_of(p, row) : 0;
        rank_in_tile(shared, owner, active);
        if (threadIdx.x < p.devices && shared.counts[threadIdx.x] != 0) {
            atomicAdd(&p.counts[threadIdx.x], (u64)shared.counts[threadIdx.x]);
        }
    }
}

WJ_ENTRY(route_assign, RouteParams, WJ_BLOCK_THREADS) {
    RouteShared& shared = shared_as<RouteShared>();
    const u64 tiles = (p.rows + blockDim.x - 1) / blockDim.x;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u64 row = tile * blockDim.x + threadIdx.x;
        const bool active = row < p.rows;
        const u32 owner = active ? owner_of(p, row) : 0;
        const u32 rank = rank_in_tile(shared, owner, active);
        if (threadIdx.x < p.devices) {
            shared.firsts[threadIdx.x] = atomicAdd(&p.counts[threadIdx.x], (u64)shared.counts[threadIdx.x]);
        }
        __syncthreads();
        if (active) p.positions[row] = (u64)owner << 56 | (shared.firsts[owner] + rank);
    }
}

template <class T>
WJ_DEVICE void scatter(const ScatterParams& p) {
    const T* source = reinterpret_cast<const T*>(p.source);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        const u64 position = p.positions[row];
        T* target = reinterpret_cast<T*>(p.targets[position >> 56]);
        target[position & 0xffffffffffffffULL] = source[row];
    }
}

WJ_ENTRY(scatter_1, ScatterParams, WJ_BLOCK_THREADS) { scatter<u8>(p); }
WJ_ENTRY(scatter_2, ScatterParams, WJ_BLOCK_THREADS) { scatter<u16>(p); }
WJ_ENTRY(scatter_4, ScatterParams, WJ_BLOCK_THREADS) { scatter<u32>(p); }
WJ_ENTRY(scatter_8, ScatterParams, WJ_BLOCK_THREADS) { scatter<u64>(p); }
WJ_ENTRY(scatter_16, ScatterParams, WJ_BLOCK_THREADS) { scatter<ulonglong2>(p); }
