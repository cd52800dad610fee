// Instructions of loops over rows, and what the lanes of a warp or block do together, but for group tables and partitions.
#pragma once
#include "interpret/machine.cuh"
#include "interpret/rare.cuh"

// Where a block is among the rows. It lies in local memory, as functions that are called set it: in registers it would leave too
// few for every instruction.
struct Rows {
    u64 tile;
    u64 turn;
    u64 first;       // of several rows a thread: the first one
    u32 item;        // which of them is next
    u32 hits;        // bits of those that found something
    u32 match_turns;
    u32 queued;      // rows in the warp's queue
    bool drains;     // the queue is emptied before the next row
    bool is_ended;   // there is no next row
    bool is_full;    // the rows that are wanted are there
    bool is_vain;    // the launch has failed
};

WJ_RARE void open_rows(Rows& rows) {
    rows.tile = blockIdx.x;
    rows.turn = 0;
    rows.first = 0;
    rows.item = 0;
    rows.hits = 0;
    rows.match_turns = 0;
    rows.queued = 0;
    rows.drains = false;
    rows.is_ended = false;
    rows.is_full = false;
    rows.is_vain = false;
}

// The number of the lane's row in the next tile; false behind the last one. `b` is the control block, `c` the rows that are
// wanted; `next` is that of the end.
WJ_RARE bool next_grid_row(const Machine m, Rows& rows, const Instruction i, bool stops) {
    const u64 count = get(m, i.a);
    const u64 first = rows.tile * blockDim.x;
    if (first >= count) return false;
    if (stops && has_enough(get_pointer<const u64>(m, i.b) + WJ_CONTROL_ROWS, get(m, i.c), rows.turn++)) return false;
    const u64 row = first + threadIdx.x;
    rows.tile += gridDim.x;
    set(m, i.to, row);
    set(m, i.d, row < count);
    return true;
}

// The same of a sample of one row in `b`.
WJ_RARE bool next_sample(const Machine m, Rows& rows, const Instruction i) {
    const u64 count = get(m, i.a);
    const u64 stride = get(m, i.b);
    const u64 first = rows.tile * blockDim.x;
    if (first * stride >= count) return false;
    const u64 sample = first + threadIdx.x;
    const u64 row = sample * stride + __umul64hi(hash_word(sample + 1), stride);
    rows.tile += gridDim.x;
    set(m, i.to, row);
    set(m, i.d, row < count);
    return true;
}

// Where there is no next row: the queue, if there is one, is emptied, and then the loop ends.
WJ_DEVICE void end_rows(Rows& rows, u32& at, u32 next) {
    rows.drains = true;
    rows.is_ended = true;
    at = next;
}

// A row of the warp's queue: two words of each lane.
WJ_DEVICE u64* queued_row(u32 queue, u32 place) {
    return &shared_as<u64>() + queue / 8 + (place >> 5) * blockDim.x + (threadIdx.x & ~31u) + (place & 31);
}

// Adds the lane's row (`b`), if it is alive (`c`), to the queue (`a`). Unless a warp of them is there, or the queue is emptied,
// the next row follows. All lanes call it.
WJ_DEVICE void enqueue(const Machine& m, Rows& rows, const Instruction& i, u32& at) {
    const bool is_alive = get(m, i.c) != 0;
    const u32 lanes = __ballot_sync(0xffffffffu, is_alive);
    const u32 below = (1u << (threadIdx.x & 31)) - 1;
    if (is_alive) *queued_row(i.a, rows.queued + __popc(lanes & below)) = get(m, i.b);
    rows.queued += __popc(lanes);
    __syncwarp();
    if (rows.queued < 32 && !rows.drains) at = i.next;
}

// Takes a row a lane from the queue (`a`): `to` is the row, `d` whether there is one. Goes to `next` unless the warp gets as many
// as it has lanes, or the last ones. All lanes call it.
WJ_DEVICE void dequeue(const Machine& m, Rows& rows, const Instruction& i, u32& at) {
    if (rows.queued == 0 || (rows.queued < 32 && !rows.drains)) {
        at = i.next;
        return;
    }
    const u32 taken = rows.queued < 32 ? rows.queued : 32;
    const u32 lane = threadIdx.x & 31;
    const bool is_there = lane < taken;
    rows.queued -= taken;
    set(m, i.to, is_there ? *queued_row(i.a, rows.queued + lane) : 0);
    set(m, i.d, is_there);
    __syncwarp();
}

