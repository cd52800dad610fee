// Window functions over the rows of a device, which lie in the order of partitions and keys.
//
// window_bounds: where partitions and peers begin, from the key words. window_count, window_add_*, window_max_*: scans of an
// argument, by partition, by peers, or by stretches of a frame's length. All are one sweep, a tile a block, as common/scan.cuh.
// window_place: places, shares and counts. window_of_*: sums, minima and maxima of each row's frame, from scans.
// window_value: values of other rows. These stride over the rows.
//
// A frame is a run of rows of the partition: [first, end). Where sums are exact that of a frame is a difference of two rows
// of one scan. Others take a scan that begins where the frame does, one from behind that begins where it ends, or, of frames
// of a fixed length, both over stretches of that length, of which a frame touches two: its rows are the end of the one and
// the beginning of the other. (van Herk 1992, Gil and Werman 1993.) Frames of any other length take a tree.
//
// Status: WJ_STATUS_FULL where a block waited in vain, which no block does whose predecessors run.
#include "common/scan.cuh"
#include "window/window.cuh"

struct WindowBoundsParams {
    u64 rows;
    u64 words;
    const u8* keys[WJ_WINDOW_WORDS];
    u64 widths[WJ_WINDOW_WORDS];  // 4 or 8 bytes
    u64 masks[WJ_WINDOW_WORDS];   // bits that are of the partition
    u32* partitions;              // rows: number of the row's partition
    u32* groups;                  // rows: number of its peers
    u32* partition_rows;          // rows + 1: first row of each, then all rows
    u32* group_rows;              // rows + 1
    u64* total;                   // how many groups of peers
    u64* next_tile;
    u32* states;
    u64* of_tile;
    u64* up_to_tile;
    u64* control;
};

WJ_DEVICE u64 key_word(const u8* keys, u64 width, u64 row) {
    return width == 8 ? reinterpret_cast<const u64*>(keys)[row] : reinterpret_cast<const u32*>(keys)[row];
}

WJ_ENTRY(window_bounds, WindowBoundsParams, WJ_BLOCK_THREADS) {
    const ScanTiles<u64> tiles = {p.next_tile, p.states, p.of_tile, p.up_to_tile, p.control};
    u32 partition_bits = 0, group_bits = 0;
    scan_tile<AddOf<u64>>(
        tiles, p.rows,
        [&](u64 row, u32 item) {
            bool is_partition = row == 0;
            bool is_group = row == 0;
            for (u32 word = 0; word < p.words && row != 0; ++word) {
                const u64 change = key_word(p.keys[word], p.widths[word], row) ^ key_word(p.keys[word], p.widths[word], row - 1);
                is_partition = is_partition || (change & p.masks[word]) != 0;
                is_group = is_group || change != 0;
            }
            partition_bits |= (u32)is_partition << item;
            group_bits |= (u32)is_group << item;
            return (u64)is_partition << 32 | (u64)is_group;
        },
        [](u64) { return false; },
        [&](u64 row, u32 item, u64 numbers) {
            const u32 partition = (u32)(numbers >> 32) - 1;
            const u32 group = (u32)numbers - 1;
            p.partitions[row] = partition;
            p.groups[row] = group;
            if ((partition_bits >> item & 1) != 0) p.partition_rows[partition] = (u32)row;
            if ((group_bits >> item & 1) != 0) p.group_rows[group] = (u32)row;
            if (row + 1 == p.rows) {
                p.partition_rows[partition + 1] = (u32)p.rows;
                p.group_rows[group + 1] = (u32)p.rows;
                *p.total = group + 1;
            }
        });
}

struct WindowScanParams {
    WindowValues v;
    const u32* segments; // rows: numbers of partitions or peers
    u64 period;          // segments end after multiples of it, too; 0: they don't
    u64 is_backward;
    u64 rows;
    u8* out;             // rows
    u64* next_tile;
    u32* states;
    u8* of_tile;
    u8* up_to_tile;
    u64* control;
};

