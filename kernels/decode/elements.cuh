// Decompression by elements, each of which puts out bytes of the source, or bytes that were put out before.
//
// A block reads a tile of the source at a time. Each thread looks at some of its bytes as if an element began there, and notes
// where the next one would begin. Those where one really begins are found by jumps of 1, 2, 4, ... elements from the first.
// Then the block puts out a window of bytes at a time. Each thread finds out where some of them come from: from the source,
// from before the window, or from another byte of the window. The latter are followed by jumps that double, too.
#pragma once
#include "decode/pages.cuh"

// The longest run of source bytes that is put out with other elements.
#define WJ_LITERAL_MAX 512
#define WJ_LITERAL (1u << 31)
#define WJ_BEFORE (1u << 30)
// Bytes of a tile, and of a window, that a thread looks at. Its bytes are blockDim.x apart, unless their order matters.
#define WJ_ELEMENTS_ITEMS 16
// An element has two bytes at least.
#define WJ_ELEMENTS_MAX (WJ_ELEMENTS_TILE / 2)

struct Elements {
    u64 words[WJ_ELEMENTS_TILE / 8 + 2];
    // The first byte that each puts out, from the first one of all on; and behind the last.
    u32 firsts[WJ_ELEMENTS_MAX + 1];
    // How far back its bytes are; or, with WJ_LITERAL, where they are in the tile.
    u32 origins[WJ_ELEMENTS_MAX];
    union {
        struct {
            // Where the element after some others begins, and the same for twice as many.
            u16 jumps[2][WJ_ELEMENTS_TILE];
            u64 marks[WJ_ELEMENTS_TILE / 8];  // a byte each
        };
        struct {
            u64 window[WJ_ELEMENTS_TILE / 8 + 1];
            // Where each byte of the window comes from, at from_place: a byte of the window, itself once it is there; with
            // WJ_LITERAL, a byte of the tile; with WJ_BEFORE, so many bytes before the window.
            u32 from[WJ_ELEMENTS_TILE + WJ_ELEMENTS_TILE / WJ_ELEMENTS_ITEMS];
        };
    };
    u64 sums[32];
    u32 first_long;
    u32 end;
};

static_assert(sizeof(Elements) == WJ_ELEMENTS_BYTES, "what launches ask for");

// An element, if one begins with some bytes.
struct Element {
    u32 count;  // bytes that it puts out
    u32 used;   // bytes in front of the first byte of a literal
    u32 distance;
    bool is_literal;

    // Bytes of the source.
    WJ_DEVICE_MEMBER u64 bytes() const { return used + (is_literal ? (u64)count : 0); }
};

// Copies bytes that lie still. All threads of the block call it.
WJ_DEVICE void copy_bytes(u8* target, const u8* source, u64 length) {
    // Whole words of the target, and the bytes around them.
    const u64 to_word = (8 - ((u64)target & 7)) & 7;
    const u64 head = to_word < length ? to_word : length;
    const u64 words = (length - head) >> 3;
    const u64 tail = head + words * 8;
    if (threadIdx.x < head) target[threadIdx.x] = source[threadIdx.x];
    if (threadIdx.x < length - tail) target[tail + threadIdx.x] = source[tail + threadIdx.x];
    u64* target_words = reinterpret_cast<u64*>(target + head);
    for (u64 word = threadIdx.x; word < words; word += blockDim.x) target_words[word] = load_bytes(source + head + word * 8);
}

// So that neighbouring threads, each with neighbouring bytes, write to different banks.
WJ_DEVICE u32 from_place(u32 byte) { return byte + byte / WJ_ELEMENTS_ITEMS; }

