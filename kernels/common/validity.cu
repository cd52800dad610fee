// Packs validity bytes (0: null) into a bitmap, least significant bit first, and counts the nulls.
//
// Inputs: bytes[rows]. Outputs: words[(rows + 31) / 32]; control word WJ_CONTROL_ROWS += nulls.
// Grid: one row a thread, a warp a word, grid stride; no shared memory.
#include "common/control.cuh"
#include "common/params.cuh"  // src/common.rs

WJ_ENTRY(pack_validity, PackValidityParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.rows + stride - 1) / stride;
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        const u32 valid = __ballot_sync(0xffffffffu, row < p.rows && p.bytes[row] != 0);
        const u32 nulls = __ballot_sync(0xffffffffu, row < p.rows && p.bytes[row] == 0);
        if ((threadIdx.x & 31) == 0 && row < p.rows) {
            p.words[row / 32] = valid;
            if (nulls != 0) atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)__popc(nulls));
        }
    }
}
