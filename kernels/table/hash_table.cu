// Hash tables of the Arrow-native API: see table/buckets.cuh for what they are made of.
//
// build_segments: builds a segment a block in shared memory, from rows partitioned by it: every row into its home
//   bucket, then those that found it full on their ways. Shared: the segment's slots, 5 bytes a bucket, late_max
//   times 8, 16 bytes more.
// insert_rows: inserts rows one by one; claim_rows: the same where no key is there yet, and nobody asks where rows
//   went; erase_rows: frees the slots of keys.
// find_rows: finds keys in row order, by probe groups. find_bins: the same for keys in bins, so that a part of the table
//   is in the cache meanwhile. probe_rows: puts out what is found in any order.
// export_slots: the keys and values of a table, in any order.
// Grids: insert, erase and export one row (or slot) a thread, find, erase and probe LANE_KEYS, in a grid stride.
// Shared besides: QUEUE_KEYS QueuedKey a warp for find, erase and probe; FoundRows a warp before them for probe,
// a BlockReservation for export.
// Control: status FULL where a key found no slot; rows: how many keys were new, erased, found or put out.
#include "table/segment_build.cuh"

// Turns that take all keys of a warp's queue through all buckets.
WJ_DEVICE u64 queue_turns_max(const Buckets& table) { return (u64)QUEUE_KEYS * (table.segment_buckets + 2); }

// Adds up over the warp, and adds that with one atomic.
WJ_DEVICE void add_counted(u64* control, u32 counted) {
    for (u32 distance = 16; distance > 0; distance /= 2) counted += __shfl_xor_sync(WJ_ALL_LANES, counted, distance);
    if ((threadIdx.x & 31) == 0 && counted != 0) atomicAdd(&control[WJ_CONTROL_ROWS], (u64)counted);
}

// ---------------------------------------------------------------- build

#if WJ_KEY_BYTES != 0
WJ_ENTRY_RESIDENT(build_segments, BuildParams, WJ_BUILD_THREADS_MAX, 2) {
    const u32 buckets = (u32)p.table.segment_buckets;
    const SegmentBuild build = open_segment(buckets, (u32)p.late_max);
    const u64 first_bucket = (u64)blockIdx.x * buckets;
    const u32 begin = p.bin_rows != 0 ? blockIdx.x * (u32)p.bin_rows : p.offsets[blockIdx.x];
    const u32 end = p.bin_rows != 0 ? begin + p.offsets[blockIdx.x] : p.offsets[blockIdx.x + 1];
    if (p.bin_rows != 0 && end - begin > p.bin_rows) {
        // Rows are lost: the host goes another way.
        if (threadIdx.x == 0) raise_status(p.control, WJ_STATUS_FULL);
        return;
    }
    u32 keys = 0;
    constexpr u32 each = 4;
    for (u32 first = begin + threadIdx.x; first < end; first += blockDim.x * each) {
        u64 row_keys[each];
        u64 values[each];
WJ_UNROLL
        for (u32 k = 0; k < each; ++k) {
            const u32 row = first + k * blockDim.x < end ? first + k * blockDim.x : first;
            row_keys[k] = load_key(p.rows, row);
            values[k] = WJ_VALUE_BYTES == 0 ? 0 : load_word(p.rows, 1, row);
        }
WJ_UNROLL
        for (u32 k = 0; k < each; ++k) {
            const u32 row = first + k * blockDim.x;
            if (row < end) place_at_home(p, build, row, (KeyWord)row_keys[k], values[k], keys);
        }
    }
    __syncthreads();
    drop_duplicates(build, buckets, keys);
    __syncthreads();
    const u32 late = build.counters[0];
    if (late <= build.late_max) {
        place_all_late(p, build, buckets, late, keys);
    } else {
        // A key of very many rows: those that are there are found.
        for (u32 row = begin + threadIdx.x; row < end; row += blockDim.x) place_on_way(p, build, row, keys);
    }
    // Sums of a thread may be negative.
    if (keys != 0) atomicAdd(&build.counters[1], keys);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)(i64)(i32)build.counters[1]);
    const ulonglong2* from = reinterpret_cast<const ulonglong2*>(build.slots);
    ulonglong2* target = reinterpret_cast<ulonglong2*>(p.table.slots + first_bucket * WJ_BUCKET_BYTES);
    const u32 slot_vectors = buckets * (WJ_BUCKET_BYTES / 16);
    for (u32 index = threadIdx.x; index < slot_vectors; index += blockDim.x) target[index] = from[index];
    u8* passed_target = reinterpret_cast<u8*>(p.table.passed) + first_bucket;
    const u8* passed = reinterpret_cast<const u8*>(build.passed);
    for (u32 index = threadIdx.x; index < buckets; index += blockDim.x) passed_target[index] = passed[index];
}
#endif

