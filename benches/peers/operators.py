"""Measures libcudf's joins and group-bys on columns in device memory. Prints one line of JSON per shape.

README.md describes the measurements. Results are checked against expected results computed from the shape.
"""

import argparse
import gc
import importlib.metadata
import json
import re
import sys
import time

from common import PeerError, circumstances, hot_runs, median_ms, need, need_gpu, run_main
from operator_data import expected_groups, expected_join, group_table, join_tables, totals
from operator_shapes import JoinShape, all_shapes

GPU = "requirements-gpu.txt"
RUNS = 7
# Share of free device memory for the pool of libcudf and the data. The rest is for kernels and the context.
POOL_SHARE = 0.9
POOL_ALIGNMENT_BYTES = 256
DECIMAL_SCALE = -2


class Libcudf:
    """libcudf through pylibcudf, with a pool of plain device memory and a separate stream."""

    def __init__(self):
        self.cupy = need("cupy", GPU)
        self.plc = need("pylibcudf", GPU)
        rmm = need("rmm", GPU)
        free_bytes, _ = self.cupy.cuda.runtime.memGetInfo()
        pool_bytes = int(free_bytes * POOL_SHARE) // POOL_ALIGNMENT_BYTES * POOL_ALIGNMENT_BYTES
        # The pool cannot grow, so that no run waits for the driver's allocator.
        pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), pool_bytes, pool_bytes)
        rmm.mr.set_current_device_resource(pool)
        self.cupy.cuda.set_allocator(need("rmm.allocators.cupy", GPU).rmm_cupy_allocator)
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.version = importlib.metadata.version("pylibcudf-cu13")

    def column(self, values):
        """An array as a column, without a copy."""
        if values.ndim == 1:
            return self.plc.Column.from_cuda_array_interface(values)
        decimal = self.plc.DataType(self.plc.TypeId.DECIMAL128, DECIMAL_SCALE)
        words = self.plc.gpumemoryview(values.reshape(-1))
        return self.plc.Column(decimal, len(values), words, None, 0, 0, [])

    def table(self, arrays):
        return self.plc.Table([self.column(values) for values in arrays])

    def array(self, column):
        """A column of a result as an array, without a copy."""
        type_ids = self.plc.TypeId
        kinds = {type_ids.INT32: "i4", type_ids.INT64: "i8", type_ids.FLOAT64: "f8", type_ids.DECIMAL128: "u8"}
        type_id = column.type().id()
        if column.null_count():
            raise RuntimeError("the result has nulls, but the input has none")
        if column.size() == 0:
            return self.cupy.empty(0, dtype=kinds[type_id])
        values = self.cupy.asarray(column.data()).view(kinds[type_id])
        return values.reshape(-1, 2)[: column.size()] if type_id == type_ids.DECIMAL128 else values[: column.size()]

    def join(self, shape):
        """Returns a function that runs the join. Its output is row numbers, or keys, build payloads, probe payloads."""
        keys = 2 if shape.key == "two int64" else 1
        build, probe = join_tables(self.cupy, shape)
        build_keys, probe_keys = self.table(build[:keys]), self.table(probe[:keys])
        build_payloads, probe_columns = self.table(build[keys:]), self.table(probe)
        unequal = self.plc.types.NullEquality.UNEQUAL
        unchecked = self.plc.copying.OutOfBoundsPolicy.DONT_CHECK
        stream = self.stream

        def run():
            if shape.is_semi:
                return [self.plc.join.left_semi_join(probe_keys, build_keys, unequal, stream=stream)]
            probe_map, build_map = self.plc.join.inner_join(probe_keys, build_keys, unequal, stream=stream)
            if not shape.payload_columns:
                return [build_map, probe_map]
            of_probe = self.plc.copying.gather(probe_columns, probe_map, unchecked, stream=stream).columns()
            of_build = self.plc.copying.gather(build_payloads, build_map, unchecked, stream=stream).columns()
            return of_probe[:keys] + of_build + of_probe[keys:]

        return run

    def group_by(self, shape):
        """Returns a function that runs the group-by. Its output is the key, then the aggregates of the shape."""
        arrays = group_table(self.cupy, shape)
        keys = self.table([arrays.pop("key")])
        values = {name: self.column(array) for name, array in arrays.items()}
        makers = {
            "sum": self.plc.aggregation.sum,
            "max": self.plc.aggregation.max,
            "count": lambda: self.plc.aggregation.count(self.plc.types.NullPolicy.INCLUDE),
        }
        # One request per column. The first one also counts rows.
        functions_by_column = {name: [] for name in values}
        for place, aggregate in enumerate(shape.aggregates):
            function, _, name = aggregate.rstrip(")").partition("(")
            functions_by_column[name or next(iter(values))].append((place, function))

        def run():
            requests = [
                self.plc.groupby.GroupByRequest(values[name], [makers[function]() for _, function in functions])
                for name, functions in functions_by_column.items()
            ]
            found_keys, found = self.plc.groupby.GroupBy(keys).aggregate(requests, stream=self.stream)
            output = [None] * len(shape.aggregates)
            for functions, columns in zip(functions_by_column.values(), found, strict=True):
                for (place, _), column in zip(functions, columns.columns(), strict=True):
                    output[place] = column
            return [found_keys.columns()[0], *output]

        return run

    def timed(self, run):
        """Milliseconds by device events, milliseconds by the host's clock, and the result."""
        gc.collect()
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        self.cupy.cuda.runtime.deviceSynchronize()
        start_ns = time.perf_counter_ns()
        begin.record(self.stream)
        result = run()
        end.record(self.stream)
        self.cupy.cuda.runtime.deviceSynchronize()
        wall_ms = (time.perf_counter_ns() - start_ns) / 1e6
        return self.cupy.cuda.get_elapsed_time(begin, end), wall_ms, result

    def measure(self, shape, runs):
        """Measures one shape. Every result is checked while the clock is stopped."""
        is_join = isinstance(shape, JoinShape)
        expected = (expected_join if is_join else expected_groups)(self.cupy, shape)
        run = self.join(shape) if is_join else self.group_by(shape)
        device_ms, wall_ms = [], []
        for _ in range(1 + runs):
            device, wall, result = self.timed(run)
            found = totals(self.cupy, [self.array(column) for column in result])
            if found != expected:
                raise RuntimeError(f"wrong result: rows and checksum are {found}, expected {expected}")
            device_ms.append(round(device, 4))
            wall_ms.append(round(wall, 4))
            # Frees the result before the next run allocates.
            del result
        hot_ms = median_ms(device_ms[1:])
        return {
            "rows_out": expected[0],
            "first_ms": device_ms[0],
            "hot_ms": hot_ms,
            "hot_runs_ms": device_ms[1:],
            "hot_wall_ms": median_ms(wall_ms[1:]),
            "giga_rows_per_s": round(shape.rows / hot_ms / 1e6, 3),
        }


def pattern(text):
    """Parses a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=pattern, default="", metavar="REGEX", help="run only lines whose names match")
    parser.add_argument("--runs", type=hot_runs, default=RUNS, help=f"hot runs of each line after the first ({RUNS})")
    parser.add_argument("--scale-bits", type=int, default=0, metavar="N", help="divide numbers of rows by 2^N")
    parser.add_argument("--list", action="store_true", help="print the names of the lines and stop")
    options = parser.parse_args()
    shapes = {name: shape for name, shape in all_shapes(options.scale_bits).items() if options.lines.search(name)}
    if options.list:
        print("\n".join(shapes))
        return 0
    if not shapes:
        raise PeerError(f"no line matches {options.lines.pattern!r}: --list prints all lines")
    device = need_gpu()
    library = Libcudf()
    shared = {"engine": "libcudf", "version": library.version, "source": "resident", "clock": "device events"}
    status = 0
    for name, shape in shapes.items():
        line = {**shared, "line": name, **shape.axes}
        try:
            line.update(library.measure(shape, options.runs))
        except Exception as error:  # The next shape may need less memory.
            line["error"] = f"{type(error).__name__}: {error}"
            status = 1
        print(json.dumps({**line, **circumstances(device)}), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(run_main(main))
