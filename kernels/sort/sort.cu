// Radix sort of the rows of a device by a key word, least significant digit first, one sweep of the rows a digit.
//
// A pass moves (key, row number) pairs to the places that their digit has among all rows, in the order in which they came.
// Blocks take tiles in order from a counter. A block counts its digits and publishes the counts before it ranks its rows;
// then it looks back at what the tiles before have published: their own counts first, then all rows up to their end. So it
// waits only for blocks that run already, and seldom. (Merrill and Garland 2016, Adinets and Merrill 2022.)
//
// sort_count_4, _8: rows before each digit, of all passes, in one read. Grid stride. Shared: passes x WJ_SORT_DIGITS u32,
// 33 u64, u32.
// sort_pass_4, _8: one pass, a tile a block. Shared: as SortTile. sort_pass_8_4: the same, and writes keys of 4 bytes.
// sort_gather: columns by row number. sort_sample_4, _8: some key words.
// Status: WJ_STATUS_FULL where a block waited in vain, which no block does whose predecessors run.
#include "common/control.cuh"
#include "partition/partition.cuh"
#include "sort/constants.cuh"
#include "sort/params.cuh"  // src/sort.rs

// What a tile has published for a digit: one of these, and the number of rows below.
#define WJ_SORT_OF_TILE (1ULL << 62)
#define WJ_SORT_UP_TO_TILE (2ULL << 62)
#define WJ_SORT_ROWS (WJ_SORT_OF_TILE - 1)
// Looks at one predecessor before a block gives up: seconds.
#define WJ_SORT_LOOKS_MAX (1u << 26)

// Whether the caller's block is the last one of the grid that comes here. All threads call it.
WJ_DEVICE bool is_last_block(u64* finished, u32* shared_flag) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *shared_flag = atomicAdd(finished, 1ULL) == gridDim.x - 1;
    __syncthreads();
    const bool is_last = *shared_flag != 0;
    __threadfence();
    return is_last;
}

// Keys of a thread that are under way together.
#define WJ_COUNTED_KEYS 8

template <class Key>
WJ_DEVICE void count_digits(const CountDigitsParams& p) {
    const u32 passes = (u32)((p.bits + p.digit_bits - 1) / p.digit_bits);
    u64* sums = &shared_as<u64>();
    u32* counts = reinterpret_cast<u32*>(sums + WJ_BLOCK_SUMS);
    u32* flag = counts + passes * WJ_SORT_DIGITS;
    for (u32 place = threadIdx.x; place < passes * WJ_SORT_DIGITS; place += blockDim.x) counts[place] = 0;
    __syncthreads();
    const Key* keys = reinterpret_cast<const Key*>(p.keys);
    const u32 mask = (1u << p.digit_bits) - 1;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride * WJ_COUNTED_KEYS) {
        Key own[WJ_COUNTED_KEYS];
WJ_UNROLL
        for (u32 k = 0; k < WJ_COUNTED_KEYS; ++k) own[k] = row + k * stride < p.rows ? keys[row + k * stride] : Key(0);
WJ_UNROLL
        for (u32 k = 0; k < WJ_COUNTED_KEYS; ++k) {
            if (row + k * stride >= p.rows) break;
WJ_UNROLL
            for (u32 pass = 0; pass < sizeof(Key); ++pass) {
                if (pass >= passes) break;
                const u32 digit = (u32)(own[k] >> pass * p.digit_bits) & mask;
                atomicAdd(&counts[pass * WJ_SORT_DIGITS + digit], 1u);
            }
        }
    }
    __syncthreads();
    for (u32 place = threadIdx.x; place < passes * WJ_SORT_DIGITS; place += blockDim.x) {
        if (counts[place] != 0) atomicAdd(&p.sums[place], (u64)counts[place]);
    }
    if (!is_last_block(p.finished, flag)) return;
    for (u32 pass = 0; pass < passes; ++pass) {
        u64* digits = p.sums + pass * WJ_SORT_DIGITS;
        block_scan<u64>(sums, WJ_SORT_DIGITS, [&](u64 digit) { return load_relaxed(&digits[digit]); },
                        [&](u64 digit, u64 before) { digits[digit] = before; });
    }
}