// Notes where the bytes of a window come from, which begins `begin` bytes behind the first one of `count` elements.
WJ_DEVICE void find_origins(Elements& shared, u32 count, u32 begin, u32 length) {
    const u32 first = threadIdx.x * WJ_ELEMENTS_ITEMS;
    if (first >= length) return;
    // The element that puts out the first byte of the thread.
    u32 element = 0, behind = count;
    while (behind - element > 1) {
        const u32 middle = (element + behind) >> 1;
        if (shared.firsts[middle] <= begin + first) {
            element = middle;
        } else {
            behind = middle;
        }
    }
    u32 start = shared.firsts[element], end = shared.firsts[element + 1], origin = shared.origins[element];
    for (u32 byte = first; byte < first + WJ_ELEMENTS_ITEMS && byte < length; ++byte) {
        while (end <= begin + byte) {
            ++element;
            start = end;
            end = shared.firsts[element + 1];
            origin = shared.origins[element];
        }
        u32 within = begin + byte - start, from;
        if ((origin & WJ_LITERAL) != 0) {
            from = origin + within;
        } else {
            // A copy that is longer than its distance repeats itself.
            if (within >= origin) within %= origin;
            const i64 place = (i64)start + within - origin - begin;
            from = place < 0 ? WJ_BEFORE | (u32)-place : (u32)place;
        }
        shared.from[from_place(byte)] = from;
    }
}

// Puts out the bytes of `count` elements, of which the first begins at source byte `at` and puts out byte `out`.
WJ_DEVICE void put_out(Elements& shared, u32 count, const u8* source, u64 at, u8* target, u64 out) {
    const u32 all = shared.firsts[count];
    const u32 window_bytes = blockDim.x * WJ_ELEMENTS_ITEMS;
    u8* const window = reinterpret_cast<u8*>(shared.window);
    for (u32 begin = 0; begin < all; begin += window_bytes) {
        const u32 length = all - begin < window_bytes ? all - begin : window_bytes;
        // The window before is put out, or marks and jumps are of no more use.
        __syncthreads();
        find_origins(shared, count, begin, length);
        __syncthreads();
        // Bytes of the source, and from before the window: all are asked for before one is waited for.
        const u8* before = target + out + begin;
        u32 open = 0;
        u8 values[WJ_ELEMENTS_ITEMS];
WJ_UNROLL
        for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
            const u32 byte = item * blockDim.x + threadIdx.x;
            if (byte >= length) continue;
            const u32 from = shared.from[from_place(byte)];
            if ((from & (WJ_LITERAL | WJ_BEFORE)) == 0) {
                open |= 1u << item;
            } else {
                const u8* address = (from & WJ_LITERAL) != 0 ? source + at + (from & ~WJ_LITERAL) : before - (from & ~WJ_BEFORE);
                values[item] = *address;
            }
        }
WJ_UNROLL
        for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
            const u32 byte = item * blockDim.x + threadIdx.x;
            if (byte >= length || (open >> item & 1) != 0) continue;
            window[byte] = values[item];
            shared.from[from_place(byte)] = byte;
        }
        // Each turn comes twice as far.
        while (__syncthreads_or(open != 0) != 0) {
            u32 further[WJ_ELEMENTS_ITEMS];
            u32 found = 0;
WJ_UNROLL
            for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
                if ((open >> item & 1) == 0) continue;
                const u32 other = shared.from[from_place(item * blockDim.x + threadIdx.x)];
                further[item] = shared.from[from_place(other)];
                values[item] = window[other];
                if (further[item] == other) found |= 1u << item;
            }
            __syncthreads();
WJ_UNROLL
            for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
                if ((open >> item & 1) == 0) continue;
                const u32 byte = item * blockDim.x + threadIdx.x;
                const bool is_found = (found >> item & 1) != 0;
                if (is_found) window[byte] = values[item];
                shared.from[from_place(byte)] = is_found ? byte : further[item];
            }
            open &= ~found;
        }
        copy_bytes(target + out + begin, window, length);
    }
    __syncthreads();
}

