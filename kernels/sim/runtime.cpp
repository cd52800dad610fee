// The scheduler of the simulated device: collectives, the life of a lane, and the interface to
// the host. Compiled once, not with every kernel.
#include "sim/races/race_calls.h"

static unsigned lowest_bit(unsigned mask) { return static_cast<unsigned>(__builtin_ctz(mask)); }

static const char* warp_op_name(WjWarpOp op) {
    static const char* const names[] = {
        "__syncwarp",        "__ballot_sync",     "__any_sync",        "__all_sync",        "__shfl_sync",
        "__match_any_sync",  "__match_all_sync",  "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
        "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync",
    };
    return names[op];
}

static void fail_deadlock(Worker* w) {
    char text[900];
    size_t length = 0;
    text[0] = 0;
    for (unsigned slot = 0; slot < w->resident; ++slot) {
        Block& block = w->blocks[slot];
        if (block.live == 0) continue;
        if (block.waiting && length < sizeof text - 200) {
            length += static_cast<size_t>(snprintf(text + length, sizeof text - length,
                "; block %u: %u of %u threads wait in __syncthreads (line %d)", block.index, block.waiting,
                w->launch->block_threads, block.line));
        }
        for (unsigned i = 0; i < w->launch->block_threads / 32; ++i) {
            for (unsigned used = block.warps[i].used; used && length < sizeof text - 200; used &= used - 1) {
                WarpGroup& group = block.warps[i].groups[lowest_bit(used)];
                length += static_cast<size_t>(snprintf(text + length, sizeof text - length,
                    "; block %u, warp %u: lanes 0x%08x wait in %s (line %d) for lanes 0x%08x", block.index, i,
                    group.arrived, warp_op_name(group.op), group.line, group.mask & ~group.arrived));
            }
        }
    }
    fail(w, "deadlock%s", text);
}

static unsigned match_lanes(const Warp& warp, unsigned mask, unsigned long long value) {
    unsigned matched = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        unsigned lane = lowest_bit(rest);
        if (warp.value[lane] == value) matched |= 1u << lane;
    }
    return matched;
}

static unsigned reduce_lanes(const Warp& warp, unsigned mask, WjWarpOp op) {
    unsigned total = static_cast<unsigned>(warp.value[lowest_bit(mask)]);
    for (unsigned rest = mask & (mask - 1); rest; rest &= rest - 1) {
        unsigned value = static_cast<unsigned>(warp.value[lowest_bit(rest)]);
        int left = static_cast<int>(total), right = static_cast<int>(value);
        switch (op) {
            case WJ_ADD: total += value; break;
            case WJ_MIN_U32: total = value < total ? value : total; break;
            case WJ_MAX_U32: total = value > total ? value : total; break;
            case WJ_MIN_I32: total = static_cast<unsigned>(right < left ? right : left); break;
            case WJ_MAX_I32: total = static_cast<unsigned>(right > left ? right : left); break;
            case WJ_AND: total &= value; break;
            case WJ_OR: total |= value; break;
            default: total ^= value; break;
        }
    }
    return total;
}

// All lanes of `mask` are there: each gets its result.
static void complete_warp(Worker* w, Warp& warp, unsigned mask, WjWarpOp op) {
    unsigned long long common = 0;
    switch (op) {
        case WJ_SYNC: return;
        case WJ_SHUFFLE:
            for (unsigned rest = mask; rest; rest &= rest - 1) {
                unsigned lane = lowest_bit(rest), source = warp.source[lane];
                // What a lane outside the mask holds is undefined: a value that shows.
                warp.result[lane] = mask >> source & 1 ? warp.value[source] : draw(w);
            }
            return;
        case WJ_MATCH_ANY:
            for (unsigned rest = mask; rest; rest &= rest - 1) {
                unsigned lane = lowest_bit(rest);
                warp.result[lane] = match_lanes(warp, mask, warp.value[lane]);
            }
            return;
        case WJ_BALLOT:
        case WJ_ANY:
        case WJ_ALL: {
            unsigned ballot = match_lanes(warp, mask, 1);
            common = op == WJ_BALLOT ? ballot : op == WJ_ANY ? ballot != 0 : ballot == mask;
            break;
        }
        case WJ_MATCH_ALL:
            common = match_lanes(warp, mask, warp.value[lowest_bit(mask)]) == mask ? mask : 0;
            break;
        default: common = reduce_lanes(warp, mask, op);
    }
    for (unsigned rest = mask; rest; rest &= rest - 1) warp.result[lowest_bit(rest)] = common;
}

