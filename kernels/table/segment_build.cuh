// A segment of a hash table under construction in shared memory: see table/buckets.cuh for what it must be.
//
// Every row goes into its home bucket if there is room, and duplicates are dropped. Rows that found their home bucket
// full come in then, those of a bucket by one thread: it makes another row of the bucket move on where that one has room.
#pragma once
#include "table/buckets.cuh"
#include "common/control.cuh"

#if WJ_KEY_BYTES != 0
// A segment under construction, in shared memory.
struct SegmentBuild {
    u8* slots;
    u32* filled;    // a bucket: rows that wanted to be there
    u32* passed;    // a byte a bucket
    u32* late;      // rows whose home bucket was full
    u32* next;      // a late row: 1 + the next one of the same home bucket, LAST_LATE or 0
    u32 late_max;
    u32* counters;  // late rows, keys
};

WJ_DEVICE SegmentBuild open_segment(u32 buckets, u32 late_max) {
    SegmentBuild build;
    build.slots = &shared_as<u8>();
    build.filled = reinterpret_cast<u32*>(build.slots + buckets * WJ_BUCKET_BYTES);
    build.passed = build.filled + buckets;
    build.counters = build.passed + (buckets + 3) / 4;
    build.late = build.counters + 2;
    build.next = build.late + late_max;
    build.late_max = late_max;
    u32* words = reinterpret_cast<u32*>(build.slots);
    const u32 cleared = (u32)(build.late - words);
    for (u32 index = threadIdx.x; index < cleared / 4; index += blockDim.x) {
        reinterpret_cast<uint4*>(words)[index] = make_uint4(0, 0, 0, 0);
    }
    const u32 rest = cleared / 4 * 4 + threadIdx.x;
    if (rest < cleared) words[rest] = 0;
    __syncthreads();
    return build;
}

// Puts a row into its home bucket if there is room.
WJ_DEVICE void place_at_home(const BuildParams& p, const SegmentBuild& build, u32 row, KeyWord key, u64 value, u32& keys) {
    if (is_beside(key)) {
        keys += insert_beside(p.table, value);
        return;
    }
    const u32 bucket = bucket_in_segment(p.table, hash_of(p.table, key), 0);
    const u32 slot = atomicAdd(&build.filled[bucket], 1u);
    if (slot < BUCKET_SLOTS) {
        *slot_at(build.slots, bucket, slot) = slot_word(key, value);
        store_value(build.slots, bucket * BUCKET_SLOTS + slot, value);
        ++keys;
        return;
    }
    const u32 at = atomicAdd(&build.counters[0], 1u);
    if (at < build.late_max) build.late[at] = row;
}

// Slots whose keys a thread compares in registers.
constexpr u32 COMPARED_SLOTS = BUCKET_SLOTS <= 16 ? BUCKET_SLOTS : 0;

// Whether a key occurs twice in the first `taken` slots of a bucket, behind which all are free.
WJ_DEVICE bool has_duplicate(const SegmentBuild& build, u32 bucket, u32 taken) {
    bool found = false;
    if (COMPARED_SLOTS != 0) {
        // Threads side by side begin at different slots, so that their reads are of different banks.
        const u32 turn = threadIdx.x * WJ_BUCKET_BYTES / 128;
        KeyWord keys[COMPARED_SLOTS == 0 ? 1 : COMPARED_SLOTS];
WJ_UNROLL
        for (u32 slot = 0; slot < COMPARED_SLOTS; ++slot) {
            keys[slot] = key_of(*slot_at(build.slots, bucket, (slot + turn) % BUCKET_SLOTS));
        }
WJ_UNROLL
        for (u32 slot = 1; slot < COMPARED_SLOTS; ++slot) {
            const bool is_taken = keys[slot] != 0;
WJ_UNROLL
            for (u32 other = 0; other < slot; ++other) found |= is_taken && keys[other] == keys[slot];
        }
        return found;
    }
    for (u32 slot = 1; slot < taken; ++slot) {
        const KeyWord key = key_of(*slot_at(build.slots, bucket, slot));
        for (u32 other = 0; other < slot; ++other) found |= key_of(*slot_at(build.slots, bucket, other)) == key;
    }
    return found;
}

