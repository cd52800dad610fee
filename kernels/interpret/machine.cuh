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
    u16 operation, to, a, b, c, d;
    u32 next;
};

struct Machine {
    const Instruction* instructions;
    const u64* uniform;  // parameters, then constants
    const u16* list;     // describes the group table
    const u16* matches;  // describes relations that were partitioned alike
    u64* lane;           // the caller's first register; the others are blockDim.x words apart
    u32 taking;          // bit 0: the lane takes part; bits above: in the scopes around
};

// Brings the program to shared memory. All threads of the block call it.
WJ_DEVICE Machine open_machine(const InterpretParams& p) {
    u64* const base = &shared_as<u64>() + p.shared_words;
    const u32 code_words = 2 * (u32)p.instructions;
    const u32 fields = (u32)p.fields;
    const u32 behind = fields + (u32)p.constants + (u32)p.list_words;
#pragma unroll 1
    for (u32 word = threadIdx.x; word < code_words; word += blockDim.x) base[word] = p.program[word];
#pragma unroll 1
    for (u32 word = threadIdx.x; word < behind; word += blockDim.x) {
        const u64 value = p.program[code_words + word];
        base[code_words + word] = word < fields ? p.values[value] : value;
    }
    Machine machine;
    machine.instructions = reinterpret_cast<const Instruction*>(base);
    machine.uniform = base + code_words;
    machine.list = reinterpret_cast<const u16*>(machine.uniform + fields + p.constants);
    machine.matches = machine.list + p.match_list;
    machine.lane = base + code_words + behind + threadIdx.x;
    machine.taking = 1;
    __syncthreads();
    return machine;
}

// The word of an operand; of its upper half with `half` 1.
WJ_DEVICE u64 get(const Machine& m, u32 operand, u32 half = 0) {
    const u32 at = operand + half;
    return (at & WJ_UNIFORM) != 0 ? m.uniform[at ^ WJ_UNIFORM] : m.lane[at * blockDim.x];
}

WJ_DEVICE i128 get_wide(const Machine& m, u32 operand) { return wide_literal(get(m, operand), get(m, operand, 1)); }
WJ_DEVICE f64 get_double(const Machine& m, u32 operand) { return __longlong_as_double((i64)get(m, operand)); }
WJ_DEVICE f32 get_single(const Machine& m, u32 operand) { return __uint_as_float((u32)get(m, operand)); }
template <class T>
WJ_DEVICE T* get_pointer(const Machine& m, u32 operand) {
    return reinterpret_cast<T*>(get(m, operand));
}

WJ_DEVICE void set(const Machine& m, u32 reg, u64 value) { m.lane[reg * blockDim.x] = value; }
WJ_DEVICE void set_wide(const Machine& m, u32 reg, i128 value) {
    set(m, reg, (u64)value);
    set(m, reg + 1, (u64)((u128)value >> 64));
}
WJ_DEVICE void set_double(const Machine& m, u32 reg, f64 value) { set(m, reg, (u64)__double_as_longlong(value)); }
WJ_DEVICE void set_single(const Machine& m, u32 reg, f32 value) { set(m, reg, __float_as_uint(value)); }

WJ_DEVICE bool takes_part(const Machine& m) { return (m.taking & 1) != 0; }

// Narrows the lanes that take part; whether the warp has any.
WJ_DEVICE bool push_scope(Machine& m, bool condition) {
    m.taking = m.taking << 1 | (m.taking & (condition ? 1 : 0));
    return __any_sync(0xffffffffu, takes_part(m));
}
