"""The texts of the 22 queries with the validation values of the specification.

Texts and values are those of `warpjoin tpch`. The values are read from the Rust source next to the folder
of texts, so that they are defined only once.
"""

import re
from pathlib import Path

from common import PeerError

QUERY_COUNT = 22
QUERY_DIR = Path(__file__).resolve().parents[2] / "crates/warpjoin-cli/src/tpch/queries"
# The fraction of query 11 depends on the scale factor. The Rust source calls a function for it.
FRACTION_AT_SCALE_1 = 0.0001

PLACEHOLDER = re.compile(r":([1-9])")
FUNCTION = re.compile(r"fn validation_values\b.*?\n    }\n", re.DOTALL)
ARM = re.compile(r"^\s*(\d+) => (.*),$", re.MULTILINE)
LITERAL = re.compile(r'"([^"]*)"')


def validation_values(source, scale):
    """Values of each query by its number, parsed from the text of `parameters.rs`."""
    function = FUNCTION.search(source)
    if function is None:
        raise PeerError("parameters.rs has no function validation_values: update tpch_queries.py")
    values = {}
    for number, arm in ARM.findall(function.group()):
        values[int(number)] = LITERAL.findall(arm)
        if "self.fraction()" in arm:
            values[int(number)].append(f"{FRACTION_AT_SCALE_1 / scale:.12f}".rstrip("0").rstrip("."))
    return values


def fill(number, template, values):
    """Replaces the placeholders of a template. Placeholders and values must match one to one."""
    used = {int(place) for place in PLACEHOLDER.findall(template)}
    if used != set(range(1, len(values) + 1)):
        raise PeerError(f"query {number} has placeholders {sorted(used)}, but {len(values)} values")
    return PLACEHOLDER.sub(lambda match: values[int(match.group(1)) - 1], template).strip().rstrip(";")


def query_texts(folder, numbers, scale):
    """Texts of the queries `numbers`. Values are needed only if the texts have placeholders."""
    templates = {}
    for number in numbers:
        file = Path(folder) / f"q{number:02}.sql"
        if not file.is_file():
            raise PeerError(f"{file} does not exist: --query-dir needs a folder with q01.sql to q22.sql")
        templates[number] = file.read_text(encoding="utf-8")
    values = {}
    if any(PLACEHOLDER.search(template) for template in templates.values()):
        source = Path(folder).parent / "parameters.rs"
        if not source.is_file():
            raise PeerError(f"{source} does not exist: the texts have placeholders for its values")
        values = validation_values(source.read_text(encoding="utf-8"), scale)
    return {number: fill(number, text, values.get(number, [])) for number, text in templates.items()}


def query_numbers(text):
    """Parses `1,3,5-7` or `all`. Keeps the order and drops duplicates."""
    if text == "all":
        return list(range(1, QUERY_COUNT + 1))
    numbers = []
    for item in text.split(","):
        first, _, last = item.partition("-")
        if not 1 <= int(first) <= int(last or first) <= QUERY_COUNT:
            raise ValueError(f"{item} is not a query: expected 1 to {QUERY_COUNT}")
        numbers.extend(range(int(first), int(last or first) + 1))
    return list(dict.fromkeys(numbers))
