// Group tables whose form a list describes (`group_list` in src/interpret.rs).
#pragma once
#include "interpret/machine.cuh"

// A group table, a block's table in front of it, and the block's place among the rows.
struct Groups {
    GroupTable table;
    BlockTable<u64> front;
    SpareRow spare;
    TileOrder order;
    u64 turn;
    u64 next;   // the lane's row after this one
    u32 item;   // rows of the turn that were taken
    u32 items;  // all of them
    u32 first;  // of partitioned rows: the item's rows that are left
    u32 end;
    bool is_open;
    bool is_whole;
    bool stops;
};

// What describes an accumulator.
struct Merge {
    u32 kind, word, block_word, form, condition, value;
};

WJ_DEVICE Merge merge_of(const Machine& m, u32 number) {
    const u32* each = m.list + WJ_LIST_HEAD + number * WJ_LIST_EACH;
    return Merge{each[0], each[1], each[2], each[3], each[4], each[5]};
}

WJ_DEVICE GroupParts parts_of(const Machine& m) {
    return GroupParts{pointer_in<const u32>(m, m.list, WJ_LIST_PARTS), value_in(m, m.list, WJ_LIST_PARTS + 1),
                      value_in(m, m.list, WJ_LIST_PARTS + 2), pointer_in<u64>(m, m.list, WJ_LIST_PARTS + 3),
                      value_in(m, m.list, WJ_LIST_PARTS + 4)};
}

// `walk_words`: of shared memory in front of the block's table. All threads of the block call it.
WJ_DEVICE void open_groups(const Machine& m, Groups& groups, u32 walk_words) {
    const u32* fields = m.list + WJ_LIST_TABLE;
    groups.table.rows = pointer_in<u64>(m, fields, 0);
    groups.table.capacity = value_in(m, fields, 1);
    groups.table.index = pointer_in<u64>(m, fields, 2);
    groups.table.index_slots = value_in(m, fields, 3);
    groups.table.steps_max = value_in(m, fields, 4);
    groups.table.grow_steps = value_in(m, fields, 5);
    groups.table.spill_rows = value_in(m, fields, 6);
    groups.table.counters = pointer_in<u64>(m, fields, 7);
    groups.table.control = pointer_in<u64>(m, fields, 8);
    groups.spare = SpareRow{0, false};
    groups.is_open = false;
    if (m.list[WJ_LIST_FRONT] != WJ_FRONT_NONE) {
        u64* const shared = &shared_as<u64>() + walk_words;
        groups.front = open_block_table<u64>(shared, m.list[WJ_LIST_SLOTS], m.list[WJ_LIST_BLOCK_WORDS]);
    }
}

// The upper word of a 128-bit sum's part of 64 bits.
WJ_DEVICE u64 sign_word(u64 low) { return (u64)((i64)low >> 63); }

WJ_DEVICE bool is_narrow(const Merge& merge) { return (merge.form & WJ_FORM_NARROW) != 0; }

// Whether a block's table keeps it in halves of 32 bits.
WJ_DEVICE bool is_halved(const Merge& merge) { return merge.kind <= WJ_MERGE_ADD_WIDE; }

// Finds or claims a group's row in global memory.
WJ_DEVICE u64 row_of_group(const Machine& m, Groups& groups, u64 packed) {
    const u32 stride = m.list[WJ_LIST_STRIDE];
    switch (m.list[WJ_LIST_MODE]) {
        case WJ_MODE_DENSE: return group_row_dense(groups.table, stride, packed);
        case WJ_MODE_NARROW: return group_row_narrow(groups.table, stride, packed);
        default: break;
    }
    u64 key[WJ_INTERPRET_KEY_WORDS];
    const u32 words = m.list[WJ_LIST_KEY_WORDS];
    const u32 operands = WJ_LIST_HEAD + m.list[WJ_LIST_ACCUMULATORS] * WJ_LIST_EACH;
    for (u32 word = 0; word < words; ++word) key[word] = value_in(m, m.list, operands + word);
    return group_row_of_words(groups.table, stride, key, words, groups.spare);
}

