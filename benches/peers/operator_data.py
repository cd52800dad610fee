"""The columns of the shapes, and the expected results. Computes the same values as `benches/kernels/data.cu`.

Every value is a function of its row number, and no column is constant. `xp` is cupy on a device, or numpy
in tests. Rows are generated and checked in chunks, to keep temporaries small. Must not know the measured
library.
"""

import numpy

CHUNK_ROWS = 1 << 24
GOLDEN = 0x9E3779B97F4A7C15
MIX = 0xD6E8FEB86659FD93
GROUP_SEED = 0x5EED
# Seeds of the payload columns of each side of a join, and of the value columns of a group-by.
BUILD_SEED, PROBE_SEED = 0x100, 0x200
INT_SEED, FLOAT_SEED, DECIMAL_SEED = 0x100, 0x101, 0x102
# Floats are multiples of 1/16 below 2^20, so that their sums are exact.
FLOAT_STEPS = 16
LIMB_BITS = 32


def u64(number):
    """Converts to a word that can be combined with arrays of words."""
    return numpy.uint64(number)


def mix64(words):
    """A bijection of 64 bits that looks random."""
    for _ in range(2):
        words = (words ^ (words >> u64(32))) * u64(MIX)
    return words ^ (words >> u64(32))


def mix32(words):
    """A bijection of 32 bits that looks random."""
    words = words.astype(numpy.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words = (words ^ (words >> numpy.uint32(shift))) * numpy.uint32(factor)
    return words ^ (words >> numpy.uint32(16))


def permute(numbers, bits):
    """A permutation of 0 to 2^bits - 1 that looks random."""
    mask, shift = u64((1 << bits) - 1), (bits + 1) // 2
    for _ in range(3):
        numbers = (numbers * u64(MIX) + u64(GOLDEN)) & mask
        if shift > 0:
            numbers = numbers ^ (numbers >> u64(shift))
    return numbers


def zipf_numbers(xp, words, exponent, distinct):
    """Numbers below `distinct` by the continuous form of Zipf's law, from random words."""
    uniform = (words >> u64(11)).astype(numpy.float64) * 2.0**-53
    places, rest = distinct + 1.0, 1.0 - exponent
    if abs(rest) < 1e-9:
        drawn = xp.exp(uniform * numpy.log(places))
    else:
        drawn = xp.power((places**rest - 1.0) * uniform + 1.0, 1.0 / rest)
    # Rounding may give a place just below 1.
    return xp.clip(drawn.astype(numpy.int64) - 1, 0, distinct - 1).astype(numpy.uint64)


def random_words(rows, seed):
    return mix64(rows * u64(GOLDEN) + u64(seed))


def random_ints(rows, seed, width_bytes):
    """Integers over the whole range of 4 or 8 bytes."""
    return signed(random_words(rows, seed), width_bytes)


def signed(words, width_bytes):
    """Unsigned words, shifted so that 0 becomes the minimum of the signed type."""
    if width_bytes == 4:
        return ((words & u64(0xFFFFFFFF)).astype(numpy.uint32) ^ numpy.uint32(1 << 31)).view(numpy.int32)
    return (words ^ u64(1 << 63)).view(numpy.int64)


def random_floats(rows):
    return (random_words(rows, FLOAT_SEED) >> u64(40)).astype(numpy.float64) / FLOAT_STEPS


def decimal_words(xp, rows):
    """Low and high words of 128-bit integers from -2^92 to 2^92 - 1, one pair per row."""
    low = random_words(rows, DECIMAL_SEED)
    high = (mix64(rows * u64(MIX) + u64(~DECIMAL_SEED % 2**64)) >> u64(35)) - u64(1 << 28)
    return xp.stack((low, high), axis=1)


def key_columns(xp, key, numbers, distinct):
    """Key columns of rows with these key numbers. Keys are equal exactly if their key numbers are."""
    if key == "int32":
        return [signed(mix32(numbers).astype(numpy.uint64), 4)]
    if key == "dense int32":
        dense = xp.where(numbers < u64(distinct), permute(numbers, distinct.bit_length() - 1), numbers)
        return [dense.astype(numpy.int32)]
    first = signed(mix64(numbers), 8)
    return [first] if key == "int64" else [first, signed(mix64(~numbers), 8)]


def build_numbers(rows, shape):
    return rows & u64(shape.distinct - 1)


def probe_numbers(xp, rows, shape):
    """Key numbers of probe rows. Those from `distinct` on match nothing."""
    if shape.zipf:
        return zipf_numbers(xp, mix64(rows ^ u64(GROUP_SEED)), shape.zipf, shape.distinct)
    places = permute(rows, shape.probe_rows.bit_length() - 1)
    hit_rows = round(shape.probe_rows * shape.match_rate)
    hits = places & u64(shape.distinct - 1)
    return xp.where(places < u64(hit_rows), hits, places + u64(shape.distinct))


def group_numbers(xp, rows, shape):
    words = mix64(rows ^ u64(GROUP_SEED))
    return zipf_numbers(xp, words, shape.zipf, shape.groups) if shape.zipf else words & u64(shape.groups - 1)


def group_key(xp, numbers, shape):
    return key_columns(xp, f"int{8 * shape.key_bytes}", numbers, shape.groups)[0]


def chunks(xp, rows):
    """Yields the slice and the row numbers of each chunk."""
    for first in range(0, rows, CHUNK_ROWS):
        end = min(first + CHUNK_ROWS, rows)
        yield slice(first, end), xp.arange(first, end, dtype=numpy.uint64)


def table(xp, rows, columns_of):
    """Whole columns. `columns_of` computes them from the row numbers of a chunk."""
    columns = []
    for where, numbers in chunks(xp, rows):
        made = columns_of(numbers)
        if not columns:
            columns = [xp.empty((rows, *column.shape[1:]), dtype=column.dtype) for column in made]
        for column, values in zip(columns, made, strict=True):
            column[where] = values
    return columns


def payloads(rows, shape, seed):
    return [random_ints(rows, seed + column, shape.payload_bytes) for column in range(shape.payload_columns)]


def join_tables(xp, shape):
    """Columns of the build side and of the probe side: keys, then payloads."""

    def build(rows):
        keys = key_columns(xp, shape.key, build_numbers(rows, shape), shape.distinct)
        return keys + ([] if shape.is_semi else payloads(rows, shape, BUILD_SEED))

    def probe(rows):
        keys = key_columns(xp, shape.key, probe_numbers(xp, rows, shape), shape.distinct)
        return keys + payloads(rows, shape, PROBE_SEED)

    return table(xp, shape.build_rows, build), table(xp, shape.probe_rows, probe)


def group_table(xp, shape):
    """The key column, and the value columns that the aggregates need, by name."""
    makers = {
        "key": lambda rows: group_key(xp, group_numbers(xp, rows, shape), shape),
        "i64": lambda rows: random_ints(rows, INT_SEED, 8),
        "f64": random_floats,
        "decimal128": lambda rows: decimal_words(xp, rows),
    }
    names = [name for name in makers if name == "key" or any(f"({name})" in each for each in shape.aggregates)]
    columns = table(xp, shape.rows, lambda rows: [makers[name](rows) for name in names])
    return dict(zip(names, columns, strict=True))


def totals(xp, columns):
    """Number of rows, and sum of their hashes modulo 2^64. Independent of the order of rows."""
    rows, total = len(columns[0]), 0
    for first in range(0, rows, CHUNK_ROWS):
        words = xp.zeros(min(CHUNK_ROWS, rows - first), dtype=numpy.uint64)
        for column in columns:
            part = column[first : first + CHUNK_ROWS]
            for values in part.T if part.ndim == 2 else [part]:
                words = mix64(words * u64(GOLDEN) + as_words(xp, values))
        total += int(words.sum(dtype=numpy.uint64))
    return rows, total % 2**64


def as_words(xp, values):
    """Values as words: sign-extended integers, or the bits of floats."""
    values = xp.ascontiguousarray(values)
    if values.dtype.kind == "i":
        values = values.astype(numpy.int64)
    return values.view(numpy.uint64)


def expected_join(xp, shape):
    """Totals of the join's output, computed from its shape: keys, build payloads, probe payloads; or row numbers."""
    count, total = 0, 0
    for _, rows in chunks(xp, shape.probe_rows):
        numbers = probe_numbers(xp, rows, shape)
        hits = numbers < u64(shape.distinct)
        rows, numbers = rows[hits], numbers[hits]
        for match in range(1 if shape.is_semi else shape.multiplicity):
            build_rows = numbers + u64(match * shape.distinct)
            if shape.payload_columns:
                output = key_columns(xp, shape.key, numbers, shape.distinct)
                output += payloads(build_rows, shape, BUILD_SEED) + payloads(rows, shape, PROBE_SEED)
            else:
                output = [rows] if shape.is_semi else [build_rows, rows]
            if len(rows):
                part_count, part_total = totals(xp, output)
                count, total = count + part_count, (total + part_total) % 2**64
    return count, total


def expected_groups(xp, shape):
    """Totals of the groups, computed with one array per aggregate: the key, then the aggregates."""
    columns = group_table(xp, shape)
    sums = {name: xp.zeros(shape.groups, dtype=numpy.uint64) for name in ("count", "i64", "steps")}
    limbs = [xp.zeros(shape.groups, dtype=numpy.uint64) for _ in range(4)]
    greatest = xp.zeros(shape.groups, dtype=numpy.float64)
    for where, rows in chunks(xp, shape.rows):
        places = group_numbers(xp, rows, shape).astype(numpy.int64)
        xp.add.at(sums["count"], places, xp.ones(len(rows), dtype=numpy.uint64))
        if "i64" in columns:
            xp.add.at(sums["i64"], places, columns["i64"][where].view(numpy.uint64))
        if "f64" in columns:
            floats = columns["f64"][where]
            xp.add.at(sums["steps"], places, (floats * FLOAT_STEPS).astype(numpy.uint64))
            xp.maximum.at(greatest, places, floats)
        if "decimal128" in columns:
            for limb, words in zip(limbs, decimal_limbs(xp, columns["decimal128"][where]), strict=True):
                xp.add.at(limb, places, words)
    numbers = xp.nonzero(sums["count"])[0]
    outputs = {
        "sum(i64)": lambda: sums["i64"].view(numpy.int64),
        "sum(f64)": lambda: sums["steps"].astype(numpy.float64) / FLOAT_STEPS,
        "max(f64)": lambda: greatest,
        "count": lambda: sums["count"].view(numpy.int64),
        "sum(decimal128)": lambda: carried(xp, limbs),
    }
    key = group_key(xp, numbers.astype(numpy.uint64), shape)
    return totals(xp, [key] + [outputs[name]()[numbers] for name in shape.aggregates])


def decimal_limbs(xp, pairs):
    """The four 32-bit limbs of 128-bit words, lowest first. Sums of up to 2^32 of them fit in a word."""
    mask = u64((1 << LIMB_BITS) - 1)
    for word in (pairs[:, 0], pairs[:, 1]):
        yield word & mask
        yield word >> u64(LIMB_BITS)


def carried(xp, limbs):
    """Low and high words of the number represented by sums of limbs, modulo 2^128."""
    mask, digits, carry = u64((1 << LIMB_BITS) - 1), [], u64(0)
    for limb in limbs:
        limb = limb + carry
        digits.append(limb & mask)
        carry = limb >> u64(LIMB_BITS)
    words = [digits[at] | (digits[at + 1] << u64(LIMB_BITS)) for at in (0, 2)]
    return xp.stack(words, axis=1)