// ---------------------------------------------------------------- insert and erase

// The key of a row: its word, or for row numbers its hash.
WJ_DEVICE KeyWord key_of_row(const Buckets& table, const RowWords& rows, u64 row, u64& hash) {
#if WJ_KEY_BYTES == 0
    hash = hash_row(rows, row);
    return hash;
#else
    const KeyWord key = (KeyWord)load_key(rows, row);
    hash = hash_of(table, key);
    return key;
#endif
}

// The slot after the last, for the key beside the table.
WJ_DEVICE u64 place_beside(const Buckets& table) {
    return (table.segment_buckets << table.segment_bits) * BUCKET_SLOTS;
}

// What is left to do once the slot of a row's key is known; whether the key is new.
WJ_DEVICE bool finish_insert(const InsertParams& p, InsertOutcome outcome, KeyWord key, u64 value, u64 place) {
    if (outcome == INSERT_FULL) {
        raise_status(p.control, WJ_STATUS_FULL);
        return false;
    }
    if (outcome == INSERT_NEW || p.assigns) store_value(p.table.slots, place, value);
    if (outcome == INSERT_FOUND && p.assigns && (WJ_KEY_BYTES == 0 || WJ_VALUE_BYTES == 4)) {
        // The same key in the same slot, with another value or row.
        atomicExch(slot_at_place(p.table, place), slot_word(key, value));
    }
    return outcome == INSERT_NEW;
}

// The row of the one key that looks like an empty slot.
WJ_DEVICE bool insert_row_beside(const InsertParams& p, u64 value) {
    const bool is_new = insert_beside(p.table, value);
    if (!is_new && p.assigns) store_relaxed(&p.table.side[1], value);
    return is_new;
}

template <bool IS_DENSE>
WJ_DEVICE bool insert_row(const InsertParams& p, u64 row) {
    u64 hash;
    const KeyWord key = key_of_row(p.table, p.rows, row, hash);
    const u64 value = WJ_KEY_BYTES == 0 ? row : WJ_VALUE_BYTES == 0 ? 0 : load_word(p.rows, 1, row);
    u64 place = place_beside(p.table);
    bool is_new;
    if (is_beside(key)) {
        is_new = insert_row_beside(p, value);
    } else {
        const InsertOutcome outcome = insert_key<IS_DENSE>(p.table, key, hash, slot_word(key, value), p.rows, row, place);
        is_new = finish_insert(p, outcome, key, value, place);
        if (outcome == INSERT_FULL) return false;
    }
    if (p.places != nullptr) p.places[row - p.first_row] = place;
    return is_new;
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
    add_counted(p.control, count);
}

#if WJ_KEY_BYTES != 0
// Rows of a thread whose claims are under way together.
constexpr u32 CLAIM_ROWS = 4;

WJ_ENTRY_RESIDENT(claim_rows, InsertParams, WJ_BLOCK_THREADS, 5) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.count + stride * CLAIM_ROWS - 1) / (stride * CLAIM_ROWS);
    u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 count = 0;
    for (u64 round = 0; round < rounds; ++round, index += stride * CLAIM_ROWS) {
        KeyWord keys[CLAIM_ROWS];
        u64 values[CLAIM_ROWS];
        u32 buckets[CLAIM_ROWS];
        u32 ways[CLAIM_ROWS];  // bits of the hash
        u32 pending = 0;       // a bit a row without a slot yet
WJ_UNROLL
        for (u32 k = 0; k < CLAIM_ROWS; ++k) {
            const u64 mine = index + k * stride;
            const u64 row = p.first_row + (mine < p.count ? mine : 0);
            if (mine < p.count && is_valid_row(p.rows, row)) pending |= 1u << k;
            keys[k] = (KeyWord)load_key(p.rows, row);
            values[k] = WJ_VALUE_BYTES == 0 ? 0 : load_word(p.rows, 1, row);
        }
WJ_UNROLL
        for (u32 k = 0; k < CLAIM_ROWS; ++k) {
            const u64 hash = hash_of(p.table, keys[k]);
            buckets[k] = home_bucket(p.table, hash);
            ways[k] = (u32)hash;
            if (is_beside(keys[k]) && (pending >> k & 1) != 0) {
                count += insert_row_beside(p, values[k]);
                pending &= ~(1u << k);
            }
        }
        for (u32 turn = 0; turn < BUCKET_SLOTS && pending != 0; ++turn) {
            SlotWord before[CLAIM_ROWS];
WJ_UNROLL
            for (u32 k = 0; k < CLAIM_ROWS; ++k) {
                if ((pending >> k & 1) == 0) continue;
                SlotWord* at = slot_at(p.table.slots, buckets[k], slot_on_way(ways[k], turn));
                before[k] = atomicCAS(at, (SlotWord)0, slot_word(keys[k], values[k]));
            }
WJ_UNROLL
            for (u32 k = 0; k < CLAIM_ROWS; ++k) {
                if ((pending >> k & 1) == 0 || (before[k] != 0 && key_of(before[k]) != keys[k])) continue;
                pending &= ~(1u << k);
                const u64 place = (u64)buckets[k] * BUCKET_SLOTS + slot_on_way(ways[k], turn);
                count += finish_insert(p, before[k] == 0 ? INSERT_NEW : INSERT_FOUND, keys[k], values[k], place);
            }
        }
WJ_UNROLL
        for (u32 k = 0; k < CLAIM_ROWS; ++k) {
            if ((pending >> k & 1) == 0) continue;
            // The home bucket is full.
            u64 place;
            const SlotWord word = slot_word(keys[k], values[k]);
            const InsertOutcome outcome = claim_further(p.table, keys[k], hash_of(p.table, keys[k]), word, place);
            count += finish_insert(p, outcome, keys[k], values[k], place);
        }
    }
    add_counted(p.control, count);
}
#endif

