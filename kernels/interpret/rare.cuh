// What takes many registers is a function of its own: within the machine it would cost every instruction theirs. Arguments and
// results are words; floats are their bits.
#pragma once
#include "common/pipeline.cuh"
#include "interpret/constants.cuh"

#define WJ_RARE static __device__ __noinline__

WJ_RARE u64 rare_unary(u32 operation, u64 a) {
    const f64 value = __longlong_as_double((i64)a);
    const f32 single = __uint_as_float((u32)a);
    const i32 date = (i32)a;
    i32 whole = 0;
    f64 real = 0;
    switch (operation) {
        case WJ_DO_DateYear: whole = date_year(date); break;
        case WJ_DO_DateIsoYear: whole = date_iso_year(date); break;
        case WJ_DO_DateQuarter: whole = date_quarter(date); break;
        case WJ_DO_DateMonth: whole = date_month(date); break;
        case WJ_DO_DateWeek: whole = date_week(date); break;
        case WJ_DO_DateDay: whole = date_day(date); break;
        case WJ_DO_DateDayOfYear: whole = date_day_of_year(date); break;
        case WJ_DO_DateDayOfWeek: whole = date_day_of_week(date); break;
        case WJ_DO_DateIsoDayOfWeek: whole = date_iso_day_of_week(date); break;
        case WJ_DO_DateFirstOfWeek: whole = date_first_of_week(date); break;
        case WJ_DO_DateFirstOfMonth: whole = date_first_of_month(date); break;
        case WJ_DO_DateFirstOfQuarter: whole = date_first_of_quarter(date); break;
        case WJ_DO_DateFirstOfYear: whole = date_first_of_year(date); break;
        case WJ_DO_OrderCodeSingle: return order_code_f32(single);
        case WJ_DO_OrderCodeDouble: return order_code_f64(value);
        case WJ_DO_ComparisonCode: return comparison_code_f64(value);
        case WJ_DO_FloatKey: return float_key(value);
        case WJ_DO_IntOfDouble: return (u64)(i64)value;
        case WJ_DO_UnsignedOfDouble: return (u64)value;
        case WJ_DO_SingleOfDouble: return __float_as_uint((f32)value);
        case WJ_DO_SingleOfInt: return __float_as_uint((f32)(i64)a);
        case WJ_DO_SingleOfUnsigned: return __float_as_uint((f32)a);
        case WJ_DO_DoubleOfSingle: real = (f64)single; break;
        case WJ_DO_DoubleOfUnsigned: real = (f64)a; break;
        case WJ_DO_OrderValueDouble: real = order_value_f64(a); break;
        case WJ_DO_Fabs: real = fabs(value); break;
        case WJ_DO_Ceil: real = ceil(value); break;
        case WJ_DO_Floor: real = floor(value); break;
        case WJ_DO_Round: real = round(value); break;
        case WJ_DO_Trunc: real = trunc(value); break;
        case WJ_DO_Sqrt: real = sqrt(value); break;
        default: real = float_sign(value); break;
    }
    const bool is_whole = operation >= WJ_DO_DateYear && operation <= WJ_DO_DateFirstOfYear;
    return is_whole ? (u64)(i64)whole : (u64)__double_as_longlong(real);
}

WJ_RARE u64 rare_binary(u32 operation, u64 a, u64 b) {
    const f64 x = __longlong_as_double((i64)a);
    const f64 y = __longlong_as_double((i64)b);
    // Lanes that take no part divide, too: by a positive number as far as the others do.
    const i64 divisor = (i64)b > 0 ? (i64)b : 1;
    switch (operation) {
        case WJ_DO_Divide:
        case WJ_DO_DivideOrZero: return (u64)divide_or_zero((i64)a, (i64)b);
        case WJ_DO_Remainder:
        case WJ_DO_ModuloOrZero: return (u64)modulo_or_zero((i64)a, (i64)b);
        case WJ_DO_DivideUnsigned: return b == 0 ? 0 : a / b;
        case WJ_DO_RemainderUnsigned: return b == 0 ? 0 : a % b;
        case WJ_DO_FloorDivide: return (u64)floor_divide((i64)a, divisor);
        case WJ_DO_FloorRemainder: return (u64)floor_remainder((i64)a, divisor);
        case WJ_DO_DateAddMonths: return (u64)(i64)date_add_months((i32)a, (i32)b);
        case WJ_DO_DivideDouble: return (u64)__double_as_longlong(x / y);
        default: return (u64)__double_as_longlong(fmod(x, y));
    }
}

