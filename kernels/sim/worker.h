// A worker: runs blocks of one launch on the calling OS thread, and decides which lane goes next.
// Must not know what a collective computes.
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/fibre.h"

static const unsigned kBlockThreadsMax = 1024;
static const unsigned kResidentMax = 4;
static const unsigned kLanesMax = kBlockThreadsMax * kResidentMax;
static const unsigned kNone = ~0u;
static const unsigned kCanaryBytes = 256;
static const unsigned kPoisonBytes = 1 << 16;

// Lanes of a warp that wait in one collective.
struct WarpGroup {
    unsigned mask;
    unsigned arrived;
    WjWarpOp op;
    int line;
};

struct Warp {
    unsigned exited;
    // Which of `groups` are in use.
    unsigned used;
    unsigned long long value[32];
    unsigned long long result[32];
    unsigned source[32];
    WarpGroup groups[32];
};

struct Block {
    unsigned index;
    unsigned live;
    unsigned exited;
    // The barrier that lanes wait in, if `waiting` > 0.
    unsigned waiting;
    WjBlockOp op;
    int line;
    unsigned count;
    unsigned result;
    unsigned char* shared;
    Warp warps[kBlockThreadsMax / 32];
};

struct Worker {
    WjSimLaunch* launch;
    bool explore;
    // In 1/8: how often a yield point of an exploring launch keeps the running lane.
    unsigned stay;
    unsigned long long rng;
    unsigned long long order_step, order_start;
    // The OS thread's own stack, while lanes run.
    void* host_context;
    void* host_fake_stack;
    const void* host_bottom;
    size_t host_bytes;
    // Lanes that can run: a ring, or a bag when exploring.
    unsigned ready_head, ready_count;
    unsigned ready[kLanesMax];
    // Where each lane stopped; null before it starts.
    void* context[kLanesMax];
    Block blocks[kResidentMax];
    unsigned resident, running_blocks;
    // Dynamic shared memory of each resident block.
    unsigned char* shared_memory[kResidentMax];
    bool failed;
    char error[1024];
    unsigned char poison[kPoisonBytes];
    StackPool stacks;
    // Made for the first launch that looks for races.
    struct RaceLanes* race_lanes;
};

static inline Worker* worker_of(WjLane* lane) { return static_cast<Worker*>(lane->worker); }
static inline Block& block_of(Worker* w, unsigned id) { return w->blocks[id / kBlockThreadsMax]; }

static inline unsigned long long draw(Worker* w) {
    unsigned long long x = w->rng;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return w->rng = x;
}
// Below `n`, which is small: the bias does not matter.
static inline unsigned draw_below(Worker* w, unsigned n) {
    return static_cast<unsigned>((draw(w) >> 32) * n >> 32);
}

static inline void make_ready(Worker* w, unsigned id) {
    unsigned at = w->explore ? w->ready_count : (w->ready_head + w->ready_count) % kLanesMax;
    w->ready[at] = id;
    ++w->ready_count;
}

static inline unsigned take_ready(Worker* w) {
    if (w->ready_count == 0) return kNone;
    if (w->explore) {
        unsigned at = draw_below(w, w->ready_count), id = w->ready[at];
        w->ready[at] = w->ready[--w->ready_count];
        return id;
    }
    unsigned id = w->ready[w->ready_head];
    w->ready_head = (w->ready_head + 1) % kLanesMax;
    --w->ready_count;
    return id;
}

// Switches stacks. `save_fake` is null when the running fibre never continues.
static inline void switch_to(void** save, void* context, void** save_fake, const void* bottom, size_t bytes) {
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(save_fake, bottom, bytes);
    wj_sim_switch(save, context);
}

static inline void switch_to_lane(void** save, void* context, void** save_fake) {
    uintptr_t base = reinterpret_cast<uintptr_t>(context) & ~(WJ_SIM_STACK_BYTES - 1);
    switch_to(save, context, save_fake, reinterpret_cast<void*>(base), WJ_SIM_STACK_BYTES);
}

[[noreturn]] static inline void leave_to_host(Worker* w) {
    void* abandoned;
    switch_to(&abandoned, w->host_context, nullptr, w->host_bottom, w->host_bytes);
    __builtin_unreachable();
}

// Ends the run with the first error; the lanes' stacks are taken back as they are.
[[noreturn]] __attribute__((noinline, cold, format(printf, 2, 3))) static void fail(Worker* w, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->error, sizeof w->error, format, arguments);
    va_end(arguments);
    w->failed = true;
    leave_to_host(w);
}

static inline void bind_lane(Worker* w, WjLane* lane, unsigned id) {
    const WjSimLaunch* launch = w->launch;
    Block& block = block_of(w, id);
    lane->thread_index.x = id % kBlockThreadsMax;
    lane->block_index.x = block.index;
    lane->block_dim.x = launch->block_threads;
    lane->grid_dim.x = launch->blocks;
    lane->yield_in = w->explore ? 1 : 1 + static_cast<int>(draw(w) >> 59);
    lane->plain_in = 1 + static_cast<int>(draw(w) >> 62);
    lane->id = id;
    lane->shared = block.shared;
    lane->worker = w;
    lane->fake_stack = nullptr;
}

