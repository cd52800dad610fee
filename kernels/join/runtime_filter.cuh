// Runtime filters: whether a key may be one of a finished build's. Much smaller than its table, so that they stay in L2. And sets
// of keys as bitmaps.
//
// A bitmap has a bit for each possible key word, from key word 1 on, and is exact. A Bloom filter has four bits of one
// 64-bit word set for each key, so that a search is one access; it may take a key for one of the build's, never the other
// way round. Bounds are two words: the complement of the lowest key word and the highest one, so that both start at 0
// and only rise. Key words are never 0.
#pragma once
#include "common/hash.cuh"

WJ_DEVICE u32 bitmap_bit(u64 key) { return 1u << ((u32)(key - 1) & 31); }

WJ_DEVICE bool is_in_bitmap(const u32* words, u64 key) { return (words[(key - 1) >> 5] & bitmap_bit(key)) != 0; }

// A bit that is there is not set again: keys that many rows have would queue for one address.
WJ_DEVICE void set_in_bitmap(u32* words, u64 key) {
    u32* word = &words[(key - 1) >> 5];
    if ((load_relaxed(word) & bitmap_bit(key)) == 0) atomicOr(word, bitmap_bit(key));
}

// Two bits of either half, so that no shift is wider than 32 bits. They come from the low bits of the hash, the word
// from the high ones (hash_place).
WJ_DEVICE u64 bloom_bits(u64 hash) {
    const u32 bits = (u32)hash;
    const u32 low = 1u << (bits & 31) | 1u << (bits >> 5 & 31);
    const u32 high = 1u << (bits >> 10 & 31) | 1u << (bits >> 15 & 31);
    return (u64)high << 32 | low;
}

WJ_DEVICE bool may_be_in_bloom(const u64* words, u64 count, u64 key) {
    const u64 hash = hash_key(key);
    const u64 bits = bloom_bits(hash);
    return (words[hash_place(hash, count)] & bits) == bits;
}
