// Merges rows of group tables.
//
// regroup: the rows of a table, spilled ones included, into another one; or one of them, which leaves its table. A thread a row,
// grid stride. Status: WJ_STATUS_GROW, WJ_STATUS_FULL, as of any insertion.
// merge_row: one row into another, of tables indexed by the key. One thread: there are few accumulators.
#include "common/control.cuh"
#include "group/accumulate.cuh"
#include "group/group_table.cuh"

WJ_ENTRY(regroup, RegroupParams, 256) {
    const GroupTable table = p.table;
    const u32 stride = (u32)p.stride;
    SpareRow spare = {0, false};
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.count; row += step) {
        u64* const old = p.rows + row * stride;
        if (old[0] == 0 || (p.only != 0 && old[0] != p.only)) continue;
        const u64 packed = (row == p.zero_row ? 0 : old[0]) - 1;
        const u64 number = p.key_words == 0 ? group_row_narrow(table, stride, packed)
                                            : group_row_of_words(table, stride, old + 1, (u32)p.key_words, spare);
        if (number == WJ_NO_ROW) continue;
        u64* const merged = table.rows + number * stride;
        for (u64 at = 0; at < p.merge_count; ++at) {
            const u32 kind = (u32)(p.merges[at] >> 32);
            const u32 word = (u32)p.merges[at];
            merge_words(kind, merged + word, old[word], kind == WJ_MERGE_ADD_WIDE ? old[word + 1] : 0);
        }
        if (p.only != 0) old[0] = 0;
    }
}

WJ_ENTRY(merge_row, MergeRowParams, 32) {
    if (threadIdx.x != 0 || p.from[0] == 0) return;
    for (u64 at = 0; at < p.merge_count; ++at) {
        const u32 kind = (u32)(p.merges[at] >> 32);
        const u32 word = (u32)p.merges[at];
        merge_words(kind, p.to + word, p.from[word], kind == WJ_MERGE_ADD_WIDE ? p.from[word + 1] : 0);
    }
    p.to[0] = 1;
    p.from[0] = 0;
}
