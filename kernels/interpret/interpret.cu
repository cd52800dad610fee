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

// An instruction of any kernel that does not only compute. Sets `at` where another instruction follows; false at the end.
WJ_DEVICE bool control(Machine& m, Rows& rows, const Instruction& i, u32& at) {
    switch (i.operation) {
        case WJ_DO_KeepUniform: keep_uniform(m, i); break;
        case WJ_DO_Enqueue: enqueue(m, rows, i, at); break;
        case WJ_DO_Dequeue: dequeue(m, rows, i, at); break;
        // Behind an empty queue.
        case WJ_DO_NextTurn: if (!rows.is_ended) at = i.next; break;
        case WJ_DO_WhileAny: if (rows.is_vain || !__any_sync(0xffffffffu, get(m, i.a) != 0)) at = i.next; break;
        case WJ_DO_MatchTurn:
            if (++rows.match_turns % WJ_MATCH_TURNS == 0) {
                rows.is_vain = is_aborted(get_pointer<u64>(m, i.a), get(m, i.b), rows.match_turns / WJ_MATCH_TURNS,
                                          WJ_MATCH_CANCEL_TURNS);
            }
            break;
        case WJ_DO_AnyOfLanes: set(m, i.to, any_of_lanes(get(m, i.a) != 0, get(m, i.b))); break;
        case WJ_DO_Find4:
        case WJ_DO_Find8:
        case WJ_DO_FindWord4:
        case WJ_DO_FindWord8:
        case WJ_DO_FindPair: find_key(m, i); break;
        case WJ_DO_Raise: if (takes_part(m) && get(m, i.a) != 0) raise_status(get_pointer<u64>(m, i.b), i.next); break;
        // `b` is the number, `next` the word of the control block.
        case WJ_DO_Count: if (takes_part(m)) atomicAdd(get_pointer<u64>(m, i.a) + i.next, get(m, i.b)); break;
        case WJ_DO_AddRows: add_rows(get_pointer<u64>(m, i.a), (u32)get(m, i.b)); break;
        case WJ_DO_MarkRow: if (blockIdx.x == 0 && threadIdx.x == 0) get_pointer<u64>(m, i.a)[0] = 1; break;
        default: return false;
    }
    return true;
}

// An instruction of loops over all rows.
WJ_DEVICE bool head_of_rows(Machine& m, Rows& rows, const Instruction& i, u32& at) {
    switch (i.operation) {
        case WJ_DO_Grid: if (!next_grid_row(m, rows, i, false)) end_rows(rows, at, i.next); break;
        case WJ_DO_GridWanted: if (!next_grid_row(m, rows, i, true)) at = i.next; break;
        case WJ_DO_Sample: if (!next_sample(m, rows, i)) at = i.next; break;
        case WJ_DO_Batch: {
            const u64 tile_rows = (u64)blockDim.x * i.b;
            const u64 first = rows.tile * tile_rows;
            if (first >= get(m, i.a)) {
                at = i.next;
                break;
            }
            rows.first = first + (threadIdx.x & ~31u) * i.b + (threadIdx.x & 31);
            rows.tile += gridDim.x;
            break;
        }
        case WJ_DO_OpenItems: rows.item = 0; break;
        case WJ_DO_BatchItem:
            if (rows.item >= i.b) {
                at = i.next;
                break;
            }
            set(m, i.to, rows.first + rows.item++ * 32);
            break;
        case WJ_DO_BatchFind: find_batch(m, rows, i, i.a); break;
        case WJ_DO_BatchReserve: reserve_batch(m, rows, i, i.b); break;
        // `to` is the row's place, `d` whether it goes on, `c` what it found; `a` and `b` have those of the first row.
        case WJ_DO_BatchFound: {
            const u32 item = rows.item - 1;
            const u64 place = get_behind(m, i.a, item);
            set(m, i.to, place);
            set(m, i.c, get_behind(m, i.b, item));
            set(m, i.d, (rows.hits >> item & 1) != 0 && place < get(m, i.next));
            break;
        }
        case WJ_DO_KeepKey: set(m, behind(i.to, rows.item - 1), get(m, i.a)); break;
        case WJ_DO_LoadKey: set(m, i.to, get_behind(m, i.a, rows.item - 1)); break;
        default: return false;
    }
    return true;
}

// An instruction of sinks other than group tables and partitions.
WJ_DEVICE bool sink(Machine& m, Rows& rows, const Instruction& i) {
    switch (i.operation) {
        case WJ_DO_IsFull: set(m, i.to, rows.is_full); break;
        case WJ_DO_Reserve:
        case WJ_DO_ReserveOfBlock: reserve(m, rows, i); break;
        case WJ_DO_ReserveMatches:
            set(m, i.to, reserve_matches(get_pointer<u64>(m, i.a) + WJ_CONTROL_ROWS, get(m, i.b)));
            break;
        case WJ_DO_PlaceMatch: place_in_matches(m, i); break;
        case WJ_DO_AddToSketch:
            add_to_sketch(get_pointer<u64>(m, i.a), get_pointer<u64>(m, i.b), get(m, i.c), get(m, i.d) != 0);
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
            merge_gathered(i.operation, get_pointer<u64>(m, i.b) + i.next, get(m, i.a),
                           i.operation == WJ_DO_MergeAddWide ? get_behind(m, i.a, 1) : 0);
            break;
        default: return false;
    }
    return true;
}

