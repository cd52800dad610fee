// Group tables whose form a list describes (`group_list` in src/interpret.rs).
#pragma once
#include "interpret/machine.cuh"
#include "interpret/rare.cuh"

// The block's table in front of a group table, and the block's place among the rows. In local memory, as `Rows`.
struct Groups {
    BlockTable<u64> front;
    SpareRow spare;
    TileOrder order;
    u64 turn;
    u64 next;   // the lane's row after these
    u32 item;   // rows of the turn that were taken
    u32 items;  // all of them
    u32 first;  // of partitioned rows: the item's rows that are left
    u32 end;
    bool is_open;
    bool is_whole;
    bool stops;
};

WJ_DEVICE BlockTable<u64> front_of(const Groups& groups) {
    BlockTable<u64> front = groups.front;
    front.keys = in_shared(front.keys);
    front.words = in_shared(front.words);
    front.misses = in_shared(front.misses);
    front.used = in_shared(front.used);
    return front;
}

// What describes an accumulator.
struct Merge {
    u32 kind, word, block_word, form, condition, value;
};

template <int ROWS>
WJ_DEVICE Merge merge_of(const Machine<ROWS>& m, u32 number) {
    const u32 address = m.list + (WJ_LIST_HEAD + number * WJ_LIST_EACH) * 4;
    u32 numbers[4], operands[4];
    load_four(address, numbers);
    load_four(address + 16, operands);
    return Merge{numbers[0], numbers[1], numbers[2], numbers[3], m.shared + operands[0], m.shared + operands[1]};
}

template <int ROWS>
WJ_DEVICE GroupParts parts_of(const Machine<ROWS>& m) {
    return GroupParts{pointer_in<const u32>(m, list_at(m.list), WJ_LIST_PARTS), value_in(m, list_at(m.list), WJ_LIST_PARTS + 1),
                      value_in(m, list_at(m.list), WJ_LIST_PARTS + 2), pointer_in<u64>(m, list_at(m.list), WJ_LIST_PARTS + 3),
                      value_in(m, list_at(m.list), WJ_LIST_PARTS + 4)};
}

// The group table: read where it is needed, so that it takes no registers elsewhere.
template <int ROWS>
WJ_DEVICE GroupTable table_of(const Machine<ROWS>& m) {
    const u32* fields = list_at(m.list) + WJ_LIST_TABLE;
    GroupTable table;
    table.rows = pointer_in<u64>(m, fields, 0);
    table.capacity = value_in(m, fields, 1);
    table.index = pointer_in<u64>(m, fields, 2);
    table.index_slots = value_in(m, fields, 3);
    table.steps_max = value_in(m, fields, 4);
    table.grow_steps = value_in(m, fields, 5);
    table.spill_rows = value_in(m, fields, 6);
    table.counters = pointer_in<u64>(m, fields, 7);
    table.control = pointer_in<u64>(m, fields, 8);
    return table;
}
template <int ROWS>
WJ_DEVICE u64* group_rows(const Machine<ROWS>& m) { return pointer_in<u64>(m, list_at(m.list), WJ_LIST_TABLE); }
template <int ROWS>
WJ_DEVICE u64* group_control(const Machine<ROWS>& m) { return pointer_in<u64>(m, list_at(m.list), WJ_LIST_TABLE + 8); }

// `walk_words`: of shared memory in front of the block's table. All threads of the block call it.
template <int ROWS>
WJ_RARE void open_groups(const Machine<ROWS> m, Groups& groups, u32 walk_words) {
    groups.spare = SpareRow{0, false};
    groups.is_open = false;
    if (listed(m, WJ_LIST_FRONT) != WJ_FRONT_NONE) {
        u64* const shared = &shared_as<u64>() + walk_words;
        groups.front = open_block_table<u64>(shared, listed(m, WJ_LIST_SLOTS), listed(m, WJ_LIST_BLOCK_WORDS));
    }
}

// The upper word of a 128-bit sum's part of 64 bits.
WJ_DEVICE u64 sign_word(u64 low) { return (u64)((i64)low >> 63); }

WJ_DEVICE bool is_narrow(const Merge& merge) { return (merge.form & WJ_FORM_NARROW) != 0; }

// Whether a block's table keeps it in halves of 32 bits.
WJ_DEVICE bool is_halved(const Merge& merge) { return merge.kind <= WJ_MERGE_ADD_WIDE; }

