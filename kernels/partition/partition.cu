// Radix partition of rows that lie in columns of words. See partition/partition.cuh.
//
// partition_count: rows of each of 2^bits partitions, added to counts. Grid stride; shared: 4 bytes a partition.
// partition_scan: exclusive sums of the counts, one block; cursors of the first and of the second pass;
// tiles before each partition of the first pass. Shared: 33 words.
// partition_count_within: rows of each partition of the second pass, added to counts, where a block has no room for counters of
// all partitions; a tile of a partition of the first pass a block. Shared: 4 bytes a partition of the second pass.
// partition_pass_4, _8, _multiple (key in one word of so many bytes, in several): moves rows to the partitions of `bits` more
// bits than `first_bits`, tiles of one partition of the pass before each. partition_pass_noted_4, _8: the same, and says where
// each row went. Shared: as PartitionTile.
// restore_rows: brings what was found for partitioned rows back to where they came from. A tile of the pass a block.
// Status: none; every output has room for all rows.
#include "join/matches.cuh"
#include "partition/words.cuh"

WJ_ENTRY(partition_count, CountParams, 1024) {
    u32* counts = &shared_as<u32>();
    const u32 partitions = 1u << p.bits;
    for (u32 partition = threadIdx.x; partition < partitions; partition += blockDim.x) counts[partition] = 0;
    __syncthreads();
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    constexpr u32 each = 8;
    for (u64 row = first; row < p.rows; row += stride * each) {
        u64 hashes[each];
WJ_UNROLL
        for (u32 k = 0; k < each; ++k) {
            const u64 at = row + k * stride;
            hashes[k] = hash_row(p.input, at < p.rows ? at : row);
        }
WJ_UNROLL
        for (u32 k = 0; k < each; ++k) {
            if (row + k * stride < p.rows) atomicAdd(&counts[partition_of(hashes[k], (u32)p.bits)], 1u);
        }
    }
    __syncthreads();
    for (u32 partition = threadIdx.x; partition < partitions; partition += blockDim.x) {
        if (counts[partition] != 0) atomicAdd(&p.counts[partition], counts[partition]);
    }
}

WJ_ENTRY(partition_scan, ScanParams, 1024) {
    u32* sums = &shared_as<u32>();
    const u64 partitions = 1ULL << (p.first_bits + p.second_bits);
    const u64 within = (1ULL << p.second_bits) - 1;
    const u32 rows = block_scan<u32>(sums, partitions, [&](u64 partition) { return p.counts[partition]; },
                                     [&](u64 partition, u32 offset) {
                                         p.offsets[partition] = offset;
                                         p.cursors[partition] = offset;
                                         if ((partition & within) != 0) return;
                                         p.first_cursors[partition >> p.second_bits] = offset;
                                         p.first_offsets[partition >> p.second_bits] = offset;
                                     });
    const u64 firsts = 1ULL << p.first_bits;
    if (threadIdx.x == 0) {
        p.offsets[partitions] = rows;
        p.first_offsets[firsts] = rows;
    }
    __syncthreads();
    const u32 tiles = block_scan<u32>(
        sums, firsts,
        [&](u64 first) {
            const u32 length = load_relaxed(&p.first_offsets[first + 1]) - load_relaxed(&p.first_offsets[first]);
            return (u32)((length + p.tile_rows - 1) / p.tile_rows);
        },
        [&](u64 first, u32 before) { p.first_tiles[first] = before; });
    if (threadIdx.x == 0) p.first_tiles[firsts] = tiles;
}

// The rows of a block's tile: in one partition of the pass before.
struct TileRange {
    u64 first;
    u32 rows;
    u32 partition;
};

