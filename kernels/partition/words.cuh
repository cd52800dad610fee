// Rows as columns of words: 4 or 8 bytes a row, the key's words first.
#pragma once
#include "partition/partition.cuh"
#include "partition/params.cuh"  // src/partition.rs

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
