// Hash tables of the Arrow-native API: see wj/buckets.cuh for what they are made of.
//
// build_segments: builds a segment a block in shared memory, from rows partitioned by it. Shared: the
//   segment's slots and passed bytes, 16 bytes more.
// insert_rows: inserts rows one by one; erase_rows: frees the slots of keys.
// find_rows: finds keys in row order, by probe groups. probe_rows: the same, putting out what is found in any order.
// export_slots: the keys and values of a table, in any order.
// Grids: insert, erase and export one row (or slot) a thread, find and probe WJ_LANE_KEYS, in a grid stride.
// Shared: none but for build_segments, and a BlockReservation for probe_rows and export_slots.
// Control: status FULL where a key found no slot; rows: how many keys were new, erased, found or put out.
#include "wj/buckets.cuh"
#include "wj/control.cuh"

// Key 0 has its place beside the table; slots with row numbers have none.
WJ_DEVICE bool is_beside(KeyWord key) { return WJ_KEY_BYTES != 0 && key == 0; }

// Adds up what the threads of a block count. All threads call it.
WJ_DEVICE void add_rows(u64* control, bool counted) {
    const u32 count = __syncthreads_count(counted);
    if (threadIdx.x == 0 && count != 0) atomicAdd(&control[WJ_CONTROL_ROWS], (u64)count);
}

// ---------------------------------------------------------------- build

struct BuildParams {
    Buckets table;
    RowWords rows;        // partitioned: key, then value
    const u32* offsets;   // segments + 1
    u64* control;
};

WJ_DEVICE bool insert_beside(const Buckets& table, u64 value) {
    const bool is_new = atomicCAS(&table.side[0], 0ULL, 1ULL) == 0;
    if (is_new) table.side[1] = value;
    return is_new;
}

// Stores the value of a slot whose word does not hold it.
WJ_DEVICE void store_value(u8* slots, u64 place, u64 value) {
    if (WJ_KEY_BYTES != 0 && WJ_VALUE_BYTES == 8) reinterpret_cast<u64*>(slots + place * SLOT_BYTES)[SLOT_BYTES / 8 - 1] = value;
}

#if WJ_KEY_BYTES != 0
WJ_ENTRY(build_segments, BuildParams, 1024) {
    ulonglong2* shared = &shared_as<ulonglong2>();
    u8* slots = reinterpret_cast<u8*>(shared);
    const u32 buckets = (u32)p.table.segment_buckets;
    const u32 slot_vectors = buckets * (WJ_BUCKET_BYTES / 16);
    const u32 passed_words = (buckets + 3) / 4;
    u32* passed = reinterpret_cast<u32*>(shared + slot_vectors);
    u32* added = passed + passed_words;
    const ulonglong2 empty = {0, 0};
    for (u32 index = threadIdx.x; index < slot_vectors; index += blockDim.x) shared[index] = empty;
    for (u32 index = threadIdx.x; index <= passed_words; index += blockDim.x) passed[index] = 0;
    __syncthreads();
    const u64 first_bucket = (u64)blockIdx.x * buckets;
    const u32 end = p.offsets[blockIdx.x + 1];
    u32 count = 0;
    constexpr u32 each = 4;
    for (u32 first = p.offsets[blockIdx.x] + threadIdx.x; first < end; first += blockDim.x * each) {
        u64 keys[each];
        u64 values[each];
#pragma unroll
        for (u32 k = 0; k < each; ++k) {
            const u32 row = first + k * blockDim.x < end ? first + k * blockDim.x : first;
            keys[k] = load_word(p.rows, 0, row);
            values[k] = WJ_VALUE_BYTES == 0 ? 0 : load_word(p.rows, 1, row);
        }
#pragma unroll
        for (u32 k = 0; k < each; ++k) {
            if (first + k * blockDim.x >= end) break;
            const KeyWord key = (KeyWord)keys[k];
            if (is_beside(key)) {
                count += insert_beside(p.table, values[k]);
                continue;
            }
            u64 place = 0;
            const InsertOutcome outcome = insert_key<true>(p.table, slots, passed, key, hash_of(p.table, key),
                                                           slot_word(key, values[k]), p.rows, 0, first_bucket, place);
            if (outcome == INSERT_FULL) raise_status(p.control, WJ_STATUS_FULL);
            if (outcome == INSERT_NEW) {
                store_value(slots, place - first_bucket * BUCKET_SLOTS, values[k]);
                ++count;
            }
        }
    }
    if (count != 0) atomicAdd(added, count);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)*added);
    ulonglong2* target = reinterpret_cast<ulonglong2*>(p.table.slots + first_bucket * WJ_BUCKET_BYTES);
    for (u32 index = threadIdx.x; index < slot_vectors; index += blockDim.x) target[index] = shared[index];
    u8* passed_target = reinterpret_cast<u8*>(p.table.passed) + first_bucket;
    const u8* passed_bytes = reinterpret_cast<const u8*>(passed);
    for (u32 index = threadIdx.x; index < buckets; index += blockDim.x) passed_target[index] = passed_bytes[index];
}
#endif

