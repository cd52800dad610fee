// Hashing of key words.
//
// Bits of the 64-bit hash are used once each: the low 16 choose the device, the others the slot.
#pragma once
#include "common/constants.cuh"
#include "common/simt.cuh"

// Mixes all bits of a word into all bits of the result (two rounds of multiply and xor-shift).
WJ_DEVICE u64 hash_word(u64 word) {
    word ^= word >> 32;
    word *= WJ_HASH_MULTIPLIER_A;
    word ^= word >> 29;
    word *= WJ_HASH_MULTIPLIER_B;
    word ^= word >> 32;
    return word;
}

// Adds a further word to a hash.
WJ_DEVICE u64 hash_combine(u64 hash, u64 word) { return hash_word(hash * WJ_HASH_MULTIPLIER_C + word); }

// Hash of a whole key. WJ_HASH_BITS < 64 makes collisions for tests.
WJ_DEVICE u64 hash_key(u64 word) {
    const u64 hash = hash_word(word);
    return WJ_HASH_BITS < 64 ? hash_word(hash & ((1ULL << (WJ_HASH_BITS & 63)) - 1)) : hash;
}

// Device that owns a hash, in [0, devices).
WJ_DEVICE u32 hash_device(u64 hash, u32 devices) { return ((u32)(hash & 0xffff) * devices) >> 16; }

// Home of a hash among `count` places, from the bits that hash_device does not use.
WJ_DEVICE u64 hash_place(u64 hash, u64 count) { return __umul64hi(hash & ~0xffffULL, count); }
