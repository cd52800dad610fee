// Instructions that count or move rows by partition.
#pragma once
#include "interpret/machine.cuh"
#include "partition/partition.cuh"

static_assert(WJ_PARTITION_ITEMS % WJ_INTERPRET_ROWS == 0, "items are taken together");

// A block's tile, and what each thread knows of its rows.
struct Tile {
    PartitionTile shared;
    u64 first;
    u32 partitions;
    u32 rows;
    u32 item;
    u32 places[WJ_PARTITION_ITEMS];
    u64 values[WJ_PARTITION_ITEMS];
};

WJ_DEVICE PartitionTile shared_of(const Tile& tile) {
    const PartitionTile& shared = tile.shared;
    return PartitionTile{in_shared(shared.stage), in_shared(shared.counts), in_shared(shared.targets), in_shared(shared.sums),
                         in_shared(shared.digits)};
}

// The row of the tile that is an item of the lane: `ahead` of the next one.
WJ_DEVICE u32 asked_row(const Tile& tile, int ahead) { return (tile.item + ahead) * blockDim.x + threadIdx.x; }

WJ_DEVICE u64 tile_step() { return (u64)blockDim.x * WJ_PARTITION_ITEMS; }

// Counters in shared memory. `a` is the number of bits. All threads of the block call it.
WJ_DEVICE void open_count(Tile& tile, u32 bits) {
    u32* const counts = &shared_as<u32>();
    tile.partitions = 1u << bits;
    tile.first = blockIdx.x * tile_step();
#pragma unroll 1
    for (u32 partition = threadIdx.x; partition < tile.partitions; partition += blockDim.x) counts[partition] = 0;
    __syncthreads();
}

// Adds the counters to those of the relation. All threads of the block call it.
WJ_DEVICE void close_count(const Tile& tile, u32* counts) {
    const u32* const shared = &shared_as<u32>();
    __syncthreads();
#pragma unroll 1
    for (u32 partition = threadIdx.x; partition < tile.partitions; partition += blockDim.x) {
        if (shared[partition] != 0) atomicAdd(&counts[partition], shared[partition]);
    }
}

WJ_DEVICE void count_places(const Tile& tile) {
    u32* const counts = &shared_as<u32>();
#pragma unroll 1
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item) {
        if (tile.places[item] != WJ_UNRANKED) atomicAdd(&counts[tile.places[item]], 1u);
    }
}

// Gives each row its place. All threads of the block call it.
WJ_DEVICE void place_tile(Tile& tile, u32* cursors) {
    const PartitionTile shared = shared_of(tile);
#pragma unroll 1
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item) {
        if (tile.places[item] != WJ_UNRANKED) tile.places[item] = rank_row(shared, tile.places[item]);
    }
    reserve_runs(shared, tile.partitions, cursors);
    place_rows(shared, tile.places);
}
