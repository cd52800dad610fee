// Strings of Parquet pages: where they are, and which of them are the same.
//
// All strings of a column have a number: entries of dictionaries first, then a number for each row of plain pages.
// find_strings: where the strings of plain pages lie. The length of each stands before it, so a warp walks from one to the
// next; it brings a tile of the page into shared memory at a time.
// find_packed_strings: the same where all lengths stand before all strings, packed as differences (DELTA_LENGTH_BYTE_ARRAY).
// mark_entries: entries of dictionaries that a row has.
// intern_strings: equal strings come to the same slot of a hash table, which holds the least of their numbers.
// number_strings: codes of distinct strings, in the order of their numbers. A scan: tiles of common/scan.cuh.
// gather_strings: the bytes of distinct strings, side by side. A string a warp.
// tile_strings: where tiles of distinct strings begin, for string/strings.cu.
// code_strings_N: the codes of the strings of plain pages, N bytes each.
//
// Grid, where none is named: pages, a page a block or warp, grid stride; or strings, grid stride. Shared: find_strings has a
// StringTile a warp, number_strings a ScanShared<u128>, those that read indices HybridRuns.
#include "common/hash.cuh"
#include "common/scan.cuh"
#include "decode/delta.cuh"
#include "decode/params.cuh"  // src/decode.rs
#include "string/constants.cuh"

struct StringTile {
    u64 words[WJ_TEXT_TILE_WORDS + 1];
};

static_assert(sizeof(StringTile) == WJ_TEXT_TILE_BYTES, "what launches ask for");

WJ_ENTRY(find_strings, FindStringsParams, WJ_DECODE_THREADS) {
    StringTile& tile = reinterpret_cast<StringTile*>(&shared_as<u64>())[threadIdx.x >> 5];
    const u32 lane = threadIdx.x & 31;
    const u64 warps = (u64)gridDim.x * (blockDim.x >> 5);
    for (u64 number = ((u64)blockIdx.x * blockDim.x + threadIdx.x) >> 5; number < p.page_count; number += warps) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64 count = values_of(p.counts, number, page);
        const u64 first = p.first_string + page.first_row;
        const u64 begin = page.is_damaged ? 0 : (u64)(page.values - p.bytes);
        const u64 end = page.is_damaged ? 0 : begin + page.values_bytes;
        bool is_right = !page.is_damaged;
        u64 at = begin, found = 0;
        // Each turn finds a string at least.
        while (is_right && found < count) {
            // Where tile and words begin, in bytes and words of all pages.
            const u64 first_word = at >> 3, last_word = (end + 7) >> 3;
            __syncwarp();
            for (u32 word = lane; word <= WJ_TEXT_TILE_WORDS; word += 32) {
                const bool is_there = first_word + word < last_word;
                tile.words[word] = is_there ? reinterpret_cast<const u64*>(p.bytes)[first_word + word] : 0;
            }
            __syncwarp();
            if (lane == 0) {
                const u64 tile_end = (first_word + WJ_TEXT_TILE_WORDS) << 3;
                while (found < count && at < tile_end) {
                    const u32 length = (u32)load_bytes(reinterpret_cast<const u8*>(tile.words) + (at - (first_word << 3)));
                    is_right = at + 4 <= end && length <= end - at - 4;
                    if (!is_right) break;
                    p.starts[first + found] = at + 4;
                    p.lengths[first + found] = length;
                    at += 4 + (u64)length;
                    ++found;
                }
            }
            at = __shfl_sync(0xffffffffu, at, 0);
            found = __shfl_sync(0xffffffffu, found, 0);
            is_right = __shfl_sync(0xffffffffu, (u32)is_right, 0) != 0;
        }
        if (!is_right && lane == 0) raise_status(p.control, WJ_STATUS_DAMAGED);
    }
}

