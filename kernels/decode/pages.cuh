// Pages of a Parquet column, as the host describes them: WJ_PAGE_WORDS words each.
#pragma once
#include "common/control.cuh"
#include "decode/constants.cuh"

// The sum over the threads of the block before the caller's, and over all. All threads call it.
WJ_DEVICE u64 block_sum_before(u64 (&sums)[32], u64 value, u64& all) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    const u64 inclusive = warp_inclusive_sum(value);
    __syncthreads();
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    u64 before = inclusive - value;
    all = 0;
    for (u32 other = 0; other < warps; ++other) {
        before += other < warp ? sums[other] : 0;
        all += sums[other];
    }
    return before;
}

// 8 bytes from any address, of which up to 7 bytes behind the buffer's last ones are read too.
WJ_DEVICE u64 load_bytes(const u8* address) {
    const u64* word = reinterpret_cast<const u64*>((u64)address & ~7ULL);
    const u32 shift = ((u32)(u64)address & 7) * 8;
    if (shift == 0) return word[0];
    return word[0] >> shift | word[1] << (64 - shift);
}

// A page without compression, and where its parts are.
struct Page {
    u64 rows;
    u64 first_row;
    const u8* levels;
    u64 levels_bytes;
    const u8* values;
    u64 values_bytes;
    bool has_levels;
    bool is_damaged;
};

WJ_DEVICE Page page_of(const u64* pages, u64 number, const u8* bytes) {
    const u64* words = pages + number * WJ_PAGE_WORDS;
    const u64 page_bytes = words[WJ_PAGE_BYTES];
    const u64 form = words[WJ_PAGE_LEVELS];
    Page page = {words[WJ_PAGE_ROWS], words[WJ_PAGE_FIRST_ROW], bytes + words[WJ_PAGE_AT], 0, nullptr, 0, form != WJ_LEVELS_NONE, false};
    u64 before = 0;
    if (form == WJ_LEVELS_PREFIXED) {
        before = 4;
        page.is_damaged = page_bytes < before;
        if (!page.is_damaged) page.levels_bytes = (u32)load_bytes(page.levels);
    } else if (form != WJ_LEVELS_NONE) {
        page.levels_bytes = words[WJ_PAGE_LEVELS_BYTES];
    }
    page.is_damaged = page.is_damaged || page.levels_bytes > page_bytes - before;
    if (page.is_damaged) return page;
    page.levels += before;
    page.values = page.levels + page.levels_bytes;
    page.values_bytes = page_bytes - before - page.levels_bytes;
    return page;
}

// The values of a page: those that are not null.
WJ_DEVICE u64 values_of(const u32* counts, u64 number, const Page& page) { return counts == nullptr ? page.rows : counts[number]; }

// Runs of a hybrid encoding that a block knows at a time.
struct HybridRuns {
    // The first value of each run, and the one behind the last run.
    u32 firsts[WJ_HYBRID_RUNS + 1];
    // The value that repeats; or, with WJ_HYBRID_PACKED, where the bits begin.
    u64 contents[WJ_HYBRID_RUNS];
    u32 count;
    u32 is_damaged;
};

static_assert(sizeof(HybridRuns) == WJ_HYBRID_BYTES, "what launches ask for");

#define WJ_HYBRID_PACKED (1ULL << 63)

// A number of a run's header; false: there is none.
WJ_DEVICE bool read_varint(const u8* bytes, u64 length, u64& at, u32& value) {
    u64 all = 0;
    for (u32 shift = 0; shift < 35; shift += 7) {
        if (at >= length) return false;
        const u8 byte = bytes[at++];
        all |= (u64)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            value = (u32)all;
            return all <= 0xffffffffULL;
        }
    }
    return false;
}

// Value `index` of bits that begin at `bits`.
WJ_DEVICE u32 unpack(const u8* bits, u32 index, u32 bit_width) {
    const u64 bit = (u64)index * bit_width;
    const u8* byte = bits + (bit >> 3);
    const u32* word = reinterpret_cast<const u32*>((u64)byte & ~3ULL);
    const u32 shift = (u32)(bit & 7) + ((u32)(u64)byte & 3) * 8;
    u32 value = word[0] >> shift;
    if (shift + bit_width > 32) value |= word[1] << (32 - shift);
    return bit_width == 32 ? value : value & ((1u << bit_width) - 1);
}