// `b` is a word for shifts and for what takes one operand.
WJ_RARE i128 rare_wide(u32 operation, i128 a, i128 b) {
    const i128 divisor = b > 0 ? b : 1;
    switch (operation) {
        case WJ_DO_MultiplyWide: return (i128)((u128)a * (u128)b);
        case WJ_DO_DivideWide:
        case WJ_DO_DivideOrZeroWide: return divide_or_zero(a, b);
        case WJ_DO_RemainderWide:
        case WJ_DO_ModuloOrZeroWide: return modulo_or_zero(a, b);
        case WJ_DO_FloorDivideWide: return floor_divide(a, divisor);
        case WJ_DO_FloorRemainderWide: return floor_remainder(a, divisor);
        case WJ_DO_ShiftLeftWide: return (i128)((u128)a << ((u64)b & 127));
        case WJ_DO_ShiftRightWide: return a >> ((u64)b & 127);
        case WJ_DO_ShiftRightUnsignedWide: return (i128)((u128)a >> ((u64)b & 127));
        case WJ_DO_SumOverflows: return wide_sum_overflows(a, b);
        case WJ_DO_DifferenceOverflows: return wide_difference_overflows(a, b);
        case WJ_DO_ProductOverflows: return wide_product_overflows(a, b);
        case WJ_DO_DoubleOfWide: return (i128)(u64)__double_as_longlong((f64)a);
        case WJ_DO_SingleOfWide: return (i128)(u64)__float_as_uint((f32)a);
        case WJ_DO_WideCast: return (i128)__longlong_as_double((i64)b);
        default: return wide_of_double(__longlong_as_double((i64)b));
    }
}

WJ_RARE u64 rare_central_sum(i64 count, i128 x, i128 y, i128 products) {
    return (u64)__double_as_longlong(central_sum(count, x, y, products));
}

WJ_RARE u64 rare_central_double(u32 operation, u64 a, u64 b, u64 c, u64 d) {
    const f64 x = __longlong_as_double((i64)b);
    const f64 y = __longlong_as_double((i64)c);
    return (u64)__double_as_longlong(operation == WJ_DO_CentralSumDouble
                                         ? central_sum((i64)a, x, y, __longlong_as_double((i64)d))
                                         : central_square((i64)a, x, y));
}

WJ_RARE bool is_in_bloom(const u64* words, u64 blocks, u64 key) { return may_be_in_bloom(words, blocks, key); }

WJ_RARE void add_to_sketch(u64* sketch, u64* control, u64 hash, bool counts) { sketch_add(sketch, control, hash, counts); }

// All threads of the block call it.
WJ_RARE u64 reserve_with_block(u64* counter, bool is_there) {
    return reserve_rows_of_block(shared_as<BlockReservation>(), counter, is_there);
}

// Keys of a lane's rows, if they are there; then what they have in a table, if they are in it.
template <int ROWS>
struct Finds {
    u64 words[ROWS];
    bool are_there[ROWS];
};

// The slots of all rows are read before the first one is looked at.
template <class T, int ROWS>
WJ_RARE Finds<ROWS> find_in_array(const T* slots, Finds<ROWS> finds) {
    T found[ROWS];
    WJ_UNROLL for (int row = 0; row < ROWS; ++row) {
        found[row] = (T)load_bits_if<sizeof(T)>(&slots[finds.words[row] - 1], finds.are_there[row]);
    }
    WJ_UNROLL for (int row = 0; row < ROWS; ++row) {
        finds.are_there[row] = found[row] != 0;
        finds.words[row] = (u64)found[row] - 1;
    }
    return finds;
}
template <class T, int ROWS>
WJ_RARE Finds<ROWS> find_words(const T* slots, u64 count, u32 key_bits, Finds<ROWS> finds) {
    u32 homes[ROWS];
    T first[ROWS];
    WJ_UNROLL for (int row = 0; row < ROWS; ++row) {
        homes[row] = word_home<T>(finds.words[row], count, key_bits);
        first[row] = (T)load_bits_if<sizeof(T)>(&slots[homes[row]], finds.are_there[row]);
    }
    WJ_UNROLL for (int row = 0; row < ROWS; ++row) {
        u64 value = 0;
        // An empty slot is none of a key's.
        finds.are_there[row] = find_word(slots, count, finds.words[row], key_bits, homes[row], first[row], value);
        finds.words[row] = value;
    }
    return finds;
}

