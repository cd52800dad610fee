// Hash tables of buckets: open addressing in which a bucket is what one access reads.
//
// A slot holds a key and its value, or the number of a row that does (see WJ_KEY_BYTES). Buckets are
// WJ_BUCKET_BYTES of slots side by side, and lie in segments of equal size, so that a block can build a
// segment in shared memory. A key looks at its home bucket first, then at the buckets from another place of
// its segment on. It goes into a free slot of the first bucket on that way that has one, so nothing has to be moved; each
// bucket that it passes gets one of eight `passed` bits, chosen by the key. A search goes on only where its bit is set,
// so a full bucket seldom costs a miss a second read, and a freed slot needs no tombstone.
//
// Definitions: WJ_KEY_BYTES 4 or 8, or 0: slots hold 32 bits of the hash and the number of a row;
// WJ_VALUE_BYTES 0, 4 (with 4-byte keys) or 8; WJ_BUCKET_BYTES 16 to 1024; WJ_LANES that look at a bucket
// together, 8 bytes of it each at least; WJ_TABLE_STREAMS 1 for a table that the cache does not hold.
//
// Slot word 0 is an empty slot. The one key that looks so lies beside the table.
#pragma once
#include "partition/words.cuh"
#include "table/constants.cuh"
#include "table/params.cuh"  // src/table.rs

#define WJ_ALL_LANES 0xffffffffu

#if WJ_KEY_BYTES == 4
typedef u32 KeyWord;
#else
typedef u64 KeyWord;
#endif

#if WJ_VALUE_BYTES == 4
typedef u32 ValueWord;
#else
typedef u64 ValueWord;
#endif

// What a claim compares and swaps: a key, with its value where both fit 8 bytes.
#if WJ_KEY_BYTES == 4 && WJ_VALUE_BYTES == 0
typedef u32 SlotWord;
#else
typedef u64 SlotWord;
#endif

constexpr u32 SLOT_BYTES = WJ_KEY_BYTES == 0 ? 8 : WJ_KEY_BYTES + WJ_VALUE_BYTES;
constexpr u32 BUCKET_SLOTS = WJ_BUCKET_BYTES / SLOT_BYTES;
// 8-byte words of a bucket that one lane reads, and slots in them.
constexpr u32 LANE_WORDS = WJ_BUCKET_BYTES / WJ_LANES / 8;
constexpr u32 LANE_SLOTS = BUCKET_SLOTS / WJ_LANES;
// Keys that a lane brings at once: so many that several reads are under way.
constexpr u32 LANE_KEYS = WJ_LANES >= 4 ? 1 : 4 / WJ_LANES;

WJ_DEVICE KeyWord key_of(SlotWord word) { return (KeyWord)word; }

// The hash of a key in one word.
WJ_DEVICE u64 hash_of(const Buckets& table, KeyWord key) { return hash_key(key ^ table.seed); }

WJ_DEVICE u32 segment_of(const Buckets& table, u64 hash) { return partition_of(hash, (u32)table.segment_bits); }

// Of all segments.
WJ_DEVICE u32 bucket_count(const Buckets& table) { return (u32)(table.segment_buckets << table.segment_bits); }

// Bucket within its segment that a key looks at in step `step`.
WJ_DEVICE u32 bucket_in_segment(const Buckets& table, u64 hash, u32 step) {
    const u32 buckets = (u32)table.segment_buckets;
    const u32 home = (u32)__umul64hi(hash << table.segment_bits, buckets);
    if (step == 0) return home;
    const u32 distance = 1 + (u32)((u64)(u32)hash * (buckets - 1) >> 32);
    // Both are below `buckets`, and steps at most that.
    u32 bucket = home + distance;
    if (bucket >= buckets) bucket -= buckets;
    bucket += step - 1;
    return bucket >= buckets ? bucket - buckets : bucket;
}

WJ_DEVICE u64 bucket_of(const Buckets& table, u64 hash, u32 step) {
    return (u64)segment_of(table, hash) * table.segment_buckets + bucket_in_segment(table, hash, step);
}

// The same for step 0: segments lie in the order of the hash, so one multiplication finds the bucket of them all.
WJ_DEVICE u32 home_bucket(const Buckets& table, u64 hash) {
    const u32 buckets = bucket_count(table);
    return (u32)(((hash >> 32) * buckets + ((u64)(u32)hash * buckets >> 32)) >> 32);
}

