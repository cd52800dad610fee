// Clocks of the race detector: sets of accesses, as ranges of actors and epochs. Immutable, and
// shared by reference counts; null is the empty clock. Must not know where clocks come from.
#pragma once

#include <stdlib.h>
#include <string.h>

#include "sim/abi.h"

typedef unsigned long long WjEpoch;

// All accesses that the actors of [first, last] made up to an epoch.
// An actor is a lane of one launch, or one operation of the host.
struct ClockEntry {
    unsigned first, last;
    WjEpoch upto;
};

// In place of `upto`: all that happened before the operation `first` began.
static const WjEpoch kBeforeOperation = ~0ull;

// Entries are sorted: operations last, outer ranges before the ranges within them. Ranges nest, as
// lanes do in warps and blocks.
struct Clock {
    unsigned refs;
    unsigned count;
    ClockEntry entries[];
};

static inline Clock* clock_ref(Clock* clock) {
    if (clock) ++clock->refs;
    return clock;
}
static inline void clock_unref(Clock* clock) {
    if (clock && --clock->refs == 0) free(clock);
}
static inline void clock_assign(Clock*& target, Clock* source) {
    Clock* old = target;
    target = clock_ref(source);
    clock_unref(old);
}

static inline int clock_compare(const ClockEntry& a, const ClockEntry& b) {
    bool a_operation = a.upto == kBeforeOperation, b_operation = b.upto == kBeforeOperation;
    if (a_operation != b_operation) return a_operation ? 1 : -1;
    if (a.first != b.first) return a.first < b.first ? -1 : 1;
    if (a.last != b.last) return a.last > b.last ? -1 : 1;
    return 0;
}

// Entries being put together in order; one that an outer range already covers is left out.
struct ClockBuilder {
    Clock* clock;
    unsigned room;
    // The ranges around the last entry: block, warp, lane.
    unsigned around[4], depth;

    explicit ClockBuilder(unsigned entries) : room(entries), depth(0) {
        clock = static_cast<Clock*>(malloc(sizeof(Clock) + entries * sizeof(ClockEntry)));
        if (!clock) abort();
        clock->refs = 1;
        clock->count = 0;
    }

    void push(const ClockEntry& entry) {
        if (entry.upto != kBeforeOperation) {
            while (depth && clock->entries[around[depth - 1]].last < entry.first) --depth;
            for (unsigned i = 0; i < depth; ++i) {
                if (clock->entries[around[i]].upto >= entry.upto) return;
            }
            if (depth < 4) around[depth++] = clock->count;
        }
        clock->entries[clock->count++] = entry;
    }
};

static inline bool clock_equal(const Clock* a, const Clock* b) {
    return a->count == b->count && memcmp(a->entries, b->entries, a->count * sizeof(ClockEntry)) == 0;
}

// `target` also knows what `other` knows.
static inline void clock_join(Clock*& target, Clock* other) {
    if (!other || other == target) return;
    if (!target) {
        target = clock_ref(other);
        return;
    }
    Clock *a = target, *b = other;
    ClockBuilder joined(a->count + b->count);
    unsigned i = 0, k = 0;
    while (i < a->count || k < b->count) {
        int order = i == a->count ? 1 : k == b->count ? -1 : clock_compare(a->entries[i], b->entries[k]);
        ClockEntry entry = order <= 0 ? a->entries[i] : b->entries[k];
        if (order == 0 && b->entries[k].upto > entry.upto) entry.upto = b->entries[k].upto;
        joined.push(entry);
        if (order <= 0) ++i;
        if (order >= 0) ++k;
    }
    // Equal clocks stay one object, so that most joins end at the comparison of pointers.
    Clock* result = joined.clock;
    if (clock_equal(result, a) || clock_equal(result, b)) {
        clock_assign(target, clock_equal(result, a) ? a : b);
        clock_unref(result);
        return;
    }
    target = result;
    clock_unref(a);
}
