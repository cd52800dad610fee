// Instructions that compute values, and load and store them.
#pragma once
#include "interpret/machine.cuh"
#include "interpret/rare.cuh"

WJ_DEVICE f64 double_of(u64 word) { return __longlong_as_double((i64)word); }
WJ_DEVICE u64 word_of(f64 value) { return (u64)__double_as_longlong(value); }
WJ_DEVICE u64 word_of_int(u32 value) { return (u64)(i64)(i32)value; }

// The bits of the element of a lane's row at an address; 0 if the row takes no part.
template <class T, int ROWS>
WJ_DEVICE u64 load_element(const Machine<ROWS>& m, u64 address, u64 index, int row) {
    return load_bits_if<sizeof(T)>(reinterpret_cast<const T*>(address) + index, takes_part(m, row));
}
template <class T, int ROWS>
WJ_DEVICE void store_elements(const Machine<ROWS>& m, const Words<ROWS>& a, const Words<ROWS>& b, const Words<ROWS>& c) {
    WJ_EACH_ROW {
        if (takes_part(m, row)) reinterpret_cast<T*>(a.of[row])[b.of[row]] = (T)c.of[row];
    }
}

// A value of 128 bits for each row.
template <int ROWS>
struct WideWords {
    i128 of[ROWS];
};
template <int ROWS>
WJ_DEVICE WideWords<ROWS> get_wide(const Machine<ROWS>& m, u32 operand, const Words<ROWS>& low) {
    const Words<ROWS> high = get_behind(m, operand, 1);
    WideWords<ROWS> wide;
    WJ_EACH_ROW wide.of[row] = wide_literal(low.of[row], high.of[row]);
    return wide;
}
template <int ROWS>
WJ_DEVICE void set_wide(const Machine<ROWS>& m, u32 operand, const WideWords<ROWS>& wide) {
    Words<ROWS> low, high;
    WJ_EACH_ROW {
        low.of[row] = (u64)wide.of[row];
        high.of[row] = (u64)((u128)wide.of[row] >> 64);
    }
    set(m, behind(m, operand, 1), high);
    set(m, operand, low);
}

// A load of each row of a lane that is under way.
template <int ROWS>
struct BegunLoads {
    BegunLoad of[ROWS];
};
template <int ROWS>
WJ_DEVICE BegunLoads<ROWS> begin_loads(const Machine<ROWS>& m, u32 address) {
    u32 head[4];
    load_four(address, head);
    const u32 width = shared_at<const Instruction>(address).next & WJ_LOAD_WIDTH;
    const Words<ROWS> a = get(m, head[2]);
    const Words<ROWS> b = get(m, head[3]);
    BegunLoads<ROWS> loads;
    WJ_EACH_ROW loads.of[row] = begin_load(a.of[row] + (b.of[row] << width), width, takes_part(m, row));
    return loads;
}
template <int ROWS>
WJ_DEVICE void end_loads(const Machine<ROWS>& m, u32 address, const BegunLoads<ROWS>& loads) {
    const Instruction& i = shared_at<const Instruction>(address);
    const u32 form = i.next;
    const Words<ROWS> c = get(m, i.c);
    Words<ROWS> loaded;
    WJ_EACH_ROW {
        loaded.of[row] = end_load(loads.of[row], form >> WJ_LOAD_LACKING) + c.of[row];
        if ((form & WJ_LOAD_INT) != 0) loaded.of[row] = word_of_int((u32)loaded.of[row]);
    }
    set(m, i.to, loaded);
}

// Makes loads together, whose instructions begin at an address: all are under way before one of them is waited for.
template <int LOADS, int ROWS>
WJ_DEVICE void load_together(const Machine<ROWS>& m, u32& at) {
    const u32 first = at;
    BegunLoads<ROWS> loads[LOADS];
    WJ_UNROLL for (u32 load = 0; load < LOADS; ++load) {
        loads[load] = begin_loads(m, first + load * (u32)sizeof(Instruction));
    }
    all_loads_begun();
    WJ_UNROLL for (u32 load = 0; load < LOADS; ++load) {
        end_loads(m, first + load * (u32)sizeof(Instruction), loads[load]);
    }
    at = first + LOADS * (u32)sizeof(Instruction);
}

// Ends a scope, and begins the same one with fewer rows.
template <int ROWS>
WJ_DEVICE void narrow(Machine<ROWS>& m, const Words<ROWS>& conditions, const u32& next, u32& at) {
    pop_scopes(m, 1);
    if (!push_scope(m, conditions)) at = next;
}
// The same where `to` becomes the condition.
template <int ROWS>
WJ_DEVICE void narrow_to(Machine<ROWS>& m, u32 to, const Words<ROWS>& conditions, const u32& next, u32& at) {
    Words<ROWS> all = get(m, to);
    WJ_EACH_ROW if (takes_part(m, row)) all.of[row] = conditions.of[row];
    set(m, to, all);
    narrow(m, all, next, at);
}

