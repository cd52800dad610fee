// Instructions of loops over rows, and what the lanes of a warp or block do together, but for group tables and partitions.
#pragma once
#include "interpret/machine.cuh"
#include "interpret/rare.cuh"

// Where a block is among the rows. It lies in local memory, as functions that are called set it: in registers it would leave too
// few for every instruction.
struct Rows {
    u64 next;        // the block's next row of a grid
    u64 tile;        // its next batch
    u64 turn;
    u64 first;       // of a batch: the first row
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
    rows.next = (u64)blockIdx.x * blockDim.x;
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

// The numbers of the lane's next rows: `to`, and whether they are there: `d`.
template <int ROWS>
WJ_DEVICE void set_rows(const Machine<ROWS>& m, const Instruction& i, const Words<ROWS>& rows, const Words<ROWS>& are_there) {
    set(m, i.to, rows);
    set(m, i.d, are_there);
}

// The lane's rows in the next tiles, which are as far apart as all threads of the launch are many: few rows are spread over all
// of them. False behind the last one. `b` is the control block, `c` the rows that are wanted; `next` is that of the end.
template <int ROWS>
WJ_DEVICE bool next_grid_rows(const Machine<ROWS>& m, Rows& rows, const Instruction& i, bool stops) {
    const u64 count = uniform(m, i.a);
    const u64 first = rows.next;
    if (first >= count) return false;
    if (stops && has_enough(uniform_pointer<const u64>(m, i.b) + WJ_CONTROL_ROWS, uniform(m, i.c), rows.turn++)) return false;
    const u32 step = gridDim.x * blockDim.x;
    Words<ROWS> numbers, are_there;
    WJ_EACH_ROW {
        numbers.of[row] = first + threadIdx.x + row * step;
        are_there.of[row] = numbers.of[row] < count;
    }
    rows.next = first + ROWS * step;
    set_rows(m, i, numbers, are_there);
    return true;
}

// The same of a sample of one row in `b`.
template <int ROWS>
WJ_RARE bool next_sample(const Machine<ROWS> m, Rows& rows, const Instruction i) {
    const u64 count = uniform(m, i.a);
    const u64 stride = uniform(m, i.b);
    const u64 first = rows.next;
    if (first * stride >= count) return false;
    const u32 step = gridDim.x * blockDim.x;
    Words<ROWS> numbers, are_there;
    WJ_EACH_ROW {
        const u64 sample = first + threadIdx.x + row * step;
        numbers.of[row] = sample * stride + __umul64hi(hash_word(sample + 1), stride);
        are_there.of[row] = numbers.of[row] < count;
    }
    rows.next = first + ROWS * step;
    set_rows(m, i, numbers, are_there);
    return true;
}

// Where there is no next row: the queue, if there is one, is emptied, and then the loop ends.
WJ_DEVICE void end_rows(Rows& rows, u32& at, u32 next) {
    rows.drains = true;
    rows.is_ended = true;
    at = next;
}

// A row of the warp's queue: two registers.
template <int ROWS>
WJ_DEVICE u64& queued_row(const Machine<ROWS>& m, u32 queue, u32 place) {
    const u32 half = behind(m, queue, place / (32 * ROWS));
    return *(&words_of(m, half).of[0] - (threadIdx.x & 31) * ROWS + place % (32 * ROWS));
}

// Adds the lane's rows (`b`) that are alive (`c`) to the queue (`a`). Unless as many are there as a warp takes, or the queue is
// emptied, the next rows follow. All lanes call it.
template <int ROWS>
WJ_DEVICE void enqueue(const Machine<ROWS>& m, Rows& rows, const Instruction& i, u32& at) {
    const Words<ROWS> numbers = get(m, i.b);
    const Words<ROWS> alive = get(m, i.c);
    const u32 below = (1u << (threadIdx.x & 31)) - 1;
    u32 queued = rows.queued;
    WJ_EACH_ROW {
        const u32 lanes = __ballot_sync(0xffffffffu, alive.of[row] != 0);
        if (alive.of[row] != 0) queued_row(m, i.a, queued + __popc(lanes & below)) = numbers.of[row];
        queued += __popc(lanes);
    }
    rows.queued = queued;
    __syncwarp();
    if (queued < 32 * ROWS && !rows.drains) at = i.next;
}

// Takes rows of the lane from the queue (`a`): `to` are the rows, `d` whether there are any. Goes to `next` unless the warp gets
// as many as it takes, or the last ones. All lanes call it.
template <int ROWS>
WJ_DEVICE void dequeue(const Machine<ROWS>& m, Rows& rows, const Instruction& i, u32& at) {
    const u32 queued = rows.queued;
    if (queued == 0 || (queued < 32 * ROWS && !rows.drains)) {
        at = i.next;
        return;
    }
    const u32 taken = queued < 32 * ROWS ? queued : 32 * ROWS;
    rows.queued = queued - taken;
    Words<ROWS> numbers, are_there;
    WJ_EACH_ROW {
        const u32 place = row * 32 + (threadIdx.x & 31);
        are_there.of[row] = place < taken;
        numbers.of[row] = place < taken ? queued_row(m, i.a, queued - taken + place) : 0;
    }
    set_rows(m, i, numbers, are_there);
    __syncwarp();
}

// Looks a key up, if the lane's row is there (`a`), and says so. `b` is the key, `c` the slots, `d` how many.
template <int ROWS>
WJ_DEVICE void find_key(const Machine<ROWS>& m, const Instruction& i) {
    Finds<ROWS> finds;
    const Words<ROWS> keys = get(m, i.b);
    const Words<ROWS> are_there = get(m, i.a);
    WJ_EACH_ROW {
        finds.words[row] = keys.of[row];
        finds.are_there[row] = are_there.of[row] != 0;
    }
    find_keys(i.operation, uniform_pointer<const void>(m, i.c), uniform(m, i.d), i.next, finds);
    Words<ROWS> values, found;
    WJ_EACH_ROW {
        values.of[row] = finds.words[row];
        found.of[row] = finds.are_there[row];
    }
    set(m, i.to, values);
    set(m, i.a, found);
}

// Reserves a place for each of the lane's rows that is there (`b`); narrows to those for which there is room. `a` is the control
// block, `c` the room, `d` the rows that are wanted.
template <int ROWS>
WJ_DEVICE void reserve(const Machine<ROWS>& m, Rows& rows, const Instruction& i) {
    u64* const counter = uniform_pointer<u64>(m, i.a) + WJ_CONTROL_ROWS;
    const u64 room = uniform(m, i.c), wanted = uniform(m, i.d);
    Words<ROWS> places;
    Words<ROWS> are_there = get(m, i.b);
    WJ_EACH_ROW {
        const bool is_there = are_there.of[row] != 0;
        const u64 place = i.operation == WJ_DO_ReserveOfBlock ? reserve_with_block(counter, is_there)
                                                              : reserve_rows(counter, is_there);
        rows.is_full = rows.is_full || (is_there && place >= wanted);
        places.of[row] = place;
        are_there.of[row] = is_there && place < room;
    }
    set(m, i.to, places);
    set(m, i.b, are_there);
}

// The places of the lane's matches, if there are any (`b`), among those that the warp has reserved (`a`); narrows to those for
// which there is room (`c`).
template <int ROWS>
WJ_DEVICE void place_in_matches(const Machine<ROWS>& m, const Instruction& i) {
    Words<ROWS> next = get(m, i.a);
    Words<ROWS> are_there = get(m, i.b);
    Words<ROWS> places;
    const u64 room = uniform(m, i.c);
    WJ_EACH_ROW {
        const bool is_there = are_there.of[row] != 0;
        places.of[row] = place_match(next.of[row], is_there);
        are_there.of[row] = is_there && places.of[row] < room;
    }
    set(m, i.a, next);
    set(m, i.to, places);
    set(m, i.b, are_there);
}

// Looks up the keys of a batch: `b` is the first key, `to` the first value.
template <int ROWS>
WJ_DEVICE void find_batch(const Machine<ROWS>& m, Rows& rows, const Instruction& i, u32 items) {
    const u64 count = uniform(m, i.d);
    const u32 form = i.next & 0xffff;
    const u32 key_bits = i.next >> 16;
    const void* const slots = uniform_pointer<const void>(m, i.c);
    rows.hits = 0;
#pragma unroll 1
    for (u32 item = 0; item < items; item += ROWS) {
        Finds<ROWS> finds;
        WJ_EACH_ROW {
            const bool is_inside = item + row < items;
            finds.words[row] = is_inside ? word_of_rows(m, i.b, item + row) : 0;
            finds.are_there[row] = is_inside && finds.words[row] != 0;
        }
        find_keys(form, slots, count, form == WJ_DO_FindPair ? 1 : key_bits, finds);
        WJ_EACH_ROW {
            if (item + row >= items) break;
            word_of_rows(m, i.to, item + row) = finds.words[row];
            rows.hits |= (u32)finds.are_there[row] << (item + row);
        }
    }
}

// Reserves places for the rows of a batch that found something: `to` is the first row's. All threads of the block call it.
template <int ROWS>
WJ_DEVICE void reserve_batch(const Machine<ROWS>& m, const Rows& rows, const Instruction& i, u32 items) {
    const u32 below = (1u << (threadIdx.x & 31)) - 1;
    u32 total = 0;
    for (u32 item = 0; item < items; ++item) {
        const u32 lanes = __ballot_sync(0xffffffffu, (rows.hits >> item & 1) != 0);
        word_of_rows(m, i.to, item) = total + __popc(lanes & below);
        total += __popc(lanes);
    }
    u64* const counter = uniform_pointer<u64>(m, i.a) + WJ_CONTROL_ROWS;
    const u64 places = reserve_of_block(shared_as<BlockReservation>(), counter, total);
    for (u32 item = 0; item < items; ++item) word_of_rows(m, i.to, item) += places;
}

// The next rows of a batch. `to` are the rows; `b` is how many rows a lane has. False: there are no more.
template <int ROWS>
WJ_DEVICE bool next_items(const Machine<ROWS>& m, Rows& rows, const Instruction& i) {
    const u32 item = rows.item;
    if (item >= i.b) return false;
    Words<ROWS> numbers;
    WJ_EACH_ROW numbers.of[row] = item + row < i.b ? rows.first + (item + row) * 32 : ~0ULL;
    rows.item = item + ROWS;
    set(m, i.to, numbers);
    return true;
}

// What the batch's rows found: `to` are their places, `d` whether they go on, `c` what they found; `a` and `b` have those of the
// first row.
template <int ROWS>
WJ_DEVICE void next_found(const Machine<ROWS>& m, const Rows& rows, const Instruction& i) {
    const u32 item = rows.item - ROWS;
    Words<ROWS> places, found, go_on;
    WJ_EACH_ROW {
        const bool is_hit = (rows.hits >> (item + row) & 1) != 0;
        places.of[row] = is_hit ? word_of_rows(m, i.a, item + row) : 0;
        found.of[row] = is_hit ? word_of_rows(m, i.b, item + row) : 0;
        go_on.of[row] = is_hit && places.of[row] < uniform(m, i.next);
    }
    set(m, i.to, places);
    set(m, i.c, found);
    set(m, i.d, go_on);
}

// Writes a value (`c`) into the slot of a key (`b`) of the table at `a`, or sets the key's bit. `d` is the control block.
template <int ROWS>
WJ_DEVICE void write_slot(const Machine<ROWS>& m, const Instruction& i) {
    u64* const control = uniform_pointer<u64>(m, i.d);
    const Words<ROWS> keys = get(m, i.b);
    const Words<ROWS> values = get(m, i.c);
    Words<ROWS> written = get(m, i.to);
    WJ_EACH_ROW {
        if (!takes_part(m, row)) continue;
        const u64 key = keys.of[row], value = values.of[row];
        switch (i.operation) {
            case WJ_DO_FillSlot4: fill_slot(uniform_pointer<u32>(m, i.a), key, (u32)value, control); break;
            case WJ_DO_FillSlot8: fill_slot(uniform_pointer<u64>(m, i.a), key, value, control); break;
            default: set_in_bitmap(uniform_pointer<u32>(m, i.a), key); break;
        }
        ++written.of[row];
    }
    set(m, i.to, written);
}
