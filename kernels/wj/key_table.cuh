// An open-addressing hash table of key words with one value word each, probed by groups of lanes.
//
// A slot is 16 bytes: key, value. Key 0 marks an empty slot; callers store key words that are never
// 0. Slots lie in windows of LANES slots, so that a probe group reads a window in one coalesced
// access; windows are probed one after the other from the key's home. LANES = 1 is the same table
// with windows of one slot.
//
// Every probe loop is bounded by the caller. All lanes of a probe group call each function together.
#pragma once
#include "wj/hash.cuh"

struct __align__(16) Slot {
    u64 key;
    u64 value;
};

enum InsertOutcome { INSERT_NEW, INSERT_FOUND, INSERT_FULL };

// Lanes of the caller's probe group.
template <int LANES>
struct ProbeGroup {
    u32 rank;   // of the caller in its group
    u32 first;  // lane of the warp that has rank 0
    u32 mask;   // lanes of the group within the warp

    WJ_DEVICE_MEMBER ProbeGroup() {
        const u32 lane = threadIdx.x & 31;
        rank = lane % LANES;
        first = lane - rank;
        mask = (LANES == 32 ? 0xffffffffu : ((1u << (LANES & 31)) - 1u)) << first;
    }
    // Lanes for which `predicate` holds, bit 0 being rank 0.
    WJ_DEVICE_MEMBER u32 ballot(bool predicate) const {
        return LANES == 1 ? (u32)predicate : (__ballot_sync(mask, predicate) & mask) >> first;
    }
};

// Reads a slot in one access, so that key and value belong together.
WJ_DEVICE Slot load_slot(const Slot* slot) {
    const ulonglong2 words = *reinterpret_cast<const ulonglong2*>(slot);
    return Slot{words.x, words.y};
}

WJ_DEVICE u64 next_window(u64 window, u64 windows) { return window + 1 == windows ? 0 : window + 1; }

// Finds `key` for one lane.
WJ_DEVICE bool find_alone(const Slot* slots, u64 windows, u64 key, u64 hash, u64& value) {
    u64 window = hash_place(hash, windows);
    for (u64 step = 0; step < windows; ++step) {
        const Slot slot = load_slot(&slots[window]);
        if (slot.key == key) {
            value = slot.value;
            return true;
        }
        if (slot.key == 0) return false;
        window = next_window(window, windows);
    }
    return false;
}

// Finds the caller's `key` if it is `active`. On a hit, `value` is the slot's. The table is not
// being changed meanwhile.
template <int LANES>
WJ_DEVICE bool find(const Slot* slots, u64 windows, u64 key, u64 hash, bool active, u64& value) {
    if (LANES == 1) return active && find_alone(slots, windows, key, hash, value);
    const ProbeGroup<LANES> probe_group;
    bool found = false;
    for (u32 turn = 0; turn < LANES; ++turn) {
        if (!__shfl_sync(probe_group.mask, (u32)active, turn, LANES)) continue;
        const u64 wanted = __shfl_sync(probe_group.mask, key, turn, LANES);
        u64 window = hash_place(__shfl_sync(probe_group.mask, hash, turn, LANES), windows);
        for (u64 step = 0; step < windows; ++step) {
            const Slot slot = load_slot(&slots[window * LANES + probe_group.rank]);
            const u32 hits = probe_group.ballot(slot.key == wanted);
            if (hits != 0) {
                const u64 hit_value = __shfl_sync(probe_group.mask, slot.value, __ffs(hits) - 1, LANES);
                if (probe_group.rank == turn) {
                    found = true;
                    value = hit_value;
                }
                break;
            }
            if (probe_group.ballot(slot.key == 0) != 0) break;
            window = next_window(window, windows);
        }
    }
    return found;
}

// Claims a slot of one window for `wanted`, or finds it there. Called by the whole probe group.
template <int LANES>
WJ_DEVICE InsertOutcome insert_in_window(const ProbeGroup<LANES>& probe_group, Slot* window, u64 wanted, u32& rank_of_slot) {
    u64 seen = load_relaxed(&window[probe_group.rank].key);
    for (u32 attempt = 0; attempt <= LANES; ++attempt) {
        const u32 hits = probe_group.ballot(seen == wanted);
        if (hits != 0) {
            rank_of_slot = __ffs(hits) - 1;
            return INSERT_FOUND;
        }
        const u32 empties = probe_group.ballot(seen == 0);
        if (empties == 0) return INSERT_FULL;
        rank_of_slot = __ffs(empties) - 1;
        bool claimed = false;
        if (probe_group.rank == rank_of_slot) {
            seen = atomicCAS(&window[probe_group.rank].key, 0ULL, wanted);
            claimed = seen == 0;
            if (claimed) seen = wanted;
        }
        if (probe_group.ballot(claimed) != 0) return INSERT_NEW;
    }
    return INSERT_FULL;
}

// Inserts the caller's `key` (not 0) if it is `active`; `slot_index` is where it is. Reads at most
// `steps_max` windows.
template <int LANES>
WJ_DEVICE InsertOutcome insert(Slot* slots, u64 windows, u64 steps_max, u64 key, u64 hash, bool active, u64& slot_index) {
    const ProbeGroup<LANES> probe_group;
    InsertOutcome outcome = INSERT_FOUND;
    for (u32 turn = 0; turn < LANES; ++turn) {
        if (LANES > 1 ? !__shfl_sync(probe_group.mask, (u32)active, turn, LANES) : !active) continue;
        const u64 wanted = LANES > 1 ? __shfl_sync(probe_group.mask, key, turn, LANES) : key;
        u64 window = hash_place(LANES > 1 ? __shfl_sync(probe_group.mask, hash, turn, LANES) : hash, windows);
        InsertOutcome here = INSERT_FULL;
        u32 rank_of_slot = 0;
        for (u64 step = 0; step < steps_max; ++step) {
            here = insert_in_window<LANES>(probe_group, &slots[window * LANES], wanted, rank_of_slot);
            if (here != INSERT_FULL) break;
            window = next_window(window, windows);
        }
        if (probe_group.rank == turn) {
            outcome = here;
            slot_index = window * LANES + rank_of_slot;
        }
    }
    return outcome;
}
