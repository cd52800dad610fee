// Tests of the strings of a dictionary, each once: their results are read by code.
//
// One byte a string, 1 where it passes:
// test_compare: bytes less than, equal to, greater than a constant.
// test_like, test_like_wide: LIKE by a pattern of less than 32, 64 elements that read a character; test_like_long: of any.
//
// Strings come in tiles of WJ_STRING_TILE, whose bytes lie side by side; a tile that fits is brought into shared memory
// in whole words, and a thread reads its string there. A pattern is an automaton whose states are bits of a word: bit n is
// set where the bytes read so far may have been the first n elements. So each byte is looked at once, and the lanes of a
// warp do the same whatever their strings hold.
// Grid: a tile a block, grid stride. Shared: WJ_STRING_STAGE_BYTES, and 2048 bytes.
#include "wj/control.cuh"

// Elements of a pattern: a byte, or one of these.
#define ELEMENT_ANY_CHARACTER 256
#define ELEMENT_ANY_STRING 257

struct TestParams {
    const u8* bytes;         // followed by 8 bytes that nobody looks at
    const u64* tile_starts;  // where the bytes of each tile begin, and where the last ones end
    const u32* ends;         // where each string ends, from the beginning of its tile
    u64 strings;
    const u16* elements;
    u64 element_count;
    u64 folds_case;   // LIKE: ASCII letters of strings and pattern are lower-case letters
    u64 accepts;      // COMPARE: bit 0 less, bit 1 equal, bit 2 greater
    u8* results;
};

#define NO_ELEMENT 0xffffffffu

WJ_DEVICE u32 folded(u8 byte, bool folds_case) { return folds_case && byte >= 'A' && byte <= 'Z' ? byte + 32u : byte; }

WJ_DEVICE bool continues_character(u8 byte) { return (byte & 0xc0) == 0x80; }

// Where the character after the one at `at` begins.
WJ_DEVICE u32 next_character(const u8* text, u32 at, u32 length) {
    ++at;
    for (u32 byte = 0; byte < 3 && at < length && continues_character(text[at]); ++byte) ++at;
    return at;
}

// LIKE for patterns with more states than a word has bits: on a mismatch, the part behind the last % is tried one
// character further.
WJ_DEVICE bool is_like(const u8* text, u32 length, const u16* elements, u32 count, bool folds_case) {
    u32 at = 0, element = 0, retry_at = 0, retry_element = NO_ELEMENT;
    const u64 steps_max = (u64)(length + 2) * (count + 2);
    for (u64 step = 0; step < steps_max; ++step) {
        if (element < count && elements[element] == ELEMENT_ANY_STRING) {
            retry_element = ++element;
            retry_at = at;
            if (element == count) return true;
        } else if (element == count && at == length) {
            return true;
        } else if (element < count && at < length && elements[element] == ELEMENT_ANY_CHARACTER) {
            at = next_character(text, at, length);
            ++element;
        } else if (element < count && at < length && folded(text[at], folds_case) == elements[element]) {
            ++at;
            ++element;
        } else {
            if (retry_element == NO_ELEMENT || retry_at >= length) return false;
            retry_at = next_character(text, retry_at, length);
            const u32 first = elements[retry_element];
            // Most bytes are skipped here.
            if (first < ELEMENT_ANY_CHARACTER) {
                while (retry_at < length && folded(text[retry_at], folds_case) != first) ++retry_at;
            }
            at = retry_at;
            element = retry_element;
        }
    }
    return false;
}

// Bit 0: the string is less than the constant, bit 1: equal, bit 2: greater; byte by byte.
WJ_DEVICE u32 compared(const u8* text, u32 length, const u16* constant, u32 count) {
    const u32 common = length < count ? length : count;
    for (u32 at = 0; at < common; ++at) {
        if (text[at] != constant[at]) return text[at] < constant[at] ? 1 : 4;
    }
    return length == count ? 2 : length < count ? 1 : 4;
}

// A pattern whose states are the bits of a word.
template <class Bits>
struct Automaton {
    const Bits* masks;  // of each byte: states that it leads to
    Bits stays;         // states in front of a %
    Bits within;        // states behind a _, whose character may have more bytes
    Bits accepts;
};

template <class Bits>
WJ_DEVICE Bits states_after(const Automaton<Bits>& automaton, Bits states, u8 byte) {
    Bits next = ((states << 1) & automaton.masks[byte]) | (states & automaton.stays);
    if (automaton.within != 0 && continues_character(byte)) next |= states & automaton.within;
    return next;
}

