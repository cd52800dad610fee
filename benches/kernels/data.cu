// Data of the benches, made on the device, and what results must be.
//
// Every value is a function of its row number, so that the rows that an operator must put out follow
// from the specification alone: a result is right when it has as many rows as that says, and the sum
// and the exclusive or of its rows' hashes are those that it says.
//
// make_column: values[rows] of `width` bytes. hash_rows: totals of the rows of up to 12 columns.
// expected_join: totals of the rows that an inner join puts out. group_reference: words of each group
// (count, then two a value column) += the rows. expected_groups: totals of the rows of a group-by.
// Comes after totals.cuh.
// Grid: one row (or group) a thread, grid stride; no shared memory.
// Definitions, which come from Rust: NUMBERS_*, VALUE_*, AGGREGATE_*, COLUMNS_MAX, AGGREGATES_MAX, THREADS.
// A bijection of 32 bits that looks random.
WJ_DEVICE u32 mix32(u32 word) {
    word ^= word >> 16;
    word *= 0x7feb352du;
    word ^= word >> 15;
    word *= 0x846ca68bu;
    return word ^ word >> 16;
}

// A permutation of [0, 2^bits) that looks random.
WJ_DEVICE u64 permute(u64 number, u64 bits) {
    const u64 mask = bits >= 64 ? ~0ULL : (1ULL << bits) - 1;
    const u64 shift = (bits + 1) / 2;
    for (int round = 0; round < 3; ++round) {
        number = (number * 0xd6e8feb86659fd93ULL + 0x9e3779b97f4a7c15ULL) & mask;
        if (shift > 0) number ^= number >> shift;
    }
    return number;
}

// How rows get key numbers. Numbers below `distinct` are those of the build side, or of the groups.
struct Numbers {
    u64 kind;       // NUMBERS_*
    u64 distinct;   // a power of two
    u64 hot_rows;   // so many rows have number 0, and none the numbers from 1 to hot_rows - 1
    u64 hit_rows;   // rows with a number below `distinct`; the others have numbers of no one else
    u64 rows_bits;  // rows = 2^rows_bits
    f64 exponent;   // of Zipf's law
    u64 seed;
};

// Inverse of the continuous distribution function, which stands in for Zipf's.
WJ_DEVICE u64 zipf_number(u64 random, f64 exponent, u64 distinct) {
    const f64 uniform = (f64)(random >> 11) * (1.0 / 9007199254740992.0);
    const f64 places = (f64)distinct + 1.0;
    const f64 rest = 1.0 - exponent;
    const bool harmonic = rest < 1e-9 && rest > -1e-9;
    const f64 place = harmonic ? exp(uniform * log(places)) : pow((pow(places, rest) - 1.0) * uniform + 1.0, 1.0 / rest);
    const u64 number = (u64)place - 1;
    return number < distinct ? number : distinct - 1;
}

WJ_DEVICE u64 number_of(const Numbers& n, u64 row) {
    if (n.kind == NUMBERS_UNIFORM) return mix64(row ^ n.seed) & (n.distinct - 1);
    if (n.kind == NUMBERS_ZIPF) return zipf_number(mix64(row ^ n.seed), n.exponent, n.distinct);
    const u64 place = n.kind == NUMBERS_PERMUTED ? permute(row, n.rows_bits) : row;
    if (place < n.hot_rows) return 0;
    if (place >= n.hit_rows) return n.distinct + place;
    return place & (n.distinct - 1);
}

// A column: how its stored words follow from row and number; a value is base + stored.
struct Column {
    u64 kind;  // VALUE_*
    u64 seed;
    u64 base;
    u64 mask;  // bits of the word that are stored
};

WJ_DEVICE u64 whole_word(const Column& c, u64 row, u64 number, u64 distinct) {
    if (c.kind == VALUE_KEY32) return mix32((u32)number);
    if (c.kind == VALUE_KEY64) return mix64(number);
    if (c.kind == VALUE_KEY_DENSE) return number < distinct ? permute(number, 63 - __clzll((long long)distinct)) : number;
    if (c.kind == VALUE_KEY_SECOND) return mix64(~number);
    if (c.kind == VALUE_ROW) return row;
    const u64 random = mix64(row * 0x9e3779b97f4a7c15ULL + c.seed);
    if (c.kind == VALUE_FLOAT) return (u64)__double_as_longlong((f64)(random >> 40) * 0.0625);
    return random;
}

WJ_DEVICE u64 stored_word(const Column& c, u64 row, u64 number, u64 distinct) {
    return whole_word(c, row, number, distinct) & c.mask;
}

// Upper word of a value of 16 bytes; the lower one is the random word.
WJ_DEVICE u64 stored_high(const Column& c, u64 row) {
    return (mix64(row * 0xd6e8feb86659fd93ULL + ~c.seed) >> 35) - (1ULL << 28);
}

struct MakeParams {
    u64 first_row;  // of the table, on this device
    u64 rows;
    u64 width_bytes;
    void* values;
    Column column;
    Numbers numbers;
};

WJ_ENTRY(make_column, MakeParams, THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        const bool is_key = p.column.kind <= VALUE_KEY_SECOND;
        const u64 number = is_key ? number_of(p.numbers, p.first_row + row) : 0;
        const u64 word = stored_word(p.column, p.first_row + row, number, p.numbers.distinct);
        if (p.width_bytes == 16) {
            static_cast<ulonglong2*>(p.values)[row] = make_ulonglong2(word, stored_high(p.column, p.first_row + row));
        } else if (p.width_bytes == 8) {
            static_cast<u64*>(p.values)[row] = word;
        } else if (p.width_bytes == 4) {
            static_cast<u32*>(p.values)[row] = (u32)word;
        } else if (p.width_bytes == 2) {
            static_cast<u16*>(p.values)[row] = (u16)word;
        } else {
            static_cast<u8*>(p.values)[row] = (u8)word;
        }
    }
}

