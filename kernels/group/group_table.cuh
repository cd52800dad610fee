// The table of a group-by: rows of u64 words, word 0 not 0 where the row is a group, then key words
// (wide keys), then accumulators. All accumulators start at 0, so that clearing is one memset.
//
// Three ways to a row: the packed key is the row (dense keys); open addressing on word 0, which
// holds packed key + 1 (keys of up to 64 bits; the one whose word would be 0 has row `capacity`); or an
// index of (fingerprint << 32 | entry + 1) over appended rows that hold the key words (wide keys).
//
// A key that finds no room gets a spilled row of its own, behind the table, which the host merges with
// the others into a larger table (WJ_STATUS_GROW); blocks stop at their next tile meanwhile, and go on
// from there. Only where there is no room for spilled rows either is the launch in vain (WJ_STATUS_FULL).
#pragma once
#include "common/control.cuh"
#include "common/hash.cuh"
#include "group/constants.cuh"
#include "group/params.cuh"  // src/group.rs

#define WJ_NO_ROW 0xffffffffffffffffULL

// A row behind the table, cleared: rows of spilled keys are not cleared before.
WJ_DEVICE u64 spill_row(const GroupTable& table, u32 stride) {
    const u64 number = atomicAdd(&table.counters[WJ_GROUP_SPILLED], 1ULL);
    if (number >= table.spill_rows) {
        raise_status(table.control, WJ_STATUS_FULL);
        return WJ_NO_ROW;
    }
    raise_status(table.control, WJ_STATUS_GROW);
    u64* row = table.rows + (table.capacity + 1 + number) * stride;
    for (u32 word = 0; word < stride; ++word) row[word] = 0;
    return table.capacity + 1 + number;
}

// The row whose number is the packed key.
WJ_DEVICE u64 group_row_dense(const GroupTable& table, u32 stride, u64 packed) {
    u64* row = table.rows + packed * stride;
    if (load_relaxed(row) == 0) atomicExch(row, 1ULL);
    return packed;
}

// Finds or claims the row of a packed key; WJ_NO_ROW (and the status) when there is none left.
WJ_DEVICE u64 group_row_narrow(const GroupTable& table, u32 stride, u64 packed) {
    const u64 word = packed + 1;
    if (word == 0) {
        u64* row = table.rows + table.capacity * stride;
        if (load_relaxed(row) == 0) atomicExch(row, 1ULL);
        return table.capacity;
    }
    u64 place = hash_place(hash_key(packed), table.capacity);
    for (u64 step = 0; step < table.steps_max; ++step) {
        u64* row = table.rows + place * stride;
        u64 seen = load_relaxed(row);
        if (seen == 0) {
            seen = atomicCAS(row, 0ULL, word);
            if (seen == 0) seen = word;
        }
        if (seen == word) {
            if (step >= table.grow_steps) raise_status(table.control, WJ_STATUS_GROW);
            return place;
        }
        place = place + 1 == table.capacity ? 0 : place + 1;
    }
    const u64 spilled = spill_row(table, stride);
    if (spilled != WJ_NO_ROW) table.rows[spilled * stride] = word;
    return spilled;
}

// A row that a thread has reserved and not yet published: kept for its next new group.
struct SpareRow {
    u64 number;
    bool reserved;
};

// Reserves a row and writes the key words into it.
WJ_DEVICE bool write_spare_row(const GroupTable& table, u32 stride, const u64* key, u32 words, SpareRow& spare) {
    if (!spare.reserved) {
        spare.number = atomicAdd(&table.counters[WJ_GROUP_APPENDED], 1ULL);
        if (spare.number >= table.capacity) return false;
        spare.reserved = true;
    }
    u64* row = table.rows + spare.number * stride;
WJ_UNROLL
    for (u32 word = 0; word < words; ++word) row[1 + word] = key[word];
    __threadfence();
    return true;
}

// Finds or appends the row of a key of several words.
WJ_DEVICE u64 group_row_of_words(const GroupTable& table, u32 stride, const u64* key, u32 words, SpareRow& spare) {
    u64 hash = 0;
WJ_UNROLL
    for (u32 word = 0; word < words; ++word) hash = hash_combine(hash, key[word]);
    hash = hash_key(hash);
    const u64 fingerprint = (hash & 0xffffffffULL) << 32;
    u64 place = hash_place(hash, table.index_slots);
    bool written = false;
    for (u64 step = 0; step < table.steps_max; ++step) {
        u64 seen = load_relaxed(&table.index[place]);
        if (seen == 0) {
            if (!written && !write_spare_row(table, stride, key, words, spare)) break;
            written = true;
            const u64 mine = fingerprint | (spare.number + 1);
            seen = atomicCAS(&table.index[place], 0ULL, mine);
            if (seen == 0) {
                spare.reserved = false;
                // Nobody reads it before the launch has ended.
                table.rows[spare.number * stride] = 1;
                return spare.number;
            }
        }
        if ((seen & 0xffffffff00000000ULL) == fingerprint) {
            const u64 number = (seen & 0xffffffffULL) - 1;
            __threadfence();
            const u64* row = table.rows + number * stride;
            bool same = true;
WJ_UNROLL
            for (u32 word = 0; word < words; ++word) same = same && load_relaxed(&row[1 + word]) == key[word];
            if (same) return number;
        }
        place = place + 1 == table.index_slots ? 0 : place + 1;
    }
    const u64 spilled = spill_row(table, stride);
    if (spilled != WJ_NO_ROW) {
        u64* row = table.rows + spilled * stride;
        row[0] = 1;
WJ_UNROLL
        for (u32 word = 0; word < words; ++word) row[1 + word] = key[word];
    }
    return spilled;
}

// The same of a number of words that the compiler knows.
template <int WORDS>
WJ_DEVICE u64 group_row_wide(const GroupTable& table, u32 stride, const u64 (&key)[WORDS], SpareRow& spare) {
    return group_row_of_words(table, stride, key, WORDS, spare);
}