// The group that waits with this mask, or a new one.
static WarpGroup& group_of(Warp& warp, unsigned mask, WjWarpOp op, int line) {
    unsigned first = lowest_bit(mask);
    if ((warp.used >> first & 1) && warp.groups[first].mask == mask) return warp.groups[first];
    for (unsigned used = warp.used; used; used &= used - 1) {
        WarpGroup& group = warp.groups[lowest_bit(used)];
        if (group.mask == mask) return group;
    }
    // A lane waits in one group at most, so one of the 32 is free for the caller.
    unsigned free_index = warp.used >> first & 1 ? lowest_bit(~warp.used) : first;
    warp.used |= 1u << free_index;
    WarpGroup& group = warp.groups[free_index];
    group.mask = mask;
    group.arrived = 0;
    group.op = op;
    group.line = line;
    return group;
}

static unsigned long long warp_collective(WjLane* lane, WjWarpOp op, unsigned mask, unsigned long long value,
                                          unsigned source, int line) {
    Worker* w = worker_of(lane);
    Block& block = block_of(w, lane->id);
    unsigned thread = lane->thread_index.x, index = thread % 32;
    Warp& warp = block.warps[thread / 32];
    if (!(mask >> index & 1)) {
        fail(w, "block %u, thread %u: %s (line %d) with mask 0x%08x, which lacks the caller", block.index, thread,
             warp_op_name(op), line, mask);
    }
    if (mask & warp.exited) {
        fail(w, "block %u, thread %u: %s (line %d) with mask 0x%08x, of which lanes 0x%08x have exited", block.index,
             thread, warp_op_name(op), line, mask, mask & warp.exited);
    }
    WarpGroup& group = group_of(warp, mask, op, line);
    if (group.op != op) {
        fail(w, "block %u, thread %u: %s (line %d) while lanes 0x%08x of the mask wait in %s (line %d)", block.index,
             thread, warp_op_name(op), line, group.arrived, warp_op_name(group.op), group.line);
    }
    warp.value[index] = value;
    warp.source[index] = source;
    group.arrived |= 1u << index;
    if (group.arrived == mask) {
        warp.used &= ~(1u << (&group - warp.groups));
        complete_warp(w, warp, mask, op);
        if (op == WJ_SYNC && w->launch->races) race_sync_warp(w, lane->id - index, mask);
        for (unsigned rest = mask & ~(1u << index); rest; rest &= rest - 1) {
            make_ready(w, lane->id - index + lowest_bit(rest));
        }
        if (!w->explore) return warp.result[index];
        make_ready(w, lane->id);
    }
    suspend(w, lane);
    return warp.result[index];
}

static unsigned block_barrier(WjLane* lane, WjBlockOp op, unsigned predicate, int line) {
    Worker* w = worker_of(lane);
    Block& block = block_of(w, lane->id);
    if (block.exited) {
        fail(w, "block %u, thread %u: __syncthreads (line %d) after %u threads have exited", block.index,
             lane->thread_index.x, line, block.exited);
    }
    if (block.waiting == 0) {
        block.op = op;
        block.line = line;
        block.count = 0;
    } else if (block.op != op || block.line != line) {
        fail(w, "block %u, thread %u: divergent __syncthreads: it comes to line %d while %u threads wait at line %d",
             block.index, lane->thread_index.x, line, block.waiting, block.line);
    }
    block.count += predicate;
    if (++block.waiting == w->launch->block_threads) {
        block.waiting = 0;
        if (w->launch->races) race_sync_block(w, lane->id / kBlockThreadsMax);
        block.result = op == WJ_BARRIER_COUNT ? block.count
                       : op == WJ_BARRIER_OR  ? block.count != 0
                                              : block.count == w->launch->block_threads;
        for (unsigned thread = 0; thread < w->launch->block_threads; ++thread) {
            unsigned id = lane->id - lane->thread_index.x + thread;
            if (id != lane->id) make_ready(w, id);
        }
        if (!w->explore) return block.result;
        make_ready(w, lane->id);
    }
    suspend(w, lane);
    return block.result;
}

static void lane_fails(WjLane* lane, const char* reason, int line) {
    fail(worker_of(lane), "block %u, thread %u: %s (line %d)", lane->block_index.x, lane->thread_index.x, reason, line);
}

// The running lane has come to its end.
static void end_lane(Worker* w, WjLane* lane) {
    Block& block = block_of(w, lane->id);
    unsigned thread = lane->thread_index.x, bit = 1u << thread % 32;
    Warp& warp = block.warps[thread / 32];
    for (unsigned used = warp.used; used; used &= used - 1) {
        WarpGroup& group = warp.groups[lowest_bit(used)];
        if (!(group.mask & bit)) continue;
        fail(w, "block %u, thread %u exits while lanes 0x%08x wait for it in %s (line %d) with mask 0x%08x", block.index,
             thread, group.arrived, warp_op_name(group.op), group.line, group.mask);
    }
    if (block.waiting) {
        fail(w, "block %u, thread %u exits while %u threads wait in __syncthreads (line %d)", block.index, thread,
             block.waiting, block.line);
    }
    warp.exited |= bit;
    ++block.exited;
    if (--block.live > 0) return;
    check_shared_canary(w, block);
    --w->running_blocks;
    admit_block(w, lane->id / kBlockThreadsMax);
}

