// Radix partition of rows by bits of their key's hash, one tile a block.
//
// A tile is blockDim.x * WJ_PARTITION_ITEMS rows. Its rows are ranked by partition in shared memory, one
// atomic a partition reserves the tile's run in the partition's part of the output, and column after
// column goes through shared memory, so that runs are written coalesced. Rows of a partition come in
// no order. Partition p of 2^bits is made of the hashes whose top `bits` bits are p, so that
// partitions of more bits refine those of fewer.
//
// Rows are words: columns of 4 or 8 bytes. Offsets are u32: a device holds less than 2^32 rows.
#pragma once
#include "common/hash.cuh"
#include "common/warp.cuh"
#include "partition/constants.cuh"

#define WJ_UNRANKED 0xffffffffu

// Hash of a key of several words, of which the bits outside the masks are not part. Joins have seed 0.
template <class WordAt>
WJ_DEVICE u64 partition_hash(u32 key_words, u64 seed, WordAt word_at) {
    if (key_words == 1) return hash_key(word_at(0) ^ seed);
    u64 hash = seed;
    // Few words, in the midst of loops that are unrolled themselves: copies of this one only take long to compile.
#pragma unroll 1
    for (u32 word = 0; word < key_words; ++word) hash = hash_combine(hash, word_at(word));
    return hash_key(hash);
}

// Partition of a hash among 2^bits.
WJ_DEVICE u32 partition_of(u64 hash, u32 bits) { return bits == 0 ? 0 : (u32)(hash >> 32) >> (32 - bits); }

// Rows of a block's tile where `left` rows are left.
WJ_DEVICE u32 rows_of_tile(u64 left) {
    const u32 rows = blockDim.x * WJ_PARTITION_ITEMS;
    return left < rows ? (u32)left : rows;
}

// The shared memory of a tile: 12 bytes a row of a tile at most, 8 a partition, 136 more.
struct PartitionTile {
    u64* stage;    // rows: values of the column under way, by place in the tile
    u32* counts;   // partitions + 1: rows of the tile; after reserve_runs the place of the first. The last for rows that are not
    u32* targets;  // partitions: place in the output less place in the tile, modulo 2^32
    u32* sums;     // 33: rows of the tile in the last
    u16* digits;   // rows: partition of each place, less the first partition of the tile
};

WJ_DEVICE PartitionTile open_tile(u32 partitions) {
    const u32 rows = blockDim.x * WJ_PARTITION_ITEMS;
    PartitionTile tile;
    tile.stage = &shared_as<u64>();
    tile.counts = reinterpret_cast<u32*>(tile.stage + rows);
    tile.targets = tile.counts + partitions + 1;
    tile.sums = tile.targets + partitions;
    tile.digits = reinterpret_cast<u16*>(tile.sums + WJ_BLOCK_SUMS);
#pragma unroll 1
    for (u32 partition = threadIdx.x; partition <= partitions; partition += blockDim.x) tile.counts[partition] = 0;
    __syncthreads();
    return tile;
}

// Counts a row of the tile; its partition in the high half, its number among those of the partition in
// the low one.
WJ_DEVICE u32 rank_row(const PartitionTile& tile, u32 digit) { return digit << 16 | atomicAdd(&tile.counts[digit], 1u); }

// Exclusive sums over the threads of a block, with 33 words of shared memory; the total goes to sums[32]. All threads call it.
template <class T>
WJ_DEVICE T block_exclusive_sum(T* sums, T value) {
    const u32 lane = threadIdx.x & 31;
    const u32 warp = threadIdx.x >> 5;
    const T inclusive = warp_inclusive_sum(value);
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
        const T total = lane < blockDim.x / 32 ? sums[lane] : 0;
        const T running = warp_inclusive_sum(total);
        sums[lane] = running - total;
        if (lane == 31) sums[32] = running;
    }
    __syncthreads();
    return sums[warp] + inclusive - value;
}