// ---------------------------------------------------------------- insert and erase

struct InsertParams {
    Buckets table;
    RowWords rows;       // key, then value
    u64 first_row;       // of stored rows that are looked at; their number is that of the row
    u64 count;
    u64 assigns;         // keys that are there get the value
    u64* control;
    u64* places;         // a row, or null: slot of its key, WJ_NO_PLACE without one
};

#define WJ_NO_PLACE 0xffffffffffffffffULL

// The key of a row: its word, or for row numbers its hash.
WJ_DEVICE KeyWord key_of_row(const Buckets& table, const RowWords& rows, u64 row, u64& hash) {
#if WJ_KEY_BYTES == 0
    hash = hash_row(rows, row);
    return hash;
#else
    const KeyWord key = (KeyWord)load_word(rows, 0, row);
    hash = hash_of(table, key);
    return key;
#endif
}

// The slot after the last, for the key beside the table.
WJ_DEVICE u64 place_beside(const Buckets& table) {
    return (table.segment_buckets << table.segment_bits) * BUCKET_SLOTS;
}

template <bool IS_DENSE>
WJ_DEVICE bool insert_row(const InsertParams& p, u64 row) {
    u64 hash;
    const KeyWord key = key_of_row(p.table, p.rows, row, hash);
    const u64 value = WJ_KEY_BYTES == 0 ? row : WJ_VALUE_BYTES == 0 ? 0 : load_word(p.rows, 1, row);
    u64 place = place_beside(p.table);
    InsertOutcome outcome;
    if (is_beside(key)) {
        outcome = insert_beside(p.table, value) ? INSERT_NEW : INSERT_FOUND;
        if (outcome == INSERT_FOUND && p.assigns) p.table.side[1] = value;
    } else {
        outcome = insert_key<IS_DENSE>(p.table, p.table.slots, p.table.passed, key, hash, slot_word(key, value), p.rows,
                                       row, 0, place);
        if (outcome == INSERT_FULL) {
            raise_status(p.control, WJ_STATUS_FULL);
            return false;
        }
        const bool stores = outcome == INSERT_NEW || p.assigns;
        if (stores) store_value(p.table.slots, place, value);
        if (outcome == INSERT_FOUND && p.assigns && (WJ_KEY_BYTES == 0 || WJ_VALUE_BYTES == 4)) {
            // The same key in the same slot, with another value or row.
            atomicExch(reinterpret_cast<SlotWord*>(p.table.slots + place * SLOT_BYTES), slot_word(key, value));
        }
    }
    if (p.places != nullptr) p.places[row - p.first_row] = place;
    return outcome == INSERT_NEW;
}

WJ_ENTRY(insert_rows, InsertParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.count + stride - 1) / stride;
    u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 count = 0;
    for (u64 round = 0; round < rounds; ++round, index += stride) {
        if (index >= p.count) break;
        const u64 row = p.first_row + index;
        if (!is_valid_row(p.rows, row)) {
            if (p.places != nullptr) p.places[index] = WJ_NO_PLACE;
            continue;
        }
        count += p.table.has_gaps ? insert_row<false>(p, row) : insert_row<true>(p, row);
    }
    // One atomic a warp.
    for (u32 distance = 16; distance > 0; distance /= 2) count += __shfl_xor_sync(WJ_ALL_LANES, count, distance);
    if ((threadIdx.x & 31) == 0 && count != 0) atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)count);
}

