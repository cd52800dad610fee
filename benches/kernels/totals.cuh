// Totals of rows in any order: {number, sum of hashes, exclusive or of hashes}, zeroed by the host.
//
// Stands in front of the sources that need it: kernels include the headers of warpjoin_kernels only.
#include "common/simt.cuh"

// A bijection of 64 bits that looks random.
WJ_DEVICE u64 mix64(u64 word) {
    word ^= word >> 32;
    word *= 0xd6e8feb86659fd93ULL;
    word ^= word >> 32;
    word *= 0xd6e8feb86659fd93ULL;
    return word ^ word >> 32;
}

// Hash of a row, column after column.
WJ_DEVICE u64 hash_value(u64 hash, u64 word) { return mix64(hash * 0x9e3779b97f4a7c15ULL + word); }

struct Totals {
    u64 rows, sum, exclusive;

    WJ_DEVICE_MEMBER void add(u64 hash) {
        ++rows;
        sum += hash;
        exclusive ^= hash;
    }
};

// Adds the totals of all lanes to those in memory, with one atomic a warp. All lanes call it.
WJ_DEVICE void add_totals(u64* target, Totals totals) {
    for (int distance = 16; distance > 0; distance /= 2) {
        totals.rows += __shfl_xor_sync(0xffffffffu, totals.rows, distance);
        totals.sum += __shfl_xor_sync(0xffffffffu, totals.sum, distance);
        totals.exclusive ^= __shfl_xor_sync(0xffffffffu, totals.exclusive, distance);
    }
    if ((threadIdx.x & 31) == 0) {
        atomicAdd(&target[0], totals.rows);
        atomicAdd(&target[1], totals.sum);
        atomicXor(&target[2], totals.exclusive);
    }
}