struct StoredColumn {
    const void* values;  // null with width 0
    u64 width_bytes;
    u64 base;
};

struct HashParams {
    u64 rows;
    u64* totals;
    u64 columns;
    StoredColumn column[COLUMNS_MAX];
};

WJ_ENTRY(hash_rows, HashParams, THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    Totals totals = {0, 0, 0};
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        u64 hash = 0;
        for (u64 c = 0; c < p.columns; ++c) {
            const StoredColumn& column = p.column[c];
            if (column.width_bytes == 16) {
                const ulonglong2 words = static_cast<const ulonglong2*>(column.values)[row];
                hash = hash_value(hash_value(hash, words.x), words.y);
                continue;
            }
            u64 word = 0;
            if (column.width_bytes == 8) word = static_cast<const u64*>(column.values)[row];
            if (column.width_bytes == 4) word = static_cast<const u32*>(column.values)[row];
            if (column.width_bytes == 2) word = static_cast<const u16*>(column.values)[row];
            if (column.width_bytes == 1) word = static_cast<const u8*>(column.values)[row];
            hash = hash_value(hash, column.base + word);
        }
        totals.add(hash);
    }
    add_totals(p.totals, totals);
}

struct JoinParams {
    u64 build_rows;
    u64 probe_rows;
    u64* totals;
    Numbers build;  // NUMBERS_CYCLIC
    Numbers probe;
    u64 keys;
    u64 build_payloads;
    u64 probe_payloads;
    Column column[COLUMNS_MAX];  // keys, then payloads of the build side, then of the probe side
};

// Output: keys, build payloads, probe payloads.
WJ_ENTRY(expected_join, JoinParams, THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 distinct = p.build.distinct;
    Totals totals = {0, 0, 0};
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.probe_rows; row += stride) {
        const u64 number = number_of(p.probe, row);
        // The build rows of this number are `number`, `number + step`, ...
        u64 step = distinct, matches = number < distinct ? p.build_rows / distinct : 0;
        if (number < p.build.hot_rows) {
            step = 1;
            matches = number == 0 ? p.build.hot_rows : 0;
        }
        u64 key_hash = 0;
        for (u64 c = 0; c < p.keys; ++c) {
            key_hash = hash_value(key_hash, p.column[c].base + stored_word(p.column[c], row, number, distinct));
        }
        for (u64 match = 0; match < matches; ++match) {
            u64 hash = key_hash;
            for (u64 c = p.keys; c < p.keys + p.build_payloads + p.probe_payloads; ++c) {
                const u64 payload_row = c < p.keys + p.build_payloads ? number + match * step : row;
                hash = hash_value(hash, p.column[c].base + stored_word(p.column[c], payload_row, 0, distinct));
            }
            totals.add(hash);
        }
    }
    add_totals(p.totals, totals);
}

struct Aggregate {
    u64 function;  // AGGREGATE_*
    Column column;
};

struct GroupParams {
    u64 rows;
    u64* words;   // of each group: rows, then two words an aggregate
    u64* totals;  // expected_groups only
    Numbers numbers;
    Column key;
    u64 aggregates;
    Aggregate aggregate[AGGREGATES_MAX];
};

WJ_ENTRY(group_reference, GroupParams, THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < p.rows; row += stride) {
        u64* group = p.words + number_of(p.numbers, row) * (1 + 2 * AGGREGATES_MAX);
        atomicAdd(&group[0], 1ULL);
        for (u64 a = 0; a < p.aggregates; ++a) {
            const Aggregate& aggregate = p.aggregate[a];
            u64* words = group + 1 + 2 * a;
            const u64 stored = stored_word(aggregate.column, row, 0, 1);
            const u64 value = aggregate.column.base + stored;
            if (aggregate.function == AGGREGATE_SUM) atomicAdd(words, value);
            if (aggregate.function == AGGREGATE_SUM_FLOAT) {
                atomicAdd(reinterpret_cast<f64*>(words), __longlong_as_double((i64)stored));
            }
            // The floats are not negative, so their bits have their order.
            if (aggregate.function == AGGREGATE_MAX_FLOAT) atomicMax(words, stored);
            if (aggregate.function == AGGREGATE_SUM_DECIMAL) {
                const u64 before = atomicAdd(words, stored);
                atomicAdd(words + 1, stored_high(aggregate.column, row) + (before + stored < before ? 1 : 0));
            }
        }
    }
}

// Output: key, then the aggregates. `rows` is the number of groups here.
WJ_ENTRY(expected_groups, GroupParams, THREADS) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    Totals totals = {0, 0, 0};
    for (u64 number = (u64)blockIdx.x * blockDim.x + threadIdx.x; number < p.rows; number += stride) {
        const u64* group = p.words + number * (1 + 2 * AGGREGATES_MAX);
        if (group[0] == 0) continue;
        u64 hash = hash_value(0, p.key.base + stored_word(p.key, 0, number, p.numbers.distinct));
        for (u64 a = 0; a < p.aggregates; ++a) {
            const u64* words = group + 1 + 2 * a;
            hash = hash_value(hash, p.aggregate[a].function == AGGREGATE_COUNT ? group[0] : words[0]);
            if (p.aggregate[a].function == AGGREGATE_SUM_DECIMAL) hash = hash_value(hash, words[1]);
        }
        totals.add(hash);
    }
    add_totals(p.totals, totals);
}