WJ_ENTRY(sort_count_4, CountDigitsParams, WJ_SORT_COUNT_THREADS) { count_digits<u32>(p); }
WJ_ENTRY(sort_count_8, CountDigitsParams, WJ_SORT_COUNT_THREADS) { count_digits<u64>(p); }

// Threads of a block of a pass.
WJ_DEVICE u32 pass_threads() { return block_threads(WJ_SORT_THREADS); }

// The shared memory of a tile of pass_threads() * WJ_SORT_ITEMS rows.
struct SortTile {
    u64* stage;    // keys, then row numbers by place in the tile; 4 bytes a row where keys have 4
    u32* counts;   // warps x digits: rows of the warp; then where the next one goes in the tile
    u32* totals;   // digits: rows of the tile
    u32* targets;  // digits: place in the output less place in the tile, modulo 2^32
    u32* sums;     // 33
    u32* tile;
};

template <class Key>
WJ_DEVICE SortTile open_sort_tile() {
    SortTile tile;
    tile.stage = &shared_as<u64>();
    tile.counts = reinterpret_cast<u32*>(tile.stage) + pass_threads() * WJ_SORT_ITEMS * sizeof(Key) / 4;
    tile.totals = tile.counts + pass_threads() / 32 * WJ_SORT_DIGITS;
    tile.targets = tile.totals + WJ_SORT_DIGITS;
    tile.sums = tile.targets + WJ_SORT_DIGITS;
    tile.tile = tile.sums + WJ_BLOCK_SUMS;
    return tile;
}

// Lanes of the warp with the same digit.
WJ_DEVICE u32 digit_peers(u32 digit) {
    u32 peers = 0xffffffffu;
WJ_UNROLL
    for (u32 bit = 0; bit < WJ_SORT_DIGIT_BITS; ++bit) {
        const u32 lanes = __ballot_sync(0xffffffffu, (digit >> bit & 1) != 0);
        // All ones where the bit is set, so that one operation of three operands does the rest.
        const u32 own = (u32)((i32)(digit << (31 - bit)) >> 31);
        peers &= ~(lanes ^ own);
    }
    return peers;
}

// Rows of a digit in all tiles before this one; publishes those up to its end.
WJ_DEVICE u64 look_back(const SortPassParams& p, u32 tile, u32 digit, u64 own) {
    u64 before = 0;
    u64* published = p.published + digit;
    for (u32 distance = 1; distance <= tile; ++distance) {
        const u64* other = published + (u64)(tile - distance) * WJ_SORT_DIGITS;
        u64 seen = load_relaxed(other);
        for (u32 look = 0; seen == 0 && look < WJ_SORT_LOOKS_MAX; ++look) {
            __nanosleep(32);
            seen = load_relaxed(other);
        }
        if (seen == 0) {
            raise_status(p.control, WJ_STATUS_FULL);
            break;
        }
        before += seen & WJ_SORT_ROWS;
        if ((seen & WJ_SORT_UP_TO_TILE) != 0) break;
    }
    store_relaxed(published + (u64)tile * WJ_SORT_DIGITS, WJ_SORT_UP_TO_TILE | (before + own));
    return before;
}

// Adds up the rows of each digit, publishes them, and turns the counts of warps into places in the tile. Others may count on the
// sums while this block ranks its rows.
WJ_DEVICE void place_digits(const SortPassParams& p, const SortTile& tile, u32 number) {
    u32 before = 0;
    for (u32 base = 0; base < WJ_SORT_DIGITS; base += pass_threads()) {
        const u32 digit = base + threadIdx.x;
        u32* counts = tile.counts + digit;
        u32 total = 0;
        if (digit < WJ_SORT_DIGITS) {
            for (u32 warp = 0; warp < pass_threads() / 32; ++warp) total += counts[warp * WJ_SORT_DIGITS];
            tile.totals[digit] = total;
            store_relaxed(p.published + (u64)number * WJ_SORT_DIGITS + digit,
                          (number == 0 ? WJ_SORT_UP_TO_TILE : WJ_SORT_OF_TILE) | total);
        }
        u32 place = before + block_exclusive_sum(tile.sums, total);
        before += tile.sums[32];
        if (digit < WJ_SORT_DIGITS) {
            tile.targets[digit] = place;
            for (u32 warp = 0; warp < pass_threads() / 32; ++warp) {
                const u32 rows = counts[warp * WJ_SORT_DIGITS];
                counts[warp * WJ_SORT_DIGITS] = place;
                place += rows;
            }
        }
        __syncthreads();
    }
}

