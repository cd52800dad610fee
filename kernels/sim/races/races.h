// The race detector: every access is compared with the last ones to the same bytes. Two of different
// actors race if one writes, not both are atomic at a scope that has both, and neither happened
// before the other (`race_order.h`).
//
// Besides, a relaxed load may give the value before the last atomic store, where nothing orders that
// store before the load: so a missing fence between atomics shows in results.
#pragma once

#include "sim/races/race_order.h"
#include "sim/races/race_shadow.h"

static const unsigned kOneLoadInStale = 4;

struct Races {
    Shadow shadow;
    Operations operations;
    WjEpoch stamp;
    unsigned long long rng;
    unsigned devices;
    bool reported;
    WjRace report;
};

static inline unsigned scope_of(unsigned flags) { return flags / WJ_ACCESS_SCOPE & 3; }

static WjRaceSide side_of(const Races* races, unsigned actor, unsigned pc, unsigned flags) {
    unsigned operation = races->operations.of_actor(actor);
    const Operation& of = races->operations.all[operation];
    unsigned lane = actor - of.first_actor;
    return {operation, lane / of.block_threads, lane % of.block_threads, pc, flags};
}

// Whether two atomic accesses name scopes that include each other.
static bool scopes_meet(const Races* races, const Actor& by, unsigned flags, const Cell& cell) {
    unsigned scope = scope_of(flags) < scope_of(cell.flags) ? scope_of(flags) : scope_of(cell.flags);
    if (scope == WJ_SYSTEM_SCOPE || (scope == WJ_DEVICE_SCOPE && races->devices == 1)) return true;
    unsigned other = races->operations.of_actor(cell.actor);
    const Operation &own = races->operations.all[by.operation], &of = races->operations.all[other];
    if (scope == WJ_DEVICE_SCOPE) return own.device == of.device;
    return other == by.operation
           && (cell.actor - of.first_actor) / of.block_threads == (by.actor - own.first_actor) / own.block_threads;
}

// Whether the access may come behind that of `cell`; reports the race if not.
static bool is_ordered(Races* races, const Actor& by, const Cell& cell, unsigned flags, unsigned pc) {
    if (!((cell.flags | flags) & WJ_ACCESS_WRITE)) return true;
    if (by.knows(cell.actor, cell.epoch)) return true;
    if (cell.flags & flags & WJ_ACCESS_ATOMIC && scopes_meet(races, by, flags, cell)) return true;
    if (!races->reported) {
        races->reported = true;
        races->report = {{side_of(races, by.actor, pc, flags), side_of(races, cell.actor, cell.pc, cell.flags)}};
    }
    return false;
}

static inline unsigned race_draw(Races* races, unsigned n) {
    races->rng = races->rng * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<unsigned>((races->rng >> 33) % n);
}

// Puts the access among the last ones to a granule.
static bool record_access(Races* races, const Actor& by, Cell (&cells)[kGranuleCells], unsigned mask, unsigned flags,
                          unsigned pc) {
    Cell* place = nullptr;
    Cell* spare = nullptr;
    bool plain_write = (flags & (WJ_ACCESS_WRITE | WJ_ACCESS_ATOMIC)) == WJ_ACCESS_WRITE;
    for (Cell& cell : cells) {
        if (!cell.mask) {
            if (!place) place = &cell;
            continue;
        }
        if (cell.actor == by.actor) {
            if (cell.flags == flags && cell.mask == mask) {
                cell.epoch = by.epoch;
                cell.pc = pc;
                if (!plain_write) return true;
                place = &cell;
            }
            if (plain_write && !(cell.mask & ~mask)) cell.mask = 0, place = &cell;
            continue;
        }
        if (cell.mask & mask) {
            if (!is_ordered(races, by, cell, flags, pc)) return false;
            if (plain_write && !(cell.mask & ~mask)) {
                cell.mask = 0;
                place = &cell;
                continue;
            }
        }
        bool cell_writes = (cell.flags & (WJ_ACCESS_WRITE | WJ_ACCESS_ATOMIC)) == WJ_ACCESS_WRITE;
        if (!cell_writes && (!spare || race_draw(races, 2))) spare = &cell;
    }
    if (!place) place = spare ? spare : &cells[race_draw(races, kGranuleCells)];
    *place = {by.actor, pc, by.epoch, static_cast<unsigned char>(mask), static_cast<unsigned char>(flags)};
    return true;
}