// Merges the lane's row into its group.
WJ_DEVICE void accumulate_row(const Machine& m, Groups& groups) {
    const u32 front = m.list[WJ_LIST_FRONT];
    const u32 count = m.list[WJ_LIST_ACCUMULATORS];
    const u64 packed = value_in(m, m.list, WJ_LIST_PACKED);
    const u32 slots = groups.front.slots;
    u32 slot = WJ_NO_SLOT;
    if (front == WJ_FRONT_KEYED) {
        slot = block_slot_keyed(groups.front, (u32)packed, m.list[WJ_LIST_REPLICA_BITS]);
    } else if (front == WJ_FRONT_HASHED && groups.front.is_on) {
        slot = block_slot(groups.front, packed + 1);
    }
    u64* row = nullptr;
    if (slot == WJ_NO_SLOT) {
        const u64 number = row_of_group(m, groups, packed);
        if (number == WJ_NO_ROW) return;
        row = groups.table.rows + number * m.list[WJ_LIST_STRIDE] + m.list[WJ_LIST_HEADER];
    }
    for (u32 number = 0; number < count; ++number) {
        const Merge merge = merge_of(m, number);
        if (get(m, merge.condition) == 0) continue;
        const u64 low = get(m, merge.value);
        const bool is_wide = merge.kind == WJ_MERGE_ADD_WIDE && !is_narrow(merge);
        const u64 high = is_wide ? get_behind(m, merge.value, 1) : sign_word(low);
        if (row != nullptr) {
            merge_words(merge.kind, row + merge.word, low, high);
            continue;
        }
        u64* const words = groups.front.words + merge.block_word * slots;
        if ((merge.form & WJ_FORM_COUNT) != 0) {
            block_count(words, slot, (u32)low);
        } else if (is_wide) {
            block_add_wide(words, words + slots, slots, slot, wide_literal(low, high));
        } else if (is_halved(merge)) {
            block_add(words, slots, slot, low);
        } else if (merge.kind == WJ_MERGE_ADD_DOUBLE) {
            block_add_float(words, slot, __longlong_as_double((i64)low));
        } else if (merge.kind == WJ_MERGE_MAX) {
            block_max(words, slot, low);
        } else if (merge.kind == WJ_MERGE_OR) {
            block_or(words, slot, low);
        } else {
            block_xor(words, slot, low);
        }
    }
}

// A word of what a slot of the block's table has gathered.
WJ_DEVICE u64 block_word(const Groups& groups, const Merge& merge, u32 slot, u32 word) {
    const u32 slots = groups.front.slots;
    const u64* words = groups.front.words + merge.block_word * slots;
    if (word == 1 && is_narrow(merge)) return sign_word(block_sum(words, slots, slot));
    words += word * slots;
    return is_halved(merge) ? block_sum(words, slots, slot) : words[slot];
}

// Merges the slots into the group table, from one on, and clears them. All threads of the block call it, between barriers.
WJ_DEVICE void flush_slots(const Machine& m, Groups& groups, u32 first_slot) {
    const u32 slots = groups.front.slots;
    const u32 count = m.list[WJ_LIST_ACCUMULATORS];
    const bool is_keyed = m.list[WJ_LIST_FRONT] == WJ_FRONT_KEYED;
#pragma unroll 1
    for (u32 slot = first_slot + threadIdx.x; slot < slots; slot += blockDim.x) {
        u64 word = 0;
        if (!block_group(groups.front, slot, word)) continue;
        const u64 packed = is_keyed ? (u64)(slot >> m.list[WJ_LIST_REPLICA_BITS]) : word - 1;
        const u64 number = row_of_group(m, groups, packed);
        u64* row = groups.table.rows + number * m.list[WJ_LIST_STRIDE] + m.list[WJ_LIST_HEADER];
        for (u32 at = 0; at < count; ++at) {
            const Merge merge = merge_of(m, at);
            const bool is_wide = merge.kind == WJ_MERGE_ADD_WIDE;
            if (number != WJ_NO_ROW) {
                const u64 high = is_wide ? block_word(groups, merge, slot, 1) : 0;
                merge_words(merge.kind, row + merge.word, block_word(groups, merge, slot, 0), high);
            }
            for (u32 part = 0; part < (is_wide && !is_narrow(merge) ? 2 : 1); ++part) {
                u64* const words = groups.front.words + (merge.block_word + part) * slots;
                if (is_halved(merge)) {
                    block_clear_sum(words, slots, slot);
                } else {
                    words[slot] = 0;
                }
            }
        }
        groups.front.keys[slot] = 0;
    }
}

