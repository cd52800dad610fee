"""Tests that need no engine and no GPU: run `python -m unittest` in this folder.

Needs requirements-cpu.txt.
"""

import decimal
import re
import unittest

import numpy
import pyarrow

import operator_data
from operator_shapes import FOUR, SUM_DECIMAL, GroupShape, JoinShape, all_shapes
from tpch_answers import Tolerance, checksum, difference
from tpch_queries import QUERY_COUNT, QUERY_DIR, query_numbers, query_texts


class Queries(unittest.TestCase):
    def test_every_placeholder_is_filled(self):
        texts = query_texts(QUERY_DIR, range(1, QUERY_COUNT + 1), 1.0)
        self.assertEqual(len(texts), QUERY_COUNT)
        for number, text in texts.items():
            self.assertIsNone(re.search(r":\d", text), number)
        self.assertIn("interval '90' day", texts[1])
        self.assertIn("in ('13', '31'", texts[22])

    def test_the_fraction_depends_on_the_scale(self):
        for scale, fraction in ((1.0, "0.0001"), (100.0, "0.000001"), (0.01, "0.01")):
            self.assertIn(f"* {fraction}\n", query_texts(QUERY_DIR, [11], scale)[11])

    def test_lists_of_queries(self):
        self.assertEqual(query_numbers("1,3,5-7,3"), [1, 3, 5, 6, 7])
        self.assertEqual(len(query_numbers("all")), QUERY_COUNT)
        for bad in ("", "0", "23", "x", "1,", "7-5"):
            self.assertRaises(ValueError, query_numbers, bad)


class Answers(unittest.TestCase):
    def answer(self, names, sums, tolerance=Tolerance.EXACT):
        return checksum(pyarrow.table({"name": names, "sum": sums}), tolerance)

    def test_row_order_and_types_are_ignored(self):
        expected = self.answer(["a", "b"], [1.5, 2.25])
        decimals = pyarrow.array([decimal.Decimal("2.25"), decimal.Decimal("1.50")])
        self.assertIsNone(difference(expected, self.answer(["b", "a"], decimals)))
        whole = [pyarrow.array([7], pyarrow.int32()), pyarrow.array([decimal.Decimal(7)], pyarrow.decimal128(38, 0))]
        self.assertIsNone(difference(*(checksum(pyarrow.table({"n": n}), Tolerance.EXACT) for n in whole)))

    def test_differences_are_found(self):
        expected = self.answer(["a", "b"], [1.5, 2.25])
        for names, sums in (
            (["a", "c"], [1.5, 2.25]),
            (["a", "b"], [2.25, 1.5]),
            (["a", "b"], [1.5, 2.26]),
            (["a", "b"], [1.5, None]),
            (["a", "b"], [1.5, float("nan")]),
            (["a"], [1.5]),
        ):
            self.assertIsNotNone(difference(expected, self.answer(names, sums)), (names, sums))

    def test_the_wider_tolerance_is_used(self):
        expected, rounded = self.answer(["a"], [1.125]), self.answer(["a"], [1.13], Tolerance.ROUNDED)
        self.assertIsNone(difference(expected, rounded))
        self.assertIsNotNone(difference(expected, self.answer(["a"], [1.13])))


def joined(shape):
    """Computes the join with a dictionary: keys, build payloads, probe payloads, or row numbers."""
    build, probe = operator_data.join_tables(numpy, shape)
    keys = 2 if shape.key == "two int64" else 1
    places = {}
    for row, key in enumerate(zip(*build[:keys])):
        places.setdefault(key, []).append(row)
    pairs = [(match, row) for row, key in enumerate(zip(*probe[:keys])) for match in places.get(key, [])]
    if shape.is_semi:
        return [numpy.unique([row for _, row in pairs])]
    matches, rows = (numpy.array(side, dtype=numpy.int64) for side in zip(*pairs))
    if not shape.payload_columns:
        return [matches, rows]
    of_probe = [column[rows] for column in probe]
    return of_probe[:keys] + [column[matches] for column in build[keys:]] + of_probe[keys:]


