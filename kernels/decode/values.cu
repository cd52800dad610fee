// Decodes pages of Parquet columns into the layout of tables.
//
// decode_levels: definition levels of 0 and 1 to a byte a row (0: null), and the number of values of each page.
// decode_plain_N: values stored one after the other, less the column's base, to N bytes each. Decodes dictionaries, too.
// decode_split_N: the same of values whose first bytes stand together, then their second ones, and so on (BYTE_STREAM_SPLIT).
// decode_delta_N: the same of integers that are packed as differences.
// decode_bits: values of a bit each to a byte each.
// decode_indices_N: indices of a dictionary to its entries of N bytes.
// spread_N: values of a page, which lie side by side from its first row on, to the rows that are not null; 0 elsewhere.
//
// Output of a page begins at its first row; values come side by side from there.
// Grid: a page a block, grid stride. Shared: HybridRuns or Delta, WJ_HYBRID_BYTES.
#include "decode/delta.cuh"
#include "decode/params.cuh"  // src/decode.rs

WJ_ENTRY(decode_levels, LevelsParams, WJ_DECODE_THREADS) {
    HybridRuns& runs = shared_as<HybridRuns>();
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        u8* valid = p.validity + page.first_row;
        u32 count = 0;
        const auto put = [&](u32 row, u32 level) {
            valid[row] = (u8)(level != 0);
            count += level != 0;
        };
        bool is_right = !page.is_damaged;
        if (is_right && page.has_levels) {
            is_right = decode_hybrid(runs, page.levels, page.levels_bytes, 1, (u32)page.rows, put);
        } else if (is_right) {
            for (u64 row = threadIdx.x; row < page.rows; row += blockDim.x) put((u32)row, 1);
        }
        if (!is_right) {
            if (threadIdx.x == 0) raise_status(p.control, WJ_STATUS_DAMAGED);
            count = 0;
        }
        // The sum over the block, in the words of its runs.
        __syncthreads();
        if (threadIdx.x == 0) runs.count = 0;
        __syncthreads();
        if (count != 0) atomicAdd(&runs.count, count);
        __syncthreads();
        if (threadIdx.x == 0) p.counts[number] = runs.count;
    }
}

// An integer of 4 or 8 bytes.
WJ_DEVICE i64 load_integer(const u8* address, u32 bytes, bool is_signed) {
    const u64 raw = load_bytes(address);
    if (bytes == 8) return (i64)raw;
    return is_signed ? (i64)(i32)(u32)raw : (i64)(u32)raw;
}

// An integer of up to 16 bytes, the highest one first.
WJ_DEVICE i128 load_big_endian(const u8* address, u32 bytes) {
    u128 value = (address[0] & 0x80) != 0 ? ~(u128)0 : 0;
    for (u32 byte = 0; byte < bytes; ++byte) value = value << 8 | address[byte];
    return (i128)value;
}

// A moment of 12 bytes, in nanoseconds since 1970. Damaged ones may have any value.
WJ_DEVICE i128 load_int96(const u8* address) {
    const i64 day = (i64)(u32)load_bytes(address + 8) - 2440588;
    return (i128)day * 86400000000000LL + (i64)load_bytes(address);
}

// Whether all values are within the column's bounds.
template <class T>
WJ_DEVICE bool decode_plain(const PlainParams& p, const Page& page, u64 values) {
    T* target = reinterpret_cast<T*>(p.target) + page.first_row;
    const u32 bytes = (u32)p.value_bytes;
    bool is_within = true;
    if (p.kind == WJ_VALUES_BIG_ENDIAN || p.kind == WJ_VALUES_INT96 || sizeof(T) == 16) {
        const i128 base = (i128)((u128)p.base_high << 64 | p.base_low);
        const u128 span = (u128)p.span_high << 64 | p.span_low;
        for (u64 row = threadIdx.x; row < values; row += blockDim.x) {
            const u8* address = page.values + row * bytes;
            const i128 value = p.kind == WJ_VALUES_INT96      ? load_int96(address)
                : p.kind == WJ_VALUES_BIG_ENDIAN              ? load_big_endian(address, bytes)
                : p.kind == WJ_VALUES_SIGNED || bytes == 4    ? (i128)load_integer(address, bytes, p.kind == WJ_VALUES_SIGNED)
                                                              : (i128)load_bytes(address);
            const u128 stored = (u128)value - (u128)base;
            is_within = is_within && stored <= span;
            // Values of 16 bytes are stored as they are.
            target[row] = sizeof(T) == 16 ? (T)value : (T)stored;
        }
        return is_within;
    }
    for (u64 row = threadIdx.x; row < values; row += blockDim.x) {
        const u64 stored = (u64)load_integer(page.values + row * bytes, bytes, p.kind == WJ_VALUES_SIGNED) - p.base_low;
        is_within = is_within && stored <= p.span_low;
        target[row] = (T)stored;
    }
    return is_within;
}

