"""Figures of the release run in the texts: each value stands in `docs/release/results`.

    python -m tools.figures write    # from docs/release/results into README.md and docs
    python -m tools.figures check    # what differs; exit status 1 where anything does

A text names a value, how it is written, and has what is written between two comments:

    paged serves <!--quickstart/mlu370-x4/paged over odma:change-->+87 % (80 to 94)<!--/--> more

    <!--table oaken/rates:,.0f;.2f-->
    (the values below `oaken/rates` as rows and columns; a format for each column, or one for all)
    <!--/table-->

Formats: one of Python's for numbers (`,.0f`), or of ratios `change` (+87 %), `more` (87 %) and
`less`, and `share`, with `.N` digits (tenths below 10 %); ` alone` leaves the interval out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "docs/release/results"
"""A file for each part of the release run."""
SECOND = "docs/release/second_seed"
"""The same under another seed, of the parts that claims of papers are of."""
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
INLINE = re.compile(r"<!--(?!table |/)([^>]+?)(?::([^:>]*))?-->([^\n]*?)<!--/-->")
TABLE = re.compile(r"<!--table ([^>]+?)(?::([^:>]*))?-->\n(.*?)<!--/table-->", re.DOTALL)
"""A key may have colons; the format stands behind the last one."""
AT_START = re.compile(r"^[ \t>*-]*(<!--(?!table |/table-->).*?-->)", re.MULTILINE)
"""A comment that begins a line, which makes a block of raw HTML of it."""
FORMAT = re.compile(r"(change|more|less|share|,?(?=\.|f|$))(\.\d+)?f?( alone)?")

Value = float | list[float] | str
Results = dict[str, Value]
"""`PART/KEY/...` -> a number, `[mean, low, high]` of an interval of 95 %, or a word."""


class FigureError(Exception):
    """A marker or a result that says nothing, in one sentence."""


def read_results(root: Path = ROOT, folder: str = RESULTS) -> Results:
    """The values of the release run. Raises FigureError where a file has none."""
    found: Results = {}
    for file in sorted((root / folder).glob("*.json")):
        for key, value in read_part(file)["values"].items():
            numbers = value if isinstance(value, list) else [value]
            known = all(type(each) in (int, float) for each in numbers) and len(numbers) in (1, 3)
            if not (known or isinstance(value, str)):
                raise FigureError(f"{file.name}: no value of a result: {key}: {value}")
            found[f"{file.stem}/{key}"] = value
    return found


def read_part(file: Path) -> dict[str, Any]:
    """The commit, CPU seconds and values of a part. Raises FigureError."""
    try:
        part = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FigureError(f"{file.name}: no JSON: {error}") from None
    if not isinstance(part, dict) or part.keys() != {"commit", "cpu_s", "values"}:
        raise FigureError(f"{file.name}: has not a commit, cpu_s and values")
    return part


def results_text(commit: str, cpu_s: float, values: Results) -> str:
    """The file of a part, a line for each value, that `read_part` reads."""
    rows = [
        f"  {_json(key)}: {_json([_digits(one) for one in value])}" if isinstance(value, list)
        else f"  {_json(key)}: {_json(_digits(value))}"
        for key, value in values.items()
    ]  # fmt: skip
    head = f' "commit": {_json(commit[:12])},\n "cpu_s": {_json(round(cpu_s))},\n'
    return "{\n" + head + ' "values": {\n' + ",\n".join(rows) + "\n }\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _digits(value: float | str) -> float | str:
    """A number of six digits, whole where it is."""
    if isinstance(value, str):
        return value
    number = float(f"{value:.6g}")
    return int(number) if number.is_integer() else number


def texts(root: Path = ROOT) -> list[Path]:
    """The pages that may have figures."""
    return [*root.glob("*.md"), *(root / "docs").glob("*.md")]


def written(value: Value, how: str) -> str:
    """A value as the format says. Raises FigureError."""
    if isinstance(value, str):
        return value
    form = FORMAT.fullmatch(how)
    if form is None:
        raise FigureError(f"no format {how!r}")
    word, digits, alone = form.groups()
    numbers = value if isinstance(value, list) else [value]
    scaled, unit, sign = _scaled(numbers, word)
    if not (unit or digits):
        first, *ends = (f"{number:,.6g}" for number in scaled)
    else:
        places = int(digits[1:]) if digits else 0 if abs(scaled[0]) >= 10 else 1
        first, *ends = (f"{round(number, places) + 0.0:,.{places}f}" for number in scaled)
    if sign and not first.startswith("-"):
        first = f"+{first}"
    aside = f" ({ends[0]} to {ends[1]})" if ends and not alone else ""
    return f"{first}{unit}{aside}"


def _scaled(numbers: list[float], word: str) -> tuple[list[float], str, bool]:
    """The numbers to write, their unit, and whether a sign stands before the first."""
    if word == "share":
        return [100 * number for number in numbers], " %", False
    if word in ("change", "more"):
        return [100 * (number - 1) for number in numbers], " %", word == "change"
    if word == "less":
        mean, *ends = (100 * (1 - number) for number in numbers)
        return [mean, *reversed(ends)], " %", False
    return numbers, "", False


def table(rows: dict[str, dict[str, Value]], how: str) -> str:
    """Rows of values by name as a Markdown table. Raises FigureError."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    formats = how.split(";") if ";" in how else [how] * len(columns)
    if len(formats) != len(columns):
        raise FigureError(f"{len(columns)} columns, but {len(formats)} formats")
    cells = {
        label: [written(row.get(c, ""), f) for c, f in zip(columns, formats, strict=True)]
        for label, row in rows.items()
    }
    words = [all(isinstance(r.get(c, ""), str) for r in rows.values()) for c in columns]
    lines = [f"| | {' | '.join(columns)} |"]
    lines += ["|---|" + "|".join("---" if word else "---:" for word in words) + "|"]
    lines += [f"| {label} | {' | '.join(row)} |" for label, row in cells.items()]
    return "".join(f"{line}\n" for line in lines)


