// Instructions that compute values, and load and store them.
#pragma once
#include "interpret/machine.cuh"
#include "interpret/rare.cuh"

template <class T>
WJ_DEVICE T load_element(const Machine& m, const Instruction& i) {
    return takes_part(m) ? get_pointer<const T>(m, i.a)[get(m, i.b)] : T(0);
}
template <class T>
WJ_DEVICE void store_element(const Machine& m, const Instruction& i, T value) {
    if (takes_part(m)) get_pointer<T>(m, i.a)[get(m, i.b)] = value;
}

// Whether the lane gathers a value: `b` is the condition.
WJ_DEVICE bool counts(const Machine& m, const Instruction& i) { return takes_part(m) && get(m, i.b) != 0; }

// Ends a scope, and begins the same one with fewer lanes.
WJ_DEVICE void narrow(Machine& m, const Instruction& i, u32& at, bool condition) {
    m.taking >>= 1;
    if (!push_scope(m, condition)) at = i.next;
}
// The same where `to` becomes the condition.
WJ_DEVICE void narrow_to(Machine& m, const Instruction& i, u32& at, bool condition) {
    if (takes_part(m)) set(m, i.to, condition);
    narrow(m, i, at, get(m, i.to) != 0);
}

// Executes an instruction that computes, or begins or ends a scope; false: it does something else.
WJ_DEVICE bool compute(Machine& m, const Instruction& i, u32& at) {
    const u32 to = i.to;
    switch (i.operation) {
        case WJ_DO_Jump:
            m.taking >>= i.a;
            at = i.next;
            return true;
        case WJ_DO_Push: if (!push_scope(m, get(m, i.a) != 0)) at = i.next; return true;
        case WJ_DO_PushNot: if (!push_scope(m, get(m, i.a) == 0)) at = i.next; return true;
        case WJ_DO_Narrow: narrow(m, i, at, get(m, i.a) != 0); return true;
        case WJ_DO_NarrowIf: narrow_to(m, i, at, get(m, i.a) != 0); return true;
        case WJ_DO_NarrowEqual: narrow_to(m, i, at, get(m, i.a) == get(m, i.b)); return true;
        case WJ_DO_NarrowNotEqual: narrow_to(m, i, at, get(m, i.a) != get(m, i.b)); return true;
        case WJ_DO_NarrowLess: narrow_to(m, i, at, (i64)get(m, i.a) < (i64)get(m, i.b)); return true;
        case WJ_DO_NarrowLessOrEqual: narrow_to(m, i, at, (i64)get(m, i.a) <= (i64)get(m, i.b)); return true;
        case WJ_DO_Pop: m.taking >>= 1; return true;

        case WJ_DO_Move: set(m, to, get(m, i.a)); return true;
        case WJ_DO_MoveIf: if (takes_part(m)) set(m, to, get(m, i.a)); return true;
        case WJ_DO_Select: set(m, to, get(m, get(m, i.a) != 0 ? i.b : i.c)); return true;
        case WJ_DO_Truth: set(m, to, get(m, i.a) != 0); return true;
        case WJ_DO_TruthWide: set(m, to, (get(m, i.a) | get_behind(m, i.a, 1)) != 0); return true;
        case WJ_DO_SignExtend: set(m, to, (u64)((i64)(get(m, i.a) << (64 - i.next)) >> (64 - i.next))); return true;
        case WJ_DO_ZeroExtend: set(m, to, get(m, i.a) << (64 - i.next) >> (64 - i.next)); return true;

        case WJ_DO_Add: set(m, to, get(m, i.a) + get(m, i.b)); return true;
        case WJ_DO_AddInt: set(m, to, (u64)(i64)(i32)((u32)get(m, i.a) + (u32)get(m, i.b))); return true;
        case WJ_DO_Subtract: set(m, to, get(m, i.a) - get(m, i.b)); return true;
        case WJ_DO_SubtractInt: set(m, to, (u64)(i64)(i32)((u32)get(m, i.a) - (u32)get(m, i.b))); return true;
        case WJ_DO_Multiply: set(m, to, get(m, i.a) * get(m, i.b)); return true;
        case WJ_DO_MultiplyInt: set(m, to, (u64)(i64)(i32)((u32)get(m, i.a) * (u32)get(m, i.b))); return true;
        case WJ_DO_And: set(m, to, get(m, i.a) & get(m, i.b)); return true;
        case WJ_DO_Or: set(m, to, get(m, i.a) | get(m, i.b)); return true;
        case WJ_DO_Xor: set(m, to, get(m, i.a) ^ get(m, i.b)); return true;
        case WJ_DO_Not: set(m, to, get(m, i.a) == 0); return true;
        case WJ_DO_Complement: set(m, to, ~get(m, i.a)); return true;
        case WJ_DO_ShiftLeft: set(m, to, get(m, i.a) << (get(m, i.b) & 63)); return true;
        case WJ_DO_ShiftRight: set(m, to, (u64)((i64)get(m, i.a) >> (get(m, i.b) & 63))); return true;
        case WJ_DO_ShiftRightUnsigned: set(m, to, get(m, i.a) >> (get(m, i.b) & 63)); return true;
        case WJ_DO_Extract: set(m, to, get(m, i.a) >> i.next & get(m, i.b)); return true;
        case WJ_DO_ExtractInt: set(m, to, (u64)(i64)(i32)((u32)(get(m, i.a) >> i.next & get(m, i.b)) + (u32)get(m, i.c))); return true;
        case WJ_DO_OrShifted: set(m, to, get(m, i.a) | get(m, i.b) << i.next); return true;
        case WJ_DO_OrPacked: set(m, to, get(m, i.a) | get(m, i.b) - get(m, i.c) << i.next); return true;
        case WJ_DO_Equal: set(m, to, get(m, i.a) == get(m, i.b)); return true;
        case WJ_DO_NotEqual: set(m, to, get(m, i.a) != get(m, i.b)); return true;
        case WJ_DO_Less: set(m, to, (i64)get(m, i.a) < (i64)get(m, i.b)); return true;
        case WJ_DO_LessOrEqual: set(m, to, (i64)get(m, i.a) <= (i64)get(m, i.b)); return true;
        case WJ_DO_LessUnsigned: set(m, to, get(m, i.a) < get(m, i.b)); return true;
        case WJ_DO_LessOrEqualUnsigned: set(m, to, get(m, i.a) <= get(m, i.b)); return true;

        case WJ_DO_AddWide: set_wide(m, to, (i128)((u128)get_wide(m, i.a) + (u128)get_wide(m, i.b))); return true;
        case WJ_DO_SubtractWide: set_wide(m, to, (i128)((u128)get_wide(m, i.a) - (u128)get_wide(m, i.b))); return true;
        case WJ_DO_EqualWide: set(m, to, get_wide(m, i.a) == get_wide(m, i.b)); return true;
        case WJ_DO_NotEqualWide: set(m, to, get_wide(m, i.a) != get_wide(m, i.b)); return true;
        case WJ_DO_LessWide: set(m, to, get_wide(m, i.a) < get_wide(m, i.b)); return true;
        case WJ_DO_LessOrEqualWide: set(m, to, get_wide(m, i.a) <= get_wide(m, i.b)); return true;
        case WJ_DO_LessUnsignedWide: set(m, to, (u128)get_wide(m, i.a) < (u128)get_wide(m, i.b)); return true;
        case WJ_DO_LessOrEqualUnsignedWide: set(m, to, (u128)get_wide(m, i.a) <= (u128)get_wide(m, i.b)); return true;

        case WJ_DO_AddDouble: set_double(m, to, get_double(m, i.a) + get_double(m, i.b)); return true;
        case WJ_DO_SubtractDouble: set_double(m, to, get_double(m, i.a) - get_double(m, i.b)); return true;
        case WJ_DO_MultiplyDouble: set_double(m, to, get_double(m, i.a) * get_double(m, i.b)); return true;
        case WJ_DO_NegateDouble: set_double(m, to, -get_double(m, i.a)); return true;
        case WJ_DO_EqualDouble: set(m, to, get_double(m, i.a) == get_double(m, i.b)); return true;
        case WJ_DO_NotEqualDouble: set(m, to, get_double(m, i.a) != get_double(m, i.b)); return true;
        case WJ_DO_LessDouble: set(m, to, get_double(m, i.a) < get_double(m, i.b)); return true;
        case WJ_DO_LessOrEqualDouble: set(m, to, get_double(m, i.a) <= get_double(m, i.b)); return true;
        case WJ_DO_DoubleOfInt: set_double(m, to, (f64)(i64)get(m, i.a)); return true;

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
        case WJ_DO_DateFirstOfYear: set(m, to, rare_unary(i.operation, get(m, i.a))); return true;
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
        case WJ_DO_Fmod: set(m, to, rare_binary(i.operation, get(m, i.a), get(m, i.b))); return true;
        case WJ_DO_MultiplyWide:
        case WJ_DO_DivideWide:
        case WJ_DO_DivideOrZeroWide:
        case WJ_DO_RemainderWide:
        case WJ_DO_ModuloOrZeroWide:
        case WJ_DO_FloorDivideWide:
        case WJ_DO_FloorRemainderWide: set_wide(m, to, rare_wide(i.operation, get_wide(m, i.a), get_wide(m, i.b))); return true;
        case WJ_DO_ShiftLeftWide:
        case WJ_DO_ShiftRightWide:
        case WJ_DO_ShiftRightUnsignedWide: set_wide(m, to, rare_wide(i.operation, get_wide(m, i.a), (i128)get(m, i.b))); return true;
        case WJ_DO_SumOverflows:
        case WJ_DO_DifferenceOverflows:
        case WJ_DO_ProductOverflows:
            set(m, to, (u64)rare_wide(i.operation, get_wide(m, i.a), get_wide(m, i.b)));
            return true;
        case WJ_DO_DoubleOfWide:
        case WJ_DO_SingleOfWide: set(m, to, (u64)rare_wide(i.operation, get_wide(m, i.a), 0)); return true;
        case WJ_DO_WideCast:
        case WJ_DO_WideOfDouble: set_wide(m, to, rare_wide(i.operation, 0, (i128)get(m, i.a))); return true;
        case WJ_DO_CentralSum:
            set(m, to, rare_central_sum((i64)get(m, i.a), get_wide(m, i.b), get_wide(m, i.c), get_wide(m, i.d)));
            return true;
        case WJ_DO_CentralSumDouble:
            set(m, to, rare_central_double(i.operation, get(m, i.a), get(m, i.b), get(m, i.c), get(m, i.d)));
            return true;
        case WJ_DO_CentralSquareDouble:
            set(m, to, rare_central_double(i.operation, get(m, i.a), get(m, i.b), get(m, i.c), 0));
            return true;
        case WJ_DO_HashKey: set(m, to, hash_key(get(m, i.a))); return true;
        case WJ_DO_HashCombine: set(m, to, hash_combine(get(m, i.a), get(m, i.b))); return true;

        case WJ_DO_Address: set(m, to, get(m, i.a) + get(m, i.b) * i.next); return true;
        case WJ_DO_Load8: set(m, to, load_element<u8>(m, i)); return true;
        case WJ_DO_LoadSigned8: set(m, to, (u64)(i64)load_element<i8>(m, i)); return true;
        case WJ_DO_Load16: set(m, to, load_element<u16>(m, i)); return true;
        case WJ_DO_LoadSigned16: set(m, to, (u64)(i64)load_element<i16>(m, i)); return true;
        case WJ_DO_Load32: set(m, to, load_element<u32>(m, i)); return true;
        case WJ_DO_LoadSigned32: set(m, to, (u64)(i64)load_element<i32>(m, i)); return true;
        // With the base of narrow values: `c`.
        case WJ_DO_LoadAdd8: set(m, to, load_element<u8>(m, i) + get(m, i.c)); return true;
        case WJ_DO_LoadAdd16: set(m, to, load_element<u16>(m, i) + get(m, i.c)); return true;
        case WJ_DO_LoadAdd32: set(m, to, load_element<u32>(m, i) + get(m, i.c)); return true;
        case WJ_DO_LoadAddInt32: set(m, to, (u64)(i64)(i32)(load_element<u32>(m, i) + (u32)get(m, i.c))); return true;
        case WJ_DO_Load64: set(m, to, load_element<u64>(m, i)); return true;
        case WJ_DO_LoadWide: set_wide(m, to, load_element<i128>(m, i)); return true;
        case WJ_DO_LoadWords:
            set_wide(m, to, takes_part(m) ? wide_of_words(get_pointer<const u64>(m, i.a) + get(m, i.b)) : (i128)0);
            return true;
        case WJ_DO_BitAt: set(m, to, takes_part(m) && bit_at(get_pointer<const u8>(m, i.a), get(m, i.b))); return true;
        case WJ_DO_IsInBitmap:
            set(m, to, takes_part(m) && is_in_bitmap(get_pointer<const u32>(m, i.a), get(m, i.b)));
            return true;
        case WJ_DO_MayBeInBloom:
            set(m, to, takes_part(m) && is_in_bloom(get_pointer<const u64>(m, i.a), get(m, i.b), get(m, i.c)));
            return true;
        case WJ_DO_Store8: store_element(m, i, (u8)get(m, i.c)); return true;
        case WJ_DO_Store16: store_element(m, i, (u16)get(m, i.c)); return true;
        case WJ_DO_Store32: store_element(m, i, (u32)get(m, i.c)); return true;
        case WJ_DO_Store64: store_element(m, i, get(m, i.c)); return true;
        case WJ_DO_StoreWide: store_element(m, i, get_wide(m, i.c)); return true;

        // Values that a lane gathers.
        case WJ_DO_AddIf: if (counts(m, i)) set(m, to, get(m, to) + get(m, i.a)); return true;
        case WJ_DO_AddWideIf:
            if (counts(m, i)) set_wide(m, to, (i128)((u128)get_wide(m, to) + (u128)get_wide(m, i.a)));
            return true;
        case WJ_DO_AddDoubleIf: if (counts(m, i)) set_double(m, to, get_double(m, to) + get_double(m, i.a)); return true;
        case WJ_DO_MaxIf: if (counts(m, i) && get(m, i.a) > get(m, to)) set(m, to, get(m, i.a)); return true;
        case WJ_DO_OrIf: if (counts(m, i)) set(m, to, get(m, to) | get(m, i.a)); return true;
        case WJ_DO_XorIf: if (counts(m, i)) set(m, to, get(m, to) ^ get(m, i.a)); return true;
        default: return false;
    }
}
