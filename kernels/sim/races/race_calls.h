// The race detector as the scheduler, the kernels and the host call it.
#pragma once

#include "sim/races/races.h"

#define WJ_EXPORT extern "C" __attribute__((visibility("default")))

static inline Races* races_of(Worker* w) { return static_cast<Races*>(w->launch->races); }

static inline Actor actor_of(Worker* w, const WjLane* lane) {
    const RaceLane& of = w->race_lanes->lanes[lane->id];
    return {&races_of(w)->operations, w->launch->operation, of.actor, of.epoch, w->race_lanes, lane->id, lane->thread_index.x};
}

static inline unsigned low_half(const void* pc) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(pc)); }

static void race_begin_block(Worker* w, unsigned slot) {
    Races* races = races_of(w);
    const Block& block = w->blocks[slot];
    const Operation& operation = races->operations.all[w->launch->operation];
    unsigned threads = w->launch->block_threads;
    begin_block(w->race_lanes, slot, threads, operation.first_actor + block.index * threads, ++races->stamp);
    if (block.shared) races->shadow.clear(reinterpret_cast<uintptr_t>(block.shared), w->launch->shared_bytes);
}

static void race_sync_warp(Worker* w, unsigned first_id, unsigned mask) {
    sync_warp(w->race_lanes, first_id, mask, ++races_of(w)->stamp);
}

static void race_sync_block(Worker* w, unsigned slot) {
    sync_block(w->race_lanes, slot, w->launch->block_threads, ++races_of(w)->stamp);
}

// Parameters, and what the compiler made constant, are written by nobody.
static inline bool is_parameter(const Worker* w, const void* address) {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(w->launch->params) < w->launch->param_bytes;
}

static void lane_accesses(WjLane* lane, const void* address, unsigned bytes, unsigned flags, const void* pc) {
    Worker* w = worker_of(lane);
    if (!w->launch->races || is_parameter(w, address)) return;
    Actor by = actor_of(w, lane);
    if (race_access(races_of(w), by, reinterpret_cast<uintptr_t>(address), bytes, flags, low_half(pc))) return;
    fail(w, "data race");
}

static bool lane_atomic(WjLane* lane, const void* address, unsigned bytes, WjAtomic kind, WjScope scope, const void* pc,
                        unsigned long long* stale) {
    Worker* w = worker_of(lane);
    if (!w->launch->races) return false;
    // Locals are seen by their own lane alone.
    if ((reinterpret_cast<uintptr_t>(address) ^ reinterpret_cast<uintptr_t>(lane)) < WJ_SIM_STACK_BYTES) return false;
    bool raced;
    bool gives_stale = race_atomic(races_of(w), actor_of(w, lane), address, bytes, kind, scope, low_half(pc), stale, &raced);
    if (raced) fail(w, "data race");
    return gives_stale;
}

static void lane_fences(WjLane* lane, WjScope scope) {
    Worker* w = worker_of(lane);
    if (w->launch->races) race_fence(races_of(w), actor_of(w, lane), scope);
}

WJ_EXPORT Races* wj_sim_races_create(unsigned devices, unsigned long long seed) {
    Races* races = static_cast<Races*>(calloc(1, sizeof(Races)));
    if (!races) return nullptr;
    races->devices = devices;
    races->rng = seed;
    return races;
}

WJ_EXPORT void wj_sim_races_destroy(Races* races) {
    races->shadow.destroy();
    races->operations.destroy();
    free(races);
}

// The next operation of `stream`, by `actors` lanes; `before[i]` operations of stream i come before
// it. Its number, or ~0 when the actors of 32 bits are used up.
WJ_EXPORT unsigned wj_sim_races_begin(Races* races, unsigned device, unsigned stream, const unsigned long long* before,
                                      unsigned streams, unsigned actors, unsigned block_threads) {
    if (races->operations.next_actor > ~actors) return kNone;
    ++races->stamp;
    return races->operations.begin(device, stream, before, streams, actors, block_threads);
}

// The host, or the copy engine, accesses a range as `operation`; false when that is a race.
WJ_EXPORT bool wj_sim_races_access(Races* races, unsigned operation, unsigned long long address,
                                   unsigned long long bytes, bool writes) {
    unsigned actor = races->operations.all[operation].first_actor;
    Actor by = {&races->operations, operation, actor, races->stamp, nullptr, 0, 0};
    return race_range(races, by, address, bytes, writes ? WJ_ACCESS_WRITE : 0);
}

// Forgets all accesses to memory that was freed, or is new.
WJ_EXPORT void wj_sim_races_clear(Races* races, unsigned long long address, unsigned long long bytes) {
    races->shadow.clear(address, bytes);
}

// The race that was found since the last call, if any.
WJ_EXPORT bool wj_sim_races_take(Races* races, WjRace* race) {
    if (!races->reported) return false;
    races->reported = false;
    *race = races->report;
    return true;
}