template <class Op, class ValueAt>
WJ_DEVICE void scan_argument(const WindowScanParams& p, ValueAt value_at) {
    typedef typename Op::T T;
    const ScanTiles<T> tiles = {p.next_tile, p.states, reinterpret_cast<T*>(p.of_tile), reinterpret_cast<T*>(p.up_to_tile),
                                p.control};
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

template <class T>
WJ_DEVICE void scan_sums(const WindowScanParams& p) {
    scan_argument<AddOf<T>>(p, [&](u64 row) {
        T value;
        addend(p.v, row, value);
        return value;
    });
}

template <class T>
WJ_DEVICE void scan_maxima(const WindowScanParams& p) {
    scan_argument<MaxOf<T>>(p, [&](u64 row) {
        T code;
        order_code(p.v, row, code);
        return code;
    });
}

WJ_ENTRY(window_count, WindowScanParams, WJ_BLOCK_THREADS) {
    scan_argument<AddOf<u32>>(p, [](u64) { return 1u; });
}
WJ_ENTRY(window_add_64, WindowScanParams, WJ_BLOCK_THREADS) { scan_sums<u64>(p); }
WJ_ENTRY(window_add_128, WindowScanParams, WJ_BLOCK_THREADS) { scan_sums<u128>(p); }
WJ_ENTRY(window_add_f64, WindowScanParams, WJ_BLOCK_THREADS) { scan_sums<f64>(p); }
WJ_ENTRY(window_max_64, WindowScanParams, WJ_BLOCK_THREADS) { scan_maxima<u64>(p); }
WJ_ENTRY(window_max_128, WindowScanParams, WJ_BLOCK_THREADS) { scan_maxima<u128>(p); }

// A sum over rows of a partition, from a scan of it.
template <class T>
WJ_DEVICE T difference(const T* sums, const RowRun& partition, const RowRun& run) {
    if (run.first == run.end) return 0;
    return run.first == partition.first ? sums[run.end - 1] : sums[run.end - 1] - sums[run.first - 1];
}

struct WindowPlaceParams {
    WindowRows w;
    u64 kind;           // WJ_WINDOW_ROW_NUMBER, ...
    u64 number;         // of parts; or an i64, the distance of the row that is looked for
    const u32* counts;  // of values that are there, by partition; null: rows are counted
    u8* out;            // u32, or f64 of shares
};

// The part of `parts` that a row is in, of `rows`, the larger ones first.
WJ_DEVICE u64 part_of(u64 row, u64 rows, u64 parts) {
    const u64 size = rows / parts;
    const u64 larger = rows % parts;
    const u64 in_larger = larger * (size + 1);
    return row < in_larger ? row / (size + 1) + 1 : larger + (row - in_larger) / size + 1;
}

WJ_ENTRY(window_place, WindowPlaceParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.w.rows; row += stride) {
        const RowRun partition = partition_of(p.w, row);
        const u64 place = row - partition.first;
        const u64 rows = partition.end - partition.first;
        const u32 group = p.w.groups[row];
        u64 number = 0;
        switch (p.kind) {
            case WJ_WINDOW_ROW_NUMBER: number = place + 1; break;
            case WJ_WINDOW_RANK: number = p.w.group_rows[group] - partition.first + 1; break;
            case WJ_WINDOW_DENSE_RANK: number = group - p.w.groups[partition.first] + 1; break;
            case WJ_WINDOW_NTILE: number = part_of(place, rows, p.number); break;
            case WJ_WINDOW_FOUND: {
                const i64 at = (i64)row + (i64)p.number;
                number = at >= partition.first && at < partition.end;
                break;
            }
            case WJ_WINDOW_PERCENT_RANK: {
                const f64 before = (f64)(p.w.group_rows[group] - partition.first);
                reinterpret_cast<f64*>(p.out)[row] = rows > 1 ? before / (f64)(rows - 1) : 0.0;
                continue;
            }
            case WJ_WINDOW_CUME_DIST: {
                const f64 up_to = (f64)(p.w.group_rows[group + 1] - partition.first);
                reinterpret_cast<f64*>(p.out)[row] = up_to / (f64)rows;
                continue;
            }
            default: {
                const RowRun frame = frame_of(p.w, partition, row);
                number = p.counts == nullptr ? (u64)(frame.end - frame.first) : difference(p.counts, partition, frame);
                break;
            }
        }
        reinterpret_cast<u32*>(p.out)[row] = (u32)number;
    }
}

struct WindowOfParams {
    WindowRows w;
    u64 form;            // WJ_WINDOW_DIFFERENCE, _FORWARD, _BACKWARD, _STRETCHES or _TREE
    u64 period;          // rows of a stretch
    const u8* forward;   // scans; of _TREE: level behind level
    const u8* backward;
    const u32* counts;   // of values that are there, by partition; null: all are
    u64 kind;            // of the argument, for minima and maxima
    u64 width;           // of the result
    u64 base;            // of sums
    u64 flip;
    u8* out;             // null: all are the same
    u8* validity;
    WindowValues v;      // the argument, of _TREE
    const u8* totals;    // of _TREE: levels from 1 on
};

// What a value is for an operation: an addend, or a code.
WJ_DEVICE f64 operand(const AddOf<f64>&, const WindowValues& v, u64 row) { return stored_double(v, row); }
template <class T>
WJ_DEVICE T operand(const MaxOf<T>&, const WindowValues& v, u64 row) {
    T code;
    order_code(v, row, code);
    return code;
}

// The same of a frame by a tree, whose nodes are runs of WJ_WINDOW_FANOUT (window_frames.cu): on each level what is left of
// the frame ends with its first run, and begins with its last one, until it lies in one run.
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

// What the scans say of a frame that is not empty.
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
    // Within one stretch it begins, or ends, with this or with the partition.
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
        // What is stored for a null counts for nothing, but it is always the same.
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

WJ_ENTRY(window_of_sums_64, WindowOfParams, WJ_BLOCK_THREADS) {
    const u64* sums = reinterpret_cast<const u64*>(p.forward);
    fold_frames(p, [&](u64 row, const RowRun& partition, const RowRun& frame, bool is_valid) {
        store_as(p.out, row, is_valid ? difference(sums, partition, frame) - p.base : 0);
    });
}

