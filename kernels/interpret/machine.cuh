// The machine that interprets pipelines: a program in shared memory, registers for each lane.
//
// A lane has several rows at once, so that an instruction is read and decoded once for all of them. The first rows of the lanes
// are as a warp, the second ones as another, and so on: all are at the same instruction. A row that takes no part in a scope
// (`Push`) is computed with the others, but it loads 0, and neither stores nor moves anything (`MoveIf`). Registers are of 64 bits,
// a word for each row: signed integers are extended by their sign, others by 0; truths are 0 or 1; floats are bits.
#pragma once
#include "common/pipeline.cuh"
#include "interpret/constants.cuh"
#include "interpret/params.cuh"  // src/interpret.rs

// `places` has a bit for each of `to` to `next` that is a place in the program: brought to shared memory, they are addresses.
struct __align__(16) Instruction {
    u32 operation, to, a, b, c, d, next, places;
};

// A word for each row of a lane.
template <int ROWS>
struct __align__(ROWS > 1 ? 16 : 8) Words {
    u64 of[ROWS];
};

// An operand is the address of a lane's words in shared memory; for a register that of the first lane's, plus 1. What is the same
// for all lanes has a word for each row, too.
template <int ROWS>
struct Machine {
    // Addresses in shared memory.
    u32 shared;        // of all of it
    u32 list;          // what describes the group table
    u32 matches;       // what describes relations that were partitioned alike
    u32 lane_bytes;    // from the first lane's words to the caller's, less 1
    u32 taking;        // WJ_SCOPES bits for each row: the lowest one says whether it takes part, those above whether in the scopes around
};

// For each row of a lane: its number is `row`.
#define WJ_EACH_ROW WJ_UNROLL for (int row = 0; row < ROWS; ++row)

// The lowest bit of each row.
template <int ROWS>
WJ_DEVICE constexpr u32 first_scopes() {
    static_assert(ROWS * WJ_SCOPES <= 32, "scopes of all rows");
    return ROWS == 1 ? 1u : 1u << WJ_SCOPES | 1u;
}

// Brings the program to shared memory. All threads of the block call it.
template <int ROWS>
WJ_DEVICE Machine<ROWS> open_machine(const InterpretParams& p) {
    const u32 shared = shared_address();
    u64* const base = &shared_as<u64>() + p.shared_words;
    const u32 fields = (u32)p.fields;
    const u32 uniform = (u32)p.instructions;
    const u32 list = (u32)p.list;
    const u32 words = (u32)p.words;
    const u32 repeated = uniform * (ROWS - 1);
#pragma unroll 1
    for (u32 at = threadIdx.x; at < words; at += blockDim.x) {
        const u64 word = p.program[at];
        if (at < uniform) {
            const u64 value = at < fields ? p.values[word] : word;
            WJ_EACH_ROW base[at * ROWS + row] = value;
        } else if (at < list) {
            // Two halves of an instruction, the first of which, its operation, is no place.
            const u32 part = (at - uniform) % 4;
            const u32 places = (u32)(p.program[at - part + 3] >> 32) << 1 >> 2 * part;
            base[repeated + at] = word + ((places & 1) * shared | (u64)((places >> 1 & 1) * shared) << 32);
        } else {
            base[repeated + at] = word;
        }
    }
    Machine<ROWS> machine;
    machine.shared = shared;
    machine.list = shared + (u32)(p.shared_words + p.list + repeated) * 8;
    machine.matches = machine.list + (u32)p.match_list * 4;
    machine.lane_bytes = threadIdx.x * 8 * ROWS - 1;
    machine.taking = first_scopes<ROWS>();
    __syncthreads();
    return machine;
}

// A pointer that lay in local memory: from here on the compiler knows that it leads to shared memory.
template <class T>
WJ_DEVICE T* in_shared(T* pointer) {
    u8* const base = &shared_as<u8>();
    return reinterpret_cast<T*>(base + (u32)(reinterpret_cast<u8*>(pointer) - base));
}

WJ_DEVICE const u32* list_at(u32 address) { return &shared_at<const u32>(address); }
template <int ROWS>
WJ_DEVICE u32 listed(const Machine<ROWS>& m, u32 place) {
    return list_at(m.list)[place];
}

