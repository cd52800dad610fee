"""Runs TPC-H on another engine. Prints one line of JSON per query. README.md explains the fields."""

import argparse
import json
import subprocess
import sys

from common import HOT_RUNS_MIN, circumstances, elapsed_ms, hot_runs, median_ms, run_main
from tpch_answers import checksum, difference
from tpch_data import Dataset
from tpch_engines import ENGINES, leave
from tpch_queries import QUERY_DIR, query_numbers, query_texts


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--engine", required=True, choices=ENGINES)
    parser.add_argument("--data", required=True, metavar="DIR", help="Parquet files as tpchgen-cli writes them")
    parser.add_argument("--queries", type=query_numbers, default="all", metavar="LIST", help="such as 1,3,5-7")
    parser.add_argument("--runs", type=hot_runs, default=HOT_RUNS_MIN, help="hot runs of each query after the first")
    parser.add_argument("--source", choices=("files", "resident"), default="files", help="where tables are")
    parser.add_argument("--executor", help="executor of polars and cudf-polars: in-memory or streaming")
    parser.add_argument(
        "--query-dir", default=QUERY_DIR, metavar="DIR", help="texts for SQL engines, q01.sql to q22.sql"
    )
    parser.add_argument("--isolate", action="store_true", help="run each query in a separate process")
    options = parser.parse_args()
    executors = ENGINES[options.engine].executors
    if options.executor and options.executor not in executors:
        parser.error(f"--executor: {options.engine} has {' and '.join(executors) or 'none to choose'}")
    options.executor = options.executor or next(iter(executors), None)
    return options


def measure(engine, number, runs):
    """Measures one query: a first run, then hot runs, whose answers must equal the first."""
    first_ms, answer = elapsed_ms(lambda: engine.execute(number))
    expected = checksum(engine.to_arrow(answer), engine.tolerance)
    times_ms = []
    for run in range(1, runs + 1):
        # Frees the answer before the clock starts.
        del answer
        time_ms, answer = elapsed_ms(lambda: engine.execute(number))
        differs = difference(expected, checksum(engine.to_arrow(answer), engine.tolerance))
        if differs:
            raise RuntimeError(f"the answer of hot run {run} differs from the first: {differs}")
        times_ms.append(round(time_ms, 3))
    return {
        "rows": expected["rows"],
        "first_ms": round(first_ms, 3),
        "hot_ms": median_ms(times_ms),
        "hot_runs_ms": times_ms,
        "answer": expected,
    }


def run_queries(options):
    """Opens the engine and prints a line for each query."""
    data = Dataset(options.data)
    engine = ENGINES[options.engine]()
    texts = query_texts(options.query_dir, options.queries, data.scale)
    engine.open(options.executor)
    tables_ms, _ = elapsed_ms(lambda: engine.add_tables(data, options.source == "resident"))
    engine.add_queries(texts, data)
    shared = {
        "engine": engine.name,
        "version": engine.version,
        "executor": options.executor,
        "source": options.source,
        "scale": data.scale,
        "tables_ms": round(tables_ms, 3),
    }
    # The only query of its process cannot use caches of another query.
    is_cold = len(options.queries) == 1 and options.source == "files"
    status = 0
    for number in options.queries:
        line = {**shared, "query": number}
        try:
            line.update(measure(engine, number, options.runs))
            line["cold_ms"] = round(tables_ms + line["first_ms"], 3) if is_cold else None
        except Exception as error:  # Engines share no class of errors, and the next query may work.
            line["error"] = f"{type(error).__name__}: {error}"
            status = 1
        print(json.dumps({**line, **circumstances(engine.device)}), flush=True)
    return leave(engine, status)


def run_isolated(options):
    """Runs this script once for each query."""
    flags = ["--engine", options.engine, "--data", options.data, "--runs", str(options.runs)]
    flags += ["--source", options.source, "--query-dir", str(options.query_dir)]
    if options.executor:
        flags += ["--executor", options.executor]
    status = 0
    for number in options.queries:
        command = [sys.executable, __file__, *flags, "--queries", str(number)]
        status = max(status, abs(subprocess.run(command, check=False).returncode))
    return status


def main():
    options = arguments()
    return run_isolated(options) if options.isolate else run_queries(options)


if __name__ == "__main__":
    sys.exit(run_main(main))