WJ_ENTRY(window_of_sums_128, WindowOfParams, WJ_BLOCK_THREADS) {
    const u128* sums = reinterpret_cast<const u128*>(p.forward);
    fold_frames(p, [&](u64 row, const RowRun& partition, const RowRun& frame, bool is_valid) {
        store_as(p.out, row, is_valid ? difference(sums, partition, frame) : (u128)0);
    });
}

WJ_ENTRY(window_of_sums_f64, WindowOfParams, WJ_BLOCK_THREADS) {
    fold_frames(p, [&](u64 row, const RowRun& partition, const RowRun& frame, bool is_valid) {
        store_as(p.out, row, is_valid ? of_frame<AddOf<f64>>(p, partition, frame) : 0.0);
    });
}

WJ_ENTRY(window_of_maxima_64, WindowOfParams, WJ_BLOCK_THREADS) {
    fold_frames(p, [&](u64 row, const RowRun& partition, const RowRun& frame, bool is_valid) {
        const u64 code = is_valid ? of_frame<MaxOf<u64>>(p, partition, frame) ^ p.flip : 0;
        if (p.kind == WJ_WINDOW_F32) {
            store_as(p.out, row, is_valid ? (f32)order_value_f64(code) : 0.0f);
        } else if (p.kind == WJ_WINDOW_F64) {
            store_as(p.out, row, is_valid ? order_value_f64(code) : 0.0);
        } else {
            store_integer(p.out, p.width, row, code);
        }
    });
}

WJ_ENTRY(window_of_maxima_128, WindowOfParams, WJ_BLOCK_THREADS) {
    fold_frames(p, [&](u64 row, const RowRun& partition, const RowRun& frame, bool is_valid) {
        u128 code = is_valid ? of_frame<MaxOf<u128>>(p, partition, frame) : (u128)0;
        if (is_valid && p.flip != 0) code = ~code;
        store_as(p.out, row, is_valid ? code ^ (u128)1 << 127 : code);
    });
}

struct WindowValueParams {
    WindowRows w;
    u64 kind;            // WJ_WINDOW_SHIFT: of the row so many behind; _NTH: of the frame's, from 1 or, negative, its end
    u64 number;          // an i64
    u64 width;           // of the values, in bytes
    const u8* values;    // null: all are the same
    const u8* validity;  // null: all are there
    const u32* counts;   // of values that are there, by partition: others are skipped; null: they are not
    u8* out;
    u8* out_validity;
};

// The n-th row of a run whose value is there, n from 1 or, negative, from the end; -1: there is none. From where it may be it
// gallops to where it is.
WJ_DEVICE i64 nth_there(const u32* counts, const RowRun& partition, const RowRun& run, i64 number) {
    const i64 rows = run.end - run.first;
    if (number == 0 || rows <= 0 || number > rows || number < -rows) return -1;
    const i64 before = run.first == partition.first ? 0 : counts[run.first - 1];
    const i64 up_to = counts[run.end - 1];
    const i64 wanted = number > 0 ? before + number : up_to + number + 1;
    if (wanted <= before || wanted > up_to) return -1;
    // Counts are less than wanted before `first`, and no less from `last` on.
    i64 first = run.first, last = run.end - 1;
    if (number > 0) {
        first += number - 1;
        for (i64 step = 1; step < (i64)1 << 32 && first + step < last; step *= 2) {
            if (counts[first + step] >= wanted) {
                last = first + step;
                break;
            }
            first += step + 1;
        }
    } else {
        last += number + 1;
        for (i64 step = 1; step < (i64)1 << 32 && last - step > first; step *= 2) {
            if (counts[last - step] < wanted) {
                first = last - step + 1;
                break;
            }
            last -= step;
        }
    }
    for (u32 turn = 0; turn < 32 && first < last; ++turn) {
        const i64 middle = first + (last - first) / 2;
        if (counts[middle] < wanted) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return first;
}

WJ_ENTRY(window_value, WindowValueParams, WJ_BLOCK_THREADS) {
    const i64 number = (i64)p.number;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.w.rows; row += stride) {
        const RowRun partition = partition_of(p.w, row);
        const bool is_shift = p.kind == WJ_WINDOW_SHIFT;
        RowRun frame = is_shift ? partition : frame_of(p.w, partition, row);
        i64 from = is_shift ? (i64)row + number : number < 0 ? frame.end + number : frame.first + number - 1;
        if (p.counts != nullptr) {
            if (is_shift && number > 0) frame.first = (i64)row + 1;
            if (is_shift && number < 0) frame.end = (i64)row;
            from = nth_there(p.counts, partition, frame, number);
        }
        const bool is_found = from >= frame.first && from < frame.end && (is_shift || number != 0);
        const bool is_valid = is_found && (p.validity == nullptr || p.validity[from] != 0);
        p.out_validity[row] = is_valid;
        if (p.width == 16) {
            store_as(p.out, row, is_valid ? reinterpret_cast<const u128*>(p.values)[from] : (u128)0);
        } else {
            store_integer(p.out, p.width, row, is_valid ? stored_value(p.values, p.width, from) : 0);
        }
    }
}