// Notes the next runs. One thread calls it; `at` and `done` are its place in bytes and values.
WJ_DEVICE void find_runs(HybridRuns& runs, const u8* bytes, u64 length, u32 bit_width, u32 count, u64& at, u32& done) {
    u32 found = 0;
    runs.is_damaged = 0;
    // Each turn reads a byte at least.
    while (found < WJ_HYBRID_RUNS && done < count) {
        u32 header;
        if (!read_varint(bytes, length, at, header)) {
            runs.is_damaged = 1;
            break;
        }
        const u64 values = header & 1 ? (u64)(header >> 1) * 8 : header >> 1;
        if (values == 0) continue;
        const u32 taken = values < count - done ? (u32)values : count - done;
        const u64 left = length - at;
        u64 content, used, needed;
        if (header & 1) {
            content = WJ_HYBRID_PACKED | at;
            used = (values * bit_width) >> 3;
            // The last run may end with the last value.
            needed = ((u64)taken * bit_width + 7) >> 3;
            if (used > left) used = left;
        } else {
            content = 0;
            used = needed = (bit_width + 7) >> 3;
            for (u32 byte = 0; byte < used && byte < left; ++byte) content |= (u64)bytes[at + byte] << (byte * 8);
        }
        if (needed > left) {
            runs.is_damaged = 1;
            break;
        }
        runs.firsts[found] = done;
        runs.contents[found] = content;
        at += used;
        done += taken;
        ++found;
    }
    runs.firsts[found] = done;
    runs.count = found;
}

// Calls put(index, value) for each of `count` values of the RLE and bit-packing hybrid. All threads of the block call it;
// false, for all of them, where the bytes end too early.
template <class Put>
WJ_DEVICE bool decode_hybrid(HybridRuns& runs, const u8* bytes, u64 length, u32 bit_width, u32 count, Put put) {
    if (bit_width == 0) {
        for (u32 index = threadIdx.x; index < count; index += blockDim.x) put(index, 0u);
        return true;
    }
    const u32 lane = threadIdx.x & 31;
    const u32 warps = blockDim.x >> 5;
    u64 at = 0;
    u32 done = 0;
    for (u32 decoded = 0; decoded < count;) {
        // The runs before are decoded.
        __syncthreads();
        if (threadIdx.x == 0) find_runs(runs, bytes, length, bit_width, count, at, done);
        __syncthreads();
        if (runs.is_damaged != 0) return false;
        for (u32 run = threadIdx.x >> 5; run < runs.count; run += warps) {
            const u32 first = runs.firsts[run], end = runs.firsts[run + 1];
            const u64 content = runs.contents[run];
            const u8* bits = bytes + (content & ~WJ_HYBRID_PACKED);
            for (u32 index = first + lane; index < end; index += 32) {
                put(index, content & WJ_HYBRID_PACKED ? unpack(bits, index - first, bit_width) : (u32)content);
            }
        }
        decoded = runs.firsts[runs.count];
    }
    return true;
}

// Calls put(row, index) for the values of a page of indices of a dictionary; it returns whether there is such an entry. All
// threads of the block call it; false, where the page is damaged, or for a thread that has seen such an index.
template <class Put>
WJ_DEVICE bool for_each_index(HybridRuns& runs, const Page& page, u64 values, Put put) {
    if (page.is_damaged) return false;
    if (values == 0) return true;
    if (page.values_bytes == 0) return false;
    const u32 bit_width = page.values[0];
    if (bit_width > 32) return false;
    bool is_within = true;
    const auto checked = [&](u32 row, u32 index) { is_within = put(row, index) && is_within; };
    return decode_hybrid(runs, page.values + 1, page.values_bytes - 1, bit_width, (u32)values, checked) && is_within;
}