// The bit of a key among the passed bits of `bucket`, in the word that holds them.
WJ_DEVICE u32 passed_bit(u64 hash, u64 bucket) { return 1u << (((u32)bucket & 3) * 8 + ((u32)hash >> 8 & 7)); }

WJ_DEVICE bool is_passed(const u32* passed, u64 hash, u64 bucket) {
    return (load_relaxed(&passed[bucket / 4]) & passed_bit(hash, bucket)) != 0;
}

WJ_DEVICE void mark_passed(u32* passed, u64 hash, u64 bucket) {
    if (!is_passed(passed, hash, bucket)) atomicOr(&passed[bucket / 4], passed_bit(hash, bucket));
}

// Whether the key of a stored row is that of a row of `wanted`.
WJ_DEVICE bool equal_rows(const RowWords& stored, u64 stored_row, const RowWords& wanted, u64 wanted_row) {
    bool equal = true;
    for (u32 word = 0; word < stored.key_words; ++word) {
        equal = equal && load_word(stored, word, stored_row) == load_word(wanted, word, wanted_row);
    }
    return equal;
}

// Whether an occupied slot is that of the key: for row numbers, whether the rows' keys are equal.
WJ_DEVICE bool is_slot_of(const Buckets& table, SlotWord word, KeyWord key, const RowWords& wanted, u64 wanted_row) {
#if WJ_KEY_BYTES == 0
    return (u32)(word >> 32) == (u32)key && equal_rows(table.rows, (u32)word - 1, wanted, wanted_row);
#else
    return key_of(word) == key;
#endif
}

// The word that stands in a slot for a key: its value is in the upper half, or in the next word. For row
// numbers, `key` is the hash and `value` the row.
WJ_DEVICE SlotWord slot_word(KeyWord key, u64 value) {
#if WJ_KEY_BYTES == 0
    return key << 32 | (value + 1);
#elif WJ_KEY_BYTES == 4 && WJ_VALUE_BYTES == 4
    return (u64)key | value << 32;
#else
    return key;
#endif
}

// The key in the first word of a row.
WJ_DEVICE u64 load_key(const RowWords& rows, u64 row) {
    if (WJ_KEY_BYTES == 4) return load_once(reinterpret_cast<const u32*>(rows.columns[0]) + row) + (u32)rows.biases[0];
    return load_word(rows, 0, row);
}

// Key 0 has its place beside the table; slots with row numbers have none.
WJ_DEVICE bool is_beside(KeyWord key) { return WJ_KEY_BYTES != 0 && key == 0; }

// Inserts the key beside the table; whether it was not there.
WJ_DEVICE bool insert_beside(const Buckets& table, u64 value) {
    const bool is_new = atomicCAS(&table.side[0], 0ULL, 1ULL) == 0;
    if (is_new) store_relaxed(&table.side[1], value);
    return is_new;
}

// Stores the value of a slot whose word does not hold it. Rows of equal keys may do so at once: one of them wins.
WJ_DEVICE void store_value(u8* slots, u64 place, u64 value) {
    if (WJ_KEY_BYTES == 0 || WJ_VALUE_BYTES != 8) return;
    store_relaxed(&reinterpret_cast<u64*>(slots + place * SLOT_BYTES)[SLOT_BYTES / 8 - 1], value);
}

// ---------------------------------------------------------------- one lane

WJ_DEVICE SlotWord* slot_at(u8* slots, u64 bucket, u32 slot) {
    return reinterpret_cast<SlotWord*>(slots + bucket * WJ_BUCKET_BYTES + slot * SLOT_BYTES);
}

// The same by its place, counted over the table.
WJ_DEVICE SlotWord* slot_at_place(const Buckets& table, u64 place) {
    return reinterpret_cast<SlotWord*>(table.slots + place * SLOT_BYTES);
}

enum InsertOutcome { INSERT_NEW, INSERT_FOUND, INSERT_FULL };

// The slots of a bucket in the order in which a key looks for a free one: keys of a bucket begin at different slots.
WJ_DEVICE u32 slot_on_way(u64 hash, u32 turn) { return ((u32)hash + turn) % BUCKET_SLOTS; }

