// Scans of rows in one sweep, by segments: what an operation makes of all values of a segment up to each row.
//
// A block takes a tile of blockDim.x * WJ_SCAN_ITEMS rows from a counter, of which a warp has neighbouring ones, item by
// item 32 side by side. What comes in from the tiles before is found by looking back at what these have published: the
// result of all of the tile's rows first, then that of all rows up to its end. A tile in which a segment begins needs nobody
// for the latter. A block therefore waits only for blocks that run already. (Merrill and Garland 2016.)
//
// Rows are counted in the direction of the scan. Shared: ScanShared<T>.
#pragma once
#include "common/control.cuh"

// What a tile has published.
#define WJ_SCAN_OF_TILE 1u
#define WJ_SCAN_UP_TO_TILE 2u
// Looks at predecessors before a block gives up: seconds.
#define WJ_SCAN_LOOKS_MAX (1u << 26)

// Lanes exchange values of 4, 8 and 16 bytes.
template <class T>
WJ_DEVICE T lane_up(T value, u32 distance) {
    return __shfl_up_sync(0xffffffffu, value, distance);
}
template <class T>
WJ_DEVICE T lane_down(T value, u32 distance) {
    return __shfl_down_sync(0xffffffffu, value, distance);
}
template <class T>
WJ_DEVICE T lane_of(T value, u32 lane) {
    return __shfl_sync(0xffffffffu, value, lane);
}
WJ_DEVICE u128 lane_up(u128 value, u32 distance) {
    const u64 high = lane_up((u64)(value >> 64), distance);
    return (u128)high << 64 | lane_up((u64)value, distance);
}
WJ_DEVICE u128 lane_down(u128 value, u32 distance) {
    const u64 high = lane_down((u64)(value >> 64), distance);
    return (u128)high << 64 | lane_down((u64)value, distance);
}
WJ_DEVICE u128 lane_of(u128 value, u32 lane) {
    const u64 high = lane_of((u64)(value >> 64), lane);
    return (u128)high << 64 | lane_of((u64)value, lane);
}

// Operations: associative, and 0 changes nothing.
template <class Value>
struct AddOf {
    typedef Value T;
    WJ_DEVICE_MEMBER static T of(T before, T here) { return before + here; }
};
template <class Value>
struct MaxOf {
    typedef Value T;
    WJ_DEVICE_MEMBER static T of(T before, T here) { return before < here ? here : before; }
};

template <class T>
struct ScanShared {
    T values[32];  // of each warp since the last beginning of a segment in it
    T carry;
    u32 begins[32];
    u32 tile;
};

// What the tiles tell each other; of `tiles` tiles.
template <class T>
struct ScanTiles {
    u64* next_tile;  // zeroed
    u32* states;     // tiles, zeroed
    T* of_tile;      // tiles
    T* up_to_tile;   // tiles
    u64* control;
};

template <class T>
WJ_DEVICE void publish(const ScanTiles<T>& tiles, T* values, u32 tile, T value, u32 state) {
    store_relaxed(&values[tile], value);
    __threadfence();
    store_relaxed(&tiles.states[tile], state);
}

// What comes in from the tiles before. All lanes of one warp call it.
template <class Op>
WJ_DEVICE typename Op::T look_back(const ScanTiles<typename Op::T>& tiles, u32 tile) {
    typedef typename Op::T T;
    const u32 lane = threadIdx.x & 31;
    T carry = 0;
    for (u32 base = 0; base < tile; base += 32) {
        // The first lane has the nearest tile; before the first tile there is nothing to wait for.
        const bool is_tile = base + lane < tile;
        const u32 other = is_tile ? tile - 1 - base - lane : 0;
        u32 state = is_tile ? load_relaxed(&tiles.states[other]) : WJ_SCAN_OF_TILE;
        for (u32 look = 0; look < WJ_SCAN_LOOKS_MAX && !__all_sync(0xffffffffu, state != 0); ++look) {
            __nanosleep(32);
            if (state == 0) state = load_relaxed(&tiles.states[other]);
        }
        if (!__all_sync(0xffffffffu, state != 0)) {
            raise_status(tiles.control, WJ_STATUS_FULL);
            break;
        }
        __threadfence();
        const u32 ends = __ballot_sync(0xffffffffu, state == WJ_SCAN_UP_TO_TILE);
        const u32 last = ends != 0 ? __ffs(ends) - 1 : 31;
        T value = 0;
        if (is_tile && lane <= last) {
            value = load_relaxed(state == WJ_SCAN_UP_TO_TILE ? &tiles.up_to_tile[other] : &tiles.of_tile[other]);
        }
WJ_UNROLL
        for (u32 distance = 16; distance > 0; distance /= 2) {
            const T before = lane_down(value, distance);
            if (lane + distance < 32) value = Op::of(before, value);
        }
        carry = Op::of(lane_of(value, 0), carry);
        if (ends != 0) break;
    }
    return carry;
}

