// Kernels that interpret a pipeline: they are there before a kernel of the pipeline's own is compiled.
//
// A program does what the text of a generated kernel says, over the same tables. Loops of a program end where those of the
// generated kernel end.
#include "interpret/groups.cuh"
#include "interpret/matches.cuh"
#include "interpret/partitions.cuh"
#include "interpret/rows.cuh"
#include "interpret/values.cuh"

enum Interpreter { INTERPRET_ROWS, INTERPRET_GROUPS, INTERPRET_MATCHES, INTERPRET_PARTITION };

// What only one of the kernels has.
template <int KIND>
struct Parts {};
template <>
struct Parts<INTERPRET_GROUPS> {
    Groups groups;
};
template <>
struct Parts<INTERPRET_MATCHES> {
    Groups groups;
    Matching matching;
};
template <>
struct Parts<INTERPRET_PARTITION> {
    Tile tile;
};

// An instruction of any kernel that does not only compute. Sets `at` where another instruction follows.
template <int ROWS>
WJ_DEVICE bool control(const Machine<ROWS>& m, Rows& rows, const Instruction& i, u32& at) {
    switch (i.operation) {
        case WJ_DO_KeepUniform: keep_uniform(m, i); break;
        case WJ_DO_Enqueue: enqueue(m, rows, i, at); break;
        case WJ_DO_Dequeue: dequeue(m, rows, i, at); break;
        // Behind an empty queue.
        case WJ_DO_NextTurn: if (!rows.is_ended) at = i.next; break;
        case WJ_DO_WhileAny: {
            const Words<ROWS> conditions = get(m, i.a);
            u64 any = 0;
            WJ_EACH_ROW any |= conditions.of[row];
            if (rows.is_vain || !__any_sync(0xffffffffu, any != 0)) at = i.next;
            break;
        }
        case WJ_DO_MatchTurn:
            if (++rows.match_turns % WJ_MATCH_TURNS == 0) {
                rows.is_vain = is_aborted(uniform_pointer<u64>(m, i.a), uniform(m, i.b), rows.match_turns / WJ_MATCH_TURNS,
                                          WJ_MATCH_CANCEL_TURNS);
            }
            break;
        case WJ_DO_AnyOfLanes: {
            Words<ROWS> any = get(m, i.a);
            WJ_EACH_ROW any.of[row] = any_of_lanes(any.of[row] != 0, uniform(m, i.b));
            set(m, i.to, any);
            break;
        }
        case WJ_DO_Find4:
        case WJ_DO_Find8:
        case WJ_DO_FindWord4:
        case WJ_DO_FindWord8:
        case WJ_DO_FindPair: find_key(m, i); break;
        case WJ_DO_Raise:
            WJ_EACH_ROW {
                if (takes_part(m, row) && word(m, i.a, row) != 0) raise_status(uniform_pointer<u64>(m, i.b), i.next);
            }
            break;
        // `b` is the number, `next` the word of the control block.
        case WJ_DO_Count:
            WJ_EACH_ROW {
                if (takes_part(m, row)) atomicAdd(uniform_pointer<u64>(m, i.a) + i.next, word(m, i.b, row));
            }
            break;
        case WJ_DO_AddRows: {
            u32 sum = 0;
            WJ_EACH_ROW sum += (u32)word(m, i.b, row);
            add_rows(uniform_pointer<u64>(m, i.a), sum);
            break;
        }
        case WJ_DO_MarkRow: if (blockIdx.x == 0 && threadIdx.x == 0) uniform_pointer<u64>(m, i.a)[0] = 1; break;
        default: return false;
    }
    return true;
}