template <int ROWS>
WJ_DEVICE Words<ROWS>& words_of(const Machine<ROWS>& m, u32 operand) {
    return shared_at<Words<ROWS>>(operand + (operand & 1) * m.lane_bytes);
}

// The operand of the register, or of what is the same for all lanes, that is `registers` behind another one.
template <int ROWS>
WJ_DEVICE u32 behind(const Machine<ROWS>&, u32 operand, u32 registers) {
    return operand + registers * ((operand & 1) != 0 ? ROWS * blockDim.x * 8 : ROWS * 8);
}
// The word of registers that stand for one row after the other, ROWS in each.
template <int ROWS>
WJ_DEVICE u64& word_of_rows(const Machine<ROWS>& m, u32 first, u32 row) {
    return words_of(m, behind(m, first, row / ROWS)).of[row % ROWS];
}

template <int ROWS>
WJ_DEVICE Words<ROWS> get(const Machine<ROWS>& m, u32 operand) {
    return words_of(m, operand);
}
template <int ROWS>
WJ_DEVICE Words<ROWS> get_behind(const Machine<ROWS>& m, u32 operand, u32 registers) {
    return get(m, behind(m, operand, registers));
}
// The same of one row.
template <int ROWS>
WJ_DEVICE u64 word(const Machine<ROWS>& m, u32 operand, int row) {
    return words_of(m, operand).of[row];
}
// The same where it is one for all lanes and rows.
template <int ROWS>
WJ_DEVICE u64 uniform(const Machine<ROWS>& m, u32 operand) {
    return word(m, operand, 0);
}
template <class T, int ROWS>
WJ_DEVICE T* uniform_pointer(const Machine<ROWS>& m, u32 operand) {
    return reinterpret_cast<T*>(uniform(m, operand));
}

// The operand of which a list has the place, and what it stands for.
template <int ROWS>
WJ_DEVICE u32 operand_in(const Machine<ROWS>& m, const u32* list, u32 place) {
    return m.shared + list[place];
}
template <int ROWS>
WJ_DEVICE u64 value_in(const Machine<ROWS>& m, const u32* list, u32 place) {
    return uniform(m, operand_in(m, list, place));
}
template <class T, int ROWS>
WJ_DEVICE T* pointer_in(const Machine<ROWS>& m, const u32* list, u32 place) {
    return uniform_pointer<T>(m, operand_in(m, list, place));
}

template <int ROWS>
WJ_DEVICE void set(const Machine<ROWS>& m, u32 operand, const Words<ROWS>& words) {
    words_of(m, operand) = words;
}
template <int ROWS>
WJ_DEVICE void set_word(const Machine<ROWS>& m, u32 operand, int row, u64 word) {
    words_of(m, operand).of[row] = word;
}

// Keeps what is the same for all lanes. All threads of the block call it.
template <int ROWS>
WJ_DEVICE void keep_uniform(const Machine<ROWS>& m, const Instruction& i) {
    if (threadIdx.x == 0) set(m, i.to, get(m, i.a));
    __syncthreads();
}

template <int ROWS>
WJ_DEVICE bool takes_part(const Machine<ROWS>& m, int row) {
    return (m.taking >> row * WJ_SCOPES & 1) != 0;
}

// Narrows the rows that take part; whether the warp has any.
template <int ROWS>
WJ_DEVICE bool push_scope(Machine<ROWS>& m, const Words<ROWS>& conditions) {
    u32 hold = 0;
    WJ_EACH_ROW hold |= (conditions.of[row] != 0 ? 1u : 0u) << row * WJ_SCOPES;
    hold &= m.taking;
    // Without what was the highest bit of the row below.
    m.taking = (m.taking << 1 & ~first_scopes<ROWS>()) | hold;
    return __any_sync(0xffffffffu, hold != 0);
}
// What moves from one row to the one below is above all scopes that are open there.
template <int ROWS>
WJ_DEVICE void pop_scopes(Machine<ROWS>& m, u32 scopes) {
    m.taking >>= scopes;
}