// What a look at all slots of a bucket shows, BUCKET_SLOTS where there is none: the slot of the key, and the first free one
// on its way.
struct BucketLook {
    u32 found;
    u32 free;
};

WJ_DEVICE BucketLook look_at_bucket(const Buckets& table, u64 bucket, KeyWord key, u64 hash, const RowWords& wanted,
                                    u64 wanted_row) {
    BucketLook look = {BUCKET_SLOTS, BUCKET_SLOTS};
    // Loads that do not wait for each other.
#pragma unroll 4
    for (u32 turn = 0; turn < BUCKET_SLOTS; ++turn) {
        const u32 slot = slot_on_way(hash, turn);
        const SlotWord seen = load_relaxed(slot_at(table.slots, bucket, slot));
        if (seen == 0) {
            if (look.free == BUCKET_SLOTS) look.free = slot;
        } else if (look.found == BUCKET_SLOTS && is_slot_of(table, seen, key, wanted, wanted_row)) {
            look.found = slot;
        }
    }
    return look;
}

// Inserts the key (for row numbers: hash bits and row + 1, from `wanted_row`) unless it is there; `place` is the slot of
// the table where the key is. IS_DENSE: no slot was ever freed, so that nothing can lie behind a bucket with a free one.
template <bool IS_DENSE>
WJ_DEVICE InsertOutcome insert_key(const Buckets& table, KeyWord key, u64 hash, SlotWord word, const RowWords& wanted,
                                   u64 wanted_row, u64& place) {
    const u64 segment_first = (u64)segment_of(table, hash) * table.segment_buckets;
    u32 step = 0;
    // Each turn ends the search, goes on by a step, or finds that somebody took a slot.
    const u64 turns_max = table.segment_buckets * (BUCKET_SLOTS + 1) + 1;
    for (u64 turn = 0; turn < turns_max && step <= table.segment_buckets; ++turn) {
        // The first free slot from here on.
        bool has_room = false;
        for (u32 ahead = step; ahead <= table.segment_buckets; ++ahead) {
            const u64 bucket = segment_first + bucket_in_segment(table, hash, ahead);
            const BucketLook look = look_at_bucket(table, bucket, key, hash, wanted, wanted_row);
            if (look.found != BUCKET_SLOTS) {
                place = bucket * BUCKET_SLOTS + look.found;
                return INSERT_FOUND;
            }
            if (!has_room && look.free != BUCKET_SLOTS) {
                has_room = true;
                step = ahead;
                place = bucket * BUCKET_SLOTS + look.free;
            }
            if (has_room && (IS_DENSE || !is_passed(table.passed, hash, bucket))) break;
            if (!has_room) mark_passed(table.passed, hash, bucket);
        }
        if (!has_room) return INSERT_FULL;
        const SlotWord before = atomicCAS(slot_at_place(table, place), (SlotWord)0, word);
        if (before == 0) return INSERT_NEW;
        if (is_slot_of(table, before, key, wanted, wanted_row)) return INSERT_FOUND;
    }
    return INSERT_FULL;
}

#if WJ_KEY_BYTES != 0
// The same in a table without keys but those that came this way: slots are claimed before anybody looks at them, here from
// the second bucket on, once the home bucket turned out full. A key claims the same slots whoever inserts it, so equal ones
// meet.
WJ_DEVICE InsertOutcome claim_further(const Buckets& table, KeyWord key, u64 hash, SlotWord word, u64& place) {
    for (u32 step = 0; step < table.segment_buckets; ++step) {
        mark_passed(table.passed, hash, bucket_of(table, hash, step));
        const u64 bucket = bucket_of(table, hash, step + 1);
        for (u32 turn = 0; turn < BUCKET_SLOTS; ++turn) {
            place = bucket * BUCKET_SLOTS + slot_on_way(hash, turn);
            const SlotWord before = atomicCAS(slot_at_place(table, place), (SlotWord)0, word);
            if (before == 0) return INSERT_NEW;
            if (key_of(before) == key) return INSERT_FOUND;
        }
    }
    return INSERT_FULL;
}
#endif

// ---------------------------------------------------------------- probe groups

// A lane's part of a bucket.
struct BucketPart {
    u64 words[LANE_WORDS];
};