static void fibre_main();
// A block takes its place: for the race detector.
static void race_begin_block(Worker* w, unsigned slot);

// Where `id` continues; a lane that has not started gets a stack.
static inline void* context_of(Worker* w, unsigned id) {
    if (void* context = w->context[id]) return context;
    char* base = w->stacks.take();
    if (!base) fail(w, "the host has no memory for the stacks of the lanes");
    WjLane* lane = lane_of(reinterpret_cast<uintptr_t>(base));
    bind_lane(w, lane, id);
    return fibre_context(reinterpret_cast<char*>(lane), fibre_main);
}

__attribute__((noinline, cold)) static void fail_deadlock(Worker* w);

// Every yield point of a lane whose stack is nearly used comes here, so the error has room to be written.
static inline void check_stack(Worker* w, WjLane* lane) {
    uintptr_t sp = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    if ((sp & (WJ_SIM_STACK_BYTES - 1)) < WJ_SIM_STACK_RESERVE_BYTES) {
        fail(w, "block %u, thread %u: stack overflow", lane->block_index.x, lane->thread_index.x);
    }
}

// The running lane waits, or was put among the ready ones: runs others until it is drawn again.
__attribute__((noinline)) static void suspend(Worker* w, WjLane* lane) {
    check_stack(w, lane);
    unsigned next = take_ready(w);
    if (next == lane->id) return;
    if (next == kNone) fail_deadlock(w);
    switch_to_lane(&w->context[lane->id], context_of(w, next), &lane->fake_stack);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(lane->fake_stack, nullptr, nullptr);
}

static void yield_lane(WjLane* lane) {
    Worker* w = worker_of(lane);
    check_stack(w, lane);
    if (w->explore) {
        lane->yield_in = 1;
        if (w->stay && (draw(w) >> 61) < w->stay) return;
    } else {
        lane->yield_in = 1 + static_cast<int>(draw(w) >> 59);
    }
    make_ready(w, lane->id);
    suspend(w, lane);
}

// About two plain accesses in five.
static void yield_lane_plain(WjLane* lane) {
    Worker* w = worker_of(lane);
    lane->plain_in = 1 + static_cast<int>(draw(w) >> 62);
    make_ready(w, lane->id);
    suspend(w, lane);
}

// Pseudo-random bytes, so that a read of shared memory before a write shows.
static inline void poison_shared(Worker* w, Block& block) {
    size_t bytes = w->launch->shared_bytes + (__asan_unpoison_memory_region ? 0 : kCanaryBytes);
    for (size_t at = 0; at < bytes;) {
        size_t from = draw(w) % (kPoisonBytes / 2) & ~7ul, part = bytes - at < kPoisonBytes / 2 ? bytes - at : kPoisonBytes / 2;
        memcpy(block.shared + at, w->poison + from, part);
        at += part;
    }
    if (!__asan_unpoison_memory_region) memset(block.shared + w->launch->shared_bytes, 0xA5, kCanaryBytes);
}

static inline void check_shared_canary(Worker* w, Block& block) {
    if (!block.shared || __asan_unpoison_memory_region) return;
    for (unsigned i = 0; i < kCanaryBytes; ++i) {
        if (block.shared[w->launch->shared_bytes + i] == 0xA5) continue;
        fail(w, "block %u wrote behind its %u bytes of shared memory, at byte +%u", block.index, w->launch->shared_bytes, i);
    }
}

// Makes the next block of the launch resident in `slot`; false when all are taken.
static bool admit_block(Worker* w, unsigned slot) {
    WjSimLaunch* launch = w->launch;
    if (__atomic_load_n(&launch->failed, __ATOMIC_RELAXED)) return false;
    unsigned long long taken = __atomic_fetch_add(&launch->taken, 1, __ATOMIC_RELAXED);
    if (taken >= launch->blocks) return false;
    Block& block = w->blocks[slot];
    block.index = static_cast<unsigned>((taken * w->order_step + w->order_start) % launch->blocks);
    block.live = launch->block_threads;
    block.exited = 0;
    block.waiting = 0;
    block.shared = w->shared_memory[slot];
    for (unsigned i = 0; i < launch->block_threads / 32; ++i) block.warps[i].exited = block.warps[i].used = 0;
    if (block.shared) poison_shared(w, block);
    if (launch->races) race_begin_block(w, slot);
    for (unsigned thread = 0; thread < launch->block_threads; ++thread) {
        unsigned id = slot * kBlockThreadsMax + thread;
        w->context[id] = nullptr;
        make_ready(w, id);
    }
    ++w->running_blocks;
    return true;
}
