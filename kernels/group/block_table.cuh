// A group table in a block's shared memory, in front of the one in global memory.
//
// Slots are claimed by key word as in the global table, in half a word where that does. Each word of a slot is in an
// array of its own; a sum of integers is in two, of the low and the high halves, so that neighbouring slots are in
// neighbouring banks.
// A few groups have a slot for each of several lanes (replicas), so that the lanes of a warp do not
// wait for one address. A row whose group has no slot goes to the global table; what the block has
// gathered is merged into it when it ends, or when too many rows find no slot (block_step). So a block
// follows what comes: few groups, groups that change along the rows, or too many groups, for which it
// switches its table off for a while.
//
// Shared memory: BLOCK_HEAD_WORDS u64, slots keys (an even number), slots * words accumulators.
#pragma once
#include "group/accumulate.cuh"
#include "common/control.cuh"
#include "common/hash.cuh"
#include "group/constants.cuh"

#define WJ_NO_SLOT 0xffffffffu
// Rows of a warp in one slot from which on they are added up first.
#define WJ_SHARED_LANES 4
// Slots that a row looks at.
#define WJ_BLOCK_STEPS 32
// Turns after which the table is flushed whatever it holds: sums of a slot are bounded by that.
#define WJ_BLOCK_FLUSH_TURNS 256
// Turns after which a table that was switched off is tried again.
#define WJ_BLOCK_REST_TURNS 32

template <class Key>
struct BlockTable {
    Key* keys;
    u64* words;
    u32* misses;       // rows without a slot since the last flush
    u32* used;         // scratch of block_used
    u32 slots;
    u32 homes;         // slots of one replica; the last 32 slots are those of key word 0
    u32 replica_bits;
    u32 stride_mask;   // bits of the hash that say how far the next slot is
    u32 turns;         // turns since the last flush, or since the table was switched off
    bool is_on;
    bool is_fresh;     // the number of replicas is chosen after the next rows
};

template <class Key>
WJ_DEVICE void block_replicas(BlockTable<Key>& table, u32 bits) {
    table.replica_bits = bits;
    table.homes = (table.slots - 32) >> bits;
    table.stride_mask = table.homes > 32 ? 31 : 0;
}

// Words of keys and accumulators.
template <class Key>
WJ_DEVICE u32 block_words(const BlockTable<Key>& table, u32 words) {
    return table.slots * (u32)sizeof(Key) / 8 + table.slots * words;
}

// Empties all slots. All threads of the block call it, between barriers.
template <class Key>
WJ_DEVICE void clear_block_table(const BlockTable<Key>& table, u32 words) {
    u64* all = reinterpret_cast<u64*>(table.keys);
    const u32 count = block_words(table, words);
#pragma unroll 1
    for (u32 word = threadIdx.x; word < count; word += blockDim.x) all[word] = 0;
}

// An empty table. All threads of the block call it; a barrier must follow.
template <class Key>
WJ_DEVICE BlockTable<Key> open_block_table(u64* shared, u32 slots, u32 words) {
    BlockTable<Key> table;
    table.misses = reinterpret_cast<u32*>(shared);
    table.used = table.misses + 1;
    table.keys = reinterpret_cast<Key*>(shared + WJ_BLOCK_HEAD_WORDS);
    table.words = shared + WJ_BLOCK_HEAD_WORDS + slots * (u32)sizeof(Key) / 8;
    table.slots = slots;
    table.turns = 0;
    table.is_on = true;
    table.is_fresh = true;
    block_replicas(table, 0);
    if (threadIdx.x == 0) *table.misses = 0;
    clear_block_table(table, words);
    return table;
}

// A cheap hash of a key: it only has to spread the keys of one block.
WJ_DEVICE u32 block_hash(u64 word) {
    u32 hash = (u32)word * (u32)WJ_HASH_MULTIPLIER_A + (u32)(word >> 32) * (u32)WJ_HASH_MULTIPLIER_C;
    hash ^= hash >> 15;
    return hash * (u32)WJ_HASH_MULTIPLIER_B;
}

