// Whether the stored keys of neighbouring rows ascend.
//
// check_order: descents += rows whose key is greater than the next one's. Grid: one row a thread, grid stride; no shared
// memory. Comes after totals.cuh.

struct OrderParams {
    u64 rows;
    const void* keys;
    u64 width_bytes;  // 0: all keys are the same
    u64* descents;
};

WJ_ENTRY(check_order, OrderParams, THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 descents = 0;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row + 1 < p.rows; row += stride) {
        if (p.width_bytes == 8) {
            const u64* keys = static_cast<const u64*>(p.keys);
            descents += keys[row] > keys[row + 1];
        } else if (p.width_bytes == 4) {
            const u32* keys = static_cast<const u32*>(p.keys);
            descents += keys[row] > keys[row + 1];
        } else if (p.width_bytes == 2) {
            const u16* keys = static_cast<const u16*>(p.keys);
            descents += keys[row] > keys[row + 1];
        } else if (p.width_bytes == 1) {
            const u8* keys = static_cast<const u8*>(p.keys);
            descents += keys[row] > keys[row + 1];
        }
    }
    if (descents != 0) atomicAdd(p.descents, descents);
}
