// Instructions of loops over the matches of two relations that were partitioned alike. Build rows are linked into chains in
// shared memory, and stay where they are.
#pragma once
#include "interpret/machine.cuh"
#include "interpret/rare.cuh"

// Where a block is among the work items, and a lane among its matches; in local memory, as `Rows`.
struct Matching {
    MatchTable chains;
    MatchItem unit;
    u64 number;   // of the next work item
    u32 first;    // of the warp's next probe rows in the item
    u32 entry;    // the next build row to look at, + 1
    u32 turn;
    bool is_over;
};

WJ_DEVICE MatchTable chains_of(const Matching& matching) {
    MatchTable chains = matching.chains;
    chains.heads = in_shared(chains.heads);
    chains.next = in_shared(chains.next);
    return chains;
}

// What describes a word of the key.
struct KeyWord {
    const void* build;
    const void* probe;
    u64 mask;
    u32 build_bytes, probe_bytes;
};

WJ_DEVICE KeyWord key_word_of(const Machine<1>& m, u32 number) {
    const u32* list = list_at(m.matches) + WJ_MATCHED_HEAD + number * WJ_MATCHED_EACH;
    return KeyWord{pointer_in<const void>(m, list, 2), pointer_in<const void>(m, list, 3), value_in(m, list, 4), list[0],
                   list[1]};
}

WJ_DEVICE u64 word_at(const void* words, u32 bytes, u32 row) {
    return bytes == 4 ? (u64) static_cast<const u32*>(words)[row] : static_cast<const u64*>(words)[row];
}

WJ_RARE void open_matching(const Machine<1> m, Matching& matching) {
    const u32 heads_bits = (u32)value_in(m, list_at(m.matches), WJ_MATCHED_HEADS_BITS);
    u32* const heads = &shared_as<u32>();
    u16* const next = reinterpret_cast<u16*>(heads + (1u << heads_bits));
    matching.chains = MatchTable{heads, next, heads_bits, (u32)value_in(m, list_at(m.matches), WJ_MATCHED_CAPACITY)};
    matching.number = blockIdx.x;
    matching.is_over = false;
}

// Goes to the next work item, and links its build rows; false: there is none. All threads of the block call it.
WJ_RARE bool next_unit(const Machine<1> m, Matching& matching) {
    const MatchSides sides = {pointer_in<const u32>(m, list_at(m.matches), WJ_MATCHED_BUILD_OFFSETS),
                              pointer_in<const u32>(m, list_at(m.matches), WJ_MATCHED_PROBE_OFFSETS),
                              pointer_in<const u64>(m, list_at(m.matches), WJ_MATCHED_ITEMS),
                              1u << value_in(m, list_at(m.matches), WJ_MATCHED_BITS),
                              matching.chains.capacity,
                              (u32)value_in(m, list_at(m.matches), WJ_MATCHED_CHUNK_ROWS)};
    matching.unit = match_item(sides, matching.number);
    if (matching.unit.build_rows == 0) return false;
    const u64 turn = matching.number / gridDim.x;
    matching.number += gridDim.x;
    u64* const control = pointer_in<u64>(m, list_at(m.matches), WJ_MATCHED_CONTROL);
    const u64 cancel = value_in(m, list_at(m.matches), WJ_MATCHED_CANCEL);
    if (is_block_stopped(control, WJ_STATUS_ABORT, cancel, turn, WJ_GRID_CANCEL_TURNS)) {
        return false;
    }
    matching.is_over = false;
    matching.first = threadIdx.x & ~31u;
    const MatchTable chains = chains_of(matching);
    clear_chains(chains);
    const u32 words = list_at(m.matches)[WJ_MATCHED_KEY_WORDS];
    for (u32 place = threadIdx.x; place < matching.unit.build_rows; place += blockDim.x) {
        u64 folded = 0;
        for (u32 number = 0; number < words; ++number) {
            const KeyWord key = key_word_of(m, number);
            const u64 word = word_at(key.build, key.build_bytes, matching.unit.build_first + place) & key.mask;
            folded = number == 0 ? word : fold_words(folded, word);
        }
        link_row(chains, place, folded);
    }
    __syncthreads();
    return true;
}

// Goes to the warp's next probe rows: `to` has the words of the key, `d` the row. False: there are none.
WJ_RARE bool next_probe_row(const Machine<1> m, Matching& matching, const Instruction i) {
    if (matching.first >= matching.unit.probe_rows || matching.is_over) return false;
    const u32 place = matching.first + (threadIdx.x & 31);
    const bool is_inside = place < matching.unit.probe_rows;
    const u32 row = matching.unit.probe_first + (is_inside ? place : 0);
    const u32 words = list_at(m.matches)[WJ_MATCHED_KEY_WORDS];
    u64 folded = 0;
    for (u32 number = 0; number < words; ++number) {
        const KeyWord key = key_word_of(m, number);
        const u64 probed = is_inside ? word_at(key.probe, key.probe_bytes, row) : 0;
        set_word(m, behind(m, i.to, number), 0, probed);
        folded = number == 0 ? probed & key.mask : fold_words(folded, probed & key.mask);
    }
    const MatchTable chains = chains_of(matching);
    matching.entry = is_inside ? chains.heads[chain_of(chains, folded)] : 0;
    matching.turn = 0;
    matching.first += blockDim.x;
    set_word(m, i.d, 0, row);
    return true;
}

// Whether a build row has the key of the lane's probe row, whose words are at `words`.
WJ_DEVICE bool has_key(const Machine<1>& m, const Matching& matching, u32 place, u32 words_at) {
    const u32 words = list_at(m.matches)[WJ_MATCHED_KEY_WORDS];
    for (u32 number = 0; number < words; ++number) {
        const KeyWord key = key_word_of(m, number);
        const u64 built = word_at(key.build, key.build_bytes, matching.unit.build_first + place);
        const u64 probed = word(m, behind(m, words_at, number), 0);
        if (((built ^ probed) & key.mask) != 0) return false;
    }
    return true;
}

// Goes to the next match of each lane's row: `to` is its place in the work item, `d` whether there is one; `a` has the words
// of the key. False: no lane of the warp has another.
WJ_RARE bool next_match(const Machine<1> m, Matching& matching, const Instruction i) {
    if (++matching.turn % 256 == 0) {
        u64* const control = pointer_in<u64>(m, list_at(m.matches), WJ_MATCHED_CONTROL);
        const u64 cancel = value_in(m, list_at(m.matches), WJ_MATCHED_CANCEL);
        matching.is_over = is_aborted(control, cancel, matching.turn / 256, WJ_MATCH_CANCEL_TURNS);
    }
    if (matching.is_over) return false;
    const MatchTable chains = chains_of(matching);
    u32 entry = matching.entry;
    for (u32 step = 0; step < chains.capacity && entry != 0; ++step) {
        if (has_key(m, matching, entry - 1, i.a)) break;
        entry = chains.next[entry - 1];
    }
    const bool is_match = entry != 0;
    set_word(m, i.to, 0, is_match ? entry - 1 : 0);
    set_word(m, i.d, 0, is_match);
    matching.entry = is_match ? chains.next[entry - 1] : 0;
    return __any_sync(0xffffffffu, is_match);
}
