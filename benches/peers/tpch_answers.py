"""Checksums to compare the answers of different engines.

Engines differ in types (an average is a double or a decimal with six places) and in the order of equal rows.
Integers, text and dates are hashed row by row, independent of row order. Values with a fraction are summed,
each weighted by the hash of its row, so that swapped values are found. Sums are compared within the wider
tolerance of both engines.
"""

import datetime
import decimal
import hashlib
import math

HASH_BYTES = 8
WEIGHTS = 1021


class Tolerance:
    """Allowed difference of the sums of two engines: per row of the answer, and relative to the sum."""

    # Averages truncated to six places, times the maximum weight; rounding of doubles in long sums.
    EXACT = {"per_row": 2e-6, "relative": 1e-9}
    # In Polars, products and quotients of decimals have only as many places as the operands: two.
    ROUNDED = {"per_row": 2e-2, "relative": 1e-6}


def has_fraction(arrow_type):
    """Whether values of a type are compared within a tolerance."""
    import pyarrow.types as types

    return types.is_floating(arrow_type) or (types.is_decimal(arrow_type) and arrow_type.scale > 0)


def canonical(value):
    """An exact value as text that is the same for all engines' types."""
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(int(value))
    return "null" if value is None else str(value)


def checksum(table, tolerance):
    """Checksum of a pyarrow table, accurate within `tolerance`. Ignores column names, but not their order."""
    exact = [column.to_pylist() for column in table.columns if not has_fraction(column.type)]
    fractions = [column.to_pylist() for column in table.columns if has_fraction(column.type)]
    total, weights = 0, []
    for row in range(table.num_rows):
        text = "\x1f".join(canonical(column[row]) for column in exact)
        word = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest(), "little")
        total = (total + word) % (1 << (8 * HASH_BYTES))
        weights.append(1 + word % WEIGHTS / WEIGHTS)
    return {
        "rows": table.num_rows,
        "exact": f"{len(exact)}:{total:016x}",
        "nulls": sum(column.count(None) for column in fractions),
        "sums": [
            math.fsum(float(value) * weight for value, weight in zip(column, weights, strict=True) if value is not None)
            for column in fractions
        ],
        "tolerance": tolerance,
    }


def difference(expected, found):
    """How two checksums differ; `None` if the answers are equal."""
    for key in ("rows", "exact", "nulls"):
        if expected[key] != found[key]:
            return f"{key}: {expected[key]} and {found[key]}"
    if len(expected["sums"]) != len(found["sums"]):
        return f"{len(expected['sums'])} and {len(found['sums'])} columns with fractions"
    for place, (left, right) in enumerate(zip(expected["sums"], found["sums"], strict=True)):
        per_row, relative = (
            max(expected["tolerance"][key], found["tolerance"][key]) for key in ("per_row", "relative")
        )
        allowed = per_row * expected["rows"] + relative * max(abs(left), abs(right))
        # In this form, NaN differs from everything.
        if not abs(left - right) <= allowed:
            return f"sum {place} of values with fractions: {left!r} and {right!r}"
    return None
