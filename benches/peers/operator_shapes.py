"""The measured joins and group-bys: the lines of the bench that other libraries can run.

Names are those of the lines in `benches/src/lines/{join,group_by}.rs`, so that results can be compared.
Lines about warpjoin's own settings (load factor, join algorithm, runtime filters) and the line with one
hot key are left out. Must not know a library.
"""

from dataclasses import dataclass, replace

ROWS_MIN = 64


@dataclass(frozen=True)
class JoinShape:
    """A join of two random tables, like `JoinSpec` in join.rs."""

    build_rows: int
    probe_rows: int
    # int32 and int64: random over the type's whole range. dense int32: a permutation of 0 to distinct - 1.
    key: str
    # Payload columns per side; 0: the output is row numbers of both sides instead of keys and payloads.
    payload_columns: int
    payload_bytes: int
    multiplicity: int = 1
    match_rate: float = 1.0
    zipf: float = 0.0
    is_semi: bool = False

    @property
    def distinct(self):
        """Number of distinct keys of the build side."""
        return max(self.build_rows // self.multiplicity, 1)

    @property
    def key_bytes(self):
        """Bytes of a row's keys."""
        return {"int32": 4, "dense int32": 4, "int64": 8, "two int64": 16}[self.key]

    @property
    def name(self):
        output = f"{self.payload_columns} x {self.payload_bytes} B a side" if self.payload_columns else "indices"
        sizes = f"{rows_name(self.build_rows)} x {rows_name(self.probe_rows)}"
        name = f"{'semi, ' if self.is_semi else ''}{sizes}, {self.key}, {output}"
        if self.multiplicity > 1:
            name += f", {self.multiplicity} rows a key"
        if self.match_rate < 1:
            name += f", match rate {self.match_rate:g}"
        return name + (f", Zipf {self.zipf:g}" if self.zipf else "")

    @property
    def axes(self):
        """Bench axes of the line."""
        return {
            "build_rows": self.build_rows,
            "probe_rows": self.probe_rows,
            "key_bytes": self.key_bytes,
            "payload_bytes": self.payload_columns * self.payload_bytes if self.payload_columns else 4,
            "multiplicity": self.multiplicity,
            "match_rate": self.match_rate,
            "skew": self.zipf,
        }

    @property
    def rows(self):
        """Number of rows in rows/s."""
        return self.build_rows + self.probe_rows


@dataclass(frozen=True)
class GroupShape:
    """A group-by of a random table, like `GroupSpec` in group_by.rs."""

    rows: int
    groups: int
    key_bytes: int
    # In output order, after the key.
    aggregates: tuple
    zipf: float = 0.0

    @property
    def name(self):
        functions = ", ".join(self.aggregates)
        zipf = f", Zipf {self.zipf:g}" if self.zipf else ""
        key = f"int{8 * self.key_bytes} key"
        return f"{rows_name(self.rows)}, {key}, {functions}, {count_name(self.groups)} groups{zipf}"

    @property
    def axes(self):
        """Bench axes of the line."""
        return {"rows": self.rows, "groups": self.groups, "key_bytes": self.key_bytes, "skew": self.zipf}


FOUR = ("sum(i64)", "sum(f64)", "max(f64)", "count")
SUM = ("sum(i64)",)
SUM_DECIMAL = ("sum(decimal128)",)


def rows_name(rows):
    """`2^27`, or the number if it is not a power of two."""
    return f"2^{rows.bit_length() - 1}" if rows & (rows - 1) == 0 else str(rows)


def count_name(count):
    """`4 M`, `16 K`, or the number."""
    for unit, bits in (("M", 20), ("K", 10)):
        if count >> bits and count % (1 << bits) == 0:
            return f"{count >> bits} {unit}"
    return str(count)


def all_shapes(scale_bits):
    """All shapes by the name of their line. Rows are divided by 2^scale_bits, but are at least 64."""

    def rows(bits):
        return max(1 << bits >> scale_bits, ROWS_MIN)

    shapes = {}
    for group, members in (
        ("join", join_targets(rows)),
        ("join_sweep", join_sweeps(rows)),
        ("join_skew", join_skew(rows)),
        ("group_by", group_targets(rows)),
        ("group_by_decimal", group_decimals(rows)),
    ):
        # Shapes that become equal at a small scale occur once.
        shapes.update((f"{group}/{shape.name}", shape) for shape in members)
    return shapes


def join_targets(rows):
    def join(build_bits, probe_bits, key, columns=0, column_bytes=4, **rest):
        return JoinShape(rows(build_bits), rows(probe_bits), key, columns, column_bytes, **rest)

    quarter = {"multiplicity": 4, "match_rate": 0.25}
    return [
        join(27, 27, "int32", 1, 4),
        join(27, 27, "int32", 2, 4),
        join(27, 27, "int32", 4, 4),
        join(27, 27, "int32"),
        join(27, 27, "int64", 1, 8),
        join(20, 27, "int32"),
        join(20, 27, "int32", 1, 8),
        join(24, 28, "int32", 1, 4),
        join(24, 28, "int32", 2, 4),
        join(24, 26, "int64", **quarter),
        join(24, 26, "int64", 1, 8, **quarter),
        join(27, 27, "int32", is_semi=True),
        join(20, 27, "int32", is_semi=True),
        join(24, 28, "int32", is_semi=True),
        join(27, 27, "dense int32", 1, 4),
        join(20, 27, "dense int32", 1, 4),
    ]


def join_sweeps(rows):
    base = JoinShape(rows(24), rows(26), "int32", 1, 4)
    shapes = [
        replace(base, build_rows=rows(bits), probe_rows=rows(27))
        for bits in (10, 14, 17, 20, 21, 22, 23, 24, 25, 26, 27)
    ]
    shapes += [replace(base, match_rate=rate) for rate in (0.0, 0.01, 0.1, 0.25, 0.5, 1.0)]
    keys = ("int32", "int64", "two int64", "dense int32")
    shapes += [replace(base, key=key, payload_bytes=size) for key in keys for size in (4, 8)]
    # Keeps the number of output rows.
    shapes += [
        replace(base, multiplicity=count, probe_rows=max(base.probe_rows // count, ROWS_MIN))
        for count in (2, 4, 16, 64)
    ]
    return shapes


def join_skew(rows):
    base = JoinShape(rows(24), rows(26), "int32", 1, 4)
    return [replace(base, zipf=exponent) for exponent in (0.5, 1.0, 1.5)]


def groups_of(rows, bits):
    """2^bits groups, but at most a quarter of the rows."""
    return min(1 << bits, rows(27) // 4)


def group_targets(rows):
    shapes = [GroupShape(rows(27), groups_of(rows, bits), 8, FOUR) for bits in (2, 6, 10, 14, 18, 22, 25)]
    shapes.append(GroupShape(rows(27), groups_of(rows, 22), 8, FOUR, zipf=1.0))
    shapes += [GroupShape(rows(27), groups_of(rows, bits), 4, SUM) for bits in (4, 10, 16, 20, 24)]
    return shapes


def group_decimals(rows):
    return [
        GroupShape(rows(27), groups_of(rows, bits), 8, aggregates)
        for bits in (2, 7, 10, 16, 22)
        for aggregates in (SUM, SUM_DECIMAL)
    ]