struct FindParams {
    Buckets table;
    RowWords wanted;
    u64 count;
    u8* values;      // rows x WJ_VALUE_BYTES (row numbers: 8 bytes; places: 8 bytes), or null; 0 where not found
    u32* found;      // a bit a row, or null
    u8* found_bytes; // a byte a row, or null
    u64 wants_places;
    u64* control;
};

// Loads the keys of the warp whose first row is `row`, lanes side by side.
WJ_DEVICE void load_probes(const Buckets& table, const RowWords& wanted, u64 row, u64 count, Probes& probes) {
#pragma unroll
    for (u32 k = 0; k < LANE_KEYS; ++k) {
        const u64 mine = row + k * 32;
        probes.row[k] = mine;
        probes.active[k] = mine < count && is_valid_row(wanted, mine);
        probes.hash[k] = 0;
        probes.key[k] = probes.active[k] ? key_of_row(table, wanted, mine, probes.hash[k]) : 0;
    }
}

// Finds the keys, that beside the table too.
WJ_DEVICE void find_probes(const Buckets& table, const RowWords& wanted, Probes& probes) {
    bool beside[LANE_KEYS];
#pragma unroll
    for (u32 k = 0; k < LANE_KEYS; ++k) {
        beside[k] = probes.active[k] && is_beside(probes.key[k]);
        probes.active[k] = probes.active[k] && !beside[k];
        probes.value[k] = 0;
    }
    find_keys(table, wanted, probes);
#pragma unroll
    for (u32 k = 0; k < LANE_KEYS; ++k) {
        if (!beside[k]) continue;
        probes.found[k] = table.side[0] != 0;
        probes.value[k] = probes.found[k] ? table.side[1] : 0;
        probes.place[k] = place_beside(table);
    }
}

WJ_ENTRY(find_rows, FindParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x * LANE_KEYS;
    const u64 rounds = (p.count + stride - 1) / stride;
    const u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u64 row = warp * 32 * LANE_KEYS + (threadIdx.x & 31);
    u32 hits = 0;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        Probes probes;
        load_probes(p.table, p.wanted, row, p.count, probes);
        find_probes(p.table, p.wanted, probes);
#pragma unroll
        for (u32 k = 0; k < LANE_KEYS; ++k) {
            const u64 mine = row + k * 32;
            const bool found = probes.found[k];
            const u32 bits = __ballot_sync(WJ_ALL_LANES, found);
            hits += found;
            if (mine >= p.count) continue;
            if (p.values != nullptr) {
                if (p.wants_places) {
                    reinterpret_cast<u64*>(p.values)[mine] = found ? probes.place[k] : WJ_NO_PLACE;
                } else if (WJ_KEY_BYTES == 0 || WJ_VALUE_BYTES == 8) {
                    reinterpret_cast<u64*>(p.values)[mine] = probes.value[k];
                } else if (WJ_VALUE_BYTES == 4) {
                    reinterpret_cast<u32*>(p.values)[mine] = (u32)probes.value[k];
                }
            }
            if (p.found != nullptr && (threadIdx.x & 31) == 0) p.found[mine / 32] = bits;
            if (p.found_bytes != nullptr) p.found_bytes[mine] = found;
        }
    }
    for (u32 distance = 16; distance > 0; distance /= 2) hits += __shfl_xor_sync(WJ_ALL_LANES, hits, distance);
    if ((threadIdx.x & 31) == 0 && hits != 0) atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)hits);
}

struct EraseParams {
    Buckets table;
    RowWords wanted;
    u64 count;
    u64* control;
};