// Whether `source` is `length` compressed bytes from byte `at` on; they are written to `target`. element_of(bytes) reads an
// element from the 8 bytes with which it begins. All threads of the block call it, and get the same.
template <class ElementOf>
WJ_DEVICE bool decompress_elements(
    Elements& shared, u8* target, u64 length, const u8* source, u64 source_bytes, u64 at, ElementOf element_of) {
    const u32 tile_bytes = blockDim.x * WJ_ELEMENTS_ITEMS;
    const u32 first = threadIdx.x * WJ_ELEMENTS_ITEMS;
    u8* const marks = reinterpret_cast<u8*>(shared.marks);
    u64 out = 0;
    // Each turn reads an element at least.
    while (at < source_bytes) {
        const u64 left = source_bytes - at;
        const u32 shift = (u32)((u64)(source + at) & 7);
        const u64* source_words = reinterpret_cast<const u64*>(source + at - shift);
        const u64 words_left = (left + shift + 7) >> 3;
        __syncthreads();
        for (u32 word = threadIdx.x; word < tile_bytes / 8 + 2; word += blockDim.x) {
            shared.words[word] = word < words_left ? source_words[word] : 0;
        }
        if (threadIdx.x == 0) shared.first_long = tile_bytes;
        __syncthreads();
        const u8* tile = reinterpret_cast<const u8*>(shared.words) + shift;
        for (u32 byte = threadIdx.x; byte < tile_bytes; byte += blockDim.x) {
            const u64 next = byte + element_of(load_bytes(tile + byte)).bytes();
            shared.jumps[0][byte] = (u16)(next < tile_bytes ? next : tile_bytes);
            marks[byte] = byte == 0;
        }
        __syncthreads();
        // More turns than that come beyond any tile.
        for (u32 turn = 0; turn < 12; ++turn) {
            const u16* jumps = shared.jumps[turn & 1];
            u16* further = shared.jumps[(turn & 1) ^ 1];
            bool has_jumped = false;
            for (u32 byte = threadIdx.x; byte < tile_bytes; byte += blockDim.x) {
                const u32 next = jumps[byte];
                if (next < tile_bytes && load_relaxed(&marks[byte]) != 0) {
                    store_relaxed(&marks[next], (u8)1);
                    has_jumped = true;
                }
                further[byte] = next < tile_bytes ? jumps[next] : (u16)tile_bytes;
            }
            if (__syncthreads_or(has_jumped) == 0) break;
        }
        // What a long literal is, and what comes behind it, is for the next turn.
        u32 begins = 0;
WJ_UNROLL
        for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
            if (first + item < left && (shared.marks[(first + item) / 8] >> (item % 8 * 8) & 1) != 0) begins |= 1u << item;
        }
        for (u32 rest = begins; rest != 0; rest &= rest - 1) {
            const u32 byte = first + __ffs(rest) - 1;
            const Element element = element_of(load_bytes(tile + byte));
            if (element.is_literal && element.count > WJ_LITERAL_MAX) atomicMin(&shared.first_long, byte);
        }
        __syncthreads();
        const u32 first_long = shared.first_long;
        if (first_long == 0) {
            const Element element = element_of(load_bytes(tile));
            if (element.bytes() > left || element.count > length - out) return false;
            copy_bytes(target + out, source + at + element.used, element.count);
            at += element.bytes();
            out += element.count;
            continue;
        }
        if (first + WJ_ELEMENTS_ITEMS > first_long) begins &= first < first_long ? (1u << (first_long - first)) - 1 : 0;
        u64 own = 0;  // elements, and below them the bytes that they put out
        for (u32 rest = begins; rest != 0; rest &= rest - 1) {
            own += 1ULL << 32 | element_of(load_bytes(tile + first + __ffs(rest) - 1)).count;
        }
        u64 all;
        u64 place = block_sum_before(shared.sums, own, all);
        bool is_right = true;
        for (u32 rest = begins; rest != 0; rest &= rest - 1) {
            const u32 begin = first + __ffs(rest) - 1;
            const Element element = element_of(load_bytes(tile + begin));
            const u32 number = (u32)(place >> 32), before = (u32)place;
            is_right = is_right && begin + element.bytes() <= left
                && (element.is_literal || (element.distance != 0 && element.distance <= out + before));
            shared.firsts[number] = before;
            shared.origins[number] = element.is_literal ? WJ_LITERAL | (begin + element.used) : element.distance;
            place += 1ULL << 32 | element.count;
            if (number + 1 == (u32)(all >> 32)) {
                shared.firsts[number + 1] = (u32)place;
                shared.end = begin + (u32)element.bytes();
            }
        }
        if (__syncthreads_or(!is_right) != 0 || (u32)all > length - out) return false;
        const u32 end = shared.end;
        put_out(shared, (u32)(all >> 32), source, at, target, out);
        at += end;
        out += (u32)all;
    }
    return out == length;
}