// An instruction of loops over all rows.
template <int ROWS>
WJ_DEVICE bool head_of_rows(const Machine<ROWS>& m, Rows& rows, const Instruction& i, u32& at) {
    switch (i.operation) {
        case WJ_DO_Grid: if (!next_grid_rows(m, rows, i, false)) end_rows(rows, at, i.next); break;
        case WJ_DO_GridWanted: if (!next_grid_rows(m, rows, i, true)) at = i.next; break;
        case WJ_DO_Sample: if (!next_sample(m, rows, i)) at = i.next; break;
        case WJ_DO_Batch: {
            const u64 tile_rows = (u64)blockDim.x * i.b;
            const u64 first = rows.tile * tile_rows;
            if (first >= uniform(m, i.a)) {
                at = i.next;
                break;
            }
            rows.first = first + (threadIdx.x & ~31u) * i.b + (threadIdx.x & 31);
            rows.tile += gridDim.x;
            break;
        }
        case WJ_DO_OpenItems: rows.item = 0; break;
        case WJ_DO_BatchItem: if (!next_items(m, rows, i)) at = i.next; break;
        case WJ_DO_BatchFind: find_batch(m, rows, i, i.a); break;
        case WJ_DO_BatchReserve: reserve_batch(m, rows, i, i.b); break;
        case WJ_DO_BatchFound: next_found(m, rows, i); break;
        case WJ_DO_KeepKey: WJ_EACH_ROW word_of_rows(m, i.to, rows.item - ROWS + row) = word(m, i.a, row); break;
        case WJ_DO_LoadKey: {
            Words<ROWS> keys;
            WJ_EACH_ROW keys.of[row] = word_of_rows(m, i.a, rows.item - ROWS + row);
            set(m, i.to, keys);
            break;
        }
        default: return false;
    }
    return true;
}

// An instruction of sinks other than group tables and partitions.
template <int ROWS>
WJ_DEVICE void sink(const Machine<ROWS>& m, Rows& rows, const Instruction& i) {
    switch (i.operation) {
        case WJ_DO_IsFull: {
            Words<ROWS> is_full;
            WJ_EACH_ROW is_full.of[row] = rows.is_full;
            set(m, i.to, is_full);
            break;
        }
        case WJ_DO_Reserve:
        case WJ_DO_ReserveOfBlock: reserve(m, rows, i); break;
        case WJ_DO_ReserveMatches: {
            Words<ROWS> first;
            WJ_EACH_ROW {
                first.of[row] = reserve_matches(uniform_pointer<u64>(m, i.a) + WJ_CONTROL_ROWS, word(m, i.b, row));
            }
            set(m, i.to, first);
            break;
        }
        case WJ_DO_PlaceMatch: place_in_matches(m, i); break;
        case WJ_DO_AddToSketch:
            WJ_EACH_ROW {
                add_to_sketch(uniform_pointer<u64>(m, i.a), uniform_pointer<u64>(m, i.b), word(m, i.c, row),
                              word(m, i.d, row) != 0);
            }
            break;
        case WJ_DO_FillSlot4:
        case WJ_DO_FillSlot8:
        case WJ_DO_SetBit: write_slot(m, i); break;
        case WJ_DO_MergeAdd:
        case WJ_DO_MergeAddWide:
        case WJ_DO_MergeAddDouble:
        case WJ_DO_MergeMax:
        case WJ_DO_MergeOr:
        // `b` are the words, `next` the first of them.
        case WJ_DO_MergeXor:
            WJ_EACH_ROW {
                const u64 high = i.operation == WJ_DO_MergeAddWide ? word(m, behind(m, i.a, 1), row) : 0;
                merge_gathered(i.operation, uniform_pointer<u64>(m, i.b) + i.next, word(m, i.a, row), high);
            }
            break;
        default: break;
    }
}

// Goes to the lane's next rows, or to the end.
template <int ROWS>
WJ_DEVICE void set_next(const Machine<ROWS>& m, Rows& rows, const Instruction& i, const NextRows<ROWS>& next, u32& at) {
    if (next.is_over) {
        end_rows(rows, at, i.next);
        return;
    }
    // A turn is taken whole, or not at all.
    rows.drains = next.ends_turn;
    set_rows(m, i, next.rows, next.are_there);
}