template <class T>
WJ_DEVICE void decode_plain_pages(const PlainParams& p) {
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64 values = values_of(p.counts, number, page);
        bool is_right = !page.is_damaged && values <= page.values_bytes / p.value_bytes;
        if (is_right) is_right = decode_plain<T>(p, page, values);
        if (!is_right) raise_status(p.control, WJ_STATUS_DAMAGED);
    }
}

WJ_ENTRY(decode_plain_1, PlainParams, WJ_DECODE_THREADS) { decode_plain_pages<u8>(p); }
WJ_ENTRY(decode_plain_2, PlainParams, WJ_DECODE_THREADS) { decode_plain_pages<u16>(p); }
WJ_ENTRY(decode_plain_4, PlainParams, WJ_DECODE_THREADS) { decode_plain_pages<u32>(p); }
WJ_ENTRY(decode_plain_8, PlainParams, WJ_DECODE_THREADS) { decode_plain_pages<u64>(p); }
WJ_ENTRY(decode_plain_16, PlainParams, WJ_DECODE_THREADS) { decode_plain_pages<u128>(p); }

// The bytes of a value, the lowest one in the lowest bits; page.values has all first bytes, then all second ones.
WJ_DEVICE u128 gather_value(const Page& page, u64 row, u64 values, u32 bytes) {
    u128 value = 0;
    for (u32 byte = 0; byte < bytes; ++byte) value |= (u128)page.values[byte * values + row] << (byte * 8);
    return value;
}

// Writes values less the column's base; false for a thread that has seen one beyond its bounds.
template <class T>
WJ_DEVICE bool put_value(const PlainParams& p, const Page& page, u64 row, i128 value) {
    const i128 base = (i128)((u128)p.base_high << 64 | p.base_low);
    const u128 stored = (u128)value - (u128)base;
    reinterpret_cast<T*>(p.target)[page.first_row + row] = sizeof(T) == 16 ? (T)value : (T)stored;
    return stored <= ((u128)p.span_high << 64 | p.span_low);
}

template <class T>
WJ_DEVICE void decode_split_pages(const PlainParams& p) {
    const u32 bytes = (u32)p.value_bytes;
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64 values = values_of(p.counts, number, page);
        bool is_right = !page.is_damaged && values * bytes == page.values_bytes;
        for (u64 row = threadIdx.x; is_right && row < values; row += blockDim.x) {
            u128 raw = gather_value(page, row, values, bytes);
            i128 value = (i128)raw;
            if (p.kind == WJ_VALUES_BIG_ENDIAN) {
                value = (raw & 0x80) != 0 ? -1 : 0;
                for (u32 byte = 0; byte < bytes; ++byte, raw >>= 8) value = (i128)((u128)value << 8 | (raw & 0xff));
            } else if (p.kind == WJ_VALUES_SIGNED) {
                value = bytes == 4 ? (i128)(i32)(u32)raw : (i128)(i64)(u64)raw;
            }
            is_right = put_value<T>(p, page, row, value);
        }
        if (!is_right) raise_status(p.control, WJ_STATUS_DAMAGED);
    }
}

WJ_ENTRY(decode_split_1, PlainParams, WJ_DECODE_THREADS) { decode_split_pages<u8>(p); }
WJ_ENTRY(decode_split_2, PlainParams, WJ_DECODE_THREADS) { decode_split_pages<u16>(p); }
WJ_ENTRY(decode_split_4, PlainParams, WJ_DECODE_THREADS) { decode_split_pages<u32>(p); }
WJ_ENTRY(decode_split_8, PlainParams, WJ_DECODE_THREADS) { decode_split_pages<u64>(p); }
WJ_ENTRY(decode_split_16, PlainParams, WJ_DECODE_THREADS) { decode_split_pages<u128>(p); }

template <class T>
WJ_DEVICE void decode_delta_pages(const PlainParams& p) {
    Delta& delta = shared_as<Delta>();
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64 values = values_of(p.counts, number, page);
        bool is_right = !page.is_damaged, is_within = true;
        const auto put = [&](u64 row, u64 value, bool is_there) {
            if (!is_there) return;
            const bool is_signed = p.kind == WJ_VALUES_SIGNED;
            const i128 wide = p.value_bytes == 8 ? (is_signed ? (i128)(i64)value : (i128)value)
                                                 : (is_signed ? (i128)(i32)(u32)value : (i128)(u32)value);
            is_within = put_value<T>(p, page, row, wide) && is_within;
        };
        u64 end;
        if (is_right && values > 0) is_right = decode_delta(delta, page.values, page.values_bytes, values, end, put);
        if (!is_right || !is_within) raise_status(p.control, WJ_STATUS_DAMAGED);
    }
}

WJ_ENTRY(decode_delta_1, PlainParams, WJ_DECODE_THREADS) { decode_delta_pages<u8>(p); }
WJ_ENTRY(decode_delta_2, PlainParams, WJ_DECODE_THREADS) { decode_delta_pages<u16>(p); }
WJ_ENTRY(decode_delta_4, PlainParams, WJ_DECODE_THREADS) { decode_delta_pages<u32>(p); }
WJ_ENTRY(decode_delta_8, PlainParams, WJ_DECODE_THREADS) { decode_delta_pages<u64>(p); }
WJ_ENTRY(decode_delta_16, PlainParams, WJ_DECODE_THREADS) { decode_delta_pages<u128>(p); }