// Exclusive sums of `count` values by one block, several a thread: value_at(index) is added up, and
// put(index, sum of those before) called. Returns the total. The next one may follow at once.
template <class T, class ValueAt, class Put>
WJ_DEVICE T block_scan(T* sums, u64 count, ValueAt value_at, Put put) {
    constexpr u32 each = 8;
    T before = 0;
    for (u64 first = 0; first < count; first += (u64)blockDim.x * each) {
        const u64 mine = first + threadIdx.x * each;
        T values[each];
        T total = 0;
WJ_UNROLL
        for (u32 k = 0; k < each; ++k) {
            values[k] = mine + k < count ? value_at(mine + k) : T(0);
            total += values[k];
        }
        T running = before + block_exclusive_sum(sums, total);
        before += sums[32];
        __syncthreads();
WJ_UNROLL
        for (u32 k = 0; k < each; ++k) {
            if (mine + k < count) put(mine + k, running);
            running += values[k];
        }
    }
    return before;
}

// Partitions of equal room, which then need not be counted first: `rows` each, and after all of them room for a tile.
// A run that finds no room goes there, where its rows are lost; the cursor tells.
struct PartitionBins {
    u32 rows;  // 0: cursors begin where partitions do
};

// Gives every partition of the tile its place in the tile and its run in the output. All threads of the
// block call it, once all rows are ranked.
WJ_DEVICE void reserve_runs(const PartitionTile& tile, u32 partitions, u32* cursors, PartitionBins bins = {0}) {
    __syncthreads();
    const u32 each = (partitions + blockDim.x - 1) / blockDim.x;
    const u32 first = threadIdx.x * each;
    const u32 end = first + each < partitions ? first + each : partitions;
    u32 mine = 0;
    for (u32 partition = first; partition < end; ++partition) mine += tile.counts[partition];
    u32 place = block_exclusive_sum(tile.sums, mine);
    for (u32 partition = first; partition < end; ++partition) {
        const u32 count = tile.counts[partition];
        tile.counts[partition] = place;
        if (count != 0) {
            u32 target = atomicAdd(&cursors[partition], count);
            if (bins.rows != 0) {
                target = target + count <= bins.rows ? partition * bins.rows + target : partitions * bins.rows + place;
            }
            tile.targets[partition] = target - place;
        }
        place += count;
    }
    if (threadIdx.x == 0) tile.counts[partitions] = tile.sums[32];
    __syncthreads();
}

// Turns ranks into places in the tile, and notes the partition of each place. ALL: every row is ranked, those that are not
// there as of the partition after the last.
template <bool ALL = false>
WJ_DEVICE void place_rows(const PartitionTile& tile, u32 (&places)[WJ_PARTITION_ITEMS]) {
WJ_UNROLL
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item) {
        if (!ALL && places[item] == WJ_UNRANKED) continue;
        const u32 digit = places[item] >> 16;
        places[item] = tile.counts[digit] + (places[item] & 0xffff);
        tile.digits[places[item]] = (u16)digit;
    }
}

// Writes the staged column, one value a row of the tile. All threads call it between barriers.
template <class T>
WJ_DEVICE void write_runs(const PartitionTile& tile, T* output) {
    const T* stage = reinterpret_cast<const T*>(tile.stage);
    const u32 rows = tile.sums[32];
    // More at once want more registers than there are.
#pragma unroll 4
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item) {
        const u32 place = item * blockDim.x + threadIdx.x;
        if (place < rows) output[tile.targets[tile.digits[place]] + place] = stage[place];
    }
}

// Brings a column of the tile into shared memory by place, and writes its runs. ALL: as of place_rows.
template <class T, bool ALL = false, class V>
WJ_DEVICE void move_staged(const PartitionTile& tile, const V (&values)[WJ_PARTITION_ITEMS],
                           const u32 (&places)[WJ_PARTITION_ITEMS], u8* output) {
    T* stage = reinterpret_cast<T*>(tile.stage);
    __syncthreads();
WJ_UNROLL
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item) {
        if (ALL || places[item] != WJ_UNRANKED) stage[places[item]] = (T)values[item];
    }
    __syncthreads();
    write_runs(tile, reinterpret_cast<T*>(output));
}