def grouped(shape):
    """Computes the group-by in exact arithmetic."""
    table = operator_data.group_table(numpy, shape)
    rows = {}
    for row, key in enumerate(table["key"]):
        rows.setdefault(key, []).append(row)
    columns = [numpy.array(list(rows))]
    for aggregate in shape.aggregates:
        if aggregate == "count":
            columns.append(numpy.array([len(places) for places in rows.values()]))
        elif aggregate == "sum(decimal128)":
            words = [[int(low) + (int(high) << 64) for low, high in table["decimal128"][at]] for at in rows.values()]
            sums = [sum(values) % 2**128 for values in words]
            columns.append(numpy.array([[total % 2**64, total >> 64] for total in sums], dtype=numpy.uint64))
        else:
            function, _, name = aggregate.rstrip(")").partition("(")
            columns.append(numpy.array([getattr(table[name][places], function)() for places in rows.values()]))
    return columns


class Operators(unittest.TestCase):
    def test_expected_joins(self):
        for shape in (
            JoinShape(256, 512, "int32", 2, 4),
            JoinShape(256, 512, "int64", 1, 8, multiplicity=4, match_rate=0.25),
            JoinShape(256, 256, "two int64", 1, 8),
            JoinShape(256, 256, "dense int32", 1, 4, match_rate=0.5),
            JoinShape(128, 512, "int32", 0, 4, multiplicity=2, match_rate=0.5),
            JoinShape(128, 512, "int32", 0, 4, match_rate=0.5, is_semi=True),
            JoinShape(128, 512, "int32", 1, 4, zipf=1.0),
        ):
            with self.subTest(shape.name):
                found, expected = joined(shape), operator_data.expected_join(numpy, shape)
                self.assertEqual(operator_data.totals(numpy, found), expected)
                found[-1][[0, -1]] += 1
                self.assertNotEqual(operator_data.totals(numpy, found), expected)

    def test_expected_groups(self):
        for shape in (
            GroupShape(1024, 64, 8, FOUR),
            GroupShape(1024, 64, 4, FOUR, zipf=1.0),
            GroupShape(1024, 256, 8, SUM_DECIMAL),
        ):
            with self.subTest(shape.name):
                found, expected = grouped(shape), operator_data.expected_groups(numpy, shape)
                self.assertEqual(operator_data.totals(numpy, found), expected)
                found[1][0] += found[1].dtype.type(1)
                self.assertNotEqual(operator_data.totals(numpy, found), expected)

    def test_chunk_size_does_not_change_results(self):
        shape = JoinShape(256, 512, "int32", 2, 4, match_rate=0.5)
        whole = operator_data.expected_join(numpy, shape)
        rows, operator_data.CHUNK_ROWS = operator_data.CHUNK_ROWS, 100
        try:
            self.assertEqual(operator_data.expected_join(numpy, shape), whole)
            self.assertEqual(operator_data.totals(numpy, joined(shape)), whole)
        finally:
            operator_data.CHUNK_ROWS = rows

    def test_no_column_is_constant(self):
        build, probe = operator_data.join_tables(numpy, JoinShape(512, 512, "int64", 1, 8))
        for column in build + probe:
            self.assertEqual(len(numpy.unique(column)), len(column))
            self.assertGreater(float(column.max()), 2**61)
            self.assertLess(float(column.min()), -(2**61))

    def test_names_match_the_bench(self):
        shapes = all_shapes(0)
        self.assertIn("join/semi, 2^24 x 2^28, int32, indices", shapes)
        self.assertIn("join/2^24 x 2^26, int64, 1 x 8 B a side, 4 rows a key, match rate 0.25", shapes)
        self.assertIn("join_sweep/2^24 x 2^26, int32, 1 x 4 B a side, match rate 0", shapes)
        self.assertIn("join_skew/2^24 x 2^26, int32, 1 x 4 B a side, Zipf 1", shapes)
        self.assertIn("group_by/2^27, int64 key, sum(i64), sum(f64), max(f64), count, 4 M groups, Zipf 1", shapes)
        self.assertIn("group_by_decimal/2^27, int64 key, sum(decimal128), 128 groups", shapes)


if __name__ == "__main__":
    unittest.main()