template <class Pass>
WJ_DEVICE TileRange tile_range(const Pass& p) {
    const u32 tile_rows = blockDim.x * WJ_PARTITION_ITEMS;
    if (p.first_bits == 0) {
        const u64 first = (u64)blockIdx.x * tile_rows;
        const u64 left = first < p.rows ? p.rows - first : 0;
        return TileRange{first, left < tile_rows ? (u32)left : tile_rows, 0};
    }
    // The last partition whose tiles begin at or before this one.
    u32 low = 0;
    u32 high = 1u << p.first_bits;
    if (blockIdx.x >= p.first_tiles[high]) return TileRange{0, 0, 0};
#pragma unroll 1
    for (u32 step = 0; step < 32 && high - low > 1; ++step) {
        const u32 middle = (low + high) / 2;
        if (p.first_tiles[middle] <= blockIdx.x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const u32 first = p.first_offsets[low] + (blockIdx.x - p.first_tiles[low]) * tile_rows;
    const u32 left = p.first_offsets[low + 1] - first;
    return TileRange{first, left < tile_rows ? left : tile_rows, low};
}

WJ_ENTRY(partition_count_within, CountWithinParams, 1024) {
    const TileRange range = tile_range(p);
    if (range.rows == 0) return;
    u32* counts = &shared_as<u32>();
    const u32 partitions = 1u << p.bits;
    const u32 bits = (u32)(p.first_bits + p.bits);
    for (u32 partition = threadIdx.x; partition < partitions; partition += blockDim.x) counts[partition] = 0;
    __syncthreads();
    constexpr u32 each = 8;
    for (u32 first = threadIdx.x; first < range.rows; first += blockDim.x * each) {
        u64 hashes[each];
WJ_UNROLL
        for (u32 k = 0; k < each; ++k) hashes[k] = hash_row(p.input, range.first + min(first + k * blockDim.x, range.rows - 1));
WJ_UNROLL
        for (u32 k = 0; k < each; ++k) {
            const u32 digit = partition_of(hashes[k], bits) & (partitions - 1);
            if (first + k * blockDim.x < range.rows) atomicAdd(&counts[digit], 1u);
        }
    }
    __syncthreads();
    u32* const totals = p.counts + ((u64)range.partition << p.bits);
    for (u32 partition = threadIdx.x; partition < partitions; partition += blockDim.x) {
        if (counts[partition] != 0) atomicAdd(&totals[partition], counts[partition]);
    }
}

// Loads a word of each row of the thread's part of the tile. Beyond the last row it is that of the last, so that no load waits
// for a branch.
template <class T>
WJ_DEVICE void load_items(const RowWords& rows, u32 word, const TileRange& range, T (&values)[WJ_PARTITION_ITEMS]) {
    const u8* first = rows.columns[word] + range.first * sizeof(T);
    // Numbers of rows are cheap to add up again, and many to keep from column to column.
    const u32 thread = opaque(threadIdx.x);
WJ_UNROLL
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item) {
        const u32 row = min(item * blockDim.x + thread, range.rows - 1);
        // An offset of 32 bits: a tile is small.
        values[item] = *reinterpret_cast<const T*>(first + row * (u32)sizeof(T)) + (T)rows.biases[word];
    }
}

// Ranks the rows of the tile by `hash_of_item`, and gives them their places.
template <class Hash>
WJ_DEVICE void rank_tile(const PassParams& p, const PartitionTile& tile, const TileRange& range,
                         u32 (&places)[WJ_PARTITION_ITEMS], Hash hash_of_item) {
    const u32 partitions = 1u << p.bits;
    const u32 bits = (u32)(p.first_bits + p.bits);
WJ_UNROLL
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item) {
        const u32 digit = partition_of(hash_of_item(item), bits) & (partitions - 1);
        places[item] = rank_row(tile, item * blockDim.x + threadIdx.x < range.rows ? digit : partitions);
    }
    reserve_runs(tile, partitions, p.cursors + ((u64)range.partition << p.bits), PartitionBins{(u32)p.bin_rows});
    place_rows<true>(tile, places);
}

// Writes where the rows of the tile go in the output.
WJ_DEVICE void note_places(const PartitionTile& tile, const TileRange& range, const u32 (&places)[WJ_PARTITION_ITEMS],
                           u32* output) {
WJ_UNROLL
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; ++item) {
        const u32 row = item * blockDim.x + threadIdx.x;
        if (row < range.rows) store_once(&output[range.first + row], tile.targets[tile.digits[places[item]]] + places[item]);
    }
}

// Moves a column of the tile.
template <class T>
WJ_DEVICE void move_word(const PassParams& p, u32 word, const PartitionTile& tile, const TileRange& range,
                         const u32 (&places)[WJ_PARTITION_ITEMS]) {
    T values[WJ_PARTITION_ITEMS];
    load_items(p.input, word, range, values);
    move_staged<T, true>(tile, values, places, p.outputs[word]);
}

// Moves the columns of the tile from `first` on.
WJ_DEVICE void move_words(const PassParams& p, u32 first, const PartitionTile& tile, const TileRange& range,
                          const u32 (&places)[WJ_PARTITION_ITEMS]) {
#pragma unroll 1
    for (u32 word = first; word < p.input.words; ++word) {
        if (p.input.is_wide[word]) {
            move_word<u64>(p, word, tile, range, places);
        } else {
            move_word<u32>(p, word, tile, range, places);
        }
    }
}