// An instruction of group tables.
template <int ROWS>
WJ_DEVICE void part(const Machine<ROWS>& m, Rows& rows, Parts<INTERPRET_GROUPS>& parts, const Instruction& i, u32& at) {
    Groups& groups = parts.groups;
    switch (i.operation) {
        case WJ_DO_OpenGroups: open_groups(m, groups, i.next); break;
        case WJ_DO_Tiles:
            if (is_within_turn<ROWS>(groups, groups.order.items)) {
                set_next(m, rows, i, rows_of_turn<ROWS>(groups, groups.order.items, uniform(m, i.a)), at);
            } else {
                set_next(m, rows, i, next_tile_rows(m, groups, uniform(m, i.a)), at);
            }
            break;
        case WJ_DO_Walk:
            if (is_within_turn<ROWS>(groups, groups.items)) {
                set_next(m, rows, i, rows_of_turn<ROWS>(groups, groups.items, groups.end), at);
            } else {
                set_next(m, rows, i, next_walk_rows(m, groups), at);
            }
            break;
        case WJ_DO_CloseTiles: close_tiles(m, groups); break;
        case WJ_DO_CloseWalk: close_walk_of(m, groups); break;
        case WJ_DO_Accumulate: accumulate_rows(m, groups); break;
        default: break;
    }
}

// An instruction of matches of partitioned relations, which may go into a group table.
WJ_DEVICE void part(const Machine<1>& m, Rows&, Parts<INTERPRET_MATCHES>& parts, const Instruction& i, u32& at) {
    Matching& matching = parts.matching;
    switch (i.operation) {
        case WJ_DO_OpenMatching: open_matching(m, matching); break;
        case WJ_DO_MatchUnit:
            if (next_unit(m, matching)) {
                set_word(m, i.to, 0, matching.unit.build_first);
            } else {
                at = i.next;
            }
            break;
        case WJ_DO_ProbeRow: if (!next_probe_row(m, matching, i)) at = i.next; break;
        case WJ_DO_NextMatch: if (!next_match(m, matching, i)) at = i.next; break;
        // A row comes out once: `a`.
        case WJ_DO_EndMatches: if (word(m, i.a, 0) != 0) matching.entry = 0; break;
        case WJ_DO_OpenGroups: open_groups(m, parts.groups, i.next); break;
        case WJ_DO_Accumulate: accumulate_rows(m, parts.groups); break;
        default: break;
    }
}

// An instruction of partitions.
template <int ROWS>
WJ_DEVICE void part(const Machine<ROWS>& m, Rows&, Parts<INTERPRET_PARTITION>& parts, const Instruction& i, u32& at) {
    Tile& tile = parts.tile;
    switch (i.operation) {
        case WJ_DO_OpenCount: open_count(tile, (u32)uniform(m, i.a)); break;
        case WJ_DO_CountTile: {
            const u64 rows = uniform(m, i.a);
            if (tile.first >= rows) {
                at = i.next;
                break;
            }
            tile.rows = rows_of_tile(rows - tile.first);
            break;
        }
        case WJ_DO_CountPlaces:
            count_places(tile);
            tile.first += gridDim.x * tile_step();
            break;
        case WJ_DO_CloseCount: close_count(tile, uniform_pointer<u32>(m, i.a)); break;
        case WJ_DO_OpenTile: {
            const u64 rows = uniform(m, i.a);
            tile.partitions = 1u << uniform(m, i.b);
            tile.shared = open_tile(tile.partitions);
            tile.first = blockIdx.x * tile_step();
            if (tile.first >= rows) {
                at = i.next;
                break;
            }
            tile.rows = rows_of_tile(rows - tile.first);
            break;
        }
        case WJ_DO_OpenTileItems: tile.item = 0; break;
        // `b`: only of rows that have a place.
        case WJ_DO_TileItem: {
            if (tile.item >= WJ_PARTITION_ITEMS) {
                at = i.next;
                break;
            }
            Words<ROWS> numbers, are_there;
            WJ_EACH_ROW {
                const u32 asked = asked_row(tile, row);
                numbers.of[row] = tile.first + (asked < tile.rows ? asked : tile.rows - 1);
                are_there.of[row] = i.b == 0 || tile.places[tile.item + row] != WJ_UNRANKED;
            }
            tile.item += ROWS;
            set_rows(m, i, numbers, are_there);
            break;
        }
        case WJ_DO_Unplace: WJ_EACH_ROW tile.places[tile.item - ROWS + row] = WJ_UNRANKED; break;
        case WJ_DO_KeepValue:
            WJ_EACH_ROW {
                if (takes_part(m, row)) tile.values[tile.item - ROWS + row] = word(m, i.a, row);
            }
            break;
        case WJ_DO_PlaceInPartition: {
            const u64 shift = uniform(m, i.c);
            const u32 bits = (u32)uniform(m, i.b);
            WJ_EACH_ROW {
                if (takes_part(m, row) && asked_row(tile, row - ROWS) < tile.rows) {
                    tile.places[tile.item - ROWS + row] = partition_of(word(m, i.a, row) << shift, bits);
                }
            }
            break;
        }
        case WJ_DO_PlaceTile: place_tile(tile, uniform_pointer<u32>(m, i.a)); break;
        case WJ_DO_MoveWord4: move_staged<u32>(shared_of(tile), tile.values, tile.places, uniform_pointer<u8>(m, i.a)); break;
        case WJ_DO_MoveWord8: move_staged<u64>(shared_of(tile), tile.values, tile.places, uniform_pointer<u8>(m, i.a)); break;
        default: break;
    }
}