static Cell* granule_cells(Chunk* chunk, unsigned granule) {
    if (!chunk->granules) {
        chunk->granules = static_cast<Cell(*)[kGranuleCells]>(race_calloc(kChunkGranules, sizeof *chunk->granules));
    }
    return chunk->granules[granule];
}

static bool follows_whole(Races* races, const Actor& by, const Chunk* chunk, unsigned flags, unsigned pc) {
    if (chunk->whole_write.mask && !is_ordered(races, by, chunk->whole_write, flags, pc)) return false;
    for (const Cell& read : chunk->whole_reads) {
        if (read.mask && !is_ordered(races, by, read, flags, pc)) return false;
    }
    return true;
}

// An access of a few bytes.
static bool race_access(Races* races, const Actor& by, unsigned long long address, unsigned bytes, unsigned flags,
                        unsigned pc) {
    for (unsigned long long at = address, end = address + bytes; at < end;) {
        unsigned offset = at % kGranuleBytes, granule = at / kGranuleBytes % kChunkGranules;
        unsigned part = end - at < kGranuleBytes - offset ? static_cast<unsigned>(end - at) : kGranuleBytes - offset;
        unsigned mask = ((1u << part) - 1) << offset;
        Chunk* chunk = races->shadow.find_or_add(at / kChunkBytes);
        if (!follows_whole(races, by, chunk, flags, pc)) return false;
        Cell(&cells)[kGranuleCells] = *reinterpret_cast<Cell(*)[kGranuleCells]>(granule_cells(chunk, granule));
        if (!record_access(races, by, cells, mask, flags, pc)) return false;
        // A plain store leaves no atomic value behind.
        if (chunk->locations && (flags & (WJ_ACCESS_WRITE | WJ_ACCESS_ATOMIC)) == WJ_ACCESS_WRITE) {
            location_drop(chunk->locations[granule * 2]);
            location_drop(chunk->locations[granule * 2 + 1]);
        }
        at += part;
    }
    return true;
}

// The host's access to a whole chunk.
static bool access_chunk(Races* races, const Actor& by, Chunk* chunk, unsigned flags) {
    if (!follows_whole(races, by, chunk, flags, 0)) return false;
    for (unsigned granule = 0; chunk->granules && granule < kChunkGranules; ++granule) {
        for (const Cell& cell : chunk->granules[granule]) {
            if (cell.mask && !is_ordered(races, by, cell, flags, 0)) return false;
        }
    }
    Cell cell = {by.actor, 0, by.epoch, 0xff, static_cast<unsigned char>(flags)};
    if (flags & WJ_ACCESS_WRITE) {
        free(chunk->granules);
        chunk->granules = nullptr;
        chunk_drop_locations(chunk);
        chunk->whole_write = cell;
        chunk->whole_reads[0].mask = chunk->whole_reads[1].mask = 0;
    } else {
        Cell* reads = chunk->whole_reads;
        bool first = !reads[0].mask || by.knows(reads[0].actor, reads[0].epoch);
        reads[first ? 0 : 1] = cell;
    }
    return true;
}

// The host's access to a range.
static bool race_range(Races* races, const Actor& by, unsigned long long address, unsigned long long bytes,
                       unsigned flags) {
    for (unsigned long long at = address, end = address + bytes; at < end;) {
        unsigned long long chunk_end = (at / kChunkBytes + 1) * kChunkBytes;
        unsigned long long stop = chunk_end < end ? chunk_end : end;
        bool fine = stop - at == kChunkBytes
                        ? access_chunk(races, by, races->shadow.find_or_add(at / kChunkBytes), flags)
                        : race_access(races, by, at, static_cast<unsigned>(stop - at), flags, 0);
        if (!fine) return false;
        at = stop;
    }
    return true;
}

static Location* location_of(Chunk* chunk, unsigned index) {
    if (!chunk->locations) chunk->locations = static_cast<Location**>(race_calloc(kChunkLocations, sizeof(Location*)));
    Location*& location = chunk->locations[index];
    if (!location) location = static_cast<Location*>(race_calloc(1, sizeof(Location)));
    return location;
}

// What overlaps an atomic store but begins elsewhere has no previous value any more.
static void forget_overlapped(Chunk* chunk, unsigned index, unsigned bytes) {
    Location* other = chunk->locations[index ^ 1];
    if (other && (bytes > 4 || (index % 2 == 1 && other->bytes > 4))) other->bytes = 0;
}

