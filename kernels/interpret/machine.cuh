// The machine that interprets pipelines: a program in shared memory, registers for each lane.
//
// All lanes of a warp are at the same instruction. A lane that takes no part in a scope (`Push`) computes with the others,
// but it loads 0, and neither stores nor moves anything (`MoveIf`). Registers are of 64 bits: signed integers are extended
// by their sign, others by 0; truths are 0 or 1; floats are bits.
#pragma once
#include "common/pipeline.cuh"
#include "interpret/constants.cuh"
#include "interpret/params.cuh"  // src/interpret.rs

struct __align__(16) Instruction {
    u32 operation, to, a, b, c, d, next, unused;
};

// An operand is the place of a word in the block's shared memory, in bytes; for a register that of the first lane's, plus 1; or
// WJ_LAST.
struct Machine {
    // Places in shared memory, in bytes.
    u32 instructions;
    u32 list;         // what describes the group table
    u32 matches;      // what describes relations that were partitioned alike
    u32 lane_bytes;   // from the first lane's registers to the caller's, less 1
    u32 taking;       // bit 0: the lane takes part; bits above: in the scopes around
    mutable u64 last;  // the word that was set last
};

// Brings the program to shared memory. All threads of the block call it.
WJ_DEVICE Machine open_machine(const InterpretParams& p) {
    u64* const base = &shared_as<u64>() + p.shared_words;
    const u32 fields = (u32)p.fields;
    const u32 words = (u32)p.words;
#pragma unroll 1
    for (u32 word = threadIdx.x; word < words; word += blockDim.x) {
        const u64 value = p.program[word];
        base[word] = word < fields ? p.values[value] : value;
    }
    Machine machine;
    machine.instructions = (u32)(p.shared_words + p.instructions) * 8;
    machine.list = (u32)(p.shared_words + p.list) * 8;
    machine.matches = machine.list + (u32)p.match_list * 4;
    machine.lane_bytes = threadIdx.x * 8 - 1;
    machine.taking = 1;
    machine.last = 0;
    __syncthreads();
    return machine;
}

// A pointer that lay in local memory: from here on the compiler knows that it leads to shared memory.
template <class T>
WJ_DEVICE T* in_shared(T* pointer) {
    u8* const base = &shared_as<u8>();
    return reinterpret_cast<T*>(base + (u32)(reinterpret_cast<u8*>(pointer) - base));
}

WJ_DEVICE const Instruction& instruction_at(const Machine& m, u32 at) {
    return reinterpret_cast<const Instruction*>(&shared_as<u8>() + m.instructions)[at];
}
WJ_DEVICE const u32* list_at(u32 place) { return reinterpret_cast<const u32*>(&shared_as<u8>() + place); }
WJ_DEVICE u32 listed(const Machine& m, u32 place) { return list_at(m.list)[place]; }

WJ_DEVICE u64* word_of(const Machine& m, u32 operand) {
    return reinterpret_cast<u64*>(&shared_as<u8>() + (operand + (operand & 1) * m.lane_bytes));
}

// The operand `words` behind another one.
WJ_DEVICE u32 behind(u32 operand, u32 words) { return operand + words * ((operand & 1) != 0 ? blockDim.x * 8 : 8); }

WJ_DEVICE u64 get(const Machine& m, u32 operand) {
    u64 value = m.last;
    if (operand != WJ_LAST) value = *word_of(m, operand);
    return value;
}
WJ_DEVICE u64 get_behind(const Machine& m, u32 operand, u32 words) { return get(m, behind(operand, words)); }

WJ_DEVICE i128 get_wide(const Machine& m, u32 operand) { return wide_literal(get(m, operand), get_behind(m, operand, 1)); }
WJ_DEVICE f64 get_double(const Machine& m, u32 operand) { return __longlong_as_double((i64)get(m, operand)); }
WJ_DEVICE f32 get_single(const Machine& m, u32 operand) { return __uint_as_float((u32)get(m, operand)); }
template <class T>
WJ_DEVICE T* get_pointer(const Machine& m, u32 operand) {
    return reinterpret_cast<T*>(get(m, operand));
}

// What an operand in a list stands for.
WJ_DEVICE u64 value_in(const Machine& m, const u32* list, u32 place) { return get(m, list[place]); }
template <class T>
WJ_DEVICE T* pointer_in(const Machine& m, const u32* list, u32 place) {
    return get_pointer<T>(m, list[place]);
}

WJ_DEVICE void set(const Machine& m, u32 operand, u64 value) {
    m.last = value;
    if (operand != WJ_LAST) *word_of(m, operand) = value;
}
WJ_DEVICE void set_wide(const Machine& m, u32 reg, i128 value) {
    set(m, reg, (u64)value);
    set(m, behind(reg, 1), (u64)((u128)value >> 64));
}
WJ_DEVICE void set_double(const Machine& m, u32 reg, f64 value) { set(m, reg, (u64)__double_as_longlong(value)); }
WJ_DEVICE void set_single(const Machine& m, u32 reg, f32 value) { set(m, reg, __float_as_uint(value)); }

// Keeps what is the same for all lanes. All threads of the block call it.
WJ_DEVICE void keep_uniform(const Machine& m, const Instruction& i) {
    if (threadIdx.x == 0) set(m, i.to, get(m, i.a));
    __syncthreads();
}

WJ_DEVICE bool takes_part(const Machine& m) { return (m.taking & 1) != 0; }

// Narrows the lanes that take part; whether the warp has any.
WJ_DEVICE bool push_scope(Machine& m, bool condition) {
    m.taking = m.taking << 1 | (m.taking & (condition ? 1 : 0));
    return __any_sync(0xffffffffu, takes_part(m));
}
