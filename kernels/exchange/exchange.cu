// Multisplit and transposition: brings every row to the device that owns its key, by hash or by range.
//
// A block has a run of neighbouring rows, the same one in both kernels. exchange_count: counts[block][owner] = its rows of each owner.
// exchange_rows: writes columns to the owners' buffers, where the rows of an owner keep their order. Of a tile the rows of one
// owner are listed first, so that neighbouring threads write neighbouring values. exchange_copy: writes columns to devices as they lie.
// Grid: exchange_count and exchange_rows runs of route.rows_each rows; exchange_copy any, grid stride.
// Shared: exchange_count WJ_DEVICES_MAX u32; exchange_rows rank_shared_bytes (src/exchange.rs).
#include "common/control.cuh"
#include "common/hash.cuh"
#include "common/warp.cuh"
#include "exchange/constants.cuh"
#include "exchange/params.cuh"  // src/exchange.rs

// The devices that own a row, a bit each. By hash and by splitters it is one, by ranges any number.
WJ_DEVICE u32 owners_of(const Route& route, u64 row) {
    const u64 key = route.is_wide ? route.keys[row] : reinterpret_cast<const u32*>(route.keys)[row];
    if (route.ranges != nullptr) {
        u32 owners = 0;
        for (u32 device = 0; device < route.devices; ++device) {
            const bool is_in = key >= route.ranges[2 * device] && key <= route.ranges[2 * device + 1];
            owners |= (is_in ? 1u : 0u) << device;
        }
        return owners;
    }
    if (route.splitters == nullptr) return 1u << hash_device(hash_key(key), (u32)route.devices);
    u32 owner = 0;
    for (u32 device = 1; device < route.devices; ++device) owner += key >= route.splitters[device - 1];
    return 1u << owner;
}

struct Run {
    u64 begin;
    u64 end;
};

WJ_DEVICE Run run_of_block(const Route& route) {
    const u64 begin = (u64)blockIdx.x * route.rows_each;
    const u64 end = begin + route.rows_each;
    return {begin < route.rows ? begin : route.rows, end < route.rows ? end : route.rows};
}

WJ_ENTRY(exchange_count, CountParams, WJ_BLOCK_THREADS) {
    const Route& route = p.route;
    u32* counts = &shared_as<u32>();
    if (threadIdx.x < WJ_DEVICES_MAX) counts[threadIdx.x] = 0;
    __syncthreads();
    // Of the warp.
    u32 rows[WJ_DEVICES_MAX] = {};
    const Run run = run_of_block(route);
    for (u64 first = run.begin; first < run.end; first += blockDim.x) {
        const u64 row = first + threadIdx.x;
        const u32 owners = row < run.end ? owners_of(route, row) : 0;
WJ_UNROLL
        for (u32 owner = 0; owner < WJ_DEVICES_MAX; ++owner) {
            rows[owner] += __popc(__ballot_sync(0xffffffffu, (owners >> owner & 1) != 0));
        }
    }
    if ((threadIdx.x & 31) == 0) {
WJ_UNROLL
        for (u32 owner = 0; owner < WJ_DEVICES_MAX; ++owner) {
            if (rows[owner] != 0) atomicAdd(&counts[owner], rows[owner]);
        }
    }
    __syncthreads();
    if (threadIdx.x < route.devices) route.counts[blockIdx.x * route.devices + threadIdx.x] = counts[threadIdx.x];
}

// What a block keeps of its tile, for one owner after the other.
struct RankedTile {
    u64* firsts;  // owners: place of the first row of the tile among those of this source
    u32* counts;  // slices: rows of a warp's 32 neighbours; after ranking those of the slices before
    u32* rows;    // one: rows of the tile
    u16* order;   // rows of the tile, of this owner
    u32 slices;
};

WJ_DEVICE RankedTile open_tile() {
    RankedTile tile;
    tile.slices = blockDim.x / 32 * WJ_EXCHANGE_ITEMS;
    tile.firsts = &shared_as<u64>();
    tile.counts = reinterpret_cast<u32*>(tile.firsts + WJ_DEVICES_MAX);
    tile.rows = tile.counts + tile.slices;
    tile.order = reinterpret_cast<u16*>(tile.rows + 1);
    return tile;
}

// The rows of each owner in the blocks before. Ranking has barriers before they are read.
WJ_DEVICE void count_before(const Route& route, const RankedTile& tile) {
    const u32 lane = threadIdx.x & 31;
    for (u32 owner = threadIdx.x / 32; owner < route.devices; owner += blockDim.x / 32) {
        u64 rows = 0;
        for (u32 block = lane; block < blockIdx.x; block += 32) rows += route.counts[block * route.devices + owner];
        rows = warp_inclusive_sum(rows);
        if (lane == 31) tile.firsts[owner] = rows;
    }
}

// Owners of a thread's rows of a tile, a byte each.
struct Owners {
    u32 words[WJ_EXCHANGE_ITEMS / 4];

    WJ_DEVICE_MEMBER bool has(u32 item, u32 owner) const { return (words[item / 4] >> (item % 4 * 8 + owner) & 1) != 0; }
};

WJ_DEVICE Owners owners_of_tile(const Route& route, u64 first, u32 rows) {
    Owners owners;
WJ_UNROLL
    for (u32 word = 0; word < WJ_EXCHANGE_ITEMS / 4; ++word) owners.words[word] = 0;
WJ_UNROLL
    for (u32 item = 0; item < WJ_EXCHANGE_ITEMS; ++item) {
        const u32 at = item * blockDim.x + threadIdx.x;
        if (at < rows) owners.words[item / 4] |= owners_of(route, first + at) << item % 4 * 8;
    }
    return owners;
}