// Moves the rows of a tile whose whole key is in word 0, of type T, which is read once.
template <class T, bool NOTES_PLACES>
WJ_DEVICE void move_tile(const PassParams& p) {
    const TileRange range = tile_range(p);
    if (range.rows == 0) return;
    const PartitionTile tile = open_tile(1u << p.bits);
    u32 places[WJ_PARTITION_ITEMS];
    T keys[WJ_PARTITION_ITEMS];
    load_items(p.input, 0, range, keys);
    rank_tile(p, tile, range, places, [&](u32 item) { return hash_key(keys[item] & p.input.key_masks[0] ^ p.input.seed); });
    if (NOTES_PLACES) note_places(tile, range, places, p.places);
    move_staged<T, true>(tile, keys, places, p.outputs[0]);
    move_words(p, 1, tile, range, places);
}

// The same for a key in several words.
WJ_DEVICE void move_tile_of_long_keys(const PassParams& p) {
    const TileRange range = tile_range(p);
    if (range.rows == 0) return;
    const PartitionTile tile = open_tile(1u << p.bits);
    u32 places[WJ_PARTITION_ITEMS];
    rank_tile(p, tile, range, places, [&](u32 item) {
        return hash_row(p.input, range.first + min(item * blockDim.x + threadIdx.x, range.rows - 1));
    });
    move_words(p, 0, tile, range, places);
}

WJ_ENTRY_RESIDENT(partition_pass_4, PassParams, WJ_PARTITION_THREADS_FEW, 2) { move_tile<u32, false>(p); }
WJ_ENTRY_RESIDENT(partition_pass_8, PassParams, WJ_PARTITION_THREADS_FEW, 2) { move_tile<u64, false>(p); }
WJ_ENTRY_RESIDENT(partition_pass_multiple, PassParams, WJ_PARTITION_THREADS_FEW, 2) { move_tile_of_long_keys(p); }
WJ_ENTRY_RESIDENT(partition_pass_noted_4, PassParams, WJ_PARTITION_THREADS_FEW, 2) { move_tile<u32, true>(p); }
WJ_ENTRY_RESIDENT(partition_pass_noted_8, PassParams, WJ_PARTITION_THREADS_FEW, 2) { move_tile<u64, true>(p); }

// Rows of a thread whose reads are under way together; a thread has WJ_PARTITION_ITEMS of the tile.
constexpr u32 RESTORED_ROWS = 8;

// Brings back what was found for rows `offset`, `offset` + blockDim.x, ... of the tile from `first` on. IS_WHOLE: all of these
// exist, else those below `rows`. `is_lost`: a bin was full, and nothing was put out for its rows.
template <class T, bool HAS_VALUES, bool IS_WHOLE>
WJ_DEVICE void restore_round(const RestoreParams& p, u64 first, u32 offset, u32 rows, bool is_lost) {
    const u32* from = p.places + first;
    const T* values_from = reinterpret_cast<const T*>(p.values);
    T* restored = reinterpret_cast<T*>(p.restored) + first;
    u32 places[RESTORED_ROWS];
    T values[RESTORED_ROWS];
WJ_UNROLL
    for (u32 k = 0; k < RESTORED_ROWS; ++k) {
        const u32 mine = offset + k * blockDim.x;
        places[k] = IS_WHOLE || mine < rows ? load_once(&from[mine]) : 0;
    }
WJ_UNROLL
    for (u32 k = 0; k < RESTORED_ROWS; ++k) {
        const bool exists = IS_WHOLE || offset + k * blockDim.x < rows;
        values[k] = HAS_VALUES && exists && !is_lost ? values_from[places[k]] : T(0);
    }
    if (HAS_VALUES) {
WJ_UNROLL
        for (u32 k = 0; k < RESTORED_ROWS; ++k) {
            const u32 mine = offset + k * blockDim.x;
            if (IS_WHOLE || mine < rows) store_once(&restored[mine], values[k]);
        }
    }
    if (p.found == nullptr) return;
WJ_UNROLL
    for (u32 k = 0; k < RESTORED_ROWS; ++k) {
        const u32 mine = offset + k * blockDim.x;
        const bool exists = IS_WHOLE || mine < rows;
        // A value that is not 0 was found.
        bool found = HAS_VALUES && values[k] != 0;
        if (!found && exists && !is_lost) found = (p.found[places[k] / 32] >> (places[k] & 31) & 1) != 0;
        const u32 bits = __ballot_sync(0xffffffffu, found && exists);
        if (p.found_bits != nullptr && (threadIdx.x & 31) == 0 && exists) p.found_bits[(first + mine) / 32] = bits;
        if (p.found_bytes != nullptr && exists) p.found_bytes[first + mine] = found;
    }
}

