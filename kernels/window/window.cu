// Window functions over the rows of a device, which lie in the order of partitions and keys.
//
// window_bounds: where partitions and peers begin, from the key words. window_count, window_add_*, window_squares, window_max_*:
// scans of an argument, by partition, by peers, or by stretches of a frame's length. All are one sweep, a tile a block, as
// common/scan.cuh.
// window_place: places, shares and counts. window_of_*: the result of each row's frame, from scans or trees.
// window_value: values of other rows. These stride over the rows.
// window_tree_*: one level of the tree from which frames of any length are folded; a warp for each run of WJ_WINDOW_FANOUT values.
// In: values of the argument, or the totals of the level below. Out: for each value the fold of its run up to it and from it on,
// and the totals of the runs, which are the next level. A level of one run is not needed. It strides over runs.
//
// Status: WJ_STATUS_FULL where a block waited in vain, which no block does whose predecessors run.
#include "window/folds.cuh"

WJ_DEVICE u64 key_word(const u8* keys, u64 width, u64 row) {
    return width == 8 ? reinterpret_cast<const u64*>(keys)[row] : reinterpret_cast<const u32*>(keys)[row];
}

WJ_ENTRY(window_bounds, WindowBoundsParams, WJ_BLOCK_THREADS) {
    const ScanTiles<u64> tiles = {p.tiles.next_tile, p.tiles.states, reinterpret_cast<u64*>(p.tiles.of_tile),
                                  reinterpret_cast<u64*>(p.tiles.up_to_tile), p.control};
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

WJ_ENTRY(window_count, WindowScanParams, WJ_BLOCK_THREADS) {
    scan_argument<AddOf<u32>>(p, [](u64) { return 1u; });
}

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

// Sums.
template <class T>
WJ_DEVICE T operand(const AddOf<T>&, const WindowValues& v, u64 row) {
    T value;
    addend(v, row, value);
    return value;
}

WJ_ENTRY(window_add_64, WindowScanParams, WJ_BLOCK_THREADS) { scan_of<AddOf<u64>>(p); }
WJ_ENTRY(window_add_128, WindowScanParams, WJ_BLOCK_THREADS) { scan_of<AddOf<u128>>(p); }
WJ_ENTRY(window_add_f64, WindowScanParams, WJ_BLOCK_THREADS) { scan_of<AddOf<f64>>(p); }
WJ_ENTRY(window_tree_add_f64, WindowTreeParams, WJ_BLOCK_THREADS) { tree_level<AddOf<f64>>(p); }

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

// Number of values, their mean, and the sum of squared distances from it. Two runs combine without cancellation (Chan, Golub,
// LeVeque: Algorithms for computing the sample variance, 1983). 0: no values.
struct Squares {
    f64 count, mean, squares;
    Squares() = default;
    WJ_DEVICE_MEMBER Squares(int) : count(0.0), mean(0.0), squares(0.0) {}
    WJ_DEVICE_MEMBER Squares(f64 count, f64 mean, f64 squares) : count(count), mean(mean), squares(squares) {}
};

WJ_DEVICE Squares lane_up(const Squares& value, u32 distance) {
    return Squares(lane_up(value.count, distance), lane_up(value.mean, distance), lane_up(value.squares, distance));
}
WJ_DEVICE Squares lane_down(const Squares& value, u32 distance) {
    return Squares(lane_down(value.count, distance), lane_down(value.mean, distance), lane_down(value.squares, distance));
}
WJ_DEVICE Squares lane_of(const Squares& value, u32 lane) {
    return Squares(lane_of(value.count, lane), lane_of(value.mean, lane), lane_of(value.squares, lane));
}
WJ_DEVICE Squares load_relaxed(const Squares* address) {
    return Squares(load_relaxed(&address->count), load_relaxed(&address->mean), load_relaxed(&address->squares));
}
WJ_DEVICE void store_relaxed(Squares* address, const Squares& value) {
    store_relaxed(&address->count, value.count);
    store_relaxed(&address->mean, value.mean);
    store_relaxed(&address->squares, value.squares);
}

struct SquaresOf {
    typedef Squares T;
    WJ_DEVICE_MEMBER static T of(const T& before, const T& here) {
        if (before.count == 0.0) return here;
        if (here.count == 0.0) return before;
        const f64 count = before.count + here.count;
        const f64 distance = here.mean - before.mean;
        const f64 share = here.count / count;
        return Squares(count, before.mean + distance * share,
                       before.squares + here.squares + distance * distance * before.count * share);
    }
};

WJ_DEVICE Squares operand(const SquaresOf&, const WindowValues& v, u64 row) {
    f64 value;
    if (v.kind != WJ_WINDOW_INT) {
        value = stored_double(v, row);
    } else if (v.width == 16) {
        value = (f64)reinterpret_cast<const i128*>(v.values)[row];
    } else {
        value = (f64)(i64)(v.base + stored_value(v.values, v.width, row));
    }
    // NaN for a value that is not finite.
    return Squares(1.0, value, value - value);
}

WJ_ENTRY(window_squares, WindowScanParams, WJ_BLOCK_THREADS) { scan_of<SquaresOf>(p); }
WJ_ENTRY(window_tree_squares, WindowTreeParams, WJ_BLOCK_THREADS) { tree_level<SquaresOf>(p); }

WJ_ENTRY(window_of_squares, WindowOfParams, WJ_BLOCK_THREADS) {
    fold_frames(p, [&](u64 row, const RowRun& partition, const RowRun& frame, bool is_valid) {
        store_as(p.out, row, is_valid ? of_frame<SquaresOf>(p, partition, frame).squares : 0.0);
    });
}

// Maxima of codes, and minima: maxima of their complements.
template <class T>
WJ_DEVICE T operand(const MaxOf<T>&, const WindowValues& v, u64 row) {
    T code;
    order_code(v, row, code);
    return code;
}

WJ_ENTRY(window_max_64, WindowScanParams, WJ_BLOCK_THREADS) { scan_of<MaxOf<u64>>(p); }
WJ_ENTRY(window_max_128, WindowScanParams, WJ_BLOCK_THREADS) { scan_of<MaxOf<u128>>(p); }
WJ_ENTRY(window_tree_max_64, WindowTreeParams, WJ_BLOCK_THREADS) { tree_level<MaxOf<u64>>(p); }
WJ_ENTRY(window_tree_max_128, WindowTreeParams, WJ_BLOCK_THREADS) { tree_level<MaxOf<u128>>(p); }

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