// Leaves each key of the home buckets once, and no free slot before a taken one. All threads call it, once the rows are in.
WJ_DEVICE void drop_duplicates(const SegmentBuild& build, u32 buckets, u32& keys) {
    for (u32 bucket = threadIdx.x; bucket < buckets; bucket += blockDim.x) {
        const u32 taken = build.filled[bucket] < BUCKET_SLOTS ? build.filled[bucket] : BUCKET_SLOTS;
        if (!has_duplicate(build, bucket, taken)) continue;
        u32 kept = 0;
        for (u32 slot = 0; slot < taken; ++slot) {
            SlotWord* from = slot_at(build.slots, bucket, slot);
            const KeyWord key = key_of(*from);
            bool is_second = false;
            for (u32 other = 0; other < kept; ++other) is_second |= key_of(*slot_at(build.slots, bucket, other)) == key;
            SlotWord* to = slot_at(build.slots, bucket, is_second ? slot : kept);
            for (u32 word = 0; word < SLOT_BYTES / sizeof(SlotWord); ++word) {
                const SlotWord moved = from[word];
                from[word] = 0;
                if (!is_second) to[word] = moved;
            }
            if (is_second) --keys; else ++kept;
        }
    }
}

// What a look at all slots of a bucket shows: loads that do not wait for each other.
struct BucketScan {
    bool found;   // the key
    u32 free;     // the first free slot, BUCKET_SLOTS: none
};

WJ_DEVICE BucketScan scan_bucket(const SegmentBuild& build, u32 bucket, KeyWord key) {
    BucketScan scan = {false, BUCKET_SLOTS};
#pragma unroll 8
    for (u32 slot = 0; slot < BUCKET_SLOTS; ++slot) {
        const SlotWord word = load_relaxed(slot_at(build.slots, bucket, slot));
        scan.found |= key_of(word) == key;
        if (word == 0 && slot < scan.free) scan.free = slot;
    }
    return scan;
}

// Puts a key that is not in the bucket into a free slot, if there is one; `key` again where an equal row may come too.
WJ_DEVICE InsertOutcome place_in(const SegmentBuild& build, u32 bucket, KeyWord key, SlotWord word, u64 value) {
    for (u32 turn = 0; turn <= BUCKET_SLOTS; ++turn) {
        const BucketScan scan = scan_bucket(build, bucket, key);
        if (scan.found) return INSERT_FOUND;
        if (scan.free == BUCKET_SLOTS) return INSERT_FULL;
        if (atomicCAS(slot_at(build.slots, bucket, scan.free), (SlotWord)0, word) != 0) continue;
        store_value(build.slots, bucket * BUCKET_SLOTS + scan.free, value);
        return INSERT_NEW;
    }
    return INSERT_FULL;
}

// Puts a row where its way leads.
WJ_DEVICE void place_on_way(const BuildParams& p, const SegmentBuild& build, u32 row, u32& keys) {
    const KeyWord key = (KeyWord)load_key(p.rows, row);
    if (is_beside(key)) return;
    const u64 value = WJ_VALUE_BYTES == 0 ? 0 : load_word(p.rows, 1, row);
    const u64 hash = hash_of(p.table, key);
    for (u32 step = 0; step <= p.table.segment_buckets; ++step) {
        const u32 bucket = bucket_in_segment(p.table, hash, step);
        const InsertOutcome outcome = place_in(build, bucket, key, slot_word(key, value), value);
        if (outcome != INSERT_FULL) {
            keys += outcome == INSERT_NEW;
            return;
        }
        mark_passed(build.passed, hash, bucket);
    }
    raise_status(p.control, WJ_STATUS_FULL);
}

// Whether a bucket has room: slots fill from the first on.
WJ_DEVICE bool has_room(const SegmentBuild& build, u32 bucket) {
    return load_relaxed(slot_at(build.slots, bucket, BUCKET_SLOTS - 1)) == 0;
}

// Slots of a bucket that are looked at at once for a key that can go elsewhere.
constexpr u32 CANDIDATES = BUCKET_SLOTS < 8 ? BUCKET_SLOTS : 8;

