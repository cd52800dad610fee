// Decompresses pages of Parquet columns.
//
// decompress_snappy: a page a warp. The first WJ_PAGE_RAW_BYTES of a page are not compressed.
// Grid: a warp a page, grid stride. Shared: SnappyElements for each warp, less than WJ_HYBRID_BYTES.
#include "decode/pages.cuh"
#include "decode/params.cuh"  // src/decode.rs

// Copies bytes that were there before the launch. The lanes of a warp call it.
WJ_DEVICE void copy_literal(u8* target, const u8* source, u64 length) {
    const u32 lane = threadIdx.x & 31;
    if (length < 64) {
        for (u64 at = lane; at < length; at += 32) target[at] = source[at];
        return;
    }
    // Whole words of the target, and the bytes around them.
    const u64 head = (8 - ((u64)target & 7)) & 7;
    const u64 words = (length - head) >> 3;
    const u64 tail = head + words * 8;
    if (lane < head) target[lane] = source[lane];
    if (lane < length - tail) target[tail + lane] = source[tail + lane];
    u64* target_words = reinterpret_cast<u64*>(target + head);
    for (u64 word = lane; word < words; word += 32) target_words[word] = load_bytes(source + head + word * 8);
}

// Elements that a warp reads at once.
struct SnappyElements {
    // The first byte that each puts out, from the first one of all on.
    u32 firsts[16];
    // How far back its bytes are; or, with WJ_LITERAL, where they are among the bytes that are read.
    u32 origins[16];
};
static_assert(sizeof(SnappyElements) * (WJ_DECODE_THREADS / 32) <= WJ_HYBRID_BYTES, "what launches ask for");

#define WJ_LITERAL (1u << 31)
// Longer literals are copied by themselves.
#define WJ_LITERAL_MAX 64

