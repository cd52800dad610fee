// Cuts rows that lie in the order of a key into pieces with no key in two of them: a group-by takes them as it takes partitions.
//
// count_changes: adds up, over windows of rows, those with another key than the row before. A block a window, a row a thread.
// cut_rows: where each piece begins: at the first row from piece x rows_each on that has another key than the one before, so
// that a piece has no rows where the key of the one before has all of them. Grid stride, a thread a piece.
// Keys are compared as they are stored. Shared: none. Status: none.
#include "common/control.cuh"
#include "group/params.cuh"  // src/group.rs

WJ_DEVICE u64 key_at(const CutParams& p, u64 row) {
    switch (p.width) {
        case 1: return p.keys[row];
        case 2: return reinterpret_cast<const u16*>(p.keys)[row];
        case 4: return reinterpret_cast<const u32*>(p.keys)[row];
        default: return reinterpret_cast<const u64*>(p.keys)[row];
    }
}

WJ_ENTRY(count_changes, CutParams, WJ_BLOCK_THREADS) {
    const u64 row = p.rows / gridDim.x * blockIdx.x + threadIdx.x;
    const bool changes = row > 0 && row < p.rows && key_at(p, row) != key_at(p, row - 1);
    const u32 lanes = __ballot_sync(0xffffffffu, changes);
    if ((threadIdx.x & 31) == 0 && lanes != 0) atomicAdd(p.changes, (u64)__popc(lanes));
}

// The first row from `first` on with another key than the row before it.
WJ_DEVICE u64 next_change(const CutParams& p, u64 first) {
    const u64 key = key_at(p, first - 1);
    // Rows up to `same` have the key; `other` is behind them.
    u64 same = first - 1;
    u64 other = first;
    for (u64 step = 1; other < p.rows && key_at(p, other) == key; step *= 2) {
        same = other;
        other = p.rows - other < step ? p.rows : other + step;
    }
    while (other - same > 1) {
        const u64 middle = same + (other - same) / 2;
        if (key_at(p, middle) == key) {
            same = middle;
        } else {
            other = middle;
        }
    }
    return other;
}

WJ_ENTRY(cut_rows, CutParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 piece = (u64)blockIdx.x * blockDim.x + threadIdx.x; piece <= p.pieces; piece += stride) {
        const u64 first = piece * p.rows_each;
        p.offsets[piece] = (u32)(piece == 0 ? 0 : first >= p.rows ? p.rows : next_change(p, first));
    }
}