WJ_ENTRY(decode_bits, BitsParams, WJ_DECODE_THREADS) {
    HybridRuns& runs = shared_as<HybridRuns>();
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64 values = values_of(p.counts, number, page);
        u8* target = p.target + page.first_row;
        bool is_right = !page.is_damaged;
        if (is_right && p.is_hybrid) {
            // The length of the runs comes first.
            const u64 length = page.values_bytes < 4 ? 0 : (u32)load_bytes(page.values);
            is_right = values == 0 || (page.values_bytes >= 4 && length <= page.values_bytes - 4);
            bool is_within = true;
            const auto put = [&](u32 row, u32 bit) {
                target[row] = (u8)bit;
                is_within = is_within && bit <= 1;
            };
            if (is_right) is_right = decode_hybrid(runs, page.values + 4, length, 1, (u32)values, put) && is_within;
        } else if (is_right) {
            is_right = (values + 7) / 8 <= page.values_bytes;
            for (u64 row = threadIdx.x; is_right && row < values; row += blockDim.x) {
                target[row] = page.values[row >> 3] >> (row & 7) & 1;
            }
        }
        if (!is_right) raise_status(p.control, WJ_STATUS_DAMAGED);
    }
}

template <class T>
WJ_DEVICE void decode_indices(const IndicesParams& p) {
    HybridRuns& runs = shared_as<HybridRuns>();
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64 values = values_of(p.counts, number, page);
        const u64* words = p.pages + number * WJ_PAGE_WORDS;
        const T* entries = reinterpret_cast<const T*>(p.dictionary) + words[WJ_PAGE_DICTIONARY];
        const u64 entry_count = words[WJ_PAGE_ENTRIES];
        T* target = reinterpret_cast<T*>(p.target) + page.first_row;
        const bool is_right = for_each_index(runs, page, values, [&](u32 row, u32 index) {
            if (index >= entry_count) return false;
            target[row] = entries[index];
            return true;
        });
        if (!is_right) raise_status(p.control, WJ_STATUS_DAMAGED);
    }
}

WJ_ENTRY(decode_indices_1, IndicesParams, WJ_DECODE_THREADS) { decode_indices<u8>(p); }
WJ_ENTRY(decode_indices_2, IndicesParams, WJ_DECODE_THREADS) { decode_indices<u16>(p); }
WJ_ENTRY(decode_indices_4, IndicesParams, WJ_DECODE_THREADS) { decode_indices<u32>(p); }
WJ_ENTRY(decode_indices_8, IndicesParams, WJ_DECODE_THREADS) { decode_indices<u64>(p); }
WJ_ENTRY(decode_indices_16, IndicesParams, WJ_DECODE_THREADS) { decode_indices<u128>(p); }

template <class T>
WJ_DEVICE void spread(const SpreadParams& p) {
    // Values of each warp's rows of a tile.
    u32* const sums = shared_as<HybridRuns>().firsts;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const u64* words = p.pages + number * WJ_PAGE_WORDS;
        const u64 rows = words[WJ_PAGE_ROWS], first = words[WJ_PAGE_FIRST_ROW];
        const u8* valid = p.validity + first;
        const T* values = reinterpret_cast<const T*>(p.values) + first;
        T* target = reinterpret_cast<T*>(p.target) + first;
        u64 before = 0;
        for (u64 tile = 0; tile < rows; tile += blockDim.x) {
            const u64 row = tile + threadIdx.x;
            const bool is_valid = row < rows && valid[row] != 0;
            const u32 ballot = __ballot_sync(0xffffffffu, is_valid);
            __syncthreads();
            if (lane == 0) sums[warp] = __popc(ballot);
            __syncthreads();
            u32 ahead = 0, total = 0;
            for (u32 other = 0; other < warps; ++other) {
                ahead += other < warp ? sums[other] : 0;
                total += sums[other];
            }
            const u64 place = before + ahead + __popc(ballot & ((1u << lane) - 1));
            if (row < rows) target[row] = is_valid ? values[place] : (T)0;
            before += total;
        }
    }
}

WJ_ENTRY(spread_1, SpreadParams, WJ_DECODE_THREADS) { spread<u8>(p); }
WJ_ENTRY(spread_2, SpreadParams, WJ_DECODE_THREADS) { spread<u16>(p); }
WJ_ENTRY(spread_4, SpreadParams, WJ_DECODE_THREADS) { spread<u32>(p); }
WJ_ENTRY(spread_8, SpreadParams, WJ_DECODE_THREADS) { spread<u64>(p); }
WJ_ENTRY(spread_16, SpreadParams, WJ_DECODE_THREADS) { spread<u128>(p); }