// The warp's queue in the block's shared memory, after `bytes_before` bytes.
WJ_DEVICE QueuedKey* warp_queue(u32 bytes_before) {
    u8* shared = &shared_as<u8>();
    return reinterpret_cast<QueuedKey*>(shared + bytes_before) + threadIdx.x / 32 * QUEUE_KEYS;
}

// The keys of a lane in a round whose first row of the warp is `row`, and what becomes of those beside the table. IS_WHOLE:
// all of these rows exist.
template <bool IS_WHOLE, u32 KEYS>
WJ_DEVICE void start_probes(const Buckets& table, const RowWords& wanted, u64 row, u64 count, Probe (&probes)[KEYS]) {
WJ_UNROLL
    for (u32 k = 0; k < KEYS; ++k) {
        Probe& probe = probes[k];
        const u64 mine = row + k * 32;
        const bool exists = IS_WHOLE || mine < count;
        probe = Probe{};
        probe.row = exists ? (u32)mine : 0;
#if WJ_KEY_BYTES == 0
        probe.key = exists ? hash_row(wanted, probe.row) : 0;
#else
        probe.key = exists ? (KeyWord)load_key(wanted, IS_WHOLE ? mine : probe.row) : 0;
#endif
        probe.active = exists && is_valid_row(wanted, probe.row) && !is_beside(probe.key);
    }
}

// After the first step: what is known of the key beside the table.
template <bool IS_WHOLE, u32 KEYS>
WJ_DEVICE void find_beside(const Buckets& table, const RowWords& wanted, u64 row, u64 count, Probe (&probes)[KEYS]) {
WJ_UNROLL
    for (u32 k = 0; k < KEYS; ++k) {
        Probe& probe = probes[k];
        const bool exists = IS_WHOLE || row + k * 32 < count;
        if (!is_beside(probe.key) || probe.active || !exists || !is_valid_row(wanted, probe.row)) continue;
        probe.found = table.side[0] != 0;
        probe.value = table.side[1];
        probe.bucket = bucket_count(table);
        probe.slot = 0;
    }
}

// The keys that a block looks for: rows from `first` to `end`, those of `blocks` blocks of which it is the `index`th.
struct KeyRange {
    u64 first;
    u64 end;
    u64 index;
    u64 blocks;
};

// Some of all keys, or some of those of a bin; of an overfull bin none.
WJ_DEVICE KeyRange range_of_block(const KeyBins& bins, u64 count, u64* control) {
    if (bins.rows == nullptr) return KeyRange{0, count, blockIdx.x, gridDim.x};
    const u64 bin = blockIdx.x / bins.blocks;
    const u64 first = bin * bins.room;
    u64 rows = bins.rows[bin];
    if (rows > bins.room) {
        if (threadIdx.x == 0) raise_status(control, WJ_STATUS_FULL);
        rows = 0;
    }
    return KeyRange{first, first + rows, blockIdx.x - bin * bins.blocks, bins.blocks};
}