// The rows of a tile, whose values are of type T. The cache holds what a tile reads: runs that were written side by side.
template <class T, bool HAS_VALUES>
WJ_DEVICE void restore_tile(const RestoreParams& p) {
    const u32 tile_rows = blockDim.x * WJ_PARTITION_ITEMS;
    const u64 first = (u64)blockIdx.x * tile_rows;
    const u32 rows = rows_of_tile(p.rows - first);
    const bool is_lost = (p.control[WJ_CONTROL_STATUS] & WJ_STATUS_FULL) != 0;
#pragma unroll 1
    for (u32 item = 0; item < WJ_PARTITION_ITEMS; item += RESTORED_ROWS) {
        const u32 offset = item * blockDim.x + threadIdx.x;
        if (rows == tile_rows) {
            restore_round<T, HAS_VALUES, true>(p, first, offset, rows, is_lost);
        } else {
            restore_round<T, HAS_VALUES, false>(p, first, offset, rows, is_lost);
        }
    }
}

WJ_ENTRY_RESIDENT(restore_rows, RestoreParams, WJ_PARTITION_THREADS_FEW, 3) {
    if (p.restored == nullptr) {
        restore_tile<u32, false>(p);
    } else if (p.is_wide) {
        restore_tile<u64, true>(p);
    } else {
        restore_tile<u32, true>(p);
    }
}

// match_items: the work items of a join before each partition (see join/matches.cuh). One block; shared: 66 words.
WJ_ENTRY(match_items, ItemsParams, 1024) {
    const u64 items = block_scan<u64>(
        &shared_as<u64>(), p.partitions,
        [&](u64 partition) {
            const u64 build_rows = p.build_offsets[partition + 1] - p.build_offsets[partition];
            const u64 probe_rows = p.probe_offsets[partition + 1] - p.probe_offsets[partition];
            if (build_rows > p.capacity) atomicExch(p.oversize, 1ULL);
            const u64 chunk_rows =
                chunk_rows_of((u32)build_rows, (u32)probe_rows, (u32)p.capacity, (u32)p.chunk_rows);
            return (build_rows + p.capacity - 1) / p.capacity * ((probe_rows + chunk_rows - 1) / chunk_rows);
        },
        [&](u64 partition, u64 before) { p.items[partition] = before; });
    if (threadIdx.x == 0) p.items[p.partitions] = items;
}

// match_sample: how many build rows of some partitions, one a block, repeat a key. Shared: WJ_SAMPLE_SLOTS words.
WJ_ENTRY(match_sample, SampleParams, 1024) {
    u32* slots = &shared_as<u32>();
    for (u32 slot = threadIdx.x; slot < WJ_SAMPLE_SLOTS; slot += blockDim.x) slots[slot] = 0;
    __syncthreads();
    const u64 partition = p.partitions * blockIdx.x / gridDim.x;
    const u32 first = p.offsets[partition];
    const u32 left = p.offsets[partition + 1] - first;
    const u32 rows = left < WJ_SAMPLE_SLOTS / 4 * 3 ? left : WJ_SAMPLE_SLOTS / 4 * 3;
    u32 repeated = 0;
    for (u32 row = threadIdx.x; row < rows; row += blockDim.x) {
        const u64 hash = hash_row(p.rows, first + row);
        // The top bits are those of the partition.
        const u32 print = (u32)hash | 1;
        u32 slot = (u32)(hash >> 24) % WJ_SAMPLE_SLOTS;
        for (u32 step = 0; step < WJ_SAMPLE_SLOTS; ++step) {
            const u32 seen = atomicCAS(&slots[slot], 0u, print);
            repeated += seen == print;
            if (seen == 0 || seen == print) break;
            slot = (slot + 1) % WJ_SAMPLE_SLOTS;
        }
    }
WJ_UNROLL
    for (u32 distance = 16; distance > 0; distance /= 2) repeated += __shfl_xor_sync(0xffffffffu, repeated, distance);
    if ((threadIdx.x & 31) == 0 && repeated != 0) atomicAdd(&p.counters[1], (u64)repeated);
    if (threadIdx.x == 0) atomicAdd(&p.counters[0], (u64)rows);
}
