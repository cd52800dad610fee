// Instructions of loops over rows, and what the lanes of a warp or block do together, but for group tables and partitions.
#pragma once
#include "interpret/machine.cuh"

// Where a block is among the rows.
struct Rows {
    u64 tile;
    u64 turn;
    u64 first;       // of several rows a thread: the first one
    u32 item;        // which of them is next
    u32 hits;        // bits of those that found something
    u32 match_turns;
    bool is_full;    // the rows that are wanted are there
    bool is_vain;    // the launch has failed
};

WJ_DEVICE u64 tiles_of(u64 rows, u64 tile_rows) { return (rows + tile_rows - 1) / tile_rows; }

WJ_DEVICE void open_rows(Rows& rows) {
    rows.tile = blockIdx.x;
    rows.turn = 0;
    rows.first = 0;
    rows.item = 0;
    rows.hits = 0;
    rows.match_turns = 0;
    rows.is_full = false;
    rows.is_vain = false;
}

// The number of the lane's row in the next tile; false behind the last one. `b` is the control block, `c` the rows that are
// wanted; `next` is that of the end.
WJ_DEVICE bool next_grid_row(const Machine& m, Rows& rows, const Instruction& i, bool stops) {
    const u64 count = get(m, i.a);
    if (rows.tile >= tiles_of(count, blockDim.x)) return false;
    if (stops && has_enough(get_pointer<const u64>(m, i.b) + WJ_CONTROL_ROWS, get(m, i.c), rows.turn++)) return false;
    const u64 row = rows.tile * blockDim.x + threadIdx.x;
    rows.tile += gridDim.x;
    set(m, i.to, row);
    set(m, i.d, row < count);
    return true;
}

// The same of a sample of one row in `b`.
WJ_DEVICE bool next_sample(const Machine& m, Rows& rows, const Instruction& i) {
    const u64 count = get(m, i.a);
    const u64 stride = get(m, i.b);
    if (rows.tile >= tiles_of((count + stride - 1) / stride, blockDim.x)) return false;
    const u64 sample = rows.tile * blockDim.x + threadIdx.x;
    const u64 row = sample * stride + __umul64hi(hash_word(sample + 1), stride);
    rows.tile += gridDim.x;
    set(m, i.to, row);
    set(m, i.d, row < count);
    return true;
}

template <class T>
WJ_DEVICE bool find_key_word(const T* slots, u64 count, u64 key, u32 key_bits, u64& value) {
    const u32 home = word_home<T>(key, count, key_bits);
    return find_word(slots, count, key, key_bits, home, slots[home], value);
}

// Looks a key up with as many lanes as built the table. All lanes call it.
WJ_DEVICE bool find_pair(const Slot* slots, u64 windows, u64 key, u32 lanes, bool active, u64& value) {
    const u64 hash = hash_key(key);
    switch (lanes) {
        case 1: return find<1>(slots, windows, key, hash, active, value);
        case 2: return find<2>(slots, windows, key, hash, active, value);
        case 4: return find<4>(slots, windows, key, hash, active, value);
        case 8: return find<8>(slots, windows, key, hash, active, value);
        case 16: return find<16>(slots, windows, key, hash, active, value);
        default: return find<32>(slots, windows, key, hash, active, value);
    }
}

// Looks a key up, if the lane's row is there (`a`), and says so. `b` is the key, `c` the slots, `d` how many.
WJ_DEVICE void find_key(const Machine& m, const Instruction& i) {
    const u64 key = get(m, i.b);
    const u64 count = get(m, i.d);
    bool found = get(m, i.a) != 0;
    u64 value = 0;
    switch (i.operation) {
        case WJ_DO_Find4:
            if (found) value = get_pointer<const u32>(m, i.c)[key - 1];
            found = value-- != 0;
            break;
        case WJ_DO_Find8:
            if (found) value = get_pointer<const u64>(m, i.c)[key - 1];
            found = value-- != 0;
            break;
        case WJ_DO_FindWord4:
            found = found && find_key_word(get_pointer<const u32>(m, i.c), count, key, i.next, value);
            break;
        case WJ_DO_FindWord8:
            found = found && find_key_word(get_pointer<const u64>(m, i.c), count, key, i.next, value);
            break;
        default: found = find_pair(get_pointer<const Slot>(m, i.c), count, key, i.next, found, value); break;
    }
    set(m, i.to, value);
    set(m, i.a, found);
}

