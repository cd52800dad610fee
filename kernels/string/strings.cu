// Tests of the strings of a dictionary, each once: their results are read by code.
//
// One byte a string, 1 where it passes:
// test_compare: bytes less than, equal to, greater than a constant.
// test_search_long, test_search, test_search_short: LIKE by a pattern of bytes and %, in which runs of bytes between two % have
// seven at least, four, or any number; WJ_STRING_RUNS_MAX runs at most.
// test_like, test_like_wide: LIKE by a pattern of less than 32, 64 elements that read a character; test_like_long: of any.
//
// Strings come in tiles of WJ_STRING_TILE, whose bytes lie side by side; a tile that fits is brought into shared memory
// in whole words, and a thread reads its string there. Runs of bytes are searched one behind the other, some places at a time
// by four bytes; lanes whose strings may have one wait for the others and look closer together. Another pattern is an
// automaton whose states are bits of a word: bit n is set where the bytes read so far may have been the first n elements. So
// each byte is looked at once, and the lanes of a warp do the same whatever their strings hold.
// Grid: a tile a block, grid stride. Shared: WJ_STRING_STAGE_BYTES, and 2048 bytes.
#include "common/control.cuh"
#include "string/constants.cuh"
#include "string/params.cuh"  // src/string.rs

#define NO_ELEMENT 0xffffffffu
#define NO_PLACE 0xffffffffu

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
        if (element < count && elements[element] == WJ_STRING_ANY_STRING) {
            retry_element = ++element;
            retry_at = at;
            if (element == count) return true;
        } else if (element == count && at == length) {
            return true;
        } else if (element < count && at < length && elements[element] == WJ_STRING_ANY_CHARACTER) {
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
            if (first < WJ_STRING_ANY_CHARACTER) {
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
            if (element == WJ_STRING_ANY_STRING) continue;
            state <<= 1;
            const bool any = element == WJ_STRING_ANY_CHARACTER && !continues_character((u8)byte);
            if (any || folded((u8)byte, p.folds_case != 0) == element) mask |= state;
        }
        masks[byte] = mask;
    }
    Automaton<Bits> automaton = {masks, 0, 0, 1};
    for (u64 index = 0; index < p.element_count; ++index) {
        const u32 element = p.elements[index];
        if (element == WJ_STRING_ANY_STRING) {
            automaton.stays |= automaton.accepts;
        } else {
            automaton.accepts <<= 1;
            if (element == WJ_STRING_ANY_CHARACTER) automaton.within |= automaton.accepts;
        }
    }
    return automaton;
}

// Bytes of a pattern that lie between its ends and %.
struct Run {
    u64 body;      // the first eight, those that there are
    u32 heads[4];  // four of them, from the first one, the second one and so on; those that there are
    u32 first;     // among the elements
    u32 length;
};

struct Stage {
    u64 words[WJ_STRING_STAGE_BYTES / 8];
    union {
        u64 masks[256];
        Run runs[WJ_STRING_RUNS_MAX];
    };
};

// Whether a run is at `text`, whose first `from` bytes are known to be equal.
WJ_DEVICE bool is_run(const u8* text, const u16* elements, const Run& run, u32 from) {
    for (u32 at = from; at < run.length; ++at) {
        if (text[at] != elements[run.first + at]) return false;
    }
    return true;
}

// Eight bytes. Reads words around them.
WJ_DEVICE u64 eight_bytes(const u8* text) {
    const u32 skew = (u32)((u64)text & 7);
    const u64* word = reinterpret_cast<const u64*>(text - skew);
    return skew == 0 ? word[0] : word[0] >> (skew * 8) | word[1] << (64 - skew * 8);
}

// Four of twelve bytes, from the one at `at` on.
WJ_DEVICE u32 window(u32 a, u32 b, u32 c, u32 at) {
    const u64 pair = at < 4 ? (u64)b << 32 | a : (u64)c << 32 | b;
    return (u32)(pair >> (at % 4 * 8));
}

