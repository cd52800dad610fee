// Decompression by elements, each of which puts out bytes of the source, or bytes that were put out before.
//
// A block reads a tile of the source at a time. Each thread looks at some of its bytes as if an element began there, and notes
// where the elements from there leave these bytes; then the same for more bytes. One thread follows the first element from there,
// and so all know where elements begin. Then the block puts out a window of bytes at a time. Each thread finds out where some of
// them come from: from the source, from before the window, or from another byte of the window. The latter are followed by jumps
// that double each time.
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

// Bytes of a tile after which one thread follows the elements.
#define WJ_ELEMENTS_STRETCH 64
#define WJ_ELEMENTS_NONE 0xffffu

// Where the elements of a tile are found.
struct ElementFinds {
    // Where elements from each byte on leave the bytes of its thread, and the stretch, at exit_place.
    u16 exits[WJ_ELEMENTS_TILE + WJ_ELEMENTS_TILE / WJ_ELEMENTS_ITEMS * 2];
    u16 stretch_exits[WJ_ELEMENTS_TILE + WJ_ELEMENTS_TILE / WJ_ELEMENTS_ITEMS * 2];
    // Where the first element of each stretch and of each thread begins, if any does.
    u16 stretch_entries[WJ_ELEMENTS_TILE / WJ_ELEMENTS_STRETCH];
    u16 entries[WJ_ELEMENTS_TILE / WJ_ELEMENTS_ITEMS];
};

// What a window of the output is made of.
struct ElementWindow {
    u64 bytes[WJ_ELEMENTS_TILE / 8 + 1];
    // Where each byte of the window comes from, at from_place: a byte of the window; with WJ_LITERAL, a byte of the tile;
    // with WJ_BEFORE, a distance back from the window.
    u32 from[WJ_ELEMENTS_TILE + WJ_ELEMENTS_TILE / WJ_ELEMENTS_ITEMS];
    // The byte of the window that each one is the same as: itself, if it comes from elsewhere.
    u16 same_as[WJ_ELEMENTS_TILE];
};

struct Elements {
    u64 words[WJ_ELEMENTS_TILE / 8 + 1];
    // The first byte that each puts out, from the first one of all on; and behind the last.
    u32 firsts[WJ_ELEMENTS_MAX + 1];
    // How far back its bytes are; or, with WJ_LITERAL, where they are in the tile.
    u32 origins[WJ_ELEMENTS_MAX];
    // One after the other.
    union {
        ElementFinds finds;
        ElementWindow window;
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
WJ_DEVICE u32 exit_place(u32 byte) { return byte + byte / WJ_ELEMENTS_ITEMS * 2; }

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
        shared.window.from[from_place(byte)] = from;
    }
}

// Puts out the bytes of `count` elements, of which the first begins at source byte `at` and puts out byte `out`. The last window is
// read until the next barrier.
WJ_DEVICE void put_out(Elements& shared, u32 count, const u8* source, u64 at, u8* target, u64 out) {
    const u32 all = shared.firsts[count];
    const u32 window_bytes = blockDim.x * WJ_ELEMENTS_ITEMS;
    u8* const window = reinterpret_cast<u8*>(shared.window.bytes);
    for (u32 begin = 0; begin < all; begin += window_bytes) {
        const u32 length = all - begin < window_bytes ? all - begin : window_bytes;
        // Marks and jumps, and the origins of the window before, are of no more use: there was a barrier since they were read.
        find_origins(shared, count, begin, length);
        __syncthreads();
        // Bytes of the source, and from before the window: all are asked for before one is waited for.
        const u8* before = target + out + begin;
        u32 from[WJ_ELEMENTS_ITEMS], values[WJ_ELEMENTS_ITEMS];
WJ_UNROLL
        for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
            const u32 byte = item * blockDim.x + threadIdx.x;
            from[item] = byte < length ? shared.window.from[from_place(byte)] : byte;
            values[item] = 0;
            if ((from[item] & WJ_LITERAL) != 0) {
                values[item] = source[at + (from[item] & ~WJ_LITERAL)];
            } else if ((from[item] & WJ_BEFORE) != 0) {
                values[item] = *(before - (from[item] & ~WJ_BEFORE));
            }
        }
WJ_UNROLL
        for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
            const u32 byte = item * blockDim.x + threadIdx.x;
            if ((from[item] & (WJ_LITERAL | WJ_BEFORE)) != 0) {
                window[byte] = (u8)values[item];
                from[item] = byte;
            }
            shared.window.same_as[byte] = (u16)from[item];
        }
        // Each turn comes twice as far.
        __syncthreads();
        for (u32 reach = 1; reach <= WJ_ELEMENTS_TILE; reach *= 2) {
            bool has_moved = false;
WJ_UNROLL
            for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) values[item] = shared.window.same_as[from[item]];