// A group's row in global memory, which was found or claimed, and what is left of a row that was claimed in vain.
struct GroupRow {
    u64 number;
    SpareRow spare;
};

template <int ROWS>
WJ_RARE u64 narrow_row(const Machine<ROWS> m, u64 packed) {
    return group_row_narrow(table_of(m), listed(m, WJ_LIST_STRIDE), packed);
}

// The words of the key are those of one of the lane's rows.
template <int ROWS>
WJ_RARE GroupRow wide_row(const Machine<ROWS> m, SpareRow spare, int row) {
    u64 key[WJ_INTERPRET_KEY_WORDS];
    const u32 words = listed(m, WJ_LIST_KEY_WORDS);
    const u32 operands = WJ_LIST_HEAD + listed(m, WJ_LIST_ACCUMULATORS) * WJ_LIST_EACH;
    for (u32 at = 0; at < words; ++at) key[at] = word(m, operand_in(m, list_at(m.list), operands + at), row);
    GroupRow group = {0, spare};
    group.number = group_row_of_words(table_of(m), listed(m, WJ_LIST_STRIDE), key, words, group.spare);
    return group;
}

// The row of the group of a packed key, or of one of the lane's rows.
template <int ROWS>
WJ_DEVICE u64 row_of_group(const Machine<ROWS>& m, SpareRow& spare, u64 packed, int row) {
    const u32 mode = listed(m, WJ_LIST_MODE);
    if (mode == WJ_MODE_DENSE) return group_row_dense(table_of(m), listed(m, WJ_LIST_STRIDE), packed);
    if (mode == WJ_MODE_NARROW) return narrow_row(m, packed);
    const GroupRow group = wide_row(m, spare, row);
    spare = group.spare;
    return group.number;
}

// Adds values of the lane's rows that have a slot to sums in halves. All are under way before the first carry is known.
template <int ROWS>
WJ_DEVICE void add_in_block(u64* words, u32 slots, const u32 (&slot_of)[ROWS], const Words<ROWS>& values) {
    u32* const halves = reinterpret_cast<u32*>(words);
    u32 before[ROWS];
    WJ_EACH_ROW {
        if (slot_of[row] != WJ_NO_SLOT) before[row] = atomicAdd(&halves[slot_of[row]], (u32)values.of[row]);
    }
    WJ_EACH_ROW {
        if (slot_of[row] == WJ_NO_SLOT) continue;
        const u32 high = (u32)(values.of[row] >> 32) + (before[row] + (u32)values.of[row] < before[row] ? 1 : 0);
        if (high != 0) atomicAdd(&halves[slots + slot_of[row]], high);
    }
}

// Merges values of the lane's rows that have a slot.
template <int ROWS>
WJ_DEVICE void merge_in_block(u64* words, u32 slots, const Merge& merge, const u32 (&slot_of)[ROWS], const Words<ROWS>& low,
                              const Words<ROWS>& high) {
    const bool is_wide = merge.kind == WJ_MERGE_ADD_WIDE && !is_narrow(merge);
    if (is_halved(merge) && !is_wide && (merge.form & WJ_FORM_COUNT) == 0) {
        add_in_block(words, slots, slot_of, low);
        return;
    }
    WJ_EACH_ROW {
        const u32 slot = slot_of[row];
        if (slot == WJ_NO_SLOT) continue;
        if ((merge.form & WJ_FORM_COUNT) != 0) {
            block_count(words, slot, (u32)low.of[row]);
        } else if (is_wide) {
            block_add_wide(words, words + slots, slots, slot, wide_literal(low.of[row], high.of[row]));
        } else if (merge.kind == WJ_MERGE_ADD_DOUBLE) {
            block_add_float(words, slot, __longlong_as_double((i64)low.of[row]));
        } else if (merge.kind == WJ_MERGE_MAX) {
            block_max(words, slot, low.of[row]);
        } else if (merge.kind == WJ_MERGE_OR) {
            block_or(words, slot, low.of[row]);
        } else {
            block_xor(words, slot, low.of[row]);
        }
    }
}