// What a key has in a table.
struct Found {
    u64 value;
    bool is_there;
};

// Looks a key up, if it is `active`, with as many lanes as built the table. All lanes call it.
WJ_RARE Found find_together(const Slot* slots, u64 windows, u32 lanes, u64 key, bool active) {
    const u64 hash = hash_key(key);
    Found found = {0, false};
    switch (lanes) {
        case 2: found.is_there = find<2>(slots, windows, key, hash, active, found.value); break;
        case 4: found.is_there = find<4>(slots, windows, key, hash, active, found.value); break;
        case 8: found.is_there = find<8>(slots, windows, key, hash, active, found.value); break;
        case 16: found.is_there = find<16>(slots, windows, key, hash, active, found.value); break;
        default: found.is_there = find<32>(slots, windows, key, hash, active, found.value); break;
    }
    return found;
}
template <int ROWS>
WJ_DEVICE Finds<ROWS> find_pairs(const Slot* slots, u64 windows, u32 lanes, Finds<ROWS> finds) {
    WJ_UNROLL for (int row = 0; row < ROWS; ++row) {
        const Found found = find_together(slots, windows, lanes, finds.words[row], finds.are_there[row]);
        finds.words[row] = found.value;
        finds.are_there[row] = found.is_there;
    }
    return finds;
}

// By the calling lane alone.
template <int ROWS>
WJ_RARE Finds<ROWS> find_pairs_alone(const Slot* slots, u64 count, Finds<ROWS> finds) {
    u64 homes[ROWS];
    Slot first[ROWS];
    WJ_UNROLL for (int row = 0; row < ROWS; ++row) {
        homes[row] = hash_place(hash_key(finds.words[row]), count);
        first[row] = Slot{0, 0};
        if (finds.are_there[row]) first[row] = load_slot(&slots[homes[row]]);
    }
    WJ_UNROLL for (int row = 0; row < ROWS; ++row) {
        u64 value = 0;
        if (finds.are_there[row]) {
            finds.are_there[row] = find_from(slots, count, finds.words[row], homes[row], first[row], value);
        }
        finds.words[row] = value;
    }
    return finds;
}

// Looks up keys in a table of a form (WJ_DO_Find*); `bits` are those of a key in a word, or how many lanes search together. All
// lanes call it.
template <int ROWS>
WJ_DEVICE void find_keys(u32 form, const void* slots, u64 count, u32 bits, Finds<ROWS>& finds) {
    switch (form) {
        case WJ_DO_Find4: finds = find_in_array(static_cast<const u32*>(slots), finds); break;
        case WJ_DO_Find8: finds = find_in_array(static_cast<const u64*>(slots), finds); break;
        case WJ_DO_FindWord4: finds = find_words(static_cast<const u32*>(slots), count, bits, finds); break;
        case WJ_DO_FindWord8: finds = find_words(static_cast<const u64*>(slots), count, bits, finds); break;
        default:
            finds = bits == 1 ? find_pairs_alone(static_cast<const Slot*>(slots), count, finds)
                              : find_pairs(static_cast<const Slot*>(slots), count, bits, finds);
            break;
    }
}

// Merges what the lanes of all warps have gathered into the words. All lanes call it.
WJ_RARE void merge_gathered(u32 operation, u64* words, u64 low, u64 high) {
    const bool merges = (threadIdx.x & 31) == 0;
    switch (operation) {
        case WJ_DO_MergeAdd: {
            const u64 sum = warp_sum(low);
            if (merges) accumulate_add(words, sum);
            break;
        }
        case WJ_DO_MergeAddWide: {
            const i128 sum = warp_sum(wide_literal(low, high));
            if (merges) accumulate_add_wide(words, sum);
            break;
        }
        case WJ_DO_MergeAddDouble: {
            const f64 sum = warp_sum(__longlong_as_double((i64)low));
            if (merges) accumulate_add(reinterpret_cast<f64*>(words), sum);
            break;
        }
        case WJ_DO_MergeMax: {
            const u64 code = warp_max(low);
            if (merges) accumulate_max(words, code);
            break;
        }
        case WJ_DO_MergeOr: {
            const u64 bits = warp_or(low);
            if (merges) accumulate_or(words, bits);
            break;
        }
        default: {
            const u64 bits = warp_xor(low);
            if (merges) accumulate_xor(words, bits);
            break;
        }
    }
}
