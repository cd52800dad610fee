// What happened before what: operations of streams, lanes of a launch, and what synchronizes them.
// Must not know about shadow memory.
//
// The order is that of CUDA's memory model, simplified:
// - Operations (launches, copies, fills, frees, reads by the host) are ordered by their stream, by
//   events and by what the host waited for; `before` says so.
// - __syncthreads orders the lanes of a block, __syncwarp those of its mask. Votes, shuffles and
//   matches order nothing, as CUDA documents.
// - A fence releases what the lane knows, through each atomic store behind it, and acquires what was
//   released through each atomic load before it. Fences and atomics count for the scope that they
//   name, and relaxed (volatile) accesses for the system's. A barrier passes on both halves: lanes
//   that fence, and one of them that stores behind the barrier, release; one that loads, and all
//   that fence behind the barrier, acquire.
#pragma once

#include "sim/races/race_clock.h"
#include "sim/worker.h"

// A launch or an operation of the host, with an actor for each lane.
struct Operation {
    unsigned first_actor, actors;
    unsigned block_threads;
    unsigned device, stream;
    // Its number in its stream, from 1 on.
    unsigned long long number;
    // How many operations of each stream come before it; none of later streams.
    unsigned long long* before;
    unsigned streams;
    // Actors below this one belong to operations before it.
    unsigned ordered_actors;
};

struct RaceLane {
    WjEpoch epoch;
    unsigned actor;
    // Beyond what warp, block and operation know.
    Clock* known;
    // Released by fences, and acquired by the next one, by scope.
    Clock* released[WJ_SCOPES];
    Clock* pending[WJ_SCOPES];
};

struct RaceWarp {
    // All lanes know all accesses of the warp up to here.
    WjEpoch synced;
    // Those that barriers of some lanes made known: of the second lane, to the first. By lane, its
    // own row is valid when `partial` has its bit.
    unsigned partial;
    WjEpoch upto[32][32];
};

// The lanes of one worker. `synced[slot]`: all lanes of a block know all its accesses up to there.
struct RaceLanes {
    RaceLane lanes[kLanesMax];
    RaceWarp warps[kLanesMax / 32];
    WjEpoch synced[kResidentMax];
};

// Operations by actor and by stream.
struct Operations {
    Operation* all;
    unsigned count, room;
    // Of each stream, the first actors of its operations.
    unsigned** firsts;
    unsigned* counts;
    unsigned* rooms;
    unsigned streams;
    unsigned next_actor;

    unsigned of_actor(unsigned actor) const {
        unsigned low = 0, high = count;
        while (high - low > 1) {
            unsigned middle = low + (high - low) / 2;
            if (all[middle].first_actor <= actor) low = middle;
            else high = middle;
        }
        return low;
    }

    // Whether one operation comes before another one. An operation is not before itself.
    bool is_before(unsigned earlier, unsigned later) const {
        const Operation &a = all[earlier], &b = all[later];
        return a.stream < b.streams && a.number <= b.before[a.stream];
    }

    unsigned begin(unsigned device, unsigned stream, const unsigned long long* before, unsigned known_streams,
                   unsigned actors, unsigned block_threads) {
        if (count == room) all = static_cast<Operation*>(grown(all, room, sizeof(Operation)));
        Operation& operation = all[count];
        operation.first_actor = next_actor;
        operation.actors = actors;
        operation.block_threads = block_threads;
        operation.device = device;
        operation.stream = stream;
        operation.streams = known_streams;
        operation.before = static_cast<unsigned long long*>(malloc((known_streams + 1) * sizeof(unsigned long long)));
        if (!operation.before) abort();
        memcpy(operation.before, before, known_streams * sizeof(unsigned long long));
        add_to_stream(stream);
        operation.number = counts[stream];
        operation.ordered_actors = next_actor;
        for (unsigned i = 0; i < streams; ++i) {
            unsigned long long seen = i < known_streams ? before[i] : 0;
            if (seen < counts[i] && firsts[i][seen] < operation.ordered_actors) {
                operation.ordered_actors = firsts[i][seen];
            }
        }
        next_actor += actors;
        return count++;
    }

