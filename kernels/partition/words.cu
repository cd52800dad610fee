// Columns of tables to words and back: see partition/words.cuh.
//
// pack_rows: puts the fields of rows into words. Rows with a null key are invalid, or left out.
// unpack_column: one column of a table from words.
// gather_words: words of chosen rows.
// Grid: one row a thread, grid stride. Shared: a BlockReservation for pack_rows.
// Control: rows put out, or nulls.
#include "common/control.cuh"
#include "partition/words.cuh"

// Bits of a float such that equal keys have equal bits: one zero, one not-a-number.
WJ_DEVICE u64 canonical_float(u64 bits, bool is_double) {
    const u64 magnitude = is_double ? bits & 0x7fffffffffffffffULL : bits & 0x7fffffffULL;
    const u64 infinity = is_double ? 0x7ff0000000000000ULL : 0x7f800000ULL;
    if (magnitude == 0) return 0;
    return magnitude > infinity ? infinity | (is_double ? 0x8000000000000ULL : 0x400000ULL) : bits;
}

WJ_DEVICE bool is_set(const u32* bits, u64 row) { return bits == nullptr || (bits[row / 32] >> (row & 31) & 1) != 0; }

WJ_DEVICE u128 load_field(const PackField& field, u64 row) {
    u128 stored = 0;
    if (field.width == 1) stored = field.values[row];
    if (field.width == 2) stored = reinterpret_cast<const u16*>(field.values)[row];
    if (field.width == 4) stored = reinterpret_cast<const u32*>(field.values)[row];
    if (field.width == 8) stored = reinterpret_cast<const u64*>(field.values)[row];
    if (field.width == 16) {
        const u64* halves = reinterpret_cast<const u64*>(field.values) + row * 2;
        stored = (u128)halves[1] << 64 | halves[0];
    }
    if (field.kind == WJ_FIELD_FLOAT32_KEY) return canonical_float((u64)stored, false);
    if (field.kind == WJ_FIELD_FLOAT64_KEY) return canonical_float((u64)stored, true);
    return stored + ((u128)field.bias_high << 64 | field.bias_low);
}

// The word of a row: the fields that are in it.
WJ_DEVICE u64 pack_word(const PackParams& p, u32 word, u64 row) {
    u64 packed = 0;
    for (u32 index = 0; index < p.field_count; ++index) {
        const PackField& field = p.fields[index];
        const bool valid = is_set(field.validity, row);
        const bool has_null_bit = !field.is_key && field.null_bit < 64 && field.null_word == word;
        if (has_null_bit && !valid) packed |= 1ULL << field.null_bit;
        if (!valid) continue;
        if (field.bits == 128) {
            if (field.word == word) packed |= (u64)load_field(field, row);
            if (field.word + 1 == word) packed |= (u64)(load_field(field, row) >> 64);
        } else if (field.word == word && field.bits > 0) {
            packed |= (u64)load_field(field, row) << field.shift;
        }
    }
    return packed;
}

WJ_ENTRY(pack_rows, PackParams, WJ_BLOCK_THREADS) {
    BlockReservation& reservation = shared_as<BlockReservation>();
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.rows + stride - 1) / stride;
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        bool valid = row < p.rows;
        for (u32 index = 0; index < p.field_count && valid; ++index) {
            if (p.fields[index].is_key) valid = is_set(p.fields[index].validity, row);
        }
        u64 at = row;
        if (p.compacts) {
            at = reserve_rows_of_block(reservation, &p.control[WJ_CONTROL_ROWS], valid);
            __syncthreads();
        } else if (p.validity != nullptr) {
            const u32 bits = __ballot_sync(0xffffffffu, valid);
            if ((threadIdx.x & 31) == 0 && row < p.rows) p.validity[row / 32] = bits;
        }
        if (row >= p.rows || (p.compacts && !valid)) continue;
        for (u32 word = 0; word < p.words; ++word) {
            const u64 packed = valid ? pack_word(p, word, row) : 0;
            if (p.is_wide[word]) {
                reinterpret_cast<u64*>(p.columns[word])[at] = packed;
            } else {
                reinterpret_cast<u32*>(p.columns[word])[at] = (u32)packed;
            }
        }
    }
}

WJ_DEVICE u64 load_column(const u8* column, bool is_wide, u64 row) {
    return is_wide ? reinterpret_cast<const u64*>(column)[row] : reinterpret_cast<const u32*>(column)[row];
}

WJ_ENTRY(unpack_column, UnpackParams, WJ_BLOCK_THREADS) {
    u32 nulls = 0;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 rounds = (p.rows + stride - 1) / stride;
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 round = 0; round < rounds; ++round, row += stride) {
        bool valid = row < p.rows && is_set(p.found, row);
        if (valid && p.null_column != nullptr) {
            valid = (load_column(p.null_column, p.null_is_wide, row) >> p.null_bit & 1) == 0;
        }
        const u32 bits = __ballot_sync(0xffffffffu, valid);
        nulls += row < p.rows && !valid;
        if (row >= p.rows) continue;
        if (p.validity != nullptr && (threadIdx.x & 31) == 0) p.validity[row / 32] = bits;
        u128 value = 0;
        if (valid && p.bits > 0) {
            value = load_column(p.column, p.is_wide, row) >> p.shift;
            if (p.bits == 128) value |= (u128)load_column(p.second, true, row) << 64;
            if (p.bits < 64) value &= (1ULL << p.bits) - 1;
            value += (u128)p.bias_high << 64 | p.bias_low;
        }
        if (p.width == 1) p.values[row] = (u8)value;
        if (p.width == 2) reinterpret_cast<u16*>(p.values)[row] = (u16)value;
        if (p.width == 4) reinterpret_cast<u32*>(p.values)[row] = (u32)value;
        if (p.width == 8) reinterpret_cast<u64*>(p.values)[row] = (u64)value;
        if (p.width == 16) {
            reinterpret_cast<u64*>(p.values)[row * 2] = (u64)value;
            reinterpret_cast<u64*>(p.values)[row * 2 + 1] = (u64)(value >> 64);
        }
    }
    for (u32 distance = 16; distance > 0; distance /= 2) nulls += __shfl_xor_sync(0xffffffffu, nulls, distance);
    if ((threadIdx.x & 31) == 0 && nulls != 0) atomicAdd(&p.control[WJ_CONTROL_ROWS], (u64)nulls);
}

WJ_ENTRY(gather_words, GatherWordsParams, WJ_BLOCK_THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        const u64 from = p.from[row];
        const u64 word = from < p.input_rows ? load_column(p.input, p.is_wide, from) : 0;
        if (p.is_wide) {
            reinterpret_cast<u64*>(p.output)[row] = word;
        } else {
            reinterpret_cast<u32*>(p.output)[row] = (u32)word;
        }
    }
}