// A fibre runs lane after lane: one that never waits costs no switch.
static void fibre_main() {
    WjLane* lane = lane_of(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
    Worker* w = worker_of(lane);
    if (__sanitizer_finish_switch_fiber) {
        const void* bottom;
        size_t bytes;
        __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
        // The first fibre of a run comes from the OS thread's stack.
        if (!w->host_bottom) {
            w->host_bottom = bottom;
            w->host_bytes = bytes;
        }
    }
    for (;;) {
        w->launch->entry(w->launch->params);
        end_lane(w, lane);
        unsigned next = take_ready(w);
        if (next == kNone) {
            if (w->running_blocks > 0) fail_deadlock(w);
        } else if (!w->context[next]) {
            bind_lane(w, lane, next);
            continue;
        }
        // This stack is not used again before the switch: only this thread takes stacks.
        w->stacks.give_back(reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(lane) & ~(WJ_SIM_STACK_BYTES - 1)));
        if (next == kNone) leave_to_host(w);
        void* abandoned;
        switch_to_lane(&abandoned, w->context[next], nullptr);
    }
}

static unsigned long long greatest_common_divisor(unsigned long long a, unsigned long long b) {
    while (b) {
        unsigned long long rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool prepare(Worker* w, WjSimLaunch* launch) {
    w->launch = launch;
    w->explore = launch->explore != 0;
    w->rng = launch->seed * 0x9E3779B97F4A7C15ull | 1;
    for (int i = 0; i < 4; ++i) draw(w);
    static const unsigned stays[4] = {0, 0, 4, 7};
    w->stay = w->explore ? stays[draw(w) >> 62] : 0;
    w->order_step = 1;
    w->order_start = 0;
    if (w->explore) {
        w->order_start = draw(w) % launch->blocks;
        w->order_step = 1 + draw(w) % launch->blocks;
        while (greatest_common_divisor(w->order_step, launch->blocks) != 1) ++w->order_step;
    }
    w->ready_head = w->ready_count = w->running_blocks = 0;
    w->resident = launch->resident_blocks < kResidentMax ? launch->resident_blocks : kResidentMax;
    w->host_bottom = nullptr;
    w->failed = false;
    w->error[0] = 0;
    if (launch->races && !w->race_lanes) w->race_lanes = static_cast<RaceLanes*>(race_calloc(1, sizeof(RaceLanes)));
    for (unsigned slot = 0; slot < kResidentMax; ++slot) w->shared_memory[slot] = nullptr;
    if (launch->shared_bytes == 0) return true;
    // AddressSanitizer watches what lies behind the allocation; else a canary does.
    size_t bytes = launch->shared_bytes + (__asan_unpoison_memory_region ? 0 : kCanaryBytes);
    for (unsigned slot = 0; slot < w->resident; ++slot) {
        void* memory = nullptr;
        if (posix_memalign(&memory, 256, bytes) != 0) return false;
        w->shared_memory[slot] = static_cast<unsigned char*>(memory);
    }
    return true;
}

static const char* finish(Worker* w, const char* error) {
    for (unsigned slot = 0; slot < kResidentMax; ++slot) free(w->shared_memory[slot]);
    if (error) {
        __atomic_store_n(&w->launch->failed, 1, __ATOMIC_RELAXED);
        w->stacks.reset();
    }
    return error;
}

static const WjRuntime runtime = {yield_lane, yield_lane_plain, warp_collective, block_barrier,
                                  lane_fails, lane_accesses,    lane_atomic,     lane_fences};

WJ_EXPORT const WjRuntime* wj_sim_runtime() { return &runtime; }

// A worker with no stacks yet, or null. Workers live as long as the process.
WJ_EXPORT Worker* wj_sim_worker_create() {
    Worker* w = static_cast<Worker*>(calloc(1, sizeof(Worker)));
    if (!w) return nullptr;
    w->rng = 0x2545F4914F6CDD1Dull;
    for (unsigned i = 0; i < kPoisonBytes; ++i) w->poison[i] = static_cast<unsigned char>(draw(w) >> 56);
    return w;
}

// Runs blocks of the launch until none is left. Null, or an error that lives as long as the
// worker does nothing else.
WJ_EXPORT const char* wj_sim_run(Worker* w, WjSimLaunch* launch) {
    if (!prepare(w, launch)) return finish(w, "the host has no memory for shared memory");
    for (unsigned slot = 0; slot < w->resident && admit_block(w, slot); ++slot) {
    }
    if (w->running_blocks > 0) {
        void* context = context_of(w, take_ready(w));
        switch_to_lane(&w->host_context, context, &w->host_fake_stack);
        if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(w->host_fake_stack, nullptr, nullptr);
    }
    return finish(w, w->failed ? w->error : nullptr);
}