// Finds or claims the slot of a key word for the caller's lane; WJ_NO_SLOT when there is none near.
template <class Key>
WJ_DEVICE u32 block_slot(const BlockTable<Key>& table, Key word) {
    const u32 lane = threadIdx.x & 31;
    if (word == 0) {
        const u32 slot = table.slots - 32 + lane;
        if (load_relaxed(&table.keys[slot]) == 0) atomicExch(&table.keys[slot], Key(1));
        return slot;
    }
    const u32 hash = block_hash(word);
    u32 home = __umulhi(hash, table.homes);
    // Keys that meet go on in different strides, so that slots in use do not cluster.
    const u32 stride = (hash & table.stride_mask) | 1;
    const u32 replica = lane & ((1u << table.replica_bits) - 1);
#pragma unroll 1
    for (u32 step = 0; step < WJ_BLOCK_STEPS; ++step) {
        const u32 slot = home << table.replica_bits | replica;
        Key seen = load_relaxed(&table.keys[slot]);
        if (seen == 0) {
            seen = atomicCAS(&table.keys[slot], Key(0), word);
            if (seen == 0) seen = word;
        }
        if (seen == word) return slot;
        home += stride;
        if (home >= table.homes) home -= table.homes;
    }
    atomicAdd(table.misses, 1u);
    return WJ_NO_SLOT;
}

// The slot of a packed key that is the slot's number, for the caller's lane.
template <class Key>
WJ_DEVICE u32 block_slot_keyed(const BlockTable<Key>& table, u32 packed, u32 replica_bits) {
    const u32 slot = packed << replica_bits | (threadIdx.x & ((1u << replica_bits) - 1));
    if (load_relaxed(&table.keys[slot]) == 0) atomicExch(&table.keys[slot], Key(1));
    return slot;
}

// Whether a slot holds a group; `word` is its key word.
template <class Key>
WJ_DEVICE bool block_group(const BlockTable<Key>& table, u32 slot, Key& word) {
    const Key key = table.keys[slot];
    word = slot < table.slots - 32 ? key : Key(0);
    return key != 0;
}

// Slots that hold groups. All threads of the block call it.
template <class Key>
WJ_DEVICE u32 block_used(const BlockTable<Key>& table) {
    u32 mine = 0;
#pragma unroll 1
    for (u32 slot = threadIdx.x; slot < table.slots; slot += blockDim.x) mine += table.keys[slot] != 0;
    if (threadIdx.x == 0) *table.used = 0;
    __syncthreads();
    if (mine != 0) atomicAdd(table.used, mine);
    __syncthreads();
    return *table.used;
}

// Chooses the number of replicas by the groups of the first rows: as many as those leave room for. Slots of
// one replica stay where they are until the table is flushed. All threads of the block call it.
// The groups of a whole partition have but one slot if they can: then they are finished with it.
template <class Key>
WJ_DEVICE void block_choose_replicas(BlockTable<Key>& table, bool is_whole) {
    if (!table.is_fresh) return;
    table.is_fresh = false;
    __syncthreads();
    const u32 used = block_used(table);
    if (is_whole && used << 6 > table.slots) return;
    u32 bits = 0;
    while (bits < 5 && used << (bits + 3) <= table.slots) ++bits;
    block_replicas(table, bits);
}

// An empty table is that of other rows from now on. All threads of the block call it between barriers.
template <class Key>
WJ_DEVICE void block_restart(BlockTable<Key>& table) {
    table.turns = 0;
    table.is_on = true;
    table.is_fresh = true;
    block_replicas(table, 0);
    if (threadIdx.x == 0) *table.misses = 0;
}