// Finds where the tile's runs go.
WJ_DEVICE void find_targets(const SortPassParams& p, const SortTile& tile, u32 number) {
    for (u32 digit = threadIdx.x; digit < WJ_SORT_DIGITS; digit += pass_threads()) {
        const u64 before = number == 0 ? 0 : look_back(p, number, digit, tile.totals[digit]);
        tile.targets[digit] = (u32)(p.sums[digit] + before) - tile.targets[digit];
    }
}

// Loads the thread's values of a tile, of which a warp has neighbouring ones; `outside` behind the last row.
template <class T>
WJ_DEVICE void load_items(const T* tile, u32 rows, T outside, T (&values)[WJ_SORT_ITEMS]) {
    const u32 own = (threadIdx.x >> 5) * 32 * WJ_SORT_ITEMS + (threadIdx.x & 31);
    // Tests take registers that whole tiles, which are nearly all, need not have.
    if (rows == pass_threads() * WJ_SORT_ITEMS) {
WJ_UNROLL
        for (u32 item = 0; item < WJ_SORT_ITEMS; ++item) values[item] = tile[own + item * 32];
    } else {
WJ_UNROLL
        for (u32 item = 0; item < WJ_SORT_ITEMS; ++item) {
            values[item] = own + item * 32 < rows ? tile[own + item * 32] : outside;
        }
    }
}

