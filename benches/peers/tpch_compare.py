"""Lines of tpch.py side by side: hot medians of each engine, and whether all answers are equal.

Fails if an answer differs from that of the first engine, or a query failed.
"""

import argparse
import fileinput
import json
import sys

from common import PeerError, run_main
from tpch_answers import difference


def label(line):
    """Engine, executor and source, which make a column of the table."""
    return " ".join(filter(None, (line["engine"], line["executor"], line["source"])))


def read_lines(files):
    """Lines by query, then by label; all of one scale. A later line of a label replaces an earlier one."""
    queries, scales = {}, set()
    for text in fileinput.input(files, encoding="utf-8"):
        try:
            line = json.loads(text)
            queries.setdefault(line["query"], {})[label(line)] = line
            scales.add(line["scale"])
        except (ValueError, KeyError, TypeError) as error:
            raise PeerError(f"{fileinput.filename()}:{fileinput.filelineno()} is no line of tpch.py") from error
    if len(scales) != 1:
        raise PeerError(f"the lines are of {len(scales)} scales: {sorted(scales)}")
    return dict(sorted(queries.items())), scales.pop()


def verdict(lines):
    """`equal`, or what is wrong with the lines of a query."""
    failed = [f"{name}: {' '.join(line['error'].split())}" for name, line in lines.items() if "error" in line]
    if failed:
        return "; ".join(failed)
    (first, reference), *others = lines.items()
    different = [(name, difference(reference["answer"], line["answer"])) for name, line in others]
    wrong = [f"{first} and {name} differ in {found}" for name, found in different if found]
    return "; ".join(wrong) or ("equal" if others else "not compared")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="what tpch.py printed; - is standard input")
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
