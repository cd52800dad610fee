// Counts the different keys of a sample: of some rows, or of all rows that have some of the keys. A set of their hashes, with room
// to spare.
#pragma once
#include "common/control.cuh"
#include "group/constants.cuh"

// Slots of a set are 2^WJ_SKETCH_BITS zeroed words: hash with bit 0 set, and bit 1 once the key came again.
// The control block's rows count rows of the sample (from bit 0), different keys (from WJ_SKETCH_KEYS_SHIFT) and
// keys that came again (from WJ_SKETCH_REPEATED_SHIFT). Behind the slots is a filter: with one, a key is in the sample if its hash has
// none of the filter's bits, and rows, which may be many, are not counted. All lanes of the warp call it.
WJ_DEVICE void sketch_add(u64* set, u64* control, u64 hash, bool alive) {
    bool is_new = false;
    bool is_repeated = false;
    const u64 filter = set[1u << WJ_SKETCH_BITS];
    if (alive && (hash & filter) == 0) {
        const u64 word = (hash & ~3ULL) | 1;
        u32 place = (u32)(hash >> (64 - WJ_SKETCH_BITS));
        for (u32 step = 0; step < 256; ++step) {
            u64 seen = load_relaxed(&set[place]);
            if (seen == 0) seen = atomicCAS(&set[place], 0ULL, word);
            is_new = seen == 0;
            if (seen == word) is_repeated = atomicCAS(&set[place], word, word | 2) == word;
            if (is_new || (seen | 2) == (word | 2)) break;
            place = (place + 1) & ((1u << WJ_SKETCH_BITS) - 1);
        }
    }
    const u64 rows = __popc(__ballot_sync(0xffffffffu, alive && filter == 0));
    const u64 keys = __popc(__ballot_sync(0xffffffffu, is_new));
    const u64 repeated = __popc(__ballot_sync(0xffffffffu, is_repeated));
    if ((threadIdx.x & 31) == 0 && (rows | keys | repeated) != 0) {
        atomicAdd(&control[WJ_CONTROL_ROWS],
                  repeated << WJ_SKETCH_REPEATED_SHIFT | keys << WJ_SKETCH_KEYS_SHIFT | rows);
    }
}