// In what follows `x`, `y` and `z` are a row's words of the operands `a`, `b` and `c`.
#define WJ_OF_ROWS(give)                                              \
    WJ_EACH_ROW {                                                     \
        const u64 x = a.of[row], y = b.of[row];                       \
        give;                                                         \
        (void)x, (void)y;                                             \
    }                                                                 \
    break
#define WJ_SET(value) WJ_OF_ROWS(result.of[row] = (u64)(value))
#define WJ_SET_BY_C(value)                      \
    {                                           \
        const Words<ROWS> c = get(m, i.c);      \
        WJ_EACH_ROW {                           \
            const u64 x = a.of[row], y = b.of[row], z = c.of[row]; \
            result.of[row] = (u64)(value);      \
            (void)y;                            \
        }                                       \
        break;                                  \
    }
// The scope goes on with fewer rows.
#define WJ_NARROW_TO(condition)                        \
    {                                                  \
        WJ_EACH_ROW {                                  \
            const u64 x = a.of[row], y = b.of[row];    \
            result.of[row] = (u64)(condition);         \
            (void)y;                                   \
        }                                              \
        narrow_to(m, i.to, result, i.next, at);        \
        return;                                        \
    }
// `v` and `w` are values of 128 bits.
#define WJ_OF_WIDE(give)                                       \
    {                                                          \
        const WideWords<ROWS> left = get_wide(m, i.a, a);      \
        const WideWords<ROWS> right = get_wide(m, i.b, b);     \
        WideWords<ROWS> wide;                                  \
        WJ_EACH_ROW {                                          \
            const i128 v = left.of[row], w = right.of[row];    \
            give;                                              \
        }                                                      \
        (void)wide
#define WJ_SET_BY_WIDE(value) WJ_OF_WIDE(result.of[row] = (u64)(value)); break; }
#define WJ_SET_WIDE(value) WJ_OF_WIDE(wide.of[row] = (i128)(value)); set_wide(m, i.to, wide); return; }
// `to` changes to a value for rows that count: `y`. `t` is what it was.
#define WJ_GATHER(value)                                                                    \
    {                                                                                       \
        result = get(m, i.to);                                                              \
        WJ_EACH_ROW {                                                                       \
            const u64 x = a.of[row], t = result.of[row];                                    \
            if (takes_part(m, row) && b.of[row] != 0) result.of[row] = (u64)(value);         \
        }                                                                                   \
        break;                                                                              \
    }

// Executes an instruction from WJ_DO_Push on: it computes, or begins or ends a scope. It calls no function: what is live across
// calls would lie in local memory.
template <int ROWS>
WJ_DEVICE void compute(Machine<ROWS>& m, const Instruction& rest, const u32 (&head)[4], u32& at) {
    // What follows `b` is read where it is needed.
    struct {
        u32 operation, to, a, b;
        const u32 &c, &d, &next;
    } const i = {head[0], head[1], head[2], head[3], rest.c, rest.d, rest.next};
    const Words<ROWS> a = get(m, i.a);
    const Words<ROWS> b = get(m, i.b);
    Words<ROWS> result;
    switch (i.operation) {
        case WJ_DO_Push: if (!push_scope(m, a)) at = i.next; return;
        case WJ_DO_PushNot:
            WJ_EACH_ROW result.of[row] = a.of[row] == 0;
            if (!push_scope(m, result)) at = i.next;
            return;
        case WJ_DO_Pop: pop_scopes(m, 1); return;
        case WJ_DO_Narrow: narrow(m, a, i.next, at); return;
        case WJ_DO_NarrowIf: WJ_NARROW_TO(x != 0)
        case WJ_DO_NarrowEqual: WJ_NARROW_TO(x == y)
        case WJ_DO_NarrowNotEqual: WJ_NARROW_TO(x != y)
        case WJ_DO_NarrowLess: WJ_NARROW_TO((i64)x < (i64)y)
        case WJ_DO_NarrowLessOrEqual: WJ_NARROW_TO((i64)x <= (i64)y)

        case WJ_DO_Move: WJ_SET(x);
        case WJ_DO_MoveIf:
            result = get(m, i.to);
            WJ_OF_ROWS(if (takes_part(m, row)) result.of[row] = x);
        case WJ_DO_Select: WJ_SET_BY_C(x != 0 ? y : z)
        case WJ_DO_Truth: WJ_SET(x != 0);
        case WJ_DO_TruthWide: {
            const Words<ROWS> high = get_behind(m, i.a, 1);
            WJ_SET((x | high.of[row]) != 0);
        }
        case WJ_DO_SignExtend: WJ_SET((i64)(x << (64 - i.next)) >> (64 - i.next));
        case WJ_DO_ZeroExtend: WJ_SET(x << (64 - i.next) >> (64 - i.next));

        case WJ_DO_Add: WJ_SET(x + y);
        case WJ_DO_AddInt: WJ_SET(word_of_int((u32)x + (u32)y));
        case WJ_DO_Subtract: WJ_SET(x - y);
        case WJ_DO_SubtractInt: WJ_SET(word_of_int((u32)x - (u32)y));
        case WJ_DO_Multiply: WJ_SET(x * y);
        case WJ_DO_MultiplyInt: WJ_SET(word_of_int((u32)x * (u32)y));
        case WJ_DO_And: WJ_SET(x & y);
        case WJ_DO_Or: WJ_SET(x | y);
        case WJ_DO_Xor: WJ_SET(x ^ y);
        case WJ_DO_Not: WJ_SET(x == 0);
        case WJ_DO_Complement: WJ_SET(~x);
        case WJ_DO_ShiftLeft: WJ_SET(x << (y & 63));
        case WJ_DO_ShiftRight: WJ_SET((i64)x >> (y & 63));
        case WJ_DO_ShiftRightUnsigned: WJ_SET(x >> (y & 63));
        case WJ_DO_Extract: WJ_SET(x >> i.next & y);
        case WJ_DO_ExtractInt: WJ_SET_BY_C(word_of_int((u32)(x >> i.next & y) + (u32)z))
        case WJ_DO_OrShifted: WJ_SET(x | y << i.next);
        case WJ_DO_OrPacked: WJ_SET_BY_C(x | y - z << i.next)
        case WJ_DO_Equal: WJ_SET(x == y);
        case WJ_DO_NotEqual: WJ_SET(x != y);
        case WJ_DO_Less: WJ_SET((i64)x < (i64)y);
        case WJ_DO_LessOrEqual: WJ_SET((i64)x <= (i64)y);
        case WJ_DO_LessUnsigned: WJ_SET(x < y);
        case WJ_DO_LessOrEqualUnsigned: WJ_SET(x <= y);

        case WJ_DO_AddWide: WJ_SET_WIDE((u128)v + (u128)w)
        case WJ_DO_SubtractWide: WJ_SET_WIDE((u128)v - (u128)w)
        case WJ_DO_EqualWide: WJ_SET_BY_WIDE(v == w)
        case WJ_DO_NotEqualWide: WJ_SET_BY_WIDE(v != w)
        case WJ_DO_LessWide: WJ_SET_BY_WIDE(v < w)
        case WJ_DO_LessOrEqualWide: WJ_SET_BY_WIDE(v <= w)
        case WJ_DO_LessUnsignedWide: WJ_SET_BY_WIDE((u128)v < (u128)w)
        case WJ_DO_LessOrEqualUnsignedWide: WJ_SET_BY_WIDE((u128)v <= (u128)w)

        case WJ_DO_AddDouble: WJ_SET(word_of(double_of(x) + double_of(y)));
        case WJ_DO_SubtractDouble: WJ_SET(word_of(double_of(x) - double_of(y)));
        case WJ_DO_MultiplyDouble: WJ_SET(word_of(double_of(x) * double_of(y)));
        case WJ_DO_NegateDouble: WJ_SET(word_of(-double_of(x)));
        case WJ_DO_EqualDouble: WJ_SET(double_of(x) == double_of(y));
        case WJ_DO_NotEqualDouble: WJ_SET(double_of(x) != double_of(y));
        case WJ_DO_LessDouble: WJ_SET(double_of(x) < double_of(y));
        case WJ_DO_LessOrEqualDouble: WJ_SET(double_of(x) <= double_of(y));
        case WJ_DO_DoubleOfInt: WJ_SET(word_of((f64)(i64)x));

        case WJ_DO_HashKey: WJ_SET(hash_key(x));
        case WJ_DO_HashCombine: WJ_SET(hash_combine(x, y));

        case WJ_DO_Address: WJ_SET(x + y * i.next);
        case WJ_DO_Loads2: load_together<2>(m, at); return;
        case WJ_DO_Loads4: load_together<4>(m, at); return;
        case WJ_DO_Load8: WJ_SET(load_element<u8>(m, x, y, row));
        case WJ_DO_LoadSigned8: WJ_SET((i64)(i8)load_element<i8>(m, x, y, row));
        case WJ_DO_Load16: WJ_SET(load_element<u16>(m, x, y, row));
        case WJ_DO_LoadSigned16: WJ_SET((i64)(i16)load_element<i16>(m, x, y, row));
        case WJ_DO_Load32: WJ_SET(load_element<u32>(m, x, y, row));
        case WJ_DO_LoadSigned32: WJ_SET((i64)(i32)load_element<i32>(m, x, y, row));
        case WJ_DO_Load64: WJ_SET(load_element<u64>(m, x, y, row));
        // With the base of narrow values: `c`.
        case WJ_DO_LoadAdd8: WJ_SET_BY_C(load_element<u8>(m, x, y, row) + z)
        case WJ_DO_LoadAdd16: WJ_SET_BY_C(load_element<u16>(m, x, y, row) + z)
        case WJ_DO_LoadAdd32: WJ_SET_BY_C(load_element<u32>(m, x, y, row) + z)
        case WJ_DO_LoadAddInt32: WJ_SET_BY_C(word_of_int((u32)load_element<u32>(m, x, y, row) + (u32)z))
        case WJ_DO_LoadWide: {
            WideWords<ROWS> wide;
            WJ_EACH_ROW {
                wide.of[row] = 0;
                if (takes_part(m, row)) wide.of[row] = reinterpret_cast<const i128*>(a.of[row])[b.of[row]];
            }
            set_wide(m, i.to, wide);
            return;
        }
        case WJ_DO_LoadWords: {
            WideWords<ROWS> wide;
            WJ_EACH_ROW {
                wide.of[row] = 0;
                if (takes_part(m, row)) wide.of[row] = wide_of_words(reinterpret_cast<const u64*>(a.of[row]) + b.of[row]);
            }
            set_wide(m, i.to, wide);
            return;
        }
        case WJ_DO_BitAt: WJ_SET(load_element<u8>(m, x, y >> 3, row) >> (y & 7) & 1);
        case WJ_DO_IsInBitmap: WJ_SET(takes_part(m, row) && is_in_bitmap(reinterpret_cast<const u32*>(x), y));
        case WJ_DO_Store8: store_elements<u8>(m, a, b, get(m, i.c)); return;
        case WJ_DO_Store16: store_elements<u16>(m, a, b, get(m, i.c)); return;
        case WJ_DO_Store32: store_elements<u32>(m, a, b, get(m, i.c)); return;
        case WJ_DO_Store64: store_elements<u64>(m, a, b, get(m, i.c)); return;
        case WJ_DO_StoreWide: {
            const WideWords<ROWS> wide = get_wide(m, i.c, get(m, i.c));
            WJ_EACH_ROW {
                if (takes_part(m, row)) reinterpret_cast<i128*>(a.of[row])[b.of[row]] = wide.of[row];
            }
            return;
        }

        // Values that a lane gathers.
        case WJ_DO_AddIf: WJ_GATHER(t + x)
        case WJ_DO_AddWideIf: {
            const WideWords<ROWS> added = get_wide(m, i.a, a);
            WideWords<ROWS> sum = get_wide(m, i.to, get(m, i.to));
            WJ_EACH_ROW {
                if (takes_part(m, row) && b.of[row] != 0) sum.of[row] = (i128)((u128)sum.of[row] + (u128)added.of[row]);
            }
            set_wide(m, i.to, sum);
            return;
        }
        case WJ_DO_AddDoubleIf: WJ_GATHER(word_of(double_of(t) + double_of(x)))
        case WJ_DO_MaxIf: WJ_GATHER(x > t ? x : t)
        case WJ_DO_OrIf: WJ_GATHER(t | x)
        case WJ_DO_XorIf: WJ_GATHER(t ^ x)
        default: __builtin_unreachable();
    }
    set(m, i.to, result);
}

// Executes an instruction that computes, and calls functions for it.
template <int ROWS>
WJ_DEVICE void compute_rare(const Machine<ROWS>& m, const Instruction& i) {
    const Words<ROWS> a = get(m, i.a);
    const Words<ROWS> b = get(m, i.b);
    Words<ROWS> result;
    switch (i.operation) {
        case WJ_DO_OrderCodeSingle:
        case WJ_DO_OrderCodeDouble:
        case WJ_DO_OrderValueDouble:
        case WJ_DO_ComparisonCode:
        case WJ_DO_FloatKey:
        case WJ_DO_Fabs:
        case WJ_DO_Ceil:
        case WJ_DO_Floor:
        case WJ_DO_Round:
        case WJ_DO_Trunc:
        case WJ_DO_Sqrt:
        case WJ_DO_SignDouble:
        case WJ_DO_DoubleOfUnsigned:
        case WJ_DO_DoubleOfSingle:
        case WJ_DO_SingleOfDouble:
        case WJ_DO_SingleOfInt:
        case WJ_DO_SingleOfUnsigned:
        case WJ_DO_IntOfDouble:
        case WJ_DO_UnsignedOfDouble:
        case WJ_DO_DateYear:
        case WJ_DO_DateIsoYear:
        case WJ_DO_DateQuarter:
        case WJ_DO_DateMonth:
        case WJ_DO_DateWeek:
        case WJ_DO_DateDay:
        case WJ_DO_DateDayOfYear:
        case WJ_DO_DateDayOfWeek:
        case WJ_DO_DateIsoDayOfWeek:
        case WJ_DO_DateFirstOfWeek:
        case WJ_DO_DateFirstOfMonth:
        case WJ_DO_DateFirstOfQuarter:
        case WJ_DO_DateFirstOfYear: WJ_SET(rare_unary(i.operation, x));
        case WJ_DO_Divide:
        case WJ_DO_DivideOrZero:
        case WJ_DO_Remainder:
        case WJ_DO_ModuloOrZero:
        case WJ_DO_DivideUnsigned:
        case WJ_DO_RemainderUnsigned:
        case WJ_DO_FloorDivide:
        case WJ_DO_FloorRemainder:
        case WJ_DO_DateAddMonths:
        case WJ_DO_DivideDouble:
        case WJ_DO_Fmod: WJ_SET(rare_binary(i.operation, x, y));
        case WJ_DO_MultiplyWide:
        case WJ_DO_DivideWide:
        case WJ_DO_DivideOrZeroWide:
        case WJ_DO_RemainderWide:
        case WJ_DO_ModuloOrZeroWide:
        case WJ_DO_FloorDivideWide:
        case WJ_DO_FloorRemainderWide: WJ_SET_WIDE(rare_wide(i.operation, v, w))
        case WJ_DO_ShiftLeftWide:
        case WJ_DO_ShiftRightWide:
        case WJ_DO_ShiftRightUnsignedWide: {
            WideWords<ROWS> wide = get_wide(m, i.a, a);
            WJ_EACH_ROW wide.of[row] = rare_wide(i.operation, wide.of[row], (i128)b.of[row]);
            set_wide(m, i.to, wide);
            return;
        }
        case WJ_DO_SumOverflows:
        case WJ_DO_DifferenceOverflows:
        case WJ_DO_ProductOverflows: WJ_SET_BY_WIDE(rare_wide(i.operation, v, w))
        case WJ_DO_DoubleOfWide:
        case WJ_DO_SingleOfWide: {
            const WideWords<ROWS> wide = get_wide(m, i.a, a);
            WJ_EACH_ROW result.of[row] = (u64)rare_wide(i.operation, wide.of[row], 0);
            break;
        }
        case WJ_DO_WideCast:
        case WJ_DO_WideOfDouble: {
            WideWords<ROWS> wide;
            WJ_EACH_ROW wide.of[row] = rare_wide(i.operation, 0, (i128)a.of[row]);
            set_wide(m, i.to, wide);
            return;
        }
        case WJ_DO_CentralSum: {
            const WideWords<ROWS> left = get_wide(m, i.b, b);
            const WideWords<ROWS> right = get_wide(m, i.c, get(m, i.c));
            const WideWords<ROWS> products = get_wide(m, i.d, get(m, i.d));
            WJ_SET(rare_central_sum((i64)x, left.of[row], right.of[row], products.of[row]));
        }
        case WJ_DO_CentralSumDouble: {
            const Words<ROWS> d = get(m, i.d);
            WJ_SET_BY_C(rare_central_double(i.operation, x, y, z, d.of[row]))
        }
        case WJ_DO_CentralSquareDouble: WJ_SET_BY_C(rare_central_double(i.operation, x, y, z, 0))
        case WJ_DO_MayBeInBloom:
            WJ_SET_BY_C(takes_part(m, row) && is_in_bloom(reinterpret_cast<const u64*>(x), y, z))
        default: __builtin_unreachable();
    }
    set(m, i.to, result);
}

#undef WJ_OF_ROWS
#undef WJ_SET
#undef WJ_SET_BY_C
#undef WJ_OF_WIDE
#undef WJ_SET_BY_WIDE
#undef WJ_SET_WIDE
#undef WJ_NARROW_TO
#undef WJ_GATHER
