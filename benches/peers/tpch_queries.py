"""The texts of the 22 queries, with the specification's validation values put in.

Texts and values are those of `warpjoin tpch`: values are read from the Rust source beside the folder of
texts, so that they are written down once.
"""

import re
from pathlib import Path

from common import PeerError

QUERY_COUNT = 22
QUERY_DIR = Path(__file__).resolve().parents[2] / "crates/warpjoin-cli/src/tpch/queries"
# Query 11's fraction follows the scale factor; the source calls a function for it.
FRACTION_AT_SCALE_1 = 0.0001

PLACEHOLDER = re.compile(r":([1-9])")
FUNCTION = re.compile(r"fn validation_values\b.*?\n    }\n", re.DOTALL)
ARM = re.compile(r"^\s*(\d+) => (.*),$", re.MULTILINE)
LITERAL = re.compile(r'"([^"]*)"')


def validation_values(source, scale):
    """Values of each query, by its number, from the text of `parameters.rs`."""
    function = FUNCTION.search(source)
    if function is None:
        raise PeerError("parameters.rs has no function validation_values any more: change tpch_queries.py with it")
    values = {}
    for number, arm in ARM.findall(function.group()):
        values[int(number)] = LITERAL.findall(arm)
        if "self.fraction()" in arm:
            values[int(number)].append(f"{FRACTION_AT_SCALE_1 / scale:.12f}".rstrip("0").rstrip("."))
    return values


def fill(number, template, values):
    """The template with its placeholders replaced; every value must have one, and every one a value."""
    used = {int(place) for place in PLACEHOLDER.findall(template)}
    if used != set(range(1, len(values) + 1)):
        raise PeerError(f"query {number} has the placeholders {sorted(used)}, and {len(values)} values")
    return PLACEHOLDER.sub(lambda match: values[int(match.group(1)) - 1], template).strip().rstrip(";")


def query_texts(folder, numbers, scale):
    """Texts of the queries `numbers`. A folder whose texts have no placeholders needs no values."""
    templates = {}
    for number in numbers:
        file = Path(folder) / f"q{number:02}.sql"
        if not file.is_file():
            raise PeerError(f"{file} does not exist: --query-dir takes a folder of q01.sql to q22.sql")
        templates[number] = file.read_text(encoding="utf-8")
    values = {}
    if any(PLACEHOLDER.search(template) for template in templates.values()):
        source = Path(folder).parent / "parameters.rs"
        if not source.is_file():
            raise PeerError(f"{source} does not exist: the placeholders of the texts are filled with its values")
        values = validation_values(source.read_text(encoding="utf-8"), scale)
    return {number: fill(number, text, values.get(number, [])) for number, text in templates.items()}


def query_numbers(text):
    """Parses `1,3,5-7` or `all`, keeping the order and dropping repetitions."""
    if text == "all":
        return list(range(1, QUERY_COUNT + 1))
    numbers = []
    for item in text.split(","):
        first, _, last = item.partition("-")
        if not 1 <= int(first) <= int(last or first) <= QUERY_COUNT:
            raise ValueError(f"{item} is no query: they are 1 to {QUERY_COUNT}")
        numbers.extend(range(int(first), int(last or first) + 1))
    return list(dict.fromkeys(numbers))
