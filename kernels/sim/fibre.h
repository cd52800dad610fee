// Fibres: stacks, and the switch between them. Must not know what lanes wait for.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "sim/abi.h"

// There when AddressSanitizer was loaded into the process, and null otherwise.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* saved, const void** bottom, size_t* size);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* address, size_t size);
}

// Saves the callee-saved registers and the stack pointer, and continues at `load`. One return
// instruction serves all: lanes at the same place return to the same addresses, so the
// processor's return predictor is right.
extern "C" void wj_sim_switch(void** save, void* load);

#if defined(__x86_64__)
asm(R"(
.text
.globl wj_sim_switch
.hidden wj_sim_switch
.type wj_sim_switch, @function
.p2align 4
wj_sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size wj_sim_switch, .-wj_sim_switch
)");

// A new fibre's saved state: `main` is entered as if called, with the stack aligned for it.
static inline void* fibre_context(char* stack_top, void (*main)()) {
    void** sp = reinterpret_cast<void**>(stack_top);
    // In place of a return address, which `main` does not use.
    *--sp = nullptr;
    *--sp = reinterpret_cast<void*>(main);
    for (int i = 0; i < 6; ++i) *--sp = nullptr;
    return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl wj_sim_switch
.hidden wj_sim_switch
.type wj_sim_switch, %function
.p2align 4
wj_sim_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size wj_sim_switch, .-wj_sim_switch
)");

static inline void* fibre_context(char* stack_top, void (*main)()) {
    void** sp = reinterpret_cast<void**>(stack_top) - 20;
    for (int i = 0; i < 20; ++i) sp[i] = nullptr;
    sp[11] = reinterpret_cast<void*>(main);
    return sp;
}
#else
#error "the simulated device knows the context switch of x86_64 and aarch64"
#endif

static inline WjLane* lane_of(uintptr_t address) {
    uintptr_t base = address & ~(WJ_SIM_STACK_BYTES - 1);
    uintptr_t colour = (address >> WJ_SIM_STACK_SHIFT) & (WJ_SIM_COLOURS - 1);
    return reinterpret_cast<WjLane*>(base + WJ_SIM_STACK_BYTES - WJ_SIM_LANE_BYTES - colour * WJ_SIM_COLOUR_BYTES);
}

// How many stacks of the process still get a guard page: each costs it two of its 65530 mappings.
// Those without are checked at yield points alone.
static int guards_left = 12288;

// Stacks of one worker, made on demand and kept. All are free between runs.
struct StackPool {
    static const unsigned kChunk = 32;
    static const unsigned kChunksMax = 1024;
    static const size_t kGuardBytes = 4096;

    void* chunks[kChunksMax];
    unsigned chunk_count;
    char* free_stacks[kChunk * kChunksMax];
    unsigned free_count;

    // The base of a free stack, or null when the host has no memory.
    char* take() {
        if (free_count == 0 && !grow()) return nullptr;
        return free_stacks[--free_count];
    }

    void give_back(char* base) { free_stacks[free_count++] = base; }

    // Takes all stacks back, also those of fibres that will never end.
    void reset() {
        free_count = 0;
        for (unsigned i = 0; i < chunk_count; ++i) {
            char* first = static_cast<char*>(chunks[i]);
            if (__asan_unpoison_memory_region) {
                for (unsigned k = 0; k < kChunk; ++k) {
                    __asan_unpoison_memory_region(first + k * WJ_SIM_STACK_BYTES + kGuardBytes,
                                                  WJ_SIM_STACK_BYTES - kGuardBytes);
                }
            }
            for (unsigned k = 0; k < kChunk; ++k) give_back(first + k * WJ_SIM_STACK_BYTES);
        }
    }

private:
    bool grow() {
        if (chunk_count == kChunksMax) return false;
        size_t bytes = kChunk * WJ_SIM_STACK_BYTES;
        void* mapped = mmap(nullptr, bytes + WJ_SIM_STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) return false;
        uintptr_t start = reinterpret_cast<uintptr_t>(mapped);
        uintptr_t aligned = (start + WJ_SIM_STACK_BYTES - 1) & ~(WJ_SIM_STACK_BYTES - 1);
        if (aligned > start) munmap(mapped, aligned - start);
        if (start + WJ_SIM_STACK_BYTES > aligned) {
            munmap(reinterpret_cast<void*>(aligned + bytes), start + WJ_SIM_STACK_BYTES - aligned);
        }
        char* first = reinterpret_cast<char*>(aligned);
        // Huge pages would commit every stack whole.
        madvise(first, bytes, MADV_NOHUGEPAGE);
        for (unsigned k = 0; k < kChunk; ++k) {
            if (__atomic_sub_fetch(&guards_left, 1, __ATOMIC_RELAXED) < 0) {
                __atomic_store_n(&guards_left, 0, __ATOMIC_RELAXED);
                break;
            }
            if (mprotect(first + k * WJ_SIM_STACK_BYTES, kGuardBytes, PROT_NONE) != 0) break;
        }
        chunks[chunk_count++] = first;
        for (unsigned k = 0; k < kChunk; ++k) give_back(first + (kChunk - 1 - k) * WJ_SIM_STACK_BYTES);
        return true;
    }
};