// What is known of a search: where a run of `length` bytes may begin, from the first to the last place.
struct Places {
    const u8* text;
    i32 first, last;
};

// The first of the places `base`, `base` + 1, ... with a bit in `hits` where all of the run is.
WJ_DEVICE u32 confirmed(const Places& places, i32 base, u32 hits, const u16* elements, const Run& run) {
    if (base < places.first) hits &= 0xffffffffu << (places.first - base);
    for (; hits != 0; hits &= hits - 1) {
        const i32 place = base + (i32)__ffs(hits) - 1;
        if (place > places.last) return NO_PLACE;
        const u8* text = places.text + place;
        const u64 mask = run.length >= 8 ? ~0ull : (1ull << (run.length * 8)) - 1;
        const bool begins = ((eight_bytes(text) ^ run.body) & mask) == 0;
        if (begins && is_run(text, elements, run, 8)) return (u32)place;
    }
    return NO_PLACE;
}

// The first place where the run is. Reads words around the text.
template <bool HAS_FOUR>
WJ_DEVICE u32 place_of(const Places& places, const u16* elements, const Run& run) {
    const u32 head = run.heads[0];
    const u32 mask = HAS_FOUR || run.length >= 4 ? 0xffffffffu : (1u << (run.length * 8)) - 1;
    i32 base = places.first - (i32)((u64)(places.text + places.first) & 7);
    const u64* word = reinterpret_cast<const u64*>(places.text + base);
    while (base <= places.last) {
        u32 a = 0, b = 0, c = 0;
        u64 next = *word;
        for (bool may_be = false; base <= places.last; ++word, base += 8) {
            const u64 current = next;
            next = word[1];
            a = (u32)current, b = (u32)(current >> 32), c = (u32)next;
#pragma unroll
            for (u32 byte = 0; byte < 8; ++byte) may_be |= (window(a, b, c, byte) & mask) == head;
            if (may_be) break;
        }
        if (base > places.last) break;
        u32 hits = 0;
#pragma unroll
        for (u32 byte = 0; byte < 8; ++byte) hits |= (u32)((window(a, b, c, byte) & mask) == head) << byte;
        const u32 place = confirmed(places, base, hits, elements, run);
        if (place != NO_PLACE) return place;
        ++word;
        base += 8;
    }
    return NO_PLACE;
}

// The same of a run of seven bytes or more: wherever it begins, four of its bytes are a whole word of memory.
WJ_DEVICE u32 place_of_long(const Places& places, const u16* elements, const Run& run) {
    const u32 heads[4] = {run.heads[0], run.heads[1], run.heads[2], run.heads[3]};
    i32 base = places.first - (i32)((u64)(places.text + places.first) & 7);
    const u64* word = reinterpret_cast<const u64*>(places.text + base);
    // Its word begins up to three bytes behind it.
    const i32 last = places.last + 3;
    while (base <= last) {
        u32 words[4];
        bool in_low = false, in_high = false;
        for (; base <= last; word += 2, base += 16) {
            const u64 low = word[0], high = word[1];
            words[0] = (u32)low, words[1] = (u32)(low >> 32), words[2] = (u32)high, words[3] = (u32)(high >> 32);
#pragma unroll
            for (u32 at = 0; at < 8; ++at) {
                in_low |= words[at / 4] == heads[at % 4];
                in_high |= words[2 + at / 4] == heads[at % 4];
            }
            if (in_low || in_high) break;
        }
        if (base > last) break;
        // The first half that has something; the other one is looked at again.
        const u32 first = in_low ? words[0] : words[2], second = in_low ? words[1] : words[3];
        if (!in_low) base += 8, ++word;
        u32 hits = 0;
#pragma unroll
        for (u32 at = 0; at < 8; ++at) {
            hits |= (u32)((at < 4 ? first : second) == heads[at % 4]) << (at / 4 * 4 + 3 - at % 4);
        }
        const u32 place = confirmed(places, base - 3, hits, elements, run);
        if (place != NO_PLACE) return place;
        ++word;
        base += 8;
    }
    return NO_PLACE;
}