def _rows(results: Results, name: str) -> dict[str, dict[str, Value]]:
    """The values below a name: row -> column -> value. Raises FigureError."""
    rows: dict[str, dict[str, Value]] = {}
    for key, value in results.items():
        if key.startswith(f"{name}/"):
            label, *column = key.removeprefix(f"{name}/").split("/")
            if len(column) != 1:
                raise FigureError(f"{key!r} is in no row and column")
            rows.setdefault(label, {})[column[0]] = value
    if not rows:
        raise FigureError(f"no rows in {RESULTS}")
    return rows


def rewritten(text: str, results: Results) -> str:
    """A page with its figures as the results have them. Raises FigureError."""

    def inline(match: re.Match[str]) -> str:
        name, how = match[1], match[2] or ""
        if name not in results:
            raise FigureError(f"{name}: not in {RESULTS}")
        value = _told(name, lambda: written(results[name], how))
        return f"<!--{name}{_after(how)}-->{value}<!--/-->"

    def block(match: re.Match[str]) -> str:
        name, how = match[1], match[2] or ""
        value = _told(name, lambda: table(_rows(results, name), how))
        return f"<!--table {name}{_after(how)}-->\n{value}<!--/table-->"

    rest = COMMENT.search(TABLE.sub("", INLINE.sub("", text)))
    if rest is not None:
        raise FigureError(
            f"the comment {rest[0]!r} is no figure: <!--PART/KEY:FORMAT-->...<!--/-->"
        )
    if (start := AT_START.search(text)) is not None:
        raise FigureError(f"{start[1]!r} begins a line, which Markdown then leaves as it is")
    return TABLE.sub(block, INLINE.sub(inline, text))


def _after(how: str) -> str:
    return f":{how}" if how else ""


def _told(name: str, make: Any) -> str:
    """What `make` returns; its mistake with the marker's name before it."""
    try:
        return str(make())
    except FigureError as error:
        raise FigureError(f"{name}: {error}") from None


def problems(root: Path = ROOT) -> Iterator[str]:
    """What is wrong with the texts, a sentence each."""
    results = read_results(root)
    for path in texts(root):
        text = path.read_text(encoding="utf-8")
        try:
            if rewritten(text, results) != text:
                yield f"{path.relative_to(root)}: differs from {RESULTS}; make figures"
        except FigureError as error:
            yield f"{path.relative_to(root)}: {error}"


def write(root: Path = ROOT) -> list[Path]:
    """Rewrite the texts; those that changed. Raises FigureError."""
    results = read_results(root)
    changed = []
    for path in texts(root):
        text = path.read_text(encoding="utf-8")
        try:
            new = rewritten(text, results)
        except FigureError as error:
            raise FigureError(f"{path.relative_to(root)}: {error}") from None
        if new != text:
            path.write_text(new, encoding="utf-8")
            changed.append(path)
    return changed


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    if arguments not in (["write"], ["check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if arguments == ["write"]:
            for path in write():
                print(f"wrote {path.relative_to(ROOT)}")
            return 0
        found = list(problems())
    except FigureError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