// The first step of the keys of a lane from `row` on.
template <BucketLoad LOADS, bool IS_WHOLE, u32 KEYS, class OnKey>
WJ_DEVICE void search_round(const Buckets& table, const RowWords& wanted, u64 row, u64 end, QueuedKey* queue, u32& queued,
                            OnKey on_key) {
    Probe probes[KEYS];
    start_probes<IS_WHOLE>(table, wanted, row, end, probes);
    probe_step<KEYS, true, LOADS>(table, wanted, probes);
    find_beside<IS_WHOLE>(table, wanted, row, end, probes);
WJ_UNROLL
    for (u32 k = 0; k < KEYS; ++k) {
        on_key(probes[k], row + k * 32, IS_WHOLE || row + k * 32 < end);
        push_pending(queue, queued, probes[k]);
    }
}

// Looks for the keys of a range: on_key(probe, row, whether there is such a row) after the first step, then on_queued(probe)
// for keys that had to look further. The warp calls both together.
template <BucketLoad LOADS, class OnKey, class OnQueued>
WJ_DEVICE void search_keys(const Buckets& table, const RowWords& wanted, const KeyRange& range, QueuedKey* queue,
                           OnKey on_key, OnQueued on_queued) {
    u32 queued = 0;
    const u64 stride = range.blocks * blockDim.x * LANE_KEYS;
    const u64 rounds = (range.end - range.first + stride - 1) / stride;
    const u64 warp = (range.index * blockDim.x + threadIdx.x) / 32;
    u64 row = range.first + warp * 32 * LANE_KEYS + (threadIdx.x & 31);
    const u64 lane = threadIdx.x & 31;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        // The same for all lanes of the warp.
        if (row - lane + 32 * LANE_KEYS <= range.end) {
            search_round<LOADS, true, LANE_KEYS>(table, wanted, row, range.end, queue, queued, on_key);
        } else {
            for (u32 k = 0; k < LANE_KEYS; ++k) {
                search_round<LOADS, false, 1>(table, wanted, row + k * 32, range.end, queue, queued, on_key);
            }
        }
        // Room for the next round.
        for (u64 turn = 0; turn < queue_turns_max(table) && queued >= 32; ++turn) {
            Probe next[1];
            probe_queued<LOADS>(table, wanted, queue, queued, next);
            on_queued(next[0]);
        }
    }
    for (u64 turn = 0; turn < queue_turns_max(table) && queued > 0; ++turn) {
        Probe next[1];
        probe_queued<LOADS>(table, wanted, queue, queued, next);
        on_queued(next[0]);
    }
}

WJ_DEVICE void put_value(const FindParams& p, const Probe& probe, u64 row) {
    if (p.values == nullptr) return;
    // Only tables of keys alone.
    if (WJ_VALUE_BYTES == 0 && p.wants_places) {
        store_once(reinterpret_cast<u64*>(p.values) + row, probe.found ? place_of(probe) : WJ_NO_PLACE);
    } else if (WJ_KEY_BYTES == 0 || WJ_VALUE_BYTES == 8) {
        store_once(reinterpret_cast<u64*>(p.values) + row, probe.found ? probe.value : 0ULL);
    } else if (WJ_VALUE_BYTES == 4) {
        store_once(reinterpret_cast<u32*>(p.values) + row, probe.found ? (u32)probe.value : 0u);
    }
}

// What the lane's key of the queue led to.
WJ_DEVICE u32 put_queued(const FindParams& p, const Probe& probe) {
    if (!probe.active || probe.pending) return 0;
    put_value(p, probe, probe.row);
    if (!probe.found) return 0;
    if (p.found != nullptr) atomicOr(&p.found[probe.row / 32], 1u << (probe.row & 31));
    if (p.found_bytes != nullptr) p.found_bytes[probe.row] = 1;
    return 1;
}

template <BucketLoad LOADS>
WJ_DEVICE void find_range(const FindParams& p, const KeyRange& range) {
    u32 hits = 0;
    search_keys<LOADS>(
        p.table, p.wanted, range, warp_queue(0),
        [&](const Probe& probe, u64 row, bool exists) {
            const u32 bits = __ballot_sync(WJ_ALL_LANES, probe.found);
            hits += probe.found;
            if (!exists) return;
            if (!probe.pending) put_value(p, probe, row);
            if (p.found != nullptr && (threadIdx.x & 31) == 0) p.found[row / 32] = bits;
            if (p.found_bytes != nullptr) p.found_bytes[row] = probe.found;
        },
        [&](const Probe& probe) { hits += put_queued(p, probe); });
    add_counted(p.control, hits);
}

WJ_ENTRY_RESIDENT(find_rows, FindParams, WJ_BLOCK_THREADS, 4) {
    find_range<WJ_TABLE_STREAMS ? LOADS_ONCE : LOADS_USUAL>(p, KeyRange{0, p.count, blockIdx.x, gridDim.x});
}