// A word of the row of a group that is finished.
WJ_DEVICE u64 finished_word(const Machine& m, const Groups& groups, u32 slot, u32 word) {
    if (word == 0) return groups.front.keys[slot];
    const u32 count = m.list[WJ_LIST_ACCUMULATORS];
    const u32 header = m.list[WJ_LIST_HEADER];
    for (u32 number = 0; number < count; ++number) {
        const Merge merge = merge_of(m, number);
        const u32 words = merge.kind == WJ_MERGE_ADD_WIDE ? 2 : 1;
        if (word >= header + merge.word && word < header + merge.word + words) {
            return block_word(groups, merge, slot, word - header - merge.word);
        }
    }
    return 0;
}

WJ_DEVICE bool front_is_halved(const Machine& m) { return m.list[WJ_LIST_IS_HALVED] != 0; }

// Goes to the lane's next row of the tiles; false behind the last one. All threads of the block call it.
WJ_DEVICE bool next_tile_row(const Machine& m, Groups& groups, u64 rows, u64& row) {
    const u32 front = m.list[WJ_LIST_FRONT];
    bool begins = !groups.is_open;
    if (begins) {
        groups.is_open = true;
        groups.order = tile_order(rows, WJ_RUN_BITS_MAX);
        groups.turn = pointer_in<u64>(m, m.list, WJ_LIST_PARTS)[blockIdx.x];
    } else if (groups.item >= groups.order.items) {
        ++groups.turn;
        begins = true;
    }
    if (begins) {
        const bool is_last = groups.turn >= groups.order.turns ||
                             is_stopped(groups.table.control, value_in(m, m.list, WJ_LIST_CANCEL), groups.turn);
        const bool flushes =
            front == WJ_FRONT_KEYED ? block_step_keyed(groups.front, is_last)
            : front == WJ_FRONT_HASHED
                ? block_step(groups.front, groups.order.items * blockDim.x, groups.front.slots / 8, is_last)
                : false;
        if (flushes) {
            __syncthreads();
            flush_slots(m, groups, 0);
            __syncthreads();
        }
        if (is_last) return false;
        groups.next = groups.order.row(groups.turn);
        groups.item = 0;
    }
    if (groups.item == 1 && front == WJ_FRONT_HASHED && !front_is_halved(m)) block_choose_replicas(groups.front, false);
    row = groups.next;
    groups.next += blockDim.x;
    ++groups.item;
    return true;
}

// Keeps the block's place. All threads of the block call it.
WJ_DEVICE void close_tiles(const Machine& m, const Groups& groups) {
    __syncthreads();
    if (threadIdx.x == 0) {
        pointer_in<u64>(m, m.list, WJ_LIST_PARTS)[blockIdx.x] = groups.turn;
        if (groups.turn < groups.order.turns) atomicAdd(&groups.table.control[WJ_CONTROL_ROWS], 1ULL);
    }
}