// A pattern of runs: some at the beginning or at the end, those of `floating` anywhere between.
struct Runs {
    const Run* all;
    u32 first_floating, after_floating;
    bool has_front, has_back;
};

// All threads call it; a barrier must follow.
WJ_DEVICE Runs runs_of(const TestParams& p, Run* all) {
    const u32 elements = (u32)p.element_count;
    u32 runs = 0;
    for (u32 at = 0; at < elements && runs < WJ_STRING_RUNS_MAX;) {
        Run run = {0, {0, 0, 0, 0}, at, 0};
        for (; at < elements && p.elements[at] != WJ_STRING_ANY_STRING; ++at, ++run.length) {
            if (run.length < 8) run.body |= (u64)p.elements[at] << (run.length * 8);
#pragma unroll
            for (u32 head = 0; head < 4; ++head) {
                const u32 byte = run.length - head;
                if (byte < 4) run.heads[head] |= (u32)p.elements[at] << (byte * 8);
            }
        }
        ++at;
        if (run.length == 0) continue;
        if (threadIdx.x == 0) all[runs] = run;
        ++runs;
    }
    const bool has_front = p.elements[0] != WJ_STRING_ANY_STRING;
    const bool has_back = p.elements[elements - 1] != WJ_STRING_ANY_STRING;
    return {all, has_front ? 1u : 0u, runs - (has_back ? 1u : 0u), has_front, has_back};
}

// `SHORTEST`: bytes of the shortest run that may be anywhere, as far as it matters.
template <u32 SHORTEST>
WJ_DEVICE bool has_runs(const u8* text, u32 length, const u16* elements, const Runs& runs) {
    u32 at = 0, end = length;
    if (runs.has_front) {
        const Run& front = runs.all[0];
        if (length < front.length || !is_run(text, elements, front, 0)) return false;
        at = front.length;
    }
    if (runs.has_back) {
        const Run& back = runs.all[runs.after_floating];
        if (end - at < back.length || !is_run(text + end - back.length, elements, back, 0)) return false;
        end -= back.length;
    }
    for (u32 index = runs.first_floating; index < runs.after_floating; ++index) {
        const Run& run = runs.all[index];
        if (end - at < run.length) return false;
        const Places places = {text, (i32)at, (i32)(end - run.length)};
        const u32 place = SHORTEST >= 7 ? place_of_long(places, elements, run)
                                        : place_of<SHORTEST >= 4>(places, elements, run);
        if (place == NO_PLACE) return false;
        at = place + run.length;
    }
    return true;
}

// Tests the strings of a tile, whose bytes begin at `text`.
template <class Test>
WJ_DEVICE void test_tile(const TestParams& p, u64 tile, const u8* text, Test passes) {
    for (u32 index = threadIdx.x; index < WJ_STRING_TILE; index += blockDim.x) {
        const u64 string = tile * WJ_STRING_TILE + index;
        if (string >= p.strings) break;
        const u32 begin = index == 0 ? 0 : p.ends[string - 1];
        p.results[string] = passes(text + begin, p.ends[string] - begin) ? 1 : 0;
    }
}

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
        // Two calls, so that the compiler knows which memory is read.
        if (is_staged) {
            test_tile(p, tile, reinterpret_cast<const u8*>(stage.words) + (start & 7), passes);
        } else {
            test_tile(p, tile, p.bytes + start, passes);
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

template <u32 SHORTEST>
WJ_DEVICE void search(const TestParams& p, Stage& stage) {
    const Runs runs = runs_of(p, stage.runs);
    test_tiles(p, stage, [&](const u8* text, u32 length) { return has_runs<SHORTEST>(text, length, p.elements, runs); });
}

WJ_ENTRY(test_search_long, TestParams, 256) { search<7>(p, shared_as<Stage>()); }
WJ_ENTRY(test_search, TestParams, 256) { search<4>(p, shared_as<Stage>()); }
WJ_ENTRY(test_search_short, TestParams, 256) { search<0>(p, shared_as<Stage>()); }

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