WJ_ENTRY(erase_rows, EraseParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x * LANE_KEYS;
    const u64 rounds = (p.count + stride - 1) / stride;
    const u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u64 row = warp * 32 * LANE_KEYS + (threadIdx.x & 31);
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        Probes probes;
        load_probes(p.table, p.wanted, row, p.count, probes);
        find_probes(p.table, p.wanted, probes);
#pragma unroll
        for (u32 k = 0; k < LANE_KEYS; ++k) {
            bool erased = false;
            if (probes.found[k]) {
                if (probes.place[k] == place_beside(p.table)) {
                    erased = atomicExch(&p.table.side[0], 0ULL) != 0;
                } else {
                    // Whoever takes the word has erased the key; rows may ask for it several times.
                    SlotWord* slot = reinterpret_cast<SlotWord*>(p.table.slots + probes.place[k] * SLOT_BYTES);
                    erased = atomicExch(slot, (SlotWord)0) != 0;
                }
            }
            add_rows(p.control, erased);
        }
    }
}

// ---------------------------------------------------------------- put out

struct ProbeParams {
    Buckets table;
    RowWords wanted;
    u64 count;
    u8* keys;      // count x the key's bytes
    u8* values;    // count x WJ_VALUE_BYTES
    u64* control;
};

template <u32 BYTES>
WJ_DEVICE void store_word(u8* column, u64 row, u64 word) {
    if (BYTES == 8) reinterpret_cast<u64*>(column)[row] = word;
    if (BYTES == 4) reinterpret_cast<u32*>(column)[row] = (u32)word;
}

#if WJ_KEY_BYTES != 0
WJ_ENTRY(probe_rows, ProbeParams, WJ_BLOCK_THREADS) {
    BlockReservation& reservation = shared_as<BlockReservation>();
    const u64 stride = (u64)gridDim.x * blockDim.x * LANE_KEYS;
    const u64 rounds = (p.count + stride - 1) / stride;
    const u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u64 row = warp * 32 * LANE_KEYS + (threadIdx.x & 31);
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        Probes probes;
        load_probes(p.table, p.wanted, row, p.count, probes);
        find_probes(p.table, p.wanted, probes);
#pragma unroll
        for (u32 k = 0; k < LANE_KEYS; ++k) {
            const u64 at = reserve_rows_of_block(reservation, &p.control[WJ_CONTROL_ROWS], probes.found[k]);
            if (probes.found[k]) {
                store_word<WJ_KEY_BYTES>(p.keys, at, probes.key[k]);
                store_word<WJ_VALUE_BYTES>(p.values, at, probes.value[k]);
            }
            __syncthreads();
        }
    }
}
#endif

struct ExportParams {
    Buckets table;
    u64 places;    // slots, and the one beside
    u8* keys;      // for row numbers: null
    u8* values;    // for row numbers: the row, 8 bytes
    u64* control;
};

WJ_ENTRY(export_slots, ExportParams, WJ_BLOCK_THREADS) {
    BlockReservation& reservation = shared_as<BlockReservation>();
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.places + stride - 1) / stride;
    u64 place = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, place += stride) {
        bool occupied = false;
        KeyWord key = 0;
        u64 value = 0;
        if (place < p.places - 1) {
            const SlotWord word = *reinterpret_cast<const SlotWord*>(p.table.slots + place * SLOT_BYTES);
            occupied = word != 0;
            key = key_of(word);
            if (WJ_KEY_BYTES == 0) {
                value = (u32)word - 1;
            } else if (WJ_VALUE_BYTES == 4) {
                value = (u64)word >> 32;
            } else if (WJ_VALUE_BYTES == 8) {
                value = reinterpret_cast<const u64*>(p.table.slots + place * SLOT_BYTES)[SLOT_BYTES / 8 - 1];
            }
        } else if (place == p.places - 1 && WJ_KEY_BYTES != 0) {
            occupied = p.table.side[0] != 0;
            value = p.table.side[1];
        }
        const u64 at = reserve_rows_of_block(reservation, &p.control[WJ_CONTROL_ROWS], occupied);
        if (occupied) {
            if (WJ_KEY_BYTES != 0) store_word<WJ_KEY_BYTES>(p.keys, at, key);
            store_word<WJ_KEY_BYTES == 0 ? 8 : WJ_VALUE_BYTES>(p.values, at, value);
        }
        __syncthreads();
    }
}
