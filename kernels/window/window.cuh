// Rows of a window in the order of partitions and keys, values of theirs, and frames.
//
// A frame is a run of rows of the partition: [first, end).
#pragma once
#include "group/accumulate.cuh"
#include "window/constants.cuh"
#include "window/params.cuh"  // src/window.rs

WJ_DEVICE bool is_there(const WindowValues& v, u64 row) { return v.validity == nullptr || v.validity[row] != 0; }

WJ_DEVICE u64 stored_value(const u8* values, u64 width, u64 row) {
    switch (width) {
        case 0: return 0;
        case 1: return values[row];
        case 2: return reinterpret_cast<const u16*>(values)[row];
        case 4: return reinterpret_cast<const u32*>(values)[row];
        default: return reinterpret_cast<const u64*>(values)[row];
    }
}

WJ_DEVICE f64 stored_double(const WindowValues& v, u64 row) {
    return v.kind == WJ_WINDOW_F32 ? (f64)reinterpret_cast<const f32*>(v.values)[row]
                                   : reinterpret_cast<const f64*>(v.values)[row];
}

// What a value adds to a sum.
WJ_DEVICE void addend(const WindowValues& v, u64 row, u64& value) {
    value = v.width == 16 ? (u64)reinterpret_cast<const u128*>(v.values)[row]
                          : v.base + stored_value(v.values, v.width, row);
}
WJ_DEVICE void addend(const WindowValues& v, u64 row, u128& value) {
    value = v.width == 16 ? reinterpret_cast<const u128*>(v.values)[row]
                          : (u128)((i128)(i64)v.base + stored_value(v.values, v.width, row));
}
WJ_DEVICE void addend(const WindowValues& v, u64 row, f64& value) { value = stored_double(v, row); }

// A code whose unsigned order is that of the values. Stored integers of up to 8 bytes are such codes.
WJ_DEVICE void order_code(const WindowValues& v, u64 row, u64& code) {
    code = v.kind == WJ_WINDOW_INT ? stored_value(v.values, v.width, row) : order_code_f64(stored_double(v, row));
    code ^= v.flip;
}
WJ_DEVICE void order_code(const WindowValues& v, u64 row, u128& code) {
    code = reinterpret_cast<const u128*>(v.values)[row] ^ (u128)1 << 127;
    if (v.flip != 0) code = ~code;
}

// Rows from `first` on, up to `end`; first <= end.
struct RowRun {
    i64 first;
    i64 end;
};

WJ_DEVICE RowRun partition_of(const WindowRows& w, u64 row) {
    const u32 partition = w.partitions[row];
    return {(i64)w.partition_rows[partition], (i64)w.partition_rows[partition + 1]};
}

WJ_DEVICE i64 within(const RowRun& run, i64 row) { return row < run.first ? run.first : row > run.end ? run.end : row; }

// Where a bound is; `is_end`: the row behind it.
WJ_DEVICE i64 bound_of(const WindowRows& w, const RowRun& partition, u64 row, u64 kind, u64 offset, bool is_end) {
    if (kind == WJ_WINDOW_PARTITION) return is_end ? partition.end : partition.first;
    if (kind == WJ_WINDOW_RANGE) return (is_end ? w.ends : w.starts)[row];
    if (kind == WJ_WINDOW_ROWS) return within(partition, (i64)row + (i64)offset + (is_end ? 1 : 0));
    const i64 group = (i64)w.groups[row] + (i64)offset;
    if (group < 0) return partition.first;
    if (group >= (i64)*w.total) return partition.end;
    return within(partition, (i64)w.group_rows[group + (is_end ? 1 : 0)]);
}

WJ_DEVICE RowRun frame_of(const WindowRows& w, const RowRun& partition, u64 row) {
    const i64 first = bound_of(w, partition, row, w.start_kind, w.start_offset, false);
    const i64 end = bound_of(w, partition, row, w.end_kind, w.end_offset, true);
    return {first, end < first ? first : end};
}