// The element whose output has a byte.
WJ_DEVICE u32 element_of(const SnappyElements& elements, u32 count, u32 byte) {
    u32 first = 0, end = count;
    while (end - first > 1) {
        const u32 middle = (first + end) >> 1;
        if (elements.firsts[middle] <= byte) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return first;
}

// An element, if one begins with these bytes.
struct SnappyElement {
    u32 count;  // bytes that it puts out
    u32 used;   // bytes of its tag
    u32 distance;
    bool is_literal;
};

WJ_DEVICE SnappyElement element_at(u64 bytes) {
    const u32 tag = (u32)bytes & 0xff, argument = (u32)(bytes >> 8);
    if ((tag & 3) == 0) {
        const u32 more = tag >> 2 < 60 ? 0 : (tag >> 2) - 59;
        const u32 length = more == 0 ? tag >> 2 : argument & (0xffffffffu >> (32 - more * 8));
        // One of 2^32 bytes is longer than any page.
        return {length + (length != 0xffffffffu), 1 + more, 0, true};
    }
    if ((tag & 3) == 1) return {((tag >> 2) & 7) + 4, 2, (tag >> 5) << 8 | (argument & 0xff), false};
    if ((tag & 3) == 2) return {(tag >> 2) + 1, 3, argument & 0xffff, false};
    return {(tag >> 2) + 1, 5, argument, false};
}

// Whether the bytes are `length` compressed ones. The lanes of a warp call it.
//
// Each lane looks at one of 32 bytes as if an element began there. Those where one does are found by jumps of 1, 2, 4 and 8
// elements; an element takes two bytes at least. Then each lane puts out bytes of any of them, and follows copies of what
// the same elements put out to where their bytes come from.
WJ_DEVICE bool decompress(SnappyElements& elements, u8* target, u64 length, const u8* source, u64 source_bytes) {
    const u32 lane = threadIdx.x & 31;
    u64 at = 0, out = 0;
    u32 declared;
    if (!read_varint(source, source_bytes, at, declared) || declared != length) return false;
    // Each turn reads an element at least.
    while (at < source_bytes) {
        const u64 left = source_bytes - at;
        const SnappyElement own = element_at(lane < left ? load_bytes(source + at + lane) : 0);
        const u64 end = (u64)lane + own.used + (own.is_literal ? own.count : 0);
        u32 begins = lane < left ? 1u << lane : 0, next = end < 32 ? (u32)end : 32;
WJ_UNROLL
        for (u32 jump = 0; jump < 4; ++jump) {
            const u32 behind = __shfl_sync(0xffffffffu, begins, next & 31);
            const u32 further = __shfl_sync(0xffffffffu, next, next & 31);
            if (next < 32) {
                begins |= behind;
                next = further;
            }
        }
        begins = __shfl_sync(0xffffffffu, begins, 0);
        const bool is_long = own.is_literal && own.count > WJ_LITERAL_MAX;
        const u32 longs = __ballot_sync(0xffffffffu, is_long && (begins >> lane & 1) != 0);
        if ((longs & 1) != 0) {
            const u64 count = __shfl_sync(0xffffffffu, own.count, 0);
            const u32 used = __shfl_sync(0xffffffffu, own.used, 0);
            if (used > left || count > left - used || count > length - out) return false;
            copy_literal(target + out, source + at + used, count);
            at += used + count;
            out += count;
            continue;
        }
        if (longs != 0) begins &= (1u << (__ffs(longs) - 1)) - 1;
        const bool is_begin = (begins >> lane & 1) != 0;
        const u32 behind = warp_inclusive_sum(is_begin ? own.count : 0);
        const u32 first = behind - (is_begin ? own.count : 0);
        const bool is_right = end <= left && behind <= length - out
            && (own.is_literal || (own.distance != 0 && own.distance <= out + first));
        if (__any_sync(0xffffffffu, is_begin && !is_right)) return false;
        // The elements before are put out: no lane reads them any more, and what they put out is there.
        __syncwarp();
        if (is_begin) {
            const u32 number = __popc(begins & ((1u << lane) - 1));
            elements.firsts[number] = first;
            elements.origins[number] = own.is_literal ? WJ_LITERAL | (lane + own.used) : own.distance;
        }
        __syncwarp();
        const u32 count = __popc(begins);
        const u32 all = __shfl_sync(0xffffffffu, behind, 31);
        for (u32 byte = lane; byte < all; byte += 32) {
            u8 value = 0;
            u32 place = byte;
            // Each turn comes to an element before.
            for (u32 turn = 0; turn < 16; ++turn) {
                const u32 number = element_of(elements, count, place);
                const u32 origin = elements.origins[number], begin = elements.firsts[number];
                u32 within = place - begin;
                if ((origin & WJ_LITERAL) != 0) {
                    value = source[at + (origin & ~WJ_LITERAL) + within];
                    break;
                }
                // A copy that is longer than its distance repeats itself.
                if (within >= origin) within %= origin;
                if (begin + within < origin) {
                    value = target[out + begin + within - origin];
                    break;
                }
                place = begin + within - origin;
            }
            target[out + byte] = value;
        }
        at += __shfl_sync(0xffffffffu, (u32)end, 31 - __clz(begins));
        out += all;
    }
    return out == length;
}

WJ_ENTRY(decompress_snappy, DecompressParams, WJ_DECODE_THREADS) {
    SnappyElements& elements = reinterpret_cast<SnappyElements*>(&shared_as<u64>())[threadIdx.x >> 5];
    const u64 warps = (u64)gridDim.x * (blockDim.x >> 5);
    for (u64 number = ((u64)blockIdx.x * blockDim.x + threadIdx.x) >> 5; number < p.page_count; number += warps) {
        const u64* page = p.pages + number * WJ_PAGE_WORDS;
        const u8* source = p.source + page[WJ_PAGE_SOURCE_AT];
        u8* target = p.target + page[WJ_PAGE_AT];
        const u64 source_bytes = page[WJ_PAGE_SOURCE_BYTES], length = page[WJ_PAGE_BYTES], raw = page[WJ_PAGE_RAW_BYTES];
        copy_literal(target, source, raw);
        const bool is_whole = raw == length && raw == source_bytes;
        if (!is_whole && !decompress(elements, target + raw, length - raw, source + raw, source_bytes - raw)) {
            if ((threadIdx.x & 31) == 0) raise_status(p.control, WJ_STATUS_DAMAGED);
        }
    }
}