#if WJ_KEY_BYTES != 0
WJ_ENTRY_RESIDENT(find_bins, FindParams, WJ_BLOCK_THREADS, 4) {
    find_range<LOADS_USUAL>(p, range_of_block(p.bins, p.count, p.control));
}
#endif

// Frees the slot of a key that was found; whether this lane did.
WJ_DEVICE bool erase_found(const Buckets& table, const Probe& probe) {
    if (!probe.found) return false;
    if (place_of(probe) == place_beside(table)) return atomicExch(&table.side[0], 0ULL) != 0;
    // Whoever takes the word has erased the key; rows may ask for it several times.
    return atomicExch(slot_at_place(table, place_of(probe)), (SlotWord)0) != 0;
}

WJ_ENTRY(erase_rows, EraseParams, WJ_BLOCK_THREADS) {
    u32 erased = 0;
    search_keys<LOADS_UNORDERED>(
        p.table, p.wanted, KeyRange{0, p.count, blockIdx.x, gridDim.x}, warp_queue(0),
        [&](const Probe& probe, u64, bool) { erased += erase_found(p.table, probe); },
        [&](const Probe& probe) { erased += erase_found(p.table, probe); });
    add_counted(p.control, erased);
}

// ---------------------------------------------------------------- put out

template <u32 BYTES>
WJ_DEVICE void store_word(u8* column, u64 row, u64 word) {
    if (BYTES == 8) reinterpret_cast<u64*>(column)[row] = word;
    if (BYTES == 4) reinterpret_cast<u32*>(column)[row] = (u32)word;
}

#if WJ_KEY_BYTES != 0
// Found keys and values of a warp on their way out: so many at once that reserving a place for them costs little.
struct FoundRows {
    KeyWord keys[WJ_FOUND_ROWS];
    ValueWord values[WJ_FOUND_ROWS];
};

// Writes the first WJ_FOUND_BATCH staged rows, or with `all` all of them. All lanes call it.
WJ_DEVICE void flush_found(const ProbeParams& p, FoundRows& staged, u32& count, bool all) {
    const u32 lane = threadIdx.x & 31;
    if (!all && count < WJ_FOUND_BATCH) return;
    const u32 rows = all ? count : WJ_FOUND_BATCH;
    if (rows == 0) return;
    u64 first = 0;
    if (lane == 0) first = atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)rows);
    first = __shfl_sync(WJ_ALL_LANES, first, 0);
    // The last ones, so that what stays is in front.
    count -= rows;
    for (u32 index = lane; index < rows; index += 32) {
        store_word<WJ_KEY_BYTES>(p.keys, first + index, staged.keys[count + index]);
        store_word<WJ_VALUE_BYTES>(p.values, first + index, staged.values[count + index]);
    }
    __syncwarp();
}

// Stages the key if it was found. All lanes call it.
WJ_DEVICE void put_found(const ProbeParams& p, FoundRows& staged, u32& count, const Probe& probe) {
    const u32 lanes = __ballot_sync(WJ_ALL_LANES, probe.found);
    if (probe.found) {
        const u32 at = count + __popc(lanes & ((1u << (threadIdx.x & 31)) - 1));
        staged.keys[at] = probe.key;
        staged.values[at] = (ValueWord)probe.value;
    }
    count += __popc(lanes);
    __syncwarp();
    flush_found(p, staged, count, false);
}

WJ_ENTRY(probe_rows, ProbeParams, WJ_BLOCK_THREADS) {
    FoundRows& staged = reinterpret_cast<FoundRows*>(&shared_as<u64>())[threadIdx.x / 32];
    QueuedKey* queue = warp_queue(blockDim.x / 32 * sizeof(FoundRows));
    u32 count = 0;
    search_keys<LOADS_USUAL>(
        p.table, p.wanted, range_of_block(p.bins, p.count, p.control), queue,
        [&](const Probe& probe, u64, bool) { put_found(p, staged, count, probe); },
        [&](const Probe& probe) { put_found(p, staged, count, probe); });
    flush_found(p, staged, count, true);
}
#endif

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
            const SlotWord word = *slot_at_place(p.table, place);
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
        if (occupied && at < p.rows_max) {
            if (WJ_KEY_BYTES != 0) store_word<WJ_KEY_BYTES>(p.keys, at, key);
            store_word<WJ_KEY_BYTES == 0 ? 8 : WJ_VALUE_BYTES>(p.values, at, value);
        }
        __syncthreads();
    }
}