// Looks at the counters; whether the table is to be flushed now, behind a barrier, as it is at the end. `rows` have been
// seen since the last call, and up to `misses_max` may have found no slot. All threads of the block call it, with the same
// arguments; but at the end, behind a barrier.
template <class Key>
WJ_DEVICE bool block_step(BlockTable<Key>& table, u32 rows, u32 misses_max, bool is_last) {
    const u32 turn = table.turns++;
    if (is_last) return table.is_on;
    if (!table.is_on) {
        if (turn < WJ_BLOCK_REST_TURNS) return false;
        table.is_on = true;
        table.turns = 1;
        return false;
    }
    if (turn == 0) return false;
    const u32 misses = *table.misses;
    __syncthreads();
    // A row without a slot costs what flushing a slot costs, or far more where its group is a frequent one.
    if (misses <= misses_max) {
        if (turn < WJ_BLOCK_FLUSH_TURNS) return false;
        table.is_fresh = true;
        block_replicas(table, 0);
    } else if (turn == 1 && table.replica_bits > 0) {
        table.is_fresh = false;
        block_replicas(table, 0);
    } else if (turn == 1 && misses + table.slots >= rows - rows / 5) {
        // It was empty, and less than a fifth of the rows met a group that was there.
        table.is_on = false;
    } else {
        // Other groups come now: as many replicas as those leave room for.
        table.is_fresh = true;
        block_replicas(table, 0);
    }
    if (threadIdx.x == 0) *table.misses = 0;
    table.turns = 1;
    return true;
}

// The same for a table that is indexed by the packed key.
template <class Key>
WJ_DEVICE bool block_step_keyed(BlockTable<Key>& table, bool is_last) {
    if (!is_last && table.turns++ < WJ_BLOCK_FLUSH_TURNS) return false;
    table.turns = 1;
    return true;
}

// Adds to a sum in halves of 32 bits, which the hardware adds at once; a 64-bit add is a loop there.
WJ_DEVICE void block_add(u64* array, u32 slots, u32 slot, u64 value) {
    u32* halves = reinterpret_cast<u32*>(array);
    const u32 low = (u32)value;
    const u32 before = atomicAdd(&halves[slot], low);
    const u32 high = (u32)(value >> 32) + (before + low < before ? 1 : 0);
    if (high != 0) atomicAdd(&halves[slots + slot], high);
}
WJ_DEVICE void block_add_float(u64* array, u32 slot, f64 value) { atomicAdd(reinterpret_cast<f64*>(array) + slot, value); }

// Counts rows, of less than 2^32.
WJ_DEVICE void block_count(u64* array, u32 slot, u32 rows) { atomicAdd(reinterpret_cast<u32*>(array) + slot, rows); }

// Adds a 128-bit value to sums of the low and of the high words.
WJ_DEVICE void block_add_wide(u64* low, u64* high, u32 slots, u32 slot, i128 value) {
    u32* parts[4] = {(u32*)low + slot, (u32*)low + slots + slot, (u32*)high + slot, (u32*)high + slots + slot};
    u32 carry = 0;
WJ_UNROLL
    for (u32 part = 0; part < 4; ++part) {
        const u64 sum = (u64)(u32)((u128)value >> (32 * part)) + carry;
        const u32 addend = (u32)sum;
        carry = (u32)(sum >> 32);
        if (addend != 0) {
            const u32 before = atomicAdd(parts[part], addend);
            carry += before + addend < before ? 1 : 0;
        }
    }
}

// A sum in halves, and its clearing.
WJ_DEVICE u64 block_sum(const u64* array, u32 slots, u32 slot) {
    const u32* halves = reinterpret_cast<const u32*>(array);
    return (u64)halves[slots + slot] << 32 | halves[slot];
}
WJ_DEVICE void block_clear_sum(u64* array, u32 slots, u32 slot) {
    u32* halves = reinterpret_cast<u32*>(array);
    halves[slot] = 0;
    halves[slots + slot] = 0;
}

WJ_DEVICE void block_max(u64* array, u32 slot, u64 code) {
    if (load_relaxed(&array[slot]) < code) atomicMax(&array[slot], code);
}

// Bits in halves of 32, which the hardware sets at once.
WJ_DEVICE void block_or(u64* array, u32 slot, u64 bits) {
    u32* halves = reinterpret_cast<u32*>(array + slot);
    if (((u32)bits & ~load_relaxed(&halves[0])) != 0) atomicOr(&halves[0], (u32)bits);
    if (((u32)(bits >> 32) & ~load_relaxed(&halves[1])) != 0) atomicOr(&halves[1], (u32)(bits >> 32));
}
WJ_DEVICE void block_xor(u64* array, u32 slot, u64 bits) {
    u32* halves = reinterpret_cast<u32*>(array + slot);
    if ((u32)bits != 0) atomicXor(&halves[0], (u32)bits);
    if (bits >> 32 != 0) atomicXor(&halves[1], (u32)(bits >> 32));
}