// Lists the rows of one owner, as they lie.
WJ_DEVICE void rank_rows(const RankedTile& tile, const Owners& owners, u32 owner) {
    const u32 lane = threadIdx.x & 31;
    const u32 warp = threadIdx.x / 32;
    const u32 warps = blockDim.x / 32;
WJ_UNROLL
    for (u32 item = 0; item < WJ_EXCHANGE_ITEMS; ++item) {
        const u32 mine = __ballot_sync(0xffffffffu, owners.has(item, owner));
        if (lane == 0) tile.counts[item * warps + warp] = __popc(mine);
    }
    __syncthreads();
    if (warp == 0) {
        u32 before = 0;
        for (u32 base = 0; base < tile.slices; base += 32) {
            const bool is_there = base + lane < tile.slices;
            const u32 mine = is_there ? tile.counts[base + lane] : 0;
            const u32 sum = before + warp_inclusive_sum(mine);
            if (is_there) tile.counts[base + lane] = sum - mine;
            before = __shfl_sync(0xffffffffu, sum, 31);
        }
        if (lane == 0) *tile.rows = before;
    }
    __syncthreads();
WJ_UNROLL
    for (u32 item = 0; item < WJ_EXCHANGE_ITEMS; ++item) {
        const bool is_mine = owners.has(item, owner);
        const u32 mine = __ballot_sync(0xffffffffu, is_mine);
        const u32 place = tile.counts[item * warps + warp] + __popc(mine & ((1u << lane) - 1));
        if (is_mine) tile.order[place] = (u16)(item * blockDim.x + threadIdx.x);
    }
    __syncthreads();
}

// Writes the rows of the owner. Warps begin at multiples of 32 values at the owner's, which are whole lines of memory.
template <class T>
WJ_DEVICE void send(const RankedTile& tile, u32 owner, const u8* from, u64 first, u8* to) {
    constexpr u32 together = 4;
    const T* source = reinterpret_cast<const T*>(from) + first;
    T* target = reinterpret_cast<T*>(to) + tile.firsts[owner];
    const u32 skew = (u32)(reinterpret_cast<u64>(target) / sizeof(T)) & 31;
    const u32 end = *tile.rows + skew;
    for (u32 base = threadIdx.x; base < end; base += blockDim.x * together) {
        T values[together];
WJ_UNROLL
        for (u32 k = 0; k < together; ++k) {
            const u32 at = base + k * blockDim.x;
            if (at >= skew && at < end) values[k] = source[tile.order[at - skew]];
        }
WJ_UNROLL
        for (u32 k = 0; k < together; ++k) {
            const u32 at = base + k * blockDim.x;
            if (at >= skew && at < end) target[at - skew] = values[k];
        }
    }
}

WJ_ENTRY(exchange_rows, RowsParams, WJ_BLOCK_THREADS) {
    const Route& route = p.route;
    const Columns& columns = p.columns;
    const RankedTile tile = open_tile();
    const Run run = run_of_block(route);
    const u32 tile_rows = blockDim.x * WJ_EXCHANGE_ITEMS;
    count_before(route, tile);
    for (u64 first = run.begin; first < run.end; first += tile_rows) {
        const Owners owners = owners_of_tile(route, first, run.end - first < tile_rows ? (u32)(run.end - first) : tile_rows);
        for (u32 step = 0; step < route.devices; ++step) {
            // Blocks begin with different owners, so that all links are in use.
            const u32 owner = (blockIdx.x + step) % (u32)route.devices;
            rank_rows(tile, owners, owner);
            for (u32 column = 0; column < columns.count; ++column) {
                const u8* source = columns.sources[column];
                u8* target = columns.targets[column * WJ_DEVICES_MAX + owner];
                if (target == nullptr) continue;
                switch (columns.widths[column]) {
                    case 1: send<u8>(tile, owner, source, first, target); break;
                    case 2: send<u16>(tile, owner, source, first, target); break;
                    case 4: send<u32>(tile, owner, source, first, target); break;
                    case 8: send<u64>(tile, owner, source, first, target); break;
                    default: send<ulonglong2>(tile, owner, source, first, target); break;
                }
            }
            __syncthreads();
            if (threadIdx.x == 0) tile.firsts[owner] += *tile.rows;
        }
    }
}

template <class T>
WJ_DEVICE void copy_column(const Columns& columns, u32 column, u64 rows) {
    const T* source = reinterpret_cast<const T*>(columns.sources[column]);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += stride) {
        const T value = source[row];
        for (u32 device = 0; device < WJ_DEVICES_MAX; ++device) {
            T* target = reinterpret_cast<T*>(columns.targets[column * WJ_DEVICES_MAX + device]);
            if (target != nullptr) target[row] = value;
        }
    }
}

WJ_ENTRY(exchange_copy, CopyParams, WJ_BLOCK_THREADS) {
    for (u32 column = 0; column < p.columns.count; ++column) {
        switch (p.columns.widths[column]) {
            case 1: copy_column<u8>(p.columns, column, p.rows); break;
            case 2: copy_column<u16>(p.columns, column, p.rows); break;
            case 4: copy_column<u32>(p.columns, column, p.rows); break;
            case 8: copy_column<u64>(p.columns, column, p.rows); break;
            default: copy_column<ulonglong2>(p.columns, column, p.rows); break;
        }
    }
}
