// Shadow memory of the race detector: the last accesses to each 8 bytes. Must not know what orders
// accesses.
#pragma once

#include "sim/races/race_clock.h"

static const unsigned kGranuleBytes = 8;
static const unsigned kGranuleCells = 4;
// Allocations are aligned to it, so that a chunk belongs to one of them.
static const unsigned kChunkBytes = 256;
static const unsigned kChunkGranules = kChunkBytes / kGranuleBytes;

// One access to some bytes of 8.
struct Cell {
    unsigned actor;
    // Lower half of the instruction's address.
    unsigned pc;
    WjEpoch epoch;
    // 0: the cell is free.
    unsigned char mask;
    unsigned char flags;
};

// What was released through a location, to whom: a block, a device or all devices.
struct Release {
    unsigned long long domain;
    Clock* clock;
};

// At most one for each domain.
struct Releases {
    Release* all;
    unsigned count, room;

    void add(unsigned long long domain, Clock* clock) {
        for (unsigned i = 0; i < count; ++i) {
            if (all[i].domain == domain) return clock_join(all[i].clock, clock);
        }
        if (count == room) {
            room = room ? room * 2 : 4;
            all = static_cast<Release*>(realloc(all, room * sizeof(Release)));
            if (!all) abort();
        }
        all[count++] = {domain, clock_ref(clock)};
    }

    void clear() {
        for (unsigned i = 0; i < count; ++i) clock_unref(all[i].clock);
        count = 0;
    }

    void copy_from(const Releases& other) {
        clear();
        for (unsigned i = 0; i < other.count; ++i) add(other.all[i].domain, other.all[i].clock);
    }

    void destroy() {
        clear();
        free(all);
    }
};

static const unsigned kObserversMax = 6;

// What the atomics of a location leave behind: releases, and the value before the last one.
struct Location {
    // What a load of the last value acquires, and a load of `previous`.
    Releases releases, previous_releases;
    // A relaxed load may still give `previous` to lanes that know neither the last store nor a
    // load that saw it. `bytes` is 0 when there is no such value.
    const void* address;
    unsigned bytes;
    unsigned long long previous;
    unsigned writer;
    WjEpoch writer_epoch;
    unsigned observers[kObserversMax];
    WjEpoch observer_epochs[kObserversMax];
    unsigned observer_count;
};

struct Chunk {
    Chunk* next;
    unsigned long long key;
    // The last accesses of the host to all bytes of the chunk: a write, and reads behind it.
    Cell whole_write, whole_reads[2];
    Cell (*granules)[kGranuleCells];
    // Of each 4 bytes; an atomic of 8 has the first one.
    Location** locations;
};

static const unsigned kChunkLocations = kChunkBytes / 4;

static inline void location_drop(Location*& location) {
    if (!location) return;
    location->releases.destroy();
    location->previous_releases.destroy();
    free(location);
    location = nullptr;
}

static inline void chunk_drop_locations(Chunk* chunk) {
    if (!chunk->locations) return;
    for (unsigned i = 0; i < kChunkLocations; ++i) location_drop(chunk->locations[i]);
    free(chunk->locations);
    chunk->locations = nullptr;
}

static inline void* race_calloc(size_t count, size_t bytes) {
    void* memory = calloc(count, bytes);
    if (!memory) abort();
    return memory;
}

// All chunks that were accessed, by address.
struct Shadow {
    Chunk** buckets;
    unsigned long long bucket_count, chunk_count;
    Chunk* last;

    static unsigned long long hash(unsigned long long key) { return key * 0x9E3779B97F4A7C15ull >> 20; }

    Chunk* find(unsigned long long key) {
        if (last && last->key == key) return last;
        if (!bucket_count) return nullptr;
        Chunk* chunk = buckets[hash(key) & (bucket_count - 1)];
        while (chunk && chunk->key != key) chunk = chunk->next;
        if (chunk) last = chunk;
        return chunk;
    }

    Chunk* find_or_add(unsigned long long key) {
        if (Chunk* chunk = find(key)) return chunk;
        if (chunk_count >= bucket_count) grow();
        Chunk* chunk = static_cast<Chunk*>(race_calloc(1, sizeof(Chunk)));
        Chunk*& bucket = buckets[hash(key) & (bucket_count - 1)];
        chunk->key = key;
        chunk->next = bucket;
        bucket = chunk;
        ++chunk_count;
        return last = chunk;
    }

    // Forgets all accesses to these bytes.
    void clear(unsigned long long address, unsigned long long bytes) {
        if (!bytes || !bucket_count) return;
        unsigned long long first = address / kChunkBytes, end = (address + bytes - 1) / kChunkBytes + 1;
        last = nullptr;
        if (end - first > bucket_count) {
            for (unsigned long long i = 0; i < bucket_count; ++i) drop_of(buckets[i], first, end);
        } else {
            for (unsigned long long key = first; key < end; ++key) {
                drop_of(buckets[hash(key) & (bucket_count - 1)], key, key + 1);
            }
        }
    }

    void destroy() {
        for (unsigned long long i = 0; i < bucket_count; ++i) drop_of(buckets[i], 0, ~0ull);
        free(buckets);
    }

private:
    void drop_of(Chunk*& bucket, unsigned long long first, unsigned long long end) {
        for (Chunk** at = &bucket; *at;) {
            Chunk* chunk = *at;
            if (chunk->key < first || chunk->key >= end) {
                at = &chunk->next;
                continue;
            }
            *at = chunk->next;
            chunk_drop_locations(chunk);
            free(chunk->granules);
            free(chunk);
            --chunk_count;
        }
    }

    void grow() {
        unsigned long long count = bucket_count ? bucket_count * 4 : 1 << 12;
        Chunk** grown = static_cast<Chunk**>(race_calloc(count, sizeof(Chunk*)));
        for (unsigned long long i = 0; i < bucket_count; ++i) {
            for (Chunk* chunk = buckets[i]; chunk;) {
                Chunk* next = chunk->next;
                Chunk*& bucket = grown[hash(chunk->key) & (count - 1)];
                chunk->next = bucket;
                bucket = chunk;
                chunk = next;
            }
        }
        free(buckets);
        buckets = grown;
        bucket_count = count;
    }
};