// Who hears of a release: the block or device of this actor, or all.
static unsigned long long domain_of(const Actor& by, unsigned scope) {
    unsigned long long tag = static_cast<unsigned long long>(scope) << 40;
    if (scope == WJ_BLOCK_SCOPE) return tag | (by.actor - by.thread);
    return scope == WJ_DEVICE_SCOPE ? tag | by.operations->all[by.operation].device : tag;
}

// What an atomic load, or the load of a read-modify-write, sees of releases.
static void acquire_from(const Releases& releases, const Actor& by, unsigned scope) {
    RaceLane& lane = by.lanes->lanes[by.lane_id];
    for (unsigned of = 0; of <= scope && releases.count; ++of) {
        unsigned long long domain = domain_of(by, of);
        for (unsigned i = 0; i < releases.count; ++i) {
            if (releases.all[i].domain == domain) clock_join(lane.pending[of], releases.all[i].clock);
        }
    }
}

// Whether this load may give the location's previous value. One that does not keeps others, which
// come behind it, from that.
static bool loads_stale(Races* races, Location* location, const Actor& by, const void* address, unsigned bytes) {
    if (location->bytes != bytes || location->address != address) return false;
    if (by.knows(location->writer, location->writer_epoch)) return false;
    for (unsigned i = 0; i < location->observer_count; ++i) {
        if (by.knows(location->observers[i], location->observer_epochs[i])) return false;
    }
    if (race_draw(races, kOneLoadInStale) == 0) return true;
    if (location->observer_count == kObserversMax) {
        location->bytes = 0;
        return false;
    }
    location->observers[location->observer_count] = by.actor;
    location->observer_epochs[location->observer_count++] = by.epoch;
    return false;
}

static void store_to(Location* location, const Actor& by, const void* address, unsigned bytes, unsigned scope,
                     bool keeps_releases) {
    location->previous_releases.copy_from(location->releases);
    if (!keeps_releases) location->releases.clear();
    const RaceLane& lane = by.lanes->lanes[by.lane_id];
    for (unsigned of = 0; of <= scope; ++of) {
        if (lane.released[of]) location->releases.add(domain_of(by, of), lane.released[of]);
    }
    location->bytes = bytes <= 8 ? bytes : 0;
    location->address = address;
    location->previous = 0;
    if (location->bytes) memcpy(&location->previous, address, bytes);
    location->writer = by.actor;
    location->writer_epoch = by.epoch;
    location->observer_count = 0;
}

// Just before an atomic access. True: a load gives `*stale`.
static bool race_atomic(Races* races, const Actor& by, const void* address, unsigned bytes, WjAtomic kind,
                        unsigned scope, unsigned pc, unsigned long long* stale, bool* raced) {
    unsigned long long at = reinterpret_cast<unsigned long long>(address);
    unsigned flags = WJ_ACCESS_ATOMIC | scope * WJ_ACCESS_SCOPE | (kind <= WJ_OBSERVE ? 0u : WJ_ACCESS_WRITE);
    *raced = !race_access(races, by, at, bytes, flags, pc);
    if (*raced) return false;
    Chunk* chunk = races->shadow.find_or_add(at / kChunkBytes);
    unsigned index = at / 4 % kChunkLocations;
    if (kind <= WJ_OBSERVE) {
        Location* location = chunk->locations ? chunk->locations[index] : nullptr;
        if (!location) return false;
        if (kind == WJ_LOAD && loads_stale(races, location, by, address, bytes)) {
            *stale = location->previous;
            acquire_from(location->previous_releases, by, scope);
            return true;
        }
        acquire_from(location->releases, by, scope);
        return false;
    }
    Location* location = location_of(chunk, index);
    forget_overlapped(chunk, index, bytes);
    if (kind == WJ_READ_MODIFY_WRITE) acquire_from(location->releases, by, scope);
    store_to(location, by, address, bytes, scope, kind == WJ_READ_MODIFY_WRITE);
    return false;
}

static void race_fence(Races* races, const Actor& by, unsigned scope) {
    RaceLane& lane = by.lanes->lanes[by.lane_id];
    for (unsigned of = 0; of <= scope; ++of) clock_join(lane.known, lane.pending[of]);
    Clock* released = snapshot(by);
    for (unsigned of = 0; of <= scope; ++of) clock_assign(lane.released[of], released);
    clock_unref(released);
    lane.epoch = ++races->stamp;
}