// Out: type of the keys that are written. A narrower one has no bits of earlier digits.
template <class Key, class Out>
WJ_DEVICE void sort_tile(const SortPassParams& p) {
    const SortTile tile = open_sort_tile<Key>();
    const u32 tile_rows = pass_threads() * WJ_SORT_ITEMS;
    const u32 lane = threadIdx.x & 31;
    const u32 warp = threadIdx.x >> 5;
    u32* counts = tile.counts + warp * WJ_SORT_DIGITS;
    for (u32 digit = lane; digit < WJ_SORT_DIGITS; digit += 32) counts[digit] = 0;
    if (threadIdx.x == 0) *tile.tile = (u32)atomicAdd(p.next_tile, 1ULL);
    __syncthreads();
    const u32 number = *tile.tile;
    const u64 first = (u64)number * tile_rows;
    const u64 left = p.rows - first;
    const u32 rows = left < tile_rows ? (u32)left : tile_rows;
    const u32 mask = (1u << p.bits) - 1;
    const u32 shift = (u32)p.shift;
    // A warp has neighbouring rows, so that ranks keep their order. What is behind the last row has the last digit, and comes
    // behind it again.
    Key keys[WJ_SORT_ITEMS];
    load_items(reinterpret_cast<const Key*>(p.keys) + first, rows, (Key)~Key(0), keys);
WJ_UNROLL
    for (u32 item = 0; item < WJ_SORT_ITEMS; ++item) atomicAdd(&counts[(u32)(keys[item] >> shift) & mask], 1u);
    __syncthreads();
    place_digits(p, tile, number);
    u32 places[WJ_SORT_ITEMS];
    Key* stage = reinterpret_cast<Key*>(tile.stage);
WJ_UNROLL
    for (u32 item = 0; item < WJ_SORT_ITEMS; ++item) {
        const u32 digit = (u32)(keys[item] >> shift) & mask;
        const u32 peers = digit_peers(digit);
        const u32 leader = __ffs(peers) - 1;
        u32 before = 0;
        if (lane == leader) before = atomicAdd(&counts[digit], (u32)__popc(peers));
        before = __shfl_sync(0xffffffffu, before, leader);
        places[item] = before + __popc(peers & ((1u << lane) - 1));
        stage[places[item]] = keys[item];
    }
    // On their way while the block looks back; the keys are staged, and leave their registers.
    u32 numbers[WJ_SORT_ITEMS];
    if (p.numbers_out != nullptr && p.numbers != nullptr) {
        load_items(p.numbers + first, rows, 0u, numbers);
    } else {
WJ_UNROLL
        for (u32 item = 0; item < WJ_SORT_ITEMS; ++item) {
            numbers[item] = (u32)first + (warp * WJ_SORT_ITEMS + item) * 32 + lane;
        }
    }
    find_targets(p, tile, number);
    __syncthreads();
    u32 targets[WJ_SORT_ITEMS];
    Out* keys_out = reinterpret_cast<Out*>(p.keys_out);
WJ_UNROLL
    for (u32 item = 0; item < WJ_SORT_ITEMS; ++item) {
        const u32 place = item * pass_threads() + threadIdx.x;
        const Key key = stage[place];
        targets[item] = tile.targets[(u32)(key >> shift) & mask] + place;
        if (keys_out != nullptr && place < rows) {
            keys_out[targets[item]] = sizeof(Out) < sizeof(Key) ? (Out)(key >> p.dropped_bits) : (Out)key;
        }
    }
    if (p.numbers_out == nullptr) return;
    __syncthreads();
    u32* staged = reinterpret_cast<u32*>(tile.stage);
WJ_UNROLL
    for (u32 item = 0; item < WJ_SORT_ITEMS; ++item) staged[places[item]] = numbers[item];
    __syncthreads();
WJ_UNROLL
    for (u32 item = 0; item < WJ_SORT_ITEMS; ++item) {
        const u32 place = item * pass_threads() + threadIdx.x;
        if (place < rows) p.numbers_out[targets[item]] = staged[place];
    }
}

WJ_ENTRY_RESIDENT(sort_pass_4, SortPassParams, WJ_SORT_THREADS, 2) { sort_tile<u32, u32>(p); }
WJ_ENTRY_RESIDENT(sort_pass_8, SortPassParams, WJ_SORT_THREADS, 2) { sort_tile<u64, u64>(p); }
WJ_ENTRY_RESIDENT(sort_pass_8_4, SortPassParams, WJ_SORT_THREADS, 2) { sort_tile<u64, u32>(p); }

template <class T>
WJ_DEVICE void gather_value(const u8* source, u64 from, u8* target, u64 to) {
    reinterpret_cast<T*>(target)[to] = reinterpret_cast<const T*>(source)[from];
}

WJ_ENTRY(sort_gather, GatherParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        const u64 from = p.numbers == nullptr ? p.first + row : p.numbers[p.first + row];
        for (u32 column = 0; column < p.columns; ++column) {
            const u8* source = p.sources[column];
            u8* target = p.targets[column];
            switch (p.widths[column]) {
                case 1: gather_value<u8>(source, from, target, row); break;
                case 2: gather_value<u16>(source, from, target, row); break;
                case 4: gather_value<u32>(source, from, target, row); break;
                case 8: gather_value<u64>(source, from, target, row); break;
                default: gather_value<ulonglong2>(source, from, target, row); break;
            }
        }
    }
}

template <class Key>
WJ_DEVICE void sample_keys(const SampleWordsParams& p) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 sample = (u64)blockIdx.x * blockDim.x + threadIdx.x; sample < p.count; sample += stride) {
        p.samples[sample] = reinterpret_cast<const Key*>(p.keys)[sample * p.stride];
    }
}

WJ_ENTRY(sort_sample_4, SampleWordsParams, WJ_BLOCK_THREADS) { sample_keys<u32>(p); }
WJ_ENTRY(sort_sample_8, SampleWordsParams, WJ_BLOCK_THREADS) { sample_keys<u64>(p); }