// Puts a late row into its own next bucket, or into its full home bucket in place of a key whose next bucket has
// room: so that few keys are more than one step from home. Only the thread that owns the home bucket calls it, and
// only it changes slots there that are not free.
WJ_DEVICE bool place_late(const BuildParams& p, const SegmentBuild& build, u32 home, KeyWord key, u64 value, u32& keys) {
    const u64 hash = hash_of(p.table, key);
    const u32 next = bucket_in_segment(p.table, hash, 1);
    InsertOutcome outcome = place_in(build, home, key, slot_word(key, value), value);
    if (outcome == INSERT_FULL) {
        outcome = place_in(build, next, key, slot_word(key, value), value);
        if (outcome == INSERT_NEW) mark_passed(build.passed, hash, home);
    }
    keys += outcome == INSERT_NEW;
    if (outcome != INSERT_FULL) return true;
    SlotWord words[CANDIDATES];
    u64 hashes[CANDIDATES];
WJ_UNROLL
    for (u32 slot = 0; slot < CANDIDATES; ++slot) words[slot] = load_relaxed(slot_at(build.slots, home, slot));
    u32 movable = 0;
WJ_UNROLL
    for (u32 slot = 0; slot < CANDIDATES; ++slot) {
        hashes[slot] = hash_of(p.table, key_of(words[slot]));
        const bool is_home = bucket_in_segment(p.table, hashes[slot], 0) == home;
        if (is_home && has_room(build, bucket_in_segment(p.table, hashes[slot], 1))) movable |= 1u << slot;
    }
WJ_UNROLL
    for (u32 slot = 0; slot < CANDIDATES; ++slot) {
        if ((movable >> slot & 1) == 0) continue;
        SlotWord* at = slot_at(build.slots, home, slot);
        const u64 other_value = WJ_VALUE_BYTES == 8 ? reinterpret_cast<const u64*>(at)[SLOT_BYTES / 8 - 1] : 0;
        const u32 other_next = bucket_in_segment(p.table, hashes[slot], 1);
        if (place_in(build, other_next, key_of(words[slot]), words[slot], other_value) != INSERT_NEW) continue;
        mark_passed(build.passed, hashes[slot], home);
        store_relaxed(at, slot_word(key, value));
        store_value(build.slots, home * BUCKET_SLOTS + slot, value);
        ++keys;
        return true;
    }
    return false;
}

// Behind the last late row of a bucket. The thread that has this row owns the bucket.
constexpr u32 LAST_LATE = 0xffffffff;

// Brings the late rows in, those of a bucket by one thread. All threads call it.
WJ_DEVICE void place_all_late(const BuildParams& p, const SegmentBuild& build, u32 buckets, u32 late, u32& keys) {
    for (u32 bucket = threadIdx.x; bucket < buckets; bucket += blockDim.x) build.filled[bucket] = 0;
    __syncthreads();
    for (u32 index = threadIdx.x; index < late; index += blockDim.x) {
        const KeyWord key = (KeyWord)load_key(p.rows, build.late[index]);
        const u32 home = bucket_in_segment(p.table, hash_of(p.table, key), 0);
        const u32 other = atomicExch(&build.filled[home], index + 1);
        build.next[index] = other == 0 ? LAST_LATE : other;
    }
    __syncthreads();
    for (u32 last = threadIdx.x; last < late; last += blockDim.x) {
        // What others write here is never LAST_LATE.
        if (load_relaxed(&build.next[last]) != LAST_LATE) continue;
        const u32 home = bucket_in_segment(p.table, hash_of(p.table, (KeyWord)load_key(p.rows, build.late[last])), 0);
        u32 link = build.filled[home];
        // Those that find no place are linked anew.
        u32 homeless = 0;
        for (u32 turn = 0; turn < late && link != LAST_LATE; ++turn) {
            const u32 index = link - 1;
            const u32 row = build.late[index];
            link = build.next[index];
            const u64 value = WJ_VALUE_BYTES == 0 ? 0 : load_word(p.rows, 1, row);
            if (place_late(p, build, home, (KeyWord)load_key(p.rows, row), value, keys)) continue;
            store_relaxed(&build.next[index], homeless);
            homeless = index + 1;
        }
        build.filled[home] = homeless;
    }
    __syncthreads();
    for (u32 bucket = threadIdx.x; bucket < buckets; bucket += blockDim.x) {
        u32 link = build.filled[bucket];
        for (u32 turn = 0; turn < late && link != 0; ++turn) {
            place_on_way(p, build, build.late[link - 1], keys);
            link = build.next[link - 1];
        }
    }
}
#endif