template <class Bits>
WJ_DEVICE bool is_accepted(const Automaton<Bits>& automaton, const u8* text, u32 length) {
    const u8* const end = text + length;
    const Bits decided = automaton.accepts & automaton.stays;
    Bits states = 1;
    while (text < end && ((u64)text & 3) != 0) states = states_after(automaton, states, *text++);
    while (end - text >= 4 && states != 0 && (states & decided) == 0) {
        const u32 word = *reinterpret_cast<const u32*>(text);
        states = states_after(automaton, states, (u8)word);
        states = states_after(automaton, states, (u8)(word >> 8));
        states = states_after(automaton, states, (u8)(word >> 16));
        states = states_after(automaton, states, (u8)(word >> 24));
        text += 4;
    }
    while (text < end && states != 0 && (states & decided) == 0) states = states_after(automaton, states, *text++);
    return (states & automaton.accepts) != 0;
}

// All threads call it; a barrier must follow.
template <class Bits>
WJ_DEVICE Automaton<Bits> automaton_of(const TestParams& p, Bits* masks) {
    for (u32 byte = threadIdx.x; byte < 256; byte += blockDim.x) {
        Bits mask = 0, state = 1;
        for (u64 index = 0; index < p.element_count; ++index) {
            const u32 element = p.elements[index];
            if (element == ELEMENT_ANY_STRING) continue;
            state <<= 1;
            const bool any = element == ELEMENT_ANY_CHARACTER && !continues_character((u8)byte);
            if (any || folded((u8)byte, p.folds_case != 0) == element) mask |= state;
        }
        masks[byte] = mask;
    }
    Automaton<Bits> automaton = {masks, 0, 0, 1};
    for (u64 index = 0; index < p.element_count; ++index) {
        const u32 element = p.elements[index];
        if (element == ELEMENT_ANY_STRING) {
            automaton.stays |= automaton.accepts;
        } else {
            automaton.accepts <<= 1;
            if (element == ELEMENT_ANY_CHARACTER) automaton.within |= automaton.accepts;
        }
    }
    return automaton;
}

struct Stage {
    u64 words[WJ_STRING_STAGE_BYTES / 8];
    u64 masks[256];
};

// Tests all strings of the block's tiles.
template <class Test>
WJ_DEVICE void test_tiles(const TestParams& p, Stage& stage, Test passes) {
    const u64 tiles = (p.strings + WJ_STRING_TILE - 1) / WJ_STRING_TILE;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u64 start = p.tile_starts[tile];
        const u64 first_word = start / 8;
        const u64 words = (p.tile_starts[tile + 1] + 7) / 8 - first_word;
        const bool is_staged = words <= WJ_STRING_STAGE_BYTES / 8;
        if (is_staged) {
            const u64* source = reinterpret_cast<const u64*>(p.bytes) + first_word;
            for (u64 word = threadIdx.x; word < words; word += blockDim.x) stage.words[word] = load_once(source + word);
        }
        __syncthreads();
        const u8* text = is_staged ? reinterpret_cast<const u8*>(stage.words) + (start & 7) : p.bytes + start;
        for (u32 index = threadIdx.x; index < WJ_STRING_TILE; index += blockDim.x) {
            const u64 string = tile * WJ_STRING_TILE + index;
            if (string >= p.strings) break;
            const u32 begin = index == 0 ? 0 : p.ends[string - 1];
            p.results[string] = passes(text + begin, p.ends[string] - begin) ? 1 : 0;
        }
        // The next tile may overwrite the stage only then.
        __syncthreads();
    }
}

WJ_ENTRY(test_compare, TestParams, 256) {
    const u32 count = (u32)p.element_count;
    test_tiles(p, shared_as<Stage>(), [&](const u8* text, u32 length) {
        return (compared(text, length, p.elements, count) & p.accepts) != 0;
    });
}

WJ_ENTRY(test_like, TestParams, 256) {
    Stage& stage = shared_as<Stage>();
    const Automaton<u32> automaton = automaton_of(p, reinterpret_cast<u32*>(stage.masks));
    test_tiles(p, stage, [&](const u8* text, u32 length) { return is_accepted(automaton, text, length); });
}

WJ_ENTRY(test_like_wide, TestParams, 256) {
    Stage& stage = shared_as<Stage>();
    const Automaton<u64> automaton = automaton_of(p, stage.masks);
    test_tiles(p, stage, [&](const u8* text, u32 length) { return is_accepted(automaton, text, length); });
}

WJ_ENTRY(test_like_long, TestParams, 256) {
    const u32 count = (u32)p.element_count;
    test_tiles(p, shared_as<Stage>(), [&](const u8* text, u32 length) {
        return is_like(text, length, p.elements, count, p.folds_case != 0);
    });
}