    void destroy() {
        for (unsigned i = 0; i < count; ++i) free(all[i].before);
        for (unsigned i = 0; i < streams; ++i) free(firsts[i]);
        free(all);
        free(firsts);
        free(counts);
        free(rooms);
    }

private:
    static void* grown(void* old, unsigned& room, size_t bytes) {
        room = room ? room * 2 : 16;
        void* memory = realloc(old, room * bytes);
        if (!memory) abort();
        return memory;
    }

    void add_to_stream(unsigned stream) {
        if (stream >= streams) {
            unsigned wanted = stream + 1;
            firsts = static_cast<unsigned**>(realloc(firsts, wanted * sizeof(unsigned*)));
            counts = static_cast<unsigned*>(realloc(counts, wanted * sizeof(unsigned)));
            rooms = static_cast<unsigned*>(realloc(rooms, wanted * sizeof(unsigned)));
            if (!firsts || !counts || !rooms) abort();
            for (unsigned i = streams; i < wanted; ++i) firsts[i] = nullptr, counts[i] = rooms[i] = 0;
            streams = wanted;
        }
        if (counts[stream] == rooms[stream]) {
            firsts[stream] = static_cast<unsigned*>(grown(firsts[stream], rooms[stream], sizeof(unsigned)));
        }
        firsts[stream][counts[stream]++] = next_actor;
    }
};

static inline bool clock_covers(const Operations& operations, const Clock* clock, unsigned actor, WjEpoch epoch) {
    unsigned of_actor = kNone;
    for (unsigned i = 0; clock && i < clock->count; ++i) {
        const ClockEntry& entry = clock->entries[i];
        if (entry.upto != kBeforeOperation) {
            if (entry.first <= actor && actor <= entry.last && epoch <= entry.upto) return true;
            continue;
        }
        if (of_actor == kNone) of_actor = operations.of_actor(actor);
        if (operations.is_before(of_actor, entry.first)) return true;
    }
    return false;
}

// Who makes an access: a lane of a launch, or an operation of the host (`lanes` is null).
struct Actor {
    const Operations* operations;
    unsigned operation;
    unsigned actor;
    WjEpoch epoch;
    RaceLanes* lanes;
    unsigned lane_id, thread;

    // Whether an access happened before what this one does now.
    bool knows(unsigned other, WjEpoch other_epoch) const {
        const Operation& own = operations->all[operation];
        if (other == actor || other < own.ordered_actors) return true;
        if (lanes) {
            unsigned first_of_block = actor - thread, other_thread = other - first_of_block;
            if (other >= first_of_block && other_thread < own.block_threads) {
                if (other_epoch <= lanes->synced[lane_id / kBlockThreadsMax]) return true;
                const RaceWarp& warp = lanes->warps[lane_id / 32];
                if (other_thread / 32 == thread / 32) {
                    if (other_epoch <= warp.synced) return true;
                    if (warp.partial >> thread % 32 & 1 && other_epoch <= warp.upto[thread % 32][other_thread % 32]) return true;
                }
            }
        }
        bool is_own = other - own.first_actor < own.actors;
        if (!is_own && operations->is_before(operations->of_actor(other), operation)) return true;
        return lanes && clock_covers(*operations, lanes->lanes[lane_id].known, other, other_epoch);
    }
};

static inline void drop_clocks(RaceLane& lane) {
    clock_assign(lane.known, nullptr);
    for (unsigned scope = 0; scope < WJ_SCOPES; ++scope) {
        clock_assign(lane.released[scope], nullptr);
        clock_assign(lane.pending[scope], nullptr);
    }
}

// All that a lane knows, as one clock; the caller owns it.
static inline Clock* snapshot(const Actor& by) {
    RaceLanes& all = *by.lanes;
    const RaceLane& lane = all.lanes[by.lane_id];
    const RaceWarp& warp = all.warps[by.lane_id / 32];
    const Operation& own = by.operations->all[by.operation];
    unsigned first_of_block = by.actor - by.thread, first_of_warp = by.actor - by.thread % 32;
    ClockBuilder built(3 + 32);
    WjEpoch block_upto = all.synced[by.lane_id / kBlockThreadsMax];
    if (block_upto) built.push({first_of_block, first_of_block + own.block_threads - 1, block_upto});
    if (warp.synced) built.push({first_of_warp, first_of_warp + 31, warp.synced});
    bool partial = warp.partial >> by.thread % 32 & 1;
    for (unsigned i = 0; i < 32; ++i) {
        WjEpoch upto = i == by.thread % 32 ? lane.epoch : partial ? warp.upto[by.thread % 32][i] : 0;
        if (upto) built.push({first_of_warp + i, first_of_warp + i, upto});
    }
    built.push({by.operation, 0, kBeforeOperation});
    clock_join(built.clock, lane.known);
    return built.clock;
}

