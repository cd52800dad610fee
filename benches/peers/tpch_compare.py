"""Compares lines of tpch.py: prints hot medians of each engine, and whether all answers are equal.

Fails if an answer differs from that of the first engine, or if a query failed.
"""

import argparse
import fileinput
import json
import sys

from common import PeerError, run_main
from tpch_answers import difference


def label(line):
    """Engine, executor and source: the title of a column of the table."""
    return " ".join(filter(None, (line["engine"], line["executor"], line["source"])))


def read_lines(files):
    """Lines by query and label, and their common scale. A later line with the same label replaces an earlier one."""
    queries, scales = {}, set()
    for text in fileinput.input(files, encoding="utf-8"):
        try:
            line = json.loads(text)
            queries.setdefault(line["query"], {})[label(line)] = line
            scales.add(line["scale"])
        except (ValueError, KeyError, TypeError) as error:
            raise PeerError(f"{fileinput.filename()}:{fileinput.filelineno()} is not a line of tpch.py") from error
    if len(scales) != 1:
        raise PeerError(f"the lines have {len(scales)} scales, expected one: {sorted(scales)}")
    return dict(sorted(queries.items())), scales.pop()


def verdict(lines):
    """`equal`, `not compared`, or the errors of a query."""
    failed = [f"{name}: {' '.join(line['error'].split())}" for name, line in lines.items() if "error" in line]
    if failed:
        return "; ".join(failed)
    (first, reference), *others = lines.items()
    different = [(name, difference(reference["answer"], line["answer"])) for name, line in others]
    wrong = [f"{first} and {name} differ in {found}" for name, found in different if found]
    return "; ".join(wrong) or ("equal" if others else "not compared")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="output of tpch.py; - is standard input")
    queries, scale = read_lines(parser.parse_args().files)
    labels = list(dict.fromkeys(name for lines in queries.values() for name in lines))
    print(f"TPC-H scale {scale:g}, hot medians, ms\n")
    print("| query |", " | ".join(labels), "| answers |")
    print("|---" * (len(labels) + 2) + "|")
    status = 0
    for number, lines in queries.items():
        times = (f"{lines[name]['hot_ms']:.1f}" if "hot_ms" in lines.get(name, {}) else "-" for name in labels)
        answers = verdict(lines)
        status |= answers not in ("equal", "not compared")
        print(f"| {number} |", " | ".join(times), f"| {answers} |")
    return int(status)


if __name__ == "__main__":
    sys.exit(run_main(main))