WJ_ENTRY(find_packed_strings, FindStringsParams, WJ_DECODE_THREADS) {
    Delta& delta = shared_as<Delta>();
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64 count = values_of(p.counts, number, page);
        if (count == 0 && !page.is_damaged) continue;
        u64* starts = p.starts + p.first_string + page.first_row;
        u32* lengths = p.lengths + p.first_string + page.first_row;
        u64 before = 0, end = 0;
        bool is_right = !page.is_damaged;
        const auto put = [&](u64 string, u64 length, bool is_there) {
            u64 all;
            const u64 start = before + block_sum_before(delta.sums, is_there ? (u64)(u32)length : 0, all);
            before += all;
            if (!is_there) return;
            starts[string] = start;
            lengths[string] = (u32)length;
        };
        if (is_right) is_right = decode_delta(delta, page.values, page.values_bytes, count, end, put);
        if (is_right) is_right = before <= page.values_bytes - end;
        if (is_right) {
            const u64 begin = (u64)(page.values - p.bytes) + end;
            __syncthreads();
            for (u64 string = threadIdx.x; string < count; string += blockDim.x) starts[string] += begin;
        } else {
            if (threadIdx.x == 0) raise_status(p.control, WJ_STATUS_DAMAGED);
            // Nobody reads what they would be.
            __syncthreads();
            for (u64 string = threadIdx.x; string < count; string += blockDim.x) lengths[string] = WJ_TEXT_NONE;
        }
    }
}

WJ_ENTRY(mark_entries, MarkEntriesParams, WJ_DECODE_THREADS) {
    HybridRuns& runs = shared_as<HybridRuns>();
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64* words = p.pages + number * WJ_PAGE_WORDS;
        u32* marks = p.marks + words[WJ_PAGE_DICTIONARY];
        const u64 entries = words[WJ_PAGE_ENTRIES];
        const bool is_right = for_each_index(runs, page, values_of(p.counts, number, page), [&](u32, u32 index) {
            if (index >= entries) return false;
            // Most are marked already.
            if (load_relaxed(&marks[index]) == 0) store_relaxed(&marks[index], 1u);
            return true;
        });
        if (!is_right) raise_status(p.control, WJ_STATUS_DAMAGED);
    }
}

WJ_DEVICE u64 hash_string(const u8* text, u32 length, u64 seed) {
    u64 hash = seed ^ length;
    u32 at = 0;
    for (; at + 8 <= length; at += 8) hash = hash_combine(hash, load_bytes(text + at));
    // Of the last word only what belongs to the string.
    if (at < length) hash = hash_combine(hash, load_bytes(text + at) & ((1ULL << (8 * (length - at))) - 1));
    return hash_key(hash);
}

WJ_DEVICE bool are_equal(const u8* a, const u8* b, u32 length) {
    u32 at = 0;
    for (; at + 8 <= length; at += 8) {
        if (load_bytes(a + at) != load_bytes(b + at)) return false;
    }
    return at == length || ((load_bytes(a + at) ^ load_bytes(b + at)) & ((1ULL << (8 * (length - at))) - 1)) == 0;
}

// A slot has a part of the hash, and behind it the number of its string, plus 1.
WJ_ENTRY(intern_strings, InternParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 string = (u64)blockIdx.x * blockDim.x + threadIdx.x; string < p.count; string += stride) {
        const u32 length = p.lengths[string];
        if (length == WJ_TEXT_NONE || (string < p.entry_count && p.marks[string] == 0)) {
            p.slots[string] = WJ_TEXT_NONE;
            continue;
        }
        const u8* text = p.bytes + p.starts[string];
        const u64 hash = hash_string(text, length, p.seed);
        const u64 own = (hash & ~0xffffffffULL) | (string + 1);
        const u32 mask = (u32)p.slot_mask;
        u32 slot = (u32)hash & mask;
        // At most half of the slots are taken, so a free one comes before the bound.
        bool is_placed = false;
        for (u64 probe = 0; probe <= mask; ++probe) {
            u64 known = load_relaxed(&p.table[slot]);
            if (known == 0) known = atomicCAS(&p.table[slot], 0ULL, own);
            is_placed = known == 0;
            if (is_placed) break;
            const u64 other = (known & 0xffffffffULL) - 1;
            is_placed = ((known ^ own) >> 32) == 0 && p.lengths[other] == length && are_equal(p.bytes + p.starts[other], text, length);
            if (is_placed) {
                if (own < known) atomicMin(&p.table[slot], own);
                break;
            }
            slot = (slot + 1) & mask;
        }
        if (!is_placed) raise_status(p.control, WJ_STATUS_FULL);
        p.slots[string] = slot;
    }
}