// Reserves a place for the lane's row, if it is there (`b`); narrows to those for which there is room. `a` is the control
// block, `c` the room, `d` the rows that are wanted.
WJ_DEVICE void reserve(const Machine& m, Rows& rows, const Instruction& i) {
    u64* const counter = get_pointer<u64>(m, i.a) + WJ_CONTROL_ROWS;
    const bool is_there = get(m, i.b) != 0;
    const u64 place = i.operation == WJ_DO_ReserveOfBlock
                          ? reserve_rows_of_block(shared_as<BlockReservation>(), counter, is_there)
                          : reserve_rows(counter, is_there);
    rows.is_full = rows.is_full || (is_there && place >= get(m, i.d));
    set(m, i.to, place);
    set(m, i.b, is_there && place < get(m, i.c));
}

// Looks up the keys of several rows a thread: `b` is the first key, `to` the first value.
WJ_DEVICE void find_batch(const Machine& m, Rows& rows, const Instruction& i, u32 items) {
    const u64 count = get(m, i.d);
    const u32 form = i.next & 0xffff;
    const u32 key_bits = i.next >> 16;
    rows.hits = 0;
    for (u32 item = 0; item < items; ++item) {
        const u64 key = get_behind(m, i.b, item);
        u64 value = 0;
        bool found = false;
        if (key != 0) {
            if (form == WJ_DO_Find4) {
                value = get_pointer<const u32>(m, i.c)[key - 1];
                found = value-- != 0;
            } else if (form == WJ_DO_Find8) {
                value = get_pointer<const u64>(m, i.c)[key - 1];
                found = value-- != 0;
            } else if (form == WJ_DO_FindWord4) {
                found = find_key_word(get_pointer<const u32>(m, i.c), count, key, key_bits, value);
            } else if (form == WJ_DO_FindWord8) {
                found = find_key_word(get_pointer<const u64>(m, i.c), count, key, key_bits, value);
            } else {
                const Slot* slots = get_pointer<const Slot>(m, i.c);
                const u64 home = hash_place(hash_key(key), count);
                found = find_from(slots, count, key, home, load_slot(&slots[home]), value);
            }
        }
        set(m, behind(i.to, item), value);
        rows.hits |= (u32)found << item;
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

// Merges what the lanes of all warps have gathered (`a`) into the words at `b`, word `next`. All lanes call it.
WJ_DEVICE void merge_gathered(const Machine& m, const Instruction& i) {
    u64* const words = get_pointer<u64>(m, i.b) + i.next;
    const bool merges = (threadIdx.x & 31) == 0;
    switch (i.operation) {
        case WJ_DO_MergeAdd: {
            const u64 sum = warp_sum(get(m, i.a));
            if (merges) accumulate_add(words, sum);
            break;
        }
        case WJ_DO_MergeAddWide: {
            const i128 sum = warp_sum(get_wide(m, i.a));
            if (merges) accumulate_add_wide(words, sum);
            break;
        }
        case WJ_DO_MergeAddDouble: {
            const f64 sum = warp_sum(get_double(m, i.a));
            if (merges) accumulate_add(reinterpret_cast<f64*>(words), sum);
            break;
        }
        case WJ_DO_MergeMax: {
            const u64 code = warp_max(get(m, i.a));
            if (merges) accumulate_max(words, code);
            break;
        }
        case WJ_DO_MergeOr: {
            const u64 bits = warp_or(get(m, i.a));
            if (merges) accumulate_or(words, bits);
            break;
        }
        default: {
            const u64 bits = warp_xor(get(m, i.a));
            if (merges) accumulate_xor(words, bits);
            break;
        }
    }
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
