// Whether rows lie in the partition of their key's hash, and the totals of their values.
//
// check_partitions: totals of the rows' columns, read out of packed words; misplaced +=
// rows outside offsets[partition] to offsets[partition + 1].
// Grid: one row a thread, grid stride; no shared memory. Comes after totals.cuh.
#include "partition/partition.cuh"

// A column: some bits of a word of each row; a value is base + bits.
struct PackedColumn {
    const void* words;
    u64 word_bytes;
    u64 shift;
    u64 mask;
    u64 base;
};

struct CheckParams {
    u64 rows;
    u64 bits;
    const u32* offsets;
    u64* totals;
    u64* misplaced;
    u64 columns;
    PackedColumn column[COLUMNS_MAX];  // the key first: alone in the first word, or in its lowest bits
};

WJ_ENTRY(check_partitions, CheckParams, THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    Totals totals = {0, 0, 0};
    u64 misplaced = 0;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        u64 hash = 0;
        for (u64 c = 0; c < p.columns; ++c) {
            const PackedColumn& column = p.column[c];
            const u64 word = column.word_bytes == 8 ? static_cast<const u64*>(column.words)[row]
                                                    : static_cast<const u32*>(column.words)[row];
            const u64 stored = word >> column.shift & column.mask;
            hash = hash_value(hash, column.base + stored);
            if (c == 0) {
                const u32 partition = partition_of(hash_key(stored), (u32)p.bits);
                if (row < p.offsets[partition] || row >= p.offsets[partition + 1]) ++misplaced;
            }
        }
        totals.add(hash);
    }
    add_totals(p.totals, totals);
    if (misplaced != 0) atomicAdd(p.misplaced, misplaced);
}