// How buckets are loaded.
enum BucketLoad {
    LOADS_USUAL,
    LOADS_ONCE,     // they are not read again soon
    LOADS_UNORDERED // other threads erase keys meanwhile
};

template <BucketLoad LOADS, class T>
WJ_DEVICE T load_words(const T* from) {
    if (LOADS == LOADS_UNORDERED) return load_unordered(from);
    return LOADS == LOADS_ONCE ? load_once(from) : *from;
}

template <BucketLoad LOADS>
WJ_DEVICE BucketPart load_part(const u8* slots, u64 bucket, u32 rank) {
    BucketPart part;
    const u8* from = slots + bucket * WJ_BUCKET_BYTES + rank * LANE_WORDS * 8;
    if (LANE_WORDS == 1) {
        const u64* word = reinterpret_cast<const u64*>(from);
        part.words[0] = load_words<LOADS>(word);
    } else {
WJ_UNROLL
        for (u32 pair = 0; pair < LANE_WORDS / 2; ++pair) {
            const ulonglong2* words = reinterpret_cast<const ulonglong2*>(from) + pair;
            const ulonglong2 two = load_words<LOADS>(words);
            part.words[pair * 2] = two.x;
            part.words[pair * 2 + 1] = two.y;
        }
    }
    return part;
}

WJ_DEVICE SlotWord slot_in(const BucketPart& part, u32 slot) {
    if (SLOT_BYTES == 4) return (SlotWord)(part.words[slot / 2] >> (slot & 1) * 32);
    return (SlotWord)part.words[slot * (SLOT_BYTES / 8)];
}

WJ_DEVICE u64 value_in(const BucketPart& part, u32 slot) {
    if (WJ_KEY_BYTES == 0) return (u32)part.words[slot] - 1;
    if (WJ_VALUE_BYTES == 0) return 0;
    if (WJ_VALUE_BYTES == 4) return part.words[slot] >> 32;
    // The last word of the slot.
    return part.words[(slot + 1) * (SLOT_BYTES / 8) - 1];
}

template <class T>
WJ_DEVICE T from_lane(T value, u32 lane) {
    return WJ_LANES == 1 ? value : __shfl_sync(WJ_ALL_LANES, value, lane);
}

// Lanes of the probe group of `first` for which the predicate holds, bit 0 being `first`.
WJ_DEVICE u32 group_ballot(bool predicate, u32 first) {
    if (WJ_LANES == 1) return predicate;
    return __ballot_sync(WJ_ALL_LANES, predicate) >> first & (u32)((1ULL << WJ_LANES) - 1);
}

// A key on its way through its buckets. Lanes with nothing to look for have inactive ones.
struct Probe {
    KeyWord key;    // for row numbers the hash
    u32 row;        // of the rows that are looked for
    u32 step;
    bool active;
    bool found;
    bool pending;   // not found yet, and not known to be absent
    u64 value;      // of the slot; for row numbers the row
    u32 bucket;     // where it was found
    u32 slot;
};

// The slot where a key was found, counted over the table.
WJ_DEVICE u64 place_of(const Probe& probe) { return (u64)probe.bucket * BUCKET_SLOTS + probe.slot; }

WJ_DEVICE u64 hash_of_probe(const Buckets& table, const Probe& probe) {
    return WJ_KEY_BYTES == 0 ? (u64)probe.key : hash_of(table, probe.key);
}