template <int ROWS>
WJ_DEVICE void part(const Machine<ROWS>&, Rows&, Parts<INTERPRET_ROWS>&, const Instruction&, u32&) {}

// Executes an instruction that does more than compute; returns the address of the one that follows. A function of its own, as its
// registers are not those of instructions that compute.
template <int KIND, int ROWS>
WJ_RARE u32 do_more(const Machine<ROWS> m, Rows& rows, Parts<KIND>& parts, u32 at) {
    const Instruction i = shared_at<const Instruction>(at);
    at += (u32)sizeof(Instruction);
    if (i.operation >= WJ_DO_Divide) {
        compute_rare(m, i);
    } else if (i.operation >= WJ_DO_Tiles) {
        part(m, rows, parts, i, at);
    } else if (control(m, rows, i, at)) {
    } else if (KIND == INTERPRET_ROWS && head_of_rows(m, rows, i, at)) {
    } else if (KIND == INTERPRET_ROWS || KIND == INTERPRET_MATCHES) {
        sink(m, rows, i);
    }
    return at;
}

// As many blocks as fit a multiprocessor without registers that are spilled between instructions.
template <int KIND, int ROWS>
WJ_DEVICE void interpret(const InterpretParams& p) {
    Machine<ROWS> machine = open_machine<ROWS>(p);
    Rows rows;
    open_rows(rows);
    Parts<KIND> parts;
    for (u32 at = machine.shared + (u32)(p.shared_words + p.instructions * ROWS) * 8;;) {
        const Instruction& instruction = shared_at<const Instruction>(at);
        u32 head[4];
        load_four(at, head);
        if (head[0] >= WJ_DO_Push) {
            at += (u32)sizeof(Instruction);
            compute(machine, instruction, head, at);
        } else if (head[0] == WJ_DO_Jump) {
            pop_scopes(machine, head[2]);
            at = instruction.next;
        } else if (head[0] == WJ_DO_End) {
            break;
        } else {
            at = do_more<KIND>(machine, rows, parts, at);
        }
    }
}

WJ_ENTRY_RESIDENT(interpret_rows, InterpretParams, 256, 4) { interpret<INTERPRET_ROWS, WJ_INTERPRET_ROWS>(p); }
WJ_ENTRY_RESIDENT(interpret_groups, InterpretParams, 768, 1) { interpret<INTERPRET_GROUPS, WJ_INTERPRET_ROWS>(p); }
WJ_ENTRY_RESIDENT(interpret_matches, InterpretParams, 256, 4) { interpret<INTERPRET_MATCHES, 1>(p); }
WJ_ENTRY_RESIDENT(interpret_partition, InterpretParams, 256, 5) { interpret<INTERPRET_PARTITION, WJ_INTERPRET_ROWS>(p); }
