// Rows as columns of words: 4 or 8 bytes a row, the key's words first.
#pragma once
#include "partition/partition.cuh"

struct RowWords {
    const u8* columns[WJ_ROW_WORDS_MAX];
    u64 is_wide[WJ_ROW_WORDS_MAX];    // 1: 8 bytes a row, 0: 4
    u64 biases[WJ_ROW_WORDS_MAX];     // added to what is stored, modulo the word's size
    u64 key_masks[WJ_ROW_WORDS_MAX];  // bits of each word that belong to the key
    u64 key_words;
    u64 words;
    u64 seed;                         // of the hash
    const u32* validity;              // a bit a row, or null: rows that count
};

WJ_DEVICE u64 load_word(const RowWords& rows, u32 word, u64 row) {
    const u8* column = rows.columns[word];
    return rows.is_wide[word] ? reinterpret_cast<const u64*>(column)[row] + rows.biases[word]
                              : reinterpret_cast<const u32*>(column)[row] + (u32)rows.biases[word];
}

// The hash of a row's key.
WJ_DEVICE u64 hash_row(const RowWords& rows, u64 row) {
    return partition_hash((u32)rows.key_words, rows.seed,
                          [&](u32 word) { return load_word(rows, word, row) & rows.key_masks[word]; });
}

WJ_DEVICE bool is_valid_row(const RowWords& rows, u64 row) {
    return rows.validity == nullptr || (rows.validity[row / 32] >> (row & 31) & 1) != 0;
}