// Looks at one bucket for each key of the warp, that of every lane by its probe group. All lanes call it.
// FIRST_STEP: all keys are at their home buckets.
template <u32 KEYS, bool FIRST_STEP, BucketLoad LOADS>
WJ_DEVICE void probe_step(const Buckets& table, const RowWords& wanted, Probe (&probes)[KEYS]) {
    constexpr u32 turns = WJ_LANES * KEYS;
    const u32 lane = threadIdx.x & 31;
    const u32 rank = lane % WJ_LANES;
    const u32 first = lane - rank;
    u32 buckets[KEYS];
    u32 bits[KEYS];  // of the hash, for the passed bit
WJ_UNROLL
    for (u32 k = 0; k < KEYS; ++k) {
        const u64 hash = hash_of_probe(table, probes[k]);
        buckets[k] = FIRST_STEP ? home_bucket(table, hash) : (u32)bucket_of(table, hash, probes[k].step);
        bits[k] = (u32)hash;
    }
    BucketPart parts[turns];
WJ_UNROLL
    for (u32 turn = 0; turn < turns; ++turn) {
        // Lanes without a key read some bucket: it exists, and no branch is waited for.
        parts[turn] = load_part<LOADS>(table.slots, from_lane(buckets[turn / WJ_LANES], first + turn % WJ_LANES), rank);
    }
WJ_UNROLL
    for (u32 turn = 0; turn < turns; ++turn) {
        const u32 k = turn / WJ_LANES;
        const u32 owner = first + turn % WJ_LANES;
        const KeyWord key = from_lane(probes[k].key, owner);
        const u32 row = WJ_KEY_BYTES == 0 ? from_lane(probes[k].row, owner) : 0;
        const bool active = WJ_KEY_BYTES == 0 ? from_lane((u32)probes[k].active, owner) != 0 : true;
        bool hit = false;
        bool room = false;
        u64 value = 0;
        u32 slot_hit = 0;
WJ_UNROLL
        for (u32 slot = 0; slot < LANE_SLOTS; ++slot) {
            const SlotWord word = slot_in(parts[turn], slot);
            room |= key_of(word) == 0;
            // No key that is looked for is that of an empty slot.
            const bool is_taken = WJ_KEY_BYTES != 0 || key_of(word) != 0;
            if (active && is_taken && is_slot_of(table, word, key, wanted, row)) {
                hit = true;
                value = value_in(parts[turn], slot);
                slot_hit = slot;
            }
        }
        const u32 hits = group_ballot(hit, first);
        const u32 rooms = group_ballot(room, first);
        const u32 winner = hits == 0 ? lane : first + __ffs(hits) - 1;
        u64 value_hit = 0;
        if (WJ_VALUE_BYTES == 8) value_hit = from_lane(value, winner);
        if (WJ_VALUE_BYTES == 4 || WJ_KEY_BYTES == 0) value_hit = from_lane((u32)value, winner);
        const u32 place_hit = from_lane(slot_hit, winner);
        if (turn % WJ_LANES == rank) {
            Probe& probe = probes[k];
            probe.found = probe.active && hits != 0;
            probe.value = value_hit;
            probe.bucket = buckets[k];
            probe.slot = (winner - first) * LANE_SLOTS + place_hit;
            probe.pending = probe.active && hits == 0 && (rooms == 0 || table.has_gaps);
        }
    }
WJ_UNROLL
    for (u32 k = 0; k < KEYS; ++k) {
        Probe& probe = probes[k];
        if (!probe.pending) continue;
        ++probe.step;
        probe.pending = probe.step <= table.segment_buckets && is_passed(table.passed, bits[k], buckets[k]);
    }
}

// Keys of a warp that have to look further, so that steps beyond the first are made by full warps.
struct QueuedKey {
    KeyWord key;
    u32 row;
    u32 step;
};

constexpr u32 QUEUE_KEYS = 32 * (LANE_KEYS + 1);

// All lanes call it.
WJ_DEVICE void push_pending(QueuedKey* queue, u32& queued, const Probe& probe) {
    const u32 lanes = __ballot_sync(WJ_ALL_LANES, probe.pending);
    if (lanes == 0) return;
    if (probe.pending) {
        const u32 at = queued + __popc(lanes & ((1u << (threadIdx.x & 31)) - 1));
        queue[at] = QueuedKey{probe.key, probe.row, probe.step};
    }
    queued += __popc(lanes);
    __syncwarp();
}

// Takes up to 32 keys off the queue and looks at their next buckets. All lanes call it.
template <BucketLoad LOADS>
WJ_DEVICE void probe_queued(const Buckets& table, const RowWords& wanted, QueuedKey* queue, u32& queued, Probe (&probes)[1]) {
    const u32 lane = threadIdx.x & 31;
    const u32 taken = queued < 32 ? queued : 32;
    queued -= taken;
    Probe& probe = probes[0];
    probe = Probe{};
    probe.active = lane < taken;
    if (probe.active) {
        const QueuedKey next = queue[queued + lane];
        probe.key = next.key;
        probe.row = next.row;
        probe.step = next.step;
    }
    __syncwarp();
    probe_step<1, false, LOADS>(table, wanted, probes);
    push_pending(queue, queued, probe);
}
