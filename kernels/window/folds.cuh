// Folds over frames: scans, trees, and how the result of a frame is read from them.
//
// A frame is a run of rows of the partition: [first, end). An exact sum is the difference of two rows of one scan. Other operations
// read a scan that starts where the frame does, or a backward scan from where it ends. Frames of a fixed length read both, over
// stretches of that length: a frame is the end of one stretch and the beginning of the next one (van Herk 1992, Gil and Werman
// 1993). All other frames read a tree.
//
// Op is an operation of scan.cuh; operand(Op(), values, row) converts a value for it.
#pragma once
#include "common/scan.cuh"
#include "window/window.cuh"

template <class Op, class ValueAt>
WJ_DEVICE void scan_argument(const WindowScanParams& p, ValueAt value_at) {
    typedef typename Op::T T;
    const ScanTiles<T> tiles = {p.tiles.next_tile, p.tiles.states, reinterpret_cast<T*>(p.tiles.of_tile),
                                reinterpret_cast<T*>(p.tiles.up_to_tile), p.control};
    const bool is_backward = p.is_backward != 0;
    const auto place = [&](u64 row) { return is_backward ? p.rows - 1 - row : row; };
    scan_tile<Op>(
        tiles, p.rows,
        [&](u64 row, u32) {
            const u64 at = place(row);
            return is_there(p.v, at) ? value_at(at) : T(0);
        },
        [&](u64 row) {
            if (row == 0) return true;
            const u64 at = place(row);
            // The row that the first one of a stretch is counted from.
            const u32 edge = (u32)(is_backward ? at + 1 : at);
            return p.segments[at] != p.segments[is_backward ? at + 1 : at - 1] ||
                   (p.period != 0 && edge % (u32)p.period == 0);
        },
        [&](u64 row, u32, T value) { reinterpret_cast<T*>(p.out)[place(row)] = value; });
}

// Scans the argument with an operation.
template <class Op>
WJ_DEVICE void scan_of(const WindowScanParams& p) {
    scan_argument<Op>(p, [&](u64 row) { return operand(Op(), p.v, row); });
}

// A sum over rows of a partition, from a scan of it.
template <class T>
WJ_DEVICE T difference(const T* sums, const RowRun& partition, const RowRun& run) {
    if (run.first == run.end) return 0;
    return run.first == partition.first ? sums[run.end - 1] : sums[run.end - 1] - sums[run.first - 1];
}

// Folds a frame with a tree whose nodes are runs of WJ_WINDOW_FANOUT. Each level folds the frame's part of its first and last run;
// the runs between them are left to the next level, until the rest is in one run.
template <class Op>
WJ_DEVICE typename Op::T of_tree(const WindowOfParams& p, const RowRun& frame) {
    typedef typename Op::T T;
    const T* forward = reinterpret_cast<const T*>(p.forward);
    const T* backward = reinterpret_cast<const T*>(p.backward);
    const T* totals = reinterpret_cast<const T*>(p.totals);
    u64 first = (u64)frame.first, last = (u64)frame.end - 1;
    T before = 0, behind = 0;
    u64 level_first = 0, level_rows = p.w.rows;  // where the level is among all of them
    for (u32 level = 0; level < WJ_WINDOW_LEVELS_MAX; ++level) {
        if (first / WJ_WINDOW_FANOUT == last / WJ_WINDOW_FANOUT) {
            for (u64 at = first; at <= last; ++at) {
                const T value = level != 0          ? totals[level_first - p.w.rows + at]
                                : is_there(p.v, at) ? operand(Op(), p.v, at)
                                                    : T(0);
                before = Op::of(before, value);
            }
            break;
        }
        before = Op::of(before, backward[level_first + first]);
        behind = Op::of(forward[level_first + last], behind);
        first = first / WJ_WINDOW_FANOUT + 1;
        last = last / WJ_WINDOW_FANOUT;
        if (first == last) break;
        last -= 1;
        level_first += level_rows;
        level_rows = (level_rows + WJ_WINDOW_FANOUT - 1) / WJ_WINDOW_FANOUT;
    }
    return Op::of(before, behind);
}

// Folds a frame that is not empty.
template <class Op>
WJ_DEVICE typename Op::T of_frame(const WindowOfParams& p, const RowRun& partition, const RowRun& frame) {
    typedef typename Op::T T;
    const T* forward = reinterpret_cast<const T*>(p.forward);
    const T* backward = reinterpret_cast<const T*>(p.backward);
    if (p.form == WJ_WINDOW_TREE) return of_tree<Op>(p, frame);
    if (p.form == WJ_WINDOW_FORWARD) return forward[frame.end - 1];
    if (p.form == WJ_WINDOW_BACKWARD) return backward[frame.first];
    const u32 period = (u32)p.period;
    const u32 first = (u32)frame.first, last = (u32)frame.end - 1;
    if (first / period != last / period) return Op::of(backward[first], forward[last]);
    // A frame within one stretch starts or ends with the stretch or the partition.
    return first % period == 0 || frame.first == partition.first ? forward[last] : backward[first];
}

template <class Fold>
WJ_DEVICE void fold_frames(const WindowOfParams& p, Fold fold) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.w.rows; row += stride) {
        const RowRun partition = partition_of(p.w, row);
        const RowRun frame = frame_of(p.w, partition, row);
        const bool has_rows = frame.first < frame.end;
        const bool is_valid = has_rows && (p.counts == nullptr || difference(p.counts, partition, frame) != 0);
        p.validity[row] = is_valid;
        // The value stored for a null is never used, but it is always the same.
        fold(row, partition, frame, is_valid);
    }
}

template <class T>
WJ_DEVICE void store_as(u8* out, u64 row, T value) {
    reinterpret_cast<T*>(out)[row] = value;
}

WJ_DEVICE void store_integer(u8* out, u64 width, u64 row, u64 value) {
    switch (width) {
        case 0: break;
        case 1: store_as(out, row, (u8)value); break;
        case 2: store_as(out, row, (u16)value); break;
        case 4: store_as(out, row, (u32)value); break;
        default: store_as(out, row, value); break;
    }
}

template <class Op>
WJ_DEVICE void tree_level(const WindowTreeParams& p) {
    typedef typename Op::T T;
    const u32 lane = threadIdx.x & 31;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 begin = (u64)blockIdx.x * blockDim.x + (threadIdx.x & ~31u);
    for (u64 base = begin; base < p.rows; base += stride) {
        const u64 row = base + lane;
        const bool is_row = row < p.rows;
        T value = 0;
        if (is_row && p.values != nullptr) value = reinterpret_cast<const T*>(p.values)[row];
        if (is_row && p.values == nullptr && is_there(p.v, row)) value = operand(Op(), p.v, row);
        T up_to = value, from = value;
WJ_UNROLL
        for (u32 distance = 1; distance < 32; distance *= 2) {
            const T before = lane_up(up_to, distance);
            const T behind = lane_down(from, distance);
            if (lane >= distance) up_to = Op::of(before, up_to);
            if (lane + distance < 32) from = Op::of(from, behind);
        }
        if (is_row) {
            reinterpret_cast<T*>(p.forward)[row] = up_to;
            reinterpret_cast<T*>(p.backward)[row] = from;
        }
        if (lane == 0) reinterpret_cast<T*>(p.totals)[base / WJ_WINDOW_FANOUT] = from;
    }
}