// An instruction of group tables.
WJ_DEVICE void part(Machine& m, Rows& rows, Parts<INTERPRET_GROUPS>& parts, const Instruction& i, u32& at) {
    Groups& groups = parts.groups;
    switch (i.operation) {
        case WJ_DO_OpenGroups: open_groups(m, groups, i.next); break;
        case WJ_DO_Tiles:
        case WJ_DO_Walk: {
            const NextRow next = i.operation == WJ_DO_Tiles ? next_tile_row(m, groups, get(m, i.a)) : next_walk_row(m, groups);
            if (next.is_over) {
                end_rows(rows, at, i.next);
                break;
            }
            // A turn is taken whole, or not at all.
            rows.drains = next.ends_turn;
            set(m, i.to, next.row);
            set(m, i.d, next.is_there);
            break;
        }
        case WJ_DO_CloseTiles: close_tiles(m, groups); break;
        case WJ_DO_CloseWalk: close_walk_of(m, groups); break;
        case WJ_DO_Accumulate: if (takes_part(m)) accumulate_row(m, groups); break;
        default: break;
    }
}

// An instruction of matches of partitioned relations, which may go into a group table.
WJ_DEVICE void part(Machine& m, Rows&, Parts<INTERPRET_MATCHES>& parts, const Instruction& i, u32& at) {
    Matching& matching = parts.matching;
    switch (i.operation) {
        case WJ_DO_OpenMatching: open_matching(m, matching); break;
        case WJ_DO_MatchUnit:
            if (next_unit(m, matching)) {
                set(m, i.to, matching.unit.build_first);
            } else {
                at = i.next;
            }
            break;
        case WJ_DO_ProbeRow: if (!next_probe_row(m, matching, i)) at = i.next; break;
        case WJ_DO_NextMatch: if (!next_match(m, matching, i)) at = i.next; break;
        // A row comes out once: `a`.
        case WJ_DO_EndMatches: if (get(m, i.a) != 0) matching.entry = 0; break;
        case WJ_DO_OpenGroups: open_groups(m, parts.groups, i.next); break;
        case WJ_DO_Accumulate: if (takes_part(m)) accumulate_row(m, parts.groups); break;
        default: break;
    }
}

// An instruction of partitions.
WJ_DEVICE void part(Machine& m, Rows&, Parts<INTERPRET_PARTITION>& parts, const Instruction& i, u32& at) {
    Tile& tile = parts.tile;
    switch (i.operation) {
        case WJ_DO_OpenCount: open_count(tile, (u32)get(m, i.a)); break;
        case WJ_DO_CountTile: {
            const u64 rows = get(m, i.a);
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
        case WJ_DO_CloseCount: close_count(tile, get_pointer<u32>(m, i.a)); break;
        case WJ_DO_OpenTile: {
            const u64 rows = get(m, i.a);
            tile.partitions = 1u << get(m, i.b);
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
            tile.asked = tile.item * blockDim.x + threadIdx.x;
            set(m, i.to, tile.first + (tile.asked < tile.rows ? tile.asked : tile.rows - 1));
            set(m, i.d, i.b == 0 || tile.places[tile.item] != WJ_UNRANKED);
            ++tile.item;
            break;
        }
        case WJ_DO_Unplace: tile.places[tile.item - 1] = WJ_UNRANKED; break;
        case WJ_DO_KeepValue: if (takes_part(m)) tile.values[tile.item - 1] = get(m, i.a); break;
        case WJ_DO_PlaceInPartition:
            if (takes_part(m) && tile.asked < tile.rows) {
                tile.places[tile.item - 1] = partition_of(get(m, i.a) << get(m, i.c), (u32)get(m, i.b));
            }
            break;
        case WJ_DO_PlaceTile: place_tile(tile, get_pointer<u32>(m, i.a)); break;
        case WJ_DO_MoveWord4: move_staged<u32>(shared_of(tile), tile.values, tile.places, get_pointer<u8>(m, i.a)); break;
        case WJ_DO_MoveWord8: move_staged<u64>(shared_of(tile), tile.values, tile.places, get_pointer<u8>(m, i.a)); break;
        default: break;
    }
}

WJ_DEVICE void part(Machine&, Rows&, Parts<INTERPRET_ROWS>&, const Instruction&, u32&) {}

// As many blocks as fit a multiprocessor without registers that are spilled between instructions.
template <int KIND>
WJ_DEVICE void interpret(const InterpretParams& p) {
    Machine machine = open_machine(p);
    Rows rows;
    open_rows(rows);
    Parts<KIND> parts;
    for (u32 at = 0;;) {
        const Instruction instruction = instruction_at(machine, at++);
        if (instruction.operation == WJ_DO_End) break;
        if (compute(machine, instruction, at)) continue;
        if (control(machine, rows, instruction, at)) continue;
        if (KIND == INTERPRET_ROWS && head_of_rows(machine, rows, instruction, at)) continue;
        if ((KIND == INTERPRET_ROWS || KIND == INTERPRET_MATCHES) && sink(machine, rows, instruction)) continue;
        part(machine, rows, parts, instruction, at);
    }
}

WJ_ENTRY_RESIDENT(interpret_rows, InterpretParams, 256, 6) { interpret<INTERPRET_ROWS>(p); }
WJ_ENTRY_RESIDENT(interpret_groups, InterpretParams, 768, 1) { interpret<INTERPRET_GROUPS>(p); }
WJ_ENTRY_RESIDENT(interpret_matches, InterpretParams, 256, 4) { interpret<INTERPRET_MATCHES>(p); }
WJ_ENTRY_RESIDENT(interpret_partition, InterpretParams, 256, 5) { interpret<INTERPRET_PARTITION>(p); }