// Merges the lane's rows that take part into their groups.
template <int ROWS>
WJ_RARE void accumulate_rows(const Machine<ROWS> m, Groups& groups) {
    const u32 front = listed(m, WJ_LIST_FRONT);
    const u32 count = listed(m, WJ_LIST_ACCUMULATORS);
    const u32 packed_at = operand_in(m, list_at(m.list), WJ_LIST_PACKED);
    const BlockTable<u64> table = front_of(groups);
    u32 slot_of[ROWS];
    u64* group_of[ROWS];
    bool is_any_without = false;
    WJ_EACH_ROW {
        slot_of[row] = WJ_NO_SLOT;
        group_of[row] = nullptr;
        if (!takes_part(m, row)) continue;
        const u64 packed = word(m, packed_at, row);
        if (front == WJ_FRONT_KEYED) {
            slot_of[row] = block_slot_keyed(table, (u32)packed, listed(m, WJ_LIST_REPLICA_BITS));
        } else if (front == WJ_FRONT_HASHED && table.is_on) {
            slot_of[row] = block_slot(table, packed + 1);
        }
        if (slot_of[row] != WJ_NO_SLOT) continue;
        const u64 number = row_of_group(m, groups.spare, packed, row);
        if (number == WJ_NO_ROW) continue;
        group_of[row] = group_rows(m) + number * listed(m, WJ_LIST_STRIDE) + listed(m, WJ_LIST_HEADER);
        is_any_without = true;
    }
#pragma unroll 1
    for (u32 number = 0; number < count; ++number) {
        const Merge merge = merge_of(m, number);
        const Words<ROWS> low = get(m, merge.value);
        u64* const words = table.words + merge.block_word * table.slots;
        Words<ROWS> conditions, high;
        WJ_EACH_ROW {
            conditions.of[row] = 1;
            high.of[row] = sign_word(low.of[row]);
        }
        if ((merge.form & WJ_FORM_SUM_OF_ALL) != 0) {
            add_in_block(words, table.slots, slot_of, low);
        } else {
            if ((merge.form & WJ_FORM_OF_ALL) == 0) conditions = get(m, merge.condition);
            if (merge.kind == WJ_MERGE_ADD_WIDE && !is_narrow(merge)) high = get_behind(m, merge.value, 1);
            u32 slots[ROWS];
            WJ_EACH_ROW slots[row] = conditions.of[row] != 0 ? slot_of[row] : WJ_NO_SLOT;
            merge_in_block(words, table.slots, merge, slots, low, high);
        }
        if (!is_any_without) continue;
        WJ_EACH_ROW {
            if (group_of[row] == nullptr || conditions.of[row] == 0) continue;
            merge_words(merge.kind, group_of[row] + merge.word, low.of[row], high.of[row]);
        }
    }
}

// A word of what a slot of the block's table has gathered.
WJ_DEVICE u64 block_word(const BlockTable<u64>& front, const Merge& merge, u32 slot, u32 word) {
    const u32 slots = front.slots;
    const u64* words = front.words + merge.block_word * slots;
    if (word == 1 && is_narrow(merge)) return sign_word(block_sum(words, slots, slot));
    words += word * slots;
    return is_halved(merge) ? block_sum(words, slots, slot) : words[slot];
}

// Merges the slots into the group table, from one on, and clears them. All threads of the block call it, between barriers.
// The table has no long keys.
template <int ROWS>
WJ_RARE void flush_slots(const Machine<ROWS> m, const Groups& groups, u32 first_slot) {
    const BlockTable<u64> front = front_of(groups);
    SpareRow spare = {0, false};
    const u32 slots = front.slots;
    const u32 count = listed(m, WJ_LIST_ACCUMULATORS);
    const bool is_keyed = listed(m, WJ_LIST_FRONT) == WJ_FRONT_KEYED;
#pragma unroll 1
    for (u32 slot = first_slot + threadIdx.x; slot < slots; slot += blockDim.x) {
        u64 word = 0;
        if (!block_group(front, slot, word)) continue;
        const u64 packed = is_keyed ? (u64)(slot >> listed(m, WJ_LIST_REPLICA_BITS)) : word - 1;
        const u64 number = row_of_group(m, spare, packed, 0);
        u64* row = group_rows(m) + number * listed(m, WJ_LIST_STRIDE) + listed(m, WJ_LIST_HEADER);
        for (u32 at = 0; at < count; ++at) {
            const Merge merge = merge_of(m, at);
            const bool is_wide = merge.kind == WJ_MERGE_ADD_WIDE;
            if (number != WJ_NO_ROW) {
                const u64 high = is_wide ? block_word(front, merge, slot, 1) : 0;
                merge_words(merge.kind, row + merge.word, block_word(front, merge, slot, 0), high);
            }
            for (u32 part = 0; part < (is_wide && !is_narrow(merge) ? 2 : 1); ++part) {
                u64* const words = front.words + (merge.block_word + part) * slots;
                if (is_halved(merge)) {
                    block_clear_sum(words, slots, slot);
                } else {
                    words[slot] = 0;
                }
            }
        }
        front.keys[slot] = 0;
    }
}

