// The first rows by a key word, without sorting all of them; and the order of few rows.
//
// top_k_digit_4, _8: one step to the key of the last row wanted: counts the rows of each next digit among those that agree
// with it so far; the last block chooses the digit. Steps end once few enough rows agree. Grid stride. Shared: 33 u64,
// WJ_TOP_K_DIGITS + 1 u32.
// top_k_collect_4, _8: the numbers of the rows up to that key. Grid stride.
// sort_few: the order of at most WJ_SORT_FEW_ROWS rows by all words, by one block. Shared: 12 bytes a row of a power of two.
// Status: none; what found no room is told by the state.
#include "common/control.cuh"
#include "partition/partition.cuh"
#include "sort/constants.cuh"
#include "sort/params.cuh"  // src/sort.rs

template <class Key>
WJ_DEVICE void choose_digit(const TopKParams& p) {
    // Set by the launch before, if at all: all blocks see the same.
    if (p.state[WJ_TOP_K_DONE] != 0) return;
    u64* sums = &shared_as<u64>();
    u32* counts = reinterpret_cast<u32*>(sums + WJ_BLOCK_SUMS);
    u32* flag = counts + WJ_TOP_K_DIGITS;
    for (u32 digit = threadIdx.x; digit < WJ_TOP_K_DIGITS; digit += blockDim.x) counts[digit] = 0;
    const u64 decided = p.state[WJ_TOP_K_DECIDED];
    const u64 prefix = p.state[WJ_TOP_K_PREFIX];
    const u64 below = p.state[WJ_TOP_K_BELOW];
    const u64 left = p.bits - decided;
    const u64 digit_bits = left < WJ_TOP_K_DIGIT_BITS ? left : WJ_TOP_K_DIGIT_BITS;
    const u64 shift = left - digit_bits;
    const u32 mask = (1u << digit_bits) - 1;
    __syncthreads();
    const Key* keys = reinterpret_cast<const Key*>(p.keys);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u32 run_digit = 0;
    u32 run = 0;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        const u64 key = keys[row];
        if (decided != 0 && key >> left != prefix) continue;
        const u32 digit = (u32)(key >> shift) & mask;
        if (digit != run_digit) {
            if (run != 0) atomicAdd(&counts[run_digit], run);
            run_digit = digit;
            run = 0;
        }
        ++run;
    }
    if (run != 0) atomicAdd(&counts[run_digit], run);
    __syncthreads();
    for (u32 digit = threadIdx.x; digit < WJ_TOP_K_DIGITS; digit += blockDim.x) {
        if (counts[digit] != 0) atomicAdd(&p.counts[digit], counts[digit]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *flag = atomicAdd(&p.state[WJ_TOP_K_FINISHED], 1ULL) == gridDim.x - 1;
    __syncthreads();
    if (*flag == 0) return;
    __threadfence();
    const u64 need = p.wanted - below;
    block_scan<u64>(
        sums, WJ_TOP_K_DIGITS,
        [&](u64 digit) {
            const u32 count = load_relaxed(&p.counts[digit]);
            counts[digit] = count;
            p.counts[digit] = 0;
            return (u64)count;
        },
        [&](u64 digit, u64 before) {
            const u64 count = counts[digit];
            if (before >= need || before + count < need) return;
            p.state[WJ_TOP_K_PREFIX] = decided == 0 ? digit : prefix << digit_bits | digit;
            p.state[WJ_TOP_K_DECIDED] = decided + digit_bits;
            p.state[WJ_TOP_K_BELOW] = below + before;
            p.state[WJ_TOP_K_WITHIN] = count;
            p.state[WJ_TOP_K_DONE] = shift == 0 || below + before + count <= p.capacity;
        });
    if (threadIdx.x == 0) store_relaxed(&p.state[WJ_TOP_K_FINISHED], u64(0));
}

WJ_ENTRY(top_k_digit_4, TopKParams, WJ_SORT_COUNT_THREADS) { choose_digit<u32>(p); }
WJ_ENTRY(top_k_digit_8, TopKParams, WJ_SORT_COUNT_THREADS) { choose_digit<u64>(p); }

template <class Key>
WJ_DEVICE void collect(const TopKParams& p) {
    const u64 prefix = p.state[WJ_TOP_K_PREFIX];
    const u64 below = p.state[WJ_TOP_K_BELOW];
    const u64 left = p.bits - p.state[WJ_TOP_K_DECIDED];
    const bool takes_all = below + p.state[WJ_TOP_K_WITHIN] <= p.capacity;
    if (!takes_all && p.cuts_ties == 0) return;
    const u64 ties = p.wanted - below;
    const Key* keys = reinterpret_cast<const Key*>(p.keys);
    const u64 tiles = (p.rows + blockDim.x - 1) / blockDim.x;
    for (u64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u64 row = tile * blockDim.x + threadIdx.x;
        // A digit was chosen, so that `left` is less than the bits of a word.
        const u64 part = row < p.rows ? (u64)keys[row] >> left : ~0ULL;
        bool is_in = row < p.rows && part < prefix;
        const bool is_tie = row < p.rows && part == prefix;
        if (takes_all) {
            is_in = is_in || is_tie;
        } else if (__any_sync(0xffffffffu, is_tie && load_relaxed(&p.state[WJ_TOP_K_TIES]) < ties)) {
            const u64 number = reserve_rows(&p.state[WJ_TOP_K_TIES], is_tie);
            is_in = is_in || (is_tie && number < ties);
        }
        const u64 place = reserve_rows(&p.state[WJ_TOP_K_COLLECTED], is_in);
        if (is_in && place < p.capacity) p.numbers[place] = (u32)row;
    }
}

WJ_ENTRY(top_k_collect_4, TopKParams, WJ_SORT_COUNT_THREADS) { collect<u32>(p); }
WJ_ENTRY(top_k_collect_8, TopKParams, WJ_SORT_COUNT_THREADS) { collect<u64>(p); }

WJ_DEVICE u64 word_of(const FewParams& p, u32 word, u32 number) {
    return p.is_wide[word] ? reinterpret_cast<const u64*>(p.words[word])[number]
                           : reinterpret_cast<const u32*>(p.words[word])[number];
}

// Whether the row of one slot comes behind that of another; slots without a row come last.
WJ_DEVICE bool is_behind(const FewParams& p, u64 a_key, u32 a, u64 b_key, u32 b) {
    if (a == 0xffffffffu || b == 0xffffffffu) return a > b;
    if (a_key != b_key) return a_key > b_key;
    for (u32 word = 1; word < p.word_count; ++word) {
        const u64 a_word = word_of(p, word, a);
        const u64 b_word = word_of(p, word, b);
        if (a_word != b_word) return a_word > b_word;
    }
    return a > b;
}

WJ_ENTRY(sort_few, FewParams, 1024) {
    u64* keys = &shared_as<u64>();
    u32* numbers = reinterpret_cast<u32*>(keys + p.slots);
    for (u32 slot = threadIdx.x; slot < p.slots; slot += blockDim.x) {
        const bool is_row = slot < p.rows;
        const u32 number = !is_row ? 0xffffffffu : p.numbers == nullptr ? slot : p.numbers[slot];
        numbers[slot] = number;
        keys[slot] = is_row ? word_of(p, 0, number) : 0;
    }
    __syncthreads();
    for (u32 run = 2; run <= p.slots; run *= 2) {
        for (u32 distance = run / 2; distance > 0; distance /= 2) {
            for (u32 pair = threadIdx.x; pair < p.slots / 2; pair += blockDim.x) {
                const u32 a = 2 * pair - (pair & (distance - 1));
                const u32 b = a + distance;
                const u64 a_key = keys[a], b_key = keys[b];
                const u32 a_number = numbers[a], b_number = numbers[b];
                const bool ascends = (a & run) == 0;
                if (is_behind(p, a_key, a_number, b_key, b_number) == ascends) {
                    keys[a] = b_key;
                    keys[b] = a_key;
                    numbers[a] = b_number;
                    numbers[b] = a_number;
                }
            }
            __syncthreads();
        }
    }
    for (u32 row = threadIdx.x; row < p.rows; row += blockDim.x) p.order[row] = numbers[row];
}