// `count` lanes know from now on what each of them knew and released.
template <class LaneOf>
static inline void join_lanes(unsigned count, LaneOf lane_of_index) {
    Clock* joined[1 + 2 * WJ_SCOPES] = {};
    auto clocks_of = [](RaceLane& lane, unsigned i) -> Clock*& {
        return i == 0 ? lane.known : i <= WJ_SCOPES ? lane.released[i - 1] : lane.pending[i - 1 - WJ_SCOPES];
    };
    for (unsigned i = 0; i < 1 + 2 * WJ_SCOPES; ++i) {
        bool differ = false;
        Clock* one = clocks_of(lane_of_index(0), i);
        for (unsigned k = 1; k < count; ++k) differ |= clocks_of(lane_of_index(k), i) != one;
        if (!differ) continue;
        for (unsigned k = 0; k < count; ++k) clock_join(joined[i], clocks_of(lane_of_index(k), i));
        for (unsigned k = 0; k < count; ++k) clock_assign(clocks_of(lane_of_index(k), i), joined[i]);
        clock_unref(joined[i]);
    }
}

// The lanes of `mask` have met in __syncwarp; `stamp` is new.
static inline void sync_warp(RaceLanes* all, unsigned first_id, unsigned mask, WjEpoch stamp) {
    RaceWarp& warp = all->warps[first_id / 32];
    RaceLane* lanes = all->lanes + first_id;
    unsigned ids[32], count = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1) ids[count++] = static_cast<unsigned>(__builtin_ctz(rest));
    join_lanes(count, [&](unsigned i) -> RaceLane& { return lanes[ids[i]]; });
    if (mask == ~0u) {
        warp.synced = stamp - 1;
        warp.partial = 0;
    } else {
        WjEpoch upto[32] = {};
        for (unsigned i = 0; i < count; ++i) {
            for (unsigned k = 0; warp.partial >> ids[i] & 1 && k < 32; ++k) {
                if (warp.upto[ids[i]][k] > upto[k]) upto[k] = warp.upto[ids[i]][k];
            }
        }
        for (unsigned i = 0; i < count; ++i) upto[ids[i]] = stamp - 1;
        for (unsigned i = 0; i < count; ++i) memcpy(warp.upto[ids[i]], upto, sizeof upto);
        warp.partial |= mask;
    }
    for (unsigned i = 0; i < count; ++i) lanes[ids[i]].epoch = stamp;
}

// All threads of a block have met; `stamp` is new.
static inline void sync_block(RaceLanes* all, unsigned slot, unsigned threads, WjEpoch stamp) {
    RaceLane* lanes = all->lanes + slot * kBlockThreadsMax;
    join_lanes(threads, [&](unsigned i) -> RaceLane& { return lanes[i]; });
    all->synced[slot] = stamp - 1;
    for (unsigned i = 0; i < threads; ++i) lanes[i].epoch = stamp;
    for (unsigned i = 0; i < threads / 32; ++i) all->warps[slot * kBlockThreadsMax / 32 + i].partial = 0;
}

// A block begins in `slot`; `stamp` is new.
static inline void begin_block(RaceLanes* all, unsigned slot, unsigned threads, unsigned first_actor, WjEpoch stamp) {
    RaceLane* lanes = all->lanes + slot * kBlockThreadsMax;
    for (unsigned i = 0; i < threads; ++i) {
        drop_clocks(lanes[i]);
        lanes[i].epoch = stamp;
        lanes[i].actor = first_actor + i;
    }
    for (unsigned i = 0; i < threads / 32; ++i) {
        RaceWarp& warp = all->warps[slot * kBlockThreadsMax / 32 + i];
        warp.synced = 0;
        warp.partial = 0;
    }
    all->synced[slot] = 0;
}