// Flushes the block's table, or writes out the groups of a whole partition that was never flushed. All threads of the
// block call it.
WJ_DEVICE void flush_walk(const Machine& m, Groups& groups, GroupWalk& walk, bool is_end) {
    __syncthreads();
    const u32 slots = groups.front.slots;
    const u32 stride = m.list[WJ_LIST_STRIDE];
    const bool may_finish = m.list[WJ_LIST_HAS_FINISHED] != 0 && is_end && !groups.stops && groups.is_whole &&
                            groups.front.replica_bits == 0;
    groups.is_whole = false;
    bool finishes = false;
    const GroupParts parts = parts_of(m);
    u16* const list = reinterpret_cast<u16*>(groups.front.words + slots * m.list[WJ_LIST_BLOCK_WORDS]);
    const FinishedGroups finished = {may_finish ? pointer_in<u64>(m, m.list, WJ_LIST_FINISHED) : nullptr,
                                     may_finish ? value_in(m, m.list, WJ_LIST_FINISHED + 1) : 0, parts.places + 1};
    if (may_finish) finishes = reserve_finished(groups.front, walk, list, finished, stride);
    flush_slots(m, groups, finishes ? slots - 32 : 0);
    if (finishes) {
        const auto value_at = [&](u32 slot, u32 word) -> u64 { return finished_word(m, groups, slot, word); };
        write_finished(groups.front, m.list[WJ_LIST_BLOCK_WORDS], walk, list, finished, stride, value_at);
    }
    __syncthreads();
}

// Goes to the lane's next row of rows that lie by partition; false behind the last one. All threads of the block call it.
WJ_DEVICE bool next_walk_row(const Machine& m, Groups& groups, u64& row, bool& is_there) {
    const u32 front = m.list[WJ_LIST_FRONT];
    const GroupParts parts = parts_of(m);
    GroupWalk& walk = shared_as<GroupWalk>();
    bool begins = false;
    if (!groups.is_open) {
        open_walk(parts);
        groups.is_open = true;
        groups.first = walk.row;
        groups.end = walk.end;
        groups.turn = 0;
        groups.is_whole = false;
        begins = true;
    } else if (groups.item >= groups.items) {
        ++groups.turn;
        begins = true;
    }
    if (begins) {
        groups.stops = is_stopped(groups.table.control, value_in(m, m.list, WJ_LIST_CANCEL), groups.turn);
        const bool is_end = groups.stops || groups.first >= groups.end;
        const u32 misses = groups.is_whole ? groups.front.slots : groups.front.slots / 8;
        const bool flushes = front == WJ_FRONT_KEYED ? block_step_keyed(groups.front, is_end)
                             : front == WJ_FRONT_HASHED
                                 ? block_step(groups.front, WJ_TURN_ITEMS * blockDim.x, misses, is_end)
                                 : false;
        if (flushes) flush_walk(m, groups, walk, is_end);
        if (is_end) {
            if (front == WJ_FRONT_HASHED) block_restart(groups.front);
            if (groups.stops || !next_item(walk, parts)) return false;
            groups.first = walk.row;
            groups.end = walk.end;
            groups.is_whole = walk.is_whole != 0;
        }
        groups.next = groups.first + threadIdx.x;
        groups.items = items_of_turn(groups.first, groups.end);
        groups.first += groups.items * blockDim.x;
        groups.item = 0;
    }
    if (groups.item == 1 && front == WJ_FRONT_HASHED && !front_is_halved(m)) {
        block_choose_replicas(groups.front, groups.is_whole);
    }
    row = groups.next;
    is_there = row < groups.end;
    groups.next += blockDim.x;
    ++groups.item;
    return true;
}

// Keeps the block's place.
WJ_DEVICE void close_walk_of(const Machine& m, const Groups& groups) {
    if (threadIdx.x != 0) return;
    close_walk(parts_of(m), shared_as<GroupWalk>(), groups.first);
    if (groups.stops) atomicAdd(&groups.table.control[WJ_CONTROL_ROWS], 1ULL);
}