// Looks a key up, if the lane's row is there (`a`), and says so. `b` is the key, `c` the slots, `d` how many.
WJ_DEVICE void find_key(const Machine& m, const Instruction& i) {
    const u64 key = get(m, i.b);
    const u64 count = get(m, i.d);
    const void* const slots = get_pointer<const void>(m, i.c);
    Found found = {0, get(m, i.a) != 0};
    switch (i.operation) {
        case WJ_DO_Find4:
            if (found.is_there) found.value = static_cast<const u32*>(slots)[key - 1];
            found.is_there = found.value-- != 0;
            break;
        case WJ_DO_Find8:
            if (found.is_there) found.value = static_cast<const u64*>(slots)[key - 1];
            found.is_there = found.value-- != 0;
            break;
        case WJ_DO_FindWord4:
            if (found.is_there) found = find_word_4(slots, count, key, i.next);
            break;
        case WJ_DO_FindWord8:
            if (found.is_there) found = find_word_8(slots, count, key, i.next);
            break;
        default: found = find_pair(slots, count, key, i.next, found.is_there); break;
    }
    set(m, i.to, found.value);
    set(m, i.a, found.is_there);
}

// Reserves a place for the lane's row, if it is there (`b`); narrows to those for which there is room. `a` is the control
// block, `c` the room, `d` the rows that are wanted.
WJ_DEVICE void reserve(const Machine& m, Rows& rows, const Instruction& i) {
    u64* const counter = get_pointer<u64>(m, i.a) + WJ_CONTROL_ROWS;
    const bool is_there = get(m, i.b) != 0;
    const u64 place = i.operation == WJ_DO_ReserveOfBlock ? reserve_with_block(counter, is_there)
                                                          : reserve_rows(counter, is_there);
    rows.is_full = rows.is_full || (is_there && place >= get(m, i.d));
    set(m, i.to, place);
    set(m, i.b, is_there && place < get(m, i.c));
}

// The place of the lane's match, if there is one (`b`), among those that the warp has reserved (`a`); narrows to those for which
// there is room (`c`).
WJ_DEVICE void place_in_matches(const Machine& m, const Instruction& i) {
    u64 next = get(m, i.a);
    const bool is_there = get(m, i.b) != 0;
    const u64 place = place_match(next, is_there);
    set(m, i.a, next);
    set(m, i.to, place);
    set(m, i.b, is_there && place < get(m, i.c));
}

// Looks up the keys of several rows a thread: `b` is the first key, `to` the first value.
WJ_DEVICE void find_batch(const Machine& m, Rows& rows, const Instruction& i, u32 items) {
    const u64 count = get(m, i.d);
    const u32 form = i.next & 0xffff;
    const u32 key_bits = i.next >> 16;
    const void* const slots = get_pointer<const void>(m, i.c);
    rows.hits = 0;
#pragma unroll 1
    for (u32 item = 0; item < items; ++item) {
        const u64 key = get_behind(m, i.b, item);
        Found found = {0, false};
        if (key != 0) {
            if (form == WJ_DO_Find4) {
                found.value = static_cast<const u32*>(slots)[key - 1];
                found.is_there = found.value-- != 0;
            } else if (form == WJ_DO_Find8) {
                found.value = static_cast<const u64*>(slots)[key - 1];
                found.is_there = found.value-- != 0;
            } else if (form == WJ_DO_FindWord4) {
                found = find_word_4(slots, count, key, key_bits);
            } else if (form == WJ_DO_FindWord8) {
                found = find_word_8(slots, count, key, key_bits);
            } else {
                found = find_pair_alone(slots, count, key);
            }
        }
        set(m, behind(i.to, item), found.value);
        rows.hits |= (u32)found.is_there << item;
    }
}

// Reserves places for the rows that found something: `to` is the first row's. All threads of the block call it.
WJ_DEVICE void reserve_batch(const Machine& m, const Rows& rows, const Instruction& i, u32 items) {
    const u32 below = (1u << (threadIdx.x & 31)) - 1;
    u32 total = 0;
    for (u32 item = 0; item < items; ++item) {
        const u32 lanes = __ballot_sync(0xffffffffu, (rows.hits >> item & 1) != 0);
        set(m, behind(i.to, item), total + __popc(lanes & below));
        total += __popc(lanes);
    }
    u64* const counter = get_pointer<u64>(m, i.a) + WJ_CONTROL_ROWS;
    const u64 places = reserve_of_block(shared_as<BlockReservation>(), counter, total);
    for (u32 item = 0; item < items; ++item) set(m, behind(i.to, item), places + get_behind(m, i.to, item));
}

// Writes a value (`c`) into the slot of a key (`b`) of the table at `a`, or sets the key's bit. `d` is the control block.
WJ_DEVICE void write_slot(const Machine& m, const Instruction& i) {
    if (!takes_part(m)) return;
    const u64 key = get(m, i.b);
    const u64 value = get(m, i.c);
    u64* const control = get_pointer<u64>(m, i.d);
    switch (i.operation) {
        case WJ_DO_FillSlot4: fill_slot(get_pointer<u32>(m, i.a), key, (u32)value, control); break;
        case WJ_DO_FillSlot8: fill_slot(get_pointer<u64>(m, i.a), key, value, control); break;
        default: set_in_bitmap(get_pointer<u32>(m, i.a), key); break;
    }
    set(m, i.to, get(m, i.to) + 1);
}
