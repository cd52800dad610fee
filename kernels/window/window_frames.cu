// Frames of a window that no count of rows gives.
//
// window_range: for each row where a bound of its frame is, by the distance of keys. It strides over the rows, and gallops from
// each to its bound, so that neighbours look at neighbouring keys.
//
// Status: WJ_STATUS_OVERFLOW where no key is as far away as is asked for, and there are nulls in this direction.
#include "common/dates.cuh"
#include "common/control.cuh"
#include "window/window.cuh"

WJ_DEVICE i128 integer_key(const WindowValues& v, u64 row) {
    if (v.width == 16) return reinterpret_cast<const i128*>(v.values)[row];
    return (i128)(i64)v.base + stored_value(v.values, v.width, row);
}

// Years that a calendar has.
#define WJ_YEAR_MIN -262143
#define WJ_YEAR_MAX 262142

// The key that is so far away; false: there is none.
WJ_DEVICE bool key_apart(const WindowRangeParams& p, i128 key, i128& apart) {
    const bool adds = (p.is_following != 0) != (p.is_descending != 0);
    const i128 least = wide_of_words(p.least), most = wide_of_words(p.most);
    i128 units = wide_of_words(p.amount);
    if (p.form == WJ_WINDOW_MONTHS) {
        const CivilDate date = civil_date((i32)key);
        const i64 months = adds ? (i64)p.amount[0] : -(i64)p.amount[0];
        const i64 month = (i64)date.year * 12 + date.month - 1 + months;
        if (month < (i64)WJ_YEAR_MIN * 12 || month > (i64)WJ_YEAR_MAX * 12 + 11) return false;
        key = date_add_months((i32)key, (i32)months);
        units = (i128)p.amount[1];
    }
    if (adds) {
        apart = most;
        if (key > most - units) return false;
        apart = key + units;
        return true;
    }
    if (key < least + units) {
        apart = least;
        return p.is_unsigned != 0;
    }
    apart = key - units;
    return true;
}

// A double in the key's type. What is no number stays what it is.
WJ_DEVICE f64 double_apart(const WindowRangeParams& p, f64 key) {
    if (key != key) return key;
    const bool adds = (p.is_following != 0) != (p.is_descending != 0);
    const f64 distance = __longlong_as_double((i64)p.amount[0]);
    const f64 change = adds ? distance : -distance;
    return p.key.kind == WJ_WINDOW_F32 ? (f64)((f32)key + (f32)change) : key + change;
}

// Codes below `limit` are of smaller keys.
template <class Code>
struct RangeLimit {
    Code limit;
    bool is_above_all;
};

WJ_DEVICE u64 code_of_key(const WindowValues& key, u64 row, u64) {
    return key.kind == WJ_WINDOW_INT ? stored_value(key.values, key.width, row) : order_code_f64(stored_double(key, row));
}
WJ_DEVICE u128 code_of_key(const WindowValues& key, u64 row, u128) {
    return reinterpret_cast<const u128*>(key.values)[row] ^ (u128)1 << 127;
}

// The limit of codes where keys are `apart`, or `apart` and less.
WJ_DEVICE RangeLimit<u64> limit_at(const WindowValues& key, i128 apart, bool is_taken, u64) {
    const i128 code = apart - (i128)(i64)key.base + (is_taken ? 1 : 0);
    if (code < 0) return {0, false};
    return {(u64)code, code > (i128)~0ULL};
}
WJ_DEVICE RangeLimit<u128> limit_at(const WindowValues&, i128 apart, bool is_taken, u128) {
    const u128 code = ((u128)apart ^ (u128)1 << 127) + (is_taken ? 1 : 0);
    return {code, is_taken && code == 0};
}

// The limit that parts the keys of the partition for the bound of a row; false: beyond all keys that there may be.
template <class Code>
WJ_DEVICE bool limit_of(const WindowRangeParams& p, u64 row, RangeLimit<Code>& limit) {
    // Keys that are as far away are before the row behind the bound.
    const bool is_taken = (p.is_end != 0) != (p.is_descending != 0);
    if (p.form == WJ_WINDOW_DOUBLE) {
        const u64 code = order_code_f64(double_apart(p, stored_double(p.key, row))) + (is_taken ? 1 : 0);
        limit = {(Code)code, is_taken && code == 0};
        return true;
    }
    i128 apart;
    if (!key_apart(p, integer_key(p.key, row), apart)) return false;
    limit = limit_at(p.key, apart, is_taken, Code());
    return true;
}

// The first row of [first, end) that is not before the limit, from `row` on.
template <class Code>
WJ_DEVICE i64 gallop(const WindowRangeParams& p, i64 first, i64 end, i64 row, const RangeLimit<Code>& limit) {
    const auto is_before = [&](i64 at) {
        const bool is_smaller = limit.is_above_all || code_of_key(p.key, (u64)at, Code()) < limit.limit;
        return is_smaller != (p.is_descending != 0);
    };
    // Rows before `first` are before it, rows from `end` on are not.
    if (is_before(row)) {
        first = row + 1;
        for (i64 step = 1; step < (i64)1 << 32 && row + step < end; step *= 2) {
            if (!is_before(row + step)) {
                end = row + step;
                break;
            }
            first = row + step + 1;
        }
    } else {
        end = row;
        for (i64 step = 1; step < (i64)1 << 32 && row - step >= first; step *= 2) {
            if (is_before(row - step)) {
                first = row - step + 1;
                break;
            }
            end = row - step;
        }
    }
    for (u32 turn = 0; turn < 32 && first < end; ++turn) {
        const i64 middle = first + (end - first) / 2;
        if (is_before(middle)) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

// Where the bound of a row's frame is.
template <class Code>
WJ_DEVICE i64 range_bound(const WindowRangeParams& p, u64 row) {
    const RowRun partition = partition_of(p.w, row);
    // Nulls are peers, at an end.
    i64 first = partition.first, end = partition.end;
    if (p.is_nulls_first != 0 && !is_there(p.key, (u64)first)) first = p.w.group_rows[p.w.groups[first] + 1];
    if (p.is_nulls_first == 0 && !is_there(p.key, (u64)end - 1)) end = p.w.group_rows[p.w.groups[end - 1]];
    if ((i64)row < first) return p.is_end != 0 ? first : partition.first;
    if ((i64)row >= end) return p.is_end != 0 ? partition.end : end;
    RangeLimit<Code> limit;
    if (!limit_of(p, row, limit)) {
        const i64 at = p.is_following != 0 ? end : first;
        if (at != (p.is_following != 0 ? partition.end : partition.first)) raise_status(p.control, WJ_STATUS_OVERFLOW);
        return at;
    }
    return gallop(p, first, end, (i64)row, limit);
}

WJ_ENTRY(window_range, WindowRangeParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.w.rows; row += stride) {
        p.out[row] = (u32)(p.key.width == 16 ? range_bound<u128>(p, row) : range_bound<u64>(p, row));
    }
}
