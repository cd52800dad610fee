// Numbers that are packed as differences from the one before (DELTA_BINARY_PACKED).
#pragma once
#include "decode/pages.cuh"

// What a block knows of the numbers that it decodes.
struct Delta {
    u64 sums[32];
    u64 at;           // where the next block of differences begins
    u64 data;         // where those of this one begin
    u64 least;        // what is added to each of them
    u64 value;        // the last number so far
    u64 block_values;
    u64 miniblock_values;
    u32 miniblocks;
    u32 is_damaged;
};
static_assert(sizeof(Delta) <= WJ_HYBRID_BYTES, "what launches ask for");

// Blocks and miniblocks of more values are not written by anybody.
#define WJ_DELTA_BLOCK_MAX (1u << 20)
#define WJ_DELTA_MINIBLOCKS_MAX 1024

WJ_DEVICE bool read_long_varint(const u8* bytes, u64 length, u64& at, u64& value) {
    value = 0;
    for (u32 shift = 0; shift < 70; shift += 7) {
        if (at >= length) return false;
        const u8 byte = bytes[at++];
        value |= (u64)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) return true;
    }
    return false;
}

WJ_DEVICE bool read_zigzag(const u8* bytes, u64 length, u64& at, u64& value) {
    u64 folded;
    if (!read_long_varint(bytes, length, at, folded)) return false;
    value = (folded >> 1) ^ (0 - (folded & 1));
    return true;
}

// `bit_width` bits of 0 to 64 from a bit on.
WJ_DEVICE u64 unpack_long(const u8* bits, u64 bit, u32 bit_width) {
    if (bit_width == 0) return 0;
    const u8* byte = bits + (bit >> 3);
    const u32 shift = (u32)(bit & 7);
    u64 value = load_bytes(byte) >> shift;
    if (shift + bit_width > 64) value |= (u64)byte[8] << (64 - shift);
    return bit_width == 64 ? value : value & ((1ULL << bit_width) - 1);
}

// One thread reads what stands before all blocks.
WJ_DEVICE bool begin_delta(Delta& delta, const u8* bytes, u64 length, u64 count) {
    u64 miniblocks, total;
    delta.at = 0;
    if (!read_long_varint(bytes, length, delta.at, delta.block_values) || !read_long_varint(bytes, length, delta.at, miniblocks)
        || !read_long_varint(bytes, length, delta.at, total) || !read_zigzag(bytes, length, delta.at, delta.value)) {
        return false;
    }
    if (miniblocks == 0 || miniblocks > WJ_DELTA_MINIBLOCKS_MAX || delta.block_values > WJ_DELTA_BLOCK_MAX) return false;
    if (delta.block_values % 128 != 0 || delta.block_values % miniblocks != 0) return false;
    delta.miniblocks = (u32)miniblocks;
    delta.miniblock_values = delta.block_values / miniblocks;
    return delta.miniblock_values % 32 == 0 && delta.miniblock_values > 0 && total == count;
}

// Decodes `count` numbers of 64 bits. All threads of the block call put(number, value, is_there) as often as each other, with
// ascending numbers. False, for all of them, where the bytes are damaged; else `end` is behind the last byte.
template <class Put>
WJ_DEVICE bool decode_delta(Delta& delta, const u8* bytes, u64 length, u64 count, u64& end, Put put) {
    __syncthreads();
    if (threadIdx.x == 0) delta.is_damaged = !begin_delta(delta, bytes, length, count);
    __syncthreads();
    if (delta.is_damaged != 0) return false;
    put(0, delta.value, threadIdx.x == 0 && count > 0);
    for (u64 done = 1; done < count;) {
        // What is known of the block before is read.
        __syncthreads();
        if (threadIdx.x == 0) {
            u64 at = delta.at;
            bool is_right = read_zigzag(bytes, length, at, delta.least) && delta.miniblocks <= length - at;
            if (is_right) {
                const u8* widths = bytes + at;
                at += delta.miniblocks;
                delta.data = at;
                // Miniblocks without a value have no bits.
                const u64 left = count - done;
                for (u32 miniblock = 0; miniblock < delta.miniblocks && miniblock * delta.miniblock_values < left; ++miniblock) {
                    at += delta.miniblock_values / 8 * widths[miniblock];
                    is_right = is_right && widths[miniblock] <= 64;
                }
                is_right = is_right && at <= length;
                delta.at = at;
            }
            delta.is_damaged = !is_right;
        }
        __syncthreads();
        if (delta.is_damaged != 0) return false;
        const u8* widths = bytes + delta.data - delta.miniblocks;
        const u64 values = delta.block_values < count - done ? delta.block_values : count - done;
        u64 before = delta.value;
        for (u64 first = 0; first < values; first += blockDim.x) {
            const u64 place = first + threadIdx.x;
            u64 difference = 0;
            if (place < values) {
                const u32 miniblock = (u32)(place / delta.miniblock_values);
                u64 at = delta.data;
                for (u32 other = 0; other < miniblock; ++other) at += delta.miniblock_values / 8 * widths[other];
                const u32 width = widths[miniblock];
                difference = delta.least + unpack_long(bytes + at, place % delta.miniblock_values * width, width);
            }
            u64 all;
            const u64 sum = block_sum_before(delta.sums, difference, all) + difference;
            put(done + place, before + sum, place < values);
            before += all;
        }
        // All threads have read the value before: block_sum_before has a barrier.
        if (threadIdx.x == 0) delta.value = before;
        done += values;
    }
    end = delta.at;
    return true;
}