WJ_UNROLL
            for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
                has_moved = has_moved || values[item] != from[item];
                from[item] = values[item];
            }
            if (__syncthreads_or(has_moved) == 0) break;
WJ_UNROLL
            for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
                shared.window.same_as[item * blockDim.x + threadIdx.x] = (u16)from[item];
            }
            __syncthreads();
        }
        // Bytes that come from elsewhere stay as they are, and only these are read.
WJ_UNROLL
        for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) values[item] = window[from[item]];
WJ_UNROLL
        for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
            const u32 byte = item * blockDim.x + threadIdx.x;
            if (from[item] != byte) window[byte] = (u8)values[item];
        }
        __syncthreads();
        copy_bytes(target + out + begin, window, length);
    }
}

// Finds the first elements of all threads in the tile. All threads of the block call it.
template <class ElementOf>
WJ_DEVICE void find_entries(Elements& shared, u32 tile_bytes, ElementOf element_of) {
    const u32 first = threadIdx.x * WJ_ELEMENTS_ITEMS;
    const u64* own = shared.words + first / 8;
    const u64 words[3] = {own[0], own[1], own[2]};
    shared.finds.entries[threadIdx.x] = WJ_ELEMENTS_NONE;
WJ_UNROLL
    for (u32 back = 0; back < WJ_ELEMENTS_ITEMS; ++back) {
        const u32 item = WJ_ELEMENTS_ITEMS - 1 - back;
        const u32 word = item / 8, shift = item % 8 * 8;
        const u64 bytes = shift == 0 ? words[word] : words[word] >> shift | words[word + 1] << (64 - shift);
        const u64 next = first + item + element_of(bytes).bytes();
        u32 exit = next < tile_bytes ? (u32)next : tile_bytes;
        if (exit < first + WJ_ELEMENTS_ITEMS) exit = shared.finds.exits[exit_place(exit)];
        shared.finds.exits[exit_place(first + item)] = (u16)exit;
    }
    if (threadIdx.x < tile_bytes / WJ_ELEMENTS_STRETCH) shared.finds.stretch_entries[threadIdx.x] = WJ_ELEMENTS_NONE;
    __syncthreads();
    u32 exits[WJ_ELEMENTS_ITEMS];
    const u32 stretch_end = (first / WJ_ELEMENTS_STRETCH + 1) * WJ_ELEMENTS_STRETCH;
WJ_UNROLL
    for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) exits[item] = shared.finds.exits[exit_place(first + item)];
WJ_UNROLL
    for (u32 turn = 1; turn < WJ_ELEMENTS_STRETCH / WJ_ELEMENTS_ITEMS; ++turn) {
WJ_UNROLL
        for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) {
            if (exits[item] < stretch_end) exits[item] = shared.finds.exits[exit_place(exits[item])];
        }
    }
WJ_UNROLL
    for (u32 item = 0; item < WJ_ELEMENTS_ITEMS; ++item) shared.finds.stretch_exits[exit_place(first + item)] = (u16)exits[item];
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 byte = 0; byte < tile_bytes; byte = shared.finds.stretch_exits[exit_place(byte)]) {
            shared.finds.stretch_entries[byte / WJ_ELEMENTS_STRETCH] = (u16)byte;
        }
    }
    __syncthreads();
    if (threadIdx.x < tile_bytes / WJ_ELEMENTS_STRETCH) {
        const u32 end = (threadIdx.x + 1) * WJ_ELEMENTS_STRETCH;
        // NONE is behind it.
        for (u32 byte = shared.finds.stretch_entries[threadIdx.x]; byte < end; byte = shared.finds.exits[exit_place(byte)]) {
            shared.finds.entries[byte / WJ_ELEMENTS_ITEMS] = (u16)byte;
        }
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
    const u8* const tile = reinterpret_cast<const u8*>(shared.words);
    u64 out = 0;
    // Each turn reads an element at least.
    while (at < source_bytes) {
        const u64 left = source_bytes - at;
        __syncthreads();
        for (u32 word = threadIdx.x; word <= tile_bytes / 8; word += blockDim.x) {
            shared.words[word] = word * 8 < left ? load_bytes(source + at + word * 8) : 0;
        }
        if (threadIdx.x == 0) shared.first_long = tile_bytes;
        __syncthreads();
        find_entries(shared, tile_bytes, element_of);
        // What a long literal is, and what comes behind it, is for the next turn.
        u32 begins = 0;
        for (u32 byte = shared.finds.entries[threadIdx.x]; byte < first + WJ_ELEMENTS_ITEMS && byte < left;) {
            begins |= 1u << (byte - first);
            const Element element = element_of(load_bytes(tile + byte));
            if (element.is_literal && element.count > WJ_LITERAL_MAX) atomicMin(&shared.first_long, byte);
            const u64 next = byte + element.bytes();
            byte = next < tile_bytes ? (u32)next : tile_bytes;
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