// Whether a string is the first one of those that equal it.
WJ_DEVICE bool is_first(const u32* slots, const u64* table, u64 string) {
    const u32 slot = slots[string];
    return slot != WJ_TEXT_NONE && (u32)table[slot] == (u32)(string + 1);
}

WJ_ENTRY(number_strings, NumberStringsParams, WJ_BLOCK_THREADS) {
    const ScanTiles<u128> tiles = {p.next_tile, p.states, reinterpret_cast<u128*>(p.of_tile), reinterpret_cast<u128*>(p.up_to_tile), p.control};
    // Distinct strings so far, and below them their bytes.
    const auto value_at = [&](u64 string, u32) {
        return is_first(p.slots, p.table, string) ? (u128)1 << 64 | p.lengths[string] : (u128)0;
    };
    const auto put = [&](u64 string, u32, u128 sum) {
        const u64 distinct = (u64)(sum >> 64);
        if (is_first(p.slots, p.table, string)) {
            p.codes[string] = (u32)distinct - 1;
            p.firsts[distinct - 1] = (u32)string;
            p.ends[distinct] = (u64)sum;
        }
        if (string + 1 == p.count) p.control[WJ_CONTROL_ROWS] = distinct;
    };
    scan_tile<AddOf<u128>>(tiles, p.count, value_at, [](u64) { return false; }, put);
}

WJ_ENTRY(gather_strings, GatherStringsParams, WJ_BLOCK_THREADS) {
    const u32 lane = threadIdx.x & 31;
    const u64 warps = (u64)gridDim.x * (blockDim.x >> 5);
    for (u64 code = ((u64)blockIdx.x * blockDim.x + threadIdx.x) >> 5; code < p.distinct; code += warps) {
        const u8* text = p.bytes + p.starts[p.firsts[code]];
        const u64 begin = p.ends[code], length = p.ends[code + 1] - begin;
        for (u64 byte = lane; byte < length; byte += 32) p.target[begin + byte] = text[byte];
    }
}

WJ_ENTRY(tile_strings, TileStringsParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 code = (u64)blockIdx.x * blockDim.x + threadIdx.x; code < p.distinct; code += stride) {
        const u64 tile = code / WJ_STRING_TILE, start = p.ends[tile * WJ_STRING_TILE];
        p.tile_ends[code] = (u32)(p.ends[code + 1] - start);
        if (code % WJ_STRING_TILE == 0) p.tile_starts[tile] = start;
        if (code + 1 == p.distinct) p.tile_starts[tile + 1] = p.ends[code + 1];
    }
}

template <class T>
WJ_DEVICE void code_strings(const CodeStringsParams& p) {
    for (u64 number = blockIdx.x; number < p.page_count; number += gridDim.x) {
        const Page page = page_of(p.pages, number, p.bytes);
        const u64 count = values_of(p.counts, number, page);
        const u64 first = p.first_string + page.first_row;
        T* target = reinterpret_cast<T*>(p.target) + page.first_row;
        for (u64 value = threadIdx.x; value < count; value += blockDim.x) {
            const u32 slot = p.slots[first + value];
            u32 code = 0;
            // Entries that no row has, and strings of damaged pages, have none.
            if (slot != WJ_TEXT_NONE) code = p.codes[(u32)p.table[slot] - 1];
            target[value] = (T)(p.ranks == nullptr ? code : p.ranks[code]);
        }
    }
}

WJ_ENTRY(code_strings_1, CodeStringsParams, WJ_DECODE_THREADS) { code_strings<u8>(p); }
WJ_ENTRY(code_strings_2, CodeStringsParams, WJ_DECODE_THREADS) { code_strings<u16>(p); }
WJ_ENTRY(code_strings_4, CodeStringsParams, WJ_DECODE_THREADS) { code_strings<u32>(p); }