// A word of the row of a group that is finished.
template <int ROWS>
WJ_DEVICE u64 finished_word(const Machine<ROWS>& m, const BlockTable<u64>& front, u32 slot, u32 word) {
    if (word == 0) return front.keys[slot];
    const u32 count = listed(m, WJ_LIST_ACCUMULATORS);
    const u32 header = listed(m, WJ_LIST_HEADER);
    for (u32 number = 0; number < count; ++number) {
        const Merge merge = merge_of(m, number);
        const u32 words = merge.kind == WJ_MERGE_ADD_WIDE ? 2 : 1;
        if (word >= header + merge.word && word < header + merge.word + words) {
            return block_word(front, merge, slot, word - header - merge.word);
        }
    }
    return 0;
}

template <int ROWS>
WJ_DEVICE bool front_is_halved(const Machine<ROWS>& m) { return listed(m, WJ_LIST_IS_HALVED) != 0; }

// The lane's next rows.
template <int ROWS>
struct NextRows {
    Words<ROWS> rows;
    Words<ROWS> are_there;
    u32 is_over;    // those before were the last ones
    u32 ends_turn;
};

// Whether the next rows are of the same turn, and not the second ones, before which a table may change.
template <int ROWS>
WJ_DEVICE bool is_within_turn(const Groups& groups, u32 items) {
    return groups.is_open && groups.item > ROWS && groups.item < items;
}

// The lane's next rows of the same turn.
template <int ROWS>
WJ_DEVICE NextRows<ROWS> rows_of_turn(Groups& groups, u32 items, u64 end) {
    const u64 first = groups.next;
    const u32 item = groups.item;
    NextRows<ROWS> next;
    WJ_EACH_ROW {
        next.rows.of[row] = first + row * blockDim.x;
        next.are_there.of[row] = next.rows.of[row] < end && item + row < items;
    }
    groups.next = first + ROWS * blockDim.x;
    groups.item = item + ROWS;
    next.is_over = false;
    next.ends_turn = item + ROWS >= items;
    return next;
}

// What follows the last rows.
template <int ROWS>
WJ_DEVICE NextRows<ROWS> no_rows() {
    NextRows<ROWS> next;
    WJ_EACH_ROW next.rows.of[row] = next.are_there.of[row] = 0;
    next.is_over = true;
    next.ends_turn = true;
    return next;
}

// Goes to the lane's next rows of the tiles. All threads of the block call it.
template <int ROWS>
WJ_RARE NextRows<ROWS> next_tile_rows(const Machine<ROWS> m, Groups& groups, u64 rows) {
    const u32 front = listed(m, WJ_LIST_FRONT);
    bool begins = !groups.is_open;
    if (begins) {
        groups.is_open = true;
        groups.order = tile_order(rows, WJ_RUN_BITS_MAX);
        groups.turn = pointer_in<u64>(m, list_at(m.list), WJ_LIST_PARTS)[blockIdx.x];
    } else if (groups.item >= groups.order.items) {
        ++groups.turn;
        begins = true;
    }
    if (begins) {
        const bool is_last = groups.turn >= groups.order.turns ||
                             is_stopped(group_control(m), value_in(m, list_at(m.list), WJ_LIST_CANCEL), groups.turn);
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
        if (is_last) return no_rows<ROWS>();
        groups.next = groups.order.row(groups.turn);
        // A turn behind the last row is over at once.
        groups.item = groups.next - threadIdx.x < rows ? 0 : groups.order.items - 1;
    }
    if (groups.item == ROWS && front == WJ_FRONT_HASHED && !front_is_halved(m)) block_choose_replicas(groups.front, false);
    return rows_of_turn<ROWS>(groups, groups.order.items, rows);
}

