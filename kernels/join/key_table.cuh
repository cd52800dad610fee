// An open-addressing hash table of key words with one value word each, probed by groups of lanes.
//
// A slot is 16 bytes: key, value. Key 0 marks an empty slot; callers store key words that are never
// 0. Slots lie in windows of LANES slots, so that a probe group reads a window in one coalesced
// access; windows are probed one after the other from the key's home. LANES = 1 is the same table
// with windows of one slot.
//
// Every probe loop is bounded by the caller. All lanes of a probe group call each function together.
//
// Where key and value fit one word, a slot is that word (see below): half or a quarter of the memory.
#pragma once
#include "common/hash.cuh"

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

// Finds `key` for one lane, from its home, whose slot was read before, on.
WJ_DEVICE bool find_from(const Slot* slots, u64 windows, u64 key, u64 window, Slot slot, u64& value) {
    for (u64 step = 0; step < windows; ++step) {
        if (slot.key == key) {
            value = slot.value;
            return true;
        }
        if (slot.key == 0) return false;
        window = next_window(window, windows);
        slot = load_slot(&slots[window]);
    }
    return false;
}

// Finds the caller's `key` if it is `active`. On a hit, `value` is the slot's. The table is not
// being changed meanwhile.
template <int LANES>
WJ_DEVICE bool find(const Slot* slots, u64 windows, u64 key, u64 hash, bool active, u64& value) {
    if (LANES == 1) {
        const u64 home = hash_place(hash, windows);
        return active && find_from(slots, windows, key, home, load_slot(&slots[home]), value);
    }
    const ProbeGroup<LANES> probe_group;
    bool found = false;
#pragma unroll 1
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

// Slots of one word T of 4 or 8 bytes: `key_bits` bits of the key word, the value above them; 0 is empty. Key
// words are from 1 to 2^key_bits: the last one, of which these bits are 0, has the slot behind the others
// to itself. There are less than 2^32 slots.

template <class T>
WJ_DEVICE T word_mask(u32 key_bits) {
    return key_bits >= 8 * sizeof(T) ? (T)~(T)0 : (T)(((T)1 << (key_bits & 63)) - 1);
}

// What the slot of a key holds in its low bits.
template <class T>
WJ_DEVICE T word_code(u64 key, u32 key_bits) {
    const T code = (T)key & word_mask<T>(key_bits);
    return code == 0 ? (T)1 : code;
}

template <class T>
WJ_DEVICE u32 word_home(u64 key, u64 slots, u32 key_bits) {
    if (((T)key & word_mask<T>(key_bits)) == 0) return (u32)slots;
    // From the bits that hash_device does not use.
    return (u32)((hash_key(key) >> 32) * slots >> 32);
}

// Whether `key` is in the table, from its home, whose slot was read before, on.
template <class T>
WJ_DEVICE bool find_word(const T* slots, u64 count, u64 key, u32 key_bits, u32 home, T slot, u64& value) {
    const T code = word_code<T>(key, key_bits);
    for (u64 step = 0; step <= count; ++step) {
        if (slot == 0) return false;
        if (((slot ^ code) & word_mask<T>(key_bits)) == 0) {
            value = key_bits >= 8 * sizeof(T) ? 0 : (u64)(slot >> (key_bits & (8 * sizeof(T) - 1)));
            return true;
        }
        home = home + 1 == (u32)count ? 0 : home + 1;
        slot = slots[home];
    }
    return false;
}

// Inserts a key (not 0); reads at most `steps_max` slots.
template <class T>
WJ_DEVICE InsertOutcome insert_word(T* slots, u64 count, u64 steps_max, u64 key, u32 key_bits, u64 value) {
    const T code = word_code<T>(key, key_bits);
    const T word = key_bits >= 8 * sizeof(T) ? code : (T)(code | (T)((T)value << (key_bits & (8 * sizeof(T) - 1))));
    u32 place = word_home<T>(key, count, key_bits);
    for (u64 step = 0; step < steps_max; ++step) {
        T seen = load_relaxed(&slots[place]);
        if (seen == 0) {
            seen = atomicCAS(&slots[place], (T)0, word);
            if (seen == 0) return INSERT_NEW;
        }
        if (((seen ^ code) & word_mask<T>(key_bits)) == 0) return INSERT_FOUND;
        place = place + 1 == (u32)count ? 0 : place + 1;
    }
    return INSERT_FULL;
}