// One tile. value_at(row, item), and begins_at(row): whether a segment begins there; put(row, item, value). All threads of
// the block call it.
template <class Op, class ValueAt, class BeginsAt, class Put>
WJ_DEVICE void scan_tile(const ScanTiles<typename Op::T>& tiles, u64 rows, ValueAt value_at, BeginsAt begins_at, Put put) {
    typedef typename Op::T T;
    ScanShared<T>& shared = shared_as<ScanShared<T>>();
    const u32 lane = threadIdx.x & 31;
    const u32 warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) shared.tile = (u32)atomicAdd(tiles.next_tile, 1ULL);
    __syncthreads();
    const u32 tile = shared.tile;
    const u64 own = ((u64)tile * blockDim.x + warp * 32) * WJ_SCAN_ITEMS + lane;
    T values[WJ_SCAN_ITEMS];
    u32 closed = 0;  // items before whose row, or at it, a segment begins in the warp
    T running = 0;
    bool has_begun = false;
WJ_UNROLL
    for (u32 item = 0; item < WJ_SCAN_ITEMS; ++item) {
        const u64 row = own + item * 32;
        const bool is_row = row < rows;
        T value = is_row ? value_at(row, item) : T(0);
        const u32 begins = __ballot_sync(0xffffffffu, is_row && begins_at(row));
        const u32 up_to = begins & (0xffffffffu >> (31 - lane));
        const u32 first = up_to != 0 ? 31 - __clz(up_to) : 0;
WJ_UNROLL
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const T before = lane_up(value, distance);
            if (lane >= first + distance) value = Op::of(before, value);
        }
        if (up_to == 0) value = Op::of(running, value);
        if (up_to != 0 || has_begun) closed |= 1u << item;
        running = lane_of(value, 31);
        has_begun = has_begun || begins != 0;
        values[item] = value;
    }
    if (lane == 0) {
        shared.values[warp] = running;
        shared.begins[warp] = has_begun;
    }
    __syncthreads();
    // The warps before, from the nearest one on; warp 0 has those of the whole tile.
    T before = 0;
    bool is_closed = false;
    const u32 warps = blockDim.x / 32;
    for (u32 other = warp == 0 ? warps : warp; other > 0 && !is_closed; --other) {
        before = Op::of(shared.values[other - 1], before);
        is_closed = shared.begins[other - 1] != 0;
    }
    if (warp == 0) {
        const bool ends_here = tile == 0 || is_closed;
        if (lane == 0 && ends_here) publish(tiles, tiles.up_to_tile, tile, before, WJ_SCAN_UP_TO_TILE);
        if (lane == 0 && !ends_here) publish(tiles, tiles.of_tile, tile, before, WJ_SCAN_OF_TILE);
        const T carry = look_back<Op>(tiles, tile);
        if (lane == 0) {
            if (!ends_here) publish(tiles, tiles.up_to_tile, tile, Op::of(carry, before), WJ_SCAN_UP_TO_TILE);
            shared.carry = carry;
        }
        before = 0;
        is_closed = false;
    }
    __syncthreads();
    if (!is_closed) before = Op::of(shared.carry, before);
WJ_UNROLL
    for (u32 item = 0; item < WJ_SCAN_ITEMS; ++item) {
        const u64 row = own + item * 32;
        if (row >= rows) continue;
        put(row, item, (closed >> item & 1) != 0 ? values[item] : Op::of(before, values[item]));
    }
}