// Keeps the block's place. All threads of the block call it.
template <int ROWS>
WJ_RARE void close_tiles(const Machine<ROWS> m, const Groups& groups) {
    __syncthreads();
    if (threadIdx.x == 0) {
        pointer_in<u64>(m, list_at(m.list), WJ_LIST_PARTS)[blockIdx.x] = groups.turn;
        if (groups.turn < groups.order.turns) atomicAdd(&group_control(m)[WJ_CONTROL_ROWS], 1ULL);
    }
}

// Flushes the block's table, or writes out the groups of a whole partition that was never flushed. All threads of the
// block call it.
template <int ROWS>
WJ_DEVICE void flush_walk(const Machine<ROWS>& m, Groups& groups, GroupWalk& walk, bool is_end) {
    __syncthreads();
    const BlockTable<u64> front = front_of(groups);
    const u32 slots = front.slots;
    const u32 stride = listed(m, WJ_LIST_STRIDE);
    const bool may_finish = listed(m, WJ_LIST_HAS_FINISHED) != 0 && is_end && !groups.stops && groups.is_whole &&
                            front.replica_bits == 0;
    groups.is_whole = false;
    bool finishes = false;
    const GroupParts parts = parts_of(m);
    u16* const list = reinterpret_cast<u16*>(front.words + slots * listed(m, WJ_LIST_BLOCK_WORDS));
    const FinishedGroups finished = {may_finish ? pointer_in<u64>(m, list_at(m.list), WJ_LIST_FINISHED) : nullptr,
                                     may_finish ? value_in(m, list_at(m.list), WJ_LIST_FINISHED + 1) : 0, parts.places + 1};
    if (may_finish) finishes = reserve_finished(front, walk, list, finished, stride);
    flush_slots(m, groups, finishes ? slots - 32 : 0);
    if (finishes) {
        const auto value_at = [&](u32 slot, u32 word) -> u64 { return finished_word(m, front, slot, word); };
        write_finished(front, listed(m, WJ_LIST_BLOCK_WORDS), walk, list, finished, stride, value_at);
    }
    __syncthreads();
}

// Goes to the lane's next rows of rows that lie by partition. All threads of the block call it.
template <int ROWS>
WJ_RARE NextRows<ROWS> next_walk_rows(const Machine<ROWS> m, Groups& groups) {
    const u32 front = listed(m, WJ_LIST_FRONT);
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
        groups.stops = is_stopped(group_control(m), value_in(m, list_at(m.list), WJ_LIST_CANCEL), groups.turn);
        const bool is_end = groups.stops || groups.first >= groups.end;
        const u32 misses = groups.is_whole ? groups.front.slots : groups.front.slots / 8;
        const bool flushes = front == WJ_FRONT_KEYED ? block_step_keyed(groups.front, is_end)
                             : front == WJ_FRONT_HASHED
                                 ? block_step(groups.front, WJ_TURN_ITEMS * blockDim.x, misses, is_end)
                                 : false;
        if (flushes) flush_walk(m, groups, walk, is_end);
        if (is_end) {
            if (front == WJ_FRONT_HASHED) block_restart(groups.front);
            if (groups.stops || !next_item(walk, parts)) return no_rows<ROWS>();
            groups.first = walk.row;
            groups.end = walk.end;
            groups.is_whole = walk.is_whole != 0;
        }
        groups.next = groups.first + threadIdx.x;
        groups.items = items_of_turn(groups.first, groups.end);
        groups.first += groups.items * blockDim.x;
        groups.item = 0;
    }
    if (groups.item == ROWS && front == WJ_FRONT_HASHED && !front_is_halved(m)) {
        block_choose_replicas(groups.front, groups.is_whole);
    }
    return rows_of_turn<ROWS>(groups, groups.items, groups.end);
}

// Keeps the block's place.
template <int ROWS>
WJ_RARE void close_walk_of(const Machine<ROWS> m, const Groups& groups) {
    if (threadIdx.x != 0) return;
    close_walk(parts_of(m), shared_as<GroupWalk>(), groups.first);
    if (groups.stops) atomicAdd(&group_control(m)[WJ_CONTROL_ROWS], 1ULL);
}
